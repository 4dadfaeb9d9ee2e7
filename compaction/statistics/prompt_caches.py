"""Whether it pays to watch prompt caches: cached and uncached tokens of calls and of next turns.

A summary costs a call, and changes the prompt that its server had cached. What the call read, and
what the first request with the summary read, is stored with the run and with the summary; these
sums over a period's rows are all that is read here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import BooleanField, Case, Count, Q, QuerySet, Sum, Value, When
from django.db.models.functions import Coalesce

from chatapp.llm.usage import billed
from chatapp.messages.wire import DOUBTED_USAGE, NEW_PART_ONLY
from chatapp.models import Message
from compaction.engine.policy.reasons import Reason
from compaction.models import CompactionRun, SessionSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRow:
    """One profile's runs, those that the prompt cache's clock started apart from all others.

    `runs` are those that called a model, `turns` the first turns behind their summaries whose
    server told what it read. Tokens are those of prompts.
    """

    profile: str
    by_clock: bool
    runs: int = 0
    cached: int = 0
    uncached: int = 0
    turns: int = 0
    next_cached: int = 0
    next_uncached: int = 0


def note_next_turn(summaries: Sequence[SessionSummary], answer: Message | None) -> None:
    """Store what the first request with the newest of these summaries had the server read.

    A report that tells of a part of the request only, or is doubted, says nothing. Nothing is read
    or written in later turns.
    """
    if answer is None or not summaries or summaries[-1].next_uncached_tokens is not None:
        return
    if any(answer.metadata.get(key) for key in (NEW_PART_ONLY, DOUBTED_USAGE)):
        return
    tokens = billed(answer.usage)
    if prompt := tokens.get("prompt_tokens", 0):
        cached = tokens["cached_tokens"]
        rows = SessionSummary.objects.filter(pk=summaries[-1].pk, next_uncached_tokens__isnull=True)
        rows.update(next_cached_tokens=cached, next_uncached_tokens=prompt - cached)


def cache_rows(
    runs: QuerySet[CompactionRun], summaries: QuerySet[SessionSummary]
) -> list[CacheRow]:
    """Return the sums by profile and by what started the run, in two queries."""
    called = runs.filter(Q(cached_tokens__gt=0) | Q(uncached_tokens__gt=0))
    found = _sums(called, "runs", {"cached": "cached_tokens", "uncached": "uncached_tokens"})
    told = summaries.filter(next_uncached_tokens__isnull=False)
    columns = {"next_cached": "next_cached_tokens", "next_uncached": "next_uncached_tokens"}
    turns = _sums(told, "turns", columns)
    return [
        CacheRow(profile=profile, by_clock=by_clock, **found.get(key, {}), **turns.get(key, {}))
        for key in sorted(found.keys() | turns.keys())
        for profile, by_clock in [key]
    ]


def _sums(
    rows: QuerySet[Any], counted: str, columns: dict[str, str]
) -> dict[tuple[str, bool], dict[str, int]]:
    clock = When(reason=Reason.CACHE_EXPIRING.value, then=Value(True))
    sums: dict[str, Any] = {name: Coalesce(Sum(column), 0) for name, column in columns.items()}
    grouped = (
        rows.order_by()
        .annotate(by_clock=Case(clock, default=Value(False), output_field=BooleanField()))
        .values("profile__name", "by_clock")
        .annotate(**{counted: Count("pk")}, **sums)
    )
    names = (counted, *columns)
    return {
        (row["profile__name"] or "", row["by_clock"]): {name: row[name] for name in names}
        for row in grouped
    }
