"""Queries whose SQL is made once: a process and a backend compile each of them a single time.

Building a queryset and turning it into SQL costs several times what the database needs for a read
by key, and a turn asks the same dozen things each time. What is decorated here stays a function
that returns a plain queryset; the first call turns it into SQL, later ones only bind their values.
It is for a turn, a stored message, a page of messages, a key, a session's page in the admin and the
look before each model call: everywhere else the queryset is clearer, and fast enough.

    @compiled_read
    def newest(*, branch: UUID, after: int) -> QuerySet[Message]:
        return Message.objects.filter(branch=branch, position__gt=after)

    rows = newest(branch=branch.pk, after=cursor, most=64)

`newest.asked(…)` is the statement, which can go together with others (chatapp/round_trips.py).
Arguments are keys, whole numbers, texts and times, which are bound; true, false and None stand for
another shape of the query, and each shape is compiled by itself. A test compares every one of them
with its queryset (tests/compaction/test_compiled_queries.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Generic, TypeVar
from uuid import UUID

from django.db import connections, models, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet
from django.db.models.constants import OnConflict
from django.db.models.query import ModelIterable, ValuesListIterable, get_related_populators
from django.db.models.sql import UpdateQuery

from chatapp.round_trips import Statement

Result = TypeVar("Result")
Row = TypeVar("Row")
Bound = UUID | int | str | datetime
# (name of the argument) of a place that is bound with each call, or (None, what stands there).
Slot = tuple[str | None, Any]
# What marks an argument's places in the first SQL; a second set proves that no constant is one.
SAMPLES = 2


@dataclass(frozen=True, slots=True)
class _CompiledSql:
    """One shape of a query as SQL, with the places of its arguments."""

    sql: str
    slots: tuple[Slot, ...]

    def params(self, values: Mapping[str, Any], connection: BaseDatabaseWrapper) -> list[Any]:
        """Return what is bound, as the backend takes it."""
        known = {name: _adapted(value, connection) for name, value in values.items()}
        return [constant if name is None else known[name] for name, constant in self.slots]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """How a row of the database becomes an instance, as ModelIterable makes it."""

    model: type[models.Model] | None
    names: list[str] = field(default_factory=list)
    start: int = 0
    end: int = 0
    populators: Sequence[Any] = ()
    annotations: Mapping[str, int] = field(default_factory=dict)
    # (column, expression, functions or names of methods of `connection.ops`).
    converters: Sequence[tuple[int, Any, Sequence[Any]]] = ()
    is_flat: bool = False


class _Compiled:
    """What reads and writes have in common: one statement for each shape."""

    # All there are, in the order of their making: tests compare each with its queryset.
    every: ClassVar[list[_Compiled]] = []

    def __init__(self, build: Callable[..., Any]) -> None:
        self.every.append(self)
        self.build = build
        self.__doc__, self.__name__ = build.__doc__, build.__name__
        self._shapes: dict[Any, Any] = {}
        self._model: type[models.Model] | None = None
        self._lock = threading.Lock()

    def _model_of(self, values: Mapping[str, Any]) -> type[models.Model]:
        """Return the model whose rows are meant, which a database router is asked about."""
        if self._model is None:
            self._model = self._rows(_samples(values, 0)).model
        return self._model

    def _rows(self, samples: Mapping[str, Any]) -> QuerySet[Any, Any]:
        raise NotImplementedError

    def _shape(self, values: Mapping[str, Any], connection: BaseDatabaseWrapper) -> Any:
        """Return the compiled shape that the values have; compile it where it is new."""
        # With the names: two callers may give them in different orders, or leave others out.
        key = (connection.vendor, *values, *map(_kind, values.values()))
        found = self._shapes.get(key)
        if found is None:
            with self._lock:
                found = self._shapes[key] = self._compile(values, connection)
        return found

    def _compile(self, values: Mapping[str, Any], connection: BaseDatabaseWrapper) -> Any:
        raise NotImplementedError

    def _statement(
        self,
        values: Mapping[str, Any],
        connection: BaseDatabaseWrapper,
        as_sql: Callable[[Mapping[str, Any]], tuple[str, Sequence[Any]]],
    ) -> _CompiledSql:
        """Return the SQL with the places where each argument stands.

        Raises TypeError where an argument shapes the SQL or does not stand in it: such a query
        cannot be compiled once.
        """
        found = []
        for number in range(SAMPLES):
            samples = _samples(values, number)
            sql, params = as_sql(samples)
            places = {_adapted(samples[name], connection): name for name in _bound(samples)}
            slots = tuple((_named(param, places), param) for param in params)
            found.append((sql, [name for name, _ in slots], slots))
        if any(one[:2] != found[0][:2] for one in found):
            raise TypeError(f"{self.__name__} makes other SQL for other values; it is no {self}.")
        missing = set(_bound(values)) - {name for name, _ in found[0][2]}
        if missing:
            raise TypeError(f"{self.__name__}: {', '.join(sorted(missing))} is not in its SQL.")
        slots = tuple((name, None if name else constant) for name, constant in found[0][2])
        return _CompiledSql(found[0][0], slots)


class CompiledRead(_Compiled, Generic[Row]):
    """A read; called with the function's arguments, and `most` for so many rows behind `skip`."""

    build: Callable[..., QuerySet[Any, Row]]

    def __call__(self, **values: Any) -> list[Row]:
        """Return the rows that the queryset has, as it would return them."""
        return self.asked(**values).run()

    def asked(
        self, *, most: int | None = None, skip: int = 0, **values: Any
    ) -> Statement[list[Row]]:
        """Return the same as a statement, to be run together with others."""
        connection = connections[router.db_for_read(self._model_of(values))]
        statement, columns = self._shape(values, connection)

        def rows(cursor: Any) -> list[Row]:
            return list(_made(cursor.fetchall(), columns, connection))

        return _limited(statement, values, (most, skip), connection, rows)

    def raw(self, *, most: int | None = None, **values: Any) -> list[tuple[Any, ...]]:
        """Return the rows' columns as the database gives them, converted by nobody."""
        connection = connections[router.db_for_read(self._model_of(values))]
        statement, _ = self._shape(values, connection)
        return _limited(statement, values, (most, 0), connection, _all).run()

    def first(self, **values: Any) -> Row | None:
        """Return the first of the rows, if there is one."""
        return next(iter(self(most=1, **values)), None)

    def _rows(self, samples: Mapping[str, Any]) -> QuerySet[Any, Any]:
        return self.build(**samples)

    def _compile(self, values: Mapping[str, Any], connection: BaseDatabaseWrapper) -> Any:
        def as_sql(samples: Mapping[str, Any]) -> tuple[str, Sequence[Any]]:
            compiler = self.build(**samples).query.get_compiler(connection.alias)
            sql, params = compiler.as_sql()
            return sql, params

        statement = self._statement(values, connection, as_sql)
        rows = self.build(**_samples(values, 0))
        compiler = rows.query.get_compiler(connection.alias)
        # What a row's columns are is known once the SQL was made.
        compiler.as_sql()
        return statement, _columns_of(rows, compiler, connection)


