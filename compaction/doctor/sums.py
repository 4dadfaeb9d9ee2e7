"""Message counts, token sums and places: what every trigger trusts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from django.db.models import Case, F, IntegerField, Max, Sum, When, Window

from chatapp.models import Branch, Message
from chatapp.selectors import path_messages, path_q
from chatapp.transcript import repair_sums
from compaction.doctor.findings import Finding

_COUNTED = Case(
    When(kind=Message.Kind.MESSAGE, then=F("tokens")), default=0, output_field=IntegerField()
)


def check_sums(branch: Branch) -> Iterator[Finding]:
    """Yield what is wrong with a branch's sums and with the places of its rows."""
    found = _wrong_sums(branch)
    if found:
        yield Finding(
            code="sums_off",
            text=f"{found} Triggers fire too early or too late; the sums are worked out again.",
            session=branch.session_id,
            branch=branch.pk,
            repair=partial(repair_sums, branch),
        )
    before_fork = Message.objects.filter(branch=branch, position__lte=branch.fork_position or 0)
    if row := before_fork.first():
        yield Finding(
            code="place_before_fork",
            text="A message of a fork stands before the fork, where its parent's messages are. "
            "Their order is not certain; move it by hand.",
            session=branch.session_id,
            branch=branch.pk,
            row=row.pk,
        )


def _wrong_sums(branch: Branch) -> str:
    """Return what is off in words; nothing where all sums are right."""
    path = path_messages(branch)
    count, total = path.count(), path.aggregate(total=Sum("tokens"))["total"] or 0
    if (count, total) != (branch.message_count, branch.token_total):
        return (
            f"The branch says {branch.message_count:,} messages with {branch.token_total:,} "
            f"tokens; there are {count:,} with {total:,}."
        )
    rows = Message.objects.filter(branch=branch)
    base = _tokens_before(branch)
    running = Window(Sum(_COUNTED), order_by=["position", "id"])
    wrong = rows.annotate(running=running).exclude(tokens_through=F("running") + base)
    if wrong.exists():
        return "A running token sum along the branch is off."
    head = Message.objects.filter(path_q(branch)).aggregate(head=Max("position"))["head"] or 0
    if head > branch.head_position:
        return "The branch's head is before its last message; the next one's place is taken."
    return ""


def _tokens_before(branch: Branch) -> int:
    """Return the tokens of the path up to the fork."""
    if not branch.fork_position:
        return 0
    before = path_messages(branch, through=branch.fork_position).aggregate(total=Sum("tokens"))
    return before["total"] or 0
