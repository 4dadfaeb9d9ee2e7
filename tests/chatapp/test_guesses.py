"""What was changed in vain, or for one conversation alone, is no lesson about a model."""

from __future__ import annotations

import pytest

from chatapp.llm.asking import Guesses, ask
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.learned_limits import with_learned_limits
from chatapp.llm.registry import ModelConfig, get_model
from chatapp.llm.requests import ModelRequest
from chatapp.models import Session
from chatapp.turns.service import Turn, run_turn
from tests.factories import SessionFactory, call, result, store, talk, user
from tests.field.field_server import CHECKS, FieldServer

pytestmark = pytest.mark.django_db(transaction=True)
ABOUT_A_STREAM = "Invalid character in the input stream"
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@pytest.fixture
def served(use_models, monkeypatch):
    """served(check, message) is a server that refuses what the check finds."""
    running = []

    def start(check, message):
        monkeypatch.setitem(CHECKS, "found", check)
        server = FieldServer([{"check": "found", "message": message}], ()).__enter__()
        running.append(server)
        entry = {
            "BACKEND": "chatapp.llm.openai_client.OpenAIModel",
            "NAME": "scripted",
            "CONTEXT_WINDOW": 32_000,
            "MAX_OUTPUT": 4096,
            "API_KEY": "test",
            "BASE_URL": server.url,
        }
        use_models({"default": entry})
        return server

    yield start
    for server in running:
        server.__exit__()


def model() -> ModelConfig:
    return with_learned_limits(get_model("default"))


def is_talk(body) -> bool:
    return any(one["role"] == "assistant" for one in body["messages"])


def test_a_turn_that_is_sent_as_one_text_takes_no_streams_from_the_others(served, owner):
    server = served(is_talk, ABOUT_A_STREAM)
    session = SessionFactory(owner=owner, wires=talk(3))
    store(session, [user("and?")])
    assert run_turn(Turn(session=session)).answer.content == "ok"
    assert len(server.requests) == 3
    assert "flat" in Session.objects.get(pk=session.pk).adaptations
    assert not model().adaptations


def test_a_call_that_is_no_turn_teaches_nothing_that_was_in_vain_either(served):
    served(is_talk, ABOUT_A_STREAM)
    assert ask(model(), ModelRequest(messages=[*talk(2), user("q")])).text == "ok"
    assert not model().adaptations


def test_a_guess_that_helped_is_remembered_of_the_model(served):
    served(lambda body: "temperature" in body, "Sampling is fixed for this endpoint")
    assert ask(model(), ModelRequest(messages=[user("q")], temperature=0.3)).text == "ok"
    assert model().adaptations == {"drop:temperature"}


def test_the_tools_of_one_conversation_are_taken_from_no_other(served, owner):
    served(lambda body: body.get("tools"), "The name of a function is invalid")
    wires = [user("look"), call("look", "c1"), result("c1"), user("q")]
    session = SessionFactory(owner=owner, tools=[TOOL], wires=wires)
    assert run_turn(Turn(session=session)).answer.content == "ok"
    assert "drop:tools" in Session.objects.get(pk=session.pk).adaptations
    assert not model().adaptations


def test_what_answers_another_refusal_is_no_guess_in_vain():
    guesses = Guesses()
    unknown = ModelError(ErrorKind.REJECTED, "one thing")
    guesses.refused(unknown)
    guesses.tried(unknown, ["stream:off"])
    guesses.refused(ModelError(ErrorKind.REJECTED, "another thing"))
    guesses.tried(unknown, ["flat"])
    assert guesses.of_model(["stream:off", "flat"]) == {"stream:off"}
    assert guesses.of_conversation(["stream:off", "flat"]) == {"flat"}
