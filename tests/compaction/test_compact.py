"""Compacting a branch end to end."""

from __future__ import annotations

import pytest
from django.db import connection

from chatapp.models import Message
from chatapp.transcript import set_pinned
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionRun, CompactionStep, SessionSummary
from compaction.runs.worker import execute_run
from tests.compaction.support import NEVER, compact, say, sent, state, stored, texts
from tests.factories import SessionFactory, call, profile, result, store, talk
from tests.facts import code
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(owner, model_server, queued):
    """Twelve messages with six codes; by hand all but the last two are summarised."""
    profile(**NEVER, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


def test_it_summarises_all_but_the_last_n(session, model_server):
    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    summary = SessionSummary.objects.get()
    assert summary.summary_text == f"SUMMARY {code(1)} {code(2)} {code(3)} {code(4)} {code(5)}"
    assert len(model_server.summarising()) == 1
    assert texts(sent(session), "user") == [stored(session)[-2].content]


def test_it_changes_no_message(session):
    def rows():
        return list(Message.objects.filter(kind="message").order_by("pk").values())

    before = rows()
    compact(session)
    assert rows() == before


def test_linked_messages_are_those_the_summariser_received(session, model_server):
    compact(session)
    summary = SessionSummary.objects.get()
    linked = Message.objects.filter(summary_links__summary=summary)
    asked = model_server.of("summary")[0].text
    for row in stored(session):
        if row.kind == "message":
            assert (row.content.strip() in asked) == (row in linked)
    assert summary.message_count == linked.count() == 10


def test_the_cursor_stands_at_the_last_linked_message(session):
    compact(session)
    assert state(session).cursor == SessionSummary.objects.get().last_message.position


def test_a_summariser_never_writes_a_message(session):
    before = Message.objects.filter(kind="message").count()
    compact(session)
    assert Message.objects.filter(kind="message").count() == before


def test_the_next_summary_takes_the_previous_one_in(session, model_server):
    compact(session)
    store(session, talk(4, marker=50))
    compact(session)
    first, second = SessionSummary.objects.order_by("created_at")
    assert code(1) in model_server.of("summary")[1].text
    assert second.previous == first
    assert second.covers_from > first.covers_through


def apart(model_server) -> None:
    """Have each summary say nothing of the one before it, so that both have to be sent."""
    model_server.script = [
        *(
            {"when": {"purpose": "summary", "call": n}, "reply": {"text": f"SUMMARY part {n}"}}
            for n in range(1, 9)
        ),
        *model_server.script,
    ]


def test_the_next_request_holds_the_newest_two_summaries_oldest_first(session, model_server):
    apart(model_server)
    for marker in (20, 30, 40):
        compact(session)
        store(session, talk(3, marker=marker))
    compact(session)
    systems = texts(sent(session), "system")
    assert SessionSummary.objects.count() == 4
    assert len(systems) == 2
    newest = list(SessionSummary.objects.order_by("-covers_through")[:2])
    assert newest[1].summary_text in systems[0]
    assert newest[0].summary_text in systems[1]


def test_the_system_prompt_stays_verbatim_and_first(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6), system_prompt="Be kind.")
    compact(session)
    assert sent(session)[0] == {"role": "system", "content": "Be kind."}
    assert "Be kind." not in model_server.of("summary")[0].text


