"""What strategies have in common: the plan by the profile's cut, and what agents did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compaction.engine.parameters import Profile
from compaction.engine.policy.cuts import cut_last_n
from compaction.engine.protocols import PlanFacts
from compaction.engine.registry import CUTS
from compaction.engine.strategies.actions import collect_actions
from compaction.engine.types import Item, Plan


def plan_by_cut(items: Sequence[Item], profile: Profile, facts: PlanFacts) -> Plan:
    """Return the plan of the profile's cut; a number that was asked for goes before it."""
    if facts.keep_last_n is not None:
        return cut_last_n(items, profile, facts)
    return CUTS.get(profile.cut)(items, profile, facts)


def files_of(items: Sequence[Item]) -> dict[str, Any]:
    """Return the fields of an Outcome that say which files the items' tool calls touched."""
    actions = collect_actions(items)
    return {"files_read": actions.files_read, "files_modified": actions.files_modified}
