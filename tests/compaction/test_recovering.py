"""The recovery in real turns: what is sent, stored and told, step after step."""

from __future__ import annotations

import json

import pytest

from chatapp import transcript
from chatapp.models import Branch, Incident, Message, Session
from chatapp.selectors import path_messages
from chatapp.transcript import set_pinned
from chatapp.transcript.writing import NewMessage
from chatapp.turns.service import Turn, TurnFailedError, run_turn
from compaction.branches.context_builder import context_of
from compaction.branches.snapshot import snapshot_of
from compaction.models import (
    CompactionRun,
    CompactionState,
    RecoveryStep,
    SessionSummary,
)
from compaction.runs.worker import compact_branch
from tests.chatapp.test_transcript import check_all_sums
from tests.factories import SessionFactory, call, profile, result, store, talk, user
from tests.facts import code
from tests.fakes.model_server import estimate, text_of
from tests.fakes.strict_checker import faults

OVERFLOW = {
    "error": {
        "status": 400,
        "body": {"error": {"code": "context_length_exceeded", "message": "too large"}},
    }
}
WRONG_KEY = {
    "error": {"status": 401, "body": {"error": {"message": "Incorrect API key provided."}}}
}
NEVER = {"message_limit": 0, "max_context_tokens": 0, "cooldown_seconds": 0}
SHORT = {"when": {}, "reply": {"text": "short"}}


@pytest.fixture
def server(model_server, use_models):
    use_models(model_server.models(CONTEXT_WINDOW=8000, MAX_OUTPUT=500), TOKEN_COUNTER="chars4")
    return model_server


def limit(tokens: int) -> list[dict]:
    """A server that refuses larger chat requests without saying how many tokens it takes."""
    rule = {"when": {"purpose": "chat", "est_tokens_gt": tokens}, "reply": OVERFLOW}
    return [rule, SHORT]


def say(session: Session, *wires: dict, **turn):
    store(session, wires)
    return run_turn(Turn(session=Session.objects.get(pk=session.pk), **turn))


def tried() -> list[tuple[str, str]]:
    return list(
        RecoveryStep.objects.order_by("created_at", "order").values_list("action", "outcome")
    )


def sent(server) -> list[list[dict]]:
    return [called.messages for called in server.of("chat")]


