"""A process that is killed between any two statements loses nothing, and its work is done."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from itertools import count
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.utils import timezone

from chatapp.models import Message, Session
from compaction.branches.leases import Lease, ensure_state
from compaction.branches.snapshot import snapshot_of
from compaction.doctor.examine import examine
from compaction.limits.budget import Overspent
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.runs import lifecycle, queue
from compaction.runs.resummarize import resummarize
from compaction.runs.scheduling import check_branch
from compaction.runs.sweep import sweep_runs
from compaction.runs.worker import execute_run
from compaction.summaries import summarizer
from compaction.summaries.restore import restore_summary
from tests.compaction.support import compact, say, state
from tests.compaction.test_window import window
from tests.factories import SessionFactory, profile, talk, user
from tests.facts import code

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

LONG_AGO = timedelta(hours=2)
# Long enough that a summary of four messages is smaller than they are, its frame included.
WORDS = "words enough to be summarised by somebody, " * 12


class Killed(BaseException):
    """What happens to a process that is killed: nothing else, and no clean-up."""


class Death:
    """Lets a process execute so many statements, and not one more, whoever asks."""

    def __init__(self, statements: int) -> None:
        self._left = statements
        self.has_come = False

    def __call__(self, execute, *call):
        if self._left == 0:
            self.has_come = True
            raise Killed
        self._left -= 1
        return execute(*call)


def dies(statements: int, work) -> bool:
    """Do the work in a process that dies; return whether it did before the work was done."""
    death = Death(statements)
    try:
        with connection.execute_wrapper(death):
            work()
    except Killed:
        connection.close()
    return death.has_come


def others_go_on(session: Session, delivered: list[tuple], *, speak: bool) -> None:
    """Let time pass, and do what other processes do: sweep and work off the queue, twice or thrice.

    Only what was put into the queue is done. Where nothing had begun yet, somebody must `speak`.
    Who met the last traces of the dead one, a lock that its server has not let go, waits its time.
    """
    delivered.clear()
    let_time_pass()
    if speak:
        check_branch(Session.objects.get(pk=session.pk))
    for sweeps in (1, 2, 3):
        sweep_runs()
        while delivered:
            execute_run(UUID(delivered.pop(0)[1]))
        if sweeps > 1 and not CompactionRun.objects.filter(status="queued").exists():
            return
        let_time_pass()
    raise AssertionError("A run is still in the queue.")


def let_time_pass() -> None:
    """Have leases expire, and waits and back-offs end."""
    past = timezone.now() - LONG_AGO
    waiting = CompactionRun.objects.filter(status="queued", waits_until__isnull=False)
    waiting.update(waits_until=past)
    CompactionState.objects.filter(lease_owner__isnull=False).update(lease_expires_at=past)
    CompactionState.objects.filter(backoff_until__isnull=False).update(backoff_until=past)
    CompactionState.objects.filter(next_check_at__isnull=False).update(next_check_at=past)
    Session.objects.filter(turn_owner__isnull=False).update(turn_expires_at=past)
    CompactionRun.objects.filter(status="queued").update(created_at=past)
    CompactionRun.objects.filter(status="running").update(started_at=past)


def marks(session: Session) -> list[str]:
    """The first word of every message that was said, in order."""
    rows = Message.objects.filter(branch=session.branch, kind="message").order_by("position")
    return [text.split()[0] for text in rows.values_list("content", flat=True)]


def holds(session: Session) -> None:
    """What must hold whoever died: the rules of docs/architecture.md, as the doctor knows them."""
    # The next turn takes an expired lease over; until then nobody waits for it.
    assert {finding.code for finding in examine(session.pk)} <= {"turn_lease_expired"}
    assert not CompactionRun.objects.filter(status="running").exists()
    assert not CompactionState.objects.filter(lease_owner__isnull=False).exists()


@pytest.fixture
def began(request, owner, model_server, queued):
    """began(12) is a new session with so many messages; from the eleventh on a run is due."""
    window(
        context_size=16,
        tail_keep_size=6,
        compression_window_size=4,
        compression_hard_limit=8,
        compression_cooldown_sec=0,
        restore_hold=request.param if hasattr(request, "param") else "until_lifted",
    )

    def begin(messages: int) -> Session:
        wires = [user(f"{code(n)} {WORDS}") for n in range(messages)]
        return SessionFactory(owner=owner, wires=wires)

    return begin


def every_death(delivered, session_with, prepare, work, *, every=1):
    """Yield a session, and what was prepared, for every statement before which the work can die.

    Others went on by then. The last one is of work that was done. To save time, only one of `every`
    statements may be looked at.
    """
    for statements in count(0, every):
        session = session_with()
        given = prepare(session)
        said, runs_before = marks(session), CompactionRun.objects.count()
        died = dies(statements, partial(work, session, given))
        has_begun = given is not None or CompactionRun.objects.count() > runs_before
        others_go_on(session, delivered, speak=not has_begun)
        holds(session)
        assert marks(session)[: len(said)] == said
        yield session, given
        Session.objects.all().delete()
        if not died:
            # What goes to PostgreSQL in one message lives or dies together.
            assert statements > (5 if connection.vendor == "postgresql" else 10)
            return


def nothing(session: Session) -> None:
    """Prepare nothing."""


def summarised(session: Session) -> SessionSummary:
    """Compact six messages of twelve."""
    compact(session)
    return SessionSummary.objects.get()


def once(session: Session) -> None:
    """The first six of twelve messages are summarised, once."""
    active = SessionSummary.objects.get(status="active")
    assert (active.message_count, state(session).covered_messages) == (6, 6)


def test_a_workers_run(began, queued):
    def work(session, _):
        execute_run(check_branch(session).pk)

    for session, _ in every_death(queued, lambda: began(12), nothing, work, every=2):
        once(session)


def test_a_run_that_fails(began, queued, model_server):
    """Somebody looks again when its time has come, and then it goes well."""
    good = model_server.script

    def work(session, _):
        model_server.script = [{"when": {"purpose": "summary"}, "reply": {"text": ""}}]
        try:
            execute_run(check_branch(session).pk)
        finally:
            model_server.script = good

    for session, _ in every_death(queued, lambda: began(12), nothing, work, every=3):
        once(session)


def test_a_run_past_the_budget(began, queued, monkeypatch):
    over = Overspent(sentence="Too much.", frees_at=timezone.now() + LONG_AGO)

    def work(session, _):
        with monkeypatch.context() as patch:
            patch.setattr(summarizer, "overspent", lambda session: over)
            execute_run(check_branch(session).pk)

    for session, _ in every_death(queued, lambda: began(12), nothing, work, every=3):
        once(session)


def test_the_first_batch_of_a_backlog(began, queued):
    window(compression_cooldown_sec=0)

    def work(session, _):
        execute_run(check_branch(session).pk)

    for session, _ in every_death(queued, lambda: began(150), nothing, work, every=7):
        assert state(session).covered_messages == 110


def test_a_run_that_ends_because_its_worker_is_to_stop(began, queued, monkeypatch):
    def work(session, _):
        with monkeypatch.context() as patch:
            patch.setattr(queue, "is_stopping", lambda: True)
            execute_run(check_branch(session).pk)

    for session, _ in every_death(queued, lambda: began(12), nothing, work, every=5):
        once(session)


def test_taking_over_the_branch_of_a_worker_that_died_in_a_run_by_hand(began, queued):
    def prepare(session):
        run = lifecycle.request_run(lifecycle.RunRequest(
            session=session, branch=session.branch, trigger="manual", reason="manual",
            profile=snapshot_of(session).profile_row, background=True,
        ))  # fmt: skip
        worker = uuid4()
        lifecycle.claim(run.pk, worker)
        Lease.acquire_or_steal(ensure_state(session.branch).pk, worker)
        past = timezone.now() - LONG_AGO
        CompactionState.objects.update(lease_expires_at=past)
        CompactionRun.objects.update(started_at=past)
        return run

    def work(session, _):
        execute_run(check_branch(session).pk)

    for session, dead in every_death(queued, lambda: began(12), prepare, work, every=5):
        once(session)
        dead.refresh_from_db()
        assert (dead.status, dead.error_code) == ("failed", "interrupted")
        following = CompactionRun.objects.filter(trigger="manual").exclude(pk=dead.pk)
        assert following.get().status in ("succeeded", "skipped")


@pytest.mark.parametrize("began", ["0"], indirect=True, ids=["nothing is held"])
def test_taking_a_summary_back(began, queued):
    def work(_, summary):
        restore_summary(summary)

    for session, summary in every_death(queued, lambda: began(12), summarised, work, every=3):
        summary.refresh_from_db()
        # Once it is taken back, the messages are summarised anew.
        assert summary.status in ("active", "restored")
        once(session)


def test_summarising_again(began, queued):
    def work(_, summary):
        resummarize(summary)

    for session, summary in every_death(queued, lambda: began(12), summarised, work, every=3):
        summary.refresh_from_db()
        assert summary.status in ("active", "superseded")
        once(session)


def test_publishing_a_draft(owner, model_server, use_models, queued):
    use_models(model_server.models(CONTEXT_WINDOW=2400, MAX_OUTPUT=200))
    rules = {"prepare_ratio": 0.7, "publish_when_needed": True, "message_limit": 41}
    profile(max_context_tokens=0, keep_last_n=4, **rules)

    def session_with():
        return SessionFactory(owner=owner, wires=talk(20, marker=1))

    def prepare(session):
        execute_run(check_branch(session).pk)
        return SessionSummary.objects.get(status="draft")

    def work(session, _):
        say(session, f"{code(998)} and now?")

    for session, draft in every_death(queued, session_with, prepare, work, every=5):
        say(session, f"{code(999)} and now?")
        draft.refresh_from_db()
        assert draft.status == "active"
        assert state(session).covered_messages == draft.message_count


def test_a_turn_that_has_to_compact_first(began, queued, model_server):
    def work(session, _):
        say(session, f"{code(998)} and now?")

    for session, _ in every_death(queued, lambda: began(16), nothing, work, every=5):
        assert marks(session)[16:] in ([], [code(998)], [code(998), "ok"])
        say(session, f"{code(999)} and now?")
        told = model_server.of("chat")[-1].text
        read = Message.objects.filter(summary_links__summary__status="active")
        known = [*read.values_list("content", flat=True), told]
        assert all(any(code(n) in text for text in known) for n in range(16))
