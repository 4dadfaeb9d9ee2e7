"""Figures by day: rolled up in the queue, read by the front page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from django.db import transaction
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
from django.db.models.functions import Coalesce, FirstValue, Greatest, RowNumber
from django.utils import timezone

from chatapp.formatting import day_range, day_start, days_between, utc_day
from chatapp.models import Message, Session
from compaction.engine.registry import RENDERINGS
from compaction.engine.rendering import makes_node
from compaction.models import (
    CompactionProfile,
    CompactionRun,
    CompactionState,
    DailyFigures,
    SessionSummary,
)
from compaction.models.summaries import HOLDS_EARLIER_VERSION
from compaction.profiles import find_profile, parameters_of
from compaction.selectors import QUEUED_SINCE, ready_q
from compaction.statistics.ratios import distribution
from compaction.statistics.report import Period
from compaction.statistics.scores import score_figures

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
    on. Each day costs a few queries over the index range of that day.

    Two processes may do it at once: each writes whole figures that were true when it read them. A
    day that one of them saw unfinished is worked out again next time.
    """
    now = now or timezone.now()
    today = utc_day(now)
    days = _days_due(today, everything=everything)
    rows = [_row(day, now) for day in days if day != today]
    whole = DailyFigures(
        day=today,
        refreshed_at=now,
        **counts_of(today),
        **totals(),
        scores=score_figures(day_start(today - timedelta(days=DAYS_SHOWN - 1))),
    )
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
    """Return how much there is now, by its names in TOTALS; scores are worked out by themselves.

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
    fallback digest that is newer. Left out are summaries that a fork inherits from its parent, and
    the placeholders of old data.
    """
    # One that holds what was before it is sent alone.
    beside = Q(rank_of_kind__lte=F("most"), version_of_newest__lt=HOLDS_EARLIER_VERSION)
    written = Q(is_digest=False) & (Q(rank_of_kind=1) | beside)
    sent = (
        _candidates()
        .annotate(rank=_newest_of("branch"), rank_of_kind=_newest_of("branch", "is_digest"))
        .annotate(version_of_newest=_version_of_newest(), most=_limits())
        .filter(written | Q(is_digest=True, rank=1))
        .aggregate(tokens=Sum("summary_tokens"))
    )
    return sent["tokens"] or 0


def _newest_of(*columns: str) -> Window:
    """Return the rank among the summaries that have these columns in common, the newest first."""
    parts = [F(column) for column in columns]
    return Window(RowNumber(), partition_by=parts, order_by=F("covers_through").desc())


def _version_of_newest() -> Window:
    """Return the format version of the newest summary of the branch and kind."""
    return Window(
        FirstValue("format_version"),
        partition_by=[F("branch"), F("is_digest")],
        order_by=F("covers_through").desc(),
    )


def _candidates() -> QuerySet[SessionSummary]:
    return SessionSummary.objects.filter(
        status=SessionSummary.Status.ACTIVE,
        kind=SessionSummary.Kind.COMPACTION,
        session__active_branch=F("branch"),
        branch__compaction_state__cursor__gte=F("covers_through"),
    )


def _limits() -> Case:
    """Return how many summaries a branch sends: by its profile's name, the default's otherwise."""
    common = _limit_of(find_profile())
    current = CompactionProfile.objects.filter(is_current=True)
    limits = {row.name: _limit_of(row) for row in current}
    whens = [
        When(branch__compaction_state__profile=name, then=Value(limit))
        for name, limit in limits.items()
        if limit != common
    ]
    return Case(*whens, default=Value(common), output_field=IntegerField())


def _limit_of(row: CompactionProfile) -> int:
    """Return how many summaries a profile sends; a node holds the newest alone."""
    profile = parameters_of(row)
    is_node = makes_node(RENDERINGS.get(profile.rendering))
    return 1 if is_node else profile.summary_limit