class CompiledUpdate(_Compiled):
    """An UPDATE: the function returns (rows, {column: value}), and a call how many were changed."""

    build: Callable[..., tuple[QuerySet[Any, Any], Mapping[str, Any]]]

    def __call__(self, **values: Any) -> int:
        """Change the rows and return their number."""
        return self.asked(**values).run()

    def asked(self, **values: Any) -> Statement[int]:
        """Return the same as a statement, to be run together with others."""
        connection = connections[router.db_for_write(self._model_of(values))]
        statement: _CompiledSql = self._shape(values, connection)
        return Statement(
            connection=connection,
            sql=statement.sql,
            params=statement.params(values, connection),
            result=lambda cursor: int(cursor.rowcount),
            writes=True,
        )

    def _rows(self, samples: Mapping[str, Any]) -> QuerySet[Any, Any]:
        return self.build(**samples)[0]

    def _compile(self, values: Mapping[str, Any], connection: BaseDatabaseWrapper) -> Any:
        def as_sql(samples: Mapping[str, Any]) -> tuple[str, Sequence[Any]]:
            rows, columns = self.build(**samples)
            query: Any = rows.query.chain(UpdateQuery)
            query.add_update_values(dict(columns))
            sql, params = query.get_compiler(connection.alias).as_sql()
            return sql, params

        return self._statement(values, connection, as_sql)


