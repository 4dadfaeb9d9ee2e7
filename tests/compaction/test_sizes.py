"""Sizes before and after are those of the whole request, and a run makes it smaller or stores
nothing.
"""

from __future__ import annotations

import pytest

from chatapp.models import Session
from chatapp.transcript import set_pinned
from compaction.branches.context_builder import context_of
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionRun, SessionSummary
from compaction.runs.resummarize import resummarize
from compaction.runs.scheduling import check_branch
from compaction.runs.worker import execute_run
from compaction.summaries import sizes
from tests.compaction.support import NEVER, compact, say, state
from tests.factories import SessionFactory, call, profile, result, store, talk, user
from tests.facts import code

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(owner, model_server, queued) -> Session:
    profile(**NEVER, keep_last_n=4)
    return SessionFactory(
        owner=owner,
        wires=talk(20, marker=1),
        system_prompt="You are terse.",
        tools=[{"type": "function", "function": {"name": "read", "parameters": {}}}],
    )


def used(session: Session) -> int:
    """Return the tokens of the next request as its account says."""
    return context_of(snapshot_of(Session.objects.get(pk=session.pk))).account.used


def check_sizes(session: Session, act) -> CompactionRun:
    """Check that what a run says of the request is what the request's account says."""
    before = used(session)
    run = act()
    assert run.status == "succeeded", run.error
    assert (run.tokens_before, run.tokens_after) == (before, used(session))
    return run


def test_prompt_tools_and_frames_count(session):
    run = check_sizes(session, lambda: compact(session))
    summary = SessionSummary.objects.get(run=run)
    assert (summary.tokens_before, summary.tokens_after) == (run.tokens_before, run.tokens_after)


def test_pinned_messages_count_twice_nowhere(session):
    rule, *_ = store(session, [{"role": "system", "content": "Never guess. " * 20}, *talk(4)])
    set_pinned(rule, True)
    pinned, *_ = store(session, [user(f"{code(777)} keep this. " * 20), *talk(4)])
    set_pinned(pinned, True)
    check_sizes(session, lambda: compact(session))
    store(session, talk(6))
    check_sizes(session, lambda: compact(session))


def test_of_two_summaries_and_a_third_the_oldest_leaves_the_request(session):
    for _ in range(3):
        check_sizes(session, lambda: compact(session))
        store(session, talk(6))


def test_the_question_of_a_turn_that_is_summarised_in_part_counts(session):
    wires = [user(f"{code(888)} what is it? " * 30)]
    for number in range(8):
        wires += [call("read", f"r{number}"), result(f"r{number}", "text " * 60)]
    store(session, wires)
    check_sizes(session, lambda: compact(session))
    assert state(session).cursor > 0
    more = [call("read", "s0"), result("s0", "text " * 60), *talk(1)[1:]]
    store(session, more)
    check_sizes(session, lambda: compact(session, keep_last_n=0))


def test_no_question_is_looked_for_where_the_run_has_read_a_newer_one(session, monkeypatch):
    looked_for: list[int] = []
    real = sizes._looked_for_question
    monkeypatch.setattr(
        sizes,
        "_looked_for_question",
        lambda branch, cursor: looked_for.append(cursor) or real(branch, cursor),
    )
    calls = [
        wire for n in range(8) for wire in (call("read", f"r{n}"), result(f"r{n}", "text " * 60))
    ]
    # The cut parts the turn, and no question stands behind it; then one does.
    store(session, [user("Read it. " * 30), *calls])
    check_sizes(session, lambda: compact(session))
    assert looked_for == [state(session).cursor]
    store(session, [*talk(1)[1:], *talk(2)])
    check_sizes(session, lambda: compact(session, keep_last_n=5))
    assert looked_for[1:] == []


def test_a_draft_says_what_the_request_would_become(session, use_models, model_server):
    use_models(model_server.models(CONTEXT_WINDOW=4000))
    profile(**NEVER, keep_last_n=4, prepare_ratio=0.01, publish_when_needed=True)
    before = used(session)
    run = execute_run(check_branch(session).pk)
    assert SessionSummary.objects.get().status == "draft"
    assert run.tokens_before == before == used(session)
    # By hand it is published, and nothing is left to summarise.
    assert compact(session).status == "skipped"
    assert run.tokens_after == used(session)


def test_a_new_version_says_what_the_request_becomes_with_it(session, model_server):
    compact(session)
    before = SessionSummary.objects.get()
    run = resummarize(before)
    assert run.tokens_before == before.tokens_before
    assert run.tokens_after == used(session)


def test_twenty_one_greetings_are_not_made_larger(owner, model_server, queued):
    """64 tokens became 96, and "62 → 27" was stored."""
    profile()
    said = {"text": "The user said hi there again and again, and each time was greeted with ok."}
    model_server.script = [
        {"when": {"purpose": "summary"}, "reply": said | {"finish_reason": "stop"}},
        *model_server.script,
    ]
    session = SessionFactory(owner=owner)
    for _ in range(21):
        say(session, "hi there")
    # What could be summarised is less than two frames have: no model is asked.
    assert not CompactionRun.objects.exists()


def test_no_rule_asks_a_model_for_less_than_the_frame_of_a_summary(owner, model_server, queued):
    profile(message_limit=8, keep_last_n=2)
    session = SessionFactory(owner=owner)
    for _ in range(10):
        say(session, "hi")
    assert not CompactionRun.objects.exists()
