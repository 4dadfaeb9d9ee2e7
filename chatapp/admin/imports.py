"""Imports: which files came in, how far they are, what they became; nothing to be changed."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from django.utils.safestring import SafeString

from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import OWNER, column, table_of
from chatapp.admin.toolkit.lists import CREATED_SINCE, Day
from chatapp.admin.toolkit.model_admin import WideList
from chatapp.admin.toolkit.page_parts import Section, Table
from chatapp.admin.toolkit.permissions import holds, link_for
from chatapp.formatting import duration, number, plural, when
from chatapp.ids import id_q
from chatapp.imports import why_it_waits
from chatapp.models import ImportedSession, ImportJob

SESSIONS_SHOWN = 100
_TONES = {"done": "good", "failed": "bad", "working": "busy", "queued": "busy", "cancelled": ""}
_NUMBERS = Section(
    title=None,
    fields=(
        "status_shown",
        "owner_shown",
        "name_shown",
        "size_shown",
        "format",
        "progress_shown",
        "made_shown",
        "added_shown",
        "problems_shown",
        "error_code",
    ),
    optional={"name_shown": "name", "format": "format", "error_code": "error_code"},
)
_TIMES = Section(
    title="Times",
    fields=("created_at", "queued_shown", "started_shown", "finished_shown", "worked_shown"),
)
# What is wrong with a file quotes it.
_TEXTS = Section(
    title="In words",
    fields=("error_shown", "problem_texts"),
    optional={"error_shown": "error", "problem_texts": "problems"},
)


def _progress(job: ImportJob) -> str:
    if job.conversations_total is None:
        return "not read yet"
    return f"{number(job.conversations_done)} of {plural(job.conversations_total, 'conversation')}"


def _problem_lines(job: ImportJob) -> SafeString | str:
    lines = [f"{one['line'] or '–'}: {one['text']}" for one in job.problems]
    more = job.problems_left_out
    return html.stored_text("\n".join([*lines, f"And {more:,} more."] if more else lines))


def _number_of_problems(job: ImportJob) -> str:
    return plural(len(job.problems) + job.problems_left_out, "problem")


@admin.register(ImportJob)
class ImportJobAdmin(WideList):
    """One file on its way into sessions. Owners cancel their imports by the API."""

    list_display = (
        "created_at",
        "status_shown",
        "owner_shown",
        "size_shown",
        "progress_shown",
        "added_shown",
        "finished_shown",
    )
    list_select_related = ("owner",)
    list_filter = (CREATED_SINCE, Day, "status")
    list_only = ("status", "owner__username", "conversations_total", "conversations_done")
    search_help_text = "The beginning or end of an id, or the owner."
    sections = (_NUMBERS, _TIMES, _TEXTS)

    status_shown = column(
        "Status", lambda job: html.badge(job.get_status_display(), _TONES[job.status])
    )
    owner_shown = OWNER
    name_shown = column("Name", "name", is_text=True)
    size_shown = column("Bytes", "size", number)
    progress_shown = column("Taken in", _progress)
    made_shown = column("Sessions", "sessions_made", number)
    added_shown = column("Messages added", "messages_added", number)
    problems_shown = column("Left out or mended", _number_of_problems)
    queued_shown = column("Queued", "queued_at", when)
    started_shown = column("Started", "started_at", when)
    finished_shown = column("Ended", "finished_at", when)
    worked_shown = column("Worked at it", "seconds", duration)
    error_shown = column("What went wrong", "error", html.stored_text)
    problem_texts = column("By line", _problem_lines, is_text=True)

    def search_q(self, request: HttpRequest, wanted: str) -> Q:
        """Search the owner's name, and ids by beginning and end."""
        return Q(owner__username__icontains=wanted) | id_q(ImportJob, wanted, "id")

    def live_words(self, request: HttpRequest, obj: ImportJob) -> str:
        """Say how far an import is that has not ended."""
        if not obj.is_under_way:
            return ""
        return f"{obj.get_status_display()}: {_progress(obj)}."

    def notices_for(self, request: HttpRequest, obj: ImportJob) -> list[SafeString | str]:
        """Say what a queued import waits for."""
        return [why_it_waits()] if obj.status == ImportJob.Status.QUEUED else []

    def tables_for(self, request: HttpRequest, obj: ImportJob) -> list[Table]:
        """Return the first sessions that the file became, for those who may see sessions."""
        if not holds(request, "chatapp.view_session"):
            return []
        rows = list(obj.results.select_related("session").order_by("number")[:SESSIONS_SHOWN])
        left = obj.sessions_made - len(rows)
        return [
            table_of(
                "Sessions",
                rows,
                {
                    "Place in the file": lambda row: number(row.number + 1),
                    "Session": lambda row: link_for(request, row.session),
                    "Messages added": lambda row: number(row.messages_added),
                    "": _was_there,
                },
                note=f"And {left:,} more." if left > 0 else "",
            )
        ]


def _was_there(row: ImportedSession) -> str:
    return "" if row.created else "was there already"