class CompiledInsert:
    """INSERTs of whole rows of one model; a key that the database makes is not read back.

    With `ignore_conflicts` rows that are there already stay as they are.
    """

    def __init__(
        self, model: type[models.Model], *, batch_size: int = 500, ignore_conflicts: bool = False
    ) -> None:
        self.model = model
        self.batch_size = batch_size
        self._on_conflict = OnConflict.IGNORE if ignore_conflicts else None
        self._fields: list[Any] = []
        # Of each backend: what stands before the rows, and behind them.
        self._frames: dict[str, tuple[str, str]] = {}

    def __call__(self, rows: Sequence[models.Model]) -> int:
        """Insert the rows, at most `batch_size` a statement, and return how many were stored.

        The rows are as saved ones afterwards.
        """
        return sum(one.run() for one in self.asked(rows))

    def asked(self, rows: Sequence[models.Model]) -> list[Statement[int]]:
        """Return the same as statements, to be run together with others."""
        connection = connections[router.db_for_write(self.model)]
        if connection.vendor not in self._frames:
            self._compile(connection)
        most = connection.ops.bulk_batch_size(self._fields, rows)
        size = max(1, min(self.batch_size, most))
        return [
            self._part(rows[start : start + size], connection)
            for start in range(0, len(rows), size)
        ]

    def _part(
        self, rows: Sequence[models.Model], connection: BaseDatabaseWrapper
    ) -> Statement[int]:
        params = [
            one.get_db_prep_save(one.pre_save(row, add=True), connection=connection)
            for row in rows
            for one in self._fields
        ]
        before, behind = self._frames[connection.vendor]
        places = f"({', '.join(['%s'] * len(self._fields))})"
        sql = " ".join([before, ", ".join([places] * len(rows)), behind])

        def stored(cursor: Any) -> int:
            for row in rows:
                row._state.adding = False
                row._state.db = connection.alias
            return int(cursor.rowcount)

        return Statement(connection=connection, sql=sql, params=params, result=stored, writes=True)

    def _compile(self, connection: BaseDatabaseWrapper) -> None:
        fields = self.model._meta.concrete_fields
        self._fields = [
            one for one in fields if not (one.generated or isinstance(one, models.AutoField))
        ]
        ops, quote = connection.ops, connection.ops.quote_name
        begin = ops.insert_statement(on_conflict=self._on_conflict)
        names = ", ".join(quote(one.column) for one in self._fields)
        table = quote(self.model._meta.db_table)
        end = ops.on_conflict_suffix_sql(self._fields, self._on_conflict, [], [])
        self._frames[connection.vendor] = f"{begin} {table} ({names}) VALUES", end


def compiled_read(build: Callable[..., QuerySet[Any, Row]]) -> CompiledRead[Row]:
    """Have the SQL of a function made once that takes keywords and returns a queryset."""
    return CompiledRead(build)


def compiled_update(
    build: Callable[..., tuple[QuerySet[Any, Any], Mapping[str, Any]]],
) -> CompiledUpdate:
    """Have the SQL of an UPDATE made once; the function returns rows and their new values."""
    return CompiledUpdate(build)


# The stubs are those of a later Django, which takes one argument more.
_populators: Any = get_related_populators

# --- values ---------------------------------------------------------------------------------------


def _kind(value: Any) -> Any:
    """Return what of a value shapes the SQL: the value itself where it is none that is bound."""
    return value if value is None or isinstance(value, bool) else type(value)


def _bound(values: Mapping[str, Any]) -> list[str]:
    return [
        name for name, value in values.items() if value is not None and not isinstance(value, bool)
    ]


