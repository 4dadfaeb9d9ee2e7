"""Reads of groups: a call with its results, and what came in between them.

A group is never parted, whatever is sent, pinned, forked or summarised.
"""

from __future__ import annotations

from chatapp.messages.pairing import answers, parted
from chatapp.messages.wire import WireMessage
from chatapp.models import Message
from chatapp.selectors import GROUP_REACH, rows_before, rows_from


def group_of(message: Message) -> list[Message]:
    """Return the message's group in order: a call with all its results, or the message alone.

    A result is looked for on the path of its own branch: a replay repeats results of a call that
    stands in the branch it replaces.
    """
    branch = message.branch
    if message.role == Message.Role.TOOL:
        messages = Message.objects.filter(kind__in=Message.SPOKEN)
        end = message.position + 1
        rows = rows_before(branch, messages, end=end, most=GROUP_REACH)
        place = answers([_roles(row) for row in rows]).get(len(rows) - 1)
        if place is None:
            return [message]
        message = rows[place[0]]
    if not message.tool_calls:
        return [message]
    messages = Message.objects.filter(kind__in=Message.SPOKEN)
    rows = rows_from(branch, messages, start=message.position, most=GROUP_REACH)
    mine = [i for i, place in answers([_roles(row) for row in rows]).items() if place[0] == 0]
    return [rows[0], *(rows[index] for index in mine)]


def parted_at(message: Message, *, before: bool = False) -> list[Message]:
    """Return the first and the last message of what a cut behind a message would part, or none.

    That is a call and its results, and what came in between them; with `before` the cut is the one
    in front of the message. Where calls overlap, it is all of them.
    """
    needed = Message.objects.filter(kind__in=Message.SPOKEN)
    needed = needed.only("role", "tool_calls", "tool_call_id")
    start = message.position + (not before)
    # Behind a message its own branch alone goes on.
    own = needed.filter(branch=message.branch_id, position__gte=start).order_by("position")
    later = list(own[:GROUP_REACH])
    paired = answers([_roles(row) for row in later])
    if not any(row.role == Message.Role.TOOL and i not in paired for i, row in enumerate(later)):
        return []
    rows = rows_before(message.branch, needed, end=start, most=GROUP_REACH)
    found = parted([_roles(row) for row in [*rows, *later]], len(rows))
    return [[*rows, *later][index] for index in found or ()]


def _roles(message: Message) -> WireMessage:
    return {
        "role": message.role,
        "tool_calls": message.tool_calls,
        "tool_call_id": message.tool_call_id,
    }
