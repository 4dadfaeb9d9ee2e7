"""A real qcluster does queued runs; a killed worker loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.utils import timezone
from django_q.models import Schedule

from chatapp.imports import accept_file
from chatapp.models import ImportJob, ImportPiece, Message, Session
from compaction.models import CompactionRun, CompactionState, SessionSummary, WorkerHeartbeat
from compaction.runs.sweep import sweep_runs
from compaction.runs.worker import check_branch, execute_run
from tests.chatapp.test_many_conversations import lines
from tests.compaction.support import sent
from tests.factories import SessionFactory, UserFactory, profile, talk
from tests.facts import code
from tests.fakes.model_server import ECHO_AND_ANSWER, ModelServer
from tests.queue.processes import connected_to, descendants, members

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
ROOT = Path(__file__).resolve().parent.parent.parent
LEASE_SECONDS = 8
TIMES = {
    "COMPACTION_LEASE_SECONDS": LEASE_SECONDS,
    "COMPACTION_HEARTBEAT_SECONDS": 2,
    "MODEL_TIMEOUT_SECONDS": 6,
    "COMPACTION_RUN_SECONDS": 40,
    "QUEUE_TIMEOUT_SECONDS": 60,
    "QUEUE_WORKERS": 2,
}


def environment(server: ModelServer, name: str) -> dict[str, str]:
    """The cluster's environment: our database, the scripted server, short times, its own queue."""
    return os.environ | {key: str(value) for key, value in TIMES.items()} | {
        "DJANGO_SETTINGS_MODULE": "tests.queue.cluster_settings",
        "CLUSTER_DATABASE": str(connection.settings_dict["NAME"]),
        "SECRET_KEY": django_settings.SECRET_KEY,
        "OPENAI_BASE_URL": server.url,
        "OPENAI_API_KEY": "test",
        "QUEUE_NAME": name,
    }  # fmt: skip


@pytest.fixture
def server(use_models) -> Iterator[ModelServer]:
    with ModelServer() as one:
        use_models(one.models())
        yield one


@pytest.fixture
def cluster(transactional_db, server, monkeypatch, settings) -> Iterator[subprocess.Popen]:
    """A qcluster in a session of its own; the whole group is killed at the end."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    monkeypatch.setattr("django_q.conf.Conf.CLUSTER_NAME", name)
    monkeypatch.setattr("django_q.conf.Conf.PREFIX", name)
    # The test sweeps itself, so that it knows when.
    Schedule.objects.all().delete()
    settings.COMPACTION = settings.COMPACTION | {"LEASE_SECONDS": LEASE_SECONDS}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "qcluster"],
            cwd=ROOT, env=environment(server, name), stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            log.seek(0)
            sys.stdout.write(log.read().decode(errors="replace")[-4000:])


@pytest.fixture
def short_input(use_models, server):
    """A summariser that takes few tokens at once, so that a run needs many calls."""
    server.script = [
        {
            "when": {"purpose": "summary", "est_tokens_gt": 700},
            "reply": {
                "error": {
                    "status": 400,
                    "body": {"error": {"code": "context_length_exceeded", "message": "too long"}},
                }
            },
        },
        {"when": {"purpose": "summary"}, "reply": {"text": "a part", "delay_s": 1}},
        *ECHO_AND_ANSWER,
    ]


def wait_until(happened: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.2)


@pytest.fixture
def session(transactional_db):
    profile(message_limit=10, keep_last_n=2)
    return SessionFactory(owner=UserFactory(), wires=talk(6, marker=1))


def expires_in(*, seconds: float) -> None:
    """Move the end of the lease, so that the test does not depend on the machine's speed."""
    end = timezone.now() + timedelta(seconds=seconds)
    assert CompactionState.objects.filter(lease_owner__isnull=False).update(lease_expires_at=end)


def workers_of(master: int) -> list[int]:
    """The workers of a cluster: the first of the four processes that its sentinel starts."""
    for sentinel in descendants(master):
        started = sorted(descendants(sentinel))
        if len(started) >= TIMES["QUEUE_WORKERS"] + 2:
            return started[: TIMES["QUEUE_WORKERS"]]
    return []


def status(run: CompactionRun) -> str:
    return CompactionRun.objects.values_list("status", flat=True).get(pk=run.pk)


def test_a_cluster_does_a_queued_run(session, server, cluster):
    run = check_branch(session)
    wait_until(lambda: status(run) == "succeeded")
    summary = SessionSummary.objects.get()
    assert code(1) in summary.summary_text
    assert (summary.run, summary.message_count) == (run, 10)


