"""Statements that go to the database together: what a turn waits for is the number of round trips.

PostgreSQL takes several statements in one message. The first of a transaction brings its BEGIN
along, and the last may bring its COMMIT. They run one after the other: each sees what was committed
before it, and where one fails, none behind it is run. With a pool, and with pgbouncer in
transaction mode, it makes no difference to what they do, but for the time: `Now()` is when the
message came in, also behind a lock that one of them waited for. SQLite is asked over no network:
there each is run by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

Result = TypeVar("Result")
BETWEEN = ";\n"
"""What stands between two statements of one message."""
_BEGIN, _COMMIT = "BEGIN", "COMMIT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement(Generic[Result]):
    """One statement with its values; `result` makes of the cursor that ran it what is returned."""

    connection: BaseDatabaseWrapper
    sql: str
    params: Sequence[Any]
    result: Callable[[Any], Result]
    writes: bool = False

    def run(self) -> Result:
        """Run it by itself."""
        with _undone_if_it_fails(self), self.connection.cursor() as cursor:
            cursor.execute(self.sql, self.params)
            return self.result(cursor)


def together(*statements: Statement[Any], ends: bool = False) -> list[Any]:
    """Run the statements in order, in one round trip where that can be, and return their results.

    With `ends` they are the last of the transaction that is open: they bring its COMMIT along,
    unless it stands inside another one.
    """
    connection = statements[0].connection
    if not _takes_several(connection) or any(
        one.connection is not connection for one in statements
    ):
        return [one.run() for one in statements]
    with _undone_if_it_fails(*statements), connection.cursor() as cursor:
        texts = [one.sql for one in statements]
        begins = _begins(connection)
        if begins:
            texts.insert(0, _BEGIN)
        if ends and connection.in_atomic_block and not connection.savepoint_ids:
            # What Django commits then is done.
            texts.append(_COMMIT)
        cursor.execute(BETWEEN.join(texts), [value for one in statements for value in one.params])
        if begins:
            cursor.nextset()
        found = []
        for one in statements:
            found.append(one.result(cursor))
            cursor.nextset()
        return found


def is_lost(connection: BaseDatabaseWrapper) -> bool:
    """Whether the connection broke: then nobody knows what became of a COMMIT on its way."""
    raw = connection.connection
    return raw is None or (connection.vendor == "postgresql" and bool(raw.closed))


def _takes_several(connection: BaseDatabaseWrapper) -> bool:
    """Whether values are put into the text here; a server binds those of one statement alone."""
    options = connection.settings_dict["OPTIONS"]
    return connection.vendor == "postgresql" and not options.get("server_side_binding")


def _begins(connection: BaseDatabaseWrapper) -> bool:
    """Whether a transaction was asked for that the server has not begun yet; have us begin it.

    The driver would send BEGIN ahead, and wait for it. With its autocommit it sends none; how the
    transaction ends it sees by the server's answers, and Django switches autocommit on afterwards.
    """
    raw = connection.connection
    if raw.autocommit or not connection.in_atomic_block or raw.isolation_level is not None:
        return False
    if raw.info.transaction_status.name != "IDLE":
        return False
    raw.autocommit = True
    return True


def _undone_if_it_fails(*statements: Statement[Any]) -> Any:
    writing = next((one for one in statements if one.writes), None)
    if writing is None:
        return nullcontext()
    return transaction.mark_for_rollback_on_error(writing.connection.alias)