def _samples(values: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return values of the same kinds that stand nowhere else in the SQL."""
    samples = dict(values)
    for index, name in enumerate(_bound(values)):
        # An odd step: even and odd ones are tried.
        mark = 1_987_654_000 + 1001 * number + index
        samples[name] = _sample(values[name], mark)
    return samples


def _sample(value: Bound, mark: int) -> Bound:
    if isinstance(value, UUID):
        return UUID(int=mark << 64)
    if isinstance(value, datetime):
        return datetime(1987, 6, 5, tzinfo=UTC) + timedelta(microseconds=mark)
    if isinstance(value, str):
        return f"argument {mark}"
    if isinstance(value, int):
        return mark
    raise TypeError(f"{type(value).__name__} is nothing that a compiled query binds.")


def _adapted(value: Any, connection: BaseDatabaseWrapper) -> Any:
    if isinstance(value, UUID):
        return value if connection.features.has_native_uuid_field else value.hex
    if isinstance(value, datetime):
        return connection.ops.adapt_datetimefield_value(value)
    return str(value) if isinstance(value, str) else value


def _named(param: Any, places: Mapping[Any, str]) -> str | None:
    """Return the argument whose sample stands here, if one does."""
    try:
        return places.get(param)
    except TypeError:
        # What cannot be hashed was no argument.
        return None


def _limited(
    statement: _CompiledSql,
    values: Mapping[str, Any],
    part: tuple[int | None, int],
    connection: BaseDatabaseWrapper,
    result: Callable[[Any], Result],
) -> Statement[Result]:
    sql, params = statement.sql, statement.params(values, connection)
    if part[0] is not None:
        sql += " LIMIT %s OFFSET %s" if part[1] else " LIMIT %s"
        params += filter(None, part)
    return Statement(connection=connection, sql=sql, params=params, result=result)


def _all(cursor: Any) -> list[tuple[Any, ...]]:
    return list(cursor.fetchall())


# --- rows -----------------------------------------------------------------------------------------


def _columns_of(rows: Any, compiler: Any, connection: Any) -> _Columns:
    converters = _converters_of(compiler, connection)
    if issubclass(rows._iterable_class, ModelIterable):
        info, select = compiler.klass_info, compiler.select
        start, end = info["select_fields"][0], info["select_fields"][-1] + 1
        return _Columns(
            model=info["model"],
            names=[column[0].target.attname for column in select[start:end]],
            start=start,
            end=end,
            populators=_populators(info, select, connection.alias),
            annotations=dict(compiler.annotation_col_map or {}),
            converters=converters,
        )
    if not issubclass(rows._iterable_class, ValuesListIterable) and not rows._fields:
        raise TypeError("A compiled read returns instances or values_list().")
    is_flat = not issubclass(rows._iterable_class, ValuesListIterable)
    return _Columns(model=None, converters=converters, is_flat=is_flat)


def _converters_of(compiler: Any, connection: BaseDatabaseWrapper) -> list[Any]:
    """Return what converts which column; a method of this connection is kept by its name alone.

    A method would hold the connection of the thread that compiled the query.
    """
    expressions = [column[0] for column in compiler.select[: compiler.col_count]]
    found = compiler.get_converters(expressions)
    return [
        (place, expression, [_nameless(one, connection) for one in functions])
        for place, (functions, expression) in found.items()
    ]


def _nameless(converter: Any, connection: BaseDatabaseWrapper) -> Any:
    owner = getattr(converter, "__self__", None)
    return converter.__name__ if owner is connection.ops else converter


def _made(rows: Sequence[Any], columns: _Columns, connection: BaseDatabaseWrapper) -> Iterator[Any]:
    converted = _converted(rows, columns.converters, connection)
    if columns.model is None:
        yield from ((row[0] for row in converted) if columns.is_flat else map(tuple, converted))
        return
    from_db, alias = columns.model.from_db, connection.alias
    for row in converted:
        made = from_db(alias, columns.names, row[columns.start : columns.end])
        for populator in columns.populators:
            populator.populate(row, made)
        for name, place in columns.annotations.items():
            setattr(made, name, row[place])
        yield made


def _converted(
    rows: Sequence[Any], converters: Sequence[Any], connection: BaseDatabaseWrapper
) -> Iterator[Any]:
    ready = [
        (place, expression, [_callable(one, connection) for one in functions])
        for place, expression, functions in converters
    ]
    for row in rows:
        values = list(row)
        for place, expression, functions in ready:
            value = values[place]
            for function in functions:
                value = function(value, expression, connection)
            values[place] = value
        yield values


def _callable(converter: Any, connection: BaseDatabaseWrapper) -> Any:
    return getattr(connection.ops, converter) if isinstance(converter, str) else converter
