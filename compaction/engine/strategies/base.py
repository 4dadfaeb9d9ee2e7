"""What strategies have in common: the plan by the profile's cut, and what agents did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from compaction.engine.parameters import Profile
from compaction.engine.policy.cuts import cut_last_n
from compaction.engine.policy.groups import MoreItemsNeeded
from compaction.engine.protocols import Cut, PlanFacts, Strategy
from compaction.engine.registry import CUTS
from compaction.engine.strategies.actions import files_after
from compaction.engine.types import NO_FILES, Files, Item, Plan

# What a summariser may read of the messages that stay.
MOST_KEPT_TOKENS = 600
SHOWN_CHARS_PER_TOKEN = 2


def plan_by_cut(items: Sequence[Item], profile: Profile, facts: PlanFacts) -> Plan:
    """Return the plan of the profile's cut; a number that was asked for goes before it.

    Raises MoreItemsNeeded.
    """
    if facts.keep_last_n is not None:
        return cut_last_n(items, profile, facts)
    cut = CUTS.get(profile.cut)
    if facts.earlier and not plans_from_tail(cut):
        raise MoreItemsNeeded(all_of_them=True)
    return cut(items, profile, facts)


def plans_from_tail(part: Strategy | Cut) -> bool:
    """Whether a strategy or a cut may be given the newest items alone; a plug-in has to say so."""
    return bool(getattr(part, "plans_from_tail", False))


def files_of(
    items: Sequence[Item], before: Files = NO_FILES, tool_actions: str = ""
) -> dict[str, Any]:
    """Return the fields of an Outcome that say which files tool calls touched.

    Those of the items are added to what the summaries before them name. `tool_actions` are the
    profile's lines about tools that nobody else knows.
    """
    files = files_after(before, items, tool_actions)
    return {
        "files_read": files.read,
        "files_modified": files.modified,
        "files_created": files.created,
        "files_deleted": files.deleted,
    }


def shown_of_kept(items: Sequence[Item], position: int) -> list[Item]:
    """Return the newest items behind a position, as far as a summariser should see them.

    They are read and not summarised: they say what holds now. Of a long one, the beginning is
    shown.
    """
    found: list[Item] = []
    left = MOST_KEPT_TOKENS
    for item in reversed(items):
        if item.position <= position or left <= 0:
            break
        if item.read_tokens > left:
            shown = item.text[: left * SHOWN_CHARS_PER_TOKEN] + "…"
            item = replace(item, text=shown, tokens=left, unread_tokens=0)
        left -= item.read_tokens
        found.append(item)
    return found[::-1]
