"""The kinds of errors: sentences, reactions, and the wordings an operator adds."""

from __future__ import annotations

import re

import pytest

from chatapp.llm.errors import ErrorKind, ModelError, Reaction, from_body


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_every_kind_has_sentences_that_say_what_to_do(kind):
    sentence = ModelError(kind).sentence
    assert len(re.findall(r"\.(?: |$)", sentence)) >= 2
    assert sentence.endswith(".")


def test_an_errors_text_can_be_stored_whatever_a_server_sent():
    assert ModelError(ErrorKind.REJECTED, "a\x00b\ud83d").detail == "a\ufffdb\ufffd"


def test_a_kinds_value_is_its_name_but_for_the_one_that_needs_more_words():
    odd = {kind: kind.value for kind in ErrorKind if kind.value != kind.name.lower()}
    assert odd == {ErrorKind.REQUEST_OVER_RATE: "request_over_rate_limit"}


def kinds_with(reaction: Reaction) -> set[ErrorKind]:
    return {kind for kind in ErrorKind if ModelError(kind).reaction is reaction}


def test_only_what_may_pass_is_temporary():
    temporary = {kind for kind in ErrorKind if ModelError(kind).is_temporary}
    assert temporary == {
        ErrorKind.RATE_LIMITED,
        ErrorKind.UNAVAILABLE,
        ErrorKind.TIMEOUT,
        ErrorKind.BROKEN_ANSWER,
    }
    assert temporary == kinds_with(Reaction.WAIT)


def test_only_what_less_conversation_would_help_is_an_overflow():
    overflows = {kind for kind in ErrorKind if ModelError(kind).is_overflow}
    assert overflows == {
        ErrorKind.CONTEXT_OVERFLOW,
        ErrorKind.REQUEST_OVER_RATE,
        ErrorKind.TOO_MANY_MESSAGES,
    }


def test_every_other_cure_belongs_to_one_kind():
    assert kinds_with(Reaction.LOWER_OUTPUT) == {ErrorKind.OUTPUT_LIMIT}
    assert kinds_with(Reaction.CUT_MESSAGE) == {ErrorKind.MESSAGE_TOO_LONG}
    assert kinds_with(Reaction.DROP_IMAGES) == {ErrorKind.BODY_TOO_LARGE}
    assert kinds_with(Reaction.GO_STATELESS) == {ErrorKind.STATE_LOST}


@pytest.fixture
def wordings(settings):
    """Set CHATAPP's OVERFLOW_WORDINGS for one test."""

    def replace(*fragments: str) -> None:
        settings.CHATAPP = settings.CHATAPP | {"OVERFLOW_WORDINGS": fragments}

    return replace


def test_a_wording_added_in_the_settings_is_an_overflow(wordings):
    message = "Das Gespräch ist ZU LANG (9001 Tokens)."
    assert from_body(message, status=400).kind is ErrorKind.REJECTED
    wordings("zu lang")
    assert from_body(message, status=400).kind is ErrorKind.CONTEXT_OVERFLOW


def test_a_code_added_in_the_settings_is_an_overflow(wordings):
    wordings("E-4711")
    body = {"error": {"message": "No.", "code": "e-4711"}}
    assert from_body(body, status=400).kind is ErrorKind.CONTEXT_OVERFLOW


@pytest.mark.parametrize(
    ("status", "message"), [(429, "zu lang"), (400, "zu lang: 30000 tokens per minute")]
)
def test_a_rate_limit_stays_one_whatever_the_settings_say(wordings, status, message):
    wordings("zu lang")
    assert from_body(message, status=status).kind is ErrorKind.RATE_LIMITED


def test_a_wording_that_was_set_without_its_tuple_is_one_wording(settings):
    settings.CHATAPP = settings.CHATAPP | {"OVERFLOW_WORDINGS": "zu lang"}
    assert from_body("zu kurz", status=400).kind is ErrorKind.REJECTED
    assert from_body("zu lang", status=400).kind is ErrorKind.CONTEXT_OVERFLOW


def test_an_empty_wording_matches_nothing(wordings):
    wordings("", "  ")
    assert from_body("No.", status=400).kind is ErrorKind.REJECTED
