"""Three layers, one transaction."""

from __future__ import annotations

import uuid

import pytest
from django.db import IntegrityError, transaction
from django.db.models import F, Model
from django.db.models.query import QuerySet

from chatapp import transcript
from chatapp.models import POSITION_STEP, Branch, Message
from chatapp.transcript.writing import NewMessage
from compaction.models import (
    CompactionRun,
    CompactionState,
    SessionSummary,
    SessionSummaryMessage,
)
from compaction.runs import lifecycle
from compaction.summaries import storing as writing
from tests.compaction.support import NEVER, compact, sent, state, stored, texts
from tests.factories import SessionFactory, profile, store, talk
from tests.facts import code

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


def nothing_was_stored(session) -> bool:
    return (
        not SessionSummary.objects.exists()
        and not SessionSummaryMessage.objects.exists()
        and not Message.objects.filter(kind="placeholder").exists()
        and state(session).cursor == 0
        and state(session).last_consolidated_at is None
        and not CompactionRun.objects.filter(status="succeeded").exists()
    )


STEPS = [
    (writing, "claim_state"),
    (writing, "write_summary"),
    (writing, "write_placeholder"),
    (lifecycle, "succeed"),
]


@pytest.mark.parametrize(("module", "step"), STEPS)
def test_when_a_write_fails_nothing_is_stored(session, monkeypatch, module, step):
    real = getattr(module, step)

    def broken(*args, **kwargs):
        real(*args, **kwargs)
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(module, step, broken)
    run = compact(session)
    assert (run.status, run.error_code) == ("failed", "internal_error")
    assert "the disk is full" in run.error
    assert nothing_was_stored(session)


@pytest.mark.parametrize("model", [SessionSummary, SessionSummaryMessage, Message])
def test_when_a_row_cannot_be_inserted_nothing_is_stored(session, monkeypatch, model):
    real = QuerySet._insert

    def insert(self, objs, *args, **kwargs):
        if self.model is model:
            raise IntegrityError("refused")
        return real(self, objs, *args, **kwargs)

    monkeypatch.setattr(QuerySet, "_insert", insert)
    real_batched = QuerySet._batched_insert

    def batched(self, objs, *args, **kwargs):
        if self.model is model:
            raise IntegrityError("refused")
        return real_batched(self, objs, *args, **kwargs)

    monkeypatch.setattr(QuerySet, "_batched_insert", batched)
    real_save = Model._do_insert

    def save(self, manager, using, *args, **kwargs):
        if isinstance(self, model):
            raise IntegrityError("refused")
        return real_save(self, manager, using, *args, **kwargs)

    monkeypatch.setattr(Model, "_do_insert", save)

    def link(*args, **kwargs):
        raise IntegrityError("refused")

    if model is SessionSummaryMessage:
        # The database links by itself: no row of this model is ever made.
        monkeypatch.setattr("compaction.summaries.storing.link_sources", link)
    assert compact(session).status == "failed"
    assert nothing_was_stored(session)


def meanwhile(monkeypatch, act) -> None:
    """Do something while the model writes its summary."""
    from compaction.summaries.summarizer import ModelSummarizer

    real = ModelSummarizer.summarize

    def summarize(self, request):
        answer = real(self, request)
        act()
        return answer

    monkeypatch.setattr(ModelSummarizer, "summarize", summarize)


def test_a_lease_lost_to_another_worker_writes_nothing(session, monkeypatch):
    meanwhile(
        monkeypatch,
        lambda: CompactionState.objects.update(lease_owner=uuid.uuid4()),
    )
    run = compact(session)
    assert (run.status, run.error_code) == ("failed", "lost_race")
    assert nothing_was_stored(session)


def test_a_cursor_that_moved_meanwhile_writes_nothing(session, monkeypatch):
    meanwhile(monkeypatch, lambda: CompactionState.objects.update(cursor=5))
    run = compact(session)
    assert (run.status, run.error_code) == ("failed", "lost_race")
    assert not SessionSummary.objects.exists()


def test_positions_renumbered_meanwhile_write_nothing(session, monkeypatch):
    store(session, talk(1))
    rows = Message.objects.filter(branch=session.branch)
    meanwhile(monkeypatch, lambda: rows.update(position=-F("position")))
    run = compact(session)
    assert (run.status, run.error_code) == ("failed", "lost_race")
    assert nothing_was_stored(session)


