"""A worker that is killed in a rewriting of memories, or in taking one back, loses none."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from itertools import count

import pytest
from django.utils import timezone

from compaction.memories.execution import execute_memory_run
from compaction.memories.runs import request_compression
from compaction.memories.versions import undo_rewriting
from compaction.models import MemoryRun, MemoryVersion
from compaction.runs.sweep import sweep_runs
from compaction.tasks import work_at_memories
from tests.compaction.support import NEVER
from tests.compaction.test_killed_anywhere import dies
from tests.compaction.test_memories import FEWER, answers, lines, remember, stored, told
from tests.factories import UserFactory, profile

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
LONG_AGO = timedelta(hours=2)


@pytest.fixture(autouse=True)
def summariser(model_server, settings):
    settings.COMPACTION = settings.COMPACTION | {"OWNER_CALLS_PER_HOUR": 0}
    profile(**NEVER)
    answers(model_server, "\n".join(FEWER))


def others_go_on(queued: list[tuple]) -> None:
    """Let time pass, sweep, and do what is delivered."""
    past = timezone.now() - LONG_AGO
    MemoryRun.objects.filter(status="running").update(lease_expires_at=past)
    MemoryRun.objects.filter(status="queued").update(queued_at=past)
    queued.clear()
    sweep_runs()
    for name, *arguments in list(queued):
        if name == "compaction.tasks.work_at_memories":
            work_at_memories(*arguments)


def test_a_rewriting_that_dies_anywhere_is_done_once_by_others(queued):
    old = told(101)
    new = [*FEWER, *old[91:]]
    for statements in count():
        owner = UserFactory()
        remember(owner, old)
        run = request_compression(owner=owner, requested_by=owner, is_waited_for=True)
        has_died = dies(statements, partial(execute_memory_run, run.pk))
        assert lines(owner) in (old, new), f"after {statements} statements"
        others_go_on(queued)
        run.refresh_from_db()
        assert (run.status, lines(owner)) == ("succeeded", new), f"after {statements} statements"
        assert MemoryVersion.objects.filter(owner=owner).count() == 1
        if not has_died:
            break
    assert statements > 10


def test_taking_back_that_dies_anywhere_is_whole_or_not_at_all(queued):
    owner = UserFactory()
    remember(owner, told(101))
    before = stored(owner)
    for statements in count():
        run = request_compression(owner=owner, requested_by=owner, is_waited_for=True)
        assert execute_memory_run(run.pk) == "succeeded"
        after, version = stored(owner), MemoryVersion.objects.get(undone_at__isnull=True)
        if not dies(statements, partial(undo_rewriting, version)):
            break
        version.refresh_from_db()
        assert stored(owner) == (after if version.undone_at is None else before)
        if version.undone_at is None:
            undo_rewriting(version)
        assert stored(owner) == before
    assert stored(owner) == before and statements > 5
