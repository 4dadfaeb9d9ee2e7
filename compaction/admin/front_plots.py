"""The plots of the front page: the daily figures of up to 30 days, drawn and as tables.

Every bar and every number of a table leads to the rows that it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from django.utils.formats import date_format
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.lists import days_value
from chatapp.admin.toolkit.svg import Bar, Chart, Piece, Tone, bar_chart, short_number, swatch
from chatapp.llm.registry import Prices, all_models
from compaction.admin.lists import FAILURES, UNFINISHED, bin_value, bin_words
from compaction.models import CompactionRun, DailyFigures, SessionSummary
from compaction.statistics.ratios import RATIO_BINS

TICK_DAYS = 7

CHART = "outcomes"
TICK_BINS = 5
PLAIN = Tone(name="plain")
NO_PRICE = (
    "No price is set, so no cost is known. Prices are the setting PRICES of a model "
    "(OPENAI_PRICE_INPUT, OPENAI_PRICE_OUTPUT), in money per million tokens."
)
NOTHING_SPENT = "No call of these days cost anything."


@dataclass(frozen=True, slots=True, kw_only=True)
class LegendEntry:
    """A line of a chart's legend: what a tone stands for, and how much of it there is."""

    swatch: SafeString
    words: str
    count: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A chart with its table; without a drawing, `empty` says why there is none."""

    title: str
    note: str = ""
    drawing: SafeString | str = ""
    empty: str = ""
    legend: Sequence[LegendEntry] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = field(default_factory=list)


def day_words(day: date) -> str:
    """Return a day as axes and labels show it: 7 Nov."""
    return date_format(day, "j M")


def tick_of(day: date, index: int, count: int) -> str:
    """Return a label for each day of a week, else for every seventh, counted from the last."""
    apart = 1 if count <= TICK_DAYS else TICK_DAYS
    return day_words(day) if (count - 1 - index) % apart == 0 else ""


def runs_url(day: date, status: str = "") -> str:
    """Return the address of a day's runs, those of one state (lists.BY_RUN_STATUS) if named."""
    chosen = {"day": days_value(day, day)} | ({"status": status} if status else {})
    return html.list_url(CompactionRun, **chosen)


def counted(value: float, url: str, shown: str = "") -> SafeString | str:
    """Return a number of a table; what is not zero leads to the rows."""
    return html.link(shown or f"{value:,}", url) if value else "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """How runs ended: a column of DailyFigures, how it is drawn, and the list's filter for it."""

    column: str
    words: str
    tone: Tone
    status: str


# From the bottom of a bar to its top.
OUTCOMES = (
    RunOutcome(column="succeeded", words="succeeded", tone=Tone(name="good"), status="succeeded"),
    RunOutcome(
        column="skipped",
        words="skipped",
        tone=Tone(name="idle", marks="stripes"),
        status="skipped",
    ),
    RunOutcome(
        column="cancelled",
        words="cancelled",
        tone=Tone(name="stopped", marks="dots"),
        status="cancelled",
    ),
    RunOutcome(
        column="unfinished",
        words="queued or running",
        tone=Tone(name="busy", marks="stripes"),
        status=UNFINISHED,
    ),
    RunOutcome(
        column="failed", words="failed", tone=Tone(name="bad", marks="cross"), status=FAILURES
    ),
)


