"""The summariser as a model of its own: its room, its ends, how much of its text is read."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from chatapp.llm import responses_wire
from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest
from chatapp.models import LearnedLimits
from compaction.engine.profile import PRESETS
from compaction.models import CompactionStep, SessionSummary
from tests.compaction.support import NEVER, compact
from tests.factories import SessionFactory, profile, talk
from tests.facts import CODE_PATTERN, code
from tests.fakes.model_server import ECHO_AND_ANSWER, ModelServer
from tests.field.field_server import FieldServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def field(use_models, owner, queued):
    """Play a summariser's script; return its server and a session with it."""
    servers = []

    def play(turns=20, *, refusals=(), entry=None, **summary):
        server = FieldServer(summary=summary, refusals=refusals)
        servers.append(server.__enter__())
        model = {
            "BACKEND": "chatapp.llm.openai_client.OpenAIModel",
            "NAME": "scripted",
            "CONTEXT_WINDOW": 128_000,
            "MAX_OUTPUT": 8192,
            "ENCODING": "",
            "API_KEY": "test",
            "BASE_URL": server.url,
        }
        use_models({"default": model | (entry or {})})
        profile(**NEVER, keep_last_n=2)
        return server, SessionFactory(owner=owner, wires=talk(turns, marker=1))

    yield play
    for server in servers:
        server.__exit__()


def test_room_that_a_model_needed_is_asked_for_at_once_by_the_next_run(field):
    server, session = field(needs_output_tokens=3000)
    run = compact(session)
    assert (run.status, run.model_calls) == ("succeeded", 2)
    assert [call["max_tokens"] for call in server.summarising()] == [1400, 8192]
    assert "room:whole" in LearnedLimits.objects.get().adaptations

    another = SessionFactory(owner=session.owner, wires=talk(20, marker=1))
    assert compact(another).model_calls == 1
    assert server.summarising()[-1]["max_tokens"] == 8192


LOW = {"CAPABILITIES": {"reasoning_effort": "low"}}


def asked(server):
    """Return room and effort of every summarising call."""
    calls = server.summarising()
    return [
        (call.get("max_tokens") or call["max_completion_tokens"], call.get("reasoning_effort"))
        for call in calls
    ]


@pytest.mark.parametrize(
    ("entry", "effort"),
    [
        (LOW, "low"),
        ({"CAPABILITIES": {"reasoning_effort": "none"}}, "none"),
        ({"NAME": "o4-mini"}, "low"),
        ({"NAME": "openai/gpt-5.1"}, "low"),
        ({"NAME": "gpt-5", "CAPABILITIES": {"reasoning_effort": "minimal"}}, "minimal"),
        ({"NAME": "gpt-5", "CAPABILITIES": {"reasoning_effort": None}}, None),
        ({"NAME": "o1-mini"}, None),
        ({}, None),
    ],
)
def test_the_second_try_asks_for_less_reasoning_where_the_model_has_that(field, entry, effort):
    server, session = field(needs_output_tokens=3000, entry=entry)
    assert compact(session).status == "succeeded"
    assert asked(server) == [(1400, None), (8192, effort)]


def test_less_reasoning_is_asked_for_at_once_by_the_next_run(field):
    server, session = field(needs_output_tokens=3000, entry=LOW)
    compact(session)
    another = SessionFactory(owner=session.owner, wires=talk(20, marker=1))
    assert compact(another).model_calls == 1
    assert asked(server)[-1] == (8192, "low")


def test_a_model_without_more_room_is_asked_once_more_with_less_reasoning(field):
    server, session = field(needs_effort="low", entry=LOW | {"MAX_OUTPUT": 600})
    run = compact(session)
    assert (run.status, asked(server)) == ("succeeded", [(600, None), (600, "low")])


def test_what_thinks_too_long_in_any_way_is_halved(field):
    server, session = field(needs_effort="unknown", entry=LOW, turns=12)
    run = compact(session)
    assert run.status == "succeeded"
    assert asked(server)[:3] == [(1400, None), (8192, "low"), (8192, "low")]
    counts = list(run.steps.order_by("order").values_list("depth", "message_count")[:3])
    assert counts[:2] == [(0, 22), (0, 22)]
    assert counts[2][0] == 1 and counts[2][1] < 22


def test_a_server_that_knows_no_effort_gets_none_from_then_on(field):
    refusal = {
        "check": "has_key",
        "key": "reasoning_effort",
        "message": "Unrecognized request argument supplied: reasoning_effort",
        "param": "reasoning_effort",
        "code": "unsupported_parameter",
    }
    server, session = field(needs_output_tokens=3000, entry=LOW, refusals=[refusal])
    assert compact(session).status == "succeeded"
    assert asked(server) == [(1400, None), (8192, "low"), (8192, None)]
    another = SessionFactory(owner=session.owner, wires=talk(20, marker=1))
    assert compact(another).model_calls == 1
    assert len(asked(server)) == 4
    assert asked(server)[-1] == (8192, None)


