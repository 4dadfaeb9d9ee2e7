"""Rolling up what happened: the only writer of the front page's figures.

Called by the queue's schedule every few minutes, by `manage.py roll_up`, by the demo and by the
button of the front page; never by a request that shows them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.db import transaction
from django.utils import timezone

from chatapp.days import days_between, utc_day
from compaction.figures import TOTALS, counts_of, days_unfinished, first_run_day, totals
from compaction.models import DailyFigures

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
    on. Each day costs a few queries over the index range of that day.

    Two processes may do it at once: each writes whole figures that were true when it read them. A
    day that one of them saw unfinished is worked out again next time.
    """
    now = now or timezone.now()
    today = utc_day(now)
    days = _days_due(today, everything=everything)
    rows = [_row(day, now) for day in days if day != today]
    whole = DailyFigures(day=today, refreshed_at=now, **counts_of(today), **totals())
    with transaction.atomic():
        _store(rows, (*_COUNTS,))
        _store([whole], (*_COUNTS, *TOTALS, "refreshed_at"))
    return Refreshed(days=tuple(days))


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


def _row(day: date, now: datetime) -> DailyFigures:
    return DailyFigures(day=day, refreshed_at=now, **counts_of(day))


def _store(rows: Iterable[DailyFigures], columns: tuple[str, ...]) -> None:
    """Store rows, or the named columns of those that are there."""
    DailyFigures.objects.bulk_create(
        rows,
        batch_size=_BATCH,
        update_conflicts=True,
        unique_fields=["day"],
        update_fields=columns,
    )
