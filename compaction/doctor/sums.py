"""Message counts, token sums and heads: what every trigger trusts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from django.db.models import (
    BigIntegerField,
    Case,
    Count,
    F,
    IntegerField,
    Max,
    OuterRef,
    QuerySet,
    Subquery,
    Sum,
    When,
    Window,
)
from django.db.models.functions import Coalesce

from chatapp.llm.tokens import count_message
from chatapp.management.console import counted
from chatapp.models import Message
from chatapp.selectors import counter_of, segments_q
from chatapp.transcript import recount_tokens
from compaction.doctor.findings import Finding
from compaction.doctor.lines import Line
from compaction.services.repair import put_branch_sums_right, while_nobody_works

BATCH = 500
_MESSAGE = Message.Kind.MESSAGE
_TOKENS = Case(When(kind=_MESSAGE, then=F("tokens")), default=0, output_field=IntegerField())


def check_sums(line: Line) -> Iterator[Finding]:
    """Yield what is wrong with a branch's sums; the stored tokens of its messages are believed."""
    wrong = _wrong_sums(line)
    if wrong:
        yield Finding(
            code="sums_off",
            text=f"{wrong} Triggers fire too early or too late.",
            remedy="Counts, sums and the head are worked out again from the rows.",
            session=line.branch.session_id,
            branch=line.branch.pk,
            repair=partial(put_branch_sums_right, line.branch),
        )


def _wrong_sums(line: Line) -> str:
    """Return what is off in words; nothing where all sums are right."""
    branch, own = line.branch, Message.objects.filter(branch=line.branch)
    shared = _shared(line).aggregate(count=Count("pk"), tokens=Sum("tokens"))
    sums = own.filter(kind=_MESSAGE).aggregate(count=Count("pk"), tokens=Sum("tokens"))
    base = shared["tokens"] or 0
    count, total = shared["count"] + sums["count"], base + (sums["tokens"] or 0)
    if (count, total) != (branch.message_count, branch.token_total):
        return (
            f"The branch says {counted(branch.message_count, 'message')} with "
            f"{counted(branch.token_total, 'token')}; there are {count:,} with {total:,}."
        )
    if _wrong_running(line, base).exists() or _wrong_marks(line).exists():
        return "A running token sum along the branch is off."
    head = own.aggregate(head=Max("position"))["head"] or 0
    if max(head, line.fork) > branch.head_position:
        return "The branch's head is before its last message; the next one's place is taken."
    return ""


def _shared(line: Line) -> QuerySet[Message]:
    """Return the messages of the path that belong to other branches."""
    if not line.shared:
        return Message.objects.none()
    return Message.objects.filter(segments_q(line.shared), kind=_MESSAGE)


def _wrong_running(line: Line, base: int) -> QuerySet[Message]:
    """Return the rows behind the fork whose sum is not that of everything up to them."""
    running = Window(Sum(_TOKENS), order_by=["position"])
    rows = Message.objects.filter(branch=line.branch, position__gt=line.fork)
    return rows.annotate(running=running).exclude(tokens_through=F("running") + base)


def _wrong_marks(line: Line) -> QuerySet[Message]:
    """Return the placeholders before the fork whose sum is not that of the message before them."""
    marks = Message.objects.filter(branch=line.branch, position__lte=line.fork)
    before = _shared(line).filter(position__lte=OuterRef("position")).order_by("-position")
    through = Subquery(before.values("tokens_through")[:1], output_field=BigIntegerField())
    marks = marks.exclude(kind=_MESSAGE).annotate(through=Coalesce(through, 0))
    return marks.exclude(tokens_through=F("through"))


def check_tokens(line: Line) -> Iterator[Finding]:
    """Yield how many of a branch's own messages have other tokens than are counted now.

    This reads every text. A difference is no damage where the session's model was changed, or the
    encoding's file came later; it is told because budgets are kept in the tokens of now.
    """
    off, stored, found, first = 0, 0, 0, None
    for row, tokens in _counted_again(line):
        if tokens != row.tokens:
            first = first or row.pk
            off, stored, found = off + 1, stored + row.tokens, found + tokens
    if off:
        yield Finding(
            code="tokens_off",
            text=f"{counted(off, 'message')} of the branch with {stored:,} tokens stored and "
            f"{found:,} counted now: counted in another way before, or changed since.",
            remedy="They are counted again, and all sums with them.",
            session=line.branch.session_id,
            branch=line.branch.pk,
            message=first,
            repair=partial(while_nobody_works, line.branch, partial(recount_tokens, line.branch)),
        )


def _counted_again(line: Line) -> Iterator[tuple[Message, int]]:
    counter = counter_of(line.branch.session)
    rows = Message.objects.filter(branch=line.branch, kind=_MESSAGE).order_by("position")
    rows = rows.defer("usage", "summary", "response_id")
    batch = list(rows[:BATCH])
    while batch:
        for row in batch:
            yield row, count_message(row.wire(), counter)
        batch = list(rows.filter(position__gt=batch[-1].position)[:BATCH])
