"""Tool results that are cut outside the recovery: before they are stored, and for one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chatapp.messages.wire import texts_of, with_texts
from compaction.conf import compaction_settings
from compaction.engine.tool_results import ResultLimits, cut_blocks, sent_marker, store_blocks

_KEEP = ResultLimits().min_keep_chars


def guarded(message: dict[str, Any]) -> dict[str, Any]:
    """Return a tool's message as it is stored: cut where it is longer than a row should be.

    The whole text is kept beside the row (chatapp.models.MessageOriginal).
    """
    limit = compaction_settings.stored_result_chars
    before = texts_of(message.get("content"))
    if not limit or sum(map(len, before)) <= limit:
        return message
    return _replaced(message, before, store_blocks(before, limit, min_keep=_KEEP))


def cut_for_sending(message: dict[str, Any], limit: int) -> dict[str, Any]:
    """Return a tool's message with at most `limit` characters of text for one request."""
    before = texts_of(message.get("content"))
    return _replaced(message, before, cut_blocks(before, limit, min_keep=0, marker=sent_marker))


def _replaced(
    message: dict[str, Any], before: Sequence[str], after: Sequence[str]
) -> dict[str, Any]:
    if sum(map(len, after)) >= sum(map(len, before)):
        return message
    return {**message, "content": with_texts(message["content"], after)}
