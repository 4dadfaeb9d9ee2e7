"""What files of PostgreSQL hold of an erased person: nothing, once tables are written anew."""

from __future__ import annotations

import io

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from chatapp.models import Session
from tests.factories import SessionFactory, UserFactory, user

pytestmark = pytest.mark.django_db(transaction=True)
MARK = "Zq7Xerasemark"
on_postgresql = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="its files alone hold what was deleted"
)


@pytest.fixture
def person():
    person = UserFactory(username="gone")
    SessionFactory(
        owner=person, title=f"about {MARK}", wires=[user(f"hello {MARK} {n}") for n in "ab"]
    )
    return person


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("erase_user", *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def in_files(*tables: str) -> set[str]:
    """The tables whose files hold the mark, deleted or not."""
    found = set()
    with connection.cursor() as cursor:
        cursor.execute("CHECKPOINT")
        for name in tables or ("sessions", "messages"):
            cursor.execute(
                "SELECT position(%s::bytea IN pg_read_binary_file(pg_relation_filepath(%s)))",
                [MARK.encode(), name],
            )
            found |= {name} if cursor.fetchone()[0] else set()
    return found


@on_postgresql
def test_files_hold_what_was_deleted_until_tables_are_written_anew(person):
    """VACUUM gives the room away, and leaves the bytes in it: docs said that they go."""
    assert in_files() == {"sessions", "messages"}
    said = run("gone", "--yes")
    assert "erase_user --rewrite-tables" in said
    with connection.cursor() as cursor:
        cursor.execute("VACUUM messages")
    assert in_files()
    assert "written anew" in run("--rewrite-tables")
    assert in_files() == set()


@on_postgresql
def test_both_may_be_done_at_once(person):
    other = SessionFactory(wires=[user("stays")])
    said = run("gone", "--yes", "--rewrite-tables")
    assert "until their tables" not in said
    assert in_files() == set()
    assert list(Session.objects.all()) == [other]


@on_postgresql
def test_what_the_database_knows_of_values_quotes_nobody(person):
    """It is asked for it by every ANALYZE, and kept the title in a table of its own."""
    SessionFactory(title="stays", wires=[user("stays")])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE sessions")
        assert quoted(cursor)
        run("gone", "--yes", "--rewrite-tables")
        assert not quoted(cursor)
    assert "pg_statistic" not in in_files("pg_statistic")


def quoted(cursor) -> int:
    """How many columns of sessions are known by a value with the mark."""
    cursor.execute(
        "SELECT count(*) FROM pg_stats WHERE tablename = 'sessions' AND "
        "concat(most_common_vals::text, histogram_bounds::text) LIKE %s",
        [f"%{MARK}%"],
    )
    return cursor.fetchone()[0]


@on_postgresql
def test_who_owns_no_table_is_told_that_nothing_was_written_anew():
    """VACUUM passes over others' tables with a warning; they were called written anew."""
    with connection.cursor() as cursor:
        cursor.execute("DROP ROLE IF EXISTS palimpsest_nobody")
        cursor.execute("CREATE ROLE palimpsest_nobody")
        try:
            cursor.execute("SET ROLE palimpsest_nobody")
            with pytest.raises(CommandError, match=r"hold what was deleted: .*messages"):
                run("--rewrite-tables")
        finally:
            cursor.execute("RESET ROLE")
            cursor.execute("DROP ROLE palimpsest_nobody")


@pytest.mark.skipif(connection.vendor == "postgresql", reason="PostgreSQL's files do hold it")
def test_other_databases_have_nothing_to_write_anew(person):
    said = run("gone", "--yes", "--rewrite-tables")
    assert "A person was erased" in said
    assert "This database keeps nothing that was deleted." in said


def test_somebody_has_to_be_named(person):
    with pytest.raises(CommandError, match="Name the user"):
        run()
    assert Session.objects.filter(owner=person).exists()
