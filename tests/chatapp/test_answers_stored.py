"""What a turn stores of an answer, and what of it goes back to the server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.urls import reverse

from chatapp.exports import conversation_of, export_sessions
from chatapp.formats.registry import all_exports
from chatapp.llm import openai_client
from chatapp.llm.errors import ErrorKind
from chatapp.models import Incident, Message, Session
from chatapp.transcript import append
from chatapp.transcript.writing import NewMessage
from chatapp.turns.service import Turn, TurnFailedError, begin_turn, finish_turn, run_turn
from tests.factories import SessionFactory, result, store, talk

pytestmark = pytest.mark.django_db

SIGNATURE = {"google": {"thought_signature": "U0lH"}}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "search", "arguments": '{"q": "a"}'},
    "extra_content": SIGNATURE,
}


@pytest.fixture(autouse=True)
def full_history(settings, queued, monkeypatch):
    monkeypatch.setattr(openai_client, "FIRST_WAIT_SECONDS", 0.01)
    settings.CHATAPP = settings.CHATAPP | {
        "CONTEXT": {"BACKEND": "chatapp.context.backend.FullHistoryBackend", "OPTIONS": {}}
    }


@pytest.fixture
def session(owner, model_server) -> Session:
    return SessionFactory(owner=owner)


def say(session: Session, *texts: str, **arguments: Any) -> Message:
    drafts = [NewMessage(wire={"role": "user", "content": text}) for text in texts]
    return run_turn(Turn(session=session, drafts=drafts, **arguments)).answer


def body(message: dict[str, Any], finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant"} | message, "finish_reason": finish}
    return {"raw": {"id": "c", "model": "m", "choices": [choice]} | more}


def script(model_server, *replies: dict[str, Any]) -> None:
    """Answer with these in order; the last one repeats."""
    model_server.script = [
        {"when": {"call": number}, "reply": reply} for number, reply in enumerate(replies, 1)
    ] + [{"when": {}, "reply": replies[-1]}]


def sent(model_server) -> list[dict[str, Any]]:
    return list(model_server.calls[-1].body["messages"])


def texts(session: Session) -> list[str | None]:
    rows = Message.objects.filter(session=session).order_by("position")
    return [row.content for row in rows]


@pytest.mark.parametrize("text", ["\n\n", "  ", "\u200b", "<think>only thoughts", ""])
def test_an_answer_that_shows_nothing_is_not_stored(session, model_server, text):
    script(model_server, body({"content": text}))
    with pytest.raises(TurnFailedError) as raised:
        say(session, "q")
    assert raised.value.error.kind is ErrorKind.BAD_ANSWER
    assert texts(session) == ["q"]


@pytest.mark.parametrize("reason", ["content_filter", "SAFETY", "refusal", "PROHIBITED_CONTENT"])
def test_an_answer_that_was_taken_away_is_told_as_such(session, model_server, reason):
    script(model_server, body({"content": None}, reason))
    with pytest.raises(TurnFailedError) as raised:
        say(session, "q")
    assert raised.value.error.kind is ErrorKind.CONTENT_FILTER
    assert len(model_server.calls) == 1


def test_thoughts_are_stored_beside_the_text_and_not_sent_again(session, model_server):
    script(model_server, body({"content": "<think>hm</think>\nHello"}))
    answer = say(session, "q")
    assert (answer.content, answer.reasoning) == ("Hello", "hm")
    say(session, "more")
    assert "hm" not in json.dumps(sent(model_server))


def test_half_a_streamed_answer_is_interrupted_and_half_a_call_is_none(session, model_server):
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a'}}
    pieces = [{"content": "half"}, {"tool_calls": [call]}]
    events = [{"choices": [{"index": 0, "delta": one}]} for one in pieces]
    script(model_server, {"events": events})
    with pytest.raises(TurnFailedError):
        say(session, "q", stream=True)
    row = Message.objects.get(role="assistant")
    assert (row.content, row.finish_reason, row.tool_calls) == ("half", "interrupted", None)
    assert len(model_server.calls) == 1


def test_a_stream_that_broke_off_before_anything_was_shown_is_asked_again(session, model_server):
    error = {"choices": [{"index": 0, "delta": {}, "finish_reason": "error"}]}
    script(model_server, {"events": [error]}, {"text": "fine"})
    assert say(session, "q", stream=True).content == "fine"


def looped(session: Session, model_server, message: dict[str, Any]) -> dict[str, Any]:
    """Play a call, its result and the next request; return the call's message of that request."""
    script(model_server, body({"content": None} | message, "tool_calls"), {"text": "done"})
    say(session, "q")
    store(session, [result("call_1")])
    say(session)
    return next(one for one in sent(model_server) if one.get("tool_calls"))


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_a_running_tool_loop_takes_its_thoughts_along(session, model_server, name):
    message = looped(session, model_server, {"tool_calls": [CALL], name: "hm"})
    assert message[name] == "hm"
    assert message["tool_calls"] == [CALL]
    assert "vendor" not in message
    say(session, "next")
    (later,) = [one for one in sent(model_server) if one.get("tool_calls")]
    assert name not in later
    assert later["tool_calls"] == [CALL]


