"""Which answers of a summariser count (DESIGN.md, rule 4).

An empty answer, one that was cut off, a tool call or an error's text is no summary. Reasoning never
stands in for one (B15).
"""

from __future__ import annotations

import re

from compaction.engine.types import SummaryAnswer

# Ends that mean: the text stops because something cut it off.
CUT_OFF = frozenset({"length", "max_tokens", "model_length", "incomplete"})
_REFUSED_ENDS = frozenset({"content_filter", "error", "failed", "aborted"})
_ERROR_TEXT = re.compile(
    r"^\s*(?:\{\s*\"error\"|error(?: code)?\s*[:：]|<!doctype html|<html|traceback \(most recent|"
    r"internal server error|bad gateway|service unavailable|upstream connect error)",
    re.IGNORECASE,
)
_ASKS_FOR_INPUT = re.compile(
    r"^\W*(?:please|could you|sorry,? (?:but )?|i(?:'m| am) sorry)[^.\n]{0,60}"
    r"(?:provide|share|paste|send|see)[^.\n]{0,40}(?:conversation|transcript|messages|text)",
    re.IGNORECASE,
)
_SHORT = 400


def problem_of(answer: SummaryAnswer) -> str:
    """Return why an answer is no summary, as a sentence; empty when it counts.

    An answer that was cut off is not judged here: see `is_cut_off`.
    """
    if answer.has_tool_calls:
        return "The summariser asked for a tool instead of writing a summary."
    if not answer.text.strip():
        return "The summariser answered with an empty text."
    if answer.finish_reason in _REFUSED_ENDS:
        return f"The summariser stopped with {answer.finish_reason}."
    if len(answer.text) < _SHORT and _ERROR_TEXT.search(answer.text):
        return "The summariser answered with the text of an error."
    if len(answer.text) < _SHORT and _ASKS_FOR_INPUT.search(answer.text):
        return "The summariser asked for the conversation instead of summarising it."
    return ""


def is_cut_off(answer: SummaryAnswer) -> bool:
    """Whether the answer ends because its room was used up (B17)."""
    return answer.finish_reason in CUT_OFF


def does_not_shrink(before: int, after: int) -> str:
    """Return why a summary of `after` tokens may not replace `before` tokens; empty when it may."""
    if after < before:
        return ""
    return f"The summary ({after} tokens) is not smaller than what it replaces ({before} tokens)."
