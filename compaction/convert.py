"""Rows <-> engine types: the only translator."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from django.db import connection
from django.db.models import QuerySet

from chatapp.llm.part_tokens import attachment_tokens
from chatapp.messages.inline_files import told, without_inline_files
from chatapp.messages.parts import IMAGE, attachment_of, note_of
from chatapp.models import Message
from compaction.engine.types import Item, ToolCall

IDS_AT_ONCE = 500
ITEM_COLUMNS = (
    "pk",
    "role",
    "content",
    "position",
    "tokens",
    "tool_calls",
    "tool_call_id",
    "tool_name",
    "parts",
    "kind",
    "chars",
)


def to_item(message: Message) -> Item:
    """Return a row as the engine sees it: placeholders for the files inside its texts."""
    return _item(*(getattr(message, column) for column in ITEM_COLUMNS))


def summary_item(placeholder: Message, *, tokens: int = 0) -> Item:
    """Return the summary that a placeholder marks, as a note of so many tokens."""
    return Item(
        id=placeholder.pk,
        role=Message.Role.USER,
        text=placeholder.summary,
        position=placeholder.position,
        tokens=tokens,
        chars=len(placeholder.summary),
        is_note=True,
    )


def read_items(rows: QuerySet[Message], *, as_stored: bool = False) -> list[Item]:
    """Return the rows of a query as the engine sees them; `as_stored`: with the files in texts."""
    select, parameters = rows.values_list(*ITEM_COLUMNS).query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(select, parameters)
        return items_of(cursor, as_stored=as_stored)


def items_of(rows: Iterable[tuple[Any, ...]], *, as_stored: bool = False) -> list[Item]:
    """Return rows of ITEM_COLUMNS, as the database gives them, as the engine sees them.

    Only the columns that an Item has are read, and they stay as they are: no model instance, no
    UUID object for an id that only comes back in links, no look at JSON that is NULL. With
    thousands of rows that is most of the time and of the memory.
    """
    return [
        _item(
            pk,
            role,
            text,
            position,
            tokens,
            _parsed(calls),
            call_id,
            name,
            _parsed(parts),
            kind,
            chars,
            as_stored=as_stored,
        )
        for pk, role, text, position, tokens, calls, call_id, name, parts, kind, chars in rows
    ]


def with_thoughts(items: Sequence[Item]) -> list[Item]:
    """Return the items with what models thought before they wrote them.

    It is read where a summariser may see it, and nowhere else: it can be most of a conversation.
    """
    key = Message._meta.pk.to_python
    asked = [key(item.id) for item in items if item.role == Message.Role.ASSISTANT]
    thoughts: dict[Any, str] = {}
    for start in range(0, len(asked), IDS_AT_ONCE):
        rows = Message.objects.filter(pk__in=asked[start : start + IDS_AT_ONCE])
        thoughts.update(rows.exclude(reasoning="").values_list("pk", "reasoning"))
    return [
        replace(item, thinking=thoughts[key(item.id)]) if key(item.id) in thoughts else item
        for item in items
    ]


def _parsed(column: str | None) -> Any:
    return None if column is None else json.loads(column)


def _item(
    pk: Any,
    role: str,
    content: str | None,
    position: int,
    tokens: int,
    tool_calls: list[dict[str, Any]] | None,
    tool_call_id: str,
    tool_name: str,
    parts: list[dict[str, Any]] | None,
    kind: str,
    chars: int,
    *,
    as_stored: bool = False,
) -> Item:
    attachments = [attachment_of(part) for part in parts or ()]
    # Behind the words, wherever the parts stand: offsets in the words are those in the row.
    notes = [note_of(part, found) for part, found in zip(parts or (), attachments, strict=True)]
    words, files = (content, ()) if as_stored else told(content or "")
    return Item(
        id=pk,
        role=role,
        text="\n".join(filter(None, [words, *notes])),
        position=position,
        tokens=tokens,
        chars=chars,
        tool_calls=tuple(map(_call, tool_calls)) if tool_calls else (),
        tool_call_id=tool_call_id,
        tool_name=tool_name,
        images=sum(one.kind == IMAGE for one in attachments if one),
        unread_tokens=sum(attachment_tokens(one) for one in attachments if one),
        is_note=kind == Message.Kind.NOTE,
        inline_files=files,
    )


def _call(call: dict[str, Any]) -> ToolCall:
    function = call["function"]
    arguments = without_inline_files(function["arguments"])
    return ToolCall(id=call["id"], name=function["name"], arguments=arguments)
