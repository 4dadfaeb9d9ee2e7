"""What a turn does about each kind of refusal, through a real server."""

from __future__ import annotations

import json

import pytest

from chatapp.models import Incident, LearnedLimits, Message, Session
from chatapp.turns.adaptations import IMAGE_LEFT_OUT
from chatapp.turns.service import Turn, TurnFailedError, run_turn
from tests.factories import SessionFactory, call, result, store, talk, user
from tests.facts import code
from tests.fakes.model_server import text_of
from tests.fakes.strict_checker import faults

PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def refused(status: int, **error) -> dict:
    return {"error": {"status": status, "body": {"error": error}}}


TOO_MANY_BYTES = refused(413, type="request_too_large", message="Request exceeds the maximum size")
NO_OUTPUT = refused(
    400,
    code="invalid_value",
    message="max_tokens is too large: 1024. This model supports at most 256 completion tokens",
)
UNPAIRED = refused(
    400, message="An assistant message with 'tool_calls' must be followed by tool messages"
)
TOO_LONG = refused(
    400,
    code="string_above_max_length",
    param="messages[2].content",
    message="Invalid 'messages[2].content': string too long. Expected a string with maximum length "
    "300, but got a string with length 1200 instead.",
)
BUSY = {
    "error": {
        "status": 429,
        "headers": {"Retry-After": "0.01"},
        "body": {"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}},
    }
}


@pytest.fixture
def session(owner, queued) -> Session:
    return SessionFactory(owner=owner)


def first(*replies: dict) -> list[dict]:
    """A script whose first chat calls get these replies and all later ones an answer."""
    rules = [
        {"when": {"purpose": "chat", "call": number}, "reply": reply}
        for number, reply in enumerate(replies, 1)
    ]
    return [*rules, {"when": {}, "reply": {"text": "answered"}}]


def say(session: Session, *wires: dict, **turn) -> str:
    store(session, wires)
    return run_turn(Turn(session=session, **turn)).answer.content


def images_in(messages) -> int:
    return json.dumps(messages).count('"image_url": {"url"')


def codes(kind: str) -> list[str]:
    return list(
        Incident.objects.filter(kind=kind).order_by("created_at").values_list("code", flat=True)
    )


def test_an_output_that_is_too_large_is_lowered_to_what_the_server_allows(session, model_server):
    model_server.script = first(NO_OUTPUT)
    assert say(session, user("hello")) == "answered"
    assert [called.body["max_tokens"] for called in model_server.calls] == [1024, 256]


def test_the_longest_answer_is_remembered_for_the_next_turn(session, model_server):
    model_server.script = first(NO_OUTPUT)
    say(session, user("hello"))
    say(session, user("again"))
    assert model_server.calls[-1].body["max_tokens"] == 256
    assert LearnedLimits.objects.get().max_output == 256


def test_an_output_limit_without_a_number_is_halved(session, model_server):
    reply = refused(
        400, message="max_tokens is larger than the maximum allowed number of output tokens"
    )
    model_server.script = first(reply, reply)
    assert say(session, user("hello")) == "answered"
    assert [called.body["max_tokens"] for called in model_server.calls] == [1024, 512, 256]


def test_too_many_bytes_drop_the_older_images_first_and_never_the_questions(session, model_server):
    old = [
        {"role": "user", "content": [{"type": "text", "text": f"look {n}"}, PIXEL]}
        for n in range(3)
    ]
    asked = {"role": "user", "content": [{"type": "text", "text": "and this?"}, PIXEL]}
    model_server.script = first(TOO_MANY_BYTES, TOO_MANY_BYTES)
    assert say(session, *old, asked) == "answered"
    assert [images_in(called.messages) for called in model_server.calls] == [4, 2, 1]
    second = model_server.calls[1].messages
    assert [IMAGE_LEFT_OUT in text_of(message) for message in second[:3]] == [True, True, False]
    assert model_server.calls[-1].messages[-1] == asked
    assert images_in([row.wire() for row in Message.objects.filter(session=session)]) == 4


def test_calls_that_the_server_finds_broken_are_sent_as_text_once(session, model_server):
    model_server.script = first(UNPAIRED)
    history = [user("go"), call("run", "c1", '{"a":1}'), result("c1", f"{code(1)} found")]
    assert say(session, *history) == "answered"
    messages = model_server.calls[1].messages
    assert not any(message.get("tool_calls") or message["role"] == "tool" for message in messages)
    assert f"{code(1)} found" in text_of(messages[-1])
    assert 'run with {"a":1}' in text_of(messages[-2])
    assert faults(messages) == []


def test_pairs_that_stay_broken_end_the_turn_with_a_sentence(session, model_server):
    model_server.script = [{"when": {}, "reply": UNPAIRED}]
    with pytest.raises(TurnFailedError):
        say(session, user("go"), call("run", "c1"), result("c1"))
    # As it is, with the calls as text, and as one text.
    assert len(model_server.calls) == 3


def test_a_tool_result_that_is_too_long_is_cut_to_what_the_server_takes(session, model_server):
    model_server.script = first(TOO_LONG)
    history = [user("go"), call("run", "c1"), result("c1", "line\n" * 240)]
    assert say(session, *history) == "answered"
    cut = text_of(model_server.calls[1].messages[2])
    assert len(cut) <= 300
    assert "truncated" in cut
    assert Message.objects.get(session=session, role="tool").content == "line\n" * 240


def test_another_message_that_is_too_long_is_named(session, model_server):
    model_server.script = [{"when": {}, "reply": TOO_LONG}]
    with pytest.raises(TurnFailedError, match=r"300 characters.*message 3 \(user\)"):
        say(session, *talk(1), user("x" * 1200))
    assert len(model_server.calls) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_wait_for_a_busy_server_is_told_and_noted(session, model_server, stream):
    model_server.script = first(BUSY)
    told: list[tuple[str, dict]] = []
    answer = say(session, user("hello"), stream=stream, emit=lambda *news: told.append(news))
    assert answer == "answered"
    (retry,) = [payload for name, payload in told if name == "retry"]
    assert (retry["code"], retry["attempt"]) == ("rate_limited", 1)
    incident = Incident.objects.get()
    assert (incident.kind, incident.code) == ("retry", "rate_limited")
    assert incident.details["attempt"] == 1


def test_a_change_is_told_and_noted_with_the_servers_words(session, model_server):
    model_server.script = first(NO_OUTPUT)
    told: list[tuple[str, dict]] = []
    say(session, user("hello"), emit=lambda *news: told.append(news))
    assert [payload["code"] for name, payload in told if name == "change"] == ["output_lowered"]
    incident = Incident.objects.get()
    assert (incident.kind, incident.code) == ("change", "output_lowered")
    assert "supports at most 256" in incident.details["said"]


def test_a_turn_that_fails_is_noted_with_its_sentence(session, model_server):
    model_server.script = [
        {"when": {}, "reply": refused(401, message="no", code="invalid_api_key")}
    ]
    with pytest.raises(TurnFailedError) as failure:
        say(session, user("hello"))
    incident = Incident.objects.get()
    assert (incident.kind, incident.code) == ("error", "authentication")
    assert incident.text == str(failure.value)


def test_an_incident_never_quotes_the_conversation(session, model_server):
    model_server.script = [{"when": {}, "reply": refused(400, message="Unsupported value")}]
    with pytest.raises(TurnFailedError):
        say(session, user(f"{code(777)} my secret"))
    stored = Incident.objects.get()
    assert code(777) not in f"{stored.text}{stored.details}"


def usage(prompt: int) -> dict:
    return {"prompt_tokens": prompt, "completion_tokens": 1, "total_tokens": prompt + 1}


def test_a_server_that_truncates_silently_is_warned_of_once_a_session(session, model_server):
    model_server.script = [{"when": {}, "reply": {"text": "answered", "usage": usage(1026)}}]
    store(session, talk(8, words=200))
    assert say(session, user("hello")) == "answered"
    assert say(session, user("again")) == "answered"
    assert codes("warning") == ["truncated_silently"]
    assert not LearnedLimits.objects.exists()


def test_a_report_that_fits_the_count_warns_of_nothing(session, model_server):
    model_server.script = [{"when": {}, "reply": {"text": "answered", "usage": usage(12)}}]
    say(session, user("hello"))
    assert codes("warning") == []


def test_nothing_is_asked_twice_when_a_backend_finds_nothing_smaller(session, model_server):
    model_server.script = [{"when": {}, "reply": refused(400, code="context_length_exceeded")}]
    with pytest.raises(TurnFailedError):
        say(session, user("hello"))
    assert len(model_server.calls) == 1


def test_what_was_streamed_of_a_refused_answer_is_taken_back(session, model_server):
    broken = {
        "chunks": ["AAA "],
        "fail_after": 1,
        "stream_error": {
            "message": "max_tokens is too "
            "large: 1024. This model supports at most 256 completion tokens"
        },
    }
    model_server.script = first(broken | {"chunks": ["AAA ", "BBB"]})
    told: list[str] = []
    answer = say(session, user("hello"), stream=True, emit=lambda name, payload: told.append(name))
    assert answer == "answered"
    assert told.index("delta") < told.index("reset") < len(told) - 1


def test_a_stream_that_ends_in_an_error_takes_nothing_back(session, model_server):
    broken = {"chunks": ["AAA ", "BBB"], "fail_after": 1, "stream_error": {"message": "no"}}
    model_server.script = [{"when": {}, "reply": broken}]
    told: list[str] = []
    with pytest.raises(TurnFailedError):
        say(session, user("hello"), stream=True, emit=lambda name, payload: told.append(name))
    assert "reset" not in told


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_of_nothing_is_no_answer(session, model_server, stream):
    model_server.script = [{"when": {}, "reply": {"text": ""}}]
    with pytest.raises(TurnFailedError, match=r"neither text nor .* reason stop"):
        say(session, user("hello"), stream=stream)


THOUGHTS = {"reasoning": "hm", "deltas": [{"reasoning_content": "hm"}]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reply", [THOUGHTS, {"chunks": ["<think>hm", "</think>"]}])
def test_an_answer_of_thoughts_alone_says_what_took_the_rest(session, model_server, reply, stream):
    model_server.script = [{"when": {}, "reply": {"text": ""} | reply}]
    with pytest.raises(TurnFailedError, match=r"The model thought, .* reasoning parser"):
        say(session, user("hello"), stream=stream)
    assert [message.role for message in session.messages.all()] == ["user"]
    model_server.script = [{"when": {}, "reply": {"text": "there", "reasoning": "hm"}}]
    assert say(session, user("again"), stream=stream) == "there"


HUGE = 10**400


@pytest.mark.parametrize(
    "error",
    [
        {"type": "exceed_context_size_error", "n_prompt_tokens": 10**20, "n_ctx": 10**20},
        {"type": "exceed_context_size_error", "n_prompt_tokens": HUGE, "n_ctx": -HUGE},
        {"message": "prompt is too long: 999999999999999m tokens > 200000 maximum"},
        {"code": "string_above_max_length", "param": f"messages[{'9' * 5000}].content"},
        {"code": "rate_limit_exceeded", "message": f"try again in {'9' * 5000}m{'9' * 5000}s"},
    ],
    ids=["beyond a column", "beyond a float", "beyond sense", "index", "wait"],
)
def test_monstrous_numbers_end_in_a_sentence(session, model_server, error):
    model_server.script = [{"when": {}, "reply": refused(400, **error)}]
    store(session, talk(6))
    with pytest.raises(TurnFailedError):
        say(session, user("hello"))
    assert not LearnedLimits.objects.exclude(tokens_per_count=None).exists()


@pytest.mark.parametrize("count", [HUGE, -1, 1.5e300, "many", True, None])
def test_a_monstrous_report_does_no_harm(session, model_server, count):
    report = {"prompt_tokens": count, "completion_tokens": count, "total_tokens": count}
    model_server.script = [{"when": {}, "reply": {"text": "answered", "usage": report}}]
    assert say(session, user("hello")) == "answered"
    assert say(session, user("again")) == "answered"


def test_a_result_that_is_too_long_is_halved_where_no_number_is_named(session, model_server):
    unnamed = refused(
        400, code="string_above_max_length", param="messages[2].content", message="string too long"
    )
    model_server.script = first(unnamed, unnamed)
    assert say(session, user("go"), call("run", "c1"), result("c1", "x" * 4000)) == "answered"
    sizes = [len(text_of(called.messages[2])) for called in model_server.calls]
    assert sizes[0] == 4000
    assert sizes[1] <= 2000
    assert sizes[2] <= 1000


def test_a_session_remembers_that_its_server_takes_texts_only(session, model_server, api):
    parts = refused(400, message="messages[0].content must be a string")
    asked = {"role": "user", "content": [{"type": "text", "text": "look"}, PIXEL]}
    model_server.script = first(parts)
    assert say(session, asked) == "answered"
    assert Session.objects.get().plain_text
    say(Session.objects.get(), user("again"))
    assert len(model_server.calls) == 3
    assert model_server.calls[2].messages[0]["content"] == "look\n[image not sent]"
    url = f"/api/v1/sessions/{session.pk}/"
    assert api.patch(url, {"plain_text": False}, format="json").data["plain_text"] is False
