"""Who works on a branch now: the run that holds its lease, and on which machine."""

from __future__ import annotations

from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin import cells
from chatapp.formatting import when
from compaction.admin.silence import is_silent
from compaction.models import CompactionRun, CompactionState, WorkerHeartbeat

HOST_CHARS = 60


def holder_words(state: CompactionState) -> SafeString:
    """Return who holds a branch's lease, where, and until when."""
    run = CompactionRun.objects.filter(
        branch=state.branch_id,
        status=CompactionRun.Status.RUNNING,
        worker=state.lease_owner,
    ).only("pk", "status", "created_at")
    found = run.first()
    return format_html(
        "A worker compacts it ({}{}); its lease ends {}.",
        cells.row_link(found, "a run"),
        _machine(found) if found is not None else "",
        when(state.lease_expires_at),
    )


def _machine(run: CompactionRun) -> SafeString | str:
    """Return the process that works on a run; nothing where it never gave a sign of life."""
    worker = WorkerHeartbeat.objects.filter(run=run).order_by("-beat_at").first()
    if worker is None:
        return ""
    name = f"process {worker.pid} on {formatting.shortened(worker.host, HOST_CHARS)}"
    silent = f", silent since {when(worker.beat_at)}" if is_silent(worker) else ""
    return format_html(", {}{}", cells.row_link(worker, name), silent)
