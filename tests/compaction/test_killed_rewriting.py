"""A process that dies while it rewrites or takes back memories leaves all lines of one state."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from itertools import count

import pytest
from django.utils import timezone

from compaction.memories.execution import execute_memory_run
from compaction.memories.runs import request_compression
from compaction.memories.versions import undo_rewriting
from compaction.models import Memory, MemoryRun, MemoryVersion
from compaction.runs.sweep import sweep_runs
from tests.compaction.support import NEVER
from tests.compaction.test_killed_anywhere import dies
from tests.compaction.test_memories import answers, lines, remember, told
from tests.factories import UserFactory, profile

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
NEW = ["The user keeps much in mind."]
LONG_AGO = timedelta(hours=2)


@pytest.fixture
def old(model_server) -> list[str]:
    profile(**NEVER, memories_max_lines=5, compression_target=2, num_recent_memories_to_keep=2)
    answers(model_server, "\n".join(NEW))
    return told(8)


def others_go_on(delivered: list[tuple]) -> None:
    """Let time pass, sweep, and work the queue off."""
    past = timezone.now() - LONG_AGO
    MemoryRun.objects.filter(status="running").update(lease_expires_at=past)
    MemoryRun.objects.filter(status="queued").update(queued_at=past)
    delivered.clear()
    sweep_runs()
    for task, *arguments in list(delivered):
        if task == "compaction.tasks.work_at_memories":
            execute_memory_run(arguments[0])


def test_wherever_a_rewriting_dies_another_worker_does_it(old, queued):
    for statements in count(0):
        owner = UserFactory()
        remember(owner, old)
        run = request_compression(owner=owner, is_waited_for=True)
        died = dies(statements, partial(execute_memory_run, run.pk))
        versions = MemoryVersion.objects.filter(owner=owner).count()
        assert lines(owner) == ([*NEW, *old[6:]] if versions else old)
        others_go_on(queued)
        run.refresh_from_db()
        assert (run.status, lines(owner)) == ("succeeded", [*NEW, *old[6:]]), run.error
        assert MemoryVersion.objects.filter(owner=owner).count() == 1
        if not died:
            assert statements > 10
            return


def test_wherever_taking_back_dies_the_lines_are_those_of_one_state(old):
    for statements in count(0):
        owner = UserFactory()
        remember(owner, old)
        before = list(Memory.objects.filter(owner=owner).order_by("position").values())
        execute_memory_run(request_compression(owner=owner, is_waited_for=True).pk)
        version = MemoryVersion.objects.get(owner=owner)
        died = dies(statements, partial(undo_rewriting, version))
        version.refresh_from_db()
        if version.undone_at is None:
            assert lines(owner) == [*NEW, *old[6:]]
            undo_rewriting(version)
        assert list(Memory.objects.filter(owner=owner).order_by("position").values()) == before
        if not died:
            return
