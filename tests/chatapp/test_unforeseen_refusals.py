"""What a server refuses in words of its own, or does not have at all: the turn goes on anyway."""

from __future__ import annotations

import random

import pytest

from chatapp.llm.adaptations import adaptation_for, refused_parameter
from chatapp.llm.asking import ask
from chatapp.llm.errors import ErrorKind, from_body
from chatapp.llm.learned_limits import with_learned_limits
from chatapp.llm.registry import ModelConfig, get_model
from chatapp.llm.requests import ModelRequest
from chatapp.llm.wires import arguments_of
from chatapp.messages.outgoing import (
    ALTERNATING_ROLES,
    FLAT,
    SYSTEM_AS_USER,
    TEXT_BESIDE_CALLS,
    outgoing,
)
from chatapp.models import Session
from chatapp.turns.service import Turn, run_turn
from tests.factories import SessionFactory, call, result, store, talk, user
from tests.facts import seed
from tests.field.field_server import CHECKS, FieldServer

MODEL = ModelConfig(
    alias="m", backend="b", name="m", context_window=8000, base_url="http://127.0.0.1:1/v1"
)
PROMPT = {"role": "system", "content": "Be brief."}
ANSWER = {"role": "assistant", "content": "yes"}


@pytest.fixture
def served(use_models, monkeypatch):
    """served(*refusals, answers=…) is a server that refuses so, as the model `default`."""
    running = []

    def start(*refusals, answers=(), **entry):
        server = FieldServer(refusals, answers).__enter__()
        running.append(server)
        default = {
            "BACKEND": "chatapp.llm.openai_client.OpenAIModel",
            "NAME": "scripted",
            "CONTEXT_WINDOW": 32_000,
            "MAX_OUTPUT": 4096,
            "API_KEY": "test",
            "BASE_URL": server.url,
        }
        use_models({"default": default | entry})
        return server

    monkeypatch.setitem(
        CHECKS, "has_system", lambda body: any(m["role"] == "system" for m in body["messages"])
    )
    monkeypatch.setitem(
        CHECKS, "answers_over", lambda body, most: (body.get("max_tokens") or 0) > most
    )
    yield start
    for server in running:
        server.__exit__()


def model() -> ModelConfig:
    return with_learned_limits(get_model("default"))


def _next(text: str, request: ModelRequest, *, status: int = 400) -> str | None:
    error = from_body({"error": {"message": text}}, status=status)
    found = adaptation_for(error, request, arguments_of(MODEL, request), ())
    return found.code if found else None


def test_a_refusal_that_names_a_parameter_is_about_it_whatever_its_words():
    chance = random.Random(seed())
    request = ModelRequest(messages=[user("q")], max_output=100, temperature=0.2, effort="low")
    for name, code in (
        ("temperature", "drop:temperature"),
        ("reasoning_effort", "drop:reasoning_effort"),
        ("max_tokens", "rename:max_tokens:max_completion_tokens"),
    ):
        for words in ("{} is locked here", "we do not like {}", "{}: range: -1..1", "about {}?"):
            text = words.format(chance.choice((name, f"'{name}'", f"`{name}`")))
            assert _next(text, request) == code, text


@pytest.mark.parametrize("text", ["messages.1.content: none is not an allowed value",
                                  "invalid message content type: <nil>",
                                  "messages[1].content: null value not permitted"])  # fmt: skip
def test_a_server_that_takes_no_null_gets_a_text_beside_calls_and_pictures_stay(text):
    picture = [{"type": "image_url", "image_url": {"url": "https://e/x.png"}}]
    messages = [{"role": "user", "content": picture}, call("look", "c1"), result("c1"), user("q")]
    code = _next(text, ModelRequest(messages=messages))
    assert code == TEXT_BESIDE_CALLS
    sent = [message for message, _ in outgoing(messages, {code})]
    assert all(message["content"] for message in sent)
    assert sent[0]["content"] == picture


def test_a_word_that_may_be_a_verb_names_no_parameter():
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    request = ModelRequest(messages=[user("q")], tools=tools)
    for text in ("The number of tools exceeds the limit of 128", "we include no tools here"):
        assert _next(text, request) == FLAT, text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Unsupported parameter: 'metadata', see the vector store.", None),
        ("A parameter is not supported; please include a valid one.", None),
        ("Unknown parameter: 'store'.", "store"),
        ("Unrecognized request argument supplied: store", "store"),
        ("Unsupported parameter include", "include"),
    ],
)
def test_what_keeps_a_server_from_storing_is_left_out_where_it_is_named_alone(text, meant):
    sent = {"model": "m", "input": [], "store": False, "include": ["x"]}
    error = from_body({"error": {"message": text, "code": "unsupported_parameter"}}, status=400)
    assert refused_parameter(error, sent) == meant


def test_what_names_nothing_that_was_sent_is_about_the_messages():
    request = ModelRequest(messages=[user("q")], max_output=100)
    assert _next("the temperature is locked here", request) == FLAT


