"""What a refusal teaches: asked again in another form, remembered, shown, forgotten."""

from __future__ import annotations

from datetime import timedelta
from html import unescape
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse
from django.utils import timezone

from chatapp.llm.asking import ask
from chatapp.llm.errors import ErrorKind, ModelError, from_body
from chatapp.llm.learned_limits import REMEMBERED, with_learned_limits
from chatapp.llm.registry import get_model
from chatapp.llm.requests import ModelRequest
from chatapp.llm.wires import arguments_of
from chatapp.models import Incident, LearnedLimits, Session
from chatapp.turns.service import Turn, TurnFailedError, run_turn
from tests.factories import SessionFactory, call, result, store, user
from tests.field.field_server import FieldServer

pytestmark = pytest.mark.django_db(transaction=True)

TEMPERATURE = {
    "check": "temperature",
    "message": "Unsupported value: 'temperature' does not support 0.2 with this model.",
    "param": "temperature",
}
MAX_TOKENS = {
    "check": "has_key",
    "key": "max_tokens",
    "message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
    "param": "max_tokens",
}
NO_TOOLS_NO_CALLS = {
    "check": "tool_history_without_tools",
    "message": "This provider doesn't support tool calling without `tools=` param specified.",
}


@pytest.fixture
def served(use_models):
    """served(*refusals, **entry) is a server that refuses so, as the model `default`."""
    running = []

    def start(*refusals, **entry):
        server = FieldServer(refusals).__enter__()
        running.append(server)
        default = {
            "BACKEND": "chatapp.llm.openai_client.OpenAIModel",
            "NAME": "scripted",
            "CONTEXT_WINDOW": 32_000,
            "MAX_OUTPUT": 512,
            "API_KEY": "test",
            "BASE_URL": server.url,
        }
        use_models({"default": default | entry})
        return server

    yield start
    for server in running:
        server.__exit__()


def hello(**fields) -> ModelRequest:
    return ModelRequest(messages=[user("hello")], max_output=100, **fields)


def model():
    return with_learned_limits(get_model("default"))


def test_two_parameters_are_learnt_in_one_call_and_never_sent_again(served):
    server = served(TEMPERATURE, MAX_TOKENS)
    changes = []
    reply = ask(model(), hello(temperature=0.2), lambda change, error: changes.append(change.code))
    assert reply.text == "ok"
    assert len(server.requests) == 3
    assert set(changes) == {"drop:temperature", "rename:max_tokens:max_completion_tokens"}
    ask(model(), hello(temperature=0.2))
    assert len(server.requests) == 4
    assert server.requests[-1]["max_completion_tokens"] == 100


def test_what_is_known_of_the_model_is_never_refused(served):
    server = served(
        TEMPERATURE,
        MAX_TOKENS,
        CAPABILITIES={"temperature": False, "max_tokens": "max_completion_tokens"},
    )
    ask(model(), hello(temperature=0.2))
    assert len(server.requests) == 1


def test_a_refusal_that_nothing_helps_is_the_first_one_and_teaches_nothing(served):
    broken = {"check": "has_key", "key": "messages", "message": "I do not like it."}
    server = served(broken)
    with pytest.raises(ModelError, match="I do not like it") as failure:
        ask(model(), hello())
    assert failure.value.kind is ErrorKind.REJECTED
    assert len(server.requests) == 1
    assert not LearnedLimits.objects.exists()


def test_a_parameter_that_is_gone_is_not_what_ended_a_call(served, owner, queued):
    broken = {"check": "has_key", "key": "messages", "message": "No summaries here."}
    served(MAX_TOKENS, TEMPERATURE, broken)
    with pytest.raises(ModelError, match="No summaries here") as failure:
        ask(model(), hello(temperature=0.2))
    assert failure.value.kind is ErrorKind.REJECTED
    session = SessionFactory(owner=owner)
    store(session, [user("a")])
    with pytest.raises(TurnFailedError, match="No summaries here"):
        run_turn(Turn(session=session))


def test_no_request_is_sent_twice_and_no_more_than_eight(served):
    broken = {"check": "has_key", "key": "messages", "message": "Roles must alternate user."}
    server = served(broken)
    stored = [user("a"), call("look", "c1"), result("c1"), user("b"), user("c")]
    with pytest.raises(ModelError):
        ask(model(), ModelRequest(messages=stored, max_output=100))
    bodies = [str(body) for body in server.requests]
    assert len(bodies) == len(set(bodies)) <= 8
    assert len(bodies) == 4  # as it is, alternating, calls as text, flat


