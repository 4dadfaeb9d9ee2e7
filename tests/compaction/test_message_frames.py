"""What a server counts for a message besides its words is part of every size of a request."""

from __future__ import annotations

import pytest

from chatapp import transcript
from chatapp.checks import check_limits
from chatapp.context.backend import context_backend
from chatapp.models import LearnedLimits, Session
from compaction.branches.planning import decision_of
from compaction.branches.snapshot import snapshot_of
from compaction.engine.policy.cuts import cut_recent_tokens
from compaction.engine.profile import PRESETS
from compaction.engine.protocols import PlanFacts
from tests.compaction.support import NEVER, compact, say
from tests.engine.extractive_support import item
from tests.factories import SessionFactory, profile, store, talk, user

pytestmark = pytest.mark.django_db


def account(session: Session):
    return context_backend.preview(Session.objects.get(pk=session.pk)).account


def greetings(count: int) -> list[dict]:
    return [{"role": ("user", "assistant")[n % 2], "content": "hi"} for n in range(count)]


def test_twenty_greetings_are_more_than_twenty_tokens(owner, model_server):
    profile(**NEVER, keep_last_n=4)
    session = SessionFactory(owner=owner, system_prompt="", wires=greetings(20))
    found = account(session)
    # 4 for each of them, and for the beginning of the answer.
    assert (found.kept + found.pending, found.frames, found.used) == (20, 84, 104)
    snapshot = snapshot_of(session)
    assert snapshot.facts.tokens == 20
    assert snapshot.request_tokens == 104
    assert Session.objects.get(pk=session.pk).request_tokens == 104


def test_stored_sums_give_what_the_request_has(owner, model_server, queued):
    """Also with a prompt, a summary, pins on both sides of the cursor and a question behind it."""
    profile(**NEVER, keep_last_n=4)
    session = SessionFactory(owner=owner, system_prompt="Be brief.", wires=talk(8))
    rows = list(session.messages.order_by("position"))
    transcript.set_pinned(rows[2], True)
    transcript.set_pinned(rows[-1], True)
    run = compact(session)
    store(session, [user("And now?")])
    found = account(session)
    # Prompt, summary, the pin before the cursor, four kept messages, the question, the answer.
    assert found.frames == 9 * 4
    assert snapshot_of(Session.objects.get(pk=session.pk)).request_tokens == found.used
    assert run.tokens_after == found.used - found.pending - 4


def test_a_window_that_frames_alone_fill_is_full(owner, model_server, use_models):
    use_models(model_server.models(CONTEXT_WINDOW=1000, MAX_OUTPUT=100))
    profile(**NEVER | {"window_trigger": True}, keep_last_n=4)
    # 180 words and 181 frames are 904 tokens; 900 may be used.
    session = SessionFactory(owner=owner, system_prompt="", wires=greetings(180))
    assert decision_of(snapshot_of(session), by_limits_alone=True).reason == "window"
    fewer = SessionFactory(owner=owner, system_prompt="", wires=greetings(179))
    assert decision_of(snapshot_of(fewer), by_limits_alone=True) is None


def test_a_models_entry_says_what_its_server_counts(owner, model_server, use_models):
    profile(**NEVER)
    use_models(model_server.models(MESSAGE_FRAME_TOKENS=0))
    session = SessionFactory(owner=owner, system_prompt="", wires=greetings(20))
    assert account(session).used == 20
    use_models(model_server.models(MESSAGE_FRAME_TOKENS=7))
    assert account(session).used == 20 + 7 * 21


@pytest.mark.parametrize("wrong", [-1, "4", None])
def test_an_entry_without_a_number_is_refused(model_server, use_models, wrong):
    use_models(model_server.models(MESSAGE_FRAME_TOKENS=wrong))
    found = [one for one in check_limits() if "MESSAGE_FRAME_TOKENS" in one.msg]
    assert [one.id for one in found] == ["chatapp.E008"]


def test_what_a_report_teaches_is_measured_with_the_frames(owner, model_server):
    """A server that counts words and frames as we do teaches nothing: they count once."""
    profile(**NEVER)
    session = SessionFactory(owner=owner, system_prompt="", wires=greetings(1000))
    # 1,000 greetings, a question of one word, 1,002 frames.
    usage = {"prompt_tokens": 1001 + 4008, "completion_tokens": 1}
    model_server.script = [{"when": {}, "reply": {"text": "ok", "usage": usage}}]
    say(session, "hi")
    assert not LearnedLimits.objects.exclude(tokens_per_count=None).exists()


def test_a_tail_leaves_room_for_its_frames():
    items = [
        item("hi", role=("user", "assistant")[n % 2], position=n + 1, tokens=1) for n in range(100)
    ]
    facts = PlanFacts(room=lambda: 50, window=1000, frame_tokens=4)
    plan = cut_recent_tokens(items, PRESETS["balanced"], facts)
    # Ten of 5 tokens; without frames 50 would be kept.
    assert len(plan.keep) == 10
