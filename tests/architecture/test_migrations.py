"""The migrations, which no other test runs: they make the tables that the models describe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from django.db import connection

from chatapp.models import Branch
from tests.architecture import tables

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def empty_database(db, tmp_path) -> Iterator[str]:
    """The URL of a database without tables, of the kind that the tests run on."""
    if connection.vendor == "sqlite":
        yield f"sqlite:///{tmp_path / 'migrated.sqlite3'}"
        return
    import psycopg

    url, name = os.environ["DATABASE_URL"], f"{connection.settings_dict['NAME']}_migrated"
    with closing(psycopg.connect(url, autocommit=True)) as server:
        server.execute(f'DROP DATABASE IF EXISTS "{name}"')
        server.execute(f'CREATE DATABASE "{name}"')
        yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
        server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def migrated(url: str) -> dict[str, Any]:
    """Run all migrations in a process of its own and return what they made there."""
    environment = {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    done = subprocess.run(
        [sys.executable, "-m", tables.__name__], cwd=ROOT, env=os.environ | environment,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_migrating_an_empty_database_makes_the_tables_of_the_models(empty_database):
    assert migrated(empty_database) == json.loads(json.dumps(tables.described(connection)))


@pytest.mark.slow
def test_the_migrations_of_an_app_can_be_taken_back_and_made_again(empty_database):
    environment = os.environ | {"DATABASE_URL": empty_database, "LOG_LEVEL": "WARNING"}
    for target in ([], ["compaction", "zero"], []):
        done = subprocess.run(
            [sys.executable, "manage.py", "migrate", "--verbosity=0", *target],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")


def test_no_index_holds_what_every_message_changes_in_its_branch():
    """So PostgreSQL rewrites the row within its page, and no index grows (docs/operations.md)."""
    changed = {"head_position", "message_count", "token_total", "char_total"}
    assert changed <= {field.name for field in Branch._meta.concrete_fields}
    indexed = {name for index in Branch._meta.indexes for name in index.fields}
    assert not changed & {name.removeprefix("-") for name in indexed}
    assert not changed & {f.name for f in Branch._meta.concrete_fields if f.db_index or f.unique}


def test_what_ci_repeats_on_postgresql_is_marked(request):
    assert request.node.get_closest_marker("databases") is not None