def test_signed_thinking_stays_behind_another_tool_list(session, model_server):
    blocks = [{"type": "thinking", "thinking": "hm", "signature": "s"}]
    message = looped(session, model_server, {"tool_calls": [CALL], "thinking_blocks": blocks})
    assert message["thinking_blocks"] == blocks
    session.tools = [{"type": "function", "function": {"name": "other"}}]
    session.save(update_fields=["tools"])
    store(session, [{"role": "user", "content": "and"}])
    say(session)
    (later,) = [one for one in sent(model_server) if one.get("tool_calls")]
    assert "thinking_blocks" not in later
    assert "extra_content" not in later["tool_calls"][0]


def test_another_model_gets_nothing_of_it(session, model_server, settings):
    looped(session, model_server, {"tool_calls": [CALL], "annotations": [{"url": "u"}]})
    models = settings.CHATAPP["MODELS"]
    settings.CHATAPP = settings.CHATAPP | {
        "MODELS": models | {"default": models["default"] | {"NAME": "another"}}
    }
    say(session, "next")
    (later,) = [one for one in sent(model_server) if one.get("tool_calls")]
    assert "annotations" not in later
    assert "extra_content" not in later["tool_calls"][0]


def test_what_is_too_large_is_left_out_with_a_note(session, model_server):
    script(model_server, body({"content": "a", "huge": "x" * 70_000, "small": 1}))
    answer = say(session, "q")
    assert answer.vendor["fields"] == {"small": 1}
    assert answer.metadata["vendor_left_out"] == ["huge"]


def test_an_export_keeps_own_fields_and_an_import_takes_them_back(session, model_server, api):
    message = {"content": "a", "annotations": [{"url": "u"}], "tool_calls": [CALL]}
    script(model_server, body(message))
    answer = say(session, "q")
    text = "".join(export_sessions([session], all_exports()["jsonl"]))
    found = api.post(
        "/api/v1/sessions/import/", text.encode(), content_type="application/octet-stream"
    ).json()
    row = Message.objects.get(session=found["sessions"][0]["session"], role="assistant")
    assert (row.vendor, row.tool_calls) == (answer.vendor, [CALL])
    assert conversation_of(session).messages[-1].wire["vendor"] == answer.vendor


@pytest.mark.parametrize(
    ("word", "end"),
    [
        ("stop", "whole"),
        ("MAX_TOKENS", "cut"),
        ("content_filter", "filtered"),
        ("eos", "whole"),
        ("weird", "unknown"),
    ],
)
def test_the_api_says_how_an_answer_ended(session, model_server, api, word, end):
    script(model_server, body({"content": "a"}, word))
    url = f"/api/v1/sessions/{session.pk}"
    answer = api.post(f"{url}/turns/", {"content": "q"}, format="json").json()["answer"]
    assert (answer["end"], answer["finish_reason"]) == (end, word)
    page = api.get(f"{url}/messages/").json()["results"]
    assert [row["end"] for row in page] == [None, end]


@pytest.mark.parametrize("word", ["tool_calls", "stop", "function_call", "TOOL_USE", "tool_use"])
def test_a_call_ends_as_one_whatever_the_servers_word(session, model_server, api, word):
    script(model_server, body({"content": None, "tool_calls": [CALL]}, word))
    url = f"/api/v1/sessions/{session.pk}"
    answer = api.post(f"{url}/turns/", {"content": "q"}, format="json").json()["answer"]
    assert answer["end"] == "tool_calls"
    assert api.get(f"{url}/messages/").json()["results"][-1]["end"] == "tool_calls"


# --- usage ----------------------------------------------------------------------------------------


def usage(prompt: Any) -> dict[str, Any]:
    return {"text": "ok", "usage": {"prompt_tokens": prompt, "completion_tokens": 1}}


def warnings(session: Session) -> list[str]:
    return list(
        Incident.objects.filter(session=session, kind="warning").values_list("code", flat=True)
    )


def test_a_cache_that_tells_only_what_is_new_is_warned_of_never(session, model_server):
    store(session, talk(8, words=200))
    script(model_server, usage(3000), *(usage(60 + number % 3) for number in range(14)))
    for number in range(15):
        say(session, f"question {number}")
    assert warnings(session) == []


