"""Messages: every stored row, never edited; and a page of them on the session's page."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import F, QuerySet
from django.db.models.fields.json import KT
from django.db.models.functions import Left
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.answer_page import (
    WITHOUT_PART,
    AnswerPage,
    given_links,
    left_out_panel,
    left_out_words,
)
from chatapp.admin.pin_forms import PIN_FORMS
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import IN_SESSION, SHORT_ID, column, preview, shows_text
from chatapp.admin.toolkit.extension import MessageView, admin_extensions
from chatapp.admin.toolkit.lists import CREATED_SINCE, one_row
from chatapp.admin.toolkit.model_admin import WideList
from chatapp.admin.toolkit.page_parts import Link, Panel, Section
from chatapp.admin.toolkit.path_pages import (
    ANCHOR,
    FIRST,
    KEPT,
    PLACEHOLDER,
    RULE,
    MessageStatus,
    PathPage,
    place_url,
    position_asked_for,
    read_page,
)
from chatapp.admin.toolkit.permissions import TEXTS_HIDDEN, may_see_texts
from chatapp.admin.toolkit.tool_calls import calls_shown
from chatapp.compiled import compiled_read
from chatapp.groups import group_of
from chatapp.llm.answer_ends import AnswerEnd, end_of
from chatapp.messages.pairing import answers
from chatapp.messages.wire import CUT_FROM, REPLAY_OF
from chatapp.models import AnswerRequest, Branch, Message, MessageOriginal, Session
from chatapp.part_store import PartReader
from chatapp.selectors import whole_content

CUT = Section(title="Shortened", fields=("cut_words", "whole_text"))
REPEATED = Section(title="Replayed", fields=("repeats",))

TITLE = "Messages along the active branch"
_COLUMNS = ("branch", "position", "role", "kind", "tokens", "pinned", "finish_reason")
# Answers that are less than what was asked for.
_ENDS = {
    AnswerEnd.CUT: "cut off",
    AnswerEnd.FILTERED: "filtered",
    AnswerEnd.REFUSED: "refused",
    AnswerEnd.BROKEN: "broken off",
}
_END_WORDS = {
    AnswerEnd.WHOLE: "It is whole.",
    AnswerEnd.TOOL_CALLS: "It asks for tools.",
    AnswerEnd.CUT: "It was cut off at a limit; a turn can continue it.",
    AnswerEnd.FILTERED: "The server's content filter ended it.",
    AnswerEnd.REFUSED: "The model refused.",
    AnswerEnd.BROKEN: "It broke off; what had come is stored.",
    AnswerEnd.UNKNOWN: "The server's word for its end is not known.",
}


def whole_parts(message: Message) -> Any:
    """Return a message's parts as they came in: a page shows the beginning of a file's data."""
    return PartReader(message.session_id).content(message.parts)


@admin.register(Message)
class MessageAdmin(AnswerPage, WideList):
    """One row of a conversation, or the placeholder of a summary."""

    list_display = (
        "short_id",
        "position_shown",
        "role_shown",
        "text_start",
        "tool",
        "in_session",
        "token_count",
        "pin",
        "created_at",
    )
    list_select_related = ("session",)
    list_filter = (
        one_row(Session, "session"),
        one_row(Branch, "branch"),
        CREATED_SINCE,
        "role",
        "kind",
        "pinned",
        WITHOUT_PART,
    )
    sortable_by = ("created_at", "position_shown")
    search_help_text = (
        "The beginning or end of an id, a session's title or its owner. "
        "“text: …” searches the stored text, which is slow on large tables."
    )
    list_only = ("role", "kind", "pinned")
    list_previews = {
        "content_start": Left("content", html.PREVIEW_CHARS),
        "result_of": Left("tool_name", 60),
        "first_call": KT("tool_calls__0__function__name"),
    }
    text_paths = ("content",)
    page_forms = PIN_FORMS
    sections = (
        Section(
            title=None,
            fields=(
                "short_id",
                "in_session",
                "branch",
                "sequence",
                "role",
                "kind",
                "pin",
                "created_at",
            ),
        ),
        Section(
            title="Content",
            fields=("content_text", "parts_json", "summary_text", "reasoning_text"),
            optional={
                "parts_json": "parts",
                "summary_text": "summary",
                "reasoning_text": "reasoning",
            },
        ),
        Section(
            title="Tools",
            fields=("tool_name_text", "call_id_text"),
            optional={
                "tool_name_text": "tool_name",
                "call_id_text": "tool_call_id",
            },
        ),
        Section(
            title="Tokens",
            fields=(
                "token_count",
                "tokens_along_path",
                "usage_json",
                "end_words",
                "finish_reason",
                "response_id",
            ),
            optional={
                "usage_json": "usage",
                "end_words": "finish_reason",
                "finish_reason": "finish_reason",
                "response_id": "response_id",
            },
        ),
        Section(
            title="More",
            fields=("vendor_json", "metadata_json"),
            optional={"vendor_json": "vendor", "metadata_json": "metadata"},
        ),
    )

    short_id = SHORT_ID
    position_shown = column("Position", "position", formatting.place, ordering="position")

    @admin.display(description="Role")
    def role_shown(self, message: Message) -> str:
        """Return who speaks; placeholders and notes are marked, which are nobody's words."""
        if message.kind != Message.Kind.MESSAGE:
            return html.badge(message.get_kind_display())
        return str(message.get_role_display())

    text_start = preview("Text", "content_start")

    @shows_text
    @admin.display(description="Tool")
    def tool(self, message: Message) -> str:
        """Return the tool that answers here, or the first that is called."""
        name = getattr(message, "result_of", "")
        called = getattr(message, "first_call", "")
        return html.preview(name or (f"calls {called[:60]}" if called else ""))

    in_session = IN_SESSION
    token_count = column("Tokens", "tokens", formatting.number)
    pin = column("Pinned", lambda message: html.badge("Pinned", "good") if message.pinned else "no")
    tokens_along_path = column("Tokens along the path", "tokens_through", formatting.number)
    sequence = column("Position", "sequence_id", str)

    @shows_text
    @admin.display(description="Content")
    def content_text(self, message: Message) -> str:
        """Return the text; null, the empty text and text are three different things."""
        if message.content is None:
            return "null"
        return html.stored_text(message.content) if message.content else "the empty text"

    parts_json = column("Parts", whole_parts, html.stored_json, reads=("parts",))
    summary_text = column("Summary", "summary", html.stored_text)
    reasoning_text = column("Reasoning", "reasoning", html.folded_text)
    tool_name_text = column("Tool", "tool_name", html.stored_text)
    call_id_text = column("Answers call", "tool_call_id", html.stored_text)
    usage_json = column("Reported usage", "usage", html.stored_json)
    metadata_json = column("Metadata", "metadata", html.stored_json)
    vendor_json = column("Kept for its server", "vendor", html.stored_json)

    @admin.display(description="End")
    def end_words(self, message: Message) -> str:
        """Return how the answer ended, whatever its server's word for it."""
        return _END_WORDS[end_of(message.finish_reason)]

    @admin.display(description="Cut")
    def cut_words(self, message: Message) -> str:
        """Return how much of the text is stored here."""
        now, whole = len(message.content or ""), message.metadata.get(CUT_FROM)
        if not isinstance(whole, int):
            return "Parts of the text are left out here."
        return f"Cut from {whole:,} characters to {now:,}; the model is sent the shorter text."

    @shows_text
    @admin.display(description="Whole text")
    def whole_text(self, message: Message) -> str:
        """Return what came in, from beside the row or from the branch that was replayed."""
        try:
            whole = whole_content(message)
        except ValidationError:
            # The mark is not one of ours: there is no such message.
            return "—"
        if whole is None or isinstance(whole, str):
            return html.stored_text(whole)
        return html.stored_json(whole)

    @shows_text
    @admin.display(description="Repeats")
    def repeats(self, message: Message) -> str:
        """Return a link to the message of the old branch, with the branch's own text."""
        repeated = message.metadata.get(REPLAY_OF)
        try:
            key = UUID(str(repeated))
        except ValueError:
            return str(repeated)
        words = f"the message {formatting.short_id(key)} of the branch that was replayed"
        return html.link(words, html.change_url(Message, key))

    def get_sections(self, request: HttpRequest, obj: Message) -> tuple[Section, ...]:
        """Add what is known of a text that was cut, and of a row that repeats another."""
        marks = obj.metadata if obj is not None else {}
        own, *further = self.sections
        return (
            own,
            *([REPEATED] if REPLAY_OF in marks else []),
            *further[:1],
            *([CUT] if CUT_FROM in marks else []),
            *further[1:],
        )

    def links_for(self, request: HttpRequest, obj: Message) -> list[Link]:
        """Return the ways to the session and to the messages around this one."""
        return [
            *given_links(obj, is_recorded=_is_recorded(obj)),
            Link.to("Session", Session, obj.session_id),
            Link(label="Branch's messages in order", url=messages_url(obj.branch_id)),
            *original_links(obj),
        ]

    def panels_for(self, request: HttpRequest, obj: Message) -> list[Panel]:
        """Return the calls with their results, what an answer went without, and other panels."""
        others = (draw for each in admin_extensions() for draw in each.message_panels)
        draws = [left_out_panel, *others]
        panels = [panel for draw in draws if (panel := draw(request, obj)) is not None]
        calls = calls_panel(obj)
        return [calls, *panels] if calls is not None else panels


