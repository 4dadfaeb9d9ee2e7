"""Reads for the front page: the stored figures, and what they are worked out from.

What is worked out is added up by the database over ranges of indexes. Only the totals look at
whole tables; they are read off the request path, where figures are rolled up.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

from django.db.models import (
    BooleanField,
    Case,
    F,
    Func,
    IntegerField,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
    Window,
)
from django.db.models.functions import Coalesce, Greatest, RowNumber

from chatapp.days import day_range, utc_day
from chatapp.models import Message, Session
from compaction.models import (
    CompactionProfile,
    CompactionRun,
    CompactionState,
    DailyFigures,
    SessionSummary,
)
from compaction.ratios import distribution
from compaction.reporting import Period
from compaction.run_selectors import QUEUED_SINCE, ready_q
from compaction.services.profiles import find_profile, parameters_of

Status = CompactionRun.Status
DAYS_SHOWN = 30
# The condition of the partial index `run_unfinished` as the index states it: SQLite takes a partial
# index only where the condition stands in the query with its values, not with parameters.
_UNFINISHED = Func(
    F("status"), template="%(expressions)s IN ('queued', 'running')", output_field=BooleanField()
)
TOTALS = ("sessions", "messages", "tokens_stored", "tokens_sent")


def recent_figures(today: date) -> list[DailyFigures]:
    """Return the stored days of the last DAYS_SHOWN, today included, oldest first."""
    first = today - timedelta(days=DAYS_SHOWN - 1)
    return list(DailyFigures.objects.filter(day__gte=first, day__lte=today).order_by("day"))


def newest_figures() -> DailyFigures | None:
    """Return the newest stored day, however old it is."""
    return DailyFigures.objects.first()


def oldest_waiting(now: datetime) -> datetime | None:
    """Return since when the oldest run waits for a worker; those put off to a time do not."""
    ready = waiting_runs().order_by().filter(ready_q(now))
    oldest: datetime | None = ready.aggregate(since=Min(QUEUED_SINCE))["since"]
    return oldest


def waiting_runs() -> QuerySet[CompactionRun]:
    """Return the queued runs, the oldest first, over the index `run_unfinished`."""
    queued = CompactionRun.objects.filter(_UNFINISHED, status=Status.QUEUED)
    return queued.order_by("created_at")


def first_run_day() -> date | None:
    """Return the day of the first run; None before there is one."""
    moments = CompactionRun.objects.order_by("created_at", "id")
    first = moments.values_list("created_at", flat=True).first()
    return utc_day(first) if first else None


def days_unfinished(*, before: date) -> list[date]:
    """Return the stored days whose runs had not all ended when they were worked out."""
    days = DailyFigures.objects.filter(unfinished__gt=0, day__lt=before)
    return list(days.values_list("day", flat=True))


def counts_of(day: date) -> dict[str, Any]:
    """Return what happened on a day, by the columns of DailyFigures: five queries.

    Runs count on the day they were requested, summaries on the day they were made.
    """
    start, end = day_range(day)
    sums = Period(since=start, until=end).totals()
    outcomes = sums.outcomes
    made = SessionSummary.objects.filter(created_at__gte=start, created_at__lt=end)
    return {
        "succeeded": outcomes.succeeded,
        "skipped": outcomes.skipped,
        "failed": outcomes.failed,
        "cancelled": outcomes.cancelled,
        "unfinished": outcomes.queued + outcomes.running,
        "tokens_saved": sums.tokens_saved,
        "model_calls": sums.model_calls,
        "cost": sums.cost,
        "ratios": distribution(made),
    }


def totals() -> dict[str, int]:
    """Return how much there is now, by the names in TOTALS.

    Messages are all rows less the placeholders, because both have an index to be counted on.
    """
    messages = Message.objects.all()
    stored = Session.objects.aggregate(tokens=Coalesce(Sum("active_branch__token_total"), 0))
    return {
        "sessions": Session.objects.count(),
        "messages": messages.count() - messages.filter(kind=Message.Kind.PLACEHOLDER).count(),
        "tokens_stored": stored["tokens"],
        "tokens_sent": _messages_sent() + _summaries_sent(),
    }


def _messages_sent() -> int:
    """Return the tokens of messages that the next request of every session would send.

    Taken as what the active branch has behind its cursor. Left out are pinned messages before it
    and a question whose turn was cut; a branch whose state was never worked out (a fork that
    nobody used yet) counts whole, and a profile's limit on sent messages is not applied.
    """
    states = CompactionState.objects.filter(branch=OuterRef("active_branch"))
    covered = Coalesce(Subquery(states.values("covered_tokens")[:1]), 0)
    behind = Greatest(F("active_branch__token_total") - covered, 0)
    found = Session.objects.filter(active_branch__isnull=False).aggregate(tokens=Sum(behind))
    return found["tokens"] or 0


def _summaries_sent() -> int:
    """Return the tokens of summaries that the next request of every session would send.

    Those are the newest of the active branch up to its cursor, as many as its profile sends, and an
    archive that is newer. Left out are summaries that a fork inherits from its parent, and the
    placeholders of old data.
    """
    written = Q(archived=False, rank_of_kind__lte=F("most"))
    sent = (
        _candidates()
        .annotate(rank=_newest_of("branch"), rank_of_kind=_newest_of("branch", "archived"))
        .annotate(most=_limits())
        .filter(written | Q(archived=True, rank=1))
        .aggregate(tokens=Sum("summary_tokens"))
    )
    return sent["tokens"] or 0


def _newest_of(*columns: str) -> Window:
    """Return the rank among the summaries that have these columns in common, the newest first."""
    parts = [F(column) for column in columns]
    return Window(RowNumber(), partition_by=parts, order_by=F("covers_through").desc())


def _candidates() -> QuerySet[SessionSummary]:
    return SessionSummary.objects.filter(
        status=SessionSummary.Status.ACTIVE,
        kind=SessionSummary.Kind.COMPACTION,
        session__active_branch=F("branch"),
        branch__compaction_state__cursor__gte=F("covers_through"),
    )


def _limits() -> Case:
    """Return how many summaries a branch sends: by its profile's name, the default's otherwise."""
    common = parameters_of(find_profile()).summary_limit
    current = CompactionProfile.objects.filter(is_current=True)
    limits = {row.name: parameters_of(row).summary_limit for row in current}
    whens = [
        When(branch__compaction_state__profile=name, then=Value(limit))
        for name, limit in limits.items()
        if limit != common
    ]
    return Case(*whens, default=Value(common), output_field=IntegerField())