def test_a_server_that_fell_back_to_a_small_window_is_warned_of(session, model_server):
    store(session, talk(8, words=200))
    script(model_server, usage(3000), usage(1026), usage(1026), usage(1026))
    for number in range(4):
        say(session, f"question {number}")
    assert warnings(session) == ["truncated_silently"]


@pytest.mark.parametrize("prompt", [-5, 10**15, "many", 999_999_999, None, 1.5e9, True, [1]])
def test_numbers_that_cannot_be_change_nothing(session, model_server, prompt):
    store(session, talk(8, words=200))
    script(model_server, usage(prompt))
    say(session, "q")
    assert Incident.objects.count() == 0


# --- pages ----------------------------------------------------------------------------------------


ENDS = ("cut off", "filtered", "broken off", "refused")


@pytest.mark.parametrize(
    ("word", "mark", "sentence"),
    [
        ("MAX_TOKENS", "cut off", "It was cut off at a limit"),
        ("content_filter", "filtered", "content filter ended it"),
        ("interrupted", "broken off", "It broke off"),
        ("refusal", "refused", "The model refused"),
        ("stop", "", "It is whole"),
    ],
)
def test_pages_say_how_an_answer_ended(session, admin_client, word, mark, sentence):
    draft = NewMessage(
        wire={"role": "assistant", "content": "a", "vendor": {"server": "s", "fields": {"f": 1}}},
        reasoning="hm",
        finish_reason=word,
    )
    (row,) = append(session.active_branch, [draft])
    page = admin_client.get(reverse("admin:chatapp_message_change", args=[row.pk])).content.decode()
    assert sentence in page
    assert "Kept for its server" in page
    assert "<summary>2 characters</summary>" in page
    panel = admin_client.get(reverse("admin:chatapp_session_change", args=[session.pk]))
    found = panel.content.decode()
    marks = [one for one in ENDS if f">{one}</span>" in found]
    assert marks == [mark] * bool(mark)


# --- going on with a cut answer -------------------------------------------------------------------


def cut(text: str, word: str = "length") -> dict[str, Any]:
    return body({"content": text}, word)


def go_on(api, session: Session, **more: Any):
    return api.post(
        f"/api/v1/sessions/{session.pk}/turns/", {"continue": True} | more, format="json"
    )


@pytest.mark.parametrize("word", ["length", "MAX_TOKENS", "model_length", "max_output_tokens"])
def test_a_cut_answer_is_continued_in_a_message_of_its_own(session, model_server, api, word):
    script(model_server, cut("It begins", word), {"text": " and it ends."})
    first = say(session, "q")
    answer = go_on(api, session).json()["answer"]
    assert texts(session) == ["q", "It begins", " and it ends."]
    assert answer["metadata"]["continues"] == str(first.pk)
    *_, before, instruction = sent(model_server)
    assert before == {"role": "assistant", "content": "It begins"}
    assert instruction["role"] == "user"
    assert "cut off" in instruction["content"]


def test_an_answer_that_broke_off_is_continued_too(session, model_server, api):
    store(session, [{"role": "user", "content": "q"}])
    draft = NewMessage(wire={"role": "assistant", "content": "half"}, finish_reason="interrupted")
    append(session.active_branch, [draft])
    script(model_server, {"text": " and half"})
    assert go_on(api, session).json()["answer"]["content"] == " and half"


def test_it_is_continued_as_often_as_it_is_cut(session, model_server, api):
    script(model_server, cut("a"), cut("b"), {"text": "c"})
    say(session, "q")
    ends = [go_on(api, session).json()["answer"]["end"] for _ in range(2)]
    assert ends == ["cut", "whole"]
    assert texts(session) == ["q", "a", "b", "c"]


def test_a_whole_answer_is_not_continued(session, model_server, api):
    say(session, "q")
    response = go_on(api, session)
    assert (response.status_code, response.json()["code"]) == (422, "nothing_to_answer")
    assert len(texts(session)) == 2
    assert say(session, "next").content  # the lease was given back


def test_what_waits_for_an_answer_is_answered(session, model_server, api):
    store(session, [{"role": "user", "content": "q"}])
    script(model_server, {"text": "a"})
    assert "continues" not in go_on(api, session).json()["answer"]["metadata"]
    assert sent(model_server) == [{"role": "user", "content": "q"}]


def test_a_message_and_a_continuation_exclude_each_other(session, model_server, api):
    assert go_on(api, session, content="q").status_code in (400, 422)
    assert texts(session) == []


def test_a_continuation_is_streamed(session, model_server, api):
    script(model_server, cut("a"), {"text": "b"})
    say(session, "q")
    started = begin_turn(Turn(session=session, goes_on=True, stream=True))
    assert finish_turn(started).answer.content == "b"
