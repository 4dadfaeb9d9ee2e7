"""The tiles of the front page: one number each, with a word about it and the way to its rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Model
from django.http import HttpRequest
from django.utils.safestring import SafeString

from chatapp.admin import cells
from chatapp.admin.filters import days_value
from chatapp.formatting import span_words, utc_day
from chatapp.models import Message, Session
from compaction.admin.acting import may_view
from compaction.admin.filters import FAILURES
from compaction.conf import compaction_settings
from compaction.models import CompactionRun, DailyFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One number; without a `url`, the operator may not see the rows. `tone`: good, bad, busy."""

    title: str
    value: str
    url: str = ""
    note: str = ""
    bar: SafeString | str = ""
    tone: str = ""


def tiles_of(
    request: HttpRequest, newest: DailyFigures, *, waiting_since: datetime | None, now: datetime
) -> list[Tile]:
    """Return the tiles: totals as the newest figures have them, runs of today, the queue now."""
    figures = newest if newest.day == utc_day(now) else None
    return [
        Tile(title="Sessions", value=f"{newest.sessions:,}", url=_list_of(request, Session)),
        Tile(
            title="Messages",
            value=f"{newest.messages:,}",
            url=_list_of(request, Message, kind__exact=Message.Kind.MESSAGE),
        ),
        _tokens_tile(request, newest),
        _runs_tile(figures, now),
        _failures_tile(figures, now),
        _queue_tile(waiting_since, now),
    ]


def _tokens_tile(request: HttpRequest, newest: DailyFigures) -> Tile:
    stored, sent = newest.tokens_stored, newest.tokens_sent
    share = f"{100 * sent / stored:.1f} %" if stored else "0 %"
    return Tile(
        title="Tokens stored, and sent of them",
        value=f"{stored:,}",
        url=_list_of(request, Session),
        note=f"The next requests of all sessions would send {sent:,}: {share}",
        bar=cells.bar(sent, stored, f"{share} of the stored tokens would be sent"),
    )


def _runs_tile(today: DailyFigures | None, now: datetime) -> Tile:
    url = cells.list_url(CompactionRun, day=days_value(utc_day(now), utc_day(now)))
    if today is None:
        return Tile(title="Runs today", value="—", url=url, note=_NOT_YET)
    runs = today.succeeded + today.skipped + today.failed + today.cancelled + today.unfinished
    note = f"{today.succeeded:,} succeeded"
    return Tile(title="Runs today", value=f"{runs:,}", url=url, note=note)


def _failures_tile(today: DailyFigures | None, now: datetime) -> Tile:
    day = days_value(utc_day(now), utc_day(now))
    url = cells.list_url(CompactionRun, day=day, status=FAILURES)
    if today is None:
        return Tile(title="Failures today", value="—", url=url, note=_NOT_YET)
    if not today.failed:
        return Tile(title="Failures today", value="0", url=url, note="✓ None")
    return Tile(
        title="Failures today",
        value=f"{today.failed:,}",
        url=url,
        note="✗ Each says what to do",
        tone="bad",
    )


def _queue_tile(waiting_since: datetime | None, now: datetime) -> Tile:
    title, url = "Queue age", cells.list_url(CompactionRun, status=CompactionRun.Status.QUEUED)
    if waiting_since is None:
        return Tile(title=title, value="0 s", url=url, note="Nothing waits")
    age = max(now - waiting_since, timedelta())
    if age.total_seconds() > compaction_settings.queued_run_seconds:
        note, tone = "! The oldest run waits this long. Does a worker run?", "bad"
    else:
        note, tone = "The oldest run waits this long", ""
    return Tile(title=title, value=span_words(age), url=url, note=note, tone=tone)


def _list_of(request: HttpRequest, model: type[Model], **filters: Any) -> str:
    """Return the address of a list, filtered, if the operator may see it."""
    return cells.list_url(model, **filters) if may_view(request, model) else ""


_NOT_YET = "Not worked out yet"
