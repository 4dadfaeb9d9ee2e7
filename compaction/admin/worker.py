"""Workers: the processes that compact, on every machine, and which of them fell silent."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.filters import hex_range
from chatapp.admin.parts import Link, Section
from chatapp.admin.wide_list import WideList
from chatapp.formatting import when
from compaction.admin.silence import is_silent, silent_at_work
from compaction.models import CompactionRun, WorkerHeartbeat

# The list has room for so much of a host's name; the worker's page has all of it.
HOST_CHARS = 40
SILENT = "silent"
_MEANINGS = {
    "alive": "It gave a sign of life in the last minutes.",
    "silent": "It fell silent in the middle of a run: it was killed, or its machine or its way to "
    "the database is gone. Its lease runs out by itself, and the sweep starts the run again.",
    "quiet": "It has nothing to do, or it ended: an idle process need not tell that it lives.",
}


class Silent(admin.SimpleListFilter):
    """Processes that fell silent in the middle of a run."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the one state that is a fault."""
        return [(SILENT, "Silent in the middle of a run")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep the silent ones."""
        return queryset.filter(silent_at_work()) if self.value() == SILENT else queryset


@admin.register(WorkerHeartbeat)
class WorkerHeartbeatAdmin(WideList):
    """One row a process, written by the process alone; the last to be heard of stands first."""

    list_display = (
        "kind",
        "standing",
        "host_start",
        "pid",
        "works_on",
        "started_at_shown",
        "beat_at_shown",
    )
    list_only = ("kind", "host", "pid", "run", "started_at", "beat_at")
    list_filter = (Silent, "kind")
    ordering = ("-beat_at", "-pk")
    sortable_by = ()
    search_help_text = "A part of the host's name, or the beginning of a worker's or run's id."
    sections = (
        Section(title=None, fields=("kind", "standing", "meaning", "host", "pid", "works_on")),
        Section(title="Times", fields=("started_at_shown", "beat_at_shown")),
    )

    def search_q(self, wanted: str) -> Q:
        """Search the host's name, and the ids of workers and of what they work on."""
        found = Q(host__icontains=wanted)
        if ids := hex_range(wanted):
            for path in ("id", "run"):
                found |= Q(**{f"{path}__gte": ids[0], f"{path}__lte": ids[1]})
        return found

    # --- cells ------------------------------------------------------------------------------------

    @admin.display(description="State")
    def standing(self, worker: WorkerHeartbeat) -> SafeString:
        """Return whether the process gives signs of life, as a badge."""
        states = {"alive": ("Alive", "good"), "silent": ("Silent", "bad"), "quiet": ("Quiet", "")}
        return cells.badge(*states[_state(worker)])

    @admin.display(description="What it means")
    def meaning(self, worker: WorkerHeartbeat) -> str:
        """Return what the state says, and what to do."""
        return _MEANINGS[_state(worker)]

    @admin.display(description="Host")
    def host_start(self, worker: WorkerHeartbeat) -> str:
        """Return the machine's name, which may be long."""
        return formatting.shortened(worker.host, HOST_CHARS)

    @admin.display(description="Works on")
    def works_on(self, worker: WorkerHeartbeat) -> SafeString | str:
        """Return a link to the run, which is not read for it."""
        if worker.run_id is None:
            return "—"
        url = cells.change_url(CompactionRun, worker.run_id)
        return cells.link(f"Run {formatting.short_id(worker.run_id)}", url)

    @admin.display(description="Known since")
    def started_at_shown(self, worker: WorkerHeartbeat) -> str:
        """Return since when a process of this machine and number is known."""
        return when(worker.started_at)

    @admin.display(description="Last sign of life")
    def beat_at_shown(self, worker: WorkerHeartbeat) -> str:
        """Return when it was last heard of."""
        return when(worker.beat_at)

    # --- page -------------------------------------------------------------------------------------

    def links_for(self, request: HttpRequest, obj: WorkerHeartbeat) -> list[Link]:
        """Return the way to the run."""
        if obj.run_id is None:
            return []
        return [Link(label="Run", url=cells.change_url(CompactionRun, obj.run_id))]


def _state(worker: WorkerHeartbeat) -> str:
    """Return alive, silent in the middle of a run, or quiet."""
    if not is_silent(worker):
        return "alive"
    return "silent" if worker.run_id else "quiet"
