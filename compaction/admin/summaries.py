"""Summaries and their sources: the list, the page, and what may be done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar
from uuid import UUID

from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db.models import F, QuerySet
from django.db.models.functions import Left
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import IN_SESSION, SHORT_ID, column, preview, shows_text
from chatapp.admin.toolkit.lists import CREATED_SINCE, Day, one_row
from chatapp.admin.toolkit.model_admin import ReadOnlyAdmin, WideList
from chatapp.admin.toolkit.page_forms import PageForm, confirm_page, is_confirmed
from chatapp.admin.toolkit.page_parts import Link, Panel, Section, Table
from chatapp.admin.toolkit.permissions import may_run, nameless_link
from chatapp.models import Message, Session
from compaction import vocabulary
from compaction.admin import lists
from compaction.admin.actions import for_each, queued
from compaction.admin.forms import RESTORE, RESUMMARISE, refuse_draft, taken_back
from compaction.admin.lists import (
    BY_REASON,
    BY_SCORE,
    BY_SUMMARY_STATUS,
    BY_TRIGGER,
    Ratio,
    source_table,
)
from compaction.admin.restoring import CHANGE_INSTRUCTIONS, may_restore, words_for_many
from compaction.admin.summary_compare import compare_page, pair_of
from compaction.admin.summary_entries import entry_tables
from compaction.admin.summary_panels import (
    compare_url,
    default_comparison,
    person_of,
    ratio_panel,
    version_tables,
)
from compaction.admin.summary_quality import QUALITY_FORMS, quality_panel, score_words
from compaction.admin.summary_sources import sources_panel
from compaction.admin.version_forms import ACTIVATE, COMPARED, EDIT, notice_of_person
from compaction.models import CompactionRun, CompactionStep, SessionSummary, SessionSummaryMessage
from compaction.models.summaries import NEWEST_VERSION
from compaction.runs.resummarize import resummarize
from compaction.summaries.restore import restore_summary

Status = SessionSummary.Status
_ARCHIVE = (
    "A fallback digest: no summariser could write a summary, so the messages themselves stand "
    "here, "
    "shortened and unsummarised. All of them are stored. It is sent beside the newest summary "
    "until another one takes it in."
)
_DRAFT = (
    "A draft: made ahead of need and not sent yet. It covers nothing: its messages are sent "
    "verbatim. When a rule asks for it, it counts at once, without a model call; if other messages "
    "were summarised meanwhile, it is put aside. Until then it can be neither made again nor taken "
    "back."
)


@admin.register(SessionSummary)
class SessionSummaryAdmin(WideList):
    """One stored result of a compaction; it may be made again, written anew or taken back."""

    list_display = (
        "short_id",
        "created_at",
        "in_session",
        "status_shown",
        "why",
        "sources",
        "token_change",
        "ratio",
        "score",
    )
    list_select_related = ("session",)
    list_filter = (
        one_row(Session, "session"),
        CREATED_SINCE,
        Day,
        BY_SUMMARY_STATUS,
        "is_digest",
        BY_TRIGGER,
        BY_REASON,
        Ratio,
        BY_SCORE,
        "truncated",
        "kind",
    )
    sortable_by = ("created_at", "ratio")
    search_help_text = (
        "The beginning or end of an id, a session's title or its owner. "
        "“text: …” searches the summaries' text, which is slow on large tables."
    )
    list_only = ("status", "reason", "compression_ratio", "truncated", "is_digest")
    list_previews = {"scored": F("quality__score")}
    text_paths = ("summary_text",)
    actions = ("resummarise", "restore")
    page_forms: ClassVar[Mapping[str, PageForm]] = {
        "activate": ACTIVATE,
        "edit": EDIT,
        "resummarise": RESUMMARISE,
        "restore": RESTORE,
        "instructions": CHANGE_INSTRUCTIONS,
        **QUALITY_FORMS,
    }
    sections = (
        Section(
            title=None,
            fields=(
                *("short_id", "in_session", "branch", "status_shown", "kind", "created_at"),
                *("updated", "from_run"),
            ),
            optional={"updated": "updated_at"},
        ),
        Section(
            title="Why",
            fields=("why", "started_by", "profile", "instructions_text"),
            optional={"instructions_text": "instructions"},
        ),
        Section(
            title="Size",
            fields=(
                "sources",
                "left_out",
                "token_change",
                "ratio",
                "was_truncated",
                "summary_size",
                "cost_shown",
                "took",
            ),
            optional={"left_out": "dropped_messages"},
        ),
        Section(title="Files", fields=("files",)),
        Section(
            title="Covers",
            fields=(
                "from_branch",
                "from_message",
                "range",
                "first_message",
                "last_message",
                "times",
            ),
            optional={"from_branch": "from_branch_id", "from_message": "from_message_id"},
        ),
        Section(
            title="Line of versions",
            fields=("continues", "replaces", "written_by", "activated", "superseded", "restored"),
            optional={
                "continues": "previous_id",
                "replaces": "supersedes_id",
                "written_by": "is_edited",
                "activated": "activated_at",
                "superseded": "superseded_at",
                "restored": "restored_at",
            },
        ),
        Section(
            title="How it was made",
            fields=(
                "model",
                "temperature",
                "target_tokens",
                "keep_last_n",
                "prompt_version",
                "prompt_text",
                "abridged_text",
                "metadata_json",
                "details_json",
            ),
            optional={"abridged_text": "abridged", "details_json": "details"},
        ),
    )

    class Media:
        css = {"all": ["compaction/summary.css", "compaction/quality.css"]}
        js = [forms.Script("compaction/sources.js", type="module")]

    # --- actions ----------------------------------------------------------------------------------

    def has_run_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may start runs."""
        return may_run(request)

    def has_restore_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may take summaries back: permission `change session summary`."""
        return may_restore(request)

    @admin.action(description="Re-summarise", permissions=["run"])
    def resummarise(self, request: HttpRequest, queryset: QuerySet[SessionSummary]) -> None:
        """Queue a new version of every selected summary."""

        def redo(summary: SessionSummary) -> SafeString:
            refuse_draft(summary)
            run = resummarize(summary, background=True, requested_by=request.user)
            return queued(run)

        rows = self.chosen(request, queryset, "session", "branch")
        for_each(request, rows, redo, names_rows=True)

    @admin.action(description="Restore the messages", permissions=["restore"])
    def restore(
        self, request: HttpRequest, queryset: QuerySet[SessionSummary]
    ) -> HttpResponse | None:
        """Take every selected summary back, the newest first: others were built on older ones.

        Before it is done, a page says what the next turns would do.
        """

        def take_back(summary: SessionSummary) -> SafeString:
            refuse_draft(summary)
            return taken_back(restore_summary(summary, by=request.user))

        rows = self.chosen(request, queryset, "session", "branch")
        rows.sort(key=lambda summary: summary.covers_through, reverse=True)
        sentences = words_for_many(request, rows)
        if not is_confirmed(request, sentences):
            chosen = [(ACTION_CHECKBOX_NAME, str(summary.pk)) for summary in rows]
            return confirm_page(
                request,
                self,
                title="Restore the messages",
                sentences=sentences,
                hidden=[("action", "restore"), *chosen],
            )
        for_each(request, rows, take_back)
        return None

    # --- columns and fields ---------------------------------------------------------------------

    short_id = SHORT_ID
    in_session = IN_SESSION
    status_shown = column("Status", lists.summary_status)
    why = lists.REASON
    started_by = lists.STARTED_BY
    sources = column("Messages", "message_count", formatting.number)
    left_out = column(
        "Left out before them",
        lambda summary: (
            f"{formatting.plural(summary.dropped_messages, 'message')} that nobody "
            "read (head_overflow is drop): stored, and not sent any more"
        ),
    )
    token_change = lists.TOKEN_CHANGE

    @admin.display(description="Ratio", ordering="compression_ratio")
    def ratio(self, summary: SessionSummary) -> str:
        """Return the summary's size as a part of its input."""
        ratio = formatting.percent(summary.compression_ratio)
        if not summary.truncated:
            return ratio
        return format_html("{} {}", ratio, lists.truncated_words(True))

    score = column("Score", lambda row: score_words(getattr(row, "scored", None)))
    was_truncated = lists.WAS_TRUNCATED
    cost_shown = lists.COST
    summary_size = column(
        "Summary",
        lambda summary: f"{summary.summary_tokens:,} tokens, from about {summary.approx_tokens:,}",
    )
    from_run = column("Run", "run", html.row_link)
    took = column("Took", lambda summary: vocabulary.seconds(summary.run) if summary.run else "—")

    @shows_text
    @admin.display(description="Files")
    def files(self, summary: SessionSummary) -> str:
        """Return the files that tool calls read and changed, those of earlier summaries too."""
        created = frozenset(summary.files_created)
        lines = [f"read      {name}" for name in summary.files_read]
        lines += [f"created   {name}" for name in summary.files_created]
        lines += [f"modified  {name}" for name in summary.files_modified if name not in created]
        lines += [f"deleted   {name}" for name in summary.files_deleted]
        return html.stored_text("\n".join(lines))

    range = column(
        "Positions",
        lambda summary: (
            f"{formatting.place(summary.covers_from)} – {formatting.place(summary.covers_through)}"
        ),
    )

    @admin.display(description="Written")
    def times(self, summary: SessionSummary) -> str:
        """Return when the first and the last message were written."""
        first, last = summary.first_message_created_at, summary.last_message_created_at
        return f"{formatting.when(first)} – {formatting.when(last)}"

    continues = column("Continues", "previous", html.row_link)
    replaces = column("Replaces", "supersedes", html.row_link)
    written_by = column("Written by", person_of)
    updated = column("Status since", "updated_at", formatting.when)
    activated = column("Counted last from", "activated_at", formatting.when)
    superseded = column("Superseded last", "superseded_at", formatting.when)
    restored = column("Taken back last", "restored_at", formatting.when)
    instructions_text = lists.INSTRUCTIONS
    target_tokens = column("Target tokens", "target_summary_tokens", formatting.number)
    prompt_text = column("Prompt", "summary_prompt", html.stored_text)
    abridged_text = column("Abridged history", "abridged", html.stored_text)
    metadata_json = column("Metadata", "metadata", html.stored_json)
    details_json = column("Details of the hook", "details", html.stored_json, is_text=True)

    # --- page -------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        """Add the page that shows two versions side by side."""
        view = self.admin_site.admin_view(self.compare_view)
        address = "<uuid:object_id>/compare/<uuid:other_id>/"
        own = path(address, view, name="compaction_sessionsummary_compare")
        return [own, *super().get_urls()]

    def page_after(self, request: HttpRequest, obj: SessionSummary) -> str:
        """Return the address that a form leads back to: the page, or the comparison it is on."""
        try:
            return compare_url(obj.pk, UUID(request.POST.get(COMPARED, "")))
        except ValueError:
            return super().page_after(request, obj)

    def compare_view(self, request: HttpRequest, object_id: UUID, other_id: UUID) -> HttpResponse:
        """Show two summaries of one session side by side."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        pair = pair_of(object_id, other_id)
        if pair is None:
            raise Http404("There are no two such summaries of one session.")
        return compare_page(request, pair, self.admin_site.each_context(request))

    def links_for(self, request: HttpRequest, obj: SessionSummary) -> list[Link]:
        """Return the ways to session, run and steps, and the comparison that is asked for most."""
        links = [Link.to("Session", Session, obj.session_id)]
        if obj.run_id:
            url = html.list_url(CompactionStep, run__id__exact=obj.run_id)
            links += [
                Link.to("Run and its tree", CompactionRun, obj.run_id),
                Link(label="Steps", url=url),
            ]
        offered = default_comparison(obj)
        return [*links, offered] if offered else links

    def notices_for(self, request: HttpRequest, obj: SessionSummary) -> list[SafeString | str]:
        """Say what a fallback digest and a draft are."""
        return notices_on(obj, may_redo=may_run(request))

    def panels_for(self, request: HttpRequest, obj: SessionSummary) -> list[Panel]:
        """Return its text, how much smaller it made the request, and what it still knows."""
        text = Panel(title="Text", body=_text_of(obj), is_text=True)
        return [text, ratio_panel(obj), quality_panel(request, obj), sources_panel(request, obj)]

    def tables_for(self, request: HttpRequest, obj: SessionSummary) -> list[Table]:
        """Return the abridged history's entries, other versions, the line, and the sources."""
        return [*entry_tables(obj), *version_tables(obj), source_table(obj)]