def test_a_message_put_between_meanwhile_writes_nothing_for_nobody_has_read_it(
    session, monkeypatch
):
    first = stored(session)[0].position
    draft = NewMessage(wire={"role": "user", "content": f"{code(777)} put between"})
    meanwhile(
        monkeypatch, lambda: transcript.insert_between(session.branch, after=first, draft=draft)
    )
    run = compact(session)
    assert (run.status, run.error_code) == ("failed", "lost_race")
    assert nothing_was_stored(session)
    assert any(code(777) in text for text in texts(sent(session), "user"))


def test_rules_that_change_places_meanwhile_write_nothing_though_their_number_is_the_same(
    owner, model_server, queued, monkeypatch
):
    profile(**NEVER, keep_last_n=2)
    rules = [{"role": "system", "content": f"Rule {name}"} for name in ("A", "B")]
    session = SessionFactory(owner=owner, wires=[*talk(2), *rules, *talk(4)])
    first, second = stored(session)[4:6]
    transcript.set_pinned(second, True)

    def swap() -> None:
        transcript.set_pinned(Message.objects.get(pk=second.pk), False)
        transcript.set_pinned(Message.objects.get(pk=first.pk), True)

    meanwhile(monkeypatch, swap)
    run = compact(session)
    assert (run.status, run.error_code) == ("failed", "lost_race")
    assert nothing_was_stored(session)


