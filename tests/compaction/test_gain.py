"""No compaction without gain: a tail that alone reaches a limit is not cut at every turn."""

from __future__ import annotations

from itertools import pairwise

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chatapp.models import Message, Session
from chatapp.transcript import set_pinned
from compaction.branches.planning import decision_of, gain_of
from compaction.branches.snapshot import snapshot_of
from compaction.engine.profile import PRESETS
from compaction.models import CompactionRun, SessionSummary
from compaction.profiles import save_profile
from compaction.runs.scheduling import check_branch
from compaction.runs.worker import execute_run
from tests.compaction.session_page import page_of
from tests.compaction.support import NEVER, say, state
from tests.factories import SessionFactory, profile, store, talk, user

pytestmark = pytest.mark.django_db
# One token a word by our count of such words.
QUESTION = "lorem " * 1200


@pytest.fixture
def session(owner, model_server, queued) -> Session:
    return SessionFactory(owner=owner)


def tokens_of(session: Session) -> list[int]:
    rows = Message.objects.filter(session=session, kind="message").order_by("position")
    return list(rows.values_list("tokens", flat=True))


def held_back(session: Session, *, words: int = 400) -> None:
    """Store a conversation whose kept messages alone reach 3,000 tokens, with a little before."""
    profile(message_limit=0, max_context_tokens=3000, keep_last_n=6)
    store(session, [*talk(1, words=90), *talk(3, words=2 * words)])


def test_long_questions_of_the_preset_are_not_compacted_each_turn(session):
    """Six turns of 1,200 tokens were six compactions of two messages each."""
    profile()
    done = CompactionRun.objects.filter(status="succeeded")
    counts = [0]
    for number in range(10):
        say(session, f"{number} {QUESTION}")
        counts.append(done.count())
    made = [after - before for before, after in pairwise(counts)]
    # At most every second turn, and each time a quarter of the limit or more.
    assert all(sum(pair) <= 1 for pair in pairwise(made))
    assert sum(made) > 0
    assert min(SessionSummary.objects.values_list("approx_tokens", flat=True)) >= 0.25 * 6000


@pytest.mark.parametrize("preset", list(PRESETS))
def test_six_long_questions_make_at_most_one_compaction_in_the_background(
    session, model_server, use_models, preset
):
    use_models(model_server.models(CONTEXT_WINDOW=32_000))
    save_profile(name="test", base=preset, parameters={}, make_default=True)
    for number in range(6):
        say(session, f"{number} {QUESTION}")
        for run in CompactionRun.objects.filter(status="queued"):
            execute_run(run.pk)
    made = CompactionRun.objects.values_list("mode", "status")
    assert list(made) in ([], [("background", "succeeded")])
    assert bool(made) == (preset == "bisect")


def test_a_rule_that_is_held_back_makes_neither_request_nor_worker_wait(session, model_server):
    held_back(session)
    assert sum(tokens_of(session)) > 3000
    assert decision_of(snapshot_of(session)) is None
    assert check_branch(session) is None
    say(session, "and now?")
    assert model_server.of("summary") == []


def test_it_fires_when_enough_has_left_the_tail(session, model_server):
    held_back(session)
    say(session, "x " * 900)
    say(session, "and now?")
    assert CompactionRun.objects.filter(status="succeeded").get().reason == "token_limit"


def test_a_pinned_message_is_no_gain(session):
    profile(message_limit=0, max_context_tokens=3000, keep_last_n=2)
    long, *_ = store(session, [user(QUESTION * 2), *talk(1, words=300), *talk(1, words=600)])
    assert decision_of(snapshot_of(session)) is not None
    set_pinned(long, True)
    found = gain_of(snapshot_of(session))
    assert (found.messages, found.tokens) == (2, sum(tokens_of(session)[1:3]))
    assert decision_of(snapshot_of(session)) is None


def test_rules_of_the_conversation_do_not_count(session):
    profile(message_limit=8, max_context_tokens=0, keep_last_n=2)
    rules = [{"role": "system", "content": f"Rule {number}."} for number in range(4)]
    for row in store(session, rules):
        set_pinned(row, True)
    store(session, talk(3))
    assert decision_of(snapshot_of(session)) is None
    store(session, talk(1))
    assert decision_of(snapshot_of(session)).reason == "message_limit"


def test_what_is_held_back_is_still_summarised_after_a_refusal(session, model_server):
    held_back(session)
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
    assert say(session, "and now?").answer.content
    assert state(session).cursor > 0


def test_what_is_held_back_is_still_summarised_where_the_window_is_full(
    owner, use_models, model_server, queued
):
    use_models(model_server.models(CONTEXT_WINDOW=8000, MAX_OUTPUT=500))
    session = SessionFactory(owner=owner)
    held_back(session)
    profile(message_limit=0, max_context_tokens=3000, keep_last_n=6, window_trigger=True)
    say(session, "lorem " * (7600 - sum(tokens_of(session))))
    assert CompactionRun.objects.get(status="succeeded").reason == "window"


def test_the_state_says_what_a_rule_waits_for(session, api, admin_client):
    held_back(session)
    total = sum(tokens_of(session))
    first = sum(tokens_of(session)[:2])
    body = api.get(f"/api/v1/sessions/{session.pk}/compaction/").json()
    (rule,) = body["triggers"]
    assert (body["due"], rule["left"]) == (None, 0)
    assert rule["waits_for"] == (
        f"A compaction would summarise {first:,} of {total:,} tokens; it waits until that is at "
        f"least {-(-total // 4):,} (minimum_gain 0.25)."
    )
    page = admin_client.get(page_of(session)).content.decode()
    assert rule["waits_for"] in page
    assert ">reached<" not in page


@pytest.mark.parametrize("turns", [4, 400])
def test_the_cut_is_looked_for_in_the_newest_messages_alone(session, turns):
    """One statement more, and only at the limit: that nothing is pinned came with the branch."""
    profile(**NEVER, keep_last_n=2)
    store(session, talk(turns))
    counts = []
    for limit in (10**6, 1):
        profile(message_limit=0, max_context_tokens=limit, keep_last_n=2)
        snapshot = snapshot_of(session)
        assert snapshot.facts is not None
        with CaptureQueriesContext(connection) as captured:
            decision_of(snapshot)
        counts.append(len(captured))
    assert counts == [0, 1]
