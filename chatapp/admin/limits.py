"""Learned limits: what model servers taught about themselves, next to what the settings say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.contrib.admin.actions import delete_selected
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from chatapp import formatting
from chatapp.admin.models_page import ModelsPage, models_link
from chatapp.admin.toolkit.columns import column
from chatapp.admin.toolkit.page_parts import Link, Section
from chatapp.admin.toolkit.permissions import holds
from chatapp.llm.adaptations import in_words
from chatapp.llm.learned_limits import REMEMBERED, still_known, with_learned_limits
from chatapp.llm.registry import ModelConfig, all_models
from chatapp.models import LearnedLimits

NOT_CONFIGURED = "no model of the settings"


@admin.register(LearnedLimits)
class LearnedLimitsAdmin(ModelsPage):
    """One model of one server. Forgetting learned limits brings the settings back into force."""

    list_display = (
        "name",
        "server_shown",
        "aliases",
        "window_shown",
        "answer_shown",
        "ratio_learnt",
        "changes_learnt",
        "updated_at",
    )
    list_display_links = ("name",)
    list_only = (
        "server",
        "context_window",
        "max_output",
        "tokens_per_count",
        "adaptations",
        "configured_entry",
    )
    ordering = ("-updated_at", "-id")
    sortable_by = ("updated_at",)
    search_help_text = "A part of the model's name or of the server's address."
    actions = ("delete_selected",)
    delete_confirmation_template = "admin/chatapp/forget_one.html"
    delete_selected_confirmation_template = "admin/chatapp/forget_selected.html"
    sections = (
        Section(title=None, fields=("name", "server_shown", "aliases", "updated_at")),
        Section(title="Context window", fields=("window_learnt", "window_set", "window_in_force")),
        Section(title="Longest answer", fields=("answer_learnt", "answer_set", "answer_in_force")),
        Section(title="Counting", fields=("ratio_learnt", "ratio_meaning")),
        Section(title="Requests", fields=("changes_learnt", "changes_meaning")),
    )

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether the operator may forget learned limits: permission `delete_learnedlimits`."""
        return holds(request, "chatapp.delete_learnedlimits")

    def search_q(self, request: HttpRequest, wanted: str) -> Q:
        """Search the model's name and the server's address."""
        return Q(name__icontains=wanted) | Q(server__icontains=wanted)

    @admin.action(description="Forget", permissions=["delete"])
    def delete_selected(
        self, request: HttpRequest, queryset: QuerySet[LearnedLimits]
    ) -> HttpResponse | None:
        """Delete the selected learned limits after a page that asks."""
        asked: HttpResponse | None = delete_selected(self, request, queryset)
        return asked

    # --- columns and fields ---------------------------------------------------------------------

    server_shown = column("Server", lambda limits: limits.server or "OpenAI")
    aliases = column(
        "Used by",
        lambda limits: ", ".join(model.alias for model in models_of(limits)) or NOT_CONFIGURED,
    )

    @admin.display(description="Context window")
    def window_shown(self, limits: LearnedLimits) -> str:
        """Return what was learnt next to what the settings say."""
        return _beside(limits.context_window, self.window_set(limits))

    @admin.display(description="Longest answer")
    def answer_shown(self, limits: LearnedLimits) -> str:
        """Return what was learnt next to what the settings say."""
        return _beside(limits.max_output, self.answer_set(limits))

    window_learnt = column("Learnt", "context_window", formatting.number)
    window_set = column("Set", lambda limits: _each(limits, lambda model: model.context_window))
    window_in_force = column(
        "In force",
        lambda limits: _each(
            limits, lambda model: _smaller(model.context_window, limits.context_window)
        ),
    )
    answer_learnt = column("Learnt", "max_output", formatting.number)
    answer_set = column("Set", lambda limits: _each(limits, lambda model: model.max_output))
    answer_in_force = column(
        "In force",
        lambda limits: _each(limits, lambda model: _smaller(model.max_output, limits.max_output)),
    )

    @admin.display(description="Its tokens per ours")
    def ratio_learnt(self, limits: LearnedLimits) -> str:
        """Return how many of the server's tokens one of ours is."""
        ratio = limits.tokens_per_count
        return "—" if ratio is None else f"{ratio:.2f}"

    @admin.display(description="What it means")
    def ratio_meaning(self, limits: LearnedLimits) -> str:
        """Return what the ratio does."""
        if limits.tokens_per_count is None:
            return "The server was never seen to count otherwise: our count is taken as it is."
        if limits.tokens_per_count <= 1:
            return "The server counts no more than we do: our count is taken as it is."
        return (
            f"What we count as 1,000 tokens is {1000 * limits.tokens_per_count:,.0f} to the "
            "server: requests are judged larger by that much, so they are compacted earlier."
        )

    @admin.display(description="Changes to its requests")
    def changes_learnt(self, limits: LearnedLimits) -> str:
        """Return what refusals taught, in words; a dash where they taught nothing."""
        return " ".join(in_words(code) for code in sorted(limits.adaptations)) or "—"

    @admin.display(description="What it means")
    def changes_meaning(self, limits: LearnedLimits) -> str:
        """Return whether the changes are in force."""
        if not limits.adaptations:
            return "No refusal was ever about the form of a request."
        known = set(still_known(limits.adaptations))
        for model in models_of(limits):
            if known <= with_learned_limits(model).adaptations:
                return (
                    "Every request to this model has them, turns and summaries alike. They are "
                    f"tried without again {REMEMBERED.days} days after they were learnt."
                )
        return "The model's entry in the settings was changed since: they are not in force."

    # --- page -------------------------------------------------------------------------------------

    def links_for(self, request: HttpRequest, obj: LearnedLimits) -> list[Link]:
        """Return the ways to forget it, and to ask its server anew."""
        links = [models_link()]
        if self.has_delete_permission(request, obj):
            url = reverse("admin:chatapp_learnedlimits_delete", args=[obj.pk])
            links.append(Link(label="Forget", url=url))
        return links

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Return the page; its own word for deleting is Forget."""
        own = {"show_delete": False} | (extra_context or {})
        return super().change_view(request, object_id, form_url, own)


def models_of(limits: LearnedLimits) -> list[ModelConfig]:
    """Return the configured models that the learned limits hold for (learned_limits.py compares the
    same way).
    """
    return [
        model
        for model in all_models().values()
        if (model.base_url[:300], model.name[:200]) == (limits.server, limits.name)
    ]


def _smaller(configured: int, learnt: int | None) -> int:
    return configured if learnt is None else min(configured, learnt)


def _beside(learnt: int | None, configured: str) -> str:
    """Return both in one cell; a dash where nothing was learnt."""
    if learnt is None:
        return "—"
    return f"{formatting.number(learnt)} (set: {configured})"


def _each(limits: LearnedLimits, value: Callable[[ModelConfig], int]) -> str:
    """Return what each model says; once where all say the same."""
    values = sorted({value(model) for model in models_of(limits)})
    return ", ".join(formatting.number(each) for each in values) or "—"
