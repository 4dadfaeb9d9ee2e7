"""Ids in the order of time: one after another, in every process and thread, found by either end."""

import multiprocessing
import threading
import time
from uuid import UUID, uuid4

import pytest
from django.apps import apps
from django.db import models

from chatapp import ids
from chatapp.ids import SHORT_CHARS, id_q, new_id, own_id_q, short_id
from chatapp.management.console import find_by_id
from chatapp.models import Message, Session
from tests.factories import SessionFactory, UserFactory, store

OLD = UUID("3f2a1c2d-1111-4222-8333-444455556666")


def test_an_id_is_a_version_7_of_the_standard_library_and_tells_the_time():
    before = time.time_ns() // 1_000_000
    made = new_id()
    after = time.time_ns() // 1_000_000
    assert type(made) is UUID
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert before <= made.int >> 80 <= after


def test_each_id_is_greater_than_the_one_before():
    made = [new_id() for _ in range(50_000)]
    assert made == sorted(made)
    assert len(set(made)) == 50_000


def test_threads_share_no_id_and_each_sees_its_own_in_order():
    made: dict[int, list[UUID]] = {}

    def work(number):
        made[number] = [new_id() for _ in range(5_000)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert all(rows == sorted(rows) for rows in made.values())
    assert len({key for rows in made.values() for key in rows}) == 40_000


def _made_by_child(pipe):
    pipe.send([new_id() for _ in range(2_000)])
    pipe.close()


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_processes_share_no_id():
    new_id()
    fork = multiprocessing.get_context("fork")
    made: list[UUID] = []
    children = []
    for _ in range(4):
        ours, theirs = fork.Pipe(duplex=False)
        child = fork.Process(target=_made_by_child, args=(theirs,))
        child.start()
        theirs.close()
        children.append((child, ours))
    made += [new_id() for _ in range(2_000)]
    for child, ours in children:
        made += ours.recv()
        child.join()
    assert len(set(made)) == 10_000


def test_every_key_of_that_kind_is_made_so():
    """Keys that a caller gives, as that of a worker's row, have no default."""
    keys = [
        model._meta.pk
        for app in ("chatapp", "compaction")
        for model in apps.get_app_config(app).get_models()
        if isinstance(model._meta.pk, models.UUIDField)
    ]
    defaults = {field.default for field in keys if field.has_default()}
    assert defaults == {new_id}
    assert len(keys) > 10


# --- short ids ------------------------------------------------------------------------------------


def test_ids_of_one_moment_are_told_apart_by_what_is_shown():
    made = [new_id() for _ in range(1_000)]
    assert len({str(key)[:SHORT_CHARS] for key in made}) <= 2
    assert len({short_id(key) for key in made}) == 1_000
    assert short_id(OLD) == "55556666"


@pytest.fixture
def mixed(db):
    """Return an old session with a random id, and two new ones."""
    return [SessionFactory(pk=OLD), SessionFactory(), SessionFactory()]


@pytest.mark.parametrize("text", ["3f2a1c2d", "3F2A", "3f2a1c2d-1111", "55556666", "444455556666"])
def test_a_row_is_found_by_either_end(mixed, text):
    assert [row.pk for row in Session.objects.filter(id_q(Session, text, "id"))] == [OLD]


@pytest.mark.parametrize("digits", range(8, 33))
def test_an_end_of_any_length_is_found_hyphens_or_not(mixed, digits):
    wanted = mixed[1]
    for whole in (str(wanted.pk), wanted.pk.hex):
        end = whole[len(whole) - digits :]
        assert wanted in Session.objects.filter(id_q(Session, end, "id"))


def test_what_pages_show_of_a_new_row_finds_it_alone(mixed):
    for row in mixed:
        assert list(Session.objects.filter(id_q(Session, short_id(row.pk), "id"))) == [row]


def test_the_end_of_another_rows_id_finds_what_belongs_to_it(mixed):
    for session in mixed:
        store(session, [{"role": "user", "content": "hello"}])
    found = Message.objects.filter(id_q(Message, short_id(mixed[2].pk), "id", "session"))
    assert {row.session_id for row in found} == {mixed[2].pk}


@pytest.mark.parametrize("text", ["", "abc", "boots", "f" * 33, "0f8b 1c2d", "%", "5555_666"])
def test_what_is_no_part_of_an_id_finds_nothing(mixed, text):
    assert not Session.objects.filter(id_q(Session, text, "id")).exists()


def test_a_short_end_is_looked_for_only_where_it_is_asked_for(mixed):
    assert not Session.objects.filter(id_q(Session, "6666", "id")).exists()
    assert Session.objects.filter(own_id_q(Session.objects.all(), "6666")).get().pk == OLD


def test_a_short_end_is_looked_for_among_the_rows_that_are_asked_about(mixed, monkeypatch):
    """Of very many rows some dozens end alike; of one owner's, or one session's, one may."""
    monkeypatch.setattr(ids, "MOST_FOUND", 2)
    others = UserFactory()
    for number in range(4):
        SessionFactory(owner=others, pk=UUID(f"0000000{number}-1111-4222-8333-444455556666"))
    rows = Session.objects.filter(owner=mixed[0].owner)
    assert find_by_id(rows, "6666", noun="session").pk == OLD


def test_a_whole_id_is_looked_for_once(mixed, django_assert_num_queries):
    with django_assert_num_queries(1):
        assert find_by_id(Session.objects.all(), str(OLD), noun="session").pk == OLD


def test_a_whole_id_needs_no_look_at_the_ends(mixed, django_assert_num_queries):
    with django_assert_num_queries(1):
        assert Session.objects.filter(id_q(Session, str(OLD), "id")).get().pk == OLD


def test_new_and_old_rows_are_paged_through_whole(db, owner):
    """A walk by the key meets every row once, whichever version its id has."""
    made = [SessionFactory(owner=owner, pk=key) for key in (uuid4(), OLD, new_id(), uuid4())]
    seen, last = [], UUID(int=0)
    while batch := list(Session.objects.filter(pk__gt=last).order_by("pk")[:2]):
        seen += batch
        last = batch[-1].pk
    assert sorted(row.pk for row in seen) == sorted(row.pk for row in made)
