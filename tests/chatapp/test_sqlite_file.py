"""What was deleted is in no file of SQLite: its log of changes is emptied, or it is said."""

from __future__ import annotations

import sqlite3

import pytest
from django.conf import settings
from django.db import connection
from django.db.utils import ConnectionHandler

from chatapp import database, erasure
from chatapp.database import empty_log_of_changes
from chatapp.erasure import erase_user, told
from tests.factories import UserFactory

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "sqlite", reason="PRAGMA is SQLite's"),
]
MARKER = b"what nobody may read any more"


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A database in a file, with the project's settings, in the place of the tests' own."""
    path = tmp_path / "file.sqlite3"
    options = settings.DATABASES["default"]["OPTIONS"] | {"timeout": 0.1}
    own = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path), "OPTIONS": options}
    found = ConnectionHandler({"default": own})["default"]
    monkeypatch.setattr(database, "connection", found)
    with found.cursor() as cursor:
        cursor.execute("CREATE TABLE texts (text)")
        cursor.executemany("INSERT INTO texts VALUES (%s)", [(MARKER.decode() * 50,)] * 200)
    yield path, found
    found.close()


def is_readable(path) -> bool:
    return any(MARKER in one.read_bytes() for one in path.parent.iterdir())


def test_deleted_rows_are_in_no_file(file):
    path, own = file
    assert is_readable(path)
    with own.cursor() as cursor:
        cursor.execute("DELETE FROM texts")
    assert empty_log_of_changes()
    assert not is_readable(path)


def test_a_log_that_somebody_reads_is_not_empty(file):
    path, own = file
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT COUNT(*) FROM texts").fetchone()
    with own.cursor() as cursor:
        cursor.execute("DELETE FROM texts")
    assert not empty_log_of_changes()
    assert is_readable(path)
    reader.close()
    assert empty_log_of_changes()
    assert not is_readable(path)


def test_rows_are_overwritten_whatever_the_library_was_built_with():
    """Texts of pages that were split long before would stay, whatever is overwritten later."""
    assert "PRAGMA secure_delete=ON" in settings.DATABASES["default"]["OPTIONS"]["init_command"]


@pytest.mark.parametrize("is_empty", [True, False])
def test_who_erases_is_told_of_a_log_that_is_not_empty(monkeypatch, is_empty):
    monkeypatch.setattr(erasure, "empty_log_of_changes", lambda: is_empty)
    assert ("wal_checkpoint" in told(erase_user(UserFactory()))) is not is_empty
