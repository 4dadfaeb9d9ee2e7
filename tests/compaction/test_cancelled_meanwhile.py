"""A run that is cancelled while its worker writes: neither waits for the other for ever."""

from __future__ import annotations

import threading
import time

import pytest
from django.db import connection, connections

from compaction.engine.types import Step
from compaction.errors import CompactionError
from compaction.models import CompactionRun, SessionSummary
from compaction.runs.lifecycle import cancel_run
from compaction.runs.scheduling import check_branch
from compaction.runs.steps import StepWriter
from compaction.runs.worker import execute_run
from compaction.summaries import storing
from tests.factories import SessionFactory, profile, talk

pytestmark = pytest.mark.django_db(transaction=True)
# So long the one has to come to where it waits for the other.
MEET_SECONDS = 0.3


@pytest.fixture
def run(owner, model_server, queued) -> CompactionRun:
    profile(message_limit=10, keep_last_n=2)
    return check_branch(SessionFactory(owner=owner, wires=talk(6, marker=1)))


class Meeting:
    """Where a worker stands still, and goes on when the other one has come."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.go_on.wait(20)


def work_and_cancel(run: CompactionRun, meeting: Meeting) -> list[str]:
    """Do the run, cancel it meanwhile; return the names of what went wrong."""
    wrong = []

    def quietly(work) -> None:
        try:
            work()
        except CompactionError:
            pass  # It had ended already.
        except Exception as error:
            wrong.append(f"{type(error).__name__}: {error}")
        finally:
            connections.close_all()

    worker = threading.Thread(target=quietly, args=(lambda: execute_run(run.pk),))
    worker.start()
    assert meeting.reached.wait(20)
    row = CompactionRun.objects.get(pk=run.pk)
    other = threading.Thread(target=quietly, args=(lambda: cancel_run(row),))
    other.start()
    time.sleep(MEET_SECONDS)
    meeting.go_on.set()
    worker.join(30)
    other.join(30)
    return wrong


def holds(run: CompactionRun, wrong: list[str]) -> None:
    run.refresh_from_db()
    assert (wrong, run.error_code) in (([], ""), ([], "cancelled"))
    assert SessionSummary.objects.count() == (run.status == "succeeded")


def test_while_the_summary_is_stored(run, monkeypatch):
    meeting, real = Meeting(), storing.write_summary

    def slowly(*given, **named):
        meeting.wait()
        return real(*given, **named)

    monkeypatch.setattr(storing, "write_summary", slowly)
    holds(run, work_and_cancel(run, meeting))


def test_while_a_step_is_stored(run, monkeypatch):
    meeting, real = Meeting(), StepWriter._store

    def slowly(writer: StepWriter, step: Step) -> None:
        # The run's row is held, with what the call cost.
        assert connection.in_atomic_block
        meeting.wait()
        real(writer, step)

    monkeypatch.setattr(StepWriter, "_store", slowly)
    holds(run, work_and_cancel(run, meeting))
