"""Several writers at once, with real transactions: nothing is lost, doubled or waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from django.db import connections

from chatapp import transcript
from chatapp.importing import import_file
from chatapp.models import Message, Session
from chatapp.transcript import Draft
from chatapp.turns import Turn, TurnInProgressError, run_turn
from tests.chatapp.test_transcript import PLACEHOLDER, check_all_sums
from tests.factories import SessionFactory, store, talk

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(owner, queued) -> Session:
    return SessionFactory(owner=owner)


def user(text: str) -> Draft:
    return Draft(wire={"role": "user", "content": text})


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


def test_one_file_imported_twice_at_once_is_one_session(session, owner):
    content = b'{"messages": [{"role": "user", "content": "hi"}]}'
    outcomes = side_by_side(*[lambda: import_file(owner=owner, content=content)] * 4)
    assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert Session.objects.exclude(pk=session.pk).count() == 1
    assert Message.objects.count() == 1


def test_of_two_turns_at_once_one_is_refused(session, model_server):
    model_server.script = [{"when": {}, "reply": {"text": "ok", "delay_s": 0.5}}]
    work = [lambda: run_turn(Turn(session=fresh(session), drafts=[user("hello")]))] * 3
    outcomes = side_by_side(*work)
    assert sum(isinstance(outcome, TurnInProgressError) for outcome in outcomes) == 2
    assert Message.objects.count() == 2


def test_appending_never_waits_for_a_model(session, model_server):
    model_server.script = [{"when": {}, "reply": {"text": "ok", "delay_s": 2}}]
    waited: list[float] = []

    def answer() -> None:
        run_turn(Turn(session=fresh(session), drafts=[user("hello")]))

    def append() -> None:
        model_server.wait_for("chat")
        started = time.monotonic()
        transcript.append(fresh(session).branch, [user("meanwhile")])
        waited.append(time.monotonic() - started)

    assert side_by_side(answer, append) == [None, None]
    assert waited[0] < 1
    texts = [row.content for row in Message.objects.order_by("position")]
    assert texts == ["hello", "meanwhile", "ok"]
    check_all_sums(session)
