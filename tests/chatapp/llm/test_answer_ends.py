"""The end of an answer, read from any server's word for it."""

from __future__ import annotations

import pytest

from chatapp.llm.answer_ends import AnswerEnd, end_of

WORDS = {
    AnswerEnd.WHOLE: ("stop", "STOP", "eos", "eos_token", "end_turn", "stop_sequence", "Stop"),
    AnswerEnd.CUT: (
        "length",
        "LENGTH",
        "MAX_TOKENS",
        "maxPredictedTokensReached",
        "max_output_tokens",
        "model_length",
        "max-new-tokens",
        "model_context_window_exceeded",
        "FINISH_REASON_MAX_TOKENS",
    ),
    AnswerEnd.FILTERED: (
        "content_filter",
        "SAFETY",
        "RECITATION",
        "PROHIBITED_CONTENT",
        "content-filtered",
        "guardrail_intervened",
    ),
    AnswerEnd.REFUSED: ("refusal", "REFUSAL", "refused", "model_refusal", "Refuse"),
    AnswerEnd.TOOL_CALLS: ("tool_calls", "tool_use", "function_call", "toolCalls", "TOOL_CALL"),
    AnswerEnd.BROKEN: (
        "error",
        "interrupted",
        "cancelled",
        "canceled",
        "MALFORMED_FUNCTION_CALL",
        "network_error",
        "abort",
        "insufficient_system_resource",
    ),
    AnswerEnd.UNKNOWN: ("", "   ", "OTHER", "7", "null", "x" * 1_000_000),
}


@pytest.mark.parametrize(("end", "word"), [(end, word) for end in WORDS for word in WORDS[end]])
def test_a_word_for_an_end_is_read_in_any_spelling(end, word):
    assert end_of(word) is end