# A server that finds another fault each time: no change helps, and none is of the same kind.
ANOTHER_FAULT = (
    "Unsupported parameter: max_tokens",
    "Roles must alternate user/assistant.",
    "Tool call ids must be a-z, A-Z, 0-9, with a length of 9.",
    "Unsupported parameter: stream_options",
    "The system message must be at the beginning.",
    "Tools are not supported by this model.",
    "Tools are not supported by this model, still.",
    "Unsupported parameter: max_completion_tokens",
    "Something else.",
)


def test_a_turn_asks_eight_times_at_most_each_time_otherwise_and_says_what_it_changed(
    owner, queued, served, monkeypatch, admin_client
):
    served()
    asked = []

    def refuse(model, request, on_event=None):
        asked.append(str(arguments_of(model.config, request)))
        text = ANOTHER_FAULT[min(len(asked), len(ANOTHER_FAULT)) - 1]
        raise from_body({"error": {"message": text}}, status=400)

    monkeypatch.setattr("chatapp.llm.openai_client.OpenAIModel.complete", refuse)
    tools = [{"type": "function", "function": {"name": "look"}}]
    session = SessionFactory(owner=owner, system_prompt="Be brief.", tools=tools)
    store(session, [user("a"), call("look", "c-1"), result("c-1"), user("b"), user("c")])
    told: list[str] = []

    def hear(name, payload):
        told.extend([payload["text"]] if name == "change" else [])

    with pytest.raises(TurnFailedError):
        run_turn(Turn(session=session, stream=True, emit=hear))
    assert len(asked) == len(set(asked)) == 8
    assert len(told) == 7
    rows = Incident.objects.filter(session=session)
    assert [row.text for row in rows.filter(kind="change").order_by("created_at")] == told
    page = unescape(admin_client.get(f"/admin/chatapp/session/{session.pk}/change/").text)
    assert rows.get(kind="error").text in page


def test_a_length_that_is_refused_where_none_is_asked_for_ends_the_turn(
    owner, queued, served, monkeypatch
):
    served(CAPABILITIES={"max_tokens": "max_tokens"})
    faults = [
        "Unsupported parameter: max_tokens",
        "max_tokens is too large: 512. This model supports at most 100 completion tokens.",
    ]
    asked = []

    def refuse(model, request, on_event=None):
        asked.append(request)
        text = faults[min(len(asked), len(faults)) - 1]
        raise from_body({"error": {"message": text}}, status=400)

    monkeypatch.setattr("chatapp.llm.openai_client.OpenAIModel.complete", refuse)
    session = SessionFactory(owner=owner)
    store(session, [user("a")])
    with pytest.raises(TurnFailedError):
        run_turn(Turn(session=session))
    assert len(asked) <= 8


def test_what_was_learnt_is_tried_anew_after_its_time(served):
    served(TEMPERATURE)
    ask(model(), hello(temperature=0.2))
    assert "drop:temperature" in model().adaptations
    limits = LearnedLimits.objects.get()
    long_ago = (timezone.now() - REMEMBERED - timedelta(days=1)).isoformat()
    limits.adaptations = {code: {"at": long_ago} for code in limits.adaptations}
    limits.save()
    assert model().adaptations == frozenset()


def test_a_changed_entry_is_asked_anew(served, use_models, settings):
    served(TEMPERATURE)
    ask(model(), hello(temperature=0.2))
    entry = settings.CHATAPP["MODELS"]["default"]
    use_models({"default": entry | {"CAPABILITIES": {"temperature": True, "parts": True}}})
    assert "drop:temperature" in model().adaptations  # the entry says nothing new of its form
    use_models({"default": entry | {"CAPABILITIES": {"alternating_roles": True}}})
    assert model().adaptations == {"alternating_roles"}


