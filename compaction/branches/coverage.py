"""How far a branch is summarised, worked out from its rows: a stored cursor agrees with it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

from django.db.models import Exists, OuterRef, QuerySet, UUIDField
from django.db.models.functions import Coalesce

from chatapp.models import Branch, Message
from chatapp.selectors import messages_through, on_path_q, path_messages, rows_before
from compaction.models import SessionSummary, SessionSummaryMessage
from compaction.selectors import bare_placeholders, summaries_of, without_overlaps

# What is read of a message where only its place counts.
_PLACE = ("branch", "position", "tokens_through", "chars_through")


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How far a branch is summarised: a position, and the path's sums up to it."""

    cursor: int = 0
    messages: int = 0
    tokens: int = 0
    chars: int = 0

    def as_columns(self) -> dict[str, int]:
        """Return the columns of a state that say so."""
        return {
            "cursor": self.cursor,
            "covered_messages": self.messages,
            "covered_tokens": self.tokens,
            "covered_chars": self.chars,
        }


def coverage_of(branch: Branch, *, besides: Collection[UUID] = ()) -> Coverage:
    """Return how far the branch's summaries reach, worked out from the rows.

    With `besides` as if those summaries did not count.
    Without summary rows, an old placeholder reaches up to its own place, less the messages that
    its writer kept (it was appended behind them, with `keepLastN` noted).
    """
    rows = summaries_of(branch)
    if besides:
        rows = rows.exclude(pk__in=besides)
    newest = rows.values_list("covers_through", flat=True).first()
    cursor = newest if newest is not None else placeholder_reach(branch)
    if not cursor:
        return Coverage()
    messages = Message.objects.filter(kind__in=Message.SPOKEN).only(*_PLACE)
    last = next(iter(rows_before(branch, messages, end=cursor + 1, most=1)), None)
    if last is None:
        return Coverage(cursor=cursor)
    return Coverage(
        cursor=cursor,
        messages=messages_through(last),
        tokens=last.tokens_through,
        chars=last.chars_through,
    )


def placeholder_reach(branch: Branch) -> int:
    """Return up to where an old placeholder without a summary row covers the path, or 0."""
    found = bare_placeholders(branch, 1)
    if not found:
        return 0
    kept = found[0].metadata.get("keepLastN")
    skipped = kept if isinstance(kept, int) and kept > 0 else 0
    messages = Message.objects.filter(kind__in=Message.SPOKEN).only(*_PLACE)
    end = found[0].position + 1
    covered = rows_before(branch, messages, end=end, most=skipped + 1)
    return covered[0].position if len(covered) > skipped else 0


def sent_chain(branch: Branch, cursor: int) -> list[SessionSummary]:
    """Return all summaries that stand for what is before a cursor, newest first, without texts."""
    rows = summaries_of(branch).filter(covers_through__lte=cursor)
    return without_overlaps(rows.only("covers_from", "covers_through", "metadata"))


def hidden_messages(branch: Branch, cursor: int) -> QuerySet[Message]:
    """Return the messages up to a cursor that no summary of the branch was made from, in order.

    What is pinned is sent all the same; what an old placeholder covers has no links; what a profile
    had dropped, its summary says.
    """
    rows = summaries_of(branch).filter(covers_through__lte=cursor)
    sent = sent_chain(branch, cursor)
    chain = {row.pk for row in sent}
    # Few, if any, while a chain may be long: each link is looked up by its message.
    looked_past = [pk for pk in rows.values_list("pk", flat=True) if pk not in chain]
    # Coalesced, so that no database begins with the branch's summaries for every single message.
    owner = Coalesce("summary__branch_id", "summary__branch_id", output_field=UUIDField())
    links = SessionSummaryMessage.objects.alias(owner=owner).filter(
        on_path_q(branch, "owner", "summary__covers_through"),
        message=OuterRef("pk"),
        summary__status=SessionSummary.Status.ACTIVE,
        summary__kind=SessionSummary.Kind.COMPACTION,
        summary__covers_through__lte=cursor,
    )
    if looked_past:
        links = links.exclude(summary__in=looked_past)
    messages = path_messages(branch, after=placeholder_reach(branch), through=cursor)
    for row, before in pairwise([*sent, None]):
        if row is not None and row.dropped_messages:
            begin = 0 if before is None else before.covers_through
            messages = messages.exclude(position__gt=begin, position__lt=row.covers_from)
    return messages.filter(~Exists(links), pinned=False)
