"""Memories: what people want remembered, what waits for a yes; changing and taking away lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db.models import Model, Q, QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import OWNER, column, preview
from chatapp.admin.toolkit.lists import (
    CREATED_SINCE,
    Day,
    by_condition,
    by_value,
    one_row,
)
from chatapp.admin.toolkit.model_admin import WideList
from chatapp.admin.toolkit.page_forms import PageForm, RefusedError
from chatapp.admin.toolkit.page_parts import Link, Section
from chatapp.admin.toolkit.permissions import holds, may_run, may_see_texts, nameless_link
from chatapp.formatting import when
from chatapp.ids import id_q
from compaction.admin.actions import REFUSALS, for_each
from compaction.engine.memories import MAX_LINE_CHARS
from compaction.engine.types import MAX_BOT_CHARS
from compaction.errors import CompactionError
from compaction.memories.lines import accept_memory, change_memory, delete_memory
from compaction.memories.runs import request_compression
from compaction.models import Memory, MemoryRun, MemoryVersion

BY_STATE = by_condition(
    "state",
    "state",
    {
        "proposed": ("Waits for a yes", lambda: Q(accepted_at__isnull=True)),
        "accepted": ("Accepted", lambda: Q(accepted_at__isnull=False)),
    },
)
"""Whether a line counts, or somebody has to say yes first."""
BY_ORIGIN = by_value("writer", "origin", lambda: Memory.Origin.choices)


WHERE_SENT = "it is sent where the profile has a memory_budget_tokens above 0."


def search_of_owners(model: type[Model], wanted: str) -> Q:
    """Return the condition for rows whose owner's name or bot holds the text, or by their id."""
    found = Q(owner__username__icontains=wanted) | Q(bot__icontains=wanted)
    return found | id_q(model, wanted, "id")


def bot_words(bot: str) -> str:
    """Return for whom a line counts."""
    return bot or "All bots"


class MemoryForm(forms.Form):
    """What may change of a line."""

    text = forms.CharField(
        strip=False,
        max_length=MAX_LINE_CHARS,
        widget=forms.TextInput(attrs={"class": "vLargeTextField", "dir": "auto"}),
        help_text="One line.",
    )
    bot = forms.CharField(
        required=False,
        max_length=MAX_BOT_CHARS,
        help_text="The bot that it counts for; empty: all.",
    )


def _make_form(request: HttpRequest, row: Memory, data: Any) -> forms.Form:
    return MemoryForm(data, initial={"text": row.text, "bot": row.bot})


def _change(request: HttpRequest, row: Memory, asked: dict[str, Any]) -> str:
    try:
        change_memory(row, text=asked["text"], bot=asked["bot"])
    except REFUSALS as refusal:
        raise RefusedError(str(refusal)) from refusal
    return f"The line is changed: {WHERE_SENT}" if row.accepted_at else "The line is changed."


def _may_change(request: HttpRequest) -> bool:
    return holds(request, "compaction.change_memory") and may_see_texts(request)


CHANGE_LINE = PageForm(
    label="Change the line",
    make=_make_form,
    do=_change,
    may=_may_change,
    help="Its place among the owner's lines stays.",
)


