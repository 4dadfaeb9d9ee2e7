"""Database connections, waiting and time: nobody holds a connection while a model is asked.

Why: docs/architecture.md#a-model-call-holds-nothing.
"""

from __future__ import annotations

import logging
import selectors
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import add
from typing import Any, TypeVar

from django.db import (
    DatabaseError,
    Error,
    InterfaceError,
    InternalError,
    OperationalError,
    connection,
    connections,
    router,
    transaction,
)
from django.db.models import F, IntegerField, JSONField, Model, QuerySet, TextField, Value
from django.db.models.expressions import Combinable, Func
from django.db.models.functions import Coalesce
from django.db.models.sql import UpdateQuery
from django.utils import timezone

from chatapp.concurrency import slow_starts

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
Row = TypeVar("Row", bound=Model)
UNMIGRATED = "The database has not the tables of this version: run `manage.py migrate`."
# A table, and a column, that is not there.
_NOT_THERE = ("42P01", "42703")
_NOT_THERE_ON_SQLITE = ("no such table", "no such column")
CLOCK_SECONDS = 300
ANSWER_HOLDS_SECONDS = 5.0
"""So long after an answer a shared connection is asked for none again, unless it was cut."""
POOL_WAIT_SECONDS = 10
"""So long a thread waits for a connection that others have; then it is an OperationalError."""
RECONNECT_SECONDS = 2
"""So long one connection is tried; the next request tries anew. The pool doubles the time between
two tries, and whoever comes meanwhile waits for the next one."""


def trouble_words(error: Error) -> str:
    """Return what is wrong with the database, as a sentence; empty for a fault of the program."""
    state = getattr(error.__cause__, "sqlstate", None)
    if state in _NOT_THERE or str(error).startswith(_NOT_THERE_ON_SQLITE):
        return UNMIGRATED
    if isinstance(error, OperationalError | InterfaceError):
        return f"The database cannot be reached: {error}"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What a failure of the database means for a client: a code, words, seconds to come back."""

    code: str
    sentence: str
    seconds: int


BUSY = Trouble(
    code="busy",
    sentence="The database is busy with other work. Send the request again.",
    seconds=1,
)
AWAY = Trouble(
    code="unavailable",
    sentence="The database cannot be used just now. What was stored is stored; try again later.",
    seconds=5,
)
# Somebody else's work is in the way: a lock that was waited for, two that waited for each other.
_BUSY_WORDS = ("locked", "deadlock", "lock timeout", "could not serialize", "canceling statement")


def trouble_of(error: BaseException | None) -> Trouble | None:
    """Return what trouble with the database an error tells of; None for a fault of the program."""
    if not isinstance(error, OperationalError | InterfaceError | InternalError):
        return None
    return BUSY if any(word in str(error).casefold() for word in _BUSY_WORDS) else AWAY


def share_connections(size: int) -> None:
    """Let this process's threads share so many PostgreSQL connections; 0 and SQLite: as before.

    For a process of many threads that each need one for milliseconds: a connection is checked when
    it is borrowed, mostly without a round trip, and giving it back costs nothing. Processes that
    fork have one thread and keep theirs, for no pool outlives a fork. Called before the first
    request.
    """
    settings = connections.settings["default"]
    if size < 1 or connection.vendor != "postgresql":
        return
    # A worker of several loads the application inside its event loop, where Django closes none;
    # there none is open yet.
    for one in connections.all(initialized_only=True):
        if one.connection is not None:
            one.close()
    pool = {
        "min_size": 1,
        "max_size": size,
        "timeout": POOL_WAIT_SECONDS,
        "reconnect_timeout": RECONNECT_SECONDS,
        "connection_class": _class_of_shared_connections(),
    }
    settings["OPTIONS"] = settings.get("OPTIONS", {}) | {"pool": pool}
    # The pool keeps them; a thread that kept one would keep it from the others.
    settings["CONN_MAX_AGE"] = 0


def _class_of_shared_connections() -> type[Any]:
    """Return the driver's class, whose check on being borrowed empties the pool where it fails.

    A server that ends a connection says so, and what it said lies there to be read: a connection
    that has nothing to read, and answered not long ago, is lent without a question. After a restart
    of the server all connections that rest are cut. The pool would find them one by one, waiting
    twice as long for each: five of them are more than a thread waits for.
    """
    from psycopg import Connection
    from psycopg import OperationalError as CutError

    class SharedConnection(Connection[Any]):
        _answered_at = -ANSWER_HOLDS_SECONDS

        def execute(self, *args: Any, **kwargs: Any) -> Any:
            # Django asks by cursors; this is the pool's check alone.
            holds = time.monotonic() - self._answered_at < ANSWER_HOLDS_SECONDS
            try:
                if holds and not _is_readable(self.fileno()):
                    return self.cursor()
                answer = super().execute(*args, **kwargs)
            except CutError:
                pool = connection.pool  # type: ignore[attr-defined]  # PostgreSQL's has one
                pool.drain()
                raise
            self._answered_at = time.monotonic()
            return answer

    return SharedConnection


# One call of the system where there is one; the default asks for a queue of events and closes it.
_Selector: type[selectors.BaseSelector] = getattr(
    selectors, "PollSelector", selectors.DefaultSelector
)


def _is_readable(descriptor: int) -> bool:
    """Whether something has come in at a socket, or its other end is gone; waits for nothing."""
    with _Selector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(timeout=0))


def release_connection(*, of_a_server: bool = False) -> None:
    """Close this thread's database connection, so that waiting for a model holds none.

    With `of_a_server` SQLite keeps it: no server's connections could run out, and opening one costs
    a turn as much as ten reads. Inside a transaction (tests, callers with their own) it stays open.
    """
    slow_starts.give_back()
    if not (of_a_server and connection.vendor == "sqlite"):
        close_connection()


def close_connection() -> None:
    """Close this thread's database connection outside a transaction; of a thread that may end."""
    if not connection.in_atomic_block:
        connection.close()


