"""Compaction by characters: what counts, what it costs to know, and what stays verbatim."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chatapp.models import Message, Session
from chatapp.selectors import path_messages
from chatapp.transcript import set_pinned
from compaction.branches.planning import cut_of, decision_of, gain_of
from compaction.branches.snapshot import snapshot_of
from compaction.engine.policy.exchanges import exchanges
from compaction.engine.rendering import USER_TAGS
from compaction.models import CompactionRun, SessionSummary, SessionSummaryMessage
from compaction.runs.scheduling import check_branch
from tests.compaction.session_page import page_of
from tests.compaction.support import compact, say, sent, state, texts
from tests.factories import SessionFactory, call, profile, result, store, talk, user

pytestmark = pytest.mark.django_db
SIZES = {"trigger_on_history_size_chars": 10_000, "history_tail_size_chars_to_exclude": 3_000}


def by_characters(**others: Any) -> None:
    """Make a profile the default that goes by characters alone."""
    values = {"message_limit": 0, "max_context_tokens": 0, "cut": "tail_chars"} | SIZES
    profile(**(values | others))


@pytest.fixture
def session(owner, model_server, queued) -> Session:
    return SessionFactory(owner=owner)


def exchange(chars: int, number: int) -> list[dict[str, Any]]:
    """Return a question and its answer of so many characters together, in several scripts."""
    question = f"question {number}: " + "发票 44-B? " * (chars // 40)
    answer = "é🏳 said. " * chars
    return [user(question), {"role": "assistant", "content": answer[: chars - len(question)]}]


def told(session: Session, sizes: list[int]) -> None:
    store(session, [wire for n, size in enumerate(sizes) for wire in exchange(size, n)])


def chars_of(rows) -> int:
    return sum(row.chars for row in rows)


# --- what counts ----------------------------------------------------------------------------------


def test_a_message_has_the_code_points_of_its_texts_and_calls(session):
    image = {"type": "image_url", "image_url": {"url": "https://pictures.test/tall.png"}}
    arguments = '{"path": "src/\\u00e9.py"}'
    rows = store(
        session,
        [
            user("发票é🏳"),
            {"role": "user", "content": [{"type": "text", "text": "two"}, image]},
            {"role": "assistant", "content": "say", "reasoning_content": "a long thought"},
            call("read_file", "c1", arguments),
            result("c1", "e\u0301 done"),
            {"role": "user", "content": [image]},
        ],
    )
    assert [row.chars for row in rows] == [4, 3, 3, 9 + len(arguments), 7, 0]
    assert rows[-1].chars_through == session.branch.char_total == 4 + 3 + 3 + 9 + 25 + 7


def test_the_history_is_what_came_since_the_summary_and_the_summary_as_it_is_sent(session):
    by_characters(rendering="user_tags")
    told(session, [2_000, 2_000, 500])
    assert snapshot_of(session).facts.chars == 4_500
    compact(session)
    summary = SessionSummary.objects.get()
    framed = "".join(one["content"] for one in USER_TAGS.messages([summary.sent_text]))
    kept = path_messages(session.branch, after=state(session).cursor)
    assert snapshot_of(session).facts.chars == chars_of(kept) + len(framed)
    assert len(framed) > len(summary.summary_text)


def test_what_a_person_pinned_before_the_cursor_is_part_of_the_history_that_is_sent(owner, queued):
    by_characters(minimum_gain=0.0)
    rule = {"role": "system", "content": "Be brief. " * 50}
    session = SessionFactory(owner=owner, wires=[rule])
    told(session, [4_000, 4_000, 900])
    compact(session)
    before = snapshot_of(session).facts.chars
    question = path_messages(session.branch)[3]
    assert question.position <= state(session).cursor
    set_pinned(question, True)
    counted = snapshot_of(session)
    assert counted.facts.chars == before + question.chars
    # The same where the pins themselves were read before.
    read = snapshot_of(session)
    assert {row.pk for row in read.pinned} > {question.pk}
    assert read.facts.chars == counted.facts.chars
    # What came behind the cursor is counted already.
    last = path_messages(session.branch).last()
    set_pinned(last, True)
    assert snapshot_of(session).facts.chars == before + question.chars


def test_it_takes_two_reads_and_no_message_to_know(session):
    by_characters()
    told(session, [2_000, 2_000, 500])
    compact(session)
    read = Session.objects.select_related("active_branch").get(pk=session.pk)
    snapshot = snapshot_of(read)
    _ = snapshot.profile, snapshot.model
    with CaptureQueriesContext(connection) as found:
        assert snapshot.facts.chars > 500
    # The state and its branch were read before.
    assert ["session_summaries" in one["sql"] for one in found] == [True]
    assert not any('FROM "messages"' in one["sql"] for one in found)


def test_other_profiles_read_nothing_for_it(session):
    profile()
    told(session, [2_000, 2_000, 500])
    compact(session, keep_last_n=2)
    snapshot = snapshot_of(session)
    _ = snapshot.profile, snapshot.model
    with CaptureQueriesContext(connection) as found:
        assert snapshot.facts.chars == 500
    assert len(found) == 0


def test_rules_and_pins_are_no_gain(session):
    by_characters(minimum_gain=0.0)
    rule = {"role": "system", "content": "Be brief. " * 50}
    first, *_ = store(session, [rule, *exchange(4_000, 1), *exchange(4_000, 2), *exchange(900, 3)])
    assert first.is_pinned_system
    found = gain_of(snapshot_of(session))
    assert (found.chars, found.fixed_chars) == (8_000, 500)
    question = path_messages(session.branch)[1]
    set_pinned(question, True)
    assert gain_of(snapshot_of(session)).chars == 8_000 - question.chars


# --- what is due, and what stays ------------------------------------------------------------------


def test_a_request_is_preceded_by_a_compaction_that_keeps_the_newest_exchanges(session):
    by_characters()
    told(session, [1_300, 1_300, 1_250, 1_250, 1_250, 1_250, 800, 800])
    assert decision_of(snapshot_of(session)) is None
    told(session, [800, 800])
    say(session, "and now?")
    run = CompactionRun.objects.get()
    assert (run.reason, run.mode, run.status) == ("history_size", "inline", "succeeded")
    links = SessionSummaryMessage.objects.values("message")
    assert chars_of(Message.objects.filter(pk__in=links)) == 8_400
    kept = path_messages(session.branch, after=state(session).cursor)
    assert [row.chars for row in kept][-2] == len("and now?")
    assert chars_of(kept[:6]) == 2_400


def test_it_is_not_due_again_at_the_next_turn(session):
    by_characters()
    told(session, [1_200] * 9)
    say(session, "and now?")
    say(session, "and then?")
    assert CompactionRun.objects.count() == 1


def test_what_is_due_after_an_answer_is_done_in_the_background(session):
    by_characters()
    told(session, [1_200] * 8)
    assert check_branch(session) is None
    told(session, [1_200])
    run = check_branch(session)
    assert run is not None
    assert run.reason == "history_size"


def test_one_exchange_of_two_megabytes_is_sent_with_a_shorter_result(session, model_server):
    by_characters()
    asked = [call("read_file", f"c{n}")["tool_calls"][0] for n in range(6)]
    reading = {"role": "assistant", "content": None, "tool_calls": asked}
    results = [result(f"c{n}", f"{n}: a line of a log\n" * 18_000) for n in range(6)]
    rows = store(session, [user("Read it all."), reading, *results])
    assert session.branch.char_total > 2_000_000
    assert cut_of(snapshot_of(session)).messages == 0
    assert decision_of(snapshot_of(session)) is None
    request = texts(sent(session), "tool")
    assert [0 < len(one) < row.chars for one, row in zip(request, rows[2:], strict=True)] == [
        True, True, True, True, True, True,
    ]  # fmt: skip
    assert check_branch(session) is None
    # What is stored is as long as ever.
    stored = Message.objects.filter(role="tool")
    assert {row.chars for row in stored} == {len(results[0]["content"])}


def test_an_agents_loop_is_cut_between_its_answers(session):
    by_characters(history_tail_size_chars_to_exclude=900)
    wires = [user("Fix it.")]
    for number in range(12):
        wires += [call("run", f"c{number}", '{"cmd": "make"}'), result(f"c{number}", "x" * 1_000)]
    store(session, [*wires, {"role": "assistant", "content": "Fixed."}])
    found = cut_of(snapshot_of(session))
    assert [one.text for one in found.keep] == ["Fixed."]
    assert found.messages == 25
    assert len(exchanges(found.summarise or ())) == 12


# --- how far it is --------------------------------------------------------------------------------


def test_the_api_tells_the_distance(session, api):
    by_characters()
    told(session, [1_000, 1_500])
    body = api.get(f"/api/v1/sessions/{session.pk}/compaction/").json()
    assert body["triggers"] == [
        {
            "reason": "history_size", "limit": 10_000, "now": 2_500, "left": 7_500,
            "waits_for": "",
        }
    ]  # fmt: skip


def test_a_rule_that_is_held_back_says_what_it_waits_for(session, api):
    by_characters()
    told(session, [1_000, 20_000])
    body = api.get(f"/api/v1/sessions/{session.pk}/compaction/").json()
    (rule,) = body["triggers"]
    assert (rule["left"], body["due"]) == (0, None)
    assert rule["waits_for"] == (
        "A compaction would summarise 1,000 of 21,000 characters; it waits until that is at least "
        "5,250 (minimum_gain 0.25)."
    )


def test_the_sessions_page_tells_it(session, admin_client):
    by_characters()
    told(session, [1_000, 1_500])
    page = admin_client.get(page_of(session)).text
    assert "Characters of the history as sent" in page
    assert "2,500 of 10,000; 7,500 to go" in page


def test_a_long_tail_without_a_summary_is_told_once(session, admin_client):
    by_characters()
    told(session, talk_sizes())
    say(session, "and now?")
    run = CompactionRun.objects.get()
    assert "History too long" in admin_client.get(page_of(session)).text
    assert run.reason == "history_size"


def talk_sizes() -> list[int]:
    """Return sizes of exchanges as talks have them."""
    return [len(a["content"]) + len(b["content"]) + 1_500 for a, b in [talk(1)] * 6]