def test_over_the_responses_api_the_effort_is_a_field_of_its_reasoning():
    model = ModelConfig(alias="m", backend="b", name="m", context_window=1000)
    request = ModelRequest(messages=[{"role": "user", "content": "hi"}], effort="low")
    assert responses_wire.arguments_of(model, request)["reasoning"] == {"effort": "low"}
    assert "reasoning" not in responses_wire.arguments_of(model, replace(request, effort=""))


def test_a_model_whose_thoughts_never_end_is_asked_a_handful_of_times(field):
    server, session = field(needs_output_tokens=100_000)
    run = compact(session)
    assert run.status == "succeeded"
    assert len(server.summarising()) <= 5
    summary = SessionSummary.objects.get()
    assert summary.truncated
    assert code(1) in summary.summary_text


@pytest.mark.parametrize("word", ["SAFETY", "content-filter", "REFUSAL", "ERROR", "cancelled"])
def test_an_answer_that_was_filtered_refused_or_broken_is_never_stored(field, word):
    _, session = field(text=f"Order {code(1)} and {code(2)} were named.", finish=word)
    assert compact(session).error_code in ("bad_answer", "summariser_error")
    assert not SessionSummary.objects.exists()


@pytest.mark.parametrize("word", ["MAX_TOKENS", "max_output_tokens", "Model-Length", "TRUNCATED"])
def test_an_answer_that_was_cut_off_is_no_clean_summary_in_any_spelling(field, word):
    _, session = field(turns=6, text=f"The deposit is {code(1)} and the", finish=word)
    compact(session)
    assert not SessionSummary.objects.filter(truncated=False).exists()


@pytest.mark.parametrize("word", ["STOP", "end_turn", "eos", "FINISH_REASON_STOP"])
def test_an_answer_that_is_whole_counts_in_any_spelling(field, word):
    _, session = field(text=f"Orders {code(1)} and {code(2)} were named", finish=word)
    assert compact(session).status == "succeeded"
    assert not SessionSummary.objects.get().truncated


def test_an_unknown_word_counts_after_a_look_and_is_noted(field, admin_client):
    _, session = field(text=f"Orders {code(1)} and {code(2)} were named.", finish="weird")
    assert compact(session).status == "succeeded"
    step = CompactionStep.objects.get()
    assert (step.outcome, "'weird'" in step.error) == ("ok", True)
    page = admin_client.get(f"/admin/compaction/compactionstep/{step.pk}/change/").content.decode()
    assert "<h3>Note</h3>" in page


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("ledger", [True, False])
def test_an_answer_to_the_last_question_never_replaces_the_history(field, gate, ledger):
    server, session = field(turns=40, text="You should take the night train; shall I book it now?")
    profile(**NEVER, keep_last_n=2, ledger=ledger, quality_gate=gate)
    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    assert len(server.summarising()) == 2
    text = SessionSummary.objects.get().summary_text
    assert "night train" not in text
    assert re.search(CODE_PATTERN, text)


@pytest.mark.parametrize("text", ["." * 40_000, ". " * 20_000, "-\n" * 30_000, "a. " * 400_000])
def test_a_hostile_text_costs_little_and_is_never_accepted(field, text):
    _, session = field(text=text)
    run = compact(session)
    assert not SessionSummary.objects.filter(summary_text__contains=text[:1000]).exists()
    longest = max(len(step.output) for step in CompactionStep.objects.filter(run=run))
    assert longest <= 20_000


@pytest.mark.parametrize("preset", ["bisect", "sliding_window", "checkpoint", "balanced"])
@pytest.mark.parametrize("word", ["length", "MAX_TOKENS"])
def test_a_text_that_is_cut_off_is_asked_for_with_the_whole_room_and_not_halved(
    use_models, owner, queued, preset, word
):
    sizes = {"keep_last_n": 2, "tail_keep_size": 2, "keep_recent_tokens": 30}
    parameters = PRESETS[preset].as_dict() | NEVER | sizes
    half = {"text": "Orders were named and", "finish_reason": word}
    first = {"when": {"purpose": "summary", "call": 1}, "reply": half}
    with ModelServer([first, *ECHO_AND_ANSWER]) as server:
        use_models(server.models(MAX_OUTPUT=16_000))
        profile(**parameters)
        run = compact(SessionFactory(owner=owner, wires=talk(20, marker=1)))
    assert (run.status, run.error) == ("succeeded", "")
    asked = [call.body["max_tokens"] for call in server.of("summary")[:2]]
    assert (asked[0] < 16_000, asked[1]) == (True, 16_000)
    assert len(server.calls) == run.model_calls
    steps = list(run.steps.order_by("order").values_list("outcome", "depth", "message_count"))
    assert [outcome for outcome, *_ in steps[:2]] == ["truncated", "ok"]
    assert steps[0][1:] == steps[1][1:]
