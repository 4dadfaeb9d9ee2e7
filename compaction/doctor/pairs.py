"""Tool calls without a result and results without a call: mended in every request, told here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db.models import Q

from chatapp.management.console import counted
from chatapp.models import Message
from chatapp.pairing import answers
from chatapp.selectors import GROUP_REACH, path_messages
from compaction.doctor.findings import NOTHING, Finding, Severity
from compaction.doctor.lines import Line

BATCH = 1000
_COLUMNS = ("pk", "branch", "position", "role", "tool_calls", "tool_call_id")
_Row = dict[str, Any]


def check_pairs(line: Line) -> Iterator[Finding]:
    """Yield how many calls and results of a branch's own messages have no partner.

    Calls of the last message are open, not unanswered: their results may still come.
    """
    branch = line.branch
    last = path_messages(branch).order_by("-position").values_list("position", flat=True).first()
    waiting: list[_Row] = []
    orphans: list[Any] = []
    for rows in _batches(line):
        waiting, without_call = _pair([*waiting, *rows])
        orphans += without_call
    own = [row for row in waiting if row["branch"] == branch.pk and row["position"] != last]
    unanswered = sum(len(row["tool_calls"]) for row in own)
    if unanswered or orphans:
        yield Finding(
            code="calls_unpaired",
            text=f"{counted(unanswered, 'tool call')} without a result, "
            f"{counted(len(orphans), 'result')} without a call. Every request is mended before it "
            "is sent.",
            severity=Severity.NOTE,
            remedy=NOTHING,
            session=branch.session_id,
            branch=branch.pk,
            message=own[0]["pk"] if own else orphans[0],
        )


def _pair(rows: list[_Row]) -> tuple[list[_Row], list[Any]]:
    """Return the messages with those of their calls that nobody answered; ids of stray results.

    What is returned is put before the next rows: an answer goes to the nearest call still open, so
    nothing is lost by leaving out the answered ones.
    """
    found = answers(rows)
    answered = set(found.values())
    waiting: list[_Row] = []
    orphans: list[Any] = []
    for index, row in enumerate(rows):
        if row["role"] == Message.Role.TOOL:
            orphans += [] if index in found else [row["pk"]]
            continue
        calls = list(enumerate(row["tool_calls"] or ()))
        left = [{"id": one.get("id")} for number, one in calls if (index, number) not in answered]
        if left:
            waiting.append(row | {"tool_calls": left})
    return waiting, orphans


def _batches(line: Line) -> Iterator[list[_Row]]:
    """Return the rows that call or answer, some at a time.

    For a fork first those that stand before it, as far back as a group reaches: an open call of the
    parent may be answered here. A result among them is the parent's, and left out with its call.
    """
    acting = Q(role=Message.Role.TOOL) | Q(tool_calls__isnull=False)
    rows = path_messages(line.branch).filter(acting).order_by("position").values(*_COLUMNS)
    if line.fork:
        shared = rows.filter(position__lte=line.fork).order_by("-position")[:GROUP_REACH]
        yield from _without_strays(list(reversed(shared)))
    batch = list(rows.filter(position__gt=line.fork)[:BATCH])
    while batch:
        yield batch
        batch = list(rows.filter(position__gt=batch[-1]["position"])[:BATCH])


def _without_strays(rows: list[_Row]) -> Iterator[list[_Row]]:
    waiting, _ = _pair(rows)
    if waiting:
        yield waiting
