"""Cursors: that no message stands before one which no summary has read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from django.db.models import Count, Max, Q, Sum

from chatapp.management.console import counted
from chatapp.models import Branch, Message
from chatapp.selectors import path_messages
from compaction.doctor.findings import Finding
from compaction.doctor.lines import Line
from compaction.models import CompactionState, SessionSummary
from compaction.selectors import hidden_messages
from compaction.services.repair import (
    MOST_PINNED,
    put_covered_sums_right,
    put_cursor_right,
    show_hidden,
)

_BACK = "The cursor is put to where the branch's summaries reach; what is behind it is sent."


def check_cursor(line: Line) -> Iterator[Finding]:
    """Yield what is wrong with how far a branch says that it is summarised."""
    if line.state is None:
        return
    yield from _behind(line, line.state)
    wrong = (_outside(line.branch, line.state) or _hidden(line.branch, line.state)) or (
        _covered_sums(line.branch, line.state)
    )
    if wrong is not None:
        yield wrong


def _outside(branch: Branch, state: CompactionState) -> Finding | None:
    """Return the finding of a cursor that stands at no message of the branch's path."""
    if state.cursor == 0:
        return None
    path = path_messages(branch)
    places = path.aggregate(
        last=Max("position"), there=Count("pk", filter=Q(position=state.cursor))
    )
    if places["there"]:
        return None
    last = Message(position=places["last"] or 0).place
    return Finding(
        code="cursor_outside",
        text=f"The cursor stands at {Message(position=state.cursor).place}, where the branch has "
        f"no message; the last one is {last}. What stands before it may never be sent.",
        remedy=_BACK,
        repair=partial(put_cursor_right, branch),
        session=branch.session_id,
        branch=branch.pk,
    )


def _hidden(branch: Branch, state: CompactionState) -> Finding | None:
    hidden = hidden_messages(branch, state.cursor)
    first = hidden.only("pk", "position").first()
    if first is None:
        return None
    return Finding(
        code="messages_hidden",
        text=f"Before the cursor, from {first.place} on, {counted(hidden.count(), 'message')} in "
        "no summary that is sent: the model never sees what is said there.",
        remedy="The cursor is put back before them; summaries that were built behind a gap are "
        f"taken back; at most {MOST_PINNED} that came in late are pinned.",
        message=first.pk,
        repair=partial(show_hidden, branch),
        session=branch.session_id,
        branch=branch.pk,
    )


def _covered_sums(branch: Branch, state: CompactionState) -> Finding | None:
    sums = path_messages(branch, through=state.cursor).aggregate(
        count=Count("pk"), tokens=Sum("tokens")
    )
    count, tokens = sums["count"], sums["tokens"] or 0
    if (count, tokens) == (state.covered_messages, state.covered_tokens):
        return None
    return Finding(
        code="covered_sums_off",
        text=f"The state says that {counted(state.covered_messages, 'message')} with "
        f"{counted(state.covered_tokens, 'token')} stand before the cursor; there are {count:,} "
        f"with {tokens:,}. Triggers fire too early or too late.",
        remedy="They are counted again.",
        repair=partial(put_covered_sums_right, branch),
        session=branch.session_id,
        branch=branch.pk,
    )


def _behind(line: Line, state: CompactionState) -> Iterator[Finding]:
    """Yield a branch whose own newest summary ends behind the cursor, so that it is not sent.

    A summary of a parent may: the fork has not taken it over.
    """
    branch = line.branch
    own = SessionSummary.objects.filter(
        branch=branch,
        status=SessionSummary.Status.ACTIVE,
        kind=SessionSummary.Kind.COMPACTION,
        covers_through__gt=state.cursor,
    )
    newest = own.order_by("-covers_through").values_list("pk", flat=True).first()
    if newest is None:
        return
    yield Finding(
        code="cursor_behind",
        text="The cursor stands before the end of the branch's own newest summary: the summary is "
        "not sent, and its messages are summarised twice.",
        remedy="The cursor is put to where the summaries reach.",
        repair=partial(put_cursor_right, branch),
        session=branch.session_id,
        branch=branch.pk,
        summary=newest,
    )
