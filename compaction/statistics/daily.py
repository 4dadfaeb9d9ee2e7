"""Figures by day: rolled up in the queue, read by the front page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import BooleanField, F, Func, Min, QuerySet
from django.utils import timezone

from chatapp.formatting import day_start, days_between, utc_day
from compaction.models import CompactionRun, DailyFigures, SessionSummary
from compaction.selectors import QUEUED_SINCE, ready_q
from compaction.statistics.ratios import RATIO_BINS, distribution_by_day
from compaction.statistics.report import DaySums, outcomes_by_day, within_days
from compaction.statistics.scores import score_figures
from compaction.statistics.session_figures import forget_figures, totals

TOTALS = ("sessions", "messages", "tokens_stored", "tokens_sent", "scores")
# What is worked out for every day again; totals and their time belong to the day that has them.
_COUNTS = tuple(
    field.name
    for field in DailyFigures._meta.concrete_fields
    if field.name not in ("day", "refreshed_at", *TOTALS)
)
_BATCH = 500
# How far back figures are worked out when there are none: ten years.
MOST_DAYS = 3653


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """The days that were worked out, oldest first; the last one is today."""

    days: tuple[date, ...]


def refresh_figures(*, now: datetime | None = None, everything: bool = False) -> Refreshed:
    """Work out the days that may have changed, and today's totals; return which days.

    Those are today, yesterday, every stored day with unfinished runs, and what came since the
    last stored day. With no day stored yet, or `everything`, it is every day from the first run's
    on. All of them take a few statements over the index ranges of those days, and the totals those
    of the sessions that have changed (session_figures.py); with `everything`, and with the first
    time of a day, those of all.

    Two processes may do it at once: each writes whole figures that were true when it read them. A
    day that one of them saw unfinished is worked out again next time.
    """
    now = now or timezone.now()
    today = utc_day(now)
    days = _days_due(today, everything=everything)
    counts = counts_of(days)
    rows = [
        DailyFigures(day=day, refreshed_at=now, **found)
        for day, found in counts.items()
        if day != today
    ]
    whole = DailyFigures(
        day=today,
        refreshed_at=now,
        **counts[today],
        **_totals_of(today, everything=everything),
        scores=score_figures(day_start(today - timedelta(days=DAYS_SHOWN - 1))),
    )
    with transaction.atomic():
        _store(rows, (*_COUNTS,))
        _store([whole], (*_COUNTS, *TOTALS, "refreshed_at"))
    return Refreshed(days=tuple(days))


def _totals_of(today: date, *, everything: bool) -> dict[str, int]:
    """Return today's totals; where they were never worked out today, from all sessions.

    So no error of a figure outlives its day.
    """
    if everything or not DailyFigures.objects.filter(day=today).exists():
        forget_figures()
    return totals()


def _days_due(today: date, *, everything: bool) -> list[date]:
    """Return the days to work out, in order.

    The last stored day is one of them: it went on after it was stored.
    """
    stored = DailyFigures.objects.filter(day__lte=today)
    last = stored.values_list("day", flat=True).first()
    if last is None or everything:
        # A clock that was set back may have left runs in the future, a faulty one runs long ago.
        first = min(first_run_day() or today, today)
        return days_between(max(first, today - timedelta(days=MOST_DAYS)), today)
    due = set(days_between(min(last, today - timedelta(days=1)), today))
    return sorted(due.union(days_unfinished(before=today)))


def _store(rows: Iterable[DailyFigures], columns: tuple[str, ...]) -> None:
    """Store rows, or the named columns of those that are there."""
    DailyFigures.objects.bulk_create(
        rows,
        batch_size=_BATCH,
        update_conflicts=True,
        unique_fields=["day"],
        update_fields=columns,
    )


Status = CompactionRun.Status
DAYS_SHOWN = 30
# The condition of the partial index `run_unfinished` as the index states it: SQLite takes a partial
# index only where the condition stands in the query with its values, not with parameters.
_UNFINISHED = Func(
    F("status"), template="%(expressions)s IN ('queued', 'running')", output_field=BooleanField()
)


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


def counts_of(days: Sequence[date]) -> dict[date, dict[str, Any]]:
    """Return what happened on some days, by the columns of DailyFigures: three statements.

    Runs count on the day they were requested, summaries on the day they were made.
    """
    made = SessionSummary.objects.filter(within_days(days))
    runs, ratios = outcomes_by_day(days), distribution_by_day(made)
    return {day: _counts(runs.get(day), ratios.get(day)) for day in days}


def _counts(sums: DaySums | None, ratios: Sequence[int] | None) -> dict[str, Any]:
    sums = sums or DaySums()
    outcomes = sums.outcomes
    return {
        "succeeded": outcomes.succeeded,
        "skipped": outcomes.skipped,
        "failed": outcomes.failed,
        "cancelled": outcomes.cancelled,
        "unfinished": outcomes.queued + outcomes.running,
        "tokens_saved": sums.tokens_saved,
        "model_calls": sums.model_calls,
        "cost": sums.cost,
        "ratios": list(ratios or [0] * RATIO_BINS),
    }
