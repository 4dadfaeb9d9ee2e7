"""The session's page with what this app knows of it, in the place of chatapp's own."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from chatapp.admin import cells
from chatapp.admin.parts import Link, Table
from chatapp.admin.session import SessionAdmin
from chatapp.models import Session
from compaction.admin.acting import for_each, may_run, queued
from compaction.admin.standing import standing_tables
from compaction.admin.tables import run_table, summary_table
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.services.errors import CompactionError
from compaction.services.resummarize import resummarize
from compaction.services.runs import request_run
from compaction.services.situation import situation_of

ROWS_SHOWN = 10

admin.site.unregister(Session)


@admin.register(Session)
class CompactedSessionAdmin(SessionAdmin):
    """Compact now, make the newest summary again; state, account, last runs and summaries."""

    actions = ("compact_now", "resummarise")
    detail_actions = ("compact_now", "resummarise")

    def has_run_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may start runs."""
        return may_run(request)

    @admin.action(description="Compact now", permissions=["run"])
    def compact_now(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        """Queue a run by hand for every selected session."""

        def compact(session: Session) -> SafeString:
            situation = situation_of(session)
            run = request_run(
                session=session,
                branch=situation.branch,
                trigger=CompactionRun.Trigger.MANUAL,
                reason="manual",
                profile=situation.profile_row,
                background=True,
                requested_by=request.user,
            )
            return queued(run, session)

        for_each(request, self.chosen(request, queryset, "active_branch"), compact)

    @admin.action(description="Re-summarise", permissions=["run"])
    def resummarise(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        """Queue a new version of the newest active summary of every selected session.

        One a session: a branch has one worker at a time, and a second run would find it busy.
        """

        def redo(session: Session) -> SafeString:
            sent = situation_of(session).summaries
            if not sent:
                raise CompactionError("It has no active summary yet; compact it first.")
            run = resummarize(sent[-1], background=True, requested_by=request.user)
            return queued(run, session)

        for_each(request, self.chosen(request, queryset, "active_branch"), redo)

    def links_for(self, request: HttpRequest, obj: Session) -> list[Link]:
        """Add the ways to runs, summaries and states."""
        return [
            *super().links_for(request, obj),
            Link(label="Runs", url=cells.list_url(CompactionRun, session__id__exact=obj.pk)),
            Link(label="Summaries", url=cells.list_url(SessionSummary, session__id__exact=obj.pk)),
            Link(
                label="States",
                url=cells.list_url(CompactionState, branch__session__id__exact=obj.pk),
            ),
        ]

    def tables_for(self, request: HttpRequest, obj: Session) -> list[Table]:
        """Add state, account, and the newest runs and summaries."""
        of_session: dict[str, Any] = {"session__id__exact": obj.pk}
        runs = CompactionRun.objects.filter(session=obj).order_by("-created_at", "-id")
        summaries = SessionSummary.objects.filter(session=obj).order_by("-created_at", "-id")
        return [
            *standing_tables(obj),
            run_table(
                "Newest runs",
                runs[:ROWS_SHOWN],
                more=Link(label="All runs", url=cells.list_url(CompactionRun, **of_session)),
            ),
            summary_table(
                "Newest summaries",
                summaries[:ROWS_SHOWN],
                more=Link(label="All summaries", url=cells.list_url(SessionSummary, **of_session)),
            ),
            *super().tables_for(request, obj),
        ]
