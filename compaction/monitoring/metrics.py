"""Figures for Prometheus, read from the database when it is asked."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db.models import Count, Max, Min, Q, Sum
from django.db.models.functions import Now
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

from chatapp.database import database_now
from compaction.models import (
    CompactionRun,
    CompactionState,
    CompactionStep,
    ModelBreaker,
    SummaryQuality,
    WorkerHeartbeat,
)
from compaction.monitoring.health import ALIVE_SECONDS
from compaction.runs import queue
from compaction.selectors import QUEUED_SINCE, ready_q
from compaction.statistics.totals import run_totals

logger = logging.getLogger(__name__)
UNFINISHED = (CompactionRun.Status.QUEUED.value, CompactionRun.Status.RUNNING.value)
BREAKER_STATES = {"closed": 0, "probing": 1, "open": 2}
SCORE_BUCKETS = tuple(range(10, 101, 10))


def exposition(accepted: str) -> tuple[bytes, str]:
    """Return all figures as of now and their content type; `accepted` is an Accept header."""
    registry = CollectorRegistry()
    registry.register(DatabaseCollector())
    encode, content_type = choose_encoder(accepted)
    return encode(registry), content_type


class DatabaseCollector:
    """Reads every figure from the database, and the queue's length from its broker."""

    def describe(self) -> list[Metric]:
        """Return nothing: to be registered must not cost a query."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the figures; each source is asked once, whatever is stored."""
        now = database_now()
        yield from _ended_runs()
        yield from _unfinished_runs(now)
        yield from _waiting_tasks()
        yield from _leases()
        yield from _breakers()
        yield from _workers(now)
        yield from _scores()
        yield from _rejections()


