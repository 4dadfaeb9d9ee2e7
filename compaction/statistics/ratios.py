"""Median, ninth decile and distribution of compression ratios, worked out by the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date
from typing import Any

from django.db.models import Count, F, Q, QuerySet, Window
from django.db.models.expressions import Combinable
from django.db.models.functions import RowNumber, TruncDate

from compaction.models import SessionSummary

# The distribution is counted in steps of this size; the last one has no upper end.
RATIO_STEP = 0.05
RATIO_BINS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """How small summaries are, as a part of what they were made from; None where there is none.

    The median of an even number is the middle between two; p90 is the smallest ratio that nine of
    ten summaries do not exceed (nearest rank).
    """

    summaries: int = 0
    median: float | None = None
    p90: float | None = None


def ratios_by(key: Combinable, summaries: QuerySet[SessionSummary]) -> dict[Any, Ratios]:
    """Return the ratios of summaries by group, in one query that reads three rows a group at most.

    Drafts and summaries without a ratio do not count. With n ratios in order, the middle ones have
    n <= 2 * rank <= n + 2, and the nearest rank of p90 is the one with 9 n <= 10 * rank < 9 n + 10.
    """
    rows = (
        summaries.filter(compression_ratio__gt=0)
        .exclude(status=SessionSummary.Status.DRAFT)
        .annotate(key=key)
        .annotate(
            rank=Window(RowNumber(), partition_by=[F("key")], order_by="compression_ratio"),
            size=Window(Count("*"), partition_by=[F("key")]),
        )
        .annotate(twice=F("rank") * 2, tenfold=F("rank") * 10)
        .filter(
            Q(twice__gte=F("size"), twice__lte=F("size") + 2)
            | Q(tenfold__gte=F("size") * 9, tenfold__lt=F("size") * 9 + 10)
        )
        .values_list("key", "rank", "size", "compression_ratio")
    )
    chosen: dict[Any, list[tuple[int, int, float]]] = {}
    for found, rank, size, ratio in rows:
        chosen.setdefault(found, []).append((rank, size, ratio))
    return {found: _ratios_of(ranked) for found, ranked in chosen.items()}


def _ratios_of(ranked: Sequence[tuple[int, int, float]]) -> Ratios:
    size = ranked[0][1]
    middle = [ratio for rank, _, ratio in ranked if size <= 2 * rank <= size + 2]
    p90 = [ratio for rank, _, ratio in ranked if 9 * size <= 10 * rank < 9 * size + 10]
    return Ratios(summaries=size, median=sum(middle) / len(middle), p90=p90[0])


def bin_q(index: int) -> Q:
    """Return the condition for one step of the distribution: from its lower end up to its upper.

    The first leaves out zero, which is no ratio; the last takes everything above it too.
    """
    lower = round(index * RATIO_STEP, 2)
    condition = Q(compression_ratio__gte=lower) if index else Q(compression_ratio__gt=0)
    if index < RATIO_BINS - 1:
        condition &= Q(compression_ratio__lt=round((index + 1) * RATIO_STEP, 2))
    return condition


def distribution_by_day(summaries: QuerySet[SessionSummary]) -> dict[date, list[int]]:
    """Return the same by the day on which summaries were made (UTC), in one query."""
    days = summaries.annotate(day=TruncDate("created_at", tzinfo=UTC)).values_list("day")
    rows: QuerySet[Any] = days.annotate(**_bins()).order_by()
    return {day: counts for day, *counts in rows}


def distribution(summaries: QuerySet[SessionSummary]) -> list[int]:
    """Return how many of the summaries fall into every step, in one query."""
    return list(summaries.aggregate(**_bins()).values())


def _bins() -> dict[str, Count]:
    return {f"bin{index}": Count("pk", filter=bin_q(index)) for index in range(RATIO_BINS)}