@pytest.mark.parametrize("path", ["body.temperature", "temperature", "request.body.temperature[0]"])
def test_the_place_of_a_parameter_may_stand_deeper(path):
    body = {"detail": [{"loc": path.split("."), "msg": "Extra", "type": "extra_forbidden"}]}
    request = ModelRequest(messages=[user("q")], temperature=0.2)
    found = adaptation_for(from_body(body, status=422), request, arguments_of(MODEL, request), ())
    assert found is not None
    assert found.code == "drop:temperature"


@pytest.mark.parametrize(
    "text", ["Not Found", "404 page not found", "Cannot POST /v1/responses", "Method Not Allowed"]
)
@pytest.mark.parametrize(("api", "other"), [("responses", "chat"), ("chat", "responses")])
def test_a_path_that_a_server_does_not_have_is_the_other_apis(text, api, other):
    request = ModelRequest(messages=[user("q")], api=api)
    assert _next(text, request, status=404) == f"api:{other}"
    assert _next("The model m was not found.", request, status=404) is None


@pytest.mark.parametrize("codes", [{SYSTEM_AS_USER}, {SYSTEM_AS_USER, ALTERNATING_ROLES},
                                   {SYSTEM_AS_USER, FLAT}])  # fmt: skip
@pytest.mark.parametrize(
    "messages",
    [
        [PROMPT, user("q")],
        [PROMPT, PROMPT, user("q"), ANSWER, user("r")],
        [PROMPT, ANSWER, user("q")],
        [PROMPT, call("look", "c1"), result("c1"), user("q")],
        [PROMPT, {"role": "user", "content": [{"type": "text", "text": "q"}]}],
    ],
)
def test_no_system_message_is_left_and_its_words_come_first(codes, messages):
    sent = [message for message, _ in outgoing(messages, codes)]
    assert all(message["role"] != "system" for message in sent)
    assert sent[0]["role"] == "user"
    first = sent[0]["content"]
    text = first if isinstance(first, str) else first[0]["text"]
    assert text.startswith("Be brief.")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("text", ["System role not supported", "no system prompts are allowed here",
                                  "does not support 'system' with this model"])  # fmt: skip
def test_a_server_without_a_system_role_gets_the_prompt_as_the_users_words(text, served, owner):
    server = served({"check": "has_system", "message": text})
    session = SessionFactory(owner=owner, system_prompt="Be brief.")
    for question in ("one", "two"):
        store(session, [user(question)])
        run_turn(Turn(session=Session.objects.get(pk=session.pk)))
        assert session.messages.latest("position").content == "ok"
    first = server.requests[-1]["messages"][0]
    assert first["role"] == "user"
    assert "Be brief." in first["content"]


@pytest.mark.django_db(transaction=True)
def test_a_server_that_misses_its_earlier_thoughts_gets_them_back_from_then_on(served, owner):
    wanted = f"because {seed()}"
    answers = [
        {
            "finish": "tool_calls",
            "extra": {
                "reasoning_content": wanted,
                "tool_calls": call("look", "c1")["tool_calls"],
            },
        },
        {"text": "found"},
    ]
    refusal = {
        "check": "message_lacks",
        "key": "reasoning_content",
        "value": wanted,
        "message": "The reasoning_content in the thinking mode must be passed back to the API.",
    }
    server = served(refusal, answers=answers)
    session = SessionFactory(owner=owner)
    for new in ([user("look")], [result("c1")], [user("and?")], [user("more")]):
        store(session, new)
        run_turn(Turn(session=Session.objects.get(pk=session.pk)))
    kept = [one for one in server.requests[-1]["messages"] if one.get("tool_calls")]
    assert [one["reasoning_content"] for one in kept] == [wanted]
    assert len(server.requests) == 5  # one of them refused
    assert "with_thoughts" in model().adaptations


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("text", "asked"), [("max_tokens is above the limit of 700", 700),
                                             ("max_tokens is too high here", 512)])  # fmt: skip
def test_a_call_that_is_no_turn_asks_for_a_shorter_answer_too(text, asked, served):
    server = served({"check": "answers_over", "most": 700, "message": text})
    changes = []
    request = ModelRequest(messages=[user("q")], max_output=4096)
    reply = ask(model(), request, lambda change, error: changes.append((change.code, error.kind)))
    assert reply.text == "ok"
    assert server.requests[-1]["max_tokens"] == asked
    assert changes[-1] == (f"output_lowered:{asked}", ErrorKind.OUTPUT_LIMIT)
    # Only a number that the server named is its model's longest answer.
    assert model().max_output == (700 if asked == 700 else 4096)


@pytest.mark.django_db(transaction=True)
def test_an_answer_that_was_made_shorter_for_a_rate_is_not_the_models_longest(served, owner):
    rate = "Request too large for tokens per min (TPM): Limit 1200, Requested 5000."
    served(
        {"check": "answers_over", "most": 600, "message": "max_tokens is too high here"},
        {"check": "answers_over", "most": 400, "message": rate, "status": 429},
    )
    session = SessionFactory(owner=owner, wires=talk(6))
    store(session, [user("and?")])
    assert run_turn(Turn(session=session)).answer.content == "ok"
    assert model().max_output == 4096
