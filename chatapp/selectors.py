"""Reads of the stored conversation: paths of branches, and what stands on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from chatapp.llm.registry import UnknownModelError, get_model
from chatapp.llm.tokens import TokenCounter, count_message
from chatapp.messages.pairing import answers
from chatapp.messages.wire import CUT_FROM, REPLAY_OF, content_of
from chatapp.models import Branch, Message, MessageOriginal, Session

# How far the members of one group may stand apart: a result that comes later is an orphan.
GROUP_REACH = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of a path: the rows of one branch up to a position (None: to its end)."""

    branch_id: UUID
    through: int | None


def active_branch(session: Session) -> Branch:
    """Return the branch in use, knowing its session, which so is not read a second time."""
    branch: Branch = session.branch
    branch.session = session
    return branch


def segments(branch: Branch) -> list[Segment]:
    """Return the path of a branch, its own stretch first; one query for every ancestor."""
    found = [Segment(branch_id=branch.pk, through=None)]
    bound: int | None = None
    current = branch
    while current.parent_id is not None and current.fork_position is not None:
        bound = current.fork_position if bound is None else min(bound, current.fork_position)
        found.append(Segment(branch_id=current.parent_id, through=bound))
        parent = current.parent
        if parent is None:
            break
        current = parent
    return found


def path_q(branch: Branch) -> Q:
    """Return the filter for all rows on the branch's path."""
    return segments_q(segments(branch))


def segments_q(stretches: Sequence[Segment]) -> Q:
    """Return the filter for the rows of the stretches."""
    condition = Q()
    for stretch in stretches:
        one = Q(branch_id=stretch.branch_id)
        if stretch.through is not None:
            one &= Q(position__lte=stretch.through)
        condition |= one
    return condition


def path_messages(
    branch: Branch, *, after: int = 0, through: int | None = None
) -> QuerySet[Message]:
    """Return the messages of the branch's path behind a position, in order; no placeholders.

    The order is the position's, never the time's: rows of one tick stay in place (B38).
    """
    rows = Message.objects.filter(path_q(branch), position__gt=after, kind=Message.Kind.MESSAGE)
    if through is not None:
        rows = rows.filter(position__lte=through)
    return rows.order_by("position").defer("usage", "summary", "response_id")


def without_rules(rows: QuerySet[Message]) -> QuerySet[Message]:
    """Return the rows of a query that are no rules of the conversation (Message.is_rule)."""
    return rows.exclude(pinned=True, role=Message.Role.SYSTEM)


def pinned_messages(branch: Branch, *, through: int) -> QuerySet[Message]:
    """Return the pinned messages of the path up to a position, in order."""
    return Message.objects.filter(
        path_q(branch), pinned=True, position__lte=through, kind=Message.Kind.MESSAGE
    ).order_by("position")


def group_of(message: Message) -> list[Message]:
    """Return the message's group in order: a call with all its results, or the message alone."""
    if message.role == Message.Role.TOOL:
        before = Message.objects.filter(
            path_q(message.branch), position__lte=message.position, kind=Message.Kind.MESSAGE
        ).order_by("-position")[:GROUP_REACH]
        rows = list(reversed(before))
        place = answers([_roles(row) for row in rows]).get(len(rows) - 1)
        if place is None:
            return [message]
        message = rows[place[0]]
    if not message.tool_calls:
        return [message]
    rows = list(
        Message.objects.filter(
            path_q(message.branch), position__gte=message.position, kind=Message.Kind.MESSAGE
        ).order_by("position")[:GROUP_REACH]
    )
    mine = [i for i, place in answers([_roles(row) for row in rows]).items() if place[0] == 0]
    return [rows[0], *(rows[index] for index in mine)]


def copies_of(messages: Sequence[Message]) -> list[Message]:
    """Return the rows that repeat these messages in replayed branches, and those that repeat them.

    A replay keeps positions, so an index finds them; a session without replays costs one query.
    """
    if not messages:
        return []
    replays = Branch.objects.filter(
        session_id=messages[0].session_id, kind=Branch.Kind.REPLAY
    ).values_list("pk", flat=True)
    ids = list(replays)
    if not ids:
        return []
    places = [message.position for message in messages]
    rows = Message.objects.filter(branch_id__in=ids, position__in=places).select_related("branch")
    found: list[Message] = []
    known = {str(message.pk) for message in messages}
    # A replay is made after what it repeats: one look in the order of their making finds chains.
    for row in rows.order_by("branch__created_at"):
        if row.metadata.get(REPLAY_OF) in known:
            known.add(str(row.pk))
            found.append(row)
    return found


def _roles(message: Message) -> dict[str, object]:
    return {
        "role": message.role,
        "tool_calls": message.tool_calls,
        "tool_call_id": message.tool_call_id,
    }


def counter_of(session: Session) -> TokenCounter:
    """Return the token counter of the session's model; for a model that is gone, the estimate."""
    try:
        return get_model(session.model).counter
    except UnknownModelError:
        return get_model("default").counter


def rebuild_sums(branch: Branch) -> tuple[int, int, dict[UUID, int]]:
    """Return (message_count, token_total, {message id: tokens_through}) counted from scratch.

    It changes nothing: tests and `doctor` compare it with what is stored.
    """
    counter = counter_of(branch.session)
    count = total = 0
    through: dict[UUID, int] = {}
    for row in Message.objects.filter(path_q(branch)).order_by("position", "id"):
        if row.kind == Message.Kind.MESSAGE:
            count += 1
            total += count_message(row.wire(), counter)
        through[row.pk] = total
    return count, total, through


def whole_content(message: Message) -> Any:
    """Return the content as it came in: a text, null or a list of parts.

    What was not cut costs no query; a row that was cut costs one or two for each time it was.
    """
    current = message
    while CUT_FROM in current.metadata:
        original = MessageOriginal.objects.filter(message=current).first()
        if original is not None:
            return content_of(Message(content=original.content, parts=original.parts))
        repeated = Message.objects.filter(pk=current.metadata.get(REPLAY_OF)).first()
        if repeated is None:
            break
        current = repeated
    return content_of(current)