def _text_of(summary: SessionSummary) -> SafeString:
    return format_html('<div class="summary-text">{}</div>', html.stored_text(summary.summary_text))


def notices_on(summary: SessionSummary, *, may_redo: bool) -> list[SafeString | str]:
    """Return the sentences; with a way to the form where the fallback digest may be made again."""
    found: list[SafeString | str] = []
    if summary.is_edited:
        found.append(notice_of_person(summary))
    elif summary.is_digest:
        found.append(_of_digest(summary, may_redo=may_redo))
    if summary.status == Status.DRAFT:
        found.append(_DRAFT)
    if summary.is_passed_over:
        found.append(
            f"Passed over: a later version of this program wrote it (format "
            f"{summary.format_version:,}; this one knows those up to {NEWEST_VERSION}). It is not "
            "sent. Its messages are, until they are summarised again, which comes before the next "
            "request."
        )
    return found


def _of_digest(summary: SessionSummary, *, may_redo: bool) -> SafeString | str:
    if summary.status != Status.ACTIVE:
        return _ARCHIVE
    if not may_redo:
        return f"{_ARCHIVE} Who may start runs can have it summarised again."
    return format_html(
        '{} When the summariser answers again, <a href="#form-resummarise">re-summarise it</a>: '
        "a summary of the same messages then takes its place.",
        _ARCHIVE,
    )


