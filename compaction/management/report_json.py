"""The report as one JSON object whose keys stay the same."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from compaction.models import CompactionRun
from compaction.statistics.report import Failure, Group, Period
from compaction.vocabulary import reason_words


def report_as_dict(period: Period, *, by: str | None = None) -> dict[str, Any]:
    """Return the whole report; `groups` is empty where nothing is grouped `by`.

    `ratio` and `median_ratio` are parts of one, times ISO 8601 in UTC, `cost` in the price's unit.
    """
    totals = period.totals()
    return {
        "since": _iso(period.since),
        "sessions": totals.sessions,
        "runs": asdict(totals.outcomes),
        "tokens_saved": totals.tokens_saved,
        "ratio": asdict(totals.ratios),
        "model_calls": totals.model_calls,
        "cost": totals.cost,
        "reasons": [
            {"reason": row.reason, "words": reason_words(row.reason), **asdict(row.outcomes)}
            for row in period.reasons()
        ],
        "slowest": [_slow_json(run) for run in period.slowest()],
        "failures": [_failure_json(failure) for failure in period.failures()],
        "by": by,
        "groups": [_group_json(group) for group in (period.groups(by) if by else ())],
    }


def _slow_json(run: CompactionRun) -> dict[str, Any]:
    took = (run.finished_at - run.started_at) if run.finished_at and run.started_at else None
    return {
        "run": str(run.pk),
        "session": str(run.session_id),
        "title": run.session.title,
        "status": run.status,
        "calls": run.model_calls,
        "seconds": took.total_seconds() if took else None,
    }


def _failure_json(failure: Failure) -> dict[str, Any]:
    return {
        "code": failure.code,
        "count": failure.count,
        "sentence": failure.newest.error,
        "run": str(failure.newest.pk),
        "created_at": _iso(failure.newest.created_at),
    }


def _group_json(group: Group) -> dict[str, Any]:
    row = asdict(group)
    ratios = row.pop("ratios")
    return row | {"summaries": ratios["summaries"], "median_ratio": ratios["median"]}


def _iso(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).isoformat() if moment else None
