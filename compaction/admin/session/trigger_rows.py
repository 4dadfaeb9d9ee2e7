"""How far away each trigger is: a row with a bar, in messages, tokens or time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from chatapp import formatting
from chatapp.admin import cells
from compaction import vocabulary
from compaction.branches.snapshot import BranchSnapshot
from compaction.engine.policy.reasons import Reason


def trigger_rows(snapshot: BranchSnapshot, rules: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for every rule in force; one for a maximum age that does not count yet."""
    rows = [_row(snapshot, rule) for rule in rules]
    if any(rule["reason"] == Reason.MAXIMUM_AGE for rule in rules):
        return rows
    return [*rows, *_resting_age(snapshot)]


def _row(snapshot: BranchSnapshot, rule: dict[str, Any]) -> dict[str, Any]:
    name = vocabulary.rule_words(rule["reason"], has_summary=bool(snapshot.state.cursor))
    now, limit, left = rule["now"], rule["limit"], rule["left"]
    is_age = rule["reason"] == Reason.MAXIMUM_AGE
    said = _age_words(now, limit, left) if is_age else f"{now:,} of {limit:,}; {left:,} to go"
    return {
        "name": name,
        "bar": cells.bar(now, limit, f"{name}: {said}"),
        "words": said,
        "is_due": not left,
    }


def _age_words(now: int, limit: int, left: int) -> str:
    return f"waited {_span(now)} of {_span(limit)}; {_span(left)} to go"


def _span(seconds: int) -> str:
    return formatting.span_words(timedelta(seconds=seconds))


def _resting_age(snapshot: BranchSnapshot) -> list[dict[str, Any]]:
    """Return the row of a maximum age while too few messages wait for it to count."""
    profile = snapshot.profile
    limit = profile.compression_cooldown_sec
    if not limit or not profile.enabled:
        return []
    name = vocabulary.rule_words(Reason.MAXIMUM_AGE, has_summary=True)
    said = (
        f"{_span(limit)}; counts when {profile.minimum_batch:,} messages wait, "
        f"now {snapshot.waiting:,} "
        f"{'waits' if snapshot.waiting == 1 else 'wait'}"
    )
    return [{"name": name, "bar": cells.bar(0, limit, f"{name}: {said}"), "words": said}]