@admin.register(SessionSummaryMessage)
class SummarySourceAdmin(ReadOnlyAdmin):
    """One message that went into one summary."""

    list_display = ("short_id", "of_summary", "of_message", "role", "text_start", "token_count")
    list_select_related = ("summary", "message")
    list_filter = (one_row(SessionSummary, "summary"), one_row(Message, "message"))
    # The key counts up, and a summary's links are written in order.
    ordering = ("-id",)
    sortable_by = ("short_id",)
    list_only = ("summary__status", "message__position", "message__role")
    list_previews = {"content_start": Left("message__content", html.PREVIEW_CHARS)}
    id_paths = ("summary", "message")
    session_path = "summary__session"
    search_help_text = (
        "The beginning or end of a summary's or message's id, a session's title or its owner."
    )
    sections = (
        Section(
            title=None, fields=("in_session", "of_summary", "of_message", "role", "token_count")
        ),
    )

    short_id = column("No.", "pk", str, ordering="id")
    in_session = column("Session", "summary.session", html.session_link, instead=nameless_link)

    @admin.display(description="Summary")
    def of_summary(self, link: SessionSummaryMessage) -> str:
        """Return a link to the summary; a draft has read the message, and does not cover it."""
        name = formatting.short_id(link.summary_id)
        if link.summary.status == SessionSummary.Status.DRAFT:
            name += " (draft: not sent yet)"
        return html.row_link(link.summary, name)

    of_message = column(
        "Message",
        lambda link: html.row_link(
            link.message, f"Position {formatting.place(link.message.position)}"
        ),
    )
    role = column("Role", lambda link: str(link.message.get_role_display()))
    text_start = preview("Text", "content_start")
    token_count = column("Tokens", "message.tokens", formatting.number)
