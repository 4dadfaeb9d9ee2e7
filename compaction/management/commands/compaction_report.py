"""What compaction did in a period: runs, tokens saved, ratios, cost, the slowest, the failures."""

from __future__ import annotations

import json
import re
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from chatapp.conf import COMMAND_CHECKS
from chatapp.formatting import percent, plural, short_id
from chatapp.management.console import (
    DEFAULT_COLUMNS,
    TableColumn,
    one_line,
    table_lines,
    wrapped,
    write_lines,
)
from compaction.engine.policy.reasons import reason_label
from compaction.models import CompactionRun
from compaction.statistics.prompt_caches import CacheRow
from compaction.statistics.report import (
    GROUPINGS,
    Failure,
    Outcomes,
    Period,
    ReasonRow,
    ReportGroup,
    Totals,
)
from compaction.statistics.scores import ScoreRow
from compaction.vocabulary import seconds

LABEL_CELLS = 14
NO_MODEL = "no model answered"
REASON_COLUMNS = (
    TableColumn(heading="Reason", elastic=True),
    TableColumn(heading="Runs", right=True),
    TableColumn(heading="Succeeded", right=True),
    TableColumn(heading="Skipped", right=True),
    TableColumn(heading="Failed", right=True),
    TableColumn(heading="Cancelled", right=True),
    TableColumn(heading="Unfinished", right=True),
)
SCORE_COLUMNS = (
    TableColumn(heading="Profile", elastic=True),
    TableColumn(heading="Model", elastic=True),
    TableColumn(heading="Summaries", right=True),
    TableColumn(heading="p10", right=True),
    TableColumn(heading="Median", right=True),
    TableColumn(heading="Hindsight", right=True),
    TableColumn(heading="Verdicts"),
)
CACHE_COLUMNS = (
    TableColumn(heading="Profile", elastic=True),
    TableColumn(heading="By"),
    TableColumn(heading="Runs", right=True),
    TableColumn(heading="Cached", right=True),
    TableColumn(heading="Uncached", right=True),
    TableColumn(heading="Turns", right=True),
    TableColumn(heading="Cached", right=True),
    TableColumn(heading="Uncached", right=True),
)
SLOWEST_COLUMNS = (
    TableColumn(heading="Run"),
    TableColumn(heading="Session"),
    TableColumn(heading="Title", elastic=True),
    TableColumn(heading="Status"),
    TableColumn(heading="Calls", right=True),
    TableColumn(heading="Took", right=True),
)


class Command(BaseCommand):
    """Reads and writes out; every figure comes from compaction/statistics/report.py."""

    help = (
        "Reports what compaction did: sessions, runs by outcome and reason, tokens saved, "
        "compression ratios, model calls and cost, quality by profile and model, what prompt "
        "caches held, the slowest runs, and failures in words. "
        "All times are UTC."
    )
    requires_system_checks = COMMAND_CHECKS

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--since",
            metavar="DATE|Nd",
            help="runs requested on or after this day or time (ISO 8601, UTC), or in the last N "
            "days (7d); default: all",
        )
        parser.add_argument("--by", choices=GROUPINGS, help="add one row a group")
        parser.add_argument("--json", action="store_true", help="one JSON object instead")

    def handle(self, *args: Any, **options: Any) -> None:
        since = _moment(options["since"]) if options["since"] is not None else None
        period, by = Period(since=since), options["by"]
        if options["json"]:
            self.stdout.write(json.dumps(report_as_dict(period, by=by), ensure_ascii=False))
        else:
            write_lines(self.stdout, _report(period, by))


def _moment(text: str) -> datetime:
    """Return the moment that `--since` names; raise CommandError when it names none."""
    try:
        if days := re.fullmatch(r"([1-9][0-9]*)d", text):
            return timezone.now() - timedelta(days=int(days[1]))
        day = parse_date(text)
        moment = datetime(day.year, day.month, day.day) if day else parse_datetime(text)
    except (ValueError, OverflowError):
        moment = None
    if moment is None:
        raise CommandError(
            f"“{text}” is no date; write 2026-11-27, 2026-11-27T18:00Z, or 7d for seven days."
        )
    return moment if timezone.is_aware(moment) else moment.replace(tzinfo=UTC)


# --- as text --------------------------------------------------------------------------------------


def _report(period: Period, by: str | None) -> Iterator[str]:
    when = f"since {_utc(period.since)}" if period.since else "of all time"
    totals = period.totals()
    if not totals.outcomes.runs:
        yield f"Compaction {when}: no run was requested."
        return
    yield f"Compaction {when}"
    yield ""
    yield from _totals(totals)
    yield from _table("Runs by reason", REASON_COLUMNS, map(_reason_cells, period.reasons()))
    if by:
        cells = map(_group_cells, period.groups(by))
        yield from _table(f"Runs by {by}", _group_columns(by), cells)
    yield from _table(
        "Quality by profile and model", SCORE_COLUMNS, map(_score_cells, period.scores())
    )
    yield from _table(
        "Prompt tokens of summaries' calls, and of the first turns behind them",
        CACHE_COLUMNS,
        map(_cache_cells, period.caches()),
    )
    yield from _table("Slowest runs", SLOWEST_COLUMNS, map(_slow_cells, period.slowest()))
    yield from _failures(period.failures())


