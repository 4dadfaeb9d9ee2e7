"""The front page of the admin: tiles and plots of the daily figures, and a way to refresh them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.safestring import SafeString

from chatapp.formatting import days_between, span_words, utc_day
from chatapp.models import Session
from chatapp.site import OperatorsSite
from compaction.admin.acting import may_run, may_view
from compaction.admin.front.attention import attentions_of
from compaction.admin.front.parts import Plot
from compaction.admin.front.plots import plots_of
from compaction.admin.front.tiles import tiles_of
from compaction.models import CompactionRun, DailyFigures, SessionSummary
from compaction.statistics.daily import (
    DAYS_SHOWN,
    newest_figures,
    oldest_waiting,
    recent_figures,
    refresh_figures,
)

REFRESH = "compaction_refresh_figures"


def front_panel(request: HttpRequest) -> SafeString | str:
    """Return tiles and plots; nothing for operators who may not see runs and summaries."""
    if not (may_view(request, CompactionRun) and may_view(request, SessionSummary)):
        return ""
    now = timezone.now()
    stored = recent_figures(utc_day(now))
    newest = stored[-1] if stored else newest_figures()
    shown: dict[str, Any] = {
        "refresh_url": reverse(f"admin:{REFRESH}") if may_run(request) else "",
        "attentions": attentions_of(request),
    }
    if newest is None or not newest.sessions:
        shown["is_empty"] = not Session.objects.exists()
    else:
        shown |= {
            "as_of": as_of(newest.refreshed_at, now),
            "tiles": tiles_of(request, newest, waiting_since=oldest_waiting(now), now=now),
            "plots": _plots(stored, utc_day(now)),
            "days": DAYS_SHOWN,
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


def _plots(stored: Sequence[DailyFigures], today: date) -> list[Plot]:
    """Return the plots, or none where nothing happened in all these days."""
    by_day = {row.day: row for row in stored}
    days = [
        by_day.get(day, DailyFigures(day=day))
        for day in days_between(today - timedelta(days=DAYS_SHOWN - 1), today)
    ]
    plots = plots_of(days)
    return plots if any(plot.drawing for plot in plots) else []


if isinstance(admin.site, OperatorsSite):
    admin.site.add_front_panel(front_panel, style="compaction/front.css")
    admin.site.add_page("figures/refresh/", refresh, name=REFRESH)
