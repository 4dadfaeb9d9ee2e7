"""A history whose beginning is dropped unread: what is linked, sent, told and taken back."""

from __future__ import annotations

import random

import pytest
from django.utils import timezone

from chatapp.models import AnswerRequest, Message, Session
from chatapp.selectors import path_messages
from compaction.admin.front import incomplete_answers
from compaction.attention.listing import needs_look
from compaction.branches.context_builder import context_of
from compaction.branches.snapshot import snapshot_of
from compaction.doctor.examine import examine
from compaction.models import SessionSummary
from compaction.runs.resummarize import resummarize
from compaction.summaries.restore import restore_summary
from tests.compaction.support import NEVER, compact, say, sent, state, texts
from tests.compaction.test_summary_page import page_of
from tests.compaction.test_transfer import exported, imported
from tests.factories import SessionFactory, profile, store, user

pytestmark = pytest.mark.django_db
# Ten turns of 1,000 characters each. A segment has 300: every turn begins one of its own, which
# makes eleven with the empty one before the first, and of an odd number the last three are kept.
TURNS = 10
DROPS = NEVER | {
    "keep_last_n": 2,
    "head_chars_limit": 900,
    "head_overflow": "drop",
    "rendering": "node",
    "abridged_total_chars_limit": 10_000,
    "ledger": False,
    "quality_gate": False,
}


@pytest.fixture
def session(owner, model_server, queued) -> Session:
    profile(**DROPS)
    draw = random.Random(15)
    wires = []
    for number in range(TURNS + 1):
        words = " ".join(f"{draw.choice('bcdfg')}{draw.randrange(10**5)}" for _ in range(200))
        wires.append(user(f"q{number:02} {words}"[:600]))
        wires.append({"role": "assistant", "content": f"a{number:02} {words}"[:400]})
    return SessionFactory(owner=owner, wires=wires)


def dropped_run(session: Session) -> SessionSummary:
    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    return SessionSummary.objects.get(run=run)


def linked(summary: SessionSummary) -> list[str]:
    rows = Message.objects.filter(summary_links__summary=summary).order_by("position")
    return [row.content[:3] for row in rows]


def test_only_what_was_read_is_linked_and_the_cursor_passes_over_the_rest(session, model_server):
    summary = dropped_run(session)
    read = "\n".join(map(str, model_server.summarising()[0].messages))
    assert linked(summary) == ["q07", "a07", "q08", "a08", "q09", "a09"]
    assert "q07 " in read
    assert "q06 " not in read
    assert (summary.message_count, summary.truncated, summary.dropped_messages) == (6, True, 14)
    now = state(session)
    last = path_messages(session.branch, through=now.cursor).last()
    assert (last.content[:3], now.covered_messages) == ("a09", 20)
    assert now.covered_chars == TURNS * 1_000
    assert summary.covers_from == Message.objects.get(content__startswith="q07").position


def left_out(session: Session) -> dict | None:
    return context_of(snapshot_of(session)).left_out


def test_what_was_passed_over_unread_stands_with_every_later_answer(session, model_server):
    assert left_out(session) is None
    dropped_run(session)
    unread = list(Message.objects.filter(content__regex=r"^[qa]0[0-6] ").order_by("position"))
    told = {
        "messages": 14,
        "first": unread[0].place,
        "last": unread[-1].place,
        "tokens": sum(row.tokens for row in unread),
        "why": "head_overflow",
    }
    assert left_out(session) == told
    answer = say(session, "And now?").answer
    assert answer.metadata["left_out"] == told
    assert AnswerRequest.objects.get(message=answer).left_out == 14
    # Another profile reads all of a history, and not what was passed over before.
    profile(**DROPS | {"head_overflow": "halve"})
    assert left_out(session)["messages"] == 14


def test_nobody_has_to_look_at_what_a_profile_leaves_out_on_purpose(session, model_server):
    """It was chosen, comes back with each answer, and no compaction helps."""
    dropped_run(session)
    answer = say(session, "And now?").answer
    assert answer.metadata["left_out"]["why"] == "head_overflow"
    assert [item for item in needs_look().items if item.kind.name == "left_out"] == []
    assert incomplete_answers(timezone.now()) == 0


