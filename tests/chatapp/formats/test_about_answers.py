"""What files say about answers (citations, annotations, own fields of calls) is kept beside them.

Nobody is sent it: the server that would read it is not known. It names no conversation either, so
that a file which says more of the same answers is the same conversation.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from chatapp.formats import Conversation, parse
from chatapp.messages.vendor import IMPORTED, for_server_all
from chatapp.messages.wire import MAX_VENDOR_CHARS, VENDOR, VENDOR_LEFT_OUT
from chatapp.models import Message, Session
from chatapp.transfer import import_file

URL = {"type": "url_citation", "url_citation": {"url": "https://hives.example/7", "title": "Hives"}}
CITED = {"type": "char_location", "cited_text": "seven", "document_index": 0}
GROUNDED = {"webSearchQueries": ["how many hives"]}
ASKED = {"role": "user", "content": "How many?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "count", "arguments": "{}"}}
OWN = {"google": {"thought_signature": "c2ln"}}
SAID = {"role": "assistant", "content": "Seven."}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "7"}


def chat(*messages: Any) -> dict[str, Any]:
    return {"messages": list(messages)}


def completion(message: Any, **more: Any) -> dict[str, Any]:
    choices = [{"index": 0, "message": message, "finish_reason": "stop"} | more.pop("choice", {})]
    return {**chat(ASKED), "response": {"choices": choices, **more}}


def node(key: str, parent: str | None, role: str, text: str, **about: Any) -> dict[str, Any]:
    content = {"content_type": "text", "parts": [text]}
    message = {"author": {"role": role}, "content": content, "metadata": about, "recipient": "all"}
    return {"id": key, "parent": parent, "children": [], "message": message}


def chatgpt(**about: Any) -> list[dict[str, Any]]:
    nodes = [node("q", None, "user", "How many?"), node("a", "q", "assistant", "Seven.", **about)]
    return [{"mapping": {one["id"]: one for one in nodes}, "current_node": "a"}]


def gemini(**about: Any) -> dict[str, Any]:
    parts = {"role": "model", "parts": [{"text": "Seven."}]}
    asked = [{"role": "user", "parts": [{"text": "How many?"}]}]
    return {"contents": asked, "response": {"candidates": [{"content": parts, **about}]}}


def responses(**about: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": "Seven.", **about}
    output = [{"type": "message", "role": "assistant", "content": [part]}]
    return {"model": "m", "input": [ASKED], "response": {"object": "response", "output": output}}


def anthropic(**about: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": [{"type": "text", "text": "Seven.", **about}]}
    head = {"type": "message", "model": "claude-x", "stop_reason": "end_turn", "usage": {}}
    return {"system": "Be kind.", "messages": [ASKED], "response": head | message}


FILES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "message": (
        chat(ASKED, SAID | {"annotations": [URL]}), chat(ASKED, SAID), {"annotations": [URL]}
    ),
    "call": (
        chat(ASKED, {"role": "assistant", "tool_calls": [CALL | {"extra_content": OWN}]}, RESULT),
        chat(ASKED, {"role": "assistant", "tool_calls": [CALL]}, RESULT),
        {"tool_calls": [{"id": "c1", "extra_content": OWN}]},
    ),
    "body": (
        completion(SAID, citations=["https://hives.example/7"]),
        completion(SAID),
        {"citations": ["https://hives.example/7"]},
    ),
    "choice": (
        completion(SAID, choice={"logprobs": {"content": [{"token": "Seven"}]}}),
        completion(SAID),
        {"logprobs": {"content": [{"token": "Seven"}]}},
    ),
    "chatgpt": (
        chatgpt(citations=[{"metadata": {"url": "https://hives.example/7"}}]),
        chatgpt(),
        {"citations": [{"metadata": {"url": "https://hives.example/7"}}]},
    ),
    "gemini": (gemini(groundingMetadata=GROUNDED), gemini(), {"groundingMetadata": GROUNDED}),
    "responses": (responses(annotations=[URL]), responses(), {"annotations": [URL]}),
    "anthropic": (anthropic(citations=[CITED]), anthropic(), {"citations": [CITED]}),
}  # fmt: skip


def one(value: Any) -> Conversation:
    parsed = parse(json.dumps(value))
    assert list(parsed.problems) == []
    (conversation,) = parsed.conversations
    return conversation


def answer(conversation: Conversation) -> dict[str, Any]:
    return next(m.wire for m in conversation.messages if m.wire["role"] == "assistant")


@pytest.mark.parametrize("name", FILES)
def test_what_a_file_says_about_an_answer_is_kept_beside_it(name):
    value, plain, about = FILES[name]
    wire = answer(one(value))
    assert wire.pop(VENDOR) == {"server": IMPORTED, "about": about}
    assert wire == answer(one(plain))


@pytest.mark.parametrize("name", FILES)
def test_it_names_no_conversation_and_nobody_is_sent_it(name):
    value, plain, _ = FILES[name]
    known, bare = one(value), one(plain)
    assert known.identity == bare.identity
    sent = for_server_all([m.wire for m in known.messages], (), IMPORTED)
    assert sent == [m.wire for m in bare.messages]


def test_what_an_earlier_request_knew_stays_in_the_longer_one():
    first = completion(SAID, citations=["https://hives.example/7"])
    asked_again = [ASKED, SAID, {"role": "user", "content": "Sure?"}]
    second = {**chat(*asked_again), "response": {"choices": [{"message": SAID}]}}
    conversation = one(
        [{"request": item, "response": item.pop("response")} for item in (first, second)]
    )
    assert len(conversation.messages) == 4
    assert answer(conversation)[VENDOR]["about"] == {"citations": ["https://hives.example/7"]}


def test_what_is_too_large_to_be_kept_is_named():
    large = SAID | {"annotations": ["x" * MAX_VENDOR_CHARS], "provider": "Hive"}
    found = one(chat(ASKED, large)).messages[1]
    assert found.wire[VENDOR]["about"] == {"provider": "Hive"}
    assert found.metadata[VENDOR_LEFT_OUT] == ["annotations"]


def test_what_the_user_had_set_in_chatgpt_is_kept_with_the_conversation():
    (value,) = chatgpt()
    for number, text in enumerate(("old", "new")):
        content = {"content_type": "user_editable_context", "user_profile": f"A {text} keeper."}
        hidden = node(f"h{number}", None, "user", "")
        hidden["message"]["content"] = content
        value["mapping"][f"h{number}"] = hidden
    conversation = one([value])
    assert conversation.metadata == {"user_context": {"user_profile": "A new keeper."}}
    assert [m.wire["content"] for m in conversation.messages] == ["How many?", "Seven."]


@pytest.mark.django_db
def test_it_is_stored_and_a_file_that_says_less_is_the_same_conversation(owner):
    value, plain, about = FILES["message"]
    for content in (value, plain):
        import_file(content=json.dumps(content).encode(), name="chat.json", owner=owner)
    session = Session.objects.get()
    assert Message.objects.get(branch__session=session, role="assistant").vendor == {
        "server": IMPORTED,
        "about": about,
    }
