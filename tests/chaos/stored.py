"""Reading what is stored after the chaos, with queries of its own and none of the product's."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from django.db.models import Count, Q

from chatapp.models import Message, Session
from compaction.models import (
    CompactionRun,
    CompactionState,
    SessionSummary,
    SessionSummaryMessage,
)
from tests.chaos.checks import StoredBranch, StoredMessage, StoredSummary
from tests.chaos.ledger import mark_of

UNFINISHED = (CompactionRun.Status.QUEUED, CompactionRun.Status.RUNNING)
BROKEN_OFF = "interrupted"


def read_branches(session_id: str) -> Iterator[StoredBranch]:
    """Yield what is stored of every branch of a session."""
    session = Session.objects.get(pk=session_id)
    runs = CompactionRun.objects.filter(session=session, status__in=UNFINISHED)
    for branch in session.branches.order_by("created_at"):
        state = CompactionState.objects.filter(pk=branch.pk).first()
        yield StoredBranch(
            session_id=session_id,
            messages=_messages(branch.pk),
            summaries=_summaries(branch.pk),
            cursor=state.cursor if state else 0,
            lease_owner=str(state.lease_owner or "") if state else "",
            lease_expires_at=state.lease_expires_at if state else None,
            unfinished=[f"{run.pk} ({run.status})" for run in runs.filter(branch=branch)],
        )


def _messages(branch_id: Any) -> list[StoredMessage]:
    rows = Message.objects.filter(branch=branch_id, kind=Message.Kind.MESSAGE)
    # The beginning of an answer that broke off is no answer.
    rows = rows.exclude(finish_reason=BROKEN_OFF).order_by("position")
    return [
        StoredMessage(id=str(pk), position=position, mark=mark_of(text or ""), is_pinned=pinned)
        for pk, position, text, pinned in rows.values_list("pk", "position", "content", "pinned")
    ]


def _summaries(branch_id: Any) -> list[StoredSummary]:
    rows = SessionSummary.objects.filter(
        branch=branch_id,
        status=SessionSummary.Status.ACTIVE,
        kind=SessionSummary.Kind.COMPACTION,
    )
    linked: dict[Any, set[str]] = defaultdict(set)
    links = SessionSummaryMessage.objects.filter(summary__in=rows)
    for summary, message in links.values_list("summary", "message"):
        linked[summary].add(str(message))
    return [
        StoredSummary(
            id=str(row.pk),
            covers_from=row.covers_from,
            covers_through=row.covers_through,
            linked=frozenset(linked[row.pk]),
            text=row.summary_text,
            # What was shortened or chosen without a model repeats not all of what it stands for.
            is_exact=not (row.truncated or row.is_digest),
        )
        for row in rows
    ]


def has_shortened(session_id: str) -> bool:
    """Whether any summary of a session, also one that counts no more, says not all that it read."""
    rows = SessionSummary.objects.filter(session__pk=session_id)
    return rows.filter(Q(truncated=True) | Q(is_digest=True)).exists()


def runs_by(column: str, **conditions: Any) -> Counter[str]:
    """Return how many runs there are for every value of a column."""
    rows = CompactionRun.objects.filter(**conditions).values_list(column)
    return Counter(dict(rows.annotate(n=Count("pk")).order_by()))


def unfinished_runs() -> int:
    """Return how many runs wait or work."""
    return CompactionRun.objects.filter(status__in=UNFINISHED).count()