def outcome_plot(days: Sequence[DailyFigures]) -> Plot:
    """Return the runs a day by how they ended."""
    title = "Compactions a day"
    if not any(count for day in days for count in _outcomes(day)):
        return Plot(title=title, empty="No run was requested in these days.")
    chart = Chart(
        name=CHART,
        label="Compactions a day by outcome. The table below has the numbers.",
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


def _legend(days: Sequence[DailyFigures]) -> list[LegendEntry]:
    """Return what each tone stands for and leads to; outcomes that no run had are left out."""
    span = days_value(days[0].day, days[-1].day)
    counts = [(outcome, sum(getattr(day, outcome.column) for day in days)) for outcome in OUTCOMES]
    return [
        LegendEntry(
            swatch=swatch(CHART, outcome.tone),
            words=outcome.words.capitalize(),
            count=f"{count:,}",
            url=html.list_url(CompactionRun, day=span, status=outcome.status),
        )
        for outcome, count in counts
        if count
    ]


def _outcomes(day: DailyFigures) -> list[int]:
    return [getattr(day, outcome.column) for outcome in OUTCOMES]


def _outcome_column(day: DailyFigures, index: int, count: int) -> Bar:
    when = day_words(day.day)
    found = [(outcome, getattr(day, outcome.column)) for outcome in OUTCOMES]
    told = ", ".join(f"{number:,} {outcome.words}" for outcome, number in found if number)
    return Bar(
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


def ratio_plot(days: Sequence[DailyFigures]) -> Plot:
    """Return how many summaries of these days have which compression ratio."""
    title = "Compression ratios"
    counts = [sum(day.ratios[index] for day in days if day.ratios) for index in range(RATIO_BINS)]
    if not any(counts):
        return Plot(title=title, empty="No summary was made in these days.")
    span = days_value(days[0].day, days[-1].day)
    urls = [
        html.list_url(SessionSummary, day=span, ratio=bin_value(index))
        for index in range(RATIO_BINS)
    ]
    chart = Chart(
        name="ratios",
        label="Distribution of compression ratios. The table below has the numbers.",
        unit="summaries",
        columns=[_ratio_column(i, *each) for i, each in enumerate(zip(counts, urls, strict=True))],
        number=short_number,
        last_tick="100 %",
    )
    return Plot(
        title=title,
        note="A summary's tokens as a part of what it was made from; further left is smaller.",
        drawing=bar_chart(chart),
        columns=("Ratio", "Summaries"),
        rows=[
            (bin_words(index), counted(counts[index], urls[index])) for index in range(RATIO_BINS)
        ],
    )


def _ratio_column(index: int, count: int, url: str) -> Bar:
    label = f"{bin_words(index)}: {count:,} {'summary' if count == 1 else 'summaries'}"
    return Bar(
        label=label,
        url=url,
        pieces=[Piece(tone=PLAIN, value=count, label=label, url=url)],
        tick=f"{100 * index // RATIO_BINS} %" if index % TICK_BINS == 0 else "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyPlot:
    """One number a day, a column of DailyFigures; where there is none, the sentence `empty`.

    `status` narrows the runs that a bar leads to; `is_whole` numbers have no fractions.
    """

    column: str
    name: str
    title: str
    unit: str
    note: str
    empty: Callable[[], str]
    status: str = ""
    is_whole: bool = True

    def draw(self, days: Sequence[DailyFigures]) -> Plot:
        """Return the plot."""
        values = [getattr(day, self.column) for day in days]
        if not any(values):
            return Plot(title=self.title, empty=self.empty())
        noun = self.unit.split(",")[0]
        columns, rows = [], []
        for index, (day, value) in enumerate(zip(days, values, strict=True)):
            url = runs_url(day.day, self.status)
            shown = f"{value:,}" if self.is_whole else formatting.money(value)
            label = f"{day_words(day.day)}: {shown} {noun}"
            piece = Piece(tone=PLAIN, value=value, label=label, url=url)
            tick = tick_of(day.day, index, len(days))
            columns.append(Bar(label=label, url=url, pieces=[piece], tick=tick))
            rows.append((day.day.isoformat(), counted(value, url, shown)))
        chart = Chart(
            name=self.name,
            label=f"{self.title}. The table below has the numbers.",
            unit=self.unit,
            columns=columns,
            number=short_number,
            is_whole=self.is_whole,
        )
        return Plot(
            title=self.title,
            note=self.note,
            drawing=bar_chart(chart),
            columns=("Day", noun.capitalize()),
            rows=rows[::-1],
        )


def _why_no_cost() -> str:
    has_prices = any(model.prices != Prices() for model in all_models().values())
    return NOTHING_SPENT if has_prices else NO_PRICE


TOKENS_SAVED = DailyPlot(
    column="tokens_saved",
    name="saved",
    title="Tokens saved a day",
    unit="tokens",
    note="How much smaller the compacted conversations' next requests became.",
    empty=lambda: "No compaction succeeded in these days.",
    status=CompactionRun.Status.SUCCEEDED,
)
MODEL_CALLS = DailyPlot(
    column="model_calls",
    name="calls",
    title="Model calls a day",
    unit="calls",
    note="Calls of the summariser, those of failed runs too.",
    empty=lambda: "No model was called in these days.",
)
COST = DailyPlot(
    column="cost",
    name="cost",
    title="Cost a day",
    unit="money, in the currency of the prices",
    note="What these calls cost, those of failed runs too.",
    empty=_why_no_cost,
    is_whole=False,
)
PLOTS: Sequence[Callable[[Sequence[DailyFigures]], Plot]] = (
    outcome_plot,
    ratio_plot,
    TOKENS_SAVED.draw,
    MODEL_CALLS.draw,
    COST.draw,
)
"""The plots of the front page in their order, each drawn for days in order and without gaps."""
