"""No rule and no profile lets a request leave out messages that no summary has read."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from chatapp.models import Message
from chatapp.transcript import set_pinned
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.runs.scheduling import check_branch
from tests.compaction.clock import Conversation
from tests.compaction.support import say
from tests.compaction.test_window import failing, window
from tests.compaction.test_window_in_trouble import fill, unknown
from tests.factories import SessionFactory, store, user
from tests.facts import code

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(owner, queued):
    return SessionFactory(owner=owner)


def backs_off(session) -> None:
    check_branch(session)
    CompactionRun.objects.all().delete()
    later = timezone.now() + timedelta(hours=1)
    CompactionState.objects.update(backoff_until=later, failures=1)


@pytest.mark.parametrize("after_failures", [False, True])
def test_a_nearly_full_window_does_not_hide_the_hard_limit(
    session, model_server, use_models, after_failures
):
    use_models(model_server.models(CONTEXT_WINDOW=2000, MAX_OUTPUT=200))
    window(window_trigger=True)
    fill(session, 0, 240)
    if after_failures:
        backs_off(session)
    say(session, "and now?")
    assert unknown(model_server, 240) == []


def test_a_limit_of_tokens_does_not_hide_the_hard_limit(session, model_server):
    window(max_context_tokens=600)
    fill(session, 0, 90)
    backs_off(session)
    say(session, "and now?")
    assert unknown(model_server, 90) == []


def test_where_compaction_is_switched_off_everything_is_sent(session, model_server):
    window(enabled=False)
    fill(session, 0, 120)
    say(session, "and now?")
    assert unknown(model_server, 120) == []
    assert not CompactionRun.objects.exists()


def test_rules_do_not_make_the_waiting_messages_older(monkeypatch, owner, model_server, queued):
    window()
    conversation = Conversation(monkeypatch, owner=owner)
    rules = [{"role": "system", "content": f"Rule {n}."} for n in range(10)]
    store(conversation.session, rules)
    conversation.go_on(60, every=60)
    assert conversation.fired == [(52, "message_window")]


def test_what_no_run_is_worth_is_not_told_as_due(session, api, model_server, use_models):
    """The tail alone passes the part of the window that is summarised ahead of need."""
    use_models(model_server.models(CONTEXT_WINDOW=1000, MAX_OUTPUT=200))
    window(prepare_ratio=0.7)
    store(session, [user("long words of some kind " * 10) for _ in range(40)])
    assert check_branch(session) is None
    body = api.get(f"/api/v1/sessions/{session.pk}/compaction/").json()
    assert body["due"] is None


@pytest.mark.parametrize("pinned", [[1, 9, 17, 25, 33], range(0, 40, 3), range(0, 40, 2)])
def test_pinned_messages_are_in_no_archives_way(session, model_server, pinned):
    window()
    fill(session, 0, 80)
    rows = list(Message.objects.filter(branch=session.branch).order_by("position"))
    for number in pinned:
        set_pinned(rows[number], True)
    failing(model_server)
    for turn in range(6):
        say(session, f"turn {turn}")
        request = model_server.of("chat")[-1].text
        assert [n for n in pinned if code(n) not in request] == []
    assert unknown(model_server, 80) == []
    assert SessionSummary.objects.filter(is_digest=True).exists()


def test_where_every_message_is_pinned_every_one_is_sent(session, model_server):
    window()
    fill(session, 0, 80)
    Message.objects.update(pinned=True)
    say(session, "and now?")
    request = model_server.of("chat")[-1].text
    assert [n for n in range(80) if code(n) not in request] == []


def test_batches_of_one_message_do_not_stop_archives(session, model_server):
    window(batch_messages=1)
    fill(session, 0, 80)
    failing(model_server)
    for turn in range(6):
        say(session, f"turn {turn}")
    assert unknown(model_server, 80) == []


@pytest.mark.parametrize("name", ["smaller_after_failures", "digest_after_failures"])
def test_a_patient_profile_does_not_make_one_turn_ask_a_hundred_times(session, model_server, name):
    window(**{name: 100})
    fill(session, 0, 90)
    failing(model_server)
    say(session, "and now?")
    assert CompactionRun.objects.filter(status="failed").count() <= 16
