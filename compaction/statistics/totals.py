"""Totals over all runs that ended: what monitoring reads, the log's line, and the signals."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, Min, OuterRef, QuerySet, Subquery, Sum

from chatapp.transcript import lessen_request
from compaction.events import event
from compaction.models import CompactionRun, RunTotals, SessionSummary
from compaction.signals import compacted, compaction_failed, send_after_commit

# So many rows of a kind share its counts: a thousand workers seldom wait for each other.
SLOTS = 16
_COLUMNS = ("status", "reason", "mode")
_COUNTS = ("runs", "seconds", "tokens_saved")


@dataclass(frozen=True, slots=True, kw_only=True)
class KindTotals:
    """How many runs ended in one way for one reason, with their seconds and saved tokens."""

    status: str
    reason: str
    mode: str
    runs: int
    seconds: float
    tokens_saved: int


def ended(run: CompactionRun, *, saved: int | None = None) -> None:
    """Count a run that has just reached its final status, and log it, once that is committed.

    To be called once a run, with the row as it is stored now, by whoever's conditional UPDATE ended
    it. `saved` are the tokens by which the next request became smaller; without it the run's sizes
    tell. What goes wrong here is logged and fails nobody: the runs themselves stay the truth.
    Raises ValueError for a run that has not ended.
    """
    if not run.is_finished:
        raise ValueError(f"Run {run.pk} is {run.status}: only what has ended is counted.")
    seconds, tokens = _seconds(run), _tokens_saved(run) if saved is None else saved
    kind = _kind(run)
    # Read now: the caller may go on with the row.
    told: dict[str, Any] = {
        "session": run.session_id,
        "branch": run.branch_id,
        "run": run.pk,
        **kind,
        "trigger": str(run.trigger),
        "seconds": seconds,
        "model_calls": run.model_calls,
        "tokens_before": run.tokens_before,
        "tokens_after": run.tokens_after,
        "input_tokens": run.input_tokens,
        "output_tokens": run.output_tokens,
        "code": run.error_code or None,
    }

    def tell() -> None:
        event("run_ended", **told)
        _add(kind, runs=1, seconds=seconds, tokens_saved=tokens)
        if tokens:
            lessen_request(told["branch"], tokens)

    transaction.on_commit(tell, robust=True)
    _signal(run)


def published(run: CompactionRun) -> None:
    """Count, once that is committed, what the draft of a finished run saves from now on."""
    kind, tokens = _kind(run), _tokens_saved(run)
    add = partial(_add, kind, runs=0, seconds=0.0, tokens_saved=tokens)
    transaction.on_commit(add, robust=True)
    transaction.on_commit(partial(lessen_request, run.branch_id, tokens), robust=True)
    _signal(run)


def _signal(run: CompactionRun) -> None:
    """Tell receivers of an end that is no success, or of the summary that a run stored."""
    about = {
        "session": run.session_id,
        "branch": run.branch_id,
        "run": run.pk,
        "trigger": str(run.trigger),
        "reason": run.reason,
    }
    if run.status in (CompactionRun.Status.FAILED, CompactionRun.Status.CANCELLED):
        send_after_commit(
            compaction_failed,
            sender=CompactionRun,
            **about,
            code=run.error_code,
            aborted=run.status == CompactionRun.Status.CANCELLED,
            will_retry=run.trigger == CompactionRun.Trigger.OVERFLOW_RETRY,
        )
        return
    if run.trigger == CompactionRun.Trigger.BRANCH or not compacted.has_listeners(CompactionRun):
        return
    made = SessionSummary.objects.filter(run=run.pk).only(
        "status", "message_count", "from_hook", "tokens_before", "tokens_after"
    )
    for summary in made.order_by("-created_at")[:1]:
        send_after_commit(
            compacted,
            sender=CompactionRun,
            **about,
            summary=summary.pk,
            tokens_before=summary.tokens_before,
            tokens_after=summary.tokens_after,
            messages=summary.message_count,
            is_draft=summary.status == SessionSummary.Status.DRAFT,
            from_hook=summary.from_hook,
        )


def _kind(run: CompactionRun) -> dict[str, str]:
    return {"status": str(run.status), "reason": run.reason, "mode": run.mode}


def _seconds(run: CompactionRun) -> float:
    """Return how long the run worked; 0 for one that never started."""
    if run.started_at is None or run.finished_at is None:
        return 0.0
    # Start and end may come from the clocks of two machines.
    return max(0.0, (run.finished_at - run.started_at).total_seconds())


def _tokens_saved(run: CompactionRun) -> int:
    """Return by how much the next request became smaller."""
    if run.status != CompactionRun.Status.SUCCEEDED:
        return 0
    if run.tokens_before is None or run.tokens_after is None:
        return 0
    return max(0, run.tokens_before - run.tokens_after)


def _add(kind: dict[str, str], **amounts: float) -> None:
    """Add to the totals of a kind; of two processes that add the first ones, both count."""
    place = {**kind, "slot": random.randrange(SLOTS)}
    rows = RunTotals.objects.filter(**place)
    grown = {column: F(column) + amount for column, amount in amounts.items()}
    if rows.update(**grown):
        return
    try:
        with transaction.atomic():
            RunTotals.objects.create(**place, **amounts)
    except IntegrityError:
        rows.update(**grown)


def run_totals() -> list[KindTotals]:
    """Return the totals of all kinds, in the order of their columns; one statement."""
    kinds = RunTotals.objects.order_by(*_COLUMNS).values(*_COLUMNS)
    return [KindTotals(**row) for row in kinds.annotate(**{name: Sum(name) for name in _COUNTS})]


def summed_rows(rows: QuerySet[RunTotals]) -> QuerySet[RunTotals]:
    """Return one row of each kind, with the sums of the kind as `all_runs` and so on."""
    kinds = rows.order_by().values(*_COLUMNS)
    first = kinds.annotate(first=Min("pk")).values("first")
    own = RunTotals.objects.filter(**{name: OuterRef(name) for name in _COLUMNS})
    own = own.order_by().values(*_COLUMNS)
    sums = {
        f"all_{name}": Subquery(own.annotate(total=Sum(name)).values("total")) for name in _COUNTS
    }
    return rows.filter(pk__in=first).annotate(**sums)
