"""Statements that go to the database together: in order, all or none, in one round trip."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from functools import partial

import pytest
from django.contrib.auth import get_user_model
from django.db import IntegrityError, OperationalError, connection, connections, transaction
from django.db.models import QuerySet

from chatapp import transcript
from chatapp.compiled import CompiledInsert, compiled_read, compiled_update
from chatapp.database import database_now
from chatapp.models import LearnedLimits
from chatapp.round_trips import Statement, together
from chatapp.transcript import placing
from chatapp.transcript.placing import NotStoredBesideError
from chatapp.transcript.writing import NewMessage
from chatapp.turns import lease as leases
from chatapp.turns.lease import LEASE_SECONDS
from chatapp.turns.service import Turn, begin_turn
from tests.bench.statements import round_trips
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db(transaction=True)
ON_POSTGRESQL = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="only PostgreSQL is asked over a network"
)


@compiled_read
def windows(*, server: str) -> QuerySet[LearnedLimits, int | None]:
    rows = LearnedLimits.objects.filter(server=server).order_by("name")
    return rows.values_list("context_window", flat=True)


@compiled_update
def widen(*, name: str, window: int) -> tuple[QuerySet[LearnedLimits], dict[str, int]]:
    return LearnedLimits.objects.filter(name=name), {"context_window": window}


insert = CompiledInsert(LearnedLimits)


@pytest.fixture(autouse=True)
def three() -> None:
    for name in "abc":
        LearnedLimits.objects.create(server="s", name=name, context_window=1)


def stored() -> list[int | None]:
    return windows(server="s")


def another(name: str) -> Statement[None]:
    return insert.asked([LearnedLimits(server="s", name=name, context_window=9)])[0]


def test_each_sees_what_the_one_before_it_did_and_all_results_come_back_in_order():
    found = together(
        windows.asked(server="s", most=2, skip=1),
        widen.asked(name="b", window=2),
        windows.asked(server="s"),
        widen.asked(name="none is called so", window=5),
    )
    assert found == [[1, 1], 1, [1, 2, 1], 0]


def test_values_that_look_like_sql_stay_values():
    LearnedLimits.objects.create(server="s", name="'; x %s", context_window=7)
    found = together(windows.asked(server="'; %s"), widen.asked(name="'; x %s", window=8))
    assert found == [[], 1]


@pytest.mark.parametrize("ends", [False, True])
def test_where_one_fails_the_transaction_is_undone(ends):
    with pytest.raises(IntegrityError), transaction.atomic():
        together(widen.asked(name="a", window=2), another("b"), another("d"), ends=ends)
    assert stored() == [1, 1, 1]
    with transaction.atomic():
        together(widen.asked(name="a", window=3), ends=ends)
    assert stored() == [3, 1, 1]


def test_what_follows_a_commit_is_done_behind_it_and_only_then():
    seen: list[object] = []
    with transaction.atomic():
        transaction.on_commit(lambda: seen.append((connection.in_atomic_block, stored())))
        together(widen.asked(name="a", window=2), ends=True)
        assert seen == []
    assert seen == [(False, [2, 1, 1])]


def test_inside_another_transaction_it_is_that_one_which_ends():
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        with transaction.atomic():
            together(widen.asked(name="a", window=2), ends=True)
        raise ZeroDivisionError
    assert stored() == [1, 1, 1]


def test_a_server_that_binds_the_values_gets_them_one_by_one(monkeypatch):
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "server_side_binding", True)
    with transaction.atomic():
        found = together(widen.asked(name="a", window=2), windows.asked(server="s"), ends=True)
    assert found == [1, [2, 1, 1]]
    assert stored() == [2, 1, 1]


def test_a_refused_companion_stores_nothing_and_says_so():
    branch = SessionFactory().branch
    append = partial(transcript.append, branch, [NewMessage(wire={"role": "user", "content": "a"})])
    with pytest.raises(NotStoredBesideError):
        append(beside=lambda rows: [another("a")])
    branch.refresh_from_db()
    assert branch.message_count == 0
    append(beside=lambda rows: [another("d")])
    assert branch.message_count == 1
    assert stored() == [1, 1, 1, 9]


@ON_POSTGRESQL
def test_of_a_connection_that_broke_nobody_says_that_nothing_was_stored():
    branch = SessionFactory().branch

    def cut(rows: object) -> list[Statement[None]]:
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            (own,) = cursor.fetchone()
        other = connections.create_connection("default")
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [own])
        other.close()
        return [another("d")]

    with pytest.raises(OperationalError):
        transcript.append(branch, [NewMessage(wire={"role": "user", "content": "a"})], beside=cut)
    connection.close()
    assert stored() == [1, 1, 1]


@ON_POSTGRESQL
def test_a_lease_whose_commit_nobody_heard_of_is_given_back(monkeypatch):
    session = SessionFactory()

    def unheard(*statements: Statement[object], ends: bool = False) -> list[object]:
        found = together(*statements, ends=ends)
        if ends:
            raise OperationalError("the answer to COMMIT was lost")
        return found

    monkeypatch.setattr(placing, "together", unheard)
    question = NewMessage(wire={"role": "user", "content": "a"})
    with pytest.raises(OperationalError):
        begin_turn(Turn(session=session, drafts=[question]))
    session.refresh_from_db()
    assert session.branch.message_count == 1
    assert session.turn_owner is None


@ON_POSTGRESQL
def test_a_lease_that_waited_for_a_lock_is_renewed_before_it_is_relied_on(monkeypatch):
    monkeypatch.setattr(leases, "FRESH_LEASE_SECONDS", 0.1)
    session, is_locked = SessionFactory(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            get_user_model().objects.select_for_update().get(pk=session.owner_id)
            is_locked.set()
            time.sleep(0.3)
        connection.close()

    other = threading.Thread(target=hold)
    other.start()
    is_locked.wait(10)
    question = NewMessage(wire={"role": "user", "content": "a"})
    started = begin_turn(Turn(session=session, drafts=[question]))
    now = database_now()
    started.lease.keep()
    session.refresh_from_db()
    started.lease.give_back()
    other.join()
    assert session.turn_expires_at > now + timedelta(seconds=LEASE_SECONDS - 0.1)


@ON_POSTGRESQL
def test_a_transaction_is_as_many_round_trips_as_messages():
    def two() -> None:
        with transaction.atomic():
            together(widen.asked(name="a", window=2), windows.asked(server="s"))
            together(widen.asked(name="b", window=2), widen.asked(name="c", window=2), ends=True)

    assert round_trips(two) == 2


@ON_POSTGRESQL
def test_messages_are_stored_in_two_round_trips():
    branch = SessionFactory().branch
    drafts = [NewMessage(wire={"role": "user", "content": "a"})]
    assert round_trips(lambda: transcript.append(branch, drafts)) == 2