@admin.register(Memory)
class MemoryAdmin(WideList):
    """One line of one owner; proposed ones are sent when somebody has said yes."""

    list_display = (
        "text_start",
        "owner_shown",
        "bot_shown",
        "state_shown",
        "origin_shown",
        "tokens_shown",
        "created_at",
    )
    list_select_related = ("owner",)
    list_only = ("owner__username", "accepted_at", "origin")
    list_previews = {"text_begin": Left("text", html.PREVIEW_CHARS)}
    list_filter = (BY_STATE, BY_ORIGIN, CREATED_SINCE, Day, one_row(get_user_model(), "owner"))
    text_paths = ("text",)
    search_help_text = (
        "An owner's name, a bot, the beginning or end of an id; text: … searches the lines."
    )
    actions = ("accept", "take_away", "rewrite")
    detail_actions = ("accept", "take_away")
    page_forms: ClassVar[Mapping[str, PageForm]] = {"change": CHANGE_LINE}
    sections = (
        Section(title=None, fields=("whole_text", "state_shown", "owner_shown", "bot_shown")),
        Section(
            title="Where it comes from",
            fields=("origin_shown", "source_shown", "by_shown"),
            optional={"source_shown": "source_id", "by_shown": "created_by_id"},
        ),
        Section(title="Size and times", fields=("tokens_shown", "created_at", "accepted_shown")),
    )

    owner_shown = OWNER

    def search_q(self, request: HttpRequest, wanted: str) -> Q:
        """Search owners, bots and ids."""
        return search_of_owners(Memory, wanted)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the lines with what every page shows of them."""
        return super().get_queryset(request).select_related("owner")

    def links_for(self, request: HttpRequest, obj: Memory) -> list[Link]:
        """Return the ways to the owner's other lines, and to what was done with them."""
        owner = {"owner__id__exact": obj.owner_id}
        return [
            Link.to_list("All lines of the owner", Memory, **owner),
            Link.to_list("Rewritings", MemoryVersion, **owner),
            Link.to_list("Runs", MemoryRun, **owner),
        ]

    # --- actions ----------------------------------------------------------------------------------

    def has_accept_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may say yes to lines: permission `change memory`."""
        return holds(request, "compaction.change_memory")

    def has_take_away_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may take lines away: permission `delete memory`."""
        return holds(request, "compaction.delete_memory")

    def has_rewrite_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may start work that asks models."""
        return may_run(request)

    @admin.action(description="Accept", permissions=["accept"])
    def accept(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        """Have every selected line sent from now on."""

        def say_yes(row: Memory) -> str:
            accept_memory(row)
            return f"It counts from now on: {WHERE_SENT}"

        for_each(request, self.chosen(request, queryset), say_yes, names_rows=True)

    @admin.action(description="Take away", permissions=["take_away"])
    def take_away(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        """Delete every selected line; the same one is not proposed again."""
        for row in self.chosen(request, queryset):
            try:
                delete_memory(row)
            except CompactionError as gone:
                self.message_user(request, f"{row}: {gone}", level="error")
            else:
                self.log_deletions(request, [row])
                self.message_user(request, f"{row} is taken away.")

    @admin.action(description="Rewrite all lines of these owners", permissions=["rewrite"])
    def rewrite(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        """Queue a rewriting for the owners and bots of the selected lines, one each."""
        rows = self.chosen(request, queryset, "owner")
        first = {(row.owner_id, row.bot): row for row in rows}

        def ask(row: Memory) -> str:
            request_compression(owner=row.owner, bot=row.bot, requested_by=request.user)
            return "A rewriting of the owner's lines for this bot is queued."

        for_each(request, first.values(), ask, names_rows=True)

    def buttons_for(self, request: HttpRequest, obj: Memory) -> list[str]:
        """A line that is sent needs no yes."""
        return ["take_away"] if obj.accepted_at else ["accept", "take_away"]

    # --- columns and fields ---------------------------------------------------------------------

    text_start = preview("Line", "text_begin")
    whole_text = column("Line", "text", html.stored_text)
    bot_shown = column("For", "bot", bot_words)
    state_shown = column(
        "State",
        lambda row: (
            html.badge("Accepted", "good")
            if row.accepted_at
            else html.badge("Waits for a yes", "busy")
        ),
    )
    origin_shown = column("Written", lambda row: str(row.get_origin_display()))
    tokens_shown = column("Tokens", "tokens", formatting.number)
    accepted_shown = column("Accepted at", "accepted_at", when)
    by_shown = column("By", "created_by")

    @admin.display(description="From the message")
    def source_shown(self, row: Memory) -> SafeString | str:
        """Return the way to the message that a line comes from."""
        return nameless_link(row.source)
