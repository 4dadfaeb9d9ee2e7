"""What an operator is told after cancelling a run: when it stops, and what automatic runs do."""

from __future__ import annotations

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin import cells
from chatapp.formatting import clock
from compaction.models import CompactionRun, CompactionState
from compaction.runs.lifecycle import cancel_run


def cancelled(run: CompactionRun) -> SafeString:
    """Cancel a run and return the sentences for it; raises one of acting.REFUSALS."""
    was_running = run.status == CompactionRun.Status.RUNNING
    cancel_run(run)
    stops = " Its worker stops before its next model call." if was_running else ""
    link = cells.row_link(run, f"Run {formatting.short_id(run.pk)}")
    return format_html("{} is cancelled.{}{}", link, stops, _holds_off(run))


def _holds_off(run: CompactionRun) -> str:
    """Return until when no automatic run of the branch starts; nothing where one may."""
    states = CompactionState.objects.filter(pk=run.branch_id, backoff_until__gt=timezone.now())
    until = states.values_list("backoff_until", flat=True).first()
    return f" Automatic runs of its branch wait until {clock(until)}." if until else ""
