"""Actions: one service call a row, and a sentence for the operator about each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE
from django.db.models import Model
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html, strip_tags
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.history import write_entry
from chatapp.admin.toolkit.permissions import link_for
from chatapp.formatting import clock
from chatapp.llm.registry import UnknownModelError
from compaction.engine.profile import ProfileError
from compaction.errors import CompactionError
from compaction.models import CompactionRun, CompactionState
from compaction.runs.lifecycle import cancel_run

# What a service or a half-configured installation answers with; each text is a sentence.
REFUSALS = (CompactionError, ProfileError, UnknownModelError, ValueError)


def for_each(
    request: HttpRequest,
    rows: Iterable[Model],
    do: Callable[[Any], SafeString | str],
    *,
    names_rows: bool = False,
) -> None:
    """Do something to every row: what `do` returns is told as done, a refusal as an error.

    What was done stands in the row's history too, so that it can be seen who did it. With
    `names_rows` the sentences do not say which row they are about, so its name is put before them.
    """
    for row in rows:
        try:
            told = do(row)
            named = format_html("{}: {}", link_for(request, row), told) if names_rows else told
            messages.success(request, named)
            write_entry(request, row, CHANGE, strip_tags(told))
        except REFUSALS as refusal:
            messages.error(request, format_html("{}: {}", link_for(request, row), refusal))


def queued(run: CompactionRun) -> SafeString:
    """Return the sentence for a run that waits for a worker."""
    return format_html("{} is queued.", html.row_link(run, "A run"))


def may_view(request: HttpRequest, model: type[Model]) -> bool:
    """Whether the operator may see a model's rows."""
    return bool(admin.site.get_model_admin(model).has_view_permission(request))


def cancel_and_tell(run: CompactionRun) -> SafeString:
    """Cancel a run and return the sentences for it; raises one of acting.REFUSALS."""
    was_running = run.status == CompactionRun.Status.RUNNING
    cancel_run(run)
    stops = " Its worker stops before its next model call." if was_running else ""
    link = html.row_link(run, f"Run {formatting.short_id(run.pk)}")
    return format_html("{} is cancelled.{}{}", link, stops, _holds_off(run))


def _holds_off(run: CompactionRun) -> str:
    """Return until when no automatic run of the branch starts; nothing where one may."""
    states = CompactionState.objects.filter(pk=run.branch_id, backoff_until__gt=timezone.now())
    until = states.values_list("backoff_until", flat=True).first()
    return f" Automatic runs of its branch wait until {clock(until)}." if until else ""