def _totals(totals: Totals) -> Iterator[str]:
    ratios = totals.ratios
    yield from _fact("Sessions", f"{totals.sessions:,}")
    yield from _fact("Runs", _runs_in_words(totals.outcomes))
    yield from _fact("Tokens saved", f"{totals.tokens_saved:,}")
    made = f"of {ratios.summaries:,} summar{'y' if ratios.summaries == 1 else 'ies'}"
    yield from _fact(
        "Ratio",
        f"median {percent(ratios.median)}, p90 {percent(ratios.p90)} {made}"
        if ratios.summaries
        else "—",
    )
    yield from _fact("Model calls", f"{totals.model_calls:,}")
    yield from _fact("Cost", f"{totals.cost:.4f}")


def _runs_in_words(outcomes: Outcomes) -> str:
    counts = asdict(outcomes)
    parts = [
        f"{counts[status.value]:,} {status.label.lower()}"
        for status in CompactionRun.Status
        if counts[status.value]
    ]
    return f"{outcomes.runs:,}: {', '.join(parts)}"


def _fact(label: str, value: str) -> list[str]:
    lines = wrapped(value, DEFAULT_COLUMNS - LABEL_CELLS)
    return [f"{label:<{LABEL_CELLS}}{lines[0]}", *(" " * LABEL_CELLS + rest for rest in lines[1:])]


def _table(title: str, columns: Sequence[TableColumn], cells: Iterable[list[str]]) -> list[str]:
    rows = list(cells)
    return ["", title, "", *table_lines(columns, rows)] if rows else []


def _reason_cells(row: ReasonRow) -> list[str]:
    outcomes = row.outcomes
    counts = (
        outcomes.runs,
        outcomes.succeeded,
        outcomes.skipped,
        outcomes.failed,
        outcomes.cancelled,
        outcomes.queued + outcomes.running,
    )
    return [one_line(reason_label(row.reason)), *(f"{count:,}" for count in counts)]


def _group_columns(by: str) -> tuple[TableColumn, ...]:
    names = ("Runs", "Succeeded", "Failed", "Tokens saved", "Median ratio", "Cost")
    return (
        TableColumn(heading=by.capitalize(), elastic=True),
        *(TableColumn(heading=name, right=True) for name in names),
    )


def _group_cells(group: ReportGroup) -> list[str]:
    return [
        one_line(group.key) or NO_MODEL,
        f"{group.runs:,}",
        f"{group.succeeded:,}",
        f"{group.failed:,}",
        f"{group.tokens_saved:,}",
        percent(group.ratios.median),
        f"{group.cost:.4f}",
    ]


def _score_cells(row: ScoreRow) -> list[str]:
    return [
        one_line(row.profile) or "—",
        one_line(row.model) or NO_MODEL,
        f"{row.summaries:,}",
        f"{row.p10:.0f}",
        f"{row.median:.0f}",
        percent(row.hindsight),
        row.verdicts,
    ]


def _cache_cells(row: CacheRow) -> list[str]:
    counts = (row.runs, row.cached, row.uncached, row.turns, row.next_cached, row.next_uncached)
    return [
        one_line(row.profile) or "—",
        "clock" if row.by_clock else "others",
        *(f"{count:,}" for count in counts),
    ]


def _slow_cells(run: CompactionRun) -> list[str]:
    return [
        short_id(run.pk),
        short_id(run.session_id),
        one_line(str(run.session)),
        run.get_status_display(),
        f"{run.model_calls:,}",
        seconds(run),
    ]


def _failures(failures: list[Failure]) -> Iterator[str]:
    if not failures:
        return
    yield ""
    yield "Failures"
    for failure in failures:
        newest = failure.newest
        yield ""
        yield f"{one_line(failure.code) or 'without a code'}: {plural(failure.count, 'run')}"
        sentence = one_line(newest.error) or "No sentence was stored."
        yield from (f"  {line}" for line in wrapped(sentence, DEFAULT_COLUMNS - 2))
        yield f"  Newest: run {newest.pk}, {_utc(newest.created_at)}"


def _utc(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


# --- as JSON --------------------------------------------------------------------------------------


def report_as_dict(period: Period, *, by: str | None = None) -> dict[str, Any]:
    """Return the whole report; `groups` is empty where nothing is grouped `by`.

    `ratio`, `median_ratio` and `hindsight` are parts of one, scores parts of 100, times ISO 8601 in
    UTC, `cost` in the price's unit.
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
            {"reason": row.reason, "words": reason_label(row.reason), **asdict(row.outcomes)}
            for row in period.reasons()
        ],
        "slowest": [_slow_json(run) for run in period.slowest()],
        "failures": [_failure_json(failure) for failure in period.failures()],
        "by": by,
        "groups": [_group_json(group) for group in (period.groups(by) if by else ())],
        "quality": [asdict(row) for row in period.scores()],
        "caches": [asdict(row) for row in period.caches()],
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


def _group_json(group: ReportGroup) -> dict[str, Any]:
    row = asdict(group)
    ratios = row.pop("ratios")
    return row | {"summaries": ratios["summaries"], "median_ratio": ratios["median"]}


def _iso(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).isoformat() if moment else None
