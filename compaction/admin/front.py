"""The front page of the admin: what needs a look, alerts, tiles and plots of the daily figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.safestring import SafeString

from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.lists import days_value
from chatapp.admin.toolkit.permissions import may_run
from chatapp.formatting import days_between, span_words, utc_day
from chatapp.models import AnswerRequest, Message, Session
from compaction.admin.actions import may_view
from compaction.admin.comparison import COMPARE
from compaction.admin.front_plots import PLOTS, Plot
from compaction.admin.index_entries import may_compare
from compaction.admin.lists import FAILURES, LOOK, WAITING
from compaction.admin.needs_look import front_context
from compaction.admin.quality_plots import score_table
from compaction.admin.workers import SILENT, silent_at_work
from compaction.conf import compaction_settings
from compaction.models import (
    CompactionRun,
    DailyFigures,
    SessionSummary,
    WorkerHeartbeat,
)
from compaction.statistics.daily import (
    DAYS_SHOWN,
    newest_figures,
    oldest_waiting,
    recent_figures,
    refresh_figures,
    waiting_runs,
)
from compaction.statistics.scores import rows_of

_NOT_YET = "Not worked out yet"
REFRESH = "compaction_refresh_figures"
LEAST_DAYS = 7
"""Plots of a young installation begin with its first run, and show a week at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something to look at now: what it is called, what it means, the list of it.

    `filters` are those of the model's list; `tone` is bad or busy.
    """

    model: type[Model]
    one: str
    many: str
    means: str
    filters: Mapping[str, str]
    tone: str

    def shown(self, count: int) -> dict[str, str]:
        """Return the line as the template draws it."""
        said = self.one if count == 1 else f"{count:,} {self.many}"
        url = html.list_url(self.model, **self.filters)
        return {"said": said, "means": self.means, "url": url, "tone": self.tone}


ALERTS = (
    Alert(
        model=WorkerHeartbeat,
        one="1 worker fell silent",
        many="workers fell silent",
        means="In the middle of a run, within the last day. The sweep starts such a run again.",
        filters={"state": SILENT},
        tone="bad",
    ),
    Alert(
        model=CompactionRun,
        one="1 run waits",
        many="runs wait",
        means="Put off until a time; each says for what on its page.",
        filters={"status": WAITING},
        tone="busy",
    ),
)
INCOMPLETE_DAYS = 7
INCOMPLETE = Alert(
    model=Message,
    one="1 answer was given without a part of its conversation",
    many="answers were given without a part of their conversations",
    means=f"In the last {INCOMPLETE_DAYS} days: neither those messages nor a summary of them was "
    "sent. Each answer's page says which, and why; what a profile drops on purpose is not counted.",
    filters={"without": "part", "since": str(INCOMPLETE_DAYS)},
    tone="busy",
)
LOW_SCORES = Alert(
    model=SessionSummary,
    one="1 summary scored low",
    many="summaries scored low",
    means="They are sent, and know little of what they cover. A verdict on its page takes one off.",
    filters={"score": LOOK},
    tone="busy",
)
"""Counted with the figures: summaries are too many to be looked through for a page."""


def alerts_of(request: HttpRequest, newest: DailyFigures | None) -> list[dict[str, str]]:
    """Return the lines that the operator may see; usually none."""
    return [*_alerts_now(request), *_alerts_of_figures(newest)]


def _alerts_of_figures(newest: DailyFigures | None) -> list[dict[str, str]]:
    low = newest.scores.get("low", 0) if newest else 0
    return [LOW_SCORES.shown(low)] if low else []


def _alerts_now(request: HttpRequest) -> list[dict[str, str]]:
    counts = _counts()
    return [
        alert.shown(counts[alert.model])
        for alert in (*ALERTS, INCOMPLETE)
        if counts[alert.model] and may_view(request, alert.model)
    ]


def incomplete_answers(now: datetime) -> int:
    """Return how many answers went without messages lately, not on purpose."""
    since = now - timedelta(days=INCOMPLETE_DAYS)
    rows = AnswerRequest.objects.filter(left_out__isnull=False, left_out_branch__isnull=False)
    return rows.filter(created_at__gte=since).count()


def _counts() -> Counter[type[Model]]:
    """Return how many rows each alert is about."""
    # Three queries: the first table holds few rows; the others have indexes of unfinished runs, and
    # of incomplete answers.
    silent = WorkerHeartbeat.objects.filter(silent_at_work()).count()
    waiting = waiting_runs().filter(waits_until__gt=timezone.now()).count()
    incomplete = incomplete_answers(timezone.now())
    return Counter({WorkerHeartbeat: silent, CompactionRun: waiting, Message: incomplete})


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
            url=_list_of(request, Message, kind__in=",".join(Message.SPOKEN)),
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
        bar=html.bar(sent, stored, f"{share} of the stored tokens would be sent"),
    )


def _runs_tile(today: DailyFigures | None, now: datetime) -> Tile:
    url = html.list_url(CompactionRun, day=days_value(utc_day(now), utc_day(now)))
    if today is None:
        return Tile(title="Runs today", value="—", url=url, note=_NOT_YET)
    runs = today.succeeded + today.skipped + today.failed + today.cancelled + today.unfinished
    note = f"{today.succeeded:,} succeeded"
    return Tile(title="Runs today", value=f"{runs:,}", url=url, note=note)


def _failures_tile(today: DailyFigures | None, now: datetime) -> Tile:
    day = days_value(utc_day(now), utc_day(now))
    url = html.list_url(CompactionRun, day=day, status=FAILURES)
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
    title, url = "Queue age", html.list_url(CompactionRun, status=CompactionRun.Status.QUEUED)
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
    return html.list_url(model, **filters) if may_view(request, model) else ""


def front_panel(request: HttpRequest) -> SafeString | str:
    """Return tiles and plots; nothing for operators who may not see runs and summaries."""
    if not (may_view(request, CompactionRun) and may_view(request, SessionSummary)):
        return ""
    now = timezone.now()
    stored = recent_figures(utc_day(now))
    newest = stored[-1] if stored else newest_figures()
    shown: dict[str, Any] = {
        "refresh_url": reverse(f"admin:{REFRESH}") if may_run(request) else "",
        "alerts": alerts_of(request, newest),
        "compare_url": reverse(f"admin:{COMPARE}") if may_compare(request) else "",
        **front_context(request),
    }
    if newest is None or not newest.sessions:
        shown["is_empty"] = not Session.objects.exists()
    else:
        shown |= {
            "as_of": as_of(newest.refreshed_at, now),
            "tiles": tiles_of(request, newest, waiting_since=oldest_waiting(now), now=now),
            "plots": _plots(stored, utc_day(now)),
            "days": (utc_day(now) - _first_day(stored, utc_day(now))).days + 1,
            "score_days": DAYS_SHOWN,
            "scores": score_table(rows_of(newest.scores)),
        }
    return render_to_string("admin/compaction/front.html", shown, request)


def refresh(request: HttpRequest) -> HttpResponse:
    """Work out the figures now: for installations where no worker does it.

    Totals read much, so it takes the right to start work.
    """
    if not may_run(request):
        raise PermissionDenied
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    refresh_figures()
    messages.success(request, "The figures are those of this moment.")
    return HttpResponseRedirect(reverse("admin:index"))


def as_of(moment: datetime, now: datetime) -> str:
    """Return when the figures were worked out: 14:05 (3 minutes ago)."""
    local = timezone.localtime(moment)
    same_day = local.date() == timezone.localtime(now).date()
    clock = date_format(local, "H:i" if same_day else "j M Y, H:i")
    age = max(now - moment, timedelta())
    minutes = int(age.total_seconds()) // 60
    if minutes >= 60:
        return f"{clock} ({span_words(age)} ago)"
    return f"{clock} ({minutes} {'minute' if minutes == 1 else 'minutes'} ago)"


def _first_day(stored: Sequence[DailyFigures], today: date) -> date:
    """Return where the plots begin: with the first day that has something, a week at least."""
    busy = [row.day for row in stored if _has_runs(row)]
    week, most = today - timedelta(days=LEAST_DAYS - 1), today - timedelta(days=DAYS_SHOWN - 1)
    return max(most, min([week, *busy]))


def _has_runs(row: DailyFigures) -> bool:
    counts = (row.succeeded, row.skipped, row.failed, row.cancelled, row.unfinished)
    return any((*counts, *row.ratios))


def _plots(stored: Sequence[DailyFigures], today: date) -> list[Plot]:
    """Return the plots, or none where nothing happened in all these days."""
    by_day = {row.day: row for row in stored}
    days = [
        by_day.get(day, DailyFigures(day=day))
        for day in days_between(_first_day(stored, today), today)
    ]
    plots = [draw(days) for draw in PLOTS]
    return plots if any(plot.drawing for plot in plots) else []
