"""Cursors, summaries and their links: that no message is hidden which no summary has read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

from django.db.models import Count, Sum

from chatapp.models import Branch, Message
from chatapp.selectors import path_messages
from compaction.doctor.findings import Finding, Severity
from compaction.models import CompactionState, SessionSummary
from compaction.selectors import hidden_messages
from compaction.services.repair import put_cursor_back, put_sums_right
from compaction.services.restore import restore_summary

PLACEHOLDERS_NAMED = 100


def check_coverage(branch: Branch) -> Iterator[Finding]:
    """Yield what is wrong with a branch's cursor, its summaries and its placeholders."""
    yield from _summaries(branch)
    yield from _placeholders(branch)
    state = CompactionState.objects.filter(pk=branch.pk).first()
    if state is not None and state.cursor:
        yield from _cursor(branch, state)


def _cursor(branch: Branch, state: CompactionState) -> Iterator[Finding]:
    hidden = hidden_messages(branch, state.cursor)
    first = hidden.first()
    last = path_messages(branch).order_by("-position").values_list("position", flat=True).first()
    if state.cursor > (last or 0):
        yield Finding(
            code="cursor_outside",
            text="The cursor stands behind the branch's last message: new messages would not be "
            "sent. It is put back to where the summaries reach.",
            repair=partial(put_cursor_back, branch),
            session=branch.session_id,
            branch=branch.pk,
        )
    elif first is not None:
        yield Finding(
            code="messages_hidden",
            text=f"{hidden.count():,} messages before the cursor are in no active summary, from "
            f"{first.place} on: they are not sent. The cursor is put back before them.",
            row=first.pk,
            repair=partial(put_cursor_back, branch),
            session=branch.session_id,
            branch=branch.pk,
        )
    else:
        path = path_messages(branch, through=state.cursor)
        sums = path.aggregate(count=Count("id"), total=Sum("tokens"))
        if (sums["count"], sums["total"] or 0) != (state.covered_messages, state.covered_tokens):
            yield Finding(
                code="covered_sums_off",
                text=f"The state says that {state.covered_messages:,} messages with "
                f"{state.covered_tokens:,} tokens are summarised; there are {sums['count']:,} with "
                f"{sums['total'] or 0:,}. They are counted again.",
                repair=partial(put_sums_right, branch),
                session=branch.session_id,
                branch=branch.pk,
            )


def _summaries(branch: Branch) -> Iterator[Finding]:
    rows = SessionSummary.objects.filter(
        branch=branch, status=SessionSummary.Status.ACTIVE, kind=SessionSummary.Kind.COMPACTION
    ).annotate(linked=Count("links"))
    ordered = list(rows.order_by("covers_from", "covers_through").defer("summary_text"))
    for summary in ordered:
        if summary.linked != summary.message_count:
            yield Finding(
                code="links_missing",
                text=f"The summary was made from {summary.message_count:,} messages and is linked "
                f"to {summary.linked:,}: nobody can tell what it covers. It is taken back with "
                "those built on it, and its messages are sent again.",
                session=branch.session_id,
                branch=branch.pk,
                row=summary.pk,
                repair=partial(_take_back, summary),
            )
    for earlier, later in pairwise(ordered):
        if later.covers_from <= earlier.covers_through:
            yield Finding(
                code="summaries_overlap",
                text="Two active summaries cover the same messages. The newer one is taken back, "
                "and its messages are sent again.",
                session=branch.session_id,
                branch=branch.pk,
                row=later.pk,
                repair=partial(_take_back, max(earlier, later, key=lambda row: row.created_at)),
            )


def _take_back(summary: SessionSummary) -> None:
    fresh = SessionSummary.objects.select_related("branch", "session").get(pk=summary.pk)
    if fresh.status == SessionSummary.Status.ACTIVE:
        restore_summary(fresh, cascade=True)


def _placeholders(branch: Branch) -> Iterator[Finding]:
    """Yield placeholders that name a summary which is gone; an import's name none on purpose."""
    marks = Message.objects.filter(branch=branch, kind=Message.Kind.PLACEHOLDER)
    named = marks.exclude(metadata__summary_id__isnull=True)
    rows = list(named.order_by("-position").only("id", "metadata")[:PLACEHOLDERS_NAMED])
    ids = {row.metadata["summary_id"] for row in rows}
    known = {
        str(pk) for pk in SessionSummary.objects.filter(pk__in=ids).values_list("pk", flat=True)
    }
    for row in rows:
        if row.metadata["summary_id"] not in known:
            yield Finding(
                code="placeholder_alone",
                text="A placeholder marks a summary that does not exist any more. It is not sent "
                "and does no harm; what it stood for is sent verbatim.",
                severity=Severity.NOTE,
                session=branch.session_id,
                branch=branch.pk,
                row=row.pk,
            )
