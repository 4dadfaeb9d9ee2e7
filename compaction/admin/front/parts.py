"""What the plots of the front page have in common: days, addresses, and the plot's own parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from django.utils.formats import date_format
from django.utils.safestring import SafeString

from chatapp.admin import cells
from chatapp.admin.filters import days_value
from compaction.models import CompactionRun

TICK_DAYS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
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
    legend: Sequence[Entry] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = field(default_factory=list)


def day_words(day: date) -> str:
    """Return a day as axes and labels show it: 7 Nov."""
    return date_format(day, "j M")


def tick_of(day: date, index: int, count: int) -> str:
    """Return a label for every seventh day, counted back from the last."""
    return day_words(day) if (count - 1 - index) % TICK_DAYS == 0 else ""


def runs_url(day: date, status: str = "") -> str:
    """Return the address of a day's runs, those of one state (filters.RunStatus) if named."""
    chosen = {"day": days_value(day, day)} | ({"status": status} if status else {})
    return cells.list_url(CompactionRun, **chosen)


def counted(value: float, url: str, shown: str = "") -> SafeString | str:
    """Return a number of a table; what is not zero leads to the rows."""
    return cells.link(shown or f"{value:,}", url) if value else "0"
