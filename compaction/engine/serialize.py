"""Messages as text for the summariser: data inside a fence that it cannot close (B53)."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator

from compaction.engine.types import Item

# Tags of ours; wherever data holds one, its bracket is written as an entity.
_OUR_TAGS = re.compile(
    r"<(?=\s*/?\s*(?:conversation|summary|previous-summary|background|instructions|part)\b)",
    re.IGNORECASE,
)

BETWEEN_BLOCKS = "\n\n"


def escape_tags(text: str) -> str:
    """Return text that cannot open or close one of our tags; all else stays as it is."""
    return _OUR_TAGS.sub("&lt;", text)


def transcript(items: Iterable[Item]) -> str:
    """Return one block a message: number, role, text, then the calls with their arguments."""
    return BETWEEN_BLOCKS.join(blocks(items))


def blocks(items: Iterable[Item]) -> Iterator[str]:
    """Yield the transcript's blocks one by one, for what is too long to be held at once."""
    return (_block(number, item) for number, item in enumerate(items, 1))


def _block(number: int, item: Item) -> str:
    name = f" {item.tool_name}" if item.tool_name else ""
    reply = f" (result of {item.tool_call_id})" if item.role == "tool" and item.tool_call_id else ""
    head = f"[{number}] {item.role}{name}{reply}: {item.text}".rstrip()
    if not item.images and not item.tool_calls:
        return head
    lines = [head]
    if item.images:
        lines.append(f"  ({item.images} image(s))")
    lines += [f"  calls {call.name} ({call.id}): {call.arguments}" for call in item.tool_calls]
    return "\n".join(lines)


def fenced(tag: str, text: str) -> str:
    """Return `text` between tags with a number nobody can guess, its own tags made harmless."""
    mark = secrets.token_hex(4)
    return f"<{tag} id={mark}>\n{escape_tags(text)}\n</{tag} id={mark}>"
