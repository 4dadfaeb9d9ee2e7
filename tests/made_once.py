"""Rows that many tests only read: the services make them once a process, then copies are stored.

    @pytest.fixture
    @made_once
    def session(owner, model_server) -> Session: ...

The fixture returns a row of ours. Each test gets the same rows, keys and times included; only the
owner is the test's own. What happens outside the database (the calls of a model server) happens the
first time alone, so this is for fixtures whose tests do not look at that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import wraps
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.db.models import Model
from django.utils import timezone

from chatapp.formatting import utc_day

OUR_APPS = ("chatapp", "compaction")
Rows = dict[type[Model], dict[Any, dict[str, Any]]]
Keys = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Recording:
    """What a fixture made, and on what it rests: the day, and the keys of what was there before."""

    rests_on: tuple[date, Keys]
    rows: Rows
    owner: Any
    result: Model

    def store(self, owner: Any) -> Model:
        """Store a copy that belongs to the owner, and return the fixture's row."""
        with transaction.atomic():
            for model, rows in self.rows.items():
                copies = [model(**_owned(model, row, self.owner, owner)) for row in rows.values()]
                key, *others = [field.name for field in model._meta.concrete_fields]
                model._base_manager.bulk_create(
                    copies, update_conflicts=True, unique_fields=[key], update_fields=others
                )
        connection.check_constraints()
        return type(self.result)._base_manager.get(pk=self.result.pk)


def made_once(make: Callable[..., Model]) -> Callable[..., Model]:
    """Return a fixture that makes its rows once a process and stores copies after that."""
    recording: Recording | None = None

    @wraps(make)
    def fixture(owner: Any, **given: Any) -> Model:
        nonlocal recording
        rests_on = (utc_day(timezone.now()), all_keys())
        if recording is not None and recording.rests_on == rests_on:
            return recording.store(owner.pk)
        before = all_rows()
        result = make(owner=owner, **given)
        changed = {
            model: {key: row for key, row in rows.items() if row != before[model].get(key)}
            for model, rows in all_rows().items()
        }
        rows = {model: found for model, found in changed.items() if found}
        recording = Recording(rests_on=rests_on, rows=rows, owner=owner.pk, result=result)
        return result

    return fixture


def all_rows() -> Rows:
    """Return the rows of all our tables by their keys."""
    return {
        model: {row[model._meta.pk.attname]: row for row in model._base_manager.values()}
        for model in all_models()
    }


def all_keys() -> Keys:
    """Return every row's table and key: one statement, because each test asks for them."""
    quote = connection.ops.quote_name
    tables = [(model._meta.db_table, model._meta.pk.column) for model in all_models()]
    each = [
        f"SELECT '{table}', CAST({quote(key)} AS text) FROM {quote(table)}" for table, key in tables
    ]
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(each))
        return frozenset(cursor.fetchall())


def all_models() -> list[type[Model]]:
    """Return the models of our apps."""
    return [model for app in OUR_APPS for model in apps.get_app_config(app).get_models()]


def _owned(model: type[Model], row: dict[str, Any], old: Any, new: Any) -> dict[str, Any]:
    """Return a row in which the one user is the other."""
    users = {
        field.attname
        for field in model._meta.concrete_fields
        if field.related_model is get_user_model()
    }
    return {name: new if name in users and value == old else value for name, value in row.items()}
