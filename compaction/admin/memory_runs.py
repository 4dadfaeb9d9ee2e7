"""What was done with memories: runs that rewrite and propose, and rewritings to be taken back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import OWNER, SHORT_ID, column, preview
from chatapp.admin.toolkit.lists import CREATED_SINCE, Day, by_condition, by_value, one_row
from chatapp.admin.toolkit.model_admin import WideList
from chatapp.admin.toolkit.page_forms import PageForm, RefusedError
from chatapp.admin.toolkit.page_parts import Link, Panel, Section
from chatapp.admin.toolkit.permissions import holds, may_run, nameless_link
from chatapp.formatting import when
from compaction.admin.actions import REFUSALS, for_each
from compaction.admin.memories import bot_words, search_of_owners
from compaction.admin.summary_compare import differences_of, marked, verdict
from compaction.memories.runs import run_again
from compaction.memories.versions import texts_of_lines, undo_rewriting
from compaction.models import Memory, MemoryRun, MemoryVersion
from compaction.vocabulary import memory_reason

ERROR_CHARS = 60
_TONES = {"succeeded": "good", "failed": "bad", "queued": "busy", "running": "busy"}
BY_STATUS = by_value("status", "status", lambda: MemoryRun.Status.choices)
BY_KIND = by_value("kind", "kind", lambda: MemoryRun.Kind.choices)
BY_OWNER = one_row(get_user_model(), "owner")
BY_UNDONE = by_condition(
    "state",
    "state",
    {
        "counts": ("Counts", lambda: Q(undone_at__isnull=True)),
        "undone": ("Taken back", lambda: Q(undone_at__isnull=False)),
    },
)


def lines_of_run(run: MemoryRun) -> str:
    """Return what became of the lines: of how many how many; a dash where it came to nothing."""
    if run.kind == MemoryRun.Kind.EXTRACT:
        found, stored = run.lines_before, run.lines_after
        return f"{stored:,} of {found:,} proposed" if found else "—"
    if not run.lines_before:
        return "—"
    return formatting.before_after(run.lines_before, run.lines_after)


class OfOwners(WideList):
    """Rows of owners, which are found by the owner's name."""

    owner_shown = OWNER
    list_select_related = ("owner",)
    search_help_text = "An owner's name, a bot, the beginning or end of an id."

    def search_q(self, request: HttpRequest, wanted: str) -> Q:
        """Search owners, bots and ids."""
        return search_of_owners(self.model, wanted)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows with their owners."""
        return super().get_queryset(request).select_related("owner")

    def links_for(self, request: HttpRequest, obj: Any) -> list[Link]:
        """Return the way to the owner's lines."""
        return [Link.to_list("Lines of the owner", Memory, owner__id__exact=obj.owner_id)]

    short_id = SHORT_ID
    bot_shown = column("For", "bot", bot_words)