def _is_recorded(message: Message) -> bool:
    """Whether it was stored what the request of an answer was made of; asked for answers alone."""
    is_answer = message.role == Message.Role.ASSISTANT and message.kind == Message.Kind.MESSAGE
    return is_answer and AnswerRequest.objects.filter(message=message.pk).exists()


def original_links(message: Message) -> list[Link]:
    """Return the way to what came in, where a tool result was stored cut."""
    if CUT_FROM not in message.metadata:
        return []
    kept = MessageOriginal.objects.filter(pk=message.pk).exists()
    return [Link.to("What came in", MessageOriginal, message.pk)] if kept else []


def calls_panel(message: Message) -> Panel | None:
    """Return the calls of a message, or the one that it answers, results beside them.

    None for a message that has to do with no call.
    """
    if not (message.tool_calls or message.role == Message.Role.TOOL):
        return None
    asker, *results = group_of(message)
    if not asker.tool_calls:
        return Panel.saying("Tool call", "This result answers no call of the conversation.")
    pairs = answers([row.stored_wire() for row in (asker, *results)])
    rows = {call: results[index - 1] for index, (_, call) in pairs.items()}
    shown = {
        call: (_way_to(row, message), html.stored_text(row.content)) for call, row in rows.items()
    }
    title = "Tool call" if len(asker.tool_calls) == 1 else "Tool calls"
    if asker.pk != message.pk:
        title = f"Called by message {asker.place}"
    return Panel(
        title=title, body=format_html("{}", calls_shown(asker.tool_calls, shown)), is_text=True
    )


