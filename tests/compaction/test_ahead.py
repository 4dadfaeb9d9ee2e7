"""Summaries made ahead of need: in the background, published at once or when a rule asks."""

from __future__ import annotations

import math

import pytest

from chatapp import transcript
from chatapp.models import Message
from chatapp.transcript import set_pinned
from chatapp.transcript.writing import NewMessage
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionRun, SessionSummary
from compaction.runs.scheduling import check_branch
from compaction.runs.worker import execute_run
from compaction.summaries.restore import restore_summary
from tests.compaction.support import NEVER, compact, held_worker, say, sent, state, stored, texts
from tests.factories import SessionFactory, profile, store, talk, user
from tests.facts import code

pytestmark = pytest.mark.django_db
# A talk of 40 messages with 27 words each and a code in every other has about 1 900 tokens.
WINDOW = 2400


@pytest.fixture
def session(owner, model_server, use_models, queued):
    use_models(model_server.models(CONTEXT_WINDOW=WINDOW, MAX_OUTPUT=200))
    return SessionFactory(owner=owner, wires=talk(20, marker=1, words=24))


def ahead(**changes):
    return profile(**(NEVER | {"prepare_ratio": 0.7, "keep_last_n": 4} | changes))


def due(session) -> CompactionRun:
    run = check_branch(session)
    assert run is not None
    return run


def draft(session) -> SessionSummary:
    run = execute_run(due(session).pk)
    assert (run.reason, run.status) == ("ahead", "succeeded")
    return SessionSummary.objects.get(run=run)


# --- when ----------------------------------------------------------------------------------------


def test_above_the_ratio_a_run_is_queued_and_no_turn_waits(session, model_server):
    ahead()
    tokens = snapshot_of(session).whole_facts.request_tokens
    assert 0.7 * WINDOW < tokens < WINDOW
    answer = say(session, "a question")
    assert model_server.of("summary") == []
    assert answer.context.run_id is None
    assert CompactionRun.objects.get().reason == "ahead"


def test_at_the_ratio_nothing_is_due_and_one_token_more_makes_it_due(session):
    ahead()
    tokens = snapshot_of(session).whole_facts.request_tokens
    ratio = tokens / WINDOW
    if ratio * WINDOW < tokens:
        ratio = math.nextafter(ratio, 1)
    ahead(prepare_ratio=ratio)
    assert check_branch(session) is None
    ahead(prepare_ratio=(tokens - 1) / WINDOW)
    assert check_branch(session) is not None


def test_system_prompt_and_summaries_count_too(session):
    ahead()
    ratio = snapshot_of(session).whole_facts.request_tokens / WINDOW + 0.05
    ahead(prepare_ratio=ratio)
    assert check_branch(session) is None
    session.system_prompt = "rule " * 500
    session.save()
    assert check_branch(session).reason == "ahead"


def test_less_than_a_batch_is_not_worth_a_run(session):
    ahead(keep_last_n=38)
    assert check_branch(session) is None
    ahead(keep_last_n=26)
    assert check_branch(session) is not None


def test_zero_switches_the_rule_off(session):
    ahead(prepare_ratio=0.0)
    assert check_branch(session) is None


def test_every_preset_but_those_that_wait_for_a_limit_has_it(session):
    from compaction.engine.profile import PRESETS

    without = {name for name, preset in PRESETS.items() if preset.prepare_ratio != 0.7}
    # These summarise when they must: that is what their sources do.
    assert without == {"checkpoint", "abridged"}


# --- published at once ---------------------------------------------------------------------------


def test_published_at_once_the_next_request_is_small(session):
    ahead()
    execute_run(due(session).pk)
    assert SessionSummary.objects.get().status == "active"
    assert len(texts(sent(session), "user")) == 2
    assert check_branch(session) is None


@pytest.mark.django_db(transaction=True)
def test_what_is_stored_meanwhile_stands_behind_the_cursor_in_order(session):
    ahead()
    with held_worker(due(session)):
        store(session, [user(f"{code(901)} first"), user(f"{code(902)} second")])
        # The old state, whole: every message, no summary.
        assert len(sent(session)) == 42
    after = sent(session)
    assert [m["content"] for m in after[-2:]] == [f"{code(901)} first", f"{code(902)} second"]
    assert [m["role"] for m in after].count("system") == 1
    assert len(after) == 1 + 4 + 2
    late = Message.objects.get(content=f"{code(901)} first")
    assert state(session).cursor < late.position
    assert not late.summary_links.exists()


