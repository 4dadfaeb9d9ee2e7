"""Refusals in words that nobody has met: what they speak of is changed before everything is.

The whole conversation as one text costs a session its structure and its prompt cache for good, so
it comes last. Each sentence was written without a look at the patterns.
"""

from __future__ import annotations

import pytest

from chatapp.llm.adaptations import adaptation_for, adapted
from chatapp.llm.errors import Reaction, from_body
from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest
from chatapp.llm.wires import arguments_of
from chatapp.messages.outgoing import FLAT, USER_LAST
from tests.factories import call, result, user

MODEL = ModelConfig(
    alias="m", backend="b", name="m", context_window=8000, base_url="http://127.0.0.1:1/v1"
)
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
PICTURE = [{"type": "image_url", "image_url": {"url": "https://e/x.png"}}]
SYSTEM = {"role": "system", "content": "Be brief."}


def assistant(text: str) -> dict:
    return {"role": "assistant", "content": text}


def request(**changes) -> ModelRequest:
    """A request that has everything: two system messages, a picture, calls, neighbours."""
    pictured = {"role": "user", "content": PICTURE}
    said = (assistant("hello"), pictured, call("look", "call_number_1"), result("call_number_1"))
    given = {
        "messages": [SYSTEM, SYSTEM, *said, assistant("yes"), user("one"), user("q")],
        "tools": TOOLS,
        "max_output": 500,
        "temperature": 0.2,
        "effort": "low",
        "stream": True,
        "adaptations": frozenset({USER_LAST}),
    }
    return ModelRequest(**given | changes)


def roles(body) -> list[str]:
    return [message["role"] for message in body["messages"]]


def has_calls(body) -> bool:
    return any(message.get("tool_calls") for message in body["messages"])


def alternates(body) -> bool:
    said = [m["role"] for m in body["messages"] if m["role"] in ("user", "assistant")
            and not m.get("tool_calls")]  # fmt: skip
    return all((role == "user") == (place % 2 == 0) for place, role in enumerate(said))


GOALS = {
    "alternating": alternates,
    "no system": lambda body: "system" not in roles(body),
    "one system": lambda body: roles(body).count("system") == 1,
    "no tools": lambda body: not body.get("tools") and not has_calls(body),
    "no calls": lambda body: not has_calls(body),
    "texts": lambda body: all(not isinstance(m["content"], list) for m in body["messages"]),
    "no null": lambda body: all(message["content"] for message in body["messages"]),
    "no temperature": lambda body: "temperature" not in body,
    "no effort": lambda body: "reasoning_effort" not in body,
    "no stream": lambda body: not body.get("stream"),
}
WORDINGS = [
    ("alternating", 400, "Two messages in a row share the role 'user'; speakers take turns"),
    ("alternating", 422, "Value error, messages: same speaker twice in succession at index 3"),
    ("alternating", 400, "Input messages violate the user/assistant/user pattern"),
    ("alternating", 400, "After a human message an AI message is due, position 6 is human again"),
    ("alternating", 422, "leading assistant message rejected"),
    ("alternating", 500, "Mistral template: user and assistant have to swap after each message"),
    ("no system", 400, "messages[0].role: 'system' is not a member of {user, assistant}"),
    ("no system", 400, "role system prohibited for this deployment"),
    ("no system", 400, "unknown author kind: system"),
    ("one system", 400, "system prompts inside of the dialogue are not understood"),
    ("no tools", 400, "This deployment was started without function calling; remove tools"),
    ("no tools", 422, "Plain chat model: tools may not be passed"),
    ("no tools", 400, "tools: capability absent"),
    ("no calls", 400, "The conversation mentions functions that the request does not define"),
    ("no calls", 500, "'str object' has no attribute 'items'"),
    ("no calls", 500, "TypeError: str is not a mapping while walking tool_call.arguments"),
    ("texts", 400, "messages.3.content: cannot be an array for this model"),
    ("texts", 400, "This checkpoint has no vision tower; picture inputs were found"),
    ("texts", 500, 'can only concatenate str (not "list") to str'),
    ("no null", 500, "unsupported operand type(s) for +: 'NoneType' and 'str'"),
    ("no temperature", 400, "Sampling options are fixed for this endpoint"),
    ("no effort", 400, "Reasoning levels can only be chosen for other models."),
    ("no stream", 400, "Streaming responses have been switched off for this organisation."),
]


def changes_until(goal, body: dict, status: int) -> list[str]:
    """Play a server that refuses with one body until a request has what it wants."""
    asked, done = request(), []
    while not goal(sent := arguments_of(MODEL, asked)):
        error = from_body(body, status=status)
        assert error.reaction is Reaction.ADAPT, error.kind
        codes = {*asked.adaptations, *done}
        change = adaptation_for(error, asked, sent, codes)
        assert change is not None, done
        done.append(change.code)
        asked = adapted(asked, MODEL, {*codes, change.code})
    return done


@pytest.mark.parametrize(("goal", "status", "text"), WORDINGS)
def test_what_a_refusal_speaks_of_is_changed_before_all_is_sent_as_one_text(goal, status, text):
    assert not GOALS[goal](arguments_of(MODEL, request()))
    done = changes_until(GOALS[goal], {"error": {"message": text}}, status)
    assert FLAT not in done
    assert len(done) <= 2


@pytest.mark.parametrize("body", [
    {"errors": [{"path": "$.temperature", "message": "additional property"}]},
    {"errors": [{"instancePath": "/temperature", "message": "must NOT be valid"}]},
    {"violations": [{"field": "temperature", "description": "not in schema"}]},
    {"message": "Invalid body", "details": [{"field": "temperature", "issue": "NOT_ALLOWED"}]},
])  # fmt: skip
def test_the_place_is_read_in_the_words_of_many_validators(body):
    assert changes_until(GOALS["no temperature"], body, 422) == ["drop:temperature"]


def test_the_role_of_the_message_that_is_named_tells_what_is_refused():
    place = {"loc": ["body", "messages", 0, "role"], "msg": "Input should be 'user' or 'assistant'"}
    done = changes_until(GOALS["no system"], {"detail": [place]}, 422)
    assert done[-1] == "system_as_user"
    assert FLAT not in done


def test_what_is_not_there_is_not_changed():
    """Tools are not taken from a model for good by a word about their number."""
    plain = request(messages=[user("q")])
    text = "The number of tools exceeds the limit; pictures and system prompts are dear"
    error = from_body({"error": {"message": text}}, status=400)
    sent = arguments_of(MODEL, plain)
    assert adaptation_for(error, plain, sent, plain.adaptations).code == FLAT
