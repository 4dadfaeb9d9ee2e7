"""The panel of a run that came to nothing: what happened, what it means, what to do, and ways."""

from __future__ import annotations

from django.http import HttpRequest
from django.template.loader import render_to_string

from chatapp.admin import cells
from chatapp.admin.parts import Link, Panel
from chatapp.models import Session
from compaction.admin.acting import may_run
from compaction.models import CompactionRun, CompactionState, CompactionStep
from compaction.vocabulary import explanation_of

PLAIN_CHARS = 600


def explained_panel(request: HttpRequest, run: CompactionRun) -> Panel | None:
    """Return the panel; None for a run that succeeded or has not ended."""
    words = explanation_of(run)
    if words is None:
        return None
    body = render_to_string(
        "admin/compaction/explained.html",
        {
            "run": run,
            "error": _sentence(run.error),
            "words": words,
            "ways": [_way(name, run) for name in words.ways if name != "retry"],
            "may_retry": offers_retry(run) and may_run(request),
            "list_address": cells.list_url(CompactionRun),
            "original": run,
        },
        request=request,
    )
    return Panel(title=words.title, body=body)


def offers_retry(run: CompactionRun) -> bool:
    """Whether the explanation has "Run again": then the page's head need not."""
    words = explanation_of(run)
    return words is not None and "retry" in words.ways


def _sentence(error: str) -> str:
    """Return the stored sentence; a server's long text gets a frame of its own."""
    return error if len(error) <= PLAIN_CHARS else cells.stored_text(error)


def _way(name: str, run: CompactionRun) -> Link:
    if name == "profile":
        url = cells.change_url(type(run.profile), run.profile_id)
        return Link(label=f"Profile {run.profile}", url=url)
    if name == "state":
        url = cells.change_url(CompactionState, run.branch_id)
        return Link(label="State of the branch", url=url)
    if name == "session":
        return Link(label="Session", url=cells.change_url(Session, run.session_id))
    return Link(label="Steps", url=cells.list_url(CompactionStep, run__id__exact=run.pk))