def test_opening_system_messages_are_sent_and_never_summarised(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    wires = [{"role": "system", "content": "RULE-1"}, *talk(6)]
    session = SessionFactory(owner=owner, wires=wires)
    compact(session)
    assert sent(session)[0] == {"role": "system", "content": "RULE-1"}
    assert "RULE-1" not in model_server.of("summary")[0].text
    store(session, talk(6))
    compact(session)
    assert sent(session)[0] == {"role": "system", "content": "RULE-1"}


def test_a_pinned_message_is_sent_although_a_summary_covers_it(session):
    set_pinned(stored(session)[2], True)
    compact(session)
    assert texts(sent(session), "user") == [stored(session)[2].content, stored(session)[-2].content]


def test_pinning_everything_leaves_nothing_to_win(session):
    for row in stored(session):
        set_pinned(row, True)
    run = compact(session)
    assert (run.status, run.error_code) == ("skipped", "no_gain")
    assert not SessionSummary.objects.exists()


def test_the_question_of_a_long_turn_is_sent_although_it_was_summarised(
    owner, model_server, queued
):
    profile(**NEVER, keep_last_n=2)
    turn = [m for n in range(8) for m in (call("run", f"c{n}"), result(f"c{n}", "line " * 50))]
    wires = [*talk(1), {"role": "user", "content": "THE QUESTION"}, *turn]
    session = SessionFactory(owner=owner, wires=wires)
    assert compact(session).status == "succeeded"
    request = sent(session)
    assert texts(request, "user") == ["THE QUESTION"]
    assert [m["role"] for m in request] == ["system", "user", "assistant", "tool"]


def test_a_pinned_message_does_not_stand_in_for_the_question(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    turn = [m for n in range(8) for m in (call("run", f"c{n}"), result(f"c{n}", "line " * 50))]
    wires = [*talk(1), {"role": "user", "content": "THE QUESTION"}, *turn]
    session = SessionFactory(owner=owner, wires=wires)
    set_pinned(stored(session)[0], True)
    compact(session)
    assert texts(sent(session), "user") == [stored(session)[0].content, "THE QUESTION"]


def test_an_open_question_is_kept_on_top_of_the_last_n(session, model_server):
    store(session, [{"role": "user", "content": "OPEN"}])
    compact(session)
    assert "OPEN" not in model_server.of("summary")[0].text
    assert SessionSummary.objects.get().message_count == 10


def test_a_call_keeps_its_results(owner, model_server, queued):
    profile(**NEVER, keep_last_n=1)
    tools = [call("run", "a"), result("a", "out " * 30)]
    session = SessionFactory(owner=owner, wires=[*talk(4), *tools])
    compact(session)
    assert [m["role"] for m in sent(session)][-2:] == ["assistant", "tool"]


def test_nothing_to_summarise_ends_as_skipped_with_a_reason(owner, model_server, queued):
    profile(**NEVER, keep_last_n=6)
    run = compact(SessionFactory(owner=owner, wires=talk(2)))
    assert (run.status, run.error_code) == ("skipped", "nothing_to_do")
    assert "kept" in run.error
    assert not model_server.calls


def test_a_summary_that_is_not_smaller_is_refused(session, model_server):
    model_server.script = [{"when": {"purpose": "summary"}, "reply": {"text": "wordy " * 3000}}]
    run = compact(session)
    assert (run.status, run.error_code) == ("skipped", "no_gain")
    assert not SessionSummary.objects.exists()
    assert state(session).cursor == 0


def test_the_figures_of_a_run_are_those_of_the_next_request(session):
    before = snapshot_of(session).whole_facts.request_tokens
    run = compact(session)
    after = snapshot_of(session).whole_facts.request_tokens
    assert (run.tokens_before, run.tokens_after) == (before, after)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_the_figures_hold_whatever_number_of_summaries_is_sent(owner, model_server, queued, limit):
    profile(**NEVER, keep_last_n=2, summary_limit=limit)
    apart(model_server)
    session = SessionFactory(owner=owner, wires=talk(4, marker=1))
    for number in range(2, 6):
        before = snapshot_of(session).whole_facts.request_tokens
        run = compact(session)
        after = snapshot_of(session).whole_facts.request_tokens
        assert (run.tokens_before, run.tokens_after) == (before, after)
        store(session, talk(4, marker=number * 10))
    assert len(texts(sent(session), "system")) == limit


def test_every_call_is_a_step_in_a_tree(owner, use_models, queued):
    script = [
        {
            "when": {"purpose": "summary", "est_tokens_gt": 900},
            "reply": {
                "error": {"status": 400, "body": {"error": {"code": "context_length_exceeded"}}}
            },
        },
        {"when": {"purpose": "summary"}, "reply": {"text": "part"}},
        {"when": {"purpose": "merge"}, "reply": {"text": "whole"}},
    ]
    with ModelServer(script) as server:
        use_models(server.models())
        profile(**NEVER, keep_last_n=0)
        session = SessionFactory(owner=owner, wires=[*talk(10), {"role": "user", "content": "?"}])
        run = compact(session)
    steps = list(CompactionStep.objects.filter(run=run).order_by("order"))
    assert [(s.kind, s.depth, s.outcome) for s in steps] == [
        ("chunk", 0, "overflow"),
        ("chunk", 1, "ok"),
        ("chunk", 1, "ok"),
        ("merge", 1, "ok"),
    ]
    assert [s.parent for s in steps] == [None, steps[0], steps[0], steps[0]]
    assert (run.chunk_count, run.max_depth, run.model_calls) == (3, 2, 4)
    assert SessionSummary.objects.get().summary_text == "whole"


def test_a_text_made_by_force_counts_as_no_call(owner, use_models, queued):
    refuse = {"error": {"status": 400, "body": {"error": {"code": "context_length_exceeded"}}}}
    with ModelServer([{"when": {}, "reply": refuse}]) as server:
        use_models(server.models())
        profile(**NEVER, keep_last_n=2, bisect_enabled=False)
        session = SessionFactory(owner=owner, wires=talk(20, words=60))
        run = compact(session)
    assert (run.status, run.truncated, run.model_calls) == ("succeeded", True, 1)
    assert run.steps.count() == 2


def test_the_summariser_may_be_another_model(owner, model_server, use_models, queued):
    with ModelServer() as cheap:
        models = model_server.models() | {"cheap": cheap.models(NAME="small")["default"]}
        use_models(models)
        profile(**NEVER, keep_last_n=2, summary_model="cheap")
        run = compact(SessionFactory(owner=owner, wires=talk(6)))
        assert run.status == "succeeded"
        assert len(cheap.summarising()) == 1
    assert not model_server.calls
    assert SessionSummary.objects.get().model == "small"


def test_the_extractive_summariser_needs_no_model(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2, summariser="extractive")
    run = compact(SessionFactory(owner=owner, wires=talk(8, words=50)))
    assert run.status == "succeeded", run.error
    assert not model_server.calls


def test_a_model_alias_that_is_gone_fails_the_run_with_its_name(session, settings):
    row = profile(**NEVER, keep_last_n=2)
    type(row).objects.filter(pk=row.pk).update(parameters=NEVER | {"summary_model": "gone"})
    run = compact(session)
    assert (run.status, run.error_code) == ("failed", "unknown_model")
    assert "gone" in run.error


def test_an_unexpected_error_becomes_a_failed_run(session, monkeypatch, caplog):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("no luck")

    monkeypatch.setattr("compaction.runs.strategy.summarizer_for", broken)
    run = compact(session)
    assert (run.status, run.error_code) == ("failed", "internal_error")
    assert "ZeroDivisionError: no luck" in run.error
    assert not state(session).is_consolidating


def test_a_stopped_worker_leaves_a_failed_run_and_a_free_branch(session, monkeypatch):
    def stopped(*args, **kwargs):
        raise SystemExit("the queue's time-out")

    monkeypatch.setattr("compaction.runs.strategy.summarizer_for", stopped)
    with pytest.raises(SystemExit):
        compact(session)
    run = CompactionRun.objects.get()
    assert (run.status, run.error_code) == ("failed", "interrupted")
    assert not state(session).is_consolidating


def test_no_transaction_is_open_while_the_model_writes(session, model_server, monkeypatch):
    depths = []
    from chatapp.llm.openai_client import OpenAIModel

    real = OpenAIModel.complete
    inside = len(connection.savepoint_ids)

    def watched(self, request, *args):
        depths.append(len(connection.savepoint_ids) - inside)
        return real(self, request, *args)

    monkeypatch.setattr(OpenAIModel, "complete", watched)
    compact(session)
    assert depths == [0]


def test_a_run_out_of_time_stores_nothing(session, monkeypatch):
    queued_run = CompactionRun.objects.create(
        session=session, branch=session.branch, trigger="manual", reason="manual", mode="inline",
        profile=snapshot_of(session).profile_row,
    )  # fmt: skip
    run = execute_run(queued_run.pk, seconds=-1)
    assert run.status == "failed"
    assert not SessionSummary.objects.exists()


def test_instructions_reach_the_summariser_and_are_stored(session, model_server):
    compact(session, instructions="Keep the dates.")
    assert "Keep the dates." in model_server.of("summary")[0].text
    assert SessionSummary.objects.get().instructions == "Keep the dates."


def test_the_exact_reason_is_stored(owner, model_server, queued):
    profile(message_limit=10, keep_last_n=2)
    say(SessionFactory(owner=owner, wires=talk(6)))
    summary = SessionSummary.objects.get()
    assert (summary.trigger, summary.reason) == ("proactive", "message_limit")
    assert summary.metadata["trigger"] == "proactive"


@pytest.mark.parametrize("broken", ["\ud83d", "\x00"], ids=["lone surrogate", "NUL"])
def test_a_summary_with_broken_characters_is_stored(session, model_server, broken):
    model_server.script = [{"when": {}, "reply": {"text": f"the user likes {broken} tea"}}]
    assert compact(session).status == "succeeded"
    assert SessionSummary.objects.get().summary_text == "the user likes \ufffd tea"


def test_an_error_with_broken_characters_is_stored(session, model_server):
    body = {"error": {"message": "no \ud83d luck"}}
    model_server.script = [{"when": {}, "reply": {"error": {"status": 400, "body": body}}}]
    run = compact(session)
    assert (run.status, run.error_code) == ("failed", "summariser_error")
    assert "no \ufffd luck" in run.error


def test_a_message_that_arrives_meanwhile_is_neither_lost_nor_summarised(
    session, model_server, monkeypatch
):
    from compaction.summaries.summarizer import ModelSummarizer

    real = ModelSummarizer.summarize

    def slow(self, request):
        store(session, [{"role": "user", "content": "MEANWHILE"}])
        return real(self, request)

    monkeypatch.setattr(ModelSummarizer, "summarize", slow)
    assert compact(session).status == "succeeded"
    assert sent(session)[-1]["content"] == "MEANWHILE"
    linked = Message.objects.filter(summary_links__isnull=False)
    assert not linked.filter(content="MEANWHILE").exists()
