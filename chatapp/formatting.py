"""Numbers, times, ids and names as people read them: plain text, for pages and commands alike.

What reports, figures and filters mean by a day stands here, too: a day of UTC.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.formats import date_format, localize

from chatapp.ids import short_id as short_id
from chatapp.models import POSITION_STEP

# What is shorter than this is told in milliseconds.
SHORT_SECONDS = 0.1
SMALLEST_MONEY = 0.0001


def shortened(text: str, most: int = 60) -> str:
    """Return a name that fits a cell."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def number(value: float | None) -> str:
    """Return a number with thousands separated; a dash for none."""
    return "—" if value is None else f"{value:,}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: 1 rung, 2 rungs."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def unit_of(amount: Any, unit: str) -> str:
    """Return a unit as it stands behind an amount, a number or its text: 2 messages, 1 message."""
    if str(amount).strip() != "1":
        return unit
    return f"{unit.removesuffix('ies')}y" if unit.endswith("ies") else unit.removesuffix("s")


def place(position: int | None) -> str:
    """Return a position in steps, without zeros behind: 3, or 3.5 between the third and fourth."""
    if position is None:
        return "—"
    whole, part = divmod(position, POSITION_STEP)
    return f"{whole}.{part:06d}".rstrip("0").rstrip(".") if part else str(whole)


def when(moment: Any) -> str:
    """Return a time as the lists show it."""
    return str(localize(timezone.localtime(moment))) if moment else "—"


def when_utc(moment: datetime) -> str:
    """Return a time for a sentence that is stored, and read where clocks may differ."""
    return f"{date_format(moment.astimezone(UTC), 'j M Y, H:i:s')} UTC"


def clock(moment: datetime | None) -> str:
    """Return a time, short: 14:05; with the day where that is another one, and so with the year."""
    if moment is None:
        return "—"
    local, today = timezone.localtime(moment), timezone.localdate()
    if local.date() == today:
        return date_format(local, "H:i")
    return date_format(local, "j M, H:i" if local.year == today.year else "j M Y, H:i")


def span_words(span: timedelta) -> str:
    """Return a span of time, short: 45 s, 12 min, 3 h 5 min, 2 days."""
    seconds = int(span.total_seconds())
    if seconds < 60:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} days"


def before_after(before: int | None, after: int | None) -> str:
    """Return two sizes as a change; a dash unless both are known."""
    if before is None or after is None:
        return "—"
    return f"{before:,} → {after:,}"


def percent(ratio: float | None) -> str:
    """Return a ratio as a percentage; a dash for none."""
    return "—" if ratio is None else f"{100 * ratio:.1f} %"


def duration(span: float) -> str:
    """Return a span of seconds: 2.4 s, or 45 ms where that would read 0.0 s."""
    if span >= SHORT_SECONDS:
        return f"{span:,.1f} s"
    return f"{1000 * span:.0f} ms" if span >= 0.0005 else "< 1 ms"


def money(cost: float) -> str:
    """Return what something cost, in the currency of the prices; a dash where nothing is known."""
    if not cost:
        return "—"
    return f"{cost:,.4f}" if cost >= SMALLEST_MONEY else f"< {SMALLEST_MONEY}"


def day_start(day: date) -> datetime:
    """Return the moment at which a day begins."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def day_range(first: date, last: date | None = None) -> tuple[datetime, datetime]:
    """Return where a day, or a span of days with both ends, begins, and where the next one does.

    Raises OverflowError for the last day of all.
    """
    return day_start(first), day_start((last or first) + timedelta(days=1))


def utc_day(moment: datetime) -> date:
    """Return the day on which something happened."""
    return moment.astimezone(UTC).date()


def days_between(first: date, last: date) -> list[date]:
    """Return all days from one to another, both included; none where the last is earlier."""
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]
