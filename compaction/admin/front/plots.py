"""The plots of the front page: the daily figures of the last 30 days, drawn and as tables.

Every bar and every number of a table leads to the rows that it counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.filters import days_value
from chatapp.admin.plots import Chart, Column, Piece, Tone, bar_chart, short_number
from chatapp.llm.registry import Prices, all_models
from compaction.admin.filters import bin_value, bin_words
from compaction.admin.front.outcomes import outcome_plot
from compaction.admin.front.parts import Plot, counted, day_words, runs_url, tick_of
from compaction.models import CompactionRun, DailyFigures, SessionSummary
from compaction.statistics.ratios import RATIO_BINS

TICK_BINS = 5
PLAIN = Tone(name="plain")
NO_PRICE = (
    "No price is set, so no cost is known. Prices are the setting PRICES of a model "
    "(OPENAI_PRICE_INPUT, OPENAI_PRICE_OUTPUT), in money per million tokens."
)
NOTHING_SPENT = "No call of these days cost anything."


def plots_of(days: Sequence[DailyFigures]) -> list[Plot]:
    """Return all plots of a span of days, given in order and without gaps."""
    return [
        outcome_plot(days),
        ratio_plot(days),
        saved_plot(days),
        calls_plot(days),
        cost_plot(days),
    ]


def ratio_plot(days: Sequence[DailyFigures]) -> Plot:
    """Return how many summaries of these days have which compression ratio."""
    title = "Compression ratios"
    counts = [sum(day.ratios[index] for day in days if day.ratios) for index in range(RATIO_BINS)]
    if not any(counts):
        return Plot(title=title, empty="No summary was made in these days.")
    span = days_value(days[0].day, days[-1].day)
    urls = [
        cells.list_url(SessionSummary, day=span, ratio=bin_value(index))
        for index in range(RATIO_BINS)
    ]
    chart = Chart(
        name="ratios",
        label="Distribution of compression ratios, the last 30 days. The table below has the "
        "numbers.",
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


def _ratio_column(index: int, count: int, url: str) -> Column:
    label = f"{bin_words(index)}: {count:,} {'summary' if count == 1 else 'summaries'}"
    return Column(
        label=label,
        url=url,
        pieces=[Piece(tone=PLAIN, value=count, label=label, url=url)],
        tick=f"{100 * index // RATIO_BINS} %" if index % TICK_BINS == 0 else "",
    )


def saved_plot(days: Sequence[DailyFigures]) -> Plot:
    """Return by how many tokens a day the next requests became smaller."""
    return _daily_plot(
        days,
        column="tokens_saved",
        name="saved",
        title="Tokens saved a day",
        unit="tokens",
        note="How much smaller the compacted conversations' next requests became.",
        empty="No compaction succeeded in these days.",
        status=CompactionRun.Status.SUCCEEDED,
    )


def calls_plot(days: Sequence[DailyFigures]) -> Plot:
    """Return how often a day the summariser was called."""
    return _daily_plot(
        days,
        column="model_calls",
        name="calls",
        title="Model calls a day",
        unit="calls",
        note="Calls of the summariser, those of failed runs too.",
        empty="No model was called in these days.",
    )


def cost_plot(days: Sequence[DailyFigures]) -> Plot:
    """Return what the calls of a day cost."""
    return _daily_plot(
        days,
        column="cost",
        name="cost",
        title="Cost a day",
        unit="money, in the currency of the prices",
        note="What these calls cost, those of failed runs too.",
        empty=NOTHING_SPENT if _has_prices() else NO_PRICE,
        is_whole=False,
    )


def _daily_plot(
    days: Sequence[DailyFigures],
    *,
    column: str,
    name: str,
    title: str,
    unit: str,
    note: str,
    empty: str,
    status: str = "",
    is_whole: bool = True,
) -> Plot:
    """Return the plot of one number a day; without any, the sentence `empty`."""
    values = [getattr(day, column) for day in days]
    if not any(values):
        return Plot(title=title, empty=empty)
    columns, rows = [], []
    for index, (day, value) in enumerate(zip(days, values, strict=True)):
        url = runs_url(day.day, status)
        shown = f"{value:,}" if is_whole else formatting.money(value)
        label = f"{day_words(day.day)}: {shown} {unit.split(',')[0]}"
        piece = Piece(tone=PLAIN, value=value, label=label, url=url)
        tick = tick_of(day.day, index, len(days))
        columns.append(Column(label=label, url=url, pieces=[piece], tick=tick))
        rows.append((day.day.isoformat(), counted(value, url, shown)))
    chart = Chart(
        name=name,
        label=f"{title}, the last 30 days. The table below has the numbers.",
        unit=unit,
        columns=columns,
        number=short_number,
        is_whole=is_whole,
    )
    return Plot(
        title=title,
        note=note,
        drawing=bar_chart(chart),
        columns=("Day", unit.split(",")[0].capitalize()),
        rows=rows[::-1],
    )


def _has_prices() -> bool:
    return any(model.prices != Prices() for model in all_models().values())
