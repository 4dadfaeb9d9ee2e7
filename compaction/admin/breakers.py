"""Breakers: which models are left alone because their summarising calls failed, and until when."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import column, preview
from chatapp.admin.toolkit.lists import by_condition
from chatapp.admin.toolkit.model_admin import WideList
from chatapp.admin.toolkit.page_parts import Section
from chatapp.admin.toolkit.permissions import holds
from chatapp.formatting import when
from compaction.admin.actions import for_each
from compaction.limits.circuit_breaker import close
from compaction.models import CompactionRun, ModelBreaker
from compaction.runs.failing import forget_failure
from compaction.vocabulary import failing_words

# The list has room for so much of an error; the breaker's page has all of it.
ERROR_CHARS = 60
OPEN = "open"
FAILING = "failing"
_STATES = {
    "closed": ("Closed", "good"),
    "open": ("Open", "bad"),
    "probing": ("Trying again", "busy"),
}
_MEANINGS = {
    "closed": "Calls go out.",
    "open": "No call goes out until it tries again; runs that need the model wait.",
    "probing": "One call is out. An answer closes the breaker; a failure opens it for longer.",
}


BY_STATE = by_condition(
    "state",
    "state",
    {
        OPEN: ("Open or trying again", lambda: Q(opened_at__isnull=False)),
        FAILING: ("Compactions fail", lambda: Q(failing_since__isnull=False)),
    },
)
"""Models that are left alone, or tried again just now: runs wait for them; and failing ones."""


def failing_run_link(breaker: ModelBreaker) -> SafeString | str:
    """Return the way to the last run that failed, while there is one."""
    if breaker.failing_run is None:
        return "—"
    run = CompactionRun.objects.filter(pk=breaker.failing_run).first()
    return html.row_link(run, "The last run that failed") if run is not None else "—"


@admin.register(ModelBreaker)
class ModelBreakerAdmin(WideList):
    """One row a model whose calls have failed once. Who may change breakers can close them."""

    list_display = (
        "model",
        "status_shown",
        "failures_shown",
        "opened_at_shown",
        "retry_at_shown",
        "error_start",
        "failing_since_shown",
        "failing_words_shown",
    )
    list_only = ("retry_at", "probe")
    list_previews = {"error_begin": Left("last_error", ERROR_CHARS)}
    ordering = ("model",)
    sortable_by = ()
    list_filter = (BY_STATE,)
    search_help_text = "A part of the model's name."
    actions = ("close_breaker", "forget_failure")
    detail_actions = ("close_breaker", "forget_failure")
    sections = (
        Section(title=None, fields=("model", "status_shown", "meaning")),
        Section(title="Failed calls", fields=("failures_shown", "error_text")),
        Section(title="Times", fields=("opened_at_shown", "retry_at_shown")),
        Section(
            title="Compactions by this model",
            fields=("failing_since_shown", "failing_words_shown", "failing_run_shown"),
        ),
    )

    def search_q(self, request: HttpRequest, wanted: str) -> Q:
        """Search the model's name."""
        return Q(model__icontains=wanted)

    # --- actions ----------------------------------------------------------------------------------

    def has_close_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may close breakers: permission `change model breaker`."""
        return holds(request, "compaction.change_modelbreaker")

    @admin.action(description="Close the breaker", permissions=["close"])
    def close_breaker(self, request: HttpRequest, queryset: QuerySet[ModelBreaker]) -> None:
        """Let the calls of every selected model out again."""

        def let_out(breaker: ModelBreaker) -> str:
            close(breaker.model)
            return f"The breaker of {breaker.model} is closed: its calls go out again."

        for_each(request, self.chosen(request, queryset), let_out)

    @admin.action(description="Forget that compactions fail", permissions=["close"])
    def forget_failure(self, request: HttpRequest, queryset: QuerySet[ModelBreaker]) -> None:
        """Take the notice of every selected model off the front page."""

        def forget(breaker: ModelBreaker) -> str:
            forget_failure(breaker.model)
            return f"The front page says no more that compactions of {breaker.model} fail."

        for_each(request, self.chosen(request, queryset), forget)

    def buttons_for(self, request: HttpRequest, obj: ModelBreaker) -> list[str]:
        """A closed breaker offers nothing, nor does a model whose compactions succeed."""
        offered = ["close_breaker"] if obj.opened_at is not None else []
        return [*offered, *(["forget_failure"] if obj.failing_since is not None else [])]

    # --- columns and fields ---------------------------------------------------------------------

    status_shown = column("State", lambda breaker: html.badge(*_STATES[breaker.state]))
    meaning = column("What it means", lambda breaker: _MEANINGS[breaker.state])
    failures_shown = column("Failures in a row", "failures", formatting.number)
    opened_at_shown = column("Opened", "opened_at", when)

    @admin.display(description="Tries again")
    def retry_at_shown(self, breaker: ModelBreaker) -> str:
        """Return when one call may go out; a dash while all may."""
        if breaker.retry_at is not None and breaker.retry_at <= timezone.now():
            return "With the next call"
        return when(breaker.retry_at)

    failing_since_shown = column("Compactions fail since", "failing_since", when)
    failing_words_shown = column("Because", "failing_code", failing_words)
    failing_run_shown = column("Run", failing_run_link)
    error_start = preview("Last error", "error_begin", cut_at=ERROR_CHARS)
    error_text = column("Last error", "last_error", html.stored_text)
