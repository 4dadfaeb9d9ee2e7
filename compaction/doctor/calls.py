"""Branches whose own calls and results do not pair, found for many sessions in one read.

Only rows that call or answer are read, and of them no text. They come branch by branch, in order,
so that nothing is kept of a branch but its open calls; a result that has no call ends the look at
its branch. What is found is a suspicion: whoever examines the session tells what is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any
from uuid import UUID

import orjson
from django.db.models import Q, TextField
from django.db.models.functions import Cast

from chatapp.models import Message

ROWS_AT_ONCE = 2_000
# As texts: of hundreds of rows one branch has to become an id, and of calls the ids are read alone.
_BRANCH, _CALLS = Cast("branch", TextField()), Cast("tool_calls", TextField())
_COLUMNS = ("position", "role", _CALLS, "tool_call_id", "branch__head_position")
Row = tuple[Any, ...]
"""The branch and the columns of one message, in that order."""


def unpaired_branches(session_ids: Sequence[UUID]) -> set[UUID]:
    """Return the branches with a result that answers no call of their own, or a call left open.

    A call at the branch's head is open, not unanswered. A result in a fork may answer a call of
    its parent: whoever examines the session tells.
    """
    rows = Message.objects.filter(
        Q(role=Message.Role.TOOL) | Q(tool_calls__isnull=False),
        branch__session__in=list(session_ids),
        kind__in=Message.SPOKEN,
    )
    # In the order of the messages of each branch: a result belongs to the nearest earlier call.
    ordered = rows.order_by("branch", "position").values_list(_BRANCH, *_COLUMNS)
    by_branch = groupby(ordered.iterator(chunk_size=ROWS_AT_ONCE), itemgetter(0))
    return {UUID(branch) for branch, own in by_branch if not _pairs(own)}


def _pairs(rows: Iterable[Row]) -> bool:
    """Whether every result has its call and every call but those at the head its results.

    As messages/pairing.py pairs them, and nothing but the open calls is kept of a branch.
    """
    # For each id its open calls, the nearest at the end: whether each stands at the head.
    waiting: dict[str | None, list[bool]] = {}
    for _, position, role, calls, answered, head in rows:
        if role == Message.Role.TOOL:
            open_calls = waiting.get(str(answered or ""))
            if not open_calls:
                return False
            open_calls.pop()
            continue
        for call in _read(calls) if calls else ():
            # What is no assistant's asks nobody: no result answers it.
            asked = str(call.get("id") or "") if role == Message.Role.ASSISTANT else None
            waiting.setdefault(asked, []).append(position == head)
    return all(map(all, waiting.values()))


def _read(calls: str) -> Any:
    try:
        return orjson.loads(calls)
    except orjson.JSONDecodeError:
        # What it refuses the standard library has written: half an emoji, numbers of any size.
        return json.loads(calls)