def results(count: int, lines: int) -> list[dict]:
    calls = [
        {"id": f"r{n}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        for n in range(count)
    ]
    asked = {"role": "assistant", "content": None, "tool_calls": calls}
    return [asked, *(result(f"r{n}", f"{code(n)}\n" + "a line\n" * lines) for n in range(count))]


def test_a_compaction_that_frees_tokens_is_the_first_rung(owner, server, queued):
    profile(**NEVER)
    server.script = limit(400)
    session = SessionFactory(owner=owner, wires=talk(6))
    assert say(session, user("hello")).answer.content == "short"
    assert tried() == [("compact", "smaller")]
    recovery_step = RecoveryStep.objects.get()
    assert recovery_step.run == CompactionRun.objects.get()
    assert recovery_step.tokens_after < recovery_step.tokens_before
    assert (recovery_step.error_kind, recovery_step.error) == ("context_overflow", "too large")


def test_a_session_that_no_rule_compacts_is_recovered_all_the_same(owner, server, queued):
    profile(message_limit=4, keep_last_n=2, excluded_bot_types="1, CODE_REVIEW_BOT")
    server.script = limit(400)
    reviews = {"bot_type": "CODE_REVIEW_BOT"}
    session = SessionFactory(owner=owner, wires=talk(6), metadata=reviews)
    assert say(session, user("hello")).answer.content == "short"
    assert tried() == [("compact", "smaller")]
    assert set(CompactionRun.objects.values_list("trigger", flat=True)) == {"overflow_retry"}


def test_a_session_of_a_profile_that_is_off_is_not_recovered(owner, server, queued):
    profile(enabled=False, excluded_bot_types="1")
    server.script = limit(400)
    session = SessionFactory(owner=owner, wires=talk(6), metadata={"bot_type": 1})
    with pytest.raises(TurnFailedError, match="switched off"):
        say(session, user("hello"))
    assert not CompactionRun.objects.exists()


def test_oversized_results_are_cut_where_nothing_can_be_compacted(owner, server, queued):
    profile(**NEVER)
    server.script = limit(3000)
    session = SessionFactory(owner=owner, wires=[user("read them"), *results(3, 900)])
    assert say(session).answer.content == "short"
    assert tried() == [("compact", "no_help"), ("truncate", "smaller")]
    recovery_step = RecoveryStep.objects.get(action="truncate")
    assert recovery_step.results_cut >= 1
    assert recovery_step.characters_cut > 0
    assert recovery_step.replay == Branch.objects.get(kind="replay")
    assert not server.summarising()


def test_an_answer_after_a_cut_goes_into_the_new_branch_and_the_next_turn_too(
    owner, server, queued
):
    profile(**NEVER)
    server.script = limit(3000)
    session = SessionFactory(owner=owner, wires=[user("read them"), *results(3, 900)])
    answer = say(session).answer
    new = Branch.objects.get(kind="replay")
    assert answer.branch == new
    say(session, user("thanks"))
    assert tried() == [("compact", "no_help"), ("truncate", "smaller")]
    assert [row.content for row in path_messages(new)][-3:] == ["short", "thanks", "short"]
    check_all_sums(session)


def test_a_repeated_request_finds_its_answer_in_the_replayed_branch(owner, server, queued, api):
    profile(**NEVER)
    server.script = limit(2000)
    session = SessionFactory(owner=owner, wires=[user("read them"), *results(3, 600)[:-1]])
    url = f"/api/v1/sessions/{session.pk}/turns/"
    body = {"messages": [results(3, 600)[-1]]}
    first = api.post(url, body, format="json", HTTP_IDEMPOTENCY_KEY="k1")
    calls = len(server.calls)
    again = api.post(url, body, format="json", HTTP_IDEMPOTENCY_KEY="k1")
    assert first.status_code == again.status_code == 200, first.data
    assert Branch.objects.filter(kind="replay").count() == 1
    assert again.data["answer"]["id"] == first.data["answer"]["id"]
    assert len(server.calls) == calls


def test_fewer_groups_are_sent_when_summaries_fail(owner, server, queued):
    profile(**NEVER)
    refused = {"when": {"purpose": "summary"}, "reply": WRONG_KEY}
    server.script = [refused, *limit(160)]
    session = SessionFactory(owner=owner, wires=talk(12))
    assert say(session, user("THE QUESTION")).answer.content == "short"
    assert tried()[0] == ("compact", "failed")
    assert {action for action, _ in tried()[1:]} == {"halve"}
    groups = RecoveryStep.objects.filter(action="halve").order_by("order")
    assert list(groups.values_list("groups", flat=True)) == [20, 10, 5, 2]
    assert [len(messages) for messages in sent(server)] == [25, 20, 10, 5, 2]


def test_the_question_is_verbatim_in_every_attempt_and_every_request_is_strict(
    owner, server, queued
):
    profile(**NEVER)
    empty = {"when": {"purpose": "summary"}, "reply": {"text": ""}}
    server.script = [empty, {"when": {"purpose": "chat"}, "reply": OVERFLOW}]
    history = [*talk(10), call("f", "c1"), result("c1"), *talk(3)]
    session = SessionFactory(owner=owner, wires=history, system_prompt="Be brief.")
    with pytest.raises(TurnFailedError):
        say(session, user("THE QUESTION"))
    for messages in sent(server):
        assert messages[-1] == user("THE QUESTION")
        assert messages[0] == {"role": "system", "content": "Be brief."}
        assert faults(messages) == []
    assert len({json.dumps(messages) for messages in sent(server)}) == len(sent(server))
    assert tried()[-1][0] == "give_up"


def test_a_question_whose_tools_have_worked_stays_when_groups_are_left_out(owner, server, queued):
    profile(**NEVER, max_overflow_compaction_attempts=0)
    server.script = limit(220)
    work = [wire for n in range(8) for wire in (call("f", f"c{n}"), result(f"c{n}", "out " * 30))]
    session = SessionFactory(owner=owner, wires=[*talk(3), user("THE QUESTION"), *work])
    assert say(session).answer.content == "short"
    last = sent(server)[-1]
    assert user("THE QUESTION") in last
    assert last[-1]["tool_call_id"] == "c7"
    assert faults(last) == []


def test_the_whole_turn_is_bounded(owner, server, queued):
    profile(**NEVER)
    server.script = [
        {"when": {"purpose": "chat"}, "reply": OVERFLOW},
        {"when": {}, "reply": {"text": "s"}},
    ]
    session = SessionFactory(owner=owner, wires=[*talk(30), user("q"), *results(3, 900)])
    with pytest.raises(TurnFailedError, match="still too large after"):
        say(session)
    assert len(server.of("chat")) <= 10
    assert Incident.objects.get(kind="error").code == "context_overflow"
    assert RecoveryStep.objects.order_by("order").last().action == "give_up"
    assert RecoveryStep.objects.values("recovery").distinct().count() == 1


def test_a_question_that_alone_is_too_large_costs_no_compaction(owner, server, queued):
    profile(**NEVER)
    server.script = limit(5000)
    session = SessionFactory(owner=owner, wires=talk(10))
    with pytest.raises(TurnFailedError, match="Message 21 alone has about 10,0"):
        say(session, user("word " * 8000))
    assert tried() == [("give_up", "no_help")]
    assert not CompactionRun.objects.exists()
    assert len(server.calls) == 1


def test_a_repeated_request_is_answered_once_although_somebody_wrote_in_between(
    owner, server, queued, api
):
    session = SessionFactory(owner=owner)
    url = f"/api/v1/sessions/{session.pk}/"
    first = {"content": "hello"}
    append_first = api.post(f"{url}messages/", user("before"), format="json")
    assert append_first.status_code == 201
    asked = api.post(f"{url}turns/", first, format="json", HTTP_IDEMPOTENCY_KEY="k")
    row = Message.objects.get(content="hello")
    draft = NewMessage(wire=user("in between"))
    transcript.insert_between(session.branch, after=row.position, draft=draft)
    calls = len(server.calls)
    again = api.post(f"{url}turns/", first, format="json", HTTP_IDEMPOTENCY_KEY="k")
    assert again.data["answer"]["id"] == asked.data["answer"]["id"]
    assert len(server.calls) == calls


def test_an_id_from_before_a_replay_still_pins_the_message(owner, server, queued, api):
    session = SessionFactory(owner=owner, wires=[user("go"), call("f", "c1"), result("c1", "long")])
    row = Message.objects.get(role="tool")
    new = transcript.replay(session, contents={row.pk: "l"}).new
    assert (
        api.patch(f"/api/v1/messages/{row.pk}/", {"pinned": True}, format="json").status_code == 200
    )
    assert Message.objects.get(branch=new, role="tool").pinned
    api.patch(f"/api/v1/messages/{row.pk}/", {"pinned": False}, format="json")
    assert not Message.objects.filter(pinned=True).exists()


def test_restoring_a_summary_that_a_replay_copied_names_the_copy(compacted, api):
    old = SessionSummary.objects.get()
    new = cut(compacted)
    copy = SessionSummary.objects.get(branch=new)
    answer = api.post(f"/api/v1/summaries/{old.pk}/restore/")
    assert answer.status_code == 409
    assert str(copy.pk) in answer.data["detail"]
    assert api.post(f"/api/v1/summaries/{copy.pk}/restore/").status_code == 200
    assert "<summary>" not in text_of(context_of(snapshot_of(Session.objects.get())).messages[0])


def test_too_many_messages_are_made_fewer_and_no_result_is_cut(owner, server, queued):
    profile(**NEVER, max_overflow_compaction_attempts=0)
    many = {
        "status": 400,
        "body": {
            "error": {
                "code": "array_above_max_length",
                "param": "messages",
                "message": "Invalid 'messages': array too long. Expected an array with maximum "
                "length 12, but got an array with length 30 instead.",
            }
        },
    }
    server.script = [
        {"when": {"purpose": "chat", "call": 1}, "reply": {"error": many}},
        {"when": {"purpose": "chat", "call": 2}, "reply": {"error": many}},
        SHORT,
    ]
    session = SessionFactory(owner=owner, wires=[*talk(11), user("q"), *results(3, 900)])
    assert say(session).answer.content == "short"
    assert tried() == [("halve", "smaller"), ("halve", "smaller")]
    # 20 and 10 groups have more than the 12 messages that the error names.
    assert [len(messages) for messages in sent(server)] == [27, 8, 5]


def test_many_middling_results_of_one_call_are_made_to_fit(owner, server, queued):
    profile(**NEVER)
    server.script = limit(6000)
    session = SessionFactory(owner=owner, wires=[user("read them"), *results(30, 340)])
    assert say(session).answer.content == "short"
    assert tried() == [("compact", "no_help"), ("truncate", "smaller")]
    assert code(29) in server.of("chat")[-1].text


@pytest.mark.parametrize(("window", "count", "lines"), [(16_000, 12, 860), (8_000, 8, 715)])
def test_every_cut_result_keeps_its_beginning_while_all_fit(
    owner, model_server, use_models, queued, window, count, lines
):
    models = model_server.models(CONTEXT_WINDOW=window, MAX_OUTPUT=500)
    use_models(models, TOKEN_COUNTER="chars4")
    profile(**NEVER)
    down = {"when": {"purpose": "summary"}, "reply": {"error": {"status": 503, "body": {}}}}
    model_server.script = [down, *limit(window - 500)]
    session = SessionFactory(owner=owner, wires=[user("inspect the hives"), *results(count, lines)])
    assert say(session).answer.content == "short"
    last = [m["content"] for m in sent(model_server)[-1] if m["role"] == "tool"]
    assert len(last) == count
    assert all(len(text) >= 2_000 for text in last)


MANY_RESULTS = [user("read them"), *results(20, 340)]
QUESTION = user("words of a question " * 20)


def kept_characters(server) -> list[int]:
    return [len(m["content"]) for m in sent(server)[-1] if m["role"] == "tool"]


def named_limit(tokens: int) -> list[dict]:
    """The same server, which says what it takes."""
    words = f"This model's maximum context length is {tokens} tokens. However, you requested 12000."
    body = {"error": {"code": "context_length_exceeded", "message": words}}
    rule = {"when": {"purpose": "chat", "est_tokens_gt": tokens}}
    return [rule | {"reply": {"error": {"status": 400, "body": body}}}, SHORT]


@pytest.mark.parametrize("allowed", [7_500, 6_000])
def test_results_whose_floors_do_not_fit_share_the_room_of_a_limit_that_was_named(
    owner, server, queued, allowed
):
    profile(**NEVER, max_overflow_compaction_attempts=0)
    server.script = named_limit(allowed)
    session = SessionFactory(owner=owner, wires=MANY_RESULTS)
    assert say(session).answer.content == "short"
    kept = kept_characters(server)
    # What one may have is three tenths of the window: 9 000 and 7 200 characters.
    assert len(kept) == 20
    assert sum(kept) > 1.5 * 0.3 * 4 * allowed
    assert say(session, QUESTION).answer.content == "short"
    assert kept_characters(server) == kept
    assert tried() == [("truncate", "smaller")]


@pytest.mark.parametrize("allowed", [7_500, 6_000, 3_500])
def test_after_a_refusal_without_a_number_they_share_what_one_may_have(
    owner, server, queued, allowed
):
    """They are cut once a turn, and the server may take far less than it was said to."""
    profile(**NEVER, max_overflow_compaction_attempts=0)
    server.script = limit(allowed)
    session = SessionFactory(owner=owner, wires=MANY_RESULTS)
    assert say(session).answer.content == "short"
    kept = kept_characters(server)
    assert len(kept) == 20
    assert sum(kept) <= 9_600
    assert say(session, QUESTION).answer.content == "short"
    assert kept_characters(server) == kept
    assert tried() == [("truncate", "smaller")]


def test_before_anything_was_refused_they_share_the_room_and_leave_some_to_the_next_question(
    owner, server, queued
):
    profile(**NEVER, precheck_margin=1.2)
    server.script = limit(7_500)
    session = SessionFactory(owner=owner, wires=MANY_RESULTS)
    assert say(session).answer.content == "short"
    first = kept_characters(server)
    assert len(first) == 20
    assert sum(first) > 15_000
    store(session, [QUESTION])
    assert say(session).answer.content == "short"
    assert [called.status for called in server.of("chat")] == [200, 200]
    assert not RecoveryStep.objects.exists()


def test_results_that_cannot_be_cut_are_summarised_rather_than_lost(owner, server, queued):
    profile(**NEVER, truncate_tool_results=False, halve_history=False)
    server.script = limit(1000)
    session = SessionFactory(owner=owner, wires=[user("read them"), *results(3, 600)])
    assert say(session).answer.content == "short"
    assert tried() == [("compact", "smaller")]
    assert CompactionRun.objects.get().reason == "overflow_again"


def test_a_window_no_larger_than_an_answer_gives_no_false_sentence(
    owner, server, queued, use_models
):
    use_models(server.models(CONTEXT_WINDOW=4096, MAX_OUTPUT=4096), TOKEN_COUNTER="chars4")
    profile(**NEVER, halve_history=False)
    server.script = [{"when": {"purpose": "chat"}, "reply": OVERFLOW}, SHORT]
    session = SessionFactory(owner=owner, wires=talk(4))
    with pytest.raises(TurnFailedError) as failure:
        say(session, user("hi"))
    assert "alone" not in str(failure.value)


def test_a_misread_limit_does_not_end_the_ladder(owner, server, queued):
    profile(**NEVER)
    odd = {
        "status": 400,
        "body": {"error": {"message": "context length exceeded (limit: 1 request)"}},
    }
    server.script = [
        {"when": {"purpose": "chat", "call": 1}, "reply": {"error": odd}},
        SHORT,
    ]
    session = SessionFactory(owner=owner, wires=talk(4))
    assert say(session, user("hello")).answer.content == "short"


def test_each_rung_is_told_to_the_client(owner, server, queued):
    profile(**NEVER)
    server.script = limit(3000)
    told: list[tuple[str, dict]] = []
    session = SessionFactory(owner=owner, wires=[user("read"), *results(3, 900)])
    say(session, stream=True, emit=lambda *news: told.append(news))
    recovery_steps = [payload for name, payload in told if name == "compaction"]
    assert [(r["phase"], r["reason"]) for r in recovery_steps] == [
        ("started", "overflow_retry"),
        ("finished", "overflow_retry"),
        ("started", "tool_result_truncation"),
        ("finished", "tool_result_truncation"),
    ]
    assert recovery_steps[1]["outcome"] == "no_help"
    assert recovery_steps[3]["results_cut"] >= 1
    assert recovery_steps[3]["branch"] == str(Branch.objects.get(kind="replay").pk)


def test_the_api_lists_the_rungs_newest_first(
    owner, server, queued, api, django_assert_max_num_queries
):
    profile(**NEVER)
    server.script = limit(3000)
    session = SessionFactory(owner=owner, wires=[user("read"), *results(3, 900)])
    say(session)
    with django_assert_max_num_queries(3):
        rows = api.get(f"/api/v1/sessions/{session.pk}/rungs/").data["results"]
    assert [(row["order"], row["action"], row["outcome"]) for row in rows] == [
        (1, "truncate", "smaller"),
        (0, "compact", "no_help"),
    ]
    assert rows[0]["recovery"] == rows[1]["recovery"]
    assert rows[0]["replay"] == Branch.objects.get(kind="replay").pk


def test_the_rungs_can_be_switched_off_one_by_one(owner, server, queued):
    profile(
        **NEVER,
        max_overflow_compaction_attempts=0,
        truncate_tool_results=False,
        halve_history=False,
    )
    server.script = limit(100)
    session = SessionFactory(owner=owner, wires=talk(6))
    with pytest.raises(TurnFailedError):
        say(session, user("hello"))
    assert tried() == [("give_up", "no_help")]
    assert len(server.calls) == 1


def test_a_limit_per_minute_climbs_with_that_limit_and_is_not_the_window(owner, server, queued):
    profile(**NEVER)
    tpm = {
        "status": 429,
        "body": {
            "error": {
                "code": "rate_limit_exceeded",
                "message": "Request too large for m on tokens per min (TPM): Limit 600, "
                "Requested 1200. The input or output tokens must be reduced.",
            }
        },
    }
    server.script = [
        {"when": {"purpose": "chat", "est_tokens_gt": 600}, "reply": {"error": tpm}},
        SHORT,
    ]
    session = SessionFactory(owner=owner, wires=talk(12))
    assert say(session, user("hello")).answer.content == "short"
    assert tried() == [("compact", "smaller")]
    assert RecoveryStep.objects.get().allowed == 600
    # The answer counts against the limit, too.
    assert server.of("chat")[-1].body["max_tokens"] == 150
    assert snapshot_of(Session.objects.get()).model.context_window == 8000


def test_what_a_server_taught_is_used_by_the_trigger(owner, server, queued):
    profile(**NEVER, window_trigger=True)
    named = {
        "error": {
            "status": 400,
            "body": {"error": {"message": "This model's maximum context length is 2000 tokens."}},
        }
    }
    server.script = [{"when": {"purpose": "chat", "est_tokens_gt": 2000}, "reply": named}, SHORT]
    session = SessionFactory(owner=owner, wires=talk(24))
    say(session, user("hello"))
    assert len(server.of("chat")) == 2
    store(session, talk(20))
    say(session, user("again"))
    # The second time nothing is refused: the window that was learnt fires the trigger.
    assert [called.status for called in server.of("chat")] == [400, 200, 200]


# --- what follows a replay ------------------------------------------------------------------------


@pytest.fixture
def compacted(owner, server, queued) -> Session:
    """A session with a summary over a pinned, oversized result, and more after it."""
    profile(**NEVER)
    wires = [*talk(3), user("read"), *results(2, 900), *talk(2)]
    session = SessionFactory(owner=owner, wires=wires)
    for row in Message.objects.filter(role="tool"):
        set_pinned(row, True)
    server.script = [SHORT]
    run = compact_branch(session=session, trigger="manual", reason="manual", keep_last_n=0)
    assert run.status == "succeeded"
    return Session.objects.get(pk=session.pk)


def cut(session: Session) -> Branch:
    from compaction.summaries.replays import cut_tool_results

    return cut_tool_results(snapshot_of(session), None).branch


def test_the_cursor_and_the_sums_up_to_it_follow(compacted):
    old = CompactionState.objects.get(branch=compacted.branch)
    new = CompactionState.objects.get(branch=cut(compacted))
    assert (new.cursor, new.covered_messages) == (old.cursor, old.covered_messages)
    row = path_messages(new.branch, through=new.cursor).order_by("-position").first()
    assert new.covered_tokens == row.tokens_through < old.covered_tokens
    assert new.covered_chars == row.chars_through < old.covered_chars
    assert new.lease_owner is None
    check_all_sums(compacted)


def test_a_summary_behind_the_fork_is_copied_with_its_links(compacted):
    old = SessionSummary.objects.get()
    new = cut(compacted)
    copy = SessionSummary.objects.get(branch=new)
    assert copy.summary_text == old.summary_text
    assert (copy.covers_from, copy.covers_through) == (old.covers_from, old.covers_through)
    linked = set(Message.objects.filter(summary_links__summary=copy).values_list("position"))
    assert linked == set(Message.objects.filter(summary_links__summary=old).values_list("position"))
    path = set(path_messages(new).values_list("pk", flat=True))
    assert set(copy.links.values_list("message", flat=True)) <= path
    assert {copy.first_message_id, copy.last_message_id} <= path
    assert SessionSummary.objects.get(pk=old.pk).status == "active"


def test_a_summary_of_a_branch_that_was_left_goes_along(compacted):
    last = path_messages(compacted.branch).order_by("-position")[0]
    told = {"role": "user", "content": "<summary>what the other branch came to</summary>"}
    draft = NewMessage(wire=told, kind=Message.Kind.NOTE, metadata={"type": "branch_summary"})
    [note] = transcript.append(compacted.branch, [draft])
    left = SessionSummary.objects.create(
        session=compacted,
        branch=compacted.branch,
        kind="branch",
        summary_text="what the other branch came to",
        metadata={"note": str(note.pk)},
        trigger="manual",
        reason="branch",
        covers_from=last.position,
        covers_through=last.position,
        first_message=last,
        last_message=last,
    )
    new = cut(compacted)
    copy = SessionSummary.objects.get(branch=new, kind="branch")
    assert copy.summary_text == left.summary_text
    # Its note is repeated with the rest; what it covers stands on the branch that was left.
    again = Message.objects.get(pk=copy.metadata["note"])
    assert (again.branch, again.kind) == (new, "note")
    assert SessionSummary.objects.filter(branch=new, kind="compaction").count() == 1


def test_the_placeholder_names_the_copy(compacted):
    new = cut(compacted)
    mark = Message.objects.get(branch=new, kind="placeholder")
    assert mark.metadata["summary_id"] == str(SessionSummary.objects.get(branch=new).pk)


def test_the_next_request_is_the_same_apart_from_the_cut_texts(compacted):
    before = context_of(snapshot_of(compacted)).messages
    cut(compacted)
    after = context_of(snapshot_of(Session.objects.get())).messages
    assert [m for m in after if m["role"] != "tool"] == [m for m in before if m["role"] != "tool"]
    assert len(after) == len(before)
    shrunk = [m for m in after if "truncated" in text_of(m)]
    assert shrunk
    assert estimate(list(after)) < estimate(list(before))


def test_the_old_branch_still_sends_what_it_sent(compacted):
    old = compacted.branch
    before = context_of(snapshot_of(compacted)).messages
    cut(compacted)
    Session.objects.update(active_branch=old)
    assert context_of(snapshot_of(Session.objects.get())).messages == before


def test_a_summary_before_the_fork_is_not_copied(owner, server, queued):
    profile(**NEVER)
    session = SessionFactory(owner=owner, wires=talk(4))
    server.script = [SHORT]
    compact_branch(session=session, trigger="manual", reason="manual", keep_last_n=0)
    store(session, [user("read"), *results(3, 900)])
    session = Session.objects.get()
    cut(session)
    assert SessionSummary.objects.count() == 1
    assert "short" in text_of(context_of(snapshot_of(Session.objects.get())).messages[0])


def test_a_summary_of_a_fork_over_what_it_shares_goes_along(owner, server, queued):
    profile(**NEVER)
    server.script = [SHORT]
    session = SessionFactory(owner=owner, wires=talk(6))
    at = path_messages(session.branch).order_by("-position")[0]
    transcript.activate(session, transcript.fork(session, at=at))
    compact_branch(session=session, trigger="manual", reason="manual", keep_last_n=4)
    store(session, [call("f", "c1"), result("c1", "a line\n" * 3000)])
    before = context_of(snapshot_of(session)).messages
    row = Message.objects.get(role="tool")
    transcript.replay(session, contents={row.pk: row.content[:700]})
    after = context_of(snapshot_of(Session.objects.get())).messages
    assert [m for m in after if m["role"] != "tool"] == [m for m in before if m["role"] != "tool"]
    assert "short" in text_of(after[0])
    check_all_sums(session)


def test_only_the_summary_that_counts_is_copied_where_fork_and_parent_have_one(compacted, server):
    fork = transcript.fork(compacted, at=path_messages(compacted.branch).order_by("-position")[0])
    old = SessionSummary.objects.get()
    SessionSummary.objects.create(
        session=compacted,
        branch=fork,
        summary_text="the fork's own",
        trigger="manual",
        reason="manual",
        covers_from=old.covers_from,
        covers_through=old.covers_through,
    )
    transcript.activate(compacted, fork)
    new = cut(Session.objects.get(pk=compacted.pk))
    assert SessionSummary.objects.get(branch=new).summary_text == "the fork's own"


def test_a_branch_in_use_is_not_replayed(compacted):
    import uuid

    from compaction.branches.leases import Lease
    from compaction.errors import BranchBusyError

    Lease.acquire_or_steal(compacted.branch.pk, uuid.uuid4())
    with pytest.raises(BranchBusyError):
        cut(compacted)
    assert Branch.objects.count() == 1


# --- rendering and the guard before sending -----------------------------------------------------


@pytest.mark.parametrize(
    ("rendering", "roles"),
    [
        ("system", ["system", "system", "user"]),
        ("merged_system", ["system", "user"]),
        ("user_tags", ["system", "user", "user"]),
    ],
)
def test_a_summary_is_rendered_as_the_profile_says(owner, server, queued, rendering, roles):
    profile(**NEVER, rendering=rendering)
    server.script = [SHORT]
    session = SessionFactory(owner=owner, wires=talk(4), system_prompt="Be brief.")
    compact_branch(session=session, trigger="manual", reason="manual", keep_last_n=0)
    say(session, user("hello"))
    messages = sent(server)[-1]
    assert [message["role"] for message in messages] == roles
    assert "<summary>\nshort\n</summary>" in text_of(messages[-2])


def test_a_server_with_one_system_message_gets_one_whatever_the_profile_says(
    owner, server, queued, use_models
):
    use_models(server.models(CONTEXT_WINDOW=8000, SINGLE_LEADING_SYSTEM=True))
    profile(**NEVER, rendering="system")
    server.script = [SHORT]
    session = SessionFactory(owner=owner, wires=talk(4), system_prompt="Be brief.")
    compact_branch(session=session, trigger="manual", reason="manual", keep_last_n=0)
    say(session, user("hello"))
    assert [message["role"] for message in sent(server)[-1]] == ["system", "user"]


def test_a_result_above_its_share_is_cut_in_the_request_only(owner, server, queued):
    profile(**NEVER)
    server.script = [SHORT]
    long = "a line\n" * 3000
    session = SessionFactory(owner=owner, wires=[user("go"), call("f", "c1"), result("c1", long)])
    context = say(session).context
    # 8 000 tokens: three tenths of them are 9 600 characters.
    assert len(sent(server)[0][-1]["content"]) <= 9600
    assert Message.objects.get(role="tool").content == long
    assert Branch.objects.count() == 1
    assert context.account.pending < Message.objects.get(role="tool").tokens


def test_a_request_that_cannot_fit_is_shortened_before_it_is_sent(owner, server, queued):
    profile(**NEVER, precheck_margin=1.2)
    server.script = limit(7000)
    session = SessionFactory(owner=owner, wires=[user("go"), *results(4, 1300)])
    assert say(session).answer.content == "short"
    assert [called.status for called in server.of("chat")] == [200]
    assert not RecoveryStep.objects.exists()


def test_a_long_history_is_compacted_before_it_is_refused(owner, server, queued):
    profile(**NEVER, precheck_margin=1.2)
    server.script = limit(7000)
    session = SessionFactory(owner=owner, wires=talk(40, words=60))
    assert say(session, user("hello")).answer.content == "short"
    assert [called.status for called in server.of("chat")] == [200]
    assert CompactionRun.objects.get().reason == "precheck"
