"""Days of UTC: what reports, figures and filters of lists mean by a day."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta


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
