"""What a request of a branch is made of, in the words that are stored with its answer, and what of
the conversation it goes without.

Nothing is read where nothing is left out: the snapshot has it all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from chatapp.answer_requests import short_id, write_parts
from chatapp.models import Message
from chatapp.selectors import rows_before, rows_from
from compaction.branches.snapshot import BranchSnapshot
from compaction.branches.tail import BehindCursor

# Why messages are left out: the recovery of a refused request, or a limit of the profile.
HALVED, LIMITED = "halve_history", "history_limit"
# The column of a message that sums the tokens up to it.
_SUMS = ("position", "tokens", "tokens_through")


def words_of(
    snapshot: BranchSnapshot,
    kept: Sequence[Message],
    *,
    summaries: Sequence[Any],
    cut: Collection[UUID],
    pins: Collection[UUID],
) -> Mapping[str, str]:
    """Return the profile, the summaries, and the places of what is special, as short texts."""
    cursor = snapshot.state.cursor
    row = snapshot.profile_row
    first = next((one.position for one in kept if one.position > cursor), None)
    said = {
        "profile": f"{row.name} {row.version}",
        "summaries": " ".join(short_id(one.pk) for one in summaries),
        "first": _places([first] if first is not None else []),
        "pins": _places(one.position for one in kept if one.pk in pins),
        "cut": _places(one.position for one in kept if one.pk in cut),
    }
    return {key: text for key, text in said.items() if text}


def _places(positions: Any) -> str:
    return write_parts((position, "") for position in positions)


def with_steps(made_of: Mapping[str, str], steps: Sequence[str]) -> dict[str, str]:
    """Return the words with the recovery steps that led to the request, in order."""
    return {**made_of, "steps": " ".join(steps)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gone:
    """Messages that a request goes without: how many, from where to where, their tokens."""

    messages: int
    first: int
    last: int
    tokens: int


def left_out_of(
    snapshot: BranchSnapshot, behind: BehindCursor, kept: Sequence[Message], *, is_halved: bool
) -> dict[str, Any] | None:
    """Return what a request goes without, {messages, first, last, tokens, why}, or None.

    `first` and `last` are places. A message counts where neither it nor a summary of it is sent.
    """
    sent = {row.pk for row in kept}
    missing = [row for row in behind.rows if row.pk not in sent]
    halved = None
    if missing:
        halved = _Gone(
            messages=len(missing),
            first=missing[0].position,
            last=missing[-1].position,
            tokens=sum(row.tokens for row in missing),
        )
    parts = [one for one in (_hidden(snapshot, behind), halved) if one is not None]
    if not parts:
        return None
    return {
        "messages": sum(one.messages for one in parts),
        "first": place_of(parts[0].first),
        "last": place_of(parts[-1].last),
        "tokens": sum(one.tokens for one in parts),
        "why": HALVED if is_halved and halved is not None else LIMITED,
    }


def _hidden(snapshot: BranchSnapshot, behind: BehindCursor) -> _Gone | None:
    """Return what a limit of the profile hides; two rows are read where there is something."""
    start = behind.rows[0].position if behind.rows else None
    limit = snapshot.profile.sent_limit
    waiting = snapshot.branch.message_count - snapshot.state.covered_messages
    if not 0 < limit < waiting or start is None:
        return None
    apart = [*behind.system, *(row for row in behind.pins if row.position < start)]
    count = waiting - len(apart) - len(behind.rows)
    places = Message.objects.filter(kind__in=Message.SPOKEN).only(*_SUMS)
    known = {row.pk for row in apart}
    near = len(apart) + 1
    cursor = snapshot.state.cursor
    oldest = rows_from(snapshot.branch, places, start=cursor + 1, most=near)
    newest = rows_before(snapshot.branch, places, end=start, start=cursor + 1, most=near)
    first = next((row for row in oldest if row.pk not in known), None)
    last = next((row for row in reversed(newest) if row.pk not in known), None)
    if count <= 0 or first is None or last is None:
        return None
    between = last.tokens_through - first.tokens_through + first.tokens
    inside = (row for row in apart if first.position < row.position < last.position)
    return _Gone(
        messages=count,
        first=first.position,
        last=last.position,
        tokens=max(0, between - sum(row.tokens for row in inside)),
    )


def place_of(position: int) -> str:
    """Return a position as people read it: 3, or 3.5."""
    return Message(position=position).place
