"""One conversation of which every message of the end stands in a fork of its own."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from django.apps import apps
from django.db import connection
from django.db.backends.utils import CursorWrapper

from chatapp import transcript
from chatapp.models import POSITION_STEP, Branch, Message, Session

TOKENS = 10
DEEP = 5_000


def deep_session(owner: Any, *, depth: int, messages: int = DEEP + 100, **about: Any) -> Session:
    """Return a session whose last `depth` messages each stand in a fork of the one before.

    Every depth holds the same conversation.
    """
    session = transcript.create_session(owner=owner, **about)
    root = session.branch
    line = [root, *(Branch(session=session, kind="fork") for _ in range(depth))]
    first = messages - depth
    for number, (parent, fork) in enumerate(pairwise(line)):
        fork.parent, fork.fork_position = parent, (first + number) * POSITION_STEP
    for number, branch in enumerate(line):
        branch.message_count = first + number
        branch.token_total = TOKENS * branch.message_count
        branch.head_position = POSITION_STEP * branch.message_count
    root.save()
    parents = {branch.pk: branch.parent_id for branch in line}
    lineages = {key: (depth, jump) for key, depth, jump in migration()._lineages(parents)}
    for branch in line[1:]:
        branch.depth, branch.jump_id = lineages[branch.pk]
    Branch.objects.bulk_create(line[1:], batch_size=500)
    rows = (_row(session, line[max(0, n - first)], n) for n in range(1, messages + 1))
    Message.objects.bulk_create(rows, batch_size=500)
    line[-1].refresh_from_db()
    transcript.activate(session, line[-1])
    return session


def _row(session: Session, branch: Branch, number: int) -> Message:
    return Message(
        session=session,
        branch=branch,
        position=number * POSITION_STEP,
        role="user" if number % 2 else "assistant",
        content=f"message {number}",
        tokens=TOKENS,
        tokens_through=TOKENS * number,
    )


def migration() -> Any:
    """Return the module of the data migration."""
    return importlib.import_module("chatapp.migrations.0005_fill_lineage")


def fill_lineage() -> None:
    """Do what the data migration does."""
    migration().fill_lineage(apps, SimpleNamespace(connection=connection))


@dataclass
class Reads:
    """How many statements were sent and how many rows came back."""

    queries: int = 0
    rows: int = 0

    @property
    def counts(self) -> tuple[int, int]:
        return self.queries, self.rows


class _CountingCursor(CursorWrapper):
    reads: Reads

    def execute(self, sql, params=None):
        self.reads.queries += 1
        return super().execute(sql, params)

    def executemany(self, sql, param_list):
        self.reads.queries += 1
        return super().executemany(sql, param_list)

    def fetchone(self):
        row = self.cursor.fetchone()
        self.reads.rows += row is not None
        return row

    def fetchmany(self, *args):
        return self._counted(self.cursor.fetchmany(*args))

    def fetchall(self):
        return self._counted(self.cursor.fetchall())

    def __iter__(self):
        for row in self.cursor:
            self.reads.rows += 1
            yield row

    def _counted(self, rows):
        self.reads.rows += len(rows)
        return rows


@contextmanager
def counted_reads() -> Iterator[Reads]:
    """Count the statements of the block and the rows that the database hands back."""
    reads = Reads()

    def counting(cursor):
        wrapped = _CountingCursor(cursor, connection)
        wrapped.reads = reads
        return wrapped

    before = connection.make_cursor
    connection.make_cursor = counting
    try:
        yield reads
    finally:
        connection.make_cursor = before
