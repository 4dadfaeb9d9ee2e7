"""Preset `sliding_window` over real rows."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from chatapp import transcript
from chatapp.context.backend import context_backend
from chatapp.models import Message, Session
from chatapp.transcript import set_pinned
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.profiles import save_profile
from compaction.runs import lifecycle
from compaction.runs.sweep import sweep_runs
from compaction.runs.worker import check_branch, execute_run
from compaction.summaries.restore import restore_summary
from tests.compaction.clock import START, Conversation
from tests.compaction.support import say, sent, texts
from tests.factories import call, result, store, user
from tests.facts import CODE_PATTERN, code
from tests.fakes.model_server import echo_and_answer

pytestmark = pytest.mark.django_db


def window(**parameters):
    """The preset with changes, as the default profile; nothing else triggers."""
    values = {"prepare_ratio": 0.0} | parameters
    return save_profile(name="window", base="sliding_window", parameters=values, make_default=True)


@pytest.fixture
def conversation(monkeypatch, model_server, owner, queued) -> Conversation:
    model_server.script = echo_and_answer(CODE_PATTERN)
    window()
    return Conversation(monkeypatch, owner=owner)


def failing(server, *, status: int = 200, **reply) -> None:
    """Have every summary fail: with an answer of nothing, which is no outage."""
    answer = {"text": ""} if status == 200 else {"error": {"status": status, "body": {}}}
    server.script = [
        {"when": {"purpose": "summary"}, "reply": answer | reply},
        {"when": {"purpose": "chat"}, "reply": {"text": "ok"}},
    ]


# --- 2.2 -----------------------------------------------------------------------------------------


def test_pure_window_triggers_fall_at_52_64_76_88_100(conversation):
    conversation.go_on(104)
    assert conversation.fired == [(n, "message_window") for n in (52, 64, 76, 88, 100)]
    first, second, *_ = conversation.summaries()
    assert conversation.read_by(first) == list(range(12))
    assert conversation.read_by(second) == list(range(12, 24))
    assert conversation.covered == 60


def test_one_message_a_minute_fires_by_the_window_alone(conversation):
    conversation.go_on(90, every=60)
    assert conversation.fired == [(n, "message_window") for n in (52, 64, 76, 88)]


def test_one_message_every_900_seconds_fires_with_four_at_a_time(conversation):
    # Four of the usual ones are hardly longer than the frame that their summary is sent in.
    conversation.text *= 4
    conversation.go_on(56, every=900)
    assert conversation.fired == [(n, "maximum_age") for n in (44, 48, 52, 56)]
    assert [len(conversation.read_by(one)) for one in conversation.summaries()] == [4, 4, 4, 4]


def test_five_failures_are_no_storm_of_attempts(conversation, model_server):
    """10 s a message: without a pause it would be tried at 52, 53, 54, 55 and 56."""
    failing(model_server)
    conversation.go_on(143, every=10)
    attempts = [total for total, run in conversation.runs if run.status == "failed"]
    # The pauses are 60, 120, 240 and 480 seconds.
    assert attempts == [52, 58, 70, 94, 142]
    assert conversation.covered == 0
    assert conversation.state.failures == 5


def test_after_failures_the_next_success_takes_up_where_the_cursor_stands(
    conversation, model_server
):
    good = model_server.script
    failing(model_server)
    conversation.go_on(53, every=10)
    model_server.script = good
    conversation.seconds += 60
    assert conversation.add().status == "succeeded"
    (summary,) = conversation.summaries()
    assert conversation.read_by(summary) == list(range(14))
    assert conversation.state.failures == 0


# --- 2.3: age, sweep -----------------------------------------------------------------------------


def test_an_idle_session_fires_by_the_sweep(conversation, django_capture_on_commit_callbacks):
    conversation.go_on(45, every=60)
    assert conversation.runs == []
    # The 41st message came at 2 400 s and pushed the first one out of the tail.
    assert conversation.state.next_check_at == START + timedelta(seconds=2400 + 900)
    conversation.seconds = 3299
    assert sweep_runs().due_branches == 0
    conversation.seconds = 3301
    assert sweep_runs().due_branches == 1
    run = CompactionRun.objects.get()
    assert (run.reason, run.status) == ("maximum_age", "queued")
    execute_run(run.pk)
    assert conversation.covered == 5
    assert sweep_runs().due_branches == 0


def test_fewer_than_a_batch_wait_for_ever_without_a_message(conversation):
    conversation.go_on(43)
    conversation.seconds = 1_000_000
    assert conversation.look() is None
    assert conversation.state.next_check_at is None


def test_a_branch_that_nobody_is_on_is_not_looked_at(conversation):
    conversation.go_on(45)
    at = Message.objects.get(position=20_000_000)
    transcript.activate(conversation.session, transcript.fork(conversation.session, at=at))
    conversation.seconds = 901
    assert sweep_runs().due_branches == 0
    assert not CompactionRun.objects.exists()


def test_a_branch_that_failed_is_tried_again_although_nobody_says_anything(
    conversation, model_server
):
    good = model_server.script
    failing(model_server)
    conversation.go_on(52)
    assert conversation.state.next_check_at == START + timedelta(seconds=60)
    model_server.script = good
    conversation.seconds = 61
    assert sweep_runs().due_branches == 1
    execute_run(CompactionRun.objects.get(status="queued").pk)
    assert conversation.covered == 12


# --- 2.3: hard limit, the cap --------------------------------------------------------------------


def test_the_hard_limit_runs_before_the_request(conversation):
    store(conversation.session, [user(f"{code(n)} a message of some words") for n in range(69)])
    answer = say(conversation.session, "and now?")
    run = CompactionRun.objects.get(mode="inline")
    assert (run.reason, run.status) == ("hard_limit", "succeeded")
    assert answer.context.run_id == str(run.pk)
    assert snapshot_of(conversation.session).waiting == 1


def test_below_the_hard_limit_no_request_waits(conversation, model_server):
    store(conversation.session, [user(f"message {n} of some words") for n in range(68)])
    say(conversation.session, "and now?")
    assert not CompactionRun.objects.filter(mode="inline").exists()
    assert len(model_server.of("summary")) == 0
    assert CompactionRun.objects.get().status == "queued"


def test_the_hard_limit_does_not_wait_for_the_back_off(conversation):
    store(conversation.session, [user(f"message {n} of some words") for n in range(70)])
    CompactionState.objects.filter(pk=conversation.session.branch.pk).delete()
    check_branch(conversation.session)
    CompactionRun.objects.all().delete()
    CompactionState.objects.update(backoff_until=timezone.now() + timedelta(hours=1), failures=1)
    assert check_branch(conversation.session) is None
    say(conversation.session, "and now?")
    assert CompactionRun.objects.get(mode="inline").status == "succeeded"


def test_the_request_holds_everything_behind_the_cursor(conversation):
    conversation.go_on(63)
    assert conversation.covered == 12
    assert [text for text in texts(sent(conversation.session)) if code(12) in text]
    kept = [m for m in sent(conversation.session) if m["role"] != "system"]
    assert len(kept) == 51


def test_no_request_holds_more_than_the_context_size_and_none_hides_a_message(
    conversation, model_server
):
    """What would fall out is stored as a digest when no summariser answers."""
    failing(model_server)
    for number in range(60):
        say(conversation.session, f"{code(number)} a question with some words in it")
        request = model_server.of("chat")[-1].messages
        kept = [m for m in request if m["role"] != "system"]
        # The question of a turn that was stored as a digest in part comes on top.
        assert len(kept) <= 76
        told = "\n".join(texts(kept))
        read = Message.objects.filter(summary_links__summary__status="active")
        known = told + "\n".join(read.values_list("content", flat=True))
        assert [n for n in range(number + 1) if code(n) not in known] == []
    is_digest = SessionSummary.objects.filter(is_digest=True)
    assert is_digest.exists()
    assert not SessionSummary.objects.filter(is_digest=False).exists()


def test_a_turn_on_a_long_old_session_works_it_off_until_nothing_falls_out(
    conversation, model_server
):
    model_server.script = [
        {"when": {"purpose": "summary"}, "reply": {"text": "what was said"}},
        {"when": {"purpose": "chat"}, "reply": {"text": "ok"}},
    ]
    store(conversation.session, [user(f"{code(n)} old words") for n in range(400)])
    say(conversation.session, "still there?")
    snapshot = snapshot_of(conversation.session)
    assert not snapshot.hides_messages
    done = CompactionRun.objects.filter(mode="inline")
    assert {run.status for run in done} == {"succeeded"}
    assert [len(conversation.read_by(one)) for one in conversation.summaries()][:5] == [60] * 5


def test_one_request_waits_for_eight_batches_of_a_long_backlog(conversation, model_server):
    """A call each, 60 messages each; what is left goes out of sight until workers have done it."""
    model_server.script = [
        {"when": {"purpose": "summary"}, "reply": {"text": "what was said"}},
        {"when": {"purpose": "chat"}, "reply": {"text": "ok"}},
    ]
    store(conversation.session, [user(f"{code(n)} old words") for n in range(1_000)])
    assert say(conversation.session, "still there?").answer.content == "ok"
    assert len(model_server.summarising()) == 8
    inline = CompactionRun.objects.filter(mode="inline")
    assert [run.status for run in inline] == ["succeeded"] * 8
    assert conversation.covered == 480
    assert not SessionSummary.objects.filter(is_digest=True).exists()
    while (waiting := CompactionRun.objects.filter(status="queued").first()) is not None:
        execute_run(waiting.pk)
    assert not snapshot_of(conversation.session).hides_messages
    read = [conversation.read_by(summary) for summary in conversation.summaries()]
    assert [number for one in read for number in one] == list(range(conversation.covered))


# --- 2.3: ends, chunks ---------------------------------------------------------------------------


def test_a_backlog_of_960_is_worked_off_in_chunks_the_oldest_first(conversation, model_server):
    model_server.script = [{"when": {"purpose": "summary"}, "reply": {"text": "what was said"}}]
    store(conversation.session, [user(f"{code(n)} old words") for n in range(1000)])
    conversation.look()
    assert [run.reason for _, run in conversation.runs] == ["hard_limit"] * 16
    read = [conversation.read_by(summary) for summary in conversation.summaries()]
    assert [len(one) for one in read] == [60] * 16
    assert [number for one in read for number in one] == list(range(960))
    summaries = conversation.summaries()
    assert [one.previous for one in summaries] == [None, *summaries[:-1]]


def test_the_state_tells_how_far_a_backlog_is(conversation, api):
    store(conversation.session, [user(f"{code(n)} old words") for n in range(400)])
    url = f"/api/v1/sessions/{conversation.session.pk}/compaction/"
    assert api.get(url).json()["waiting"] == 360
    execute_run(check_branch(conversation.session).pk)
    body = api.get(url).json()
    assert body["waiting"] == 300
    last = body["last_consolidated"]
    assert (last["index"], last["sequence_id"]) == (60, "60.000000")
    assert str(Message.objects.get(content=f"{code(59)} old words").pk) == last["message"]


def test_an_end_inside_a_group_goes_back_and_the_group_stays_whole(conversation):
    """No result without its call, no call without its results."""
    for _ in range(11):
        conversation.add()
    wires = [call("look", "c1"), result("c1", "seen")]
    store(conversation.session, wires)
    conversation.total += 2
    conversation.go_on(39)
    (summary,) = conversation.summaries()
    # Twelve wait, and the twelfth is a call: it stays with its result.
    assert conversation.read_by(summary) == list(range(11))
    roles = [m["role"] for m in sent(conversation.session) if m["role"] != "system"]
    assert roles[:2] == ["assistant", "tool"]


def test_a_conversation_without_any_user_is_summarised_too(conversation):
    """3131, 3159, 3198-3200: no boundary was found, and it stopped silently."""
    for _ in range(52):
        conversation.add(role="assistant")
    assert conversation.covered == 12


def test_the_end_is_taken_before_the_model_is_called(conversation, model_server, monkeypatch):
    """Trap 4: what arrives during the call was marked as consolidated unseen."""
    from compaction.summaries.summarizer import ModelSummarizer

    real = ModelSummarizer.summarize

    def slow(self, request):
        store(conversation.session, [user(f"{code(1001)} while you were away")])
        return real(self, request)

    monkeypatch.setattr(ModelSummarizer, "summarize", slow)
    conversation.go_on(52)
    (summary,) = conversation.summaries()
    assert conversation.read_by(summary) == list(range(12))
    assert code(1001) in sent(conversation.session)[-1]["content"]


def test_pending_is_cleared_and_the_rule_looked_at_again_not_blindly_run(conversation, monkeypatch):
    """2.1-4: a message during the run asks again; when it ends, nothing is due."""
    from compaction.summaries.summarizer import ModelSummarizer

    real, seen = ModelSummarizer.summarize, []

    def slow(self, request):
        store(conversation.session, [user("one more message meanwhile")])
        assert check_branch(conversation.session) is None
        seen.append(conversation.state.recheck_requested)
        return real(self, request)

    monkeypatch.setattr(ModelSummarizer, "summarize", slow)
    conversation.go_on(52)
    assert seen == [True]
    assert conversation.state.recheck_requested is False
    assert CompactionRun.objects.count() == 1


def test_pending_leads_to_a_run_when_one_is_due(conversation, monkeypatch):
    from compaction.summaries.summarizer import ModelSummarizer

    real, seen = ModelSummarizer.summarize, []

    def slow(self, request):
        if not seen:
            store(conversation.session, [user(f"message {n} meanwhile") for n in range(12)])
            assert check_branch(conversation.session) is None
        seen.append(request)
        return real(self, request)

    monkeypatch.setattr(ModelSummarizer, "summarize", slow)
    conversation.go_on(52)
    assert [run.reason for _, run in conversation.runs] == ["message_window"] * 2
    assert conversation.covered == 24


# --- smaller pieces, fallback digests
# --------------------------------------------------------------------


def test_one_message_that_no_summariser_takes_does_not_hold_up_the_others(
    conversation, model_server
):
    poison = {"purpose": "summary", "contains": code(3)}
    model_server.script = [
        {"when": poison, "reply": {"text": ""}},
        *model_server.script,
    ]
    conversation.go_on(52)
    for _ in range(30):
        conversation.seconds += 4000
        conversation.look()
        if conversation.covered >= 12:
            break
    summaries = conversation.summaries()
    read = [conversation.read_by(one) for one in summaries]
    assert [number for one in read for number in one] == list(range(12))
    uses_digest = [one for one in summaries if one.is_digest]
    assert len(uses_digest) == 1
    assert 3 in conversation.read_by(uses_digest[0])
    assert any(not one.is_digest for one in summaries)


def test_an_archive_says_what_it_is_and_is_smaller(conversation, model_server, api):
    failing(model_server)
    conversation.go_on(52)
    for _ in range(6):
        conversation.seconds += 4000
        conversation.look()
    digest = SessionSummary.objects.get(is_digest=True)
    assert digest.summary_text.startswith("[Archive")
    assert digest.summary_tokens < digest.approx_tokens
    assert (digest.model, digest.metadata["algorithm"]) == ("archive", "archive_v1")
    (step,) = digest.run.steps.all()
    assert (step.kind, step.outcome) == ("archive", "truncated")
    shown = api.get(f"/api/v1/summaries/{digest.pk}/").json()
    assert shown["is_digest"] is True
    # It is data in the request, as every summary is.
    assert any("[Archive" in text for text in texts(sent(conversation.session), "system"))


def test_an_archive_never_holds_a_megabyte(conversation, model_server, use_models):
    """3412."""
    # All of it fits the window: where it did not, sentences would be chosen instead of failing.
    use_models(model_server.models(CONTEXT_WINDOW=1_000_000))
    failing(model_server)
    conversation.go_on(8)
    store(conversation.session, [user(f"{code(n)} " + "word " * 50_000) for n in range(4)])
    conversation.total += 4
    conversation.go_on(40)
    for _ in range(8):
        conversation.seconds += 4000
        conversation.look()
    uses_digest = SessionSummary.objects.filter(is_digest=True)
    assert uses_digest.exists()
    assert max(digest.summary_tokens for digest in uses_digest) <= 4000


# --- 2.5, one by one -----------------------------------------------------------------------------


def test_an_answer_that_uses_a_tool_instead_of_writing_fails_and_is_counted(
    conversation, model_server
):
    """1931: the model does not call the save tool, or calls one instead of answering."""
    calls = [{"id": "c", "name": "save", "arguments": "{}"}]
    model_server.script = [{"when": {"purpose": "summary"}, "reply": {"tool_calls": calls}}]
    conversation.go_on(52)
    assert [run.status for _, run in conversation.runs] == ["failed"]
    assert conversation.covered == 0


def test_what_is_sent_does_not_grow_with_the_number_of_summaries(conversation):
    """1186: the memory file grew with every run."""
    conversation.go_on(100)
    early = len([m for m in sent(conversation.session) if m["role"] == "system"])
    conversation.go_on(120)
    # Each says what the one before it said, so the newest is sent alone.
    assert len([m for m in sent(conversation.session) if m["role"] == "system"]) == early == 1


def test_a_session_deleted_during_a_run_ends_it_and_brings_nothing_back(conversation, monkeypatch):
    """881, 880, 1516."""
    from compaction.summaries.summarizer import ModelSummarizer

    real = ModelSummarizer.summarize

    def meanwhile(self, request):
        Session.objects.filter(pk=conversation.session.pk).delete()
        return real(self, request)

    monkeypatch.setattr(ModelSummarizer, "summarize", meanwhile)
    conversation.go_on(51)
    run = conversation.add()
    assert (run.status, run.error_code) in {("cancelled", "deleted"), ("failed", "lost_race")}
    assert not SessionSummary.objects.exists()
    assert not Message.objects.exists()


@pytest.mark.parametrize("cursor", [10**12, -5])
def test_a_cursor_outside_the_conversation_hides_nothing(conversation, cursor):
    """3680, 4066: a cursor behind the end hid the whole history."""
    conversation.go_on(60)
    CompactionState.objects.update(cursor=cursor, covered_messages=10_000)
    told = "\n".join(texts(sent(conversation.session)))
    assert all(code(number) in told for number in range(60))
    conversation.go_on(4)
    assert conversation.fired[-1] == (64, "message_window")
    assert conversation.covered == 24


def test_a_message_put_before_the_cursor_shifts_no_arithmetic(conversation):
    """2635: after trimming, the index pointed to another message."""
    conversation.go_on(60)
    late = transcript.insert_between(
        conversation.session.branch,
        after=3_000_000,
        draft=transcript_draft(f"{code(1001)} came in late"),
    )
    assert late.position < conversation.state.cursor
    conversation.go_on(4)
    assert conversation.fired[-1] == (64, "message_window")
    second = conversation.summaries()[-1]
    assert len(conversation.read_by(second)) == 12
    assert code(1001) in "\n".join(texts(sent(conversation.session)))


def transcript_draft(text: str):
    from chatapp.transcript.writing import NewMessage

    return NewMessage(wire=user(text))


def test_a_second_compactor_finds_the_lease_whatever_session_object_it_holds(
    conversation, monkeypatch
):
    """3881: two compactors with locks of their own and stale session objects."""
    from compaction.summaries.summarizer import ModelSummarizer

    real, others = ModelSummarizer.summarize, []
    stale = Session.objects.get(pk=conversation.session.pk)

    def meanwhile(self, request):
        if not others:
            snapshot = snapshot_of(stale)
            run = lifecycle.request_run(
                lifecycle.RunRequest(
                    session=stale,
                    branch=stale.branch,
                    trigger="proactive",
                    reason="message_window",
                    profile=snapshot.profile_row,
                    background=True,
                )
            )
            others.append(run)
            others.append(execute_run(run.pk))
        return real(self, request)

    monkeypatch.setattr(ModelSummarizer, "summarize", meanwhile)
    conversation.go_on(52)
    assert (others[1].status, others[1].error_code) == ("skipped", "busy")
    assert SessionSummary.objects.count() == 1


def test_a_conclusion_corrected_in_the_tail_is_sent_after_the_summary(conversation):
    """4326: the summary recorded a conclusion that the kept tail takes back."""
    conversation.go_on(44)
    conversation.add(f"{code(1002)} correction: it was not red at all")
    conversation.go_on(7)
    request = texts(sent(conversation.session))
    summary = next(i for i, text in enumerate(request) if "SUMMARY" in text)
    correction = next(i for i, text in enumerate(request) if code(1002) in text)
    assert summary < correction


def test_the_cursor_never_passes_what_the_summariser_did_not_read(conversation, model_server):
    """5377, 5379: the input was cut to a budget and the cursor moved past all of it."""
    store(conversation.session, [user(f"{code(n)} " + "word " * 400) for n in range(120)])
    conversation.look()
    asked = "\n".join(one.text for one in model_server.of("summary"))
    for summary in conversation.summaries():
        for number in conversation.read_by(summary):
            assert code(number) in asked
    assert conversation.covered == sum(
        len(conversation.read_by(summary)) for summary in conversation.summaries()
    )


def test_a_short_reply_is_never_parted_from_its_options(conversation):
    """4627."""
    conversation.go_on(11)
    conversation.add(f"{code(1003)} Which one? 1. red 2. blue", role="assistant")
    conversation.add("2", role="user")
    for _ in range(39):
        conversation.add()
    told = [m["content"] for m in sent(conversation.session) if m["role"] != "system"]
    assert code(1003) in told[1]
    assert told[2] == "2"


# --- what else an operator meets ----------------------------------------------------------------


def test_a_restored_summary_waits_as_long_as_new_messages_do(conversation):
    window(restore_hold="0")
    conversation.go_on(44)
    conversation.seconds = 1000
    conversation.look()
    assert conversation.fired == [(44, "maximum_age")]
    restore_summary(conversation.summaries()[0])
    assert conversation.covered == 0
    conversation.seconds = 1899
    assert conversation.look() is None
    conversation.seconds = 1901
    assert conversation.look().reason == "maximum_age"


def test_pinned_rules_stay_and_are_never_summarised(conversation):
    rule = store(conversation.session, [{"role": "system", "content": "Be brief."}])[0]
    assert rule.pinned
    conversation.go_on(52)
    told = sent(conversation.session)
    assert told[0]["content"] == "Be brief."
    assert all(rule.pk not in linked_ids(one) for one in conversation.summaries())


def linked_ids(summary):
    return set(Message.objects.filter(summary_links__summary=summary).values_list("pk", flat=True))


def test_a_pinned_message_is_sent_although_its_batch_was_summarised(conversation):
    conversation.go_on(5)
    set_pinned(Message.objects.get(content__startswith=code(4)), True)
    conversation.go_on(47)
    told = texts([m for m in sent(conversation.session) if m["role"] != "system"])
    assert told[0].startswith(code(4))


def test_the_context_tells_the_rules_and_how_far_they_are(conversation):
    conversation.go_on(45)
    rules = {rule["reason"]: rule for rule in context_backend.preview(conversation.session).facts[
        "branch"]["triggers"]}  # fmt: skip
    assert (rules["message_window"]["now"], rules["message_window"]["left"]) == (5, 7)
    assert (rules["hard_limit"]["now"], rules["hard_limit"]["left"]) == (5, 25)
    assert rules["maximum_age"]["limit"] == 900
