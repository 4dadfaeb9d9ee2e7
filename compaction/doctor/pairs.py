"""Tool calls without a result and results without a call: mended in every request, told here."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Q

from chatapp.models import Branch, Message
from chatapp.pairing import answers
from chatapp.selectors import path_messages
from compaction.doctor.findings import Finding, Severity


def check_pairs(branch: Branch) -> Iterator[Finding]:
    """Yield how many calls and results of a branch's path have no partner.

    Calls of the last message are open, not unanswered: their results may still come.
    """
    rows = list(
        path_messages(branch)
        .filter(Q(role=Message.Role.TOOL) | Q(tool_calls__isnull=False))
        .values("pk", "role", "tool_calls", "tool_call_id", "position")
    )
    answered = answers(rows)
    results = sum(1 for row in rows if row["role"] == Message.Role.TOOL)
    asked = sum(len(row["tool_calls"] or ()) for row in rows if row["position"] != _open(branch))
    open_ones = sum(1 for place in answered.values() if rows[place[0]]["position"] == _open(branch))
    orphans, unanswered = results - len(answered), asked - (len(answered) - open_ones)
    if orphans or unanswered:
        yield Finding(
            code="calls_unpaired",
            text=f"{unanswered:,} tool calls have no result and {orphans:,} results no call. Every "
            "request is mended before it is sent, so nothing has to be done.",
            severity=Severity.NOTE,
            session=branch.session_id,
            branch=branch.pk,
        )


def _open(branch: Branch) -> int:
    """Return the place of the last message."""
    last = path_messages(branch).order_by("-position").values_list("position", flat=True).first()
    return last or 0
