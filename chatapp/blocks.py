"""The texts inside a wire message's content, one by one, and the content with other texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def texts_of(content: Any) -> list[str]:
    """Return the texts of a content in order: of a text itself, or of each part that has one."""
    if isinstance(content, str):
        return [content]
    if isinstance(content, list):
        return [part["text"] for part in content if _has_text(part)]
    return []


def with_texts(content: Any, texts: Sequence[str]) -> Any:
    """Return the content with these texts in the places of its own; images and the rest stay."""
    if isinstance(content, str):
        return texts[0]
    left = iter(texts)
    return [{**part, "text": next(left)} if _has_text(part) else part for part in content]


def is_image(part: Any) -> bool:
    """Whether a part of a content holds an image or a file."""
    return isinstance(part, Mapping) and not _has_text(part)


def _has_text(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("text"), str)
