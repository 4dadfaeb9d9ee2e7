"""What a compaction costs the database and the tokenizer: the same beside any backlog."""

from __future__ import annotations

import gc
import random

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given, settings
from hypothesis import strategies as st

from chatapp.llm.registry import get_model
from chatapp.llm.tokens import TiktokenCounter
from chatapp.models import Session
from compaction.branches.leases import ensure_state
from compaction.engine.extractive import material
from compaction.engine.extractive.material import read_of
from compaction.engine.strategies.prompts import messages_for
from compaction.engine.types import Item, SummaryRequest, ToolCall
from compaction.models import (
    CompactionRun,
    CompactionState,
    SessionSummary,
    SessionSummaryMessage,
    SummaryQuality,
)
from compaction.profiles import save_profile
from compaction.runs.scheduling import check_branch
from compaction.runs.worker import compact_branch, execute_run
from compaction.statistics.hindsight import note_hindsight
from compaction.summaries.input_tokens import transcript_tokens
from tests.compaction.support import NEVER, compact
from tests.compaction.test_tail_reads import backlog, compared, reading
from tests.factories import SessionFactory, profile, store, talk
from tests.facts import code

pytestmark = pytest.mark.django_db
# A compaction of a branch whose state is stored: one call, no summary before. Marks of transactions
# are among them on SQLite.
MOST_STATEMENTS = 40
MOST_OF_BATCH = 50


def queued_run(session: Session) -> CompactionRun:
    return CompactionRun.objects.get(branch=session.active_branch_id, status="queued")


@pytest.mark.parametrize("has_ledger", [True, False])
def test_batches_read_and_ask_the_same_of_any_backlog(owner, model_server, queued, has_ledger):
    """The first with nothing summarised, the second behind a summary; each queues the next one."""
    values = {"ledger": has_ledger, "quality_gate": has_ledger}
    save_profile(name="rule", base="sliding_window", parameters=values, make_default=True)

    def first(session: Session) -> None:
        check_branch(session)
        assert execute_run(queued_run(session).pk).status == "succeeded"

    def second(session: Session) -> None:
        assert execute_run(queued_run(session).pk).status == "succeeded"
        assert queued_run(session).reason

    reads = compared(owner, {"first": first, "second": second})
    # Sixty messages, their links, the tail: no more rows than a few pages.
    assert all(one.rows < 700 for one in reads.values())
    assert all(one.statements <= 2 * MOST_OF_BATCH for one in reads.values())


def test_a_compaction_asks_as_often_of_many_messages_as_of_few(owner, model_server, queued):
    profile(keep_last_n=0, **NEVER)
    asked = []
    for count in (100, 100, 1_000):
        session = backlog(owner, count)
        ensure_state(session.branch)
        with reading() as reads:
            run = compact_branch(session=session, trigger="manual", reason="manual")
        assert run.status == "succeeded", run.error
        assert SessionSummaryMessage.objects.filter(summary__run=run).count() == count
        asked.append(reads.statements)
    assert asked[1] == asked[2] <= MOST_STATEMENTS


def test_a_run_by_hand_is_never_queued(owner, model_server, queued):
    profile(keep_last_n=2, **NEVER)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    run = compact_branch(session=session, trigger="manual", reason="manual")
    stored = CompactionRun.objects.get(pk=run.pk)
    assert (run.status, stored.status, queued) == ("succeeded", "succeeded", [])
    assert stored.started_at is not None
    assert stored.model_calls == run.model_calls == 1
    assert CompactionState.objects.get(pk=run.branch_id).lease_owner is None


def test_what_a_turn_asks_for_takes_over_the_run_that_waits(owner, model_server, queued):
    profile(message_limit=8, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(10, marker=1))
    waiting = check_branch(session)
    run = compact_branch(session=session, trigger="proactive", reason="message_limit")
    assert run.pk == waiting.pk
    assert (run.status, run.mode) == ("succeeded", "inline")


def test_instructions_are_asked_for_where_a_session_has_some_and_go_on(owner, model_server, queued):
    profile(message_limit=8, keep_last_n=2, batch_messages=20)
    words = f"Keep {code(41)}."
    others, session = backlog(owner, 80), backlog(owner, 80)
    compact(session, keep_last_n=60, instructions=words)
    check_branch(others)
    check_branch(session)
    for _ in range(2):
        plain, instructed = queued_run(others), queued_run(session)
        with CaptureQueriesContext(connection) as asked:
            assert execute_run(plain.pk).status == "succeeded"
        with CaptureQueriesContext(connection) as asked_more:
            run = execute_run(instructed.pk)
        assert not any(map(reads_instructions, asked))
        assert any(map(reads_instructions, asked_more))
        made = SessionSummary.objects.get(run=run)
        assert (made.instructions, made.previous_id is not None) == (words, True)