def test_a_killed_workers_run_is_done_once_and_no_message_is_lost(session, server, cluster):
    server.script = [
        {"when": {"purpose": "summary", "call": 1}, "reply": {"text": "late", "delay_s": 60}},
        *ECHO_AND_ANSWER,
    ]
    run = check_branch(session)
    server.wait_for("summary", seconds=40)
    port = int(server.url.rsplit(":", 1)[1].split("/")[0])
    (worker,) = connected_to(descendants(cluster.pid), port)
    os.kill(worker, signal.SIGKILL)

    assert status(run) == "running"
    expires_in(seconds=60)
    assert sweep_runs().restarted_runs == 0
    expires_in(seconds=-1)
    CompactionRun.objects.filter(pk=run.pk).update(started_at=timezone.now() - timedelta(hours=1))
    assert sweep_runs().restarted_runs == 1
    assert sweep_runs().restarted_runs == 0
    wait_until(lambda: CompactionRun.objects.filter(status="succeeded").exists())

    run.refresh_from_db()
    assert (run.status, run.error_code) == ("failed", "interrupted")
    assert CompactionRun.objects.count() == 2
    summary = SessionSummary.objects.get()
    assert "late" not in summary.summary_text
    # The worker gives the lease back after the run's end is stored.
    wait_until(lambda: CompactionState.objects.get().lease_owner is None, seconds=10)
    request = str(sent(session))
    assert all(code(n) in request for n in range(1, 7))
    linked = Message.objects.filter(summary_links__summary=summary)
    assert linked.count() == 10


def test_a_cluster_that_is_asked_to_stop_leaves_its_run_to_the_next_one(
    transactional_db, server, short_input, cluster
):
    profile(message_limit=10, keep_last_n=2)
    session = SessionFactory(owner=UserFactory(), wires=talk(16, marker=1))
    run = check_branch(session)
    wait_until(lambda: len(server.of("summary")) >= 2)
    cluster.send_signal(signal.SIGTERM)
    # Not at the end of the run's many calls: after the one that is under way.
    cluster.wait(timeout=30)
    run.refresh_from_db()
    assert (run.status, run.error_code) == ("failed", "stopped")
    assert not SessionSummary.objects.exists()
    assert CompactionState.objects.get().lease_owner is None
    successor = CompactionRun.objects.exclude(pk=run.pk).get()
    assert (successor.status, successor.restarts) == ("queued", 0)
    server.script = ECHO_AND_ANSWER
    assert execute_run(successor.pk).status == "succeeded"


def test_workers_that_are_asked_to_stop_themselves_finish_their_call_and_end(
    transactional_db, server, short_input, cluster
):
    """Some supervisors send SIGTERM to every process of a cluster."""
    profile(message_limit=10, keep_last_n=2)
    session = SessionFactory(owner=UserFactory(), wires=talk(16, marker=1))
    run = check_branch(session)
    wait_until(lambda: len(server.of("summary")) >= 2)
    os.killpg(cluster.pid, signal.SIGTERM)
    wait_until(lambda: status(run) == "failed", 30)
    run.refresh_from_db()
    assert run.error_code == "stopped"
    # The library's master may hang then: its supervisor has to end it (docs/operations.md says
    # how).
    wait_until(lambda: set(members(cluster.pid)) <= {cluster.pid}, 30)


def test_a_killed_idle_worker_takes_no_lock_with_it(session, server, cluster):
    """The others would never get a task again."""
    wait_until(lambda: len(workers_of(cluster.pid)) >= 2)
    time.sleep(1)
    for worker in workers_of(cluster.pid)[:1]:
        os.kill(worker, signal.SIGKILL)
    run = check_branch(session)
    wait_until(lambda: status(run) == "succeeded")


def test_a_running_cluster_gives_signs_of_life(session, cluster):
    assert check_branch(session) is not None
    wait_until(lambda: WorkerHeartbeat.objects.filter(kind="queue").exists())


def test_a_killed_workers_import_is_finished_by_another_one_and_nothing_is_stored_twice(
    transactional_db, server, cluster
):
    wait_until(lambda: bool(workers_of(cluster.pid)))
    job = accept_file(owner=UserFactory(), content=lines(3_000)).job
    row = ImportJob.objects.filter(pk=job.pk)
    wait_until(lambda: row.filter(conversations_done__gt=0).exists())
    for worker in workers_of(cluster.pid):
        os.kill(worker, signal.SIGKILL)
    job.refresh_from_db()
    assert job.status == "working"
    assert job.conversations_done < 3_000

    assert sweep_runs().requeued_imports == 0
    row.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert sweep_runs().requeued_imports == 1
    wait_until(lambda: row.filter(status="done").exists())
    job.refresh_from_db()
    assert (job.sessions_made, job.messages_added) == (3_000, 6_000)
    assert (Session.objects.count(), Message.objects.count()) == (3_000, 6_000)
    assert not ImportPiece.objects.exists()