# --- kept as a draft -----------------------------------------------------------------------------


def test_a_draft_changes_nothing_that_is_sent(session):
    ahead(publish_when_needed=True)
    before = sent(session)
    made = draft(session)
    assert made.status == "draft"
    assert made.links.count() == 36
    assert sent(session) == before
    assert state(session).cursor == 0
    assert not any(row.kind == "placeholder" for row in stored(session))


def test_while_a_draft_waits_no_second_one_is_made(session):
    ahead(publish_when_needed=True)
    draft(session)
    assert check_branch(session) is None
    say(session, "a question")
    assert CompactionRun.objects.count() == 1


def test_a_draft_is_published_when_a_rule_asks_without_a_call(session, model_server):
    ahead(publish_when_needed=True)
    made = draft(session)
    ahead(publish_when_needed=True, message_limit=40)
    calls = len(model_server.of("summary"))
    say(session, "a question")
    made.refresh_from_db()
    assert made.status == "active"
    assert len(model_server.of("summary")) == calls
    assert CompactionRun.objects.count() == 1
    request = model_server.of("chat")[-1].messages
    assert made.summary_text in request[0]["content"]
    assert len(request) == 1 + 4 + 1
    assert state(session).covered_messages == 36
    assert state(session).cursor == made.covers_through
    assert [row.kind for row in stored(session)].count("placeholder") == 1


def test_a_refused_request_publishes_the_draft_too(session, model_server):
    ahead(publish_when_needed=True)
    made = draft(session)
    model_server.script = [
        {
            "when": {"purpose": "chat", "call": 1},
            "reply": {
                "error": {
                    "status": 400,
                    "body": {"error": {"code": "context_length_exceeded", "message": "too long"}},
                }
            },
        },
        *model_server.script,
    ]
    assert say(session, "a question").answer.content == "ok"
    made.refresh_from_db()
    assert made.status == "active"


def test_a_compaction_by_hand_publishes_the_draft_and_goes_on(session):
    ahead(publish_when_needed=True)
    made = draft(session)
    store(session, talk(5))
    run = compact(session)
    made.refresh_from_db()
    assert (run.status, made.status) == ("succeeded", "active")
    second = SessionSummary.objects.get(run=run)
    assert second.previous == made
    assert second.message_count == 10


@pytest.mark.parametrize("change", ["pinned rule", "insertion", "restore"])
def test_a_draft_that_was_made_from_something_else_is_discarded(session, change):
    ahead(publish_when_needed=True, prepare_ratio=0.4, restore_hold="0")
    if change == "restore":
        compact(session, keep_last_n=30)
    made = draft(session)
    if change == "pinned rule":
        first = Message.objects.get(content__startswith=code(1))
        Message.objects.filter(pk=first.pk).update(role="system")
        set_pinned(first, True)
    elif change == "insertion":
        wire = user(f"{code(900)} put in between")
        transcript.insert_between(session.branch, after=5_000_000, draft=NewMessage(wire=wire))
    else:
        restore_summary(SessionSummary.objects.get(status="active"))
    ahead(publish_when_needed=True, message_limit=40)
    say(session, "a question")
    made.refresh_from_db()
    assert made.status == "superseded"
    # The compaction was done instead.
    assert SessionSummary.objects.filter(status="active").count() == 1
    told = "\n".join(texts(sent(session)))
    assert code(900) in told or change != "insertion"


def test_a_draft_is_not_published_while_another_worker_holds_the_branch(session):
    import uuid

    from compaction.branches.leases import Lease, ensure_state

    ahead(publish_when_needed=True)
    made = draft(session)
    Lease.acquire_or_steal(ensure_state(session.branch).pk, uuid.uuid4())
    ahead(publish_when_needed=True, message_limit=40)
    say(session, "a question")
    made.refresh_from_db()
    assert made.status == "draft"


def test_the_state_names_the_draft(session, api):
    ahead(publish_when_needed=True)
    made = draft(session)
    body = api.get(f"/api/v1/sessions/{session.pk}/compaction/").json()
    assert body["draft"] == str(made.pk)
