"""The summariser as a model of its own: its room, its ends, how much of its text is read."""

from __future__ import annotations

import pytest

from chatapp.models import LearnedLimits
from compaction.models import CompactionStep, SessionSummary
from tests.compaction.support import NEVER, compact
from tests.factories import SessionFactory, profile, talk
from tests.field.field_server import FieldServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def field(use_models, owner, queued):
    """Play a summariser's script; return its server and a session with it."""
    servers = []

    def play(turns=20, **summary):
        server = FieldServer(summary=summary)
        servers.append(server.__enter__())
        entry = {
            "BACKEND": "chatapp.llm.openai_client.OpenAIModel",
            "NAME": "scripted",
            "CONTEXT_WINDOW": 128_000,
            "MAX_OUTPUT": 8192,
            "ENCODING": "",
            "API_KEY": "test",
            "BASE_URL": server.url,
        }
        use_models({"default": entry})
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


def test_a_model_whose_thoughts_never_end_is_asked_a_handful_of_times(field):
    server, session = field(needs_output_tokens=100_000)
    run = compact(session)
    assert run.status == "succeeded"
    assert len(server.summarising()) <= 5
    summary = SessionSummary.objects.get()
    assert summary.truncated
    assert "MK-0001" in summary.summary_text


@pytest.mark.parametrize("word", ["SAFETY", "content-filter", "REFUSAL", "ERROR", "cancelled"])
def test_an_answer_that_was_filtered_refused_or_broken_is_never_stored(field, word):
    _, session = field(text="Order MK-0001 and MK-0002 were named.", finish=word)
    assert compact(session).error_code in ("bad_answer", "summariser_error")
    assert not SessionSummary.objects.exists()


@pytest.mark.parametrize("word", ["MAX_TOKENS", "max_output_tokens", "Model-Length", "TRUNCATED"])
def test_an_answer_that_was_cut_off_is_no_clean_summary_in_any_spelling(field, word):
    _, session = field(turns=6, text="The deposit is MK-0001 and the", finish=word)
    compact(session)
    assert not SessionSummary.objects.filter(truncated=False).exists()


@pytest.mark.parametrize("word", ["STOP", "end_turn", "eos", "FINISH_REASON_STOP"])
def test_an_answer_that_is_whole_counts_in_any_spelling(field, word):
    _, session = field(text="Orders MK-0001 and MK-0002 were named", finish=word)
    assert compact(session).status == "succeeded"
    assert not SessionSummary.objects.get().truncated


def test_an_unknown_word_counts_after_a_look_and_is_noted(field, admin_client):
    _, session = field(text="Orders MK-0001 and MK-0002 were named.", finish="weird")
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
    assert "MK-00" in text


@pytest.mark.parametrize("text", ["." * 40_000, ". " * 20_000, "-\n" * 30_000, "a. " * 400_000])
def test_a_hostile_text_costs_little_and_is_never_accepted(field, text):
    _, session = field(text=text)
    run = compact(session)
    assert not SessionSummary.objects.filter(summary_text__contains=text[:1000]).exists()
    longest = max(len(step.output) for step in CompactionStep.objects.filter(run=run))
    assert longest <= 20_000
