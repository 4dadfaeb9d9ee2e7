"""What the calls of a run came to: its own columns, or the sums of its steps before a result.

The columns are written together with the result. Of a failed run they say 0, although its calls
were made and paid for.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Max, Sum

from compaction.models import CompactionRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """The figures of a run's calls."""

    input_tokens: int
    output_tokens: int
    max_depth: int
    cost: float


def has_result(run: CompactionRun) -> bool:
    """Whether the run's own columns were written."""
    return run.status == CompactionRun.Status.SUCCEEDED


def sums_of(run: CompactionRun) -> Sums:
    """Return the figures of one run's page; for a run without a result, one query a row object."""
    if has_result(run):
        return Sums(
            input_tokens=run.input_tokens,
            output_tokens=run.output_tokens,
            max_depth=run.max_depth,
            cost=run.cost,
        )
    found: Sums | None = getattr(run, "_sums_of_steps", None)
    if found is None:
        found = _of_steps(run)
        run._sums_of_steps = found  # type: ignore[attr-defined]
    return found


def _of_steps(run: CompactionRun) -> Sums:
    sums = run.steps.aggregate(
        tokens_in=Sum("input_tokens"),
        tokens_out=Sum("output_tokens"),
        deepest=Max("depth"),
        paid=Sum("cost"),
    )
    return Sums(
        input_tokens=sums["tokens_in"] or 0,
        output_tokens=sums["tokens_out"] or 0,
        max_depth=sums["deepest"] or 0,
        cost=sums["paid"] or 0.0,
    )
