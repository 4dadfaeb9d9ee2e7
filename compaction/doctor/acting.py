"""Branches whose own calls and results do not pair, found for many sessions in one read.

Only rows that call or answer are read, as ids and counts: no text, no arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any
from uuid import UUID

from django.db.models import Q

from chatapp.messages.pairing import answers
from chatapp.models import Message

ROWS_AT_ONCE = 2_000
# Rows of one branch that are paired at once: what is still open goes on to the next.
PAIRED_AT_ONCE = 1_000
_COLUMNS = ("branch", "position", "role", "tool_calls", "tool_call_id", "branch__head_position")
Row = dict[str, Any]


def unpaired_branches(session_ids: Sequence[UUID]) -> set[UUID]:
    """Return the branches with a result that answers no call of their own, or a call left open.

    A call at the branch's head is open, not unanswered. A result in a fork may answer a call of
    its parent: whoever examines the session tells.
    """
    acting = Q(role=Message.Role.TOOL) | Q(tool_calls__isnull=False)
    rows = Message.objects.filter(
        acting, branch__session__in=list(session_ids), kind__in=Message.SPOKEN
    )
    ordered = rows.order_by("branch", "position").values(*_COLUMNS)
    found = set()
    for branch, own in groupby(
        ordered.iterator(chunk_size=ROWS_AT_ONCE), lambda row: row["branch"]
    ):
        if not _pairs(own):
            found.add(branch)
    return found


def _pairs(rows: Iterator[Row]) -> bool:
    """Whether every result has its call and every call but those at the head its results."""
    waiting: list[Row] = []
    for batch in _batches(rows):
        rows_now = [*waiting, *batch]
        found = answers(rows_now)
        if any(row["role"] == "tool" and i not in found for i, row in enumerate(rows_now)):
            # The rest is read all the same: the reader goes on with the next branch.
            return False
        waiting = list(_open(rows_now, set(found.values())))
    return all(row["position"] == row["branch__head_position"] for row in waiting)


def _open(rows: Sequence[Row], answered: set[tuple[int, int]]) -> Iterator[Row]:
    for index, row in enumerate(rows):
        calls = list(enumerate(row["tool_calls"] or ()))
        left = [{"id": one.get("id")} for at, one in calls if (index, at) not in answered]
        if left and row["role"] != "tool":
            yield row | {"tool_calls": left}


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) == PAIRED_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
