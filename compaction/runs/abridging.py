"""The abridged history of a new summary: made of the entries before it and of what it covers.

So a run reads what is new, and not the conversation. Where the summary before it has no entries
(another profile made it, or an older program), the newest messages that it covers are read once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from chatapp.context.assembly import text_tokens
from chatapp.models import Message
from chatapp.selectors import pinned_messages, rows_before
from compaction.branches.carriers import sends_node
from compaction.branches.snapshot import BranchSnapshot
from compaction.convert import ITEM_COLUMNS, to_item
from compaction.engine.abridged import (
    Entry,
    abridged_text,
    entries_of,
    entry_from_json,
    kept_entries,
)
from compaction.engine.fidelity.redaction import redact_items, redact_json
from compaction.engine.parameters import Profile
from compaction.engine.types import Item, Outcome
from compaction.models import SessionSummary
from compaction.summaries.storing import Sizes

MOST_WALKED_BACK = 2_000
"""Messages that are read once where the summary before has no entries."""
MOST_STORED_CHARS = 400_000
"""Of the entries as JSON; those that are sent are stored however long they are."""
LARGEST_SHARE = 0.5
"""Of what a summary saves, at most, what the abridged history beside it may take again."""

Measure = Callable[[Outcome], Sizes]


def with_abridged(
    snapshot: BranchSnapshot,
    outcome: Outcome,
    before: Sequence[SessionSummary],
    measure: Measure,
) -> tuple[Outcome, Sizes]:
    """Return an outcome with its abridged history, if the profile wants one, and its sizes.

    Where a history would take more than half of what the summary saves, it holds fewer entries: a
    node is there to make requests smaller.
    """
    sizes, profile = measure(outcome), snapshot.profile
    if profile.abridged_total_chars_limit <= 0:
        return outcome, sizes
    entries = _entries(snapshot, outcome, before)
    found = _abridged(outcome, entries, profile)
    if not sends_node(profile):
        return found, sizes
    most = LARGEST_SHARE * max(0, sizes.before - sizes.after)
    room = profile.abridged_total_chars_limit
    while found.abridged and text_tokens(snapshot.model, found.abridged) > most:
        room = min(room, len(found.abridged)) // 2
        found = _abridged(outcome, entries, replace(profile, abridged_total_chars_limit=room))
    return found, measure(found)


def _abridged(outcome: Outcome, entries: Sequence[Entry], profile: Profile) -> Outcome:
    """Return the outcome with what is sent of the entries, and with those that are stored."""
    return replace(
        outcome,
        abridged=abridged_text(entries, profile),
        abridged_entries=tuple(one.as_json() for one in stored_entries(entries, profile)),
    )


def stored_entries(entries: Sequence[Entry], profile: Profile) -> list[Entry]:
    """Return the entries that are kept for the next summary, in order of time.

    Those are all; of very many, the ones that are sent and as many of the newest as have room.
    """
    wanted = {id(one) for one in kept_entries(entries, profile)}
    left = MOST_STORED_CHARS
    for entry in reversed(entries):
        size = len(json.dumps(entry.as_json(), ensure_ascii=False))
        if size <= left:
            wanted.add(id(entry))
            left -= size
    return [one for one in entries if id(one) in wanted]


def _entries(
    snapshot: BranchSnapshot, outcome: Outcome, before: Sequence[SessionSummary]
) -> list[Entry]:
    # What was dropped is in no summary: an entry of its own is all that is left of it.
    profile, items = snapshot.profile, outcome.passed
    first, last = items[0].position, items[-1].position
    pinned = pinned_messages(snapshot.branch, through=last).filter(position__gte=first)
    hides = profile.redact_secrets
    earlier = _entries_before(snapshot, before)
    if not earlier and snapshot.state.cursor:
        walked = _walked_back(snapshot, end=first)
        earlier = entries_of(redact_items(walked)[0] if hides else walked, profile=profile)
    if hides:
        # They may have been stored while the parameter was off, and a hook's items are as they
        # stand in the conversation.
        earlier = read_entries(redact_json([one.as_json() for one in earlier]))
        items = tuple(redact_items(items)[0])
    return entries_of(
        items,
        earlier=earlier,
        profile=profile,
        pinned=frozenset(pinned.values_list("position", flat=True)),
    )


def _entries_before(snapshot: BranchSnapshot, before: Sequence[SessionSummary]) -> list[Entry]:
    """Return the entries of the newest summary that the new one follows."""
    rows = sorted(before, key=lambda row: row.covers_through)
    return read_entries(rows[-1].abridged_entries) if rows else []


def read_entries(stored: Iterable[Any]) -> list[Entry]:
    """Return stored entries; what is none is left out."""
    found = map(entry_from_json, stored if isinstance(stored, list) else [])
    return [one for one in found if one is not None]


def _walked_back(snapshot: BranchSnapshot, *, end: int) -> list[Item]:
    """Return the newest messages before a position, from the first question among them on."""
    rows = Message.objects.filter(kind=Message.Kind.MESSAGE).only(*ITEM_COLUMNS)
    found = rows_before(snapshot.branch, rows, end=end, most=MOST_WALKED_BACK)
    items = list(map(to_item, found))
    questions = (index for index, item in enumerate(items) if item.is_question)
    return items[next(questions, 0) :]
