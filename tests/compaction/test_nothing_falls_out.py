"""No rule and no profile lets a request leave out messages that no summary has read."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from compaction.models import CompactionRun, CompactionState
from compaction.services.checking import check_branch
from tests.compaction.clock import Conversation
from tests.compaction.support import say
from tests.compaction.test_window import window
from tests.compaction.test_window_in_trouble import fill, unknown
from tests.factories import SessionFactory, store, user

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
