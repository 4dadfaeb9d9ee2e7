"""The panel of a queued run that waits for something else than a worker: for what, and until when.

The run's own sentence says why. It goes on by itself; what an operator may do stands beside it.
"""

from __future__ import annotations

from datetime import datetime

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils import timezone

from chatapp.admin import cells
from chatapp.admin.parts import Link, Panel
from chatapp.formatting import when
from chatapp.models import Session
from compaction.admin.breaker import OPEN
from compaction.limits.circuit_breaker import BREAKER_OPEN
from compaction.models import CompactionRun, CompactionState, ModelBreaker

_NOTHING_LOST = "Nothing is lost: the messages are all still there."
_REMEDIES = {
    BREAKER_OPEN: "Mend the model's server or key. “Close the breaker” on its page lets the calls "
    "out again, and the next sweep gives this run to a worker.",
}
_REMEDY = "Nothing has to be done. If it is not wanted any more, cancel it."


def waiting_panel(request: HttpRequest, run: CompactionRun) -> Panel | None:
    """Return the panel; None for a run that does not wait for a time, or is not queued."""
    if run.status != CompactionRun.Status.QUEUED or run.waits_until is None:
        return None
    body = render_to_string(
        "admin/compaction/explained.html",
        {
            "run": run,
            "error": run.error or "It was put off.",
            "words": {
                "means": f"{_goes_on(run.waits_until)} {_NOTHING_LOST}",
                "remedy": _REMEDIES.get(run.error_code, _REMEDY),
            },
            "ways": _ways(run),
        },
        request=request,
    )
    return Panel(title="It waits", body=body)


def _goes_on(until: datetime) -> str:
    if until <= timezone.now():
        return "Its time has come: the next sweep, once a minute, gives it to a worker."
    return f"It goes on by itself after {when(until)}: the sweep, once a minute, sees to that."


def _ways(run: CompactionRun) -> list[Link]:
    ways = [
        Link(label="Session", url=cells.change_url(Session, run.session_id)),
        Link(label="State of the branch", url=cells.change_url(CompactionState, run.branch_id)),
    ]
    if run.error_code != BREAKER_OPEN:
        return ways
    return [Link(label="Open breakers", url=cells.list_url(ModelBreaker, state=OPEN)), *ways]
