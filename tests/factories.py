"""Rows for tests, made through the transcript wherever the transcript is the only writer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import factory
from django.contrib.auth import get_user_model

from chatapp import transcript
from chatapp.keys import create_key
from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage
from compaction.models import CompactionProfile
from compaction.profiles import save_profile
from tests.facts import DrawnFact, code


class UserFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = get_user_model()

    username = factory.Sequence(lambda n: f"user{n}")


def api_key(owner, **options) -> str:
    """Return the secret of a key that was just made for the user."""
    return create_key(owner=owner, name="tests", **options).secret


class SessionFactory(factory.Factory):
    """A session with its root branch; `wires=[…]` stores OpenAI chat messages in it."""

    class Meta:
        model = Session

    owner = factory.SubFactory(UserFactory)
    title = "A conversation"
    model = "default"

    @classmethod
    def _create(cls, model_class, *args, wires=(), **kwargs) -> Session:
        session = transcript.create_session(**kwargs)
        store(session, wires)
        return session


def store(session: Session, wires) -> list[Message]:
    """Append wire messages to the session's active branch; `meta.created_at` is respected."""
    drafts = []
    for wire in wires:
        meta = wire.get("meta", {})
        plain = {key: value for key, value in wire.items() if key != "meta"}
        drafts.append(
            NewMessage(wire=plain, usage=meta.get("usage"), created_at=meta.get("created_at"))
        )
    return transcript.append(session.branch, drafts)


def talk(
    turns: int,
    *,
    words: int = 30,
    marker: int | None = None,
    mark: Callable[[int], str] = code,
    facts: Sequence[DrawnFact] = (),
) -> list[dict]:
    """Return user/assistant pairs; with `marker` each user message begins with mark(marker + n).

    Such a code is for counting what a scripted server echoes. What a summary has to know by
    itself are `facts` of many shapes, dealt out to the user's messages.
    """
    wires = []
    for number in range(turns):
        begins = f"{mark(marker + number)} " if marker is not None else ""
        told = "".join(f"{fact.sentence} " for fact in facts[number::turns])
        question = f"{begins}{told}question {number} " + "lorem " * words
        wires.append({"role": "user", "content": question})
        wires.append({"role": "assistant", "content": f"answer {number} " + "ipsum " * words})
    return wires


def user(text: str) -> dict:
    """Return a user's message."""
    return {"role": "user", "content": text}


def call(name: str, call_id: str, arguments: str = "{}") -> dict:
    """Return an assistant message that calls one tool."""
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def result(call_id: str, content: str = "done") -> dict:
    """Return a tool's result."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def profile(name: str = "test", **parameters) -> CompactionProfile:
    """Store a profile and make it the default, so that every session of the test uses it.

    Time and a small window start nothing by themselves: who tests that says so.
    """
    parameters = {"cooldown_seconds": 0, "prepare_ratio": 0.0} | parameters
    return save_profile(name=name, parameters=parameters, make_default=True)
