"""Messages: every stored row, never edited."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models.fields.json import KT
from django.db.models.functions import Left
from django.http import HttpRequest

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.base import ReadOnlyAdmin
from chatapp.admin.filters import CreatedSince, one_row
from chatapp.admin.parts import Link, Section
from chatapp.messages.wire import CUT_FROM, REPLAY_OF
from chatapp.models import Branch, Message, Session
from chatapp.selectors import whole_content

CUT = Section(title="Shortened", fields=("cut_words", "whole_text"))
REPEATED = Section(title="Replayed", fields=("repeats",))


@admin.register(Message)
class MessageAdmin(ReadOnlyAdmin):
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
        CreatedSince,
        "role",
        "kind",
        "pinned",
    )
    sortable_by = ("created_at", "position_shown")
    search_help_text = (
        "The beginning of an id, a session's title or its owner. "
        "“text: …” searches the stored text, which is slow on large tables."
    )
    list_only = (
        "position",
        "role",
        "kind",
        "tokens",
        "pinned",
        "created_at",
        "session__title",
    )
    list_previews = {
        "content_start": Left("content", cells.PREVIEW_CHARS),
        "result_of": Left("tool_name", 60),
        "first_call": KT("tool_calls__0__function__name"),
    }
    text_paths = ("content",)
    sections = (
        Section(
            title=None,
            fields=(
                "id",
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
            fields=("calls_json", "tool_name_text", "call_id_text"),
            optional={
                "calls_json": "tool_calls",
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
                "finish_reason",
                "response_id",
            ),
            optional={
                "usage_json": "usage",
                "finish_reason": "finish_reason",
                "response_id": "response_id",
            },
        ),
        Section(title="More", fields=("metadata_json",), optional={"metadata_json": "metadata"}),
    )

    @admin.display(description="Id")
    def short_id(self, message: Message) -> str:
        """Return the id's beginning."""
        return formatting.short_id(message.pk)

    @admin.display(description="Position", ordering="position")
    def position_shown(self, message: Message) -> str:
        """Return the place in the branch, in steps."""
        return formatting.place(message.position)

    @admin.display(description="Role")
    def role_shown(self, message: Message) -> str:
        """Return who speaks; a summary's placeholder is marked, it is nobody's words."""
        if message.kind == Message.Kind.PLACEHOLDER:
            return cells.badge(message.get_kind_display())
        return str(message.get_role_display())

    @admin.display(description="Text")
    def text_start(self, message: Message) -> str:
        """Return the beginning of the text, cut by the database."""
        return cells.preview(getattr(message, "content_start", None))

    @admin.display(description="Tool")
    def tool(self, message: Message) -> str:
        """Return the tool that answers here, or the first that is called."""
        name = getattr(message, "result_of", "")
        called = getattr(message, "first_call", "")
        return cells.preview(name or (f"calls {called[:60]}" if called else ""))

    @admin.display(description="Session")
    def in_session(self, message: Message) -> str:
        """Return a link to the session."""
        return cells.session_link(message.session)

    @admin.display(description="Tokens")
    def token_count(self, message: Message) -> str:
        """Return the tokens, counted once when it was stored."""
        return formatting.number(message.tokens)

    @admin.display(description="Pinned")
    def pin(self, message: Message) -> str:
        """Return whether it is always sent verbatim."""
        return cells.badge("Pinned", "good") if message.pinned else "no"

    @admin.display(description="Tokens along the path")
    def tokens_along_path(self, message: Message) -> str:
        """Return the sum up to and including this message."""
        return formatting.number(message.tokens_through)

    @admin.display(description="Position")
    def sequence(self, message: Message) -> str:
        """Return the document's sequence_id."""
        return str(message.sequence_id)

    @admin.display(description="Content")
    def content_text(self, message: Message) -> str:
        """Return the text; null, the empty text and text are three different things."""
        if message.content is None:
            return "null"
        return cells.stored_text(message.content) if message.content else "the empty text"

    @admin.display(description="Parts")
    def parts_json(self, message: Message) -> str:
        """Return images and other parts."""
        return cells.stored_json(message.parts)

    @admin.display(description="Summary")
    def summary_text(self, message: Message) -> str:
        """Return the summary that the placeholder marks."""
        return cells.stored_text(message.summary)

    @admin.display(description="Reasoning")
    def reasoning_text(self, message: Message) -> str:
        """Return the model's reasoning."""
        return cells.stored_text(message.reasoning)

    @admin.display(description="Tool calls")
    def calls_json(self, message: Message) -> str:
        """Return the calls it asks for."""
        return cells.stored_json(message.tool_calls)

    @admin.display(description="Tool")
    def tool_name_text(self, message: Message) -> str:
        """Return the tool's name."""
        return cells.stored_text(message.tool_name)

    @admin.display(description="Answers call")
    def call_id_text(self, message: Message) -> str:
        """Return the id of the call that this result answers."""
        return cells.stored_text(message.tool_call_id)

    @admin.display(description="Reported usage")
    def usage_json(self, message: Message) -> str:
        """Return what the server reported."""
        return cells.stored_json(message.usage)

    @admin.display(description="Metadata")
    def metadata_json(self, message: Message) -> str:
        """Return the metadata."""
        return cells.stored_json(message.metadata)

    @admin.display(description="Cut")
    def cut_words(self, message: Message) -> str:
        """Return how much of the text is stored here."""
        now, whole = len(message.content or ""), message.metadata.get(CUT_FROM)
        if not isinstance(whole, int):
            return "Parts of the text are left out here."
        return f"Cut from {whole:,} characters to {now:,}; the model is sent the shorter text."

    @admin.display(description="Whole text")
    def whole_text(self, message: Message) -> str:
        """Return what came in, from beside the row or from the branch that was replayed."""
        try:
            whole = whole_content(message)
        except ValidationError:
            # The mark is not one of ours: there is no such message.
            return "—"
        if whole is None or isinstance(whole, str):
            return cells.stored_text(whole)
        return cells.stored_json(whole)

    @admin.display(description="Repeats")
    def repeats(self, message: Message) -> str:
        """Return a link to the message of the old branch, with the branch's own text."""
        repeated = message.metadata.get(REPLAY_OF)
        try:
            key = UUID(str(repeated))
        except ValueError:
            return str(repeated)
        words = f"the message {formatting.short_id(key)} of the branch that was replayed"
        return cells.link(words, cells.change_url(Message, key))

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
            Link(label="Session", url=cells.change_url(Session, obj.session_id)),
            Link(label="Branch's messages in order", url=messages_url(obj.branch_id)),
        ]


def messages_url(branch_id: Any) -> str:
    """Return the address of a branch's own messages, ordered by position."""
    # Columns count from 0, because a list without actions has no column of check boxes.
    column = MessageAdmin.list_display.index("position_shown")
    return cells.list_url(Message, branch__id__exact=branch_id, o=column)