def test_a_rule_before_the_cursor_is_covered_but_never_linked(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    rule = {"role": "system", "content": "Answer in one word."}
    session = SessionFactory(owner=owner, wires=[rule, *talk(6)])
    assert compact(session).status == "succeeded"
    rows = stored(session)
    linked = SessionSummaryMessage.objects.values_list("message_id", flat=True)
    assert set(linked) == {row.pk for row in rows[1:11]}
    assert state(session).covered_messages == 11


def test_a_lost_race_makes_nobody_wait(session, monkeypatch):
    meanwhile(monkeypatch, lambda: CompactionState.objects.update(cursor=5))
    compact(session, trigger="overflow_retry", reason="overflow_retry")
    assert state(session).failures == 0


def test_the_placeholder_stands_between_the_last_summarised_and_the_first_kept(session):
    compact(session)
    rows = stored(session)
    assert [row.kind for row in rows] == ["message"] * 10 + ["placeholder"] + ["message"] * 2
    assert rows[9].position < rows[10].position < rows[11].position


def test_the_placeholder_has_the_documents_fields(session):
    compact(session)
    summary = SessionSummary.objects.get()
    row = Message.objects.get(kind="placeholder")
    assert row.role == "assistant"
    assert row.content
    assert row.summary == summary.summary_text
    assert row.metadata["type"] == "session_summary"
    assert row.metadata["summary_id"] == str(summary.pk)
    assert row.metadata["keepLastN"] == 2
    assert row.metadata["summary_timestamp"] == round(summary.created_at.timestamp() * 1000)
    assert row.metadata.items() >= summary.metadata.items()


def test_the_metadata_has_the_documents_keys(session):
    compact(session)
    summary = SessionSummary.objects.get()
    assert summary.metadata.keys() >= {
        "algorithm", "trigger", "chunk_count", "max_depth", "truncated", "compression_ratio",
        "input_tokens", "output_tokens",
    }  # fmt: skip
    assert summary.metadata["algorithm"] == "bisect_v1"
    assert summary.approx_tokens == summary.metadata["input_tokens"]


def test_the_summary_says_what_it_covers_and_how_it_was_made(session):
    compact(session)
    summary = SessionSummary.objects.get()
    rows = stored(session)
    assert (summary.first_message, summary.last_message) == (rows[0], rows[9])
    assert (summary.covers_from, summary.covers_through) == (rows[0].position, rows[9].position)
    assert summary.first_message_created_at == rows[0].created_at
    assert summary.last_message_created_at == rows[9].created_at
    assert (summary.message_count, summary.keep_last_n) == (10, 2)
    assert (summary.model, summary.temperature) == ("scripted", 0.2)
    assert summary.target_summary_tokens == 700
    assert "700" in summary.summary_prompt
    assert code(1) not in summary.summary_prompt
    assert summary.run == CompactionRun.objects.get()
    assert summary.profile.name == "test"


def test_files_come_from_tool_calls_never_from_the_summary(owner, model_server, queued):
    from tests.factories import call, result

    profile(**NEVER, keep_last_n=2)
    model_server.script = [{"when": {}, "reply": {"text": "It changed /invented.py"}}]
    wires = [
        *talk(2),
        call("read", "r1", '{"path": "a.py"}'),
        result("r1", "text " * 40),
        call("write", "w1", '{"path": "b.py", "content": "x"}'),
        result("w1"),
        *talk(1),
    ]
    compact(SessionFactory(owner=owner, wires=wires))
    summary = SessionSummary.objects.get()
    assert (summary.files_read, summary.files_modified) == (["a.py"], ["b.py"])


def test_a_link_cannot_be_stored_twice(session):
    compact(session)
    link = SessionSummaryMessage.objects.first()
    with pytest.raises(IntegrityError), transaction.atomic():
        SessionSummaryMessage.objects.create(summary=link.summary, message=link.message)


def test_two_active_summaries_never_cover_one_stretch(session):
    compact(session)
    summary = SessionSummary.objects.get()
    summary.pk = uuid.uuid4()
    with pytest.raises(IntegrityError), transaction.atomic():
        summary.save(force_insert=True)


def test_after_everything_was_summarised_the_next_message_finds_its_place(
    owner, model_server, queued
):
    profile(**NEVER, keep_last_n=0)
    session = SessionFactory(owner=owner, wires=talk(6))
    assert compact(session).status == "succeeded"
    store(session, [{"role": "user", "content": "NEXT"}])
    assert stored(session)[-1].content == "NEXT"
    assert texts(sent(session), "user") == ["NEXT"]


def test_covered_messages_and_tokens_are_the_sums_up_to_the_cursor(session):
    for marker in (20, 30):
        compact(session)
        store(session, talk(3, marker=marker))
    now = state(session)
    rows = Message.objects.filter(kind="message", position__lte=now.cursor)
    assert now.covered_messages == rows.count()
    assert now.covered_tokens == sum(row.tokens for row in rows)
    assert now.covered_chars == sum(row.chars for row in rows)


def test_renumbering_moves_cursor_and_coverage(session):
    compact(session)
    before = sent(session)
    last = SessionSummary.objects.get().last_message
    with transaction.atomic():
        transcript.renumber(session)
    last.refresh_from_db()
    summary = SessionSummary.objects.get()
    assert state(session).cursor == summary.covers_through == last.position
    assert summary.covers_from == Message.objects.get(pk=summary.first_message_id).position
    assert sent(session) == before


def test_renumbering_moves_summaries_to_where_another_one_ended(session):
    compact(session)
    store(session, talk(8))
    compact(session)
    first, second = SessionSummary.objects.order_by("covers_through")
    between = (second.covers_through - first.covers_through) // POSITION_STEP
    note = {"role": "user", "content": "Put in later."}
    with transaction.atomic():
        for _ in range(between):
            branch = Branch.objects.get(pk=session.branch.pk)
            draft = NewMessage(wire=note)
            transcript.insert_between(branch, after=POSITION_STEP, draft=draft)
        transcript.renumber(session)
    for summary, ended in ((first, first.last_message), (second, second.last_message)):
        summary.refresh_from_db()
        ended.refresh_from_db()
        assert summary.covers_through == ended.position
    assert state(session).cursor == second.covers_through


def test_a_renumbering_by_the_placeholder_itself_moves_the_new_cursor(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6))
    # No integer is left between the tenth and the eleventh message.
    rows = stored(session)
    Message.objects.filter(pk=rows[10].pk).update(position=rows[9].position + 1)
    assert compact(session).status == "succeeded"
    summary = SessionSummary.objects.get()
    last = Message.objects.get(pk=rows[9].pk)
    assert state(session).cursor == summary.covers_through == last.position
    assert [row.kind for row in stored(session)][10] == "placeholder"


def test_a_message_put_before_the_cursor_is_sent_all_the_same(session):
    compact(session)
    before = state(session)
    draft = NewMessage(wire={"role": "user", "content": f"{code(777)} put between"})
    transcript.insert_between(session.branch, after=stored(session)[0].position, draft=draft)
    assert any(code(777) in text for text in texts(sent(session), "user"))
    after = state(session)
    assert after.covered_messages == before.covered_messages + 1
    branch = Branch.objects.get(pk=session.branch.pk)
    assert branch.message_count - after.covered_messages == 2
