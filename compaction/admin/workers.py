"""Workers: the processes that compact, on every machine, and which of them fell silent.

Silence in the middle of a run is a fault; silence while idle tells nothing. Of a queue's processes
only the one that sweeps gives a sign of life while nothing is to do, and a process that ended
leaves its row behind for a day. The queue's own tables are shown, too, and only shown.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import Model, Q
from django.http import HttpRequest
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import column
from chatapp.admin.toolkit.lists import by_condition
from chatapp.admin.toolkit.model_admin import WideList
from chatapp.admin.toolkit.page_parts import Link, Section
from chatapp.admin.toolkit.permissions import may_see_texts
from chatapp.database import database_now
from chatapp.formatting import when
from chatapp.ids import id_q
from compaction.models import CompactionRun, WorkerHeartbeat
from compaction.monitoring.health import ALIVE_SECONDS
from compaction.runs import queue

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin

# The list has room for so much of a host's name; the worker's page has all of it.
HOST_CHARS = 40
SILENT = "silent"
# Columns of the queue's tables.
RESULTS = ("result", "short_result", "args", "kwargs")
_MEANINGS = {
    "alive": "It gave a sign of life in the last minutes.",
    "silent": "It fell silent in the middle of a run: it was killed, or its machine or its way to "
    "the database is gone. Its lease runs out by itself, and the sweep starts the run again.",
    "quiet": "It has nothing to do, or it ended: an idle process need not tell that it lives.",
}


def is_silent(worker: WorkerHeartbeat) -> bool:
    """Whether a process gave no sign of life for longer than several beats."""
    return database_now() - worker.beat_at > timedelta(seconds=ALIVE_SECONDS)


def silent_at_work() -> Q:
    """Return the condition for processes that fell silent in the middle of a run."""
    since = database_now() - timedelta(seconds=ALIVE_SECONDS)
    return Q(beat_at__lt=since, run__isnull=False)


BY_STATE = by_condition(
    "state", "state", {SILENT: ("Silent in the middle of a run", silent_at_work)}
)
"""The one state that is a fault."""


@admin.register(WorkerHeartbeat)
class WorkerHeartbeatAdmin(WideList):
    """One row a process, written by the process alone; the last to be heard of stands first."""

    list_display = (
        "kind",
        "status_shown",
        "host_start",
        "pid",
        "works_on",
        "started_at_shown",
        "beat_at_shown",
    )
    list_only = ("host", "run")
    list_filter = (BY_STATE, "kind")
    ordering = ("-beat_at", "-pk")
    sortable_by = ()
    search_help_text = (
        "A part of the host's name, or the beginning or end of a worker's or run's id."
    )
    sections = (
        Section(title=None, fields=("kind", "status_shown", "meaning", "host", "pid", "works_on")),
        Section(title="Times", fields=("started_at_shown", "beat_at_shown")),
    )

    def search_q(self, request: HttpRequest, wanted: str) -> Q:
        """Search the host's name, and the ids of workers and of what they work on."""
        return Q(host__icontains=wanted) | id_q(WorkerHeartbeat, wanted, "id", "run")

    # --- columns and fields ---------------------------------------------------------------------

    @admin.display(description="State")
    def status_shown(self, worker: WorkerHeartbeat) -> SafeString:
        """Return whether the process gives signs of life, as a badge."""
        states = {"alive": ("Alive", "good"), "silent": ("Silent", "bad"), "quiet": ("Quiet", "")}
        return html.badge(*states[_state(worker)])

    meaning = column("What it means", lambda worker: _MEANINGS[_state(worker)])
    host_start = column("Host", lambda worker: formatting.shortened(worker.host, HOST_CHARS))

    @admin.display(description="Works on")
    def works_on(self, worker: WorkerHeartbeat) -> SafeString | str:
        """Return a link to the run, which is not read for it."""
        if worker.run_id is None:
            return "—"
        url = html.change_url(CompactionRun, worker.run_id)
        return html.link(f"Run {formatting.short_id(worker.run_id)}", url)

    started_at_shown = column("Known since", "started_at", when)
    beat_at_shown = column("Last sign of life", "beat_at", when)

    # --- page -------------------------------------------------------------------------------------

    def links_for(self, request: HttpRequest, obj: WorkerHeartbeat) -> list[Link]:
        """Return the way to the run."""
        if obj.run_id is None:
            return []
        return [Link.to("Run", CompactionRun, obj.run_id)]


def _state(worker: WorkerHeartbeat) -> str:
    """Return alive, silent in the middle of a run, or quiet."""
    if not is_silent(worker):
        return "alive"
    return "silent" if worker.run_id else "quiet"


# --- the queue's own tables -----------------------------------------------------------------------


class OnlyShown(_ModelAdmin):
    """The library's pages without everything that makes a worker do something.

    A schedule names any function there is, `os.system` too, and a task that is sent again is run
    again: whoever may write them, superusers among them, runs commands as the workers' user.
    """

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody adds rows."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody changes rows."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody deletes rows."""
        return False

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Return none: the library's own action sends tasks again."""
        return {}

    # What a task came to, or the error it ended with, may quote a conversation.

    def get_list_display(self, request: HttpRequest) -> Any:
        """Return the columns, results for who may see texts."""
        return _without_results(request, super().get_list_display(request))

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields of a page, results for who may see texts."""
        return _without_results(request, super().get_fields(request, obj))

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Nobody finds tasks by their results."""
        return lookup.partition("__")[0] not in RESULTS and super().lookup_allowed(
            lookup, value, request
        )


def _without_results(request: HttpRequest, names: Any) -> list[Any]:
    return [name for name in names if name not in RESULTS or may_see_texts(request)]


def only_show(model: type[Model]) -> None:
    """Have a table's page in the admin show its rows, and nothing more."""
    own = type(admin.site.get_model_admin(model))
    admin.site.unregister(model)
    admin.site.register(model, type(f"OnlyShown{own.__name__}", (OnlyShown, own), {}))


for _model in queue.tables_with_pages():
    only_show(_model)
