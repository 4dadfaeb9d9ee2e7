"""Reads for the report: what runs did in a period, in few queries whose number never grows.

Everything is added up and ranked by the database; what comes back is a handful of rows, or one row
a group. Days are days of UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery, Sum, Value, Window
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce, RowNumber, TruncDate

from chatapp.formatting import day_range, day_start
from compaction.models import CompactionRun, CompactionStep, SessionSummary
from compaction.statistics.prompt_caches import CacheRow, cache_rows
from compaction.statistics.ratios import Ratios, ratios_by
from compaction.statistics.scores import ScoreRow, scores_by_kind

Status = CompactionRun.Status
GROUPINGS = ("day", "profile", "model", "owner")
SLOWEST = 5
# Codes are words of programs: more kinds than this in one period are hardly read.
MOST_FAILURES = 20
# The key where nothing is grouped.
ALL = ""
_OUTCOMES = {status.value: Count("pk", filter=Q(status=status)) for status in Status}
_SUCCEEDED = Q(status=Status.SUCCEEDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """How many runs ended how, or have not ended."""

    runs: int = 0
    succeeded: int = 0
    skipped: int = 0
    failed: int = 0
    cancelled: int = 0
    queued: int = 0
    running: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over the runs of a period; `cost` includes the calls of runs that came to nothing."""

    sessions: int
    outcomes: Outcomes
    tokens_saved: int
    model_calls: int
    cost: float
    ratios: Ratios


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonRow:
    """The runs that one rule started."""

    reason: str
    outcomes: Outcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The failed runs with one error code, and the newest of them."""

    code: str
    count: int
    newest: CompactionRun


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportGroup:
    """The runs of one day, profile, model or owner; an empty `key` of a model: none was called."""

    key: str
    runs: int
    succeeded: int
    failed: int
    tokens_saved: int
    ratios: Ratios
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """The runs requested at or after a moment (None: all) and before another (None: until now).

    Every method is one to three queries.
    """

    since: datetime | None = None
    until: datetime | None = None

    @property
    def _runs(self) -> QuerySet[CompactionRun]:
        return CompactionRun.objects.filter(self._within())

    def _within(self, run: str = "") -> Q:
        """Return the condition on a row whose run is found at `run`: a range of its index."""
        condition = Q()
        if self.since is not None:
            condition &= Q(**{f"{run}created_at__gte": self.since})
        if self.until is not None:
            condition &= Q(**{f"{run}created_at__lt": self.until})
        return condition

    def totals(self) -> Totals:
        """Return the sums over all runs."""
        sums = self._runs.aggregate(
            sessions=Count("session", distinct=True), **_sums(), **_OUTCOMES, runs=Count("pk")
        )
        return Totals(
            sessions=sums["sessions"],
            outcomes=_outcomes(sums),
            tokens_saved=sums["saved"],
            model_calls=sums["calls"],
            cost=sums["spent"] + self._lost_costs(None).get(ALL, 0.0),
            ratios=self._ratios(None).get(ALL, Ratios()),
        )

    def reasons(self) -> list[ReasonRow]:
        """Return the runs by the rule that started them, the most frequent first."""
        rows = self._runs.values("reason").annotate(**_OUTCOMES, runs=Count("pk"))
        return [
            ReasonRow(reason=row["reason"], outcomes=_outcomes(row))
            for row in rows.order_by("-runs", "reason")
        ]

    def slowest(self) -> list[CompactionRun]:
        """Return the runs that worked longest, with their sessions."""
        rows = self._runs.filter(started_at__isnull=False, finished_at__isnull=False)
        rows = rows.select_related("session").only(
            "started_at", "finished_at", "model_calls", "status", "session__title"
        )
        return list(rows.order_by(F("started_at") - F("finished_at"), "-created_at")[:SLOWEST])

    def failures(self) -> list[Failure]:
        """Return the failed runs by error code, the most frequent first."""
        kinds = [F("error_code")]
        newest = [F("created_at").desc(), F("pk").desc()]
        rows = (
            self._runs.filter(status=Status.FAILED)
            .annotate(
                rank=Window(RowNumber(), partition_by=kinds, order_by=newest),
                count=Window(Count("*"), partition_by=kinds),
            )
            .filter(rank=1)
            .order_by("-count", "error_code")[:MOST_FAILURES]
        )
        return [Failure(code=row.error_code, count=row.count, newest=row) for row in rows]

    def scores(self) -> list[ScoreRow]:
        """Return how much the summaries of the runs know, by profile and model."""
        return scores_by_kind(
            SessionSummary.objects.filter(self._within("run__"), run__isnull=False)
        )

    def caches(self) -> list[CacheRow]:
        """Return what servers had cached of summaries' calls and of the turns behind, by profile.

        A new version of a summary says nothing of the first turn behind the old one.
        """
        made = SessionSummary.objects.filter(
            self._within("run__"), run__isnull=False, supersedes__isnull=True
        )
        return cache_rows(self._runs, made)

    def groups(self, by: str) -> list[ReportGroup]:
        """Return one row a group: days in order, everything else by the number of its runs.

        `by` is one of GROUPINGS. A run's model is the one that answered its first call.
        """
        rows = (
            self._runs.annotate(key=_key(by))
            .values("key")
            .annotate(runs=Count("pk"), **_sums(), **_OUTCOMES)
            .order_by(*(["key"] if by == "day" else ["-runs", "key"]))
        )
        ratios, lost = self._ratios(by), self._lost_costs(by)
        return [
            _group(row, ratios.get(row["key"], Ratios()), lost.get(row["key"], 0.0))
            for row in rows.iterator()
        ]

    def _lost_costs(self, by: str | None) -> dict[Any, float]:
        """Return what runs without a result cost, by group: only their calls know."""
        steps = CompactionStep.objects.filter(
            self._within("run__"), ~Q(run__status=Status.SUCCEEDED), cost__gt=0
        )
        rows = (
            steps.annotate(key=_key(by, "run__"))
            .values("key")
            .annotate(spent=Coalesce(Sum("cost"), 0.0))
        )
        return {row["key"]: row["spent"] for row in rows}

    def _ratios(self, by: str | None) -> dict[Any, Ratios]:
        summaries = SessionSummary.objects.filter(self._within("run__"), run__isnull=False)
        return ratios_by(_key(by, "run__"), summaries)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySums:
    """Sums over the runs that were requested on one day."""

    outcomes: Outcomes = field(default_factory=Outcomes)
    tokens_saved: int = 0
    model_calls: int = 0
    cost: float = 0.0


def outcomes_by_day(days: Sequence[date]) -> dict[date, DaySums]:
    """Return the sums of the days that had runs, in two statements however many days there are."""
    runs = CompactionRun.objects.filter(within_days(days)).annotate(key=_key("day")).values("key")
    lost = (
        CompactionStep.objects.filter(
            within_days(days, "run__"), ~Q(run__status=Status.SUCCEEDED), cost__gt=0
        )
        .annotate(key=_key("day", "run__"))
        .values("key")
        .annotate(spent=Coalesce(Sum("cost"), 0.0))
    )
    costs = {row["key"]: row["spent"] for row in lost}
    rows: QuerySet[Any] = runs.annotate(runs=Count("pk"), **_sums(), **_OUTCOMES).order_by()
    return {
        row["key"]: DaySums(
            outcomes=_outcomes(row),
            tokens_saved=row["saved"],
            model_calls=row["calls"],
            cost=row["spent"] + costs.get(row["key"], 0.0),
        )
        for row in rows
    }


def within_days(days: Sequence[date], row: str = "") -> Q:
    """Return the condition that a row at `row` was made on one of the days, in order: ranges."""
    found = Q(pk__in=())
    stretches: list[list[date]] = []
    for day in days:
        if stretches and day - stretches[-1][-1] == timedelta(days=1):
            stretches[-1].append(day)
        else:
            stretches.append([day])
    for stretch in stretches:
        start, end = day_start(stretch[0]), day_range(stretch[-1])[1]
        found |= Q(**{f"{row}created_at__gte": start, f"{row}created_at__lt": end})
    return found


def _sums() -> dict[str, Any]:
    # The summary of a branch that was left makes no request smaller.
    smaller = _SUCCEEDED & ~Q(trigger=CompactionRun.Trigger.BRANCH)
    saved = Sum(F("tokens_before") - F("tokens_after"), filter=smaller)
    return {
        "saved": Coalesce(saved, 0),
        "calls": Coalesce(Sum("model_calls"), 0),
        "spent": Coalesce(Sum("cost", filter=_SUCCEEDED), 0.0),
    }


def _outcomes(row: Mapping[str, Any]) -> Outcomes:
    return Outcomes(**{one.name: row[one.name] for one in fields(Outcomes)})


def _group(row: Mapping[str, Any], ratios: Ratios, lost: float) -> ReportGroup:
    return ReportGroup(
        key=str(row["key"]),
        runs=row["runs"],
        succeeded=row["succeeded"],
        failed=row["failed"],
        tokens_saved=row["saved"],
        ratios=ratios,
        cost=row["spent"] + lost,
    )


def _key(by: str | None, run: str = "") -> Combinable:
    """Return what a row is grouped by; `run` leads from the row to its run."""
    if by is None:
        return Value(ALL)
    if by == "day":
        return TruncDate(f"{run}created_at", tzinfo=UTC)
    if by == "profile":
        return F(f"{run}profile__name")
    if by == "owner":
        return F(f"{run}session__owner__{get_user_model().USERNAME_FIELD}")
    calls = CompactionStep.objects.filter(run=OuterRef(f"{run}pk")).exclude(model="")
    return Coalesce(Subquery(calls.order_by("order").values("model")[:1]), Value(""))