def _ended_runs() -> Iterator[Metric]:
    runs = CounterMetricFamily(
        "palimpsest_runs", "Runs that have ended.", labels=["status", "reason", "mode"]
    )
    seconds = SummaryMetricFamily(
        "palimpsest_run_seconds",
        "Seconds from a run's start to its end; 0 for one that never started.",
        labels=["status", "mode"],
    )
    saved = CounterMetricFamily(
        "palimpsest_tokens_saved",
        "Tokens by which runs made the next request smaller.",
        labels=["reason"],
    )
    took: dict[tuple[str, str], tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    saved_by: dict[str, int] = defaultdict(int)
    for row in run_totals():
        runs.add_metric([row.status, row.reason, row.mode], row.runs)
        count, total = took[row.status, row.mode]
        took[row.status, row.mode] = count + row.runs, total + row.seconds
        saved_by[row.reason] += row.tokens_saved
    for labels, (count, total) in took.items():
        seconds.add_metric(labels, count_value=count, sum_value=total)
    for reason, tokens in saved_by.items():
        saved.add_metric([reason], tokens)
    yield from (runs, seconds, saved)


def _unfinished_runs(now: datetime) -> Iterator[Metric]:
    unfinished = GaugeMetricFamily(
        "palimpsest_runs_unfinished", "Runs that wait or work now.", labels=["status"]
    )
    ready = Q(status=CompactionRun.Status.QUEUED) & ready_q(now)
    queued_since = Min(QUEUED_SINCE, filter=ready)
    rows = CompactionRun.objects.filter(status__in=UNFINISHED).order_by().values("status")
    counts, oldest = dict.fromkeys(UNFINISHED, 0), None
    for row in rows.annotate(runs=Count("id"), since=queued_since):
        counts[row["status"]] = row["runs"]
        oldest = row["since"] or oldest  # those that work are none of the queue
    for status, count in counts.items():
        unfinished.add_metric([status], count)
    yield unfinished
    yield GaugeMetricFamily(
        "palimpsest_queue_age_seconds",
        "How long the oldest queued run could have been worked on; 0 if there is none.",
        value=_seconds(now - oldest) if oldest else 0.0,
    )


def _waiting_tasks() -> Iterator[Metric]:
    """Yield nothing where the broker does not answer: no figure is better than a wrong one."""
    try:
        queue.ping()
        waiting = queue.waiting_tasks()
    except Exception:
        logger.exception("The queue's broker does not answer")
        return
    yield GaugeMetricFamily(
        "palimpsest_queue_tasks", "Tasks in the queue's broker that no worker has.", value=waiting
    )


def _leases() -> Iterator[Metric]:
    held = Q(lease_expires_at__gt=Now())
    leases = CompactionState.objects.filter(lease_owner__isnull=False).aggregate(
        held=Count("pk", filter=held), expired=Count("pk", filter=~held)
    )
    yield GaugeMetricFamily(
        "palimpsest_leases_held", "Branches that a worker compacts now.", value=leases["held"]
    )
    yield GaugeMetricFamily(
        "palimpsest_leases_expired",
        "Leases of workers that fell silent, which the sweep has not cleared yet.",
        value=leases["expired"],
    )


def _breakers() -> Iterator[Metric]:
    state = GaugeMetricFamily(
        "palimpsest_breaker_state",
        "Whether runs wait for a model: 0 closed, 1 probing, 2 open.",
        labels=["model"],
    )
    failures = GaugeMetricFamily(
        "palimpsest_breaker_failures", "Failed calls of a model in a row.", labels=["model"]
    )
    failing = GaugeMetricFamily(
        "palimpsest_compactions_failing",
        "Whether the last compaction by a model failed: 1 until one succeeds.",
        labels=["model"],
    )
    for breaker in ModelBreaker.objects.order_by("model"):
        failing.add_metric([breaker.model], int(breaker.failing_since is not None))
        state.add_metric([breaker.model], BREAKER_STATES[breaker.state])
        failures.add_metric([breaker.model], breaker.failures)
    yield from (state, failures, failing)


def _workers(now: datetime) -> Iterator[Metric]:
    alive = GaugeMetricFamily(
        "palimpsest_workers",
        f"Processes that gave a sign of life in the last {ALIVE_SECONDS} seconds.",
        labels=["kind"],
    )
    age = GaugeMetricFamily(
        "palimpsest_heartbeat_age_seconds", "Age of the newest sign of life.", labels=["kind"]
    )
    living = Q(beat_at__gt=now - timedelta(seconds=ALIVE_SECONDS))
    rows = WorkerHeartbeat.objects.order_by().values("kind")
    seen = rows.annotate(alive=Count("id", filter=living), newest=Max("beat_at"))
    found = {row["kind"]: row for row in seen}
    for kind in WorkerHeartbeat.Kind.values:
        alive.add_metric([kind], found[kind]["alive"] if kind in found else 0)
        if kind in found:
            age.add_metric([kind], _seconds(now - found[kind]["newest"]))
    yield from (alive, age)


def _scores() -> Iterator[Metric]:
    """Yield what is stored: sessions that are deleted take their summaries away."""
    buckets = {f"upto_{most}": Count("pk", filter=Q(score__lte=most)) for most in SCORE_BUCKETS}
    found = SummaryQuality.objects.aggregate(all=Count("pk"), total=Sum("score"), **buckets)
    counts = [(f"{most:.1f}", found[f"upto_{most}"]) for most in SCORE_BUCKETS]
    scores = HistogramMetricFamily(
        "palimpsest_summary_score", "How much stored summaries still know, of 100."
    )
    scores.add_metric([], [*counts, ("+Inf", found["all"])], sum_value=found["total"] or 0.0)
    yield scores


def _rejections() -> Iterator[Metric]:
    # No counter: sessions that are deleted take their steps away.
    rejected = GaugeMetricFamily(
        "palimpsest_summaries_rejected",
        "Stored refusals of a summariser's text, by reason.",
        labels=["reason"],
    )
    rows = CompactionStep.objects.filter(outcome=CompactionStep.Outcome.REJECTED)
    for code, count in rows.order_by("code").values_list("code").annotate(steps=Count("pk")):
        rejected.add_metric([code], count)
    yield rejected


def _seconds(age: timedelta) -> float:
    """Return an age in seconds; what a machine whose clock is ahead did just now has none."""
    return max(0.0, age.total_seconds())
