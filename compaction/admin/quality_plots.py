"""Scores of many summaries: the curve of a session by pass, and the table by profile and model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.page_parts import Panel, Table
from chatapp.admin.toolkit.svg import anchor, drawing, element, title
from compaction.admin.branch_view import SUMMARIES_DRAWN, BranchView
from compaction.conf import compaction_settings
from compaction.models import SessionSummary, SummaryQuality
from compaction.statistics.scores import ScoreRow

TITLE = "What the summaries still know"
WIDTH, HEIGHT = 460.0, 190.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 16.0, 24.0, 36.0
BASE = HEIGHT - BOTTOM
STEPS = (0, 25, 50, 75, 100)
MOST_TICKS = 10
DOT = 3.5
SQUARE = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One summary of a branch, by its number from the first; None: not measured."""

    number: int
    summary: SessionSummary
    score: float | None = None
    cumulative: float | None = None

    @property
    def url(self) -> str:
        """The address of the summary's page."""
        return html.change_url(SessionSummary, self.summary.pk)

    @property
    def words(self) -> str:
        """The pass as a pointer or a screen reader is told."""
        if self.score is None:
            return f"Pass {self.number}: not measured"
        known = f", {self.cumulative:.0f} % of all so far" if self.cumulative is not None else ""
        return f"Pass {self.number}: score {self.score:.0f}{known}"


def decay_panel(view: BranchView) -> Panel | None:
    """Return the scores of the branch's summaries in their order; None where nothing is measured.

    One query, and none where there is no summary.
    """
    rows = view.summaries[-SUMMARIES_DRAWN:]
    measured: dict[Any, SummaryQuality] = {}
    if rows:
        found = SummaryQuality.objects.filter(summary__in=[row.pk for row in rows])
        measured = {row.pk: row for row in found.only("score", "cumulative")}
    if not measured:
        return None
    passes = [_pass(number, row, measured.get(row.pk)) for number, row in enumerate(rows, start=1)]
    body = render_to_string(
        "admin/compaction/decay.html",
        {
            "drawing": curve(passes),
            "note": _in_words(passes),
            "older": len(view.summaries) > SUMMARIES_DRAWN,
            "shown": SUMMARIES_DRAWN,
            "low": f"{compaction_settings.low_score:g}",
            "table": _table(passes),
        },
    )
    return Panel(title=TITLE, body=body)


def _pass(number: int, summary: SessionSummary, row: SummaryQuality | None) -> Pass:
    if row is None:
        return Pass(number=number, summary=summary)
    known = None if row.cumulative is None else 100 * row.cumulative
    return Pass(number=number, summary=summary, score=row.score, cumulative=known)


def _in_words(passes: Sequence[Pass]) -> str:
    """Return the curve as a sentence."""
    scored = [one for one in passes if one.score is not None]
    first, last = scored[0], scored[-1]
    said = f"Score {first.score:.0f} after pass {first.number}"
    if last is not first:
        said += f", {last.score:.0f} after pass {last.number}"
    if last.cumulative is not None:
        said += f"; the last knows {last.cumulative:.0f} % of all that was named from the start"
    return f"{said}."


def _table(passes: Sequence[Pass]) -> Table:
    rows = [
        (
            html.link(one.number, one.url),
            "not measured" if one.score is None else f"{one.score:.0f}",
            "—" if one.cumulative is None else f"{one.cumulative:.0f} %",
        )
        for one in passes
    ]
    return Table(
        title="Scores by pass", columns=("Pass", "Score", "Known of all so far"), rows=rows
    )


# --- the drawing ----------------------------------------------------------------------------------


def curve(passes: Sequence[Pass]) -> SafeString:
    """Return the drawing: score and cumulative coverage over the passes, on one scale to 100."""
    low = _y(compaction_settings.low_score)
    return drawing(
        *_axis(passes),
        element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=low, y2=low, cls="decay-low"),
        *_curve(passes, "cumulative"),
        *_curve(passes, "score"),
        width=WIDTH,
        height=HEIGHT,
        label=f"{_in_words(passes)} The table below has the numbers.",
        cls="decay",
        has_links=True,
    )


def _curve(passes: Sequence[Pass], name: str) -> Iterator[SafeString]:
    """Return one line with its dots; what is not measured is a gap."""
    count = len(passes)
    stretch: list[str] = []
    dots = []
    for one in passes:
        value = getattr(one, name)
        if value is None:
            yield from _polyline(stretch, name)
            stretch = []
            continue
        x, y = _x(one.number, count), _y(value)
        stretch.append(f"{x:.1f},{y:.1f}")
        dots.append(
            anchor(one.url, title(one.words), _dot(x, y, name), label=one.words, is_stop=False)
        )
    yield from _polyline(stretch, name)
    yield from dots


def _polyline(points: Sequence[str], name: str) -> Iterator[SafeString]:
    if len(points) > 1:
        yield element("polyline", points=" ".join(points), cls=f"decay-curve decay-{name}")


def _dot(x: float, y: float, name: str) -> SafeString:
    """Return a mark whose shape tells the curves apart as its colour does."""
    cls = f"decay-dot-{name}"
    if name == "score":
        return element("circle", cx=x, cy=y, r=DOT, cls=cls)
    half = SQUARE / 2
    return element("rect", x=x - half, y=y - half, width=SQUARE, height=SQUARE, cls=cls)


def _axis(passes: Sequence[Pass]) -> Iterator[SafeString]:
    yield element("text", "of 100", x=LEFT, y=TOP - 10, cls="decay-unit")
    for step in STEPS:
        y = _y(step)
        kind = "decay-line" if step else "decay-base"
        yield element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, cls=kind)
        yield element("text", str(step), x=LEFT - 5, y=y + 4, cls="decay-number")
    every = -(-len(passes) // MOST_TICKS)
    for one in passes[::every]:
        x = _x(one.number, len(passes))
        yield element("text", str(one.number), x=x, y=BASE + 15, cls="decay-tick")
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield element("text", "pass", x=middle, y=BASE + 30, cls="decay-tick")


def _x(number: int, count: int) -> float:
    inner = WIDTH - LEFT - RIGHT
    return LEFT + inner * (number - 0.5) / max(1, count)


def _y(value: float) -> float:
    return BASE - (BASE - TOP) * min(100.0, max(0.0, value)) / 100


# --- the front page -------------------------------------------------------------------------------


def score_table(rows: Sequence[ScoreRow]) -> Table | None:
    """Return the scores by profile and model as a table; None where nothing is measured."""
    if not rows:
        return None
    return Table(
        title="How much summaries still know, by profile and model",
        columns=("Profile", "Model", "Summaries", "p10", "Median", "Hindsight", "Verdicts"),
        rows=[
            (
                row.profile or "—",
                row.model or "—",
                f"{row.summaries:,}",
                f"{row.p10:.0f}",
                f"{row.median:.0f}",
                formatting.percent(row.hindsight),
                row.verdicts,
            )
            for row in rows
        ],
    )
