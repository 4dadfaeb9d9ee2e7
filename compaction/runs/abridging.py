"""The abridged history of a new summary: made of the entries before it and of what it covers.

So a run reads what is new, and not the conversation. Where the summary before it has no entries
(another profile made it, or an older program), the newest messages that it covers are read once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from chatapp.context.assembly import text_tokens
from chatapp.models import Message
from chatapp.selectors import pinned_messages, rows_before
from compaction.branches.snapshot import BranchSnapshot
from compaction.convert import ITEM_COLUMNS, to_item
from compaction.engine.abridged import Entry, entries_of, without_names
from compaction.engine.abridging import read_entries, with_history, with_small_history
from compaction.engine.carrying import sends_node
from compaction.engine.fidelity.redaction import redact_items, redact_json
from compaction.engine.types import Item, Outcome
from compaction.models import SessionSummary
from compaction.summaries.columns import Sizes

MOST_WALKED_BACK = 2_000
"""Messages that are read once where the summary before has no entries."""

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
    if not sends_node(profile):
        return with_history(outcome, entries, profile), sizes
    found = with_small_history(
        outcome,
        entries,
        profile,
        saved=sizes.before - sizes.after,
        count=partial(text_tokens, snapshot.model),
    )
    return found, measure(found)


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
        earlier = [hidden for one in earlier for hidden in _without_secrets(one)]
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


def _without_secrets(entry: Entry) -> list[Entry]:
    """Return an entry with its secrets hidden; what it names is looked for again where it had any.

    A name may be a secret that nothing but the words beside it gives away.
    """
    bare = without_names(entry)
    hidden = read_entries([redact_json(bare.as_json())])
    return [entry] if hidden == [bare] else hidden


def _walked_back(snapshot: BranchSnapshot, *, end: int) -> list[Item]:
    """Return the newest messages before a position, from the first question among them on."""
    rows = Message.objects.filter(kind=Message.Kind.MESSAGE).only(*ITEM_COLUMNS)
    found = rows_before(snapshot.branch, rows, end=end, most=MOST_WALKED_BACK)
    items = list(map(to_item, found))
    questions = (index for index, item in enumerate(items) if item.is_question)
    return items[next(questions, 0) :]