def reads_instructions(query: dict[str, str]) -> bool:
    """Whether a statement reads the instructions of summaries with those whose they are."""
    return query["sql"].startswith("SELECT") and 'AS "whose"' in query["sql"]


# --- the tokenizer --------------------------------------------------------------------------------


def test_no_message_is_counted_again_for_its_summary(owner, model_server, queued, monkeypatch):
    profile(keep_last_n=2, **NEVER)
    session = SessionFactory(owner=owner, wires=talk(40, words=30, marker=1))
    counter = get_model(session.model).counter
    counted: list[str] = []
    real = type(counter).count
    monkeypatch.setattr(
        type(counter), "count", lambda self, text: counted.append(text) or real(self, text)
    )
    run = compact_branch(session=session, trigger="manual", reason="manual")
    assert run.status == "succeeded"
    (request,) = model_server.of("summary")
    transcript = request.body["messages"][-1]["content"]
    assert transcript not in counted
    assert max(map(len, counted)) < len(transcript) / 2


def drawn(seed: int, count: int) -> tuple[Item, ...]:
    """Return messages of words, code, numbers and lines, counted as they are stored."""
    chance, count_of = random.Random(seed), TiktokenCounter("o200k_base").count
    pieces = ["the plan", "def run(self):", "4711-AX", "—", "Straße", "会议", "x" * 30, "\n", "ok."]
    items = []
    for number in range(1, count + 1):
        text = " ".join(chance.choices(pieces, k=chance.randint(1, 60)))
        role = chance.choice(["user", "assistant", "tool"])
        calls = ()
        if role == "assistant" and chance.random() < 0.4:
            call_id = f"call_{chance.randbytes(12).hex()}"
            calls = (ToolCall(id=call_id, name="read_file", arguments='{"path": "a/b.py"}'),)
        sent = text + "".join(call.name + call.arguments for call in calls)
        items.append(
            Item(
                id=number,
                role=role,
                text=text,
                position=number * 1_000_000,
                tokens=count_of(sent),
                chars=len(sent),
                tool_calls=calls,
                tool_call_id=f"call_{number:024}" if role == "tool" else "",
            )
        )
    return tuple(items)


styles = st.sampled_from(["headings", "checkpoint"])


@given(seed=st.integers(0, 10_000), count=st.integers(1, 60), style=styles)
@settings(max_examples=60, deadline=None)
def test_stored_tokens_say_what_a_transcript_takes(seed, count, style):
    items = drawn(seed, count)
    request = SummaryRequest(kind="chunk", items=items, target_tokens=300, style=style, cites=True)
    model = get_model("default")
    counter = TiktokenCounter("o200k_base")
    sent = messages_for(request)
    exact = sum(counter.count(message["content"]) for message in sent)
    found = transcript_tokens(request, sent[0]["content"], model)
    # Never so much less that the margin for servers' own ways of counting would not cover it.
    assert 0.97 * exact <= found <= 1.4 * exact + 60


# --- what is read once ----------------------------------------------------------------------------


def test_messages_are_read_once_as_long_as_somebody_holds_them(monkeypatch):
    items = drawn(3, 20)
    read: list[int] = []
    real = material.units_of
    monkeypatch.setattr(
        material, "units_of", lambda items, found=None: read.append(1) or real(items, found)
    )
    held = read_of(items)
    request = SummaryRequest(kind="chunk", items=items)
    assert material.Material(request).units == material.Material(request).units
    assert read == [1]
    del held
    gc.collect()
    assert material.Material(request).units
    assert read == [1, 1]


def test_other_messages_of_the_same_texts_are_read_for_themselves():
    first, second = drawn(3, 5), drawn(4, 5)
    held = read_of(first)
    assert read_of(first) is held
    assert read_of(second) is not held
    assert read_of((*first,)) is not held


# --- hindsight beside a backlog -------------------------------------------------------------------


def test_hindsight_does_not_go_through_a_backlog(owner, model_server, queued):
    profile(message_limit=8, keep_last_n=2, batch_messages=20)
    rows = []
    for count in (200, 2_000):
        session = backlog(owner, count)
        execute_run(check_branch(session).pk)
        with reading() as reads:
            assert note_hindsight(session.branch, turns=3) == 0
        rows.append((reads.statements, reads.rows))
    assert rows[0] == rows[1]


def test_hindsight_comes_when_the_backlog_is_behind_the_turns(owner, model_server, queued):
    profile(message_limit=8, keep_last_n=2, batch_messages=20)
    session = backlog(owner, 200)
    execute_run(check_branch(session).pk)
    summary = SessionSummary.objects.get()
    store(session, talk(6, marker=500))
    session.branch.refresh_from_db()
    assert note_hindsight(session.branch, turns=3) == 1
    assert SummaryQuality.objects.get(summary=summary).hindsight_at is not None
    assert note_hindsight(session.branch, turns=3) == 0
