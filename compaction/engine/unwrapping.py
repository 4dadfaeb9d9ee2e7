"""A summary without what its model put around it: tags, a code fence, an object, an announcement.

Models are asked for a text alone and give it in a wrapping that they were trained on. What is
inside is the summary; the wrapping would be sent with every request, and looks like an answer to
somebody.
"""

from __future__ import annotations

import json
import re

from chatapp.messages.patterns import lazy_pattern

SUMMARY_TAG = "summary"
_TAGS = (
    SUMMARY_TAG, "conversation_summary", "working_summary", "updated_summary", "answer", "output",
    "response", "result",
)  # fmt: skip
_NOTES = ("analysis", "scratchpad", "notes", "planning")
_KEYS = frozenset({"summary", "conversation_summary", "text", "content", "output"})
_OPENING = lazy_pattern(rf"\s*<({'|'.join(_TAGS)})>", re.IGNORECASE)
_NOTES_OPENING = lazy_pattern(rf"\s*<({'|'.join(_NOTES)})>", re.IGNORECASE)
_FENCE = lazy_pattern(r"```[a-z]{0,12}[ \t]*\n", re.IGNORECASE)
_FENCE_END = "\n```"
# A line of its own that says what follows, and nothing of it.
_ANNOUNCEMENT = lazy_pattern(
    r"(?:(?:sure|certainly|of course|okay|ok|got it|understood|absolutely)[!,.] ?)?"
    r"(?:here(?: is|'s|’s) (?:the|a|your|my)|below is (?:the|a)|this is (?:the|a)|以下是|这是"
    r"|好的，以下是)"
    r"[^\n:：]{0,80}(?:summary|summaries|总结|摘要)[^\n:：]{0,80}[:：][ \t]*\n",
    re.IGNORECASE,
)
MOST_LAYERS = 4
"""An announcement, notes, tags and a fence; what is wrapped in more is told as it is."""


def unwrapped(text: str) -> str:
    """Return the text inside its wrappings; the text itself where it has none, or only those."""
    inner = text.strip()
    for _ in range(MOST_LAYERS):
        found = _without_one(inner)
        if not found or found == inner:
            break
        inner = found
    return inner


def without_tags(text: str, tag: str = SUMMARY_TAG) -> str:
    """Return a text without the tags around it, with or without the other one of the pair."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    if (inner := text.lstrip())[: len(opening)].casefold() == opening:
        text = inner[len(opening) :].lstrip()
    if (inner := text.rstrip())[-len(closing) :].casefold() == closing:
        text = inner[: -len(closing)].rstrip()
    return text


def _without_one(text: str) -> str:
    """Return a text without its outermost wrapping."""
    if found := _ANNOUNCEMENT.match(text):
        return text[found.end() :].strip()
    if (found := _NOTES_OPENING.match(text)) and not _is_all(text, found[1]):
        _, _, behind = text.partition(_end_of(text, found[1]))
        return behind.strip()
    if found := _OPENING.match(text):
        return without_tags(text, found[1].casefold()).strip()
    if (found := _FENCE.match(text)) and text.endswith(_FENCE_END) and text.count("```") == 2:
        return text[found.end() : -len(_FENCE_END)].strip()
    return _told_by(text) if text.startswith("{") else text


def _end_of(text: str, tag: str) -> str:
    """Return the closing tag as it stands in the text."""
    place = text.casefold().find(f"</{tag.casefold()}>")
    return text[place : place + len(tag) + 3] if place >= 0 else ""


def _is_all(text: str, tag: str) -> bool:
    """Whether nothing stands behind the notes, or they are not closed."""
    end = _end_of(text, tag)
    return not end or not text.partition(end)[2].strip()


def _told_by(text: str) -> str:
    """Return the one text that an object holds under a name for it; else the text itself."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(value, dict) or len(value) != 1:
        return text
    (name, told), *_ = value.items()
    return told if name.casefold() in _KEYS and isinstance(told, str) else text
