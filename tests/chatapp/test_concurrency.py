"""Several writers at once, with real transactions: nothing is lost, doubled or waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import pytest
from django.db import connections, transaction

from chatapp import transcript
from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage, SessionDeletedError
from chatapp.transfer import import_file
from chatapp.turns.lease import TooManyTurnsError, TurnInProgressError, TurnLease
from chatapp.turns.service import Turn, run_turn
from tests.chatapp.test_transcript import PLACEHOLDER, check_all_sums
from tests.factories import SessionFactory, store, talk

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(owner, queued) -> Session:
    return SessionFactory(owner=owner)


def user(text: str) -> NewMessage:
    return NewMessage(wire={"role": "user", "content": text})


def side_by_side(*works: Callable[[], object]) -> list[object]:
    """Run all works at the same moment, each in its own thread; return results or exceptions."""
    outcomes: list[object] = [None] * len(works)
    start = threading.Barrier(len(works))

    def run(number: int, work: Callable[[], object]) -> None:
        start.wait()
        try:
            outcomes[number] = work()
        except Exception as error:
            outcomes[number] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=each) for each in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return outcomes


def fresh(session: Session) -> Session:
    return Session.objects.select_related("active_branch").get(pk=session.pk)


def test_two_writers_to_one_branch_never_get_the_same_position(session):
    def write(name: str) -> Callable[[], object]:
        def work() -> None:
            branch = fresh(session).branch
            for number in range(15):
                transcript.append(branch, [user(f"{name}{number}")] * 2)

        return work

    outcomes = side_by_side(*(write(name) for name in "abcd"))
    assert outcomes == [None] * 4
    assert Message.objects.count() == 4 * 15 * 2
    check_all_sums(session)


def test_writers_and_somebody_who_puts_rows_between_do_not_disturb_each_other(session):
    first = store(session, talk(1))[0]

    def append() -> None:
        branch = fresh(session).branch
        for number in range(15):
            transcript.append(branch, [user(str(number))])

    def insert() -> None:
        branch = fresh(session).branch
        for number in range(25):  # enough to have the session renumbered
            first.refresh_from_db()
            draft = PLACEHOLDER if number % 2 else user(f"between {number}")
            transcript.insert_between(branch, after=first.position, draft=draft)

    assert side_by_side(append, insert) == [None, None]
    check_all_sums(session)


def test_one_request_sent_twice_at_once_is_stored_once(session):
    def send() -> object:
        rows = transcript.append(fresh(session).branch, [user("a"), user("b")], client_key="k")
        return [row.pk for row in rows]

    outcomes = side_by_side(*[send] * 6)
    assert outcomes == [outcomes[0]] * 6
    assert Message.objects.count() == 2
    check_all_sums(session)


def test_an_answered_key_gives_its_answer_to_all_who_ask_at_once(session, model_server):
    edited = store(session, talk(1))[0]

    def send(key: str, **more: object) -> object:
        turn = Turn(session=fresh(session), drafts=[user(key)], client_key=key, **more)
        return run_turn(turn).answer.pk

    asked, instead = partial(send, "asked"), partial(send, "instead", edits=edited)
    answers = [asked(), instead()]
    session.refresh_from_db()
    # Neither each other nor a turn that is under way keeps them waiting.
    running = TurnLease(fresh(session))
    running.take()
    assert side_by_side(*[asked, instead] * 4) == answers * 4
    assert len(model_server.calls) == 2
    assert isinstance(*side_by_side(partial(send, "new")), TurnInProgressError)
    running.give_back()


def test_a_key_without_an_answer_waits_for_the_turn_that_has_it(session, model_server):
    transcript.append(session.branch, [user("asked")], client_key="asked")
    running = TurnLease(fresh(session))
    running.take()
    with pytest.raises(TurnInProgressError):
        run_turn(Turn(session=fresh(session), drafts=[user("asked")], client_key="asked"))
    running.give_back()
    assert model_server.calls == []


def test_two_who_lock_all_branches_never_wait_for_each_other(session):
    first = store(session, talk(1))[-1]
    branches = [session.branch, *(transcript.fork(session, at=first) for _ in range(9))]

    def append() -> None:
        for number in range(50):  # an UPDATE moves a row, so the table is in no order of ids
            transcript.append(branches[number * 7 % 10], [user(str(number))])

    def fork() -> None:
        for _ in range(40):
            transcript.fork(session, at=Message.objects.get(pk=first.pk))

    def lock() -> None:
        for _ in range(100):
            with transaction.atomic():
                transcript.lock_branches(session.pk)
                Message.objects.get(pk=first.pk)
                # A second time, when others may have forked, as storing a summary does.
                transcript.lock_branches(session.pk)

    assert side_by_side(append, fork, fork, lock, lock) == [None] * 5


def test_a_session_can_be_deleted_while_others_write_to_it(session):
    store(session, talk(3))

    def append() -> None:
        branch = fresh(session).branch
        while True:
            transcript.append(branch, [user("again")])

    def delete() -> None:
        time.sleep(0.2)
        transcript.delete_session(fresh(session))

    *appended, deleted = side_by_side(append, append, delete)
    assert deleted is None
    assert [type(outcome) for outcome in appended] == [SessionDeletedError] * 2
    assert not Message.objects.exists()


def test_a_turn_of_a_session_that_is_deleted_meanwhile_says_so(session, model_server):
    held = ExitStack()
    held.enter_context(model_server.holding("chat"))

    def answer() -> None:
        run_turn(Turn(session=fresh(session), drafts=[user("hello")]))

    def delete() -> None:
        with held:
            model_server.wait_for("chat")
            transcript.delete_session(fresh(session))

    answered, deleted = side_by_side(answer, delete)
    assert deleted is None
    assert isinstance(answered, SessionDeletedError)


def test_one_file_imported_twice_at_once_is_one_session(session, owner):
    content = b'{"messages": [{"role": "user", "content": "hi"}]}'
    outcomes = side_by_side(*[lambda: import_file(owner=owner, content=content)] * 4)
    assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert Session.objects.exclude(pk=session.pk).count() == 1
    assert Message.objects.count() == 1


def test_of_two_turns_at_once_one_is_refused(session, model_server):
    held, refused = ExitStack(), threading.Semaphore(0)
    held.enter_context(model_server.holding("chat"))

    def ask() -> None:
        try:
            run_turn(Turn(session=fresh(session), drafts=[user("hello")]))
        except TurnInProgressError:
            refused.release()
            raise

    def answer() -> None:
        with held:
            assert all(refused.acquire(timeout=30) for _ in range(2))

    *outcomes, answered = side_by_side(ask, ask, ask, answer)
    assert answered is None
    assert sum(isinstance(outcome, TurnInProgressError) for outcome in outcomes) == 2
    assert Message.objects.count() == 2


def test_appending_never_waits_for_a_model(session, model_server):
    held = ExitStack()
    held.enter_context(model_server.holding("chat"))

    def answer() -> None:
        run_turn(Turn(session=fresh(session), drafts=[user("hello")]))

    def append() -> None:
        with held:
            model_server.wait_for("chat")
            transcript.append(fresh(session).branch, [user("meanwhile")])

    assert side_by_side(answer, append) == [None, None]
    # The answer came behind it: nothing had waited for the model.
    texts = [row.content for row in Message.objects.order_by("position")]
    assert texts == ["hello", "meanwhile", "ok"]
    check_all_sums(session)


def test_an_owner_gets_exactly_as_many_turns_as_may_be_under_way(owner, settings):
    settings.CHATAPP = settings.CHATAPP | {"TURNS_PER_OWNER": 3}
    for _ in range(3):
        leases = [TurnLease(SessionFactory(owner=owner)) for _ in range(12)]
        outcomes = side_by_side(*(lease.take for lease in leases))
        refused = [isinstance(outcome, TooManyTurnsError) for outcome in outcomes]
        assert refused.count(False) == 3, outcomes
        for lease, was_refused in zip(leases, refused, strict=True):
            if not was_refused:
                lease.give_back()
