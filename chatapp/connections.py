"""Database connections and waiting: nobody holds one while a model is asked (DESIGN.md, rule 9)."""

from __future__ import annotations

from django.db import connection


def release_connection() -> None:
    """Close this thread's database connection, so that waiting for a model holds none.

    Inside a transaction (tests, callers with their own) it stays open.
    """
    if not connection.in_atomic_block:
        connection.close()
