"""Restore, ten turns, still verbatim; then lifted, and compacted again with the instructions."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from django.utils import timezone

from chatapp import transcript
from chatapp.audit import AuditEntry
from chatapp.models import Message, Session
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.profiles import save_profile
from compaction.runs.holding import lift_hold
from compaction.runs.lifecycle import RunRequest, request_run
from compaction.runs.sweep import sweep_runs
from compaction.runs.worker import execute_run
from compaction.summaries.restore import restore_summary
from tests.compaction.support import compact, say, state
from tests.factories import SessionFactory, talk
from tests.facts import draw_facts, seed

pytestmark = pytest.mark.django_db

# Of 100 messages with some 15 000 tokens each preset compacts by a rule of its own before or after
# the next turn, and the window has room for them: 20 000 tokens, 1 024 of them for the answer.
PAIRS, WORDS, WINDOW = 50, 95, 20_000
QUIET = {"cooldown_seconds": 0}
PRESETS: dict[str, dict] = {
    "bisect": {},
    "sliding_window": {},
    "checkpoint": {"keep_recent_tokens": 1_000},
    "abridged": {},
    "balanced": {"keep_recent_tokens": 1_000},
}
RENDERINGS = ("merged_system", "user_tags", "node")


@pytest.fixture
def instructions() -> str:
    facts = draw_facts(random.Random(seed()), 2)
    return f"Keep {facts[0].value} and {facts[1].value}."


@pytest.fixture
def compacted(owner, model_server, use_models, queued, instructions):
    """compacted("bisect") is a session of a preset whose older messages a person compacted."""
    use_models(model_server.models(CONTEXT_WINDOW=WINDOW))

    def begin(preset: str, **parameters) -> Session:
        values = QUIET | PRESETS[preset] | parameters
        save_profile(name="held", base=preset, parameters=values, make_default=True)
        session = SessionFactory(owner=owner, wires=talk(PAIRS, words=WORDS, marker=1))
        run = compact(session, instructions=instructions, requested_by=owner)
        assert run.status == "succeeded"
        return session

    return begin


def restored(session: Session, owner) -> SessionSummary:
    summary = SessionSummary.objects.get(session=session, status="active")
    restore_summary(summary, by=owner)
    return summary


def spoken(session: Session) -> list[str]:
    rows = Message.objects.filter(branch=session.branch, kind="message").order_by("position")
    return list(rows.values_list("content", flat=True))


def work_off() -> None:
    """Do what a worker beside the turns does: all that is queued, and the sweep."""
    sweep_runs()
    for run_id in list(CompactionRun.objects.filter(status="queued").values_list("pk", flat=True)):
        execute_run(run_id)


def whole_turn(session: Session, model_server) -> None:
    """Take a turn; the server must receive the whole conversation, byte for byte."""
    before = spoken(session)
    say(session, "And further?")
    call = model_server.of("chat")[-1]
    assert [message["content"] for message in call.messages] == [*before, "And further?"]
    work_off()


def moves_without_a_hold(session: Session) -> bool:
    """Whether the preset compacts again within two turns; so the hold has something to hold."""
    for _ in range(2):
        say(session, "And further?")
        work_off()
    return CompactionState.objects.get(pk=session.branch.pk).cursor > 0


def check_all(session, owner, model_server, instructions) -> None:
    restored(session, owner)
    calls = len(model_server.summarising())
    for _ in range(10):
        whole_turn(session, model_server)
    assert len(model_server.summarising()) == calls
    assert state(session).cursor == 0
    assert not CompactionRun.objects.filter(trigger="proactive").exists()
    assert lift_hold(session, by=owner)
    work_off()
    say(session, "And further?")
    work_off()
    assert state(session).cursor > 0
    again = SessionSummary.objects.filter(session=session, status="active").first()
    assert (again.instructions, again.instructions_by) == (instructions, owner)
    assert instructions in model_server.summarising()[calls].text


@pytest.mark.parametrize("preset", PRESETS)
def test_it_lasts_ten_turns_and_is_compacted_again_when_it_is_lifted(
    compacted, owner, model_server, instructions, preset
):
    check_all(compacted(preset), owner, model_server, instructions)


@pytest.mark.parametrize("rendering", RENDERINGS)
def test_it_lasts_whatever_the_rendering(compacted, owner, model_server, instructions, rendering):
    session = compacted("bisect", rendering=rendering)
    check_all(session, owner, model_server, instructions)


@pytest.mark.parametrize("preset", PRESETS)
def test_without_a_hold_the_same_preset_compacts_again(compacted, owner, preset):
    session = compacted(preset, restore_hold="0")
    restored(session, owner)
    assert not state(session).is_held
    assert moves_without_a_hold(session)


def test_a_run_that_was_queued_before_the_restore_steps_aside(compacted, owner):
    session = compacted("bisect")
    waiting = queued_run(session)
    restored(session, owner)
    done = execute_run(waiting.pk)
    assert (done.status, done.error_code) == ("skipped", "held_by_person")
    assert "until somebody lifts it" in done.error
    assert state(session).cursor == 0


def test_what_was_asked_for_by_hand_before_the_restore_steps_aside_too(compacted, owner):
    session = compacted("bisect")
    waiting = queued_run(session, trigger="manual", reason="manual", requested_by=owner)
    restored(session, owner)
    assert execute_run(waiting.pk).error_code == "held_by_person"
    assert state(session).is_held


def test_compacting_by_hand_lifts_it(compacted, owner):
    session = compacted("bisect")
    restored(session, owner)
    assert compact(session, requested_by=owner).status == "succeeded"
    assert not state(session).is_held
    told = AuditEntry.objects.get(session=session, action="hold_lifted")
    assert told.actor == owner


def test_a_run_by_hand_that_fails_leaves_it(compacted, owner, model_server):
    session = compacted("bisect")
    restored(session, owner)
    model_server.script = [{"when": {"purpose": "summary"}, "reply": {"text": ""}}]
    assert compact(session, requested_by=owner).status == "failed"
    assert state(session).is_held


def test_minutes_end_it(compacted, owner, model_server):
    session = compacted("bisect", restore_hold="30")
    restored(session, owner)
    now = state(session)
    assert now.held_until - now.held_at == timedelta(minutes=30)
    # The sweep looks again then, also if nothing is said.
    assert now.next_check_at == now.held_until
    whole_turn(session, model_server)
    past = timezone.now() - timedelta(seconds=1)
    CompactionState.objects.filter(pk=session.branch.pk).update(held_until=past, next_check_at=past)
    assert sweep_runs().due_branches == 1
    work_off()
    assert state(session).cursor > 0
    # No person did it, and no window forced it.
    assert AuditEntry.objects.get(session=session).action == "restored"


def queued_run(session: Session, **changes) -> CompactionRun:
    snapshot = snapshot_of(session)
    asked = {"trigger": "proactive", "reason": "rest", "requested_by": None} | changes
    return request_run(
        RunRequest(
            session=session,
            branch=snapshot.branch,
            profile=snapshot.profile_row,
            background=True,
            **asked,
        )
    )


def test_who_restores_and_lifts_stands_in_the_audit_log(compacted, owner):
    session = compacted("bisect")
    summary = restored(session, owner)
    assert lift_hold(session, by=owner)
    entries = AuditEntry.objects.filter(session=session).order_by("created_at")
    assert [(one.action, one.actor) for one in entries] == [
        ("restored", owner),
        ("hold_lifted", owner),
    ]
    assert str(summary.pk)[-8:] in entries[0].text
    assert "held until somebody lifts it" in entries[0].text


@pytest.mark.parametrize("preset", PRESETS)
def test_another_profile_that_the_session_is_given_ends_no_hold(
    compacted, owner, model_server, preset
):
    """On the session and on a fork of it: its rules count as little as those that were there."""
    session = compacted("balanced")
    restored(session, owner)
    whole_turn(session, model_server)
    values = QUIET | PRESETS[preset]
    other = save_profile(name="other", base=preset, parameters=values)
    CompactionState.objects.filter(pk=session.branch.pk).update(profile=other.name)
    calls = len(model_server.summarising())
    for _ in range(4):
        whole_turn(session, model_server)
    last = Message.objects.filter(branch=session.branch, kind="message").latest("position")
    shared = spoken(session)
    transcript.switch(session, transcript.fork(session, at=last))
    for number in range(2):
        say(session, f"And on this branch, {number}?")
        sent = [message["content"] for message in model_server.of("chat")[-1].messages]
        assert sent[: len(shared)] == shared
        work_off()
    assert len(model_server.summarising()) == calls
