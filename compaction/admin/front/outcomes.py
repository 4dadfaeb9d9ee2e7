"""The front page's first plot: the runs of every day by how they ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chatapp.admin import cells
from chatapp.admin.filters import days_value
from chatapp.admin.plots import Chart, Column, Piece, Tone, bar_chart, short_number, swatch
from compaction.admin.filters import FAILURES, UNFINISHED
from compaction.admin.front.parts import Entry, Plot, counted, day_words, runs_url, tick_of
from compaction.models import CompactionRun, DailyFigures

CHART = "outcomes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How runs ended: a column of DailyFigures, how it is drawn, and the list's filter for it."""

    column: str
    words: str
    tone: Tone
    status: str


# From the bottom of a bar to its top.
OUTCOMES = (
    Outcome(column="succeeded", words="succeeded", tone=Tone(name="good"), status="succeeded"),
    Outcome(
        column="skipped",
        words="skipped",
        tone=Tone(name="idle", marks="stripes"),
        status="skipped",
    ),
    Outcome(
        column="cancelled",
        words="cancelled",
        tone=Tone(name="stopped", marks="dots"),
        status="cancelled",
    ),
    Outcome(
        column="unfinished",
        words="queued or running",
        tone=Tone(name="busy", marks="stripes"),
        status=UNFINISHED,
    ),
    Outcome(column="failed", words="failed", tone=Tone(name="bad", marks="cross"), status=FAILURES),
)


def outcome_plot(days: Sequence[DailyFigures]) -> Plot:
    """Return the runs a day by how they ended."""
    title = "Compactions a day"
    if not any(count for day in days for count in _outcomes(day)):
        return Plot(title=title, empty="No run was requested in these days.")
    chart = Chart(
        name=CHART,
        label="Compactions a day by outcome, the last 30 days. The table below has the numbers.",
        unit="runs",
        columns=[_outcome_column(day, index, len(days)) for index, day in enumerate(days)],
        number=short_number,
    )
    return Plot(
        title=title,
        note="Each run on the day it was requested.",
        drawing=bar_chart(chart),
        legend=_legend(days),
        columns=("Day", *(outcome.words.capitalize() for outcome in OUTCOMES)),
        rows=[
            (
                day.day.isoformat(),
                *(
                    counted(getattr(day, each.column), runs_url(day.day, each.status))
                    for each in OUTCOMES
                ),
            )
            for day in reversed(days)
        ],
    )


def _legend(days: Sequence[DailyFigures]) -> list[Entry]:
    """Return what each tone stands for and leads to; outcomes that no run had are left out."""
    span = days_value(days[0].day, days[-1].day)
    counts = [(outcome, sum(getattr(day, outcome.column) for day in days)) for outcome in OUTCOMES]
    return [
        Entry(
            swatch=swatch(CHART, outcome.tone),
            words=outcome.words.capitalize(),
            count=f"{count:,}",
            url=cells.list_url(CompactionRun, day=span, status=outcome.status),
        )
        for outcome, count in counts
        if count
    ]


def _outcomes(day: DailyFigures) -> list[int]:
    return [getattr(day, outcome.column) for outcome in OUTCOMES]


def _outcome_column(day: DailyFigures, index: int, count: int) -> Column:
    when = day_words(day.day)
    found = [(outcome, getattr(day, outcome.column)) for outcome in OUTCOMES]
    told = ", ".join(f"{number:,} {outcome.words}" for outcome, number in found if number)
    return Column(
        label=f"{when}: {told}",
        url=runs_url(day.day),
        pieces=[
            Piece(
                tone=outcome.tone,
                value=number,
                label=f"{when}: {number:,} {outcome.words}",
                url=runs_url(day.day, outcome.status),
            )
            for outcome, number in found
        ],
        tick=tick_of(day.day, index, count),
    )