def test_a_conversations_own_need_is_remembered_for_it_alone(served, owner, queued):
    server = served(NO_TOOLS_NO_CALLS)
    session = SessionFactory(owner=owner)
    store(session, [user("q"), call("look", "c1"), result("c1", "found"), user("and?")])
    run_turn(Turn(session=session))
    assert len(server.requests) == 2
    session = Session.objects.get(pk=session.pk)
    assert set(session.adaptations) == {"tools_as_text"}
    assert model().adaptations == frozenset()
    store(session, [user("more")])
    run_turn(Turn(session=session))
    assert len(server.requests) == 3
    assert "found" in str(server.requests[-1]["messages"])
    assert list(Incident.objects.values_list("code", flat=True)) == ["tools_as_text"]


def test_the_servers_own_sentence_ends_a_turn_and_names_the_message(served, owner, queued):
    broken = {
        "check": "has_key",
        "key": "messages",
        "message": "Invalid 'messages[2].content': the word fnord is not allowed here.",
        "param": "messages[2].content",
    }
    served(broken)
    session = SessionFactory(owner=owner)
    store(session, [user("a"), {"role": "assistant", "content": "b"}])
    with pytest.raises(TurnFailedError, match=r"fnord.*message 3 \(user\)"):
        store(session, [user("fnord")])
        run_turn(Turn(session=session))


def test_the_command_says_what_a_server_takes_and_what_it_taught(served):
    served(TEMPERATURE, MAX_TOKENS, NO_TOOLS_NO_CALLS)
    out = StringIO()
    call_command("check_model", "default", stdout=out, no_color=True)
    told = out.getvalue()
    assert "a temperature: yes" in told
    assert "an earlier call, no tools any more: yes" in told
    assert "6 of 6 questions answered" in told
    assert "learnt: The parameter temperature is left out." in told
    assert "learnt: The parameter max_tokens is sent as max_completion_tokens." in told
    again = StringIO()
    call_command("check_model", "default", stdout=again, no_color=True)
    assert "known before: The parameter temperature is left out." in again.getvalue()


def test_the_command_fails_where_no_question_was_answered(served):
    served({"check": "has_key", "key": "model", "message": "No.", "status": 401})
    out = StringIO()
    with pytest.raises(CommandError, match="No answer at all from: default"):
        call_command("check_model", "default", stdout=out, no_color=True)
    assert "a short answer: no" in out.getvalue()
    with pytest.raises(CommandError, match="No model is called 'nobody'"):
        call_command("check_model", "nobody", stdout=out)


def test_the_page_says_in_words_what_was_learnt(served, admin_client):
    served(TEMPERATURE)
    ask(model(), hello(temperature=0.2))
    limits = LearnedLimits.objects.get()
    page = admin_client.get(reverse("admin:chatapp_learnedlimits_change", args=[limits.pk]))
    assert "The parameter temperature is left out." in page.content.decode()
    assert "turns and summaries alike" in page.content.decode()
    listed = admin_client.get(reverse("admin:chatapp_learnedlimits_changelist"))
    assert "The parameter temperature is left out." in listed.content.decode()


def test_what_a_session_needs_is_told_and_can_be_taken_back(served, owner, api, queued):
    served(NO_TOOLS_NO_CALLS)
    session = SessionFactory(owner=owner)
    store(session, [user("q"), call("look", "c1"), result("c1", "found"), user("and?")])
    run_turn(Turn(session=session))
    address = f"/api/v1/sessions/{session.pk}/"
    assert api.get(address).json()["adaptations"] == ["tools_as_text"]
    refused = api.patch(address, {"adaptations": ["flat"]}, format="json")
    assert refused.status_code == 400
    assert "can only be taken back" in refused.content.decode()
    assert api.patch(address, {"adaptations": []}, format="json").status_code == 200
    assert Session.objects.get(pk=session.pk).adaptations == {}


def test_the_next_request_is_shown_in_the_form_in_which_it_goes_out(
    served, owner, api, queued, admin_client
):
    server = served(CAPABILITIES={"alternating_roles": True, "call_ids": False})
    session = SessionFactory(owner=owner)
    store(session, [user("q"), call("look", "call_number_1", '{"a": '), result("call_number_1")])
    store(session, [user("and?"), user("well?")])
    shown = api.get(f"/api/v1/sessions/{session.pk}/context/").json()["messages"]
    page = admin_client.get(reverse("admin:chatapp_session_request", args=[session.pk]))
    run_turn(Turn(session=session))
    assert server.requests[0]["messages"] == shown
    assert "unreadable_arguments" in str(shown)
    assert shown[-1]["content"] == "and?\n\nwell?"
    assert "unreadable_arguments" in page.content.decode()
