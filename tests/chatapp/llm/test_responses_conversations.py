"""Real conversations over the Responses wire: accepted by a strict server, nothing lost."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import pytest

from chatapp.llm.responses_wire import items_of
from chatapp.messages.wire import text_of
from chatapp.models import Message, Session
from chatapp.selectors import path_q
from chatapp.transfer import import_file
from tests.chatapp.test_pairing import strict
from tests.fakes.responses_wire import messages_of
from tests.fakes.strict_checker import faults, item_faults

pytestmark = pytest.mark.django_db
QUESTION = {"role": "user", "content": "And now?"}


@pytest.fixture(params=["openai_chat", "pi", "claude_code"])
def conversations(request, shared, owner, read_before) -> list[list[dict]]:
    """What would be sent of every conversation of a folder, in chat form, without summaries."""
    if request.param not in read_before:
        read_before[request.param] = read(shared / "data" / request.param, owner)
    return deepcopy(read_before[request.param])


@pytest.fixture(scope="module")
def read_before() -> dict[str, list[list[dict]]]:
    """The conversations of every folder that was read for a test before."""
    return {}


def read(folder: Path, owner) -> list[list[dict]]:
    for path in sorted(folder.iterdir()):
        import_file(owner=owner, content=path.read_bytes(), name=path.name)
    found = []
    for session in Session.objects.filter(owner=owner):
        rows = Message.objects.filter(path_q(session.branch), kind="message").order_by("position")
        found.append(strict([*(row.wire() for row in rows), QUESTION]))
    assert any(message.get("tool_calls") for messages in found for message in messages)
    return found


@pytest.mark.parametrize("plain_text", [False, True])
def test_a_strict_server_accepts_every_conversation(conversations, plain_text):
    for messages in conversations:
        items = json.loads(json.dumps(items_of(messages, plain_text=plain_text)))
        assert item_faults(items) == []


def test_calls_results_and_texts_arrive_whole_and_in_order(conversations):
    for messages in conversations:
        back = messages_of(items_of(messages))
        assert faults(back) == []
        assert [calls(message) for message in back] == [calls(message) for message in messages]
        assert said(back) == said(messages)


def calls(message):
    functions = [(call["id"], call["function"]) for call in message.get("tool_calls") or ()]
    return [(call_id, f["name"], f["arguments"]) for call_id, f in functions]


def said(messages):
    return [(m["role"], m.get("tool_call_id"), text_of(m["content"])) for m in messages]
