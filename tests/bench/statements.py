"""What a piece of work asks of the database: statements, transactions, rows, round trips.

Times differ from machine to machine and from minute to minute; these numbers do not, so the tests
hold them (tests/bench/test_gates.py), and the benchmark prints them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from chatapp.round_trips import BETWEEN
from tests.bench.measure import Row
from tests.bench.proxy import database_behind_proxy
from tests.deep_forks import counted_reads

# What keeps a transaction, and asks for nothing.
_FRAME = re.compile(r"BEGIN|COMMIT|ROLLBACK|(RELEASE )?SAVEPOINT", re.IGNORECASE)
_WARM_UP, _MEASURED = 3, 3


@dataclass(kw_only=True)
class Asked:
    """What was asked for. `transactions` are those that ended with a COMMIT."""

    sql: list[str] = field(default_factory=list)
    transactions: int = 0
    rows: int = 0

    @property
    def statements(self) -> int:
        """How many statements there were, without those that begin and end transactions."""
        return sum(_FRAME.match(text) is None for text in self.sql)


@contextmanager
def counted() -> Iterator[Asked]:
    """Count what this thread's default connection is asked for in the block."""
    asked = Asked()

    def noted(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        # Those that go in one message are counted one by one.
        asked.sql.extend(sql.split(BETWEEN))
        return execute(sql, params, many, context)

    # A turn gives its connection back meanwhile, so the class is watched, not the connection.
    of_class = type(connection._connections[connection._alias])  # type: ignore[attr-defined]
    commit = of_class._commit

    def committed(self: Any) -> Any:
        asked.transactions += 1
        return commit(self)

    of_class._commit = committed
    try:
        with connection.execute_wrapper(noted), counted_reads() as reads:
            yield asked
    finally:
        of_class._commit = commit
        asked.rows = reads.rows


def most_asked(work: Callable[[], object]) -> Asked:
    """Return the counts of the most expensive of some calls, after those that warm up."""
    found = []
    for number in range(_WARM_UP + _MEASURED):
        with counted() as asked:
            work()
        if number >= _WARM_UP:
            found.append(asked)
    return max(found, key=lambda one: (one.statements, one.rows))


def round_trips(work: Callable[[], object]) -> int:
    """Return how often one call waits for PostgreSQL, opening connections not counted.

    It is the rounded-up mean of a few: whatever is written now and then is in it.
    """
    with database_behind_proxy() as found:
        for _ in range(_WARM_UP):
            work()
        before = found.round_trips
        for _ in range(_MEASURED):
            work()
        return math.ceil((found.round_trips - before) / _MEASURED)


def rows_of(
    name: str,
    n: int,
    work: Callable[[], object],
    *,
    commits: str = "",
    rows: str = "",
    trips: str = "",
) -> Iterator[Row]:
    """Yield the rows of one kind of work; `commits`, `rows` and `trips` say what is aimed at."""
    asked = most_asked(work)
    for value, unit, aim in (
        (asked.statements, "statements", ""),
        (asked.transactions, "commits", commits),
        (asked.rows, "rows read", rows),
    ):
        # What only reads commits nothing.
        if value:
            yield Row(name=name, n=n, value=value, unit=unit, aim=aim)
    if connection.vendor == "postgresql":
        yield Row(name=name, n=n, value=round_trips(work), unit="round trips", aim=trips)