def again_if_cut(work: Callable[[], Result]) -> Result:
    """Do something that may safely be done twice, on a new connection where the server cut ours.

    Django keeps a broken connection to the end of the request: whatever has to be given back after
    an error would fail like the work before it, and a lease would outlive its holder.
    """
    try:
        return work()
    except (OperationalError, InterfaceError):
        if connection.in_atomic_block:
            raise
        connection.close()
        return work()


@contextmanager
def without_failing(what: str) -> Iterator[None]:
    """Have the block go unwritten where the database is in trouble, which the log says.

    For what is noted beside an answer, and must not cost it. Inside a transaction everything would
    be lost with it, so there the error is raised.
    """
    try:
        yield
    except Error as error:
        if connection.in_atomic_block or trouble_of(error) is None:
            raise
        logger.warning("%s: %s", what, error)
        connection.close()


@contextmanager
def beating(sign: Callable[[], bool], *, seconds: float, who: str) -> Iterator[None]:
    """Give a sign of life each so many seconds, in a thread, until the block ends.

    `sign` writes it (a lease that is renewed, usually) and returns whether there is more to give:
    what was lost is not taken again, the worker's own next look finds it gone. A sign that the
    database refuses is logged with `who`. Inside a transaction (tests, callers with their own)
    nothing beats: nobody else sees its rows.
    """
    if connection.in_atomic_block:
        yield
        return
    done = threading.Event()

    def keep_beating() -> None:
        while not done.wait(seconds):
            try:
                if not sign():
                    return
            except Error:
                # It may be back for the next beat; if not, the lease runs out, as it should.
                logger.warning("%s could not give a sign of life.", who, exc_info=True)
            finally:
                close_connection()

    thread = threading.Thread(target=keep_beating, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def empty_log_of_changes() -> bool:
    """Have SQLite take its log of changes into its file and empty it; return whether it is empty.

    The log holds what was deleted, too. Whoever still reads what was there before keeps it full.
    Other databases clear theirs away by themselves; inside a transaction nothing is done.
    """
    if connection.vendor != "sqlite" or connection.in_atomic_block:
        return True
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        is_held, *_ = cursor.fetchone()
    return not is_held


def keeps_deleted_rows() -> bool:
    """Whether the database's files hold what was deleted until its tables are written anew."""
    return connection.vendor == "postgresql"


def rewrite_tables() -> dict[str, bool]:
    """Write every table anew without what was deleted; return of each whether that was done.

    PostgreSQL's VACUUM gives the room of deleted rows away, and leaves their bytes there; what it
    knows of a table's values quotes them. It passes over what belongs to somebody else, with a
    warning. While a table is rewritten nobody reads or writes it, and it takes its size on the disk
    once more. Not inside a transaction. Other databases need none.
    """
    if not keeps_deleted_rows():
        return {}
    tables = connection.introspection.django_table_names(only_existing=True)
    done = {}
    with connection.cursor() as cursor:
        for name in (*tables, _STATISTICS):
            before = _file_of(cursor, name)
            cursor.execute(f"VACUUM (FULL, ANALYZE) {connection.ops.quote_name(name)}")
            done[name] = _file_of(cursor, name) != before
    return done


_STATISTICS = "pg_statistic"
"""The table in which PostgreSQL keeps what the values of all others are, last: ANALYZE fills it."""


def _file_of(cursor: Any, table: str) -> Any:
    """Return what tells the file of a table from the one that it had before."""
    name = connection.ops.quote_name(table)
    cursor.execute("SELECT pg_relation_filenode(%s::regclass)", [name])
    return cursor.fetchone()[0]


def database_now() -> datetime:
    """Return the time by the database's clock, which is one for all machines whose own may differ.

    How far this machine's clock is off is asked for now and then; with SQLite it is the same clock.
    Conditions of queries use Now() instead.
    """
    return timezone.now() + _clock.ahead()


class _Clock:
    """How far the database's clock is ahead of this process's."""

    def __init__(self) -> None:
        self._ahead = timedelta(0)
        self._asked: float | None = None

    def ahead(self) -> timedelta:
        """Return it as it was asked for not long ago."""
        if connection.vendor == "sqlite":
            return timedelta(0)
        is_old = self._asked is None or time.monotonic() - self._asked > CLOCK_SECONDS
        # A transaction that failed answers nothing any more.
        if is_old and not connection.needs_rollback:
            with suppress(DatabaseError):
                self._ahead, self._asked = _ask_clock(), time.monotonic()
        return self._ahead


def _ask_clock() -> timedelta:
    with connection.cursor() as cursor:
        # Behind the connecting, which may take seconds.
        before = timezone.now()
        cursor.execute("SELECT clock_timestamp()")
        told: datetime = cursor.fetchone()[0]
        return told - before - (timezone.now() - before) / 2


_clock = _Clock()


def update_returning(rows: QuerySet[Row], **columns: Any) -> list[Row]:
    """Change the rows of a query by one UPDATE and return them as they are stored by then.

    A compare-and-set that tells what it found; nothing is read again for it.
    """
    query: Any = rows.query.chain(UpdateQuery)
    query.add_update_values(columns)
    manager = rows.model._base_manager
    alias = router.db_for_write(rows.model)
    sql, params = query.get_compiler(alias).as_sql()
    quote = connections[alias].ops.quote_name
    own = ", ".join(quote(str(field.column)) for field in rows.model._meta.concrete_fields)
    with transaction.mark_for_rollback_on_error(alias):
        return list(manager.using(alias).raw(f"{sql} RETURNING {own}", params))


def long_columns(model: type[Model]) -> list[str]:
    """Return the names of a table's columns that have no longest value."""
    fields = model._meta.concrete_fields
    return [field.attname for field in fields if isinstance(field, TextField | JSONField)]


def stored_bytes(columns: Collection[str]) -> Combinable:
    """Return an expression for the bytes that texts and JSON of a row take, together."""
    return reduce(add, (Coalesce(_Bytes(F(name)), Value(0)) for name in columns))


class _Bytes(Func):
    """The bytes of one text or JSON column."""

    output_field = IntegerField()
    template = "OCTET_LENGTH((%(expressions)s)::text)"

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Count a BLOB: the length of a text is its characters."""
        template = "LENGTH(CAST(%(expressions)s AS BLOB))"
        return self.as_sql(compiler, connection, template=template, **context)


def drop_index_of(schema_editor: Any, model: type[Model], *fields: str) -> None:
    """Drop the index that each of these foreign keys has for itself; of a migration.

    The library alone would copy the whole table on SQLite for it.
    """
    ours = [index.name for index in model._meta.indexes]
    for name in fields:
        field: Any = model._meta.get_field(name)
        found = schema_editor._constraint_names(
            model, [field.column], index=True, unique=False, primary_key=False, exclude=ours
        )
        for index in found:
            schema_editor.execute(schema_editor._delete_index_sql(model, index))


def make_index_of(schema_editor: Any, model: type[Model], *fields: str) -> None:
    """Make them again."""
    for name in fields:
        field = model._meta.get_field(name)
        schema_editor.execute(schema_editor._create_index_sql(model, fields=[field]))
