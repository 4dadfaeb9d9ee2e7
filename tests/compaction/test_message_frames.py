"""What a server counts for a message besides its words is part of every size of a request."""

from __future__ import annotations

import pytest

from chatapp import transcript
from chatapp.checks import check_limits
from chatapp.context.backend import context_backend
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.models import LearnedLimits, Session
from compaction.branches.past_window import is_past_window
from compaction.branches.planning import decision_of
from compaction.branches.snapshot import snapshot_of
from compaction.engine.policy.cuts import cut_recent_tokens
from compaction.engine.profile import PRESETS
from compaction.engine.protocols import PlanFacts
from compaction.recovery.refusals import is_hopeless
from compaction.recovery.too_large import cause_of
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


@pytest.mark.parametrize("merged", ["by the rendering", "for the server"])
def test_what_goes_out_as_one_message_has_one_frame(
    owner, model_server, use_models, queued, merged
):
    """Prompt, rules and summary were counted as if they stood apart."""
    by_rendering = merged == "by the rendering"
    use_models(model_server.models(SINGLE_LEADING_SYSTEM=not by_rendering))
    profile(**NEVER, keep_last_n=4, rendering="merged_system" if by_rendering else "system")
    rules = [{"role": "system", "content": f"Rule {number}."} for number in range(3)]
    session = SessionFactory(owner=owner, system_prompt="Be brief.", wires=rules)
    for row in session.messages.all():
        transcript.set_pinned(row, True)
    store(session, talk(8))
    for compacted in (False, True):
        run = compact(session) if compacted else None
        sent = context_backend.preview(Session.objects.get(pk=session.pk))
        assert [one["role"] for one in sent.messages].count("system") == 1
        # The answer's beginning is framed, too.
        assert sent.account.frames == 4 * (len(sent.messages) + 1)
        assert snapshot_of(Session.objects.get(pk=session.pk)).request_tokens == sent.account.used
    assert run.tokens_after == sent.account.used


def test_a_history_of_frames_alone_is_past_the_window(owner, model_server, use_models, queued):
    use_models(model_server.models(CONTEXT_WINDOW=1000, MAX_OUTPUT=100))
    profile(**NEVER)
    # 5 tokens each, of 4,000 in four windows.
    session = SessionFactory(owner=owner, wires=greetings(801))
    assert is_past_window(snapshot_of(session))
    fewer = SessionFactory(owner=owner, wires=greetings(800))
    assert not is_past_window(snapshot_of(fewer))


def test_a_question_that_only_its_frames_make_too_large_is_named(owner, model_server, use_models):
    """Prompt and question have 995 tokens, and three frames 12: the window has 1,000."""
    use_models(model_server.models(CONTEXT_WINDOW=1000, MAX_OUTPUT=100))
    profile(**NEVER)
    session = SessionFactory(owner=owner, system_prompt="Be brief.")
    room = 995 - account(session).system
    count = snapshot_of(session).model.counter.count
    text = next(text for text in ("hi " * n for n in range(room, 3000)) if count(text) >= room)
    (question,) = store(session, [user(text)])
    assert question.tokens == room
    snapshot = snapshot_of(session)
    refused = context_backend.preview(Session.objects.get(pk=session.pk))
    overflow = ModelError(ErrorKind.CONTEXT_OVERFLOW, "too long", allowed=1000)
    assert is_hopeless(overflow, snapshot, refused)
    cause = cause_of(snapshot, refused, allowed=1000)
    assert cause is not None
    assert f"/messages/{question.pk}/" in cause.said
