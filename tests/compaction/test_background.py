"""Triggers after a stored message: queued, once, and only where there is something to do."""

from __future__ import annotations

import pytest

from compaction.models import CompactionRun, SessionSummary
from compaction.runs.worker import check_branch, execute_run
from tests.compaction.support import compact
from tests.factories import SessionFactory, profile, talk

pytestmark = pytest.mark.django_db


def test_a_stored_message_queues_a_run_when_a_trigger_is_due(
    owner, model_server, queued, django_capture_on_commit_callbacks
):
    profile(message_limit=10, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6))
    with django_capture_on_commit_callbacks(execute=True):
        run = check_branch(session)
    assert (run.status, run.mode, run.reason) == ("queued", "background", "message_limit")
    assert queued == [("compaction.tasks.run_compaction", str(run.pk))]


def test_below_the_limits_nothing_is_queued(owner, model_server, queued):
    profile(message_limit=40)
    assert check_branch(SessionFactory(owner=owner, wires=talk(6))) is None
    assert not CompactionRun.objects.exists()


def test_a_second_trigger_finds_the_run_that_waits(owner, model_server, queued):
    profile(message_limit=10, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6))
    assert check_branch(session) == check_branch(session)
    assert CompactionRun.objects.count() == 1


def test_where_all_is_kept_nothing_is_queued(owner, model_server, queued):
    # Six messages of more than the token limit, and six are kept.
    profile(message_limit=0, max_context_tokens=100, keep_last_n=6)
    assert check_branch(SessionFactory(owner=owner, wires=talk(3))) is None
    assert not CompactionRun.objects.exists()


def test_a_queued_run_that_is_not_due_any_more_is_skipped(owner, model_server, queued):
    profile(message_limit=10, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6))
    waiting = check_branch(session)
    compact(session)
    run = execute_run(waiting.pk)
    assert (run.status, run.error_code) == ("skipped", "not_due")
    assert SessionSummary.objects.count() == 1


def test_a_run_delivered_twice_is_done_once(owner, model_server, queued):
    profile(message_limit=10, keep_last_n=2)
    waiting = check_branch(SessionFactory(owner=owner, wires=talk(6)))
    assert execute_run(waiting.pk).status == "succeeded"
    assert execute_run(waiting.pk).status == "succeeded"
    assert len(model_server.summarising()) == 1
