"""Answers in pieces over HTTP, in every form that servers send them in, asked for or not."""

from __future__ import annotations

import json

import pytest

from chatapp.llm import openai_client
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.registry import all_models
from chatapp.llm.requests import ModelRequest, Reply
from tests.factories import user
from tests.fakes.model_server import ModelServer

PIECES = [
    {"choices": [{"index": 0, "delta": {"content": "seven "}}]},
    {"choices": [{"index": 0, "delta": {"content": "hives"}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
]
LINES = "".join(f"{json.dumps(one)}\n" for one in PIECES)
RECORDS = "".join(f"\x1e{json.dumps(one)}\n" for one in PIECES)
EVENTS = "".join(f"data: {json.dumps(one)}\n\n" for one in PIECES) + "data: [DONE]\n\n"
FORMS = {
    "events": ("text/event-stream", EVENTS),
    "events of CR alone": ("text/event-stream", EVENTS.replace("\n", "\r")),
    "events under a name of none": ("application/octet-stream", EVENTS),
    "events under the name of a whole": ("application/json", EVENTS),
    "ndjson": ("application/x-ndjson", LINES),
    "jsonl": ("application/jsonl; charset=utf-8", LINES),
    "json-seq": ("application/json-seq", RECORDS),
    "lines under the name of a whole": ("application/json", LINES),
    "lines under the name of events": ("text/event-stream", LINES),
}


@pytest.fixture
def ask(use_models, monkeypatch):
    """Return what asks a server that answers with one body: the Reply, and the text as told."""
    monkeypatch.setattr(openai_client, "MAX_ATTEMPTS", 1)

    def asked(kind: str, body: str, *, stream: bool, length: int = 0) -> tuple[Reply, str]:
        headers = {"Content-Type": kind} | ({"Content-Length": str(length)} if length else {})
        answer = {"status": 200, "body": body, "headers": headers}
        with ModelServer([{"when": {}, "reply": {"error": answer}}]) as server:
            use_models(server.models())
            told: list[str] = []

            def hear(name: str, payload: dict) -> None:
                if name == "delta":
                    told.append(payload["text"])

            request = ModelRequest(messages=[user("how many?")], stream=stream)
            reply = all_models()["default"].connect().complete(request, hear)
            return reply, "".join(told)

    return asked


@pytest.mark.parametrize("stream", [True, False], ids=["asked for", "not asked for"])
@pytest.mark.parametrize("form", FORMS)
def test_pieces_are_read_in_every_form(ask, form, stream):
    reply, told = ask(*FORMS[form], stream=stream)
    assert (reply.text, reply.finish_reason) == ("seven hives", "stop")
    assert told == "seven hives"


@pytest.mark.parametrize("form", FORMS)
def test_pieces_that_lack_their_end_are_no_whole_answer(ask, form):
    kind, body = FORMS[form]
    mark = '"delta": {}'
    with pytest.raises(ModelError) as failure:
        ask(kind, body[: body.index(mark)], stream=True)
    assert failure.value.kind is ErrorKind.BROKEN_ANSWER
    assert failure.value.partial.text == "seven hives"


CUT = "The model's answer broke off, or was one that its own server could not use"


@pytest.mark.parametrize("kind", ["text/event-stream", "application/x-ndjson"])
def test_a_connection_that_is_lost_in_an_answer_is_no_server_that_cannot_be_reached(ask, kind):
    form = next(body for name, body in FORMS.values() if name == kind)
    with pytest.raises(ModelError) as failure:
        # The body is shorter than its header says.
        ask(kind, form[: form.index('"delta": {}')], stream=True, length=len(form))
    assert failure.value.kind is ErrorKind.BROKEN_ANSWER
    assert failure.value.sentence.startswith(CUT)
    assert failure.value.partial.text == "seven hives"


def test_a_whole_answer_of_which_half_comes_is_a_broken_one(ask):
    body = json.dumps({"choices": [{"message": {"content": "seven hives"}}]})
    with pytest.raises(ModelError) as failure:
        ask("application/json", body[:-20], stream=False, length=len(body))
    assert failure.value.kind is ErrorKind.BROKEN_ANSWER


@pytest.mark.parametrize("at", [0, 1])
def test_an_error_without_a_meaning_is_of_the_answer_where_one_has_begun(ask, at):
    events = [f"data: {json.dumps(one)}\n\n" for one in PIECES[:1]]
    events.insert(at, 'data: {"error": {"message": "boom"}}\n\n')
    with pytest.raises(ModelError) as failure:
        ask("text/event-stream", "".join(events), stream=True)
    expected = ErrorKind.BROKEN_ANSWER if at else ErrorKind.REJECTED
    assert (failure.value.kind, failure.value.detail) == (expected, "boom")


def test_what_is_neither_pieces_nor_a_whole_cannot_be_read(ask):
    for stream in (True, False):
        with pytest.raises(ModelError) as failure:
            ask("application/json", '{"choices": [{"message"', stream=stream)
        assert failure.value.kind is ErrorKind.BAD_ANSWER


def _spoiled(one: dict, change) -> str:
    return f"data: {json.dumps(change(one))}\n\n"


# What a healthy stream looks like behind gateways that write their events by hand.
ODD_STREAMS = {
    "events glued in one line": EVENTS.replace("\n\ndata: {", "data: {"),
    "objects glued in one event": EVENTS.replace("\n\ndata: {", " {"),
    "a line each and no empty one": EVENTS.replace("\n\n", "\n"),
    "the end glued to the last": EVENTS.replace("\n\ndata: [DONE]", "data: [DONE]"),
    **{
        f"pieces inside of {name}": "".join(_spoiled(one, change) for one in PIECES)
        for name, change in {
            "chunk": lambda one: {"chunk": one},
            "data": lambda one: {"id": 7, "data": one},
            "a list of one": lambda one: {"response": [one]},
            "a list alone": lambda one: [one],
        }.items()
    },
    **{
        f"error: {error!r} in each": "".join(
            _spoiled(one, lambda piece, error=error: {**piece, "error": error}) for one in PIECES
        )
        for error in (None, {}, "", False, [], {"code": None, "message": ""}, {"code": 0})
    },
}


@pytest.mark.parametrize("form", ODD_STREAMS)
def test_what_gateways_do_to_a_stream_takes_nothing_of_it(ask, form):
    reply, told = ask("text/event-stream", ODD_STREAMS[form], stream=True)
    assert (reply.text, reply.finish_reason, told) == ("seven hives", "stop", "seven hives")


@pytest.mark.parametrize("said", ["seven\thives", "seven\nhives", "seven\n\n\nhives\n", "a\r\nb"])
@pytest.mark.parametrize("stream", [True, False])
def test_tabs_and_line_ends_that_nobody_escaped_stay_in_the_text(ask, said, stream):
    key = "delta" if stream else "message"
    answer = {"choices": [{"index": 0, key: {"content": "TEXT"}, "finish_reason": "stop"}]}
    body = json.dumps(answer).replace("TEXT", said)
    kind = "text/event-stream" if stream else "application/json"
    reply, _ = ask(kind, f"data: {body}\n\ndata: [DONE]\n\n" if stream else body, stream=stream)
    # A line of a stream ends in any of three ways.
    assert reply.text == (said.replace("\r\n", "\n") if stream else said)


def test_a_text_that_breaks_off_swallows_no_event_behind_it(ask):
    broken = EVENTS.replace('hives"}}]}', "hives")
    with pytest.raises(ModelError) as failure:
        ask("text/event-stream", broken, stream=True)
    assert failure.value.kind is ErrorKind.BROKEN_ANSWER
    assert failure.value.partial.text == "seven "


@pytest.mark.parametrize("reasons", [["length", "stop"], ["content_filter", "STOP"], ["", "stop"]])
def test_a_plain_stop_takes_no_other_end_back(ask, reasons):
    ends = [{"choices": [{"index": 0, "delta": {}, "finish_reason": one}]} for one in reasons]
    body = "".join(f"data: {json.dumps(one)}\n\n" for one in [*PIECES[:2], *ends])
    reply, _ = ask("text/event-stream", body, stream=True)
    assert (reply.text, reply.finish_reason) == ("seven hives", reasons[0] or "stop")


@pytest.mark.parametrize("told", [None, "", "stop", "length"])
def test_the_models_own_word_counts_where_the_gateway_has_none(ask, told):
    end = {"index": 0, "delta": {}, "finish_reason": told, "native_finish_reason": "MAX_TOKENS"}
    pieces = [*PIECES[:2], {"choices": [end]}]
    body = "".join(f"data: {json.dumps(one)}\n\n" for one in pieces)
    reply, _ = ask("text/event-stream", body, stream=True)
    assert reply.finish_reason == (told or "MAX_TOKENS")


@pytest.mark.parametrize("cut", range(1, 4))
def test_a_character_that_is_cut_into_halves_is_whole_in_text_and_pieces(ask, cut):
    halves = ["a \ud83d", "\ude00 b \ud83d", "\ude80"][:cut]
    pieces = [{"choices": [{"index": 0, "delta": {"content": one}}]} for one in halves]
    body = "".join(f"data: {json.dumps(one)}\n\n" for one in [*pieces, PIECES[-1]])
    reply, told = ask("text/event-stream", body, stream=True)
    whole = {1: "a \ud83d", 2: "a 😀 b \ud83d", 3: "a 😀 b 🚀"}[cut]
    assert (reply.text, told) == (whole, whole)


PAGE = "<html><head><title>Log in</title></head>\n<body>Please log in to the network.</body></html>"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", ["text/html", "text/plain", "text/event-stream"])
def test_a_page_of_words_is_told_in_its_words(ask, kind, stream):
    with pytest.raises(ModelError) as failure:
        ask(kind, PAGE, stream=stream)
    assert failure.value.kind is ErrorKind.BAD_ANSWER
    assert "log in" in failure.value.detail.lower()
    with pytest.raises(ModelError) as failure:
        ask(kind, "upstream connect error or disconnect: 503 service unavailable", stream=stream)
    assert failure.value.kind is ErrorKind.UNAVAILABLE
