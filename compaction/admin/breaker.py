"""Breakers: which models are left alone because their summarising calls failed, and until when."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.parts import Section
from chatapp.admin.wide_list import WideList
from chatapp.formatting import when
from compaction.admin.acting import for_each
from compaction.limits.circuit_breaker import close
from compaction.models import ModelBreaker

# The list has room for so much of an error; the breaker's page has all of it.
ERROR_CHARS = 60
OPEN = "open"
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


class OpenBreakers(admin.SimpleListFilter):
    """Models that are left alone, or tried again just now."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the states in which runs wait."""
        return [(OPEN, "Open or trying again")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep the breakers that hold calls back."""
        return queryset.filter(opened_at__isnull=False) if self.value() == OPEN else queryset


@admin.register(ModelBreaker)
class ModelBreakerAdmin(WideList):
    """One row a model whose calls have failed once. Who may change breakers can close them."""

    list_display = (
        "model",
        "standing",
        "failures_shown",
        "opened_at_shown",
        "retry_at_shown",
        "error_start",
    )
    list_only = ("model", "failures", "opened_at", "retry_at", "probe")
    list_previews = {"error_begin": Left("last_error", ERROR_CHARS)}
    ordering = ("model",)
    sortable_by = ()
    list_filter = (OpenBreakers,)
    search_help_text = "A part of the model's name."
    actions = ("close_breaker",)
    detail_actions = ("close_breaker",)
    sections = (
        Section(title=None, fields=("model", "standing", "meaning")),
        Section(title="Failed calls", fields=("failures_shown", "error_text")),
        Section(title="Times", fields=("opened_at_shown", "retry_at_shown")),
    )

    def search_q(self, wanted: str) -> Q:
        """Search the model's name."""
        return Q(model__icontains=wanted)

    # --- actions ----------------------------------------------------------------------------------

    def has_close_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may close breakers: permission `change model breaker`."""
        return bool(request.user.has_perm("compaction.change_modelbreaker"))

    @admin.action(description="Close the breaker", permissions=["close"])
    def close_breaker(self, request: HttpRequest, queryset: QuerySet[ModelBreaker]) -> None:
        """Let the calls of every selected model out again."""

        def let_out(breaker: ModelBreaker) -> str:
            close(breaker.model)
            return f"The breaker of {breaker.model} is closed: its calls go out again."

        for_each(request, self.chosen(request, queryset), let_out)

    def buttons_for(self, request: HttpRequest, obj: ModelBreaker) -> list[str]:
        """A closed breaker offers nothing."""
        return [] if obj.opened_at is None else ["close_breaker"]

    # --- cells ------------------------------------------------------------------------------------

    @admin.display(description="State")
    def standing(self, breaker: ModelBreaker) -> SafeString:
        """Return the state as a badge."""
        return cells.badge(*_STATES[breaker.state])

    @admin.display(description="What it means")
    def meaning(self, breaker: ModelBreaker) -> str:
        """Return what the state does."""
        return _MEANINGS[breaker.state]

    @admin.display(description="Failures in a row")
    def failures_shown(self, breaker: ModelBreaker) -> str:
        """Return how many calls have failed since the last answer."""
        return formatting.number(breaker.failures)

    @admin.display(description="Opened")
    def opened_at_shown(self, breaker: ModelBreaker) -> str:
        """Return since when calls are held back; a dash while it is closed."""
        return when(breaker.opened_at)

    @admin.display(description="Tries again")
    def retry_at_shown(self, breaker: ModelBreaker) -> str:
        """Return when one call may go out; a dash while all may."""
        if breaker.retry_at is not None and breaker.retry_at <= timezone.now():
            return "With the next call"
        return when(breaker.retry_at)

    @admin.display(description="Last error")
    def error_start(self, breaker: ModelBreaker) -> SafeString | str:
        """Return the beginning of what the last failed call said."""
        return cells.preview(getattr(breaker, "error_begin", ""), cut_at=ERROR_CHARS)

    @admin.display(description="Last error")
    def error_text(self, breaker: ModelBreaker) -> SafeString | str:
        """Return what the last failed call said."""
        return cells.stored_text(breaker.last_error)
