"""What a request of a branch is made of, in the words that are stored with its answer, and what of
the conversation it goes without.

Nothing is read where nothing is left out: the snapshot has it all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from uuid import UUID

from chatapp.answer_requests import short_id, write_parts
from chatapp.context.preview import NotShown
from chatapp.models import POSITION_STEP, Message
from chatapp.selectors import rows_before, rows_from
from compaction.branches.coverage import sent_chain
from compaction.branches.reading import PLACE_AND_SUMS
from compaction.branches.snapshot import BranchSnapshot
from compaction.branches.tail import BehindCursor
from compaction.engine.policy.head import DROP

# Why messages are left out: the recovery of a refused request, a limit of the profile, or because
# the profile had summarisers pass over them unread.
HALVED, LIMITED, DROPPED = "halve_history", "history_limit", "head_overflow"


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
        if behind.not_shown is not None:
            halved = _with_those_before(halved, behind.not_shown)
    limited = _hidden(snapshot, behind)
    unread = _dropped(snapshot, kept)
    parts = [*unread, *(one for one in (limited, halved) if one is not None)]
    if not parts:
        return None
    why = HALVED if is_halved and halved is not None else LIMITED
    return {
        "messages": sum(one.messages for one in parts),
        "first": place_of(parts[0].first),
        "last": place_of(parts[-1].last),
        "tokens": sum(one.tokens for one in parts),
        "why": why if limited or halved else DROPPED,
    }


def _with_those_before(gone: _Gone, unread: NotShown) -> _Gone:
    """Return what is missing with the older messages that nobody read (past_window.py)."""
    return replace(
        gone,
        messages=gone.messages + unread.messages,
        first=int(Decimal(unread.first) * POSITION_STEP),
        tokens=gone.tokens + unread.tokens,
    )


def _dropped(snapshot: BranchSnapshot, kept: Sequence[Message]) -> list[_Gone]:
    """Return what summarisers passed over unread before the cursor, oldest first (head_overflow).

    No summary knows of it, not one that came later either. Nothing is read where the profile reads
    all of a history and no summary that is sent was cut short.
    """
    drops = snapshot.profile.head_overflow == DROP
    if not snapshot.summaries or not (drops or any(one.truncated for one in snapshot.summaries)):
        return []
    chain = sent_chain(snapshot.branch, snapshot.state.cursor)
    places = Message.objects.filter(kind__in=Message.SPOKEN).only(*PLACE_AND_SUMS)
    found: list[_Gone] = []
    for row, before in zip(chain, [*chain[1:], None], strict=True):
        if not row.dropped_messages:
            continue
        begin = 0 if before is None else before.covers_through
        # What is pinned was passed over like the rest, and is sent; so is what opens it, uncounted.
        pinned = [one for one in kept if begin < one.position < row.covers_from]
        opening = [one for one in snapshot.pinned if one.is_pinned_system]
        sent = [*(one for one in opening if begin < one.position < row.covers_from), *pinned]
        found.extend(
            _Gone(
                messages=row.dropped_messages - len(pinned),
                first=first.position,
                last=last.position,
                tokens=_tokens_between(first, last, sent),
            )
            for first, last in _ends(snapshot, places, begin + 1, row.covers_from, sent)
        )
    return found[::-1]


def _ends(
    snapshot: BranchSnapshot, places: Any, start: int, end: int, sent: Sequence[Message]
) -> list[tuple[Message, Message]]:
    """Return the first and the last message of a stretch that is not sent; nothing for none."""
    known, near = {one.pk for one in sent}, len(sent) + 1
    oldest = rows_from(snapshot.branch, places, start=start, most=near)
    newest = rows_before(snapshot.branch, places, end=end, start=start, most=near)
    first = next((row for row in oldest if row.pk not in known), None)
    last = next((row for row in reversed(newest) if row.pk not in known), None)
    return [] if first is None or last is None else [(first, last)]


def _tokens_between(first: Message, last: Message, sent: Sequence[Message]) -> int:
    """Return the tokens from one message to another, without those that are sent all the same."""
    between = last.tokens_through - first.tokens_through + first.tokens
    inside = (row for row in sent if first.position < row.position < last.position)
    return max(0, between - sum(row.tokens for row in inside))


def _hidden(snapshot: BranchSnapshot, behind: BehindCursor) -> _Gone | None:
    """Return what a limit of the profile hides; two rows are read where there is something."""
    start = behind.rows[0].position if behind.rows else None
    limit = snapshot.profile.sent_limit
    waiting = snapshot.branch.message_count - snapshot.state.covered_messages
    if not 0 < limit < waiting or start is None:
        return None
    apart = [*behind.system, *(row for row in behind.pins if row.position < start)]
    count = waiting - len(apart) - len(behind.rows)
    if behind.hidden is not None and not apart:
        ends = [behind.hidden]
    else:
        places = Message.objects.filter(kind__in=Message.SPOKEN).only(*PLACE_AND_SUMS)
        ends = _ends(snapshot, places, snapshot.state.cursor + 1, start, apart)
    if count <= 0 or not ends:
        return None
    ((first, last),) = ends
    return _Gone(
        messages=count,
        first=first.position,
        last=last.position,
        tokens=_tokens_between(first, last, apart),
    )


def place_of(position: int) -> str:
    """Return a position as people read it: 3, or 3.5."""
    return Message(position=position).place
