"""Databases from before stored lineage get it, in batches, and go on where they were stopped."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from chatapp import transcript
from chatapp.models import Branch, Message, Session
from chatapp.selectors import path_q
from tests.chatapp.test_lineage import grow_tree, naive_rows
from tests.deep_forks import fill_lineage, migration
from tests.factories import SessionFactory, UserFactory, store, talk

pytestmark = pytest.mark.django_db(transaction=True)

BEFORE = [
    ("chatapp", "0003_remember_incidents_and_lessons"),
    ("compaction", "0004_watch_over_many_workers"),
]
MOVES = [
    "say",
    "fork",
    "say",
    "fork",
    "fork",
    "mark",
    "replay",
    "say",
    "fork",
    "go",
    "fork",
    "replay",
]


def migrate(targets: list[tuple[str, str]]) -> None:
    MigrationExecutor(connection).migrate(targets)


def newest() -> list[tuple[str, str]]:
    nodes: list[tuple[str, str]] = MigrationExecutor(connection).loader.graph.leaf_nodes()
    return nodes


@pytest.fixture
def back_to_before() -> Iterator[None]:
    """Leave the database with every migration done, whatever becomes of the test."""
    yield
    migrate(newest())


def a_tree(owner) -> Session:
    """Return a session with forks of forks, replays and placeholders."""
    session = SessionFactory(owner=owner)
    grow_tree(session, random.Random(7), MOVES)
    return session


def a_chain(owner, length: int) -> Session:
    session = SessionFactory(owner=owner, wires=talk(1, words=1))
    for _ in range(length):
        last = Message.objects.filter(branch=session.branch).order_by("-position")[0]
        transcript.activate(session, transcript.fork(session, at=last))
        store(session, talk(1, words=1))
    return session


def lineages() -> dict:
    rows = Branch.objects.filter(parent__isnull=False).values_list("pk", "depth", "jump_id")
    return {key: (depth, jump) for key, depth, jump in rows}


def test_an_old_database_gets_the_lineage_that_new_forks_have(back_to_before):
    owner = UserFactory()
    a_tree(owner)
    a_chain(owner, 20)
    wanted = lineages()
    assert set(Branch.objects.values_list("kind", flat=True)) == {
        "root", "fork", "replay",
    }  # fmt: skip
    migrate(BEFORE)
    with connection.cursor() as cursor:
        columns = connection.introspection.get_table_description(cursor, "branches")
    assert "jump_id" not in {column.name for column in columns}
    migrate(newest())
    assert lineages() == wanted
    for branch in Branch.objects.all():
        rows = Message.objects.filter(path_q(branch)).order_by("position")
        assert list(rows) == naive_rows(branch)


def test_a_migration_that_was_stopped_goes_on_where_it_was(monkeypatch):
    owner = UserFactory()
    a_chain(owner, 12)
    a_tree(owner)
    wanted = lineages()
    Branch.objects.update(depth=0, jump=None)
    monkeypatch.setattr(migration(), "BATCH", 5)
    stores, store_batch = [], migration()._store

    def stop_at_the_third(branches, batch):
        if len(stores) == 2:
            raise KeyboardInterrupt
        stores.append(len(batch))
        store_batch(branches, batch)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(migration(), "_store", stop_at_the_third)
        fill_lineage()
    filled = {key: value for key, value in lineages().items() if value[1] is not None}
    assert filled == {key: wanted[key] for key in filled}
    assert 0 < len(filled) < len(wanted)
    fill_lineage()
    assert lineages() == wanted


def test_a_branch_without_lineage_is_read_all_the_same():
    a_chain(UserFactory(), 12)
    Branch.objects.update(depth=0, jump=None)
    for branch in Branch.objects.all():
        rows = Message.objects.filter(path_q(branch)).order_by("position")
        assert list(rows) == naive_rows(branch)
