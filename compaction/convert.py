"""Rows <-> engine types: the only translator."""

from __future__ import annotations

from chatapp.models import Message
from compaction.engine.types import Item, ToolCall


def to_item(message: Message) -> Item:
    """Return a row as the engine sees it."""
    return Item(
        id=message.pk,
        role=message.role,
        text=message.content or "",
        position=message.position,
        tokens=message.tokens,
        tool_calls=tuple(
            ToolCall(
                id=call["id"],
                name=call["function"]["name"],
                arguments=call["function"]["arguments"],
            )
            for call in message.tool_calls or ()
        ),
        tool_call_id=message.tool_call_id,
        tool_name=message.tool_name,
        images=sum(1 for part in message.parts or () if "image" in str(part.get("type"))),
    )