@admin.register(MemoryRun)
class MemoryRunAdmin(OfOwners):
    """One attempt to rewrite or to propose lines; one that came to nothing can be done again."""

    list_display = (
        "short_id",
        "created_at",
        "owner_shown",
        "bot_shown",
        "kind_shown",
        "status_shown",
        "lines_shown",
        "calls_shown",
        "paid",
        "error_start",
    )
    list_only = ("owner__username", "kind", "status", "lines_before", "lines_after")
    list_previews = {"error_begin": Left("error", ERROR_CHARS)}
    list_filter = (BY_STATUS, BY_KIND, CREATED_SINCE, Day, BY_OWNER)
    actions = ("again",)
    detail_actions = ("again",)
    sections = (
        Section(title=None, fields=("kind_shown", "status_shown", "owner_shown", "bot_shown")),
        Section(
            title="Work",
            fields=(
                "lines_shown", "model", "calls_shown", "tokens_shown", "paid", "summary_shown",
            ),
            optional={"model": "model", "summary_shown": "summary_id"},
        ),
        Section(
            title="Why it came to nothing",
            fields=("reason_shown", "error_shown"),
            optional={"reason_shown": "error_code", "error_shown": "error"},
        ),
        Section(
            title="Times",
            fields=("created_at", "waits_shown", "started_shown", "finished_shown"),
            optional={"waits_shown": "waits_until"},
        ),
    )  # fmt: skip

    def has_again_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may start work that asks models."""
        return may_run(request)

    @admin.action(description="Run again", permissions=["again"])
    def again(self, request: HttpRequest, queryset: QuerySet[MemoryRun]) -> None:
        """Queue the work of every selected run again."""

        def once_more(run: MemoryRun) -> str:
            run_again(run, requested_by=request.user)
            return "It is queued again."

        for_each(request, self.chosen(request, queryset, "owner"), once_more, names_rows=True)

    def buttons_for(self, request: HttpRequest, obj: MemoryRun) -> list[str]:
        """What waits or works is not done again."""
        return [] if obj.status in MemoryRun.UNDER_WAY else ["again"]

    kind_shown = column("Kind", lambda run: str(run.get_kind_display()))
    status_shown = column(
        "Status", lambda run: html.badge(run.get_status_display(), _TONES.get(run.status, ""))
    )
    lines_shown = column("Lines", lambda run: lines_of_run(run))
    calls_shown = column("Calls", "model_calls", formatting.number)
    tokens_shown = column("Tokens", "spent_tokens", formatting.number)
    paid = column("Cost", "cost", formatting.money)
    summary_shown = column("Read what this was made from", lambda run: nameless_link(run.summary))
    error_start = preview("Error", "error_begin", cut_at=ERROR_CHARS)
    reason_shown = column("Reason", "error_code", memory_reason)
    error_shown = column("What it said", "error", html.stored_text)
    waits_shown = column("Waits until", "waits_until", when)
    started_shown = column("Started", "started_at", when)
    finished_shown = column("Ended", "finished_at", when)


# --- rewritings -----------------------------------------------------------------------------------


class UndoRewritingForm(forms.Form):
    """Whether newer rewritings are taken back, too."""

    cascade = forms.BooleanField(
        required=False,
        label="Also take back newer rewritings, and lose what was changed since in its lines",
        help_text="Without this, a rewriting that others build on stays as it is. Lines that were "
        "added since stay in any case.",
    )


def may_undo(request: HttpRequest) -> bool:
    """Whether the operator may take rewritings back: permission `change memory version`."""
    return holds(request, "compaction.change_memoryversion")


def _make_undo(request: HttpRequest, version: MemoryVersion, data: Any) -> forms.Form | None:
    return UndoRewritingForm(data) if version.undone_at is None else None


def _undo(request: HttpRequest, version: MemoryVersion, asked: dict[str, Any]) -> str:
    try:
        undone = undo_rewriting(version, cascade=asked["cascade"])
    except REFUSALS as refusal:
        raise RefusedError(str(refusal)) from refusal
    return f"Taken back: {formatting.plural(undone.lines, 'line')} stand as before."


UNDO = PageForm(
    label="Take back",
    make=_make_undo,
    do=_undo,
    may=may_undo,
    help="The lines that were rewritten return as they were. Nothing is rewritten by itself "
    "afterwards, until somebody asks for it.",
)


def lines_panel(version: MemoryVersion) -> Panel:
    """Return the lines before and after side by side, what differs marked."""
    sides = ["\n".join(texts_of_lines(lines)) for lines in (version.before, version.after)]
    sides = [side[: html.SHOWN_CHARS] for side in sides]
    found = differences_of(*sides)
    body = format_html(
        '<div class="compared">{}{}</div>',
        _side("Before", marked(found.changes, is_old=True)),
        _side("After", marked(found.changes, is_old=False)),
    )
    return Panel(title="Lines before and after", body=body, note=verdict(found), is_text=True)


def _side(label: str, text: SafeString) -> SafeString:
    return format_html(
        '<section class="module compared-side" aria-label="{}"><h3>{}</h3><div '
        'class="stored-text compared-text" dir="auto" tabindex="0" role="region" '
        'aria-label="{} text">{}</div></section>',
        label, label, label, text,
    )  # fmt: skip


@admin.register(MemoryVersion)
class MemoryVersionAdmin(OfOwners):
    """One rewriting with the lines before and after it; it can be taken back."""

    list_display = (
        "short_id",
        "created_at",
        "owner_shown",
        "bot_shown",
        "lines_shown",
        "kept_shown",
        "model",
        "state_shown",
    )
    list_only = ("owner__username", "lines_before", "lines_after", "undone_at")
    list_filter = (BY_UNDONE, CREATED_SINCE, Day, BY_OWNER)
    page_forms: ClassVar[Mapping[str, PageForm]] = {"undo": UNDO}
    sections = (
        Section(
            title=None,
            fields=(
                "state_shown",
                "owner_shown",
                "bot_shown",
                "lines_shown",
                "kept_shown",
                "model",
            ),
        ),
        Section(
            title="Run and times",
            fields=("run_shown", "created_at", "undone_shown"),
            optional={"undone_shown": "undone_at"},
        ),
    )

    class Media:
        css = {"all": ["compaction/summary.css"]}

    def panels_for(self, request: HttpRequest, obj: MemoryVersion) -> list[Panel]:
        """Return what differs."""
        return [lines_panel(obj)]

    lines_shown = column(
        "Lines", lambda one: formatting.before_after(one.lines_before, one.lines_after)
    )
    kept_shown = column("Kept as they were", "kept_lines", formatting.number)
    state_shown = column(
        "State",
        lambda one: html.badge("Taken back") if one.undone_at else html.badge("Counts", "good"),
    )
    undone_shown = column("Taken back", "undone_at", when)
    run_shown = column("Run", lambda one: nameless_link(one.run))
