"""Database connections and waiting: nobody holds one while a model is asked.

Why: docs/architecture.md#a-model-call-holds-nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.db import InterfaceError, OperationalError, connection

Result = TypeVar("Result")


def release_connection() -> None:
    """Close this thread's database connection, so that waiting for a model holds none.

    Inside a transaction (tests, callers with their own) it stays open.
    """
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
