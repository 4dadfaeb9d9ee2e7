"""Answers of another form than most: several at once, spoken ones, pictures, errors without one."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from chatapp.llm import chat_wire
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.openai_client import as_model_error
from chatapp.llm.requests import ModelRequest, Reply
from chatapp.llm.streams import DONE, pieces_of
from tests.facts import seed

REQUEST = ModelRequest(messages=[{"role": "user", "content": "q"}])


def _whole(*messages: dict, order: list[int] | None = None) -> Reply:
    places = order or range(len(messages))
    choices = [
        {"index": n, "message": {"role": "assistant"} | messages[n], "finish_reason": "stop"}
        for n in places
    ]
    return chat_wire.reply_of({"choices": choices})


def _streamed(*deltas: dict, index: int = 0) -> tuple[Reply, str]:
    chunks = [{"choices": [{"index": index, "delta": one}]} for one in deltas]
    chunks.append({"choices": [{"index": index, "delta": {}, "finish_reason": "stop"}]})
    return _followed(chunks)


def _followed(chunks: list[dict]) -> tuple[Reply, str]:
    shown: list[str] = []

    def hear(name: str, payload: dict) -> None:
        if name == "delta":
            shown.append(payload["text"])

    reply = chat_wire.read_stream(chunks, REQUEST, hear, as_model_error)
    return reply, "".join(shown)


def test_of_several_answers_the_first_one_counts():
    chance = random.Random(seed())
    order = [0, 1, 2]
    chance.shuffle(order)
    texts = [{"content": f"answer {n}"} for n in range(3)]
    assert _whole(*texts, order=order).text == "answer 0"


def test_of_several_streamed_answers_the_first_one_counts():
    chance = random.Random(seed())
    chunks = [{"choices": [{"index": 0, "delta": {"role": "assistant"}}]}]
    left = {0: list("whole"), 1: list("other"), 2: list("third")}
    while any(left.values()):
        index = chance.choice([n for n, text in left.items() if text])
        said = {"content": left[index].pop(0)}
        chunks.append({"choices": [{"index": index, "delta": said}]})
    for index in (1, 0, 2):
        chunks.append({"choices": [{"index": index, "delta": {}, "finish_reason": "stop"}]})
    reply, shown = _followed(chunks)
    assert reply.text == shown == "whole"


def test_a_stream_may_begin_with_any_number():
    assert _streamed({"content": "a"}, {"content": "b"}, index=3)[0].text == "ab"


def test_what_is_spoken_is_the_text():
    audio = {"id": "a", "data": "UklGRg==", "transcript": "seven hives"}
    assert _whole({"content": None, "audio": audio}).text == "seven hives"
    pieces = [{"audio": {"id": "a", "transcript": "seven "}}, {"audio": {"transcript": "hives"}}]
    reply, shown = _streamed(*pieces, {"audio": {"data": "UklGRg=="}})
    assert reply.text == shown == "seven hives"


def test_events_without_an_empty_line_between_them_are_read():
    chance = random.Random(seed())
    words = [chance.choice(("a", "b é", "\n", "{")) for _ in range(6)]
    objects = [{"choices": [{"index": 0, "delta": {"content": word}}]} for word in words]
    text = "".join(f"event: piece\ndata: {json.dumps(one)}\n" for one in objects)
    raw = f"{text}data: [DONE]\n".encode()
    cut = chance.randrange(1, len(raw))
    found = list(pieces_of([raw[:cut], raw[cut:]]))
    assert found == [*objects, DONE]
    assert found[-1] is DONE


def test_one_object_on_several_data_lines_stays_one():
    raw = b'data: {\ndata: "a": 1\ndata: }\n\ndata: {"b": 2}\n\n'
    assert list(pieces_of([raw])) == [{"a": 1}, {"b": 2}]


WORDS = [{"choices": [{"index": 0, "delta": {"content": word}}]} for word in ("a é", "b", "\n{")]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_lines_end_in_any_of_three_ways_wherever_they_are_cut(end, pieces):
    text = "".join(f": beat{end}data: {json.dumps(one)}{end}{end}" for one in WORDS)
    raw = f"{text}data: [DONE]{end}{end}".encode()
    chance = random.Random(f"{seed()} {end!r} {pieces}")
    places = sorted({0, len(raw), *(chance.randrange(len(raw)) for _ in range(pieces))})
    # Behind each CR as well: an LF may be the first of the next chunk.
    places = sorted({*places, *(n + 1 for n, byte in enumerate(raw) if byte == 13)})
    found = list(pieces_of(raw[a:b] for a, b in itertools.pairwise(places)))
    assert found == [*WORDS, DONE]
    assert found[-1] is DONE


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\x1e"], ids=["ndjson", "json-seq"])
def test_an_object_in_a_line_of_its_own_is_a_piece(mark, end):
    raw = "".join(f"{mark}{json.dumps(one)}{end}" for one in WORDS).encode()
    cut = random.Random(seed()).randrange(1, len(raw))
    assert list(pieces_of([raw[:cut], raw[cut:]])) == WORDS


def test_an_error_that_is_written_between_the_events_is_read():
    raw = f'data: {json.dumps(WORDS[0])}\n\n{{"error": {{"message": "slow down", "code": 429}}}}\n'
    with pytest.raises(ModelError) as failure:
        chat_wire.read_stream(pieces_of([raw.encode()]), REQUEST, print, as_model_error)
    assert failure.value.kind is ErrorKind.RATE_LIMITED
    assert failure.value.partial.text == "a é"


def test_half_a_line_is_no_piece():
    raw = json.dumps(WORDS[0]).encode()
    assert list(pieces_of([raw[:-1]])) == []


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


@pytest.mark.parametrize(
    "message",
    [
        {"content": "", "images": [PICTURE]},
        {"content": None, "images": [PICTURE]},
        {"content": [PICTURE]},
    ],
)
def test_a_picture_is_an_answer(message):
    assert _whole(message).text == "[image]"
    reply, shown = _streamed(message)
    assert reply.text == shown == "[image]"
    assert not reply.is_empty


def test_words_beside_a_picture_are_the_text():
    assert _whole({"content": "Here it is.", "images": [PICTURE]}).text == "Here it is."


def test_the_form_before_there_were_messages_is_read():
    body = {"choices": [{"index": 0, "text": "hello", "finish_reason": "stop"}]}
    assert chat_wire.reply_of(body).text == "hello"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("invalid params, context window exceeds limit", ErrorKind.CONTEXT_OVERFLOW),
        ("insufficient balance", ErrorKind.QUOTA),
        ("rate limit", ErrorKind.RATE_LIMITED),
    ],
)
def test_an_error_beside_no_choices_is_understood(said, kind):
    body = {"id": "x", "choices": None, "base_resp": {"status_code": 2013, "status_msg": said}}
    for take in (chat_wire.reply_of, lambda body: _followed([body])):
        with pytest.raises(ModelError) as failure:
            take(body)
        assert failure.value.kind is kind


def test_an_answer_that_says_all_is_well_is_no_error():
    choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
    body = {"choices": [choice], "base_resp": {"status_code": 0, "status_msg": ""}}
    assert chat_wire.reply_of(body).text == "a"


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"detail": "gone"}, {"data": [1]}])
def test_a_body_without_an_answer_is_none(body):
    with pytest.raises(ModelError) as failure:
        chat_wire.reply_of(body)
    assert failure.value.kind is ErrorKind.BAD_ANSWER