def test_a_pin_among_what_was_passed_over_is_sent_and_not_counted(session, model_server):
    pinned = Message.objects.get(content__startswith="q03")
    Message.objects.filter(pk=pinned.pk).update(pinned=True)
    summary = dropped_run(session)
    found = left_out(session)
    unread = Message.objects.filter(content__regex=r"^[qa]0[0-9] ", pinned=False)
    unread = unread.filter(position__lt=summary.covers_from)
    assert found["messages"] == unread.count() == 13
    assert found["tokens"] == sum(row.tokens for row in unread)


def test_rules_that_open_the_conversation_are_sent_and_not_counted(session, model_server):
    wires = [{"role": "system", "content": "Answer in one line."}]
    wires += [row.stored_wire() for row in path_messages(session.branch)]
    ruled = SessionFactory(owner=session.owner, wires=wires)
    dropped_run(ruled)
    found = left_out(ruled)
    unread = Message.objects.filter(session=ruled, content__regex=r"^[qa]0[0-6] ")
    assert (found["messages"], found["first"]) == (14, "2")
    assert found["tokens"] == sum(row.tokens for row in unread)


def test_taken_back_nothing_is_left_out(session):
    restore_summary(dropped_run(session))
    assert left_out(session) is None


def test_all_that_was_passed_over_is_told_also_after_the_next_summary(session, model_server):
    first = dropped_run(session)
    wires = []
    for number in range(TURNS + 1):
        wires.append(user(f"Q{number:02} " + "more words here " * 37))
        wires.append({"role": "assistant", "content": f"A{number:02} " + "and some more " * 28})
    store(session, wires)
    second = dropped_run(session)
    assert second.dropped_messages
    found = left_out(session)
    assert found["messages"] == first.dropped_messages + second.dropped_messages
    last = Message.objects.filter(position__lt=second.covers_from, kind="message")
    assert found["last"] == last.order_by("position").last().place


def test_nothing_is_wrong_with_it_and_its_page_says_how_much_was_left_out(session, admin_client):
    summary = dropped_run(session)
    assert [finding.code for finding in examine(session.pk)] == []
    page = admin_client.get(page_of(summary)).content.decode()
    assert "14 messages that nobody read" in page
    asked = [entry["user"][:3] for entry in summary.abridged_entries]
    assert asked == [f"q{number:02}" for number in range(TURNS)]


def test_taken_back_everything_is_sent_again(session):
    before = texts(sent(session))
    restore_summary(dropped_run(session))
    assert texts(sent(session)) == before
    assert state(session).cursor == 0


def test_a_new_version_reads_what_the_old_one_did_and_drops_nothing(session):
    summary = dropped_run(session)
    run = resummarize(summary)
    assert (run.status, run.error) == ("succeeded", "")
    newer = SessionSummary.objects.get(supersedes=summary)
    assert linked(newer) == linked(summary)
    assert newer.covers_from == summary.covers_from
    assert (newer.dropped_messages, newer.truncated) == (14, True)
    assert newer.abridged_entries == summary.abridged_entries
    assert [finding.code for finding in examine(session.pk)] == []


def test_a_secret_that_the_limit_would_cut_in_two_is_hidden_first(owner, model_server, queued):
    profile(**DROPS | {"head_chars_limit": 600, "redact_secrets": True})
    key = "sk-ant-api03-" + "Zq7" * 25
    wires = [user("x " * 140 + key + " y" * 140), {"role": "assistant", "content": "done"}]
    more = [user("go on " * 5), {"role": "assistant", "content": "fine"}]
    session = SessionFactory(owner=owner, wires=[*wires, *more])
    compact(session)
    read = "\n".join(map(str, model_server.summarising()[0].messages))
    assert "Zq7" not in read


def test_an_exchange_that_is_cut_to_the_limit_is_marked_and_counted_whole(session):
    profile(**DROPS | {"head_chars_limit": 40_000})
    summary = dropped_run(session)
    assert (summary.dropped_messages, summary.truncated) == (0, False)
    restore_summary(summary)
    profile(**DROPS | {"head_chars_limit": 999})
    summary = dropped_run(session)
    assert summary.truncated
    # A blank at the end of a question is no part of it.
    assert {len(entry["user"]) for entry in summary.abridged_entries} <= {599, 600}


def test_a_file_may_hide_no_message_so_an_import_sends_all_of_them_and_says_so(session, api):
    before = texts(sent(session))
    dropped_run(session)
    other, problems = imported(api, exported(api, session))
    assert len(problems) == 1
    assert "would hide message 0, which no summary has read" in problems[0]
    assert [finding.code for finding in examine(other.pk)] == []
    assert texts(sent(other)) == before