def _way_to(row: Message, shown: Message) -> SafeString | str:
    return "(this message)" if row.pk == shown.pk else html.row_link(row, f"message {row.place}")


def messages_url(branch_id: Any) -> str:
    """Return the address of a branch's own messages, ordered by position."""
    # Columns count from 0, because a list without actions has no column of check boxes.
    column = MessageAdmin.list_display.index("position_shown")
    return html.list_url(Message, branch__id__exact=branch_id, o=column)


def all_sent(rows: list[Message]) -> dict[Any, MessageStatus]:
    """Return the statuses where everything that was stored is sent."""
    return {row.pk: _sent(row) for row in rows}


def _sent(row: Message) -> MessageStatus:
    if row.kind == Message.Kind.PLACEHOLDER:
        return PLACEHOLDER
    return RULE if row.is_pinned_system else KEPT


def shown_messages() -> QuerySet[Message]:
    """Return all rows with what a page of them reads: long texts are cut by the database."""
    return Message.objects.annotate(
        **MessageAdmin.list_previews,
        summary_start=Left("summary", html.PREVIEW_CHARS),
        marks=KT("metadata__summary_id"),
        went_without=F("request__left_out"),
        record=F("request__pk"),
    ).only(*_COLUMNS)


@compiled_read
def _newest_shown(*, branch: UUID) -> QuerySet[Message]:
    return shown_messages().filter(branch=branch).order_by("-position")


def messages_panel(request: HttpRequest, session: Session, view: MessageView) -> Panel:
    """Return the page of messages that `?at=` asks for, each with its status.

    Operators who may not see messages are told so.
    """
    if not may_see_texts(request):
        return Panel.saying(TITLE, TEXTS_HIDDEN)
    page = PathPage(rows=[])
    if session.active_branch is not None:
        at = position_asked_for(request)
        page = read_page(session.active_branch, shown_messages(), at=at, newest=_newest_shown)
    found = view.statuses(page.rows)
    body = render_to_string(
        "admin/chatapp/messages.html",
        {
            "anchor": ANCHOR,
            "rows": [_shown(row, found[row.pk]) for row in page.rows],
            "ways": [*_ways(session, page), *view.ways] if page.rows else [],
            "page_address": html.change_url(Session, session.pk),
        },
    )
    return Panel(title=TITLE, body=body)


def _ways(session: Session, page: PathPage) -> list[Link]:
    """Return the ways to other pages, in the order of the conversation."""
    ways = []
    if page.older is not None:
        ways.append(Link(label="« First", url=place_url(session.pk, FIRST)))
        ways.append(Link(label="‹ Older", url=place_url(session.pk, page.older)))
    if page.newer is not None:
        ways.append(Link(label="Newer ›", url=place_url(session.pk, page.newer)))
        ways.append(Link(label="Newest »", url=place_url(session.pk, None)))
    return ways


def _role(row: Message) -> str:
    """Return who speaks; nobody in a placeholder, and a note is nobody's words."""
    if row.kind == Message.Kind.MESSAGE:
        return str(row.get_role_display())
    return "—" if row.kind == Message.Kind.PLACEHOLDER else str(row.get_kind_display())


def _shown(row: Any, status: MessageStatus) -> dict[str, Any]:
    """Return one row as the template shows it."""
    is_placeholder = row.kind == Message.Kind.PLACEHOLDER
    text = row.summary_start if is_placeholder else row.content_start
    called = row.first_call or ""
    tool = row.result_of or (f"calls {called[:60]}" if called else "")
    shown = html.preview(text) if text or not tool else ""
    ended = _ENDS.get(end_of(row.finish_reason)) if row.finish_reason else None
    words = [ended] if ended else []
    if row.went_without:
        words.append(left_out_words(row.went_without))
    for word in words:
        shown = html.marked(shown, word)
    return {
        "place": html.row_link(row, formatting.place(row.position)),
        "role": _role(row),
        "tool": tool,
        "text": shown,
        "given": given_links(row, is_recorded=row.record is not None),
        "tokens": "" if is_placeholder else formatting.number(row.tokens),
        "status": status,
    }
