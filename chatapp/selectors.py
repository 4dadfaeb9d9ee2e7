"""Reads of the stored conversation: paths of branches, and what stands on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import Count, F, Q, QuerySet, Sum

from chatapp.compiled import compiled_read
from chatapp.lineage import (
    ALL_ROWS,
    END,
    MESSAGES,
    PINNED,
    PLACEHOLDERS,
    MixedPathRows,
    OnPath,
    PathRows,
    PathTable,
    ancestors_sql,
    shared_sql,
)
from chatapp.llm.registry import ModelConfig, UnknownModelError, get_model
from chatapp.llm.tokens import ModelTokenCounter, count_message
from chatapp.messages.wire import CUT_FROM, REPLAY_OF
from chatapp.models import POSITION_STEP, Branch, Message, MessageOriginal, Session
from chatapp.round_trips import Statement

# What nobody who goes through a path reads of its messages.
NOT_READ = ("usage", "summary", "response_id")
# How far the members of one group may stand apart: a result that comes later is an orphan.
GROUP_REACH = 400
# Up to this depth ancestors are asked one by one for sparse rows; deeper, the rows are tested.
SHALLOW = 64
# Positions, in steps, that the first look at a forked path takes in; each further one takes more.
LEAST_REACH = 64
REACH_GROWTH = 8
# Questions, and what may be a turn's last answer (chatapp/messages/verbosity.py).
TURN_MARKS = Q(kind=Message.Kind.MESSAGE) & (
    Q(role=Message.Role.USER) | Q(role=Message.Role.ASSISTANT, tool_calls__isnull=True)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One branch's part of a path: its rows up to a position (None: to its end)."""

    branch_id: UUID
    through: int | None


def active_branch(session: Session) -> Branch:
    """Return the branch in use, knowing its session, which so is not read a second time."""
    branch: Branch = session.branch
    branch.session = session
    return branch


def segments(branch: Branch, *, most: int | None = None) -> list[Segment]:
    """Return the segments of a branch's path, its own first; with `most` only the nearest.

    One query, none for a branch without a parent.
    """
    if not has_ancestors(branch):
        return [Segment(branch_id=branch.pk, through=None)]
    sql, params = ancestors_sql(branch.pk, END if most is None else most, connection)
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        rows = cursor.fetchall()
    return [
        Segment(branch_id=UUID(str(key)), through=None if high == END else high)
        for key, high in rows
    ]


def shared_position(branch: Branch, other: Branch) -> int:
    """Return up to which position two different branches have one path; 0: they share nothing."""
    sql, params = shared_sql(branch.pk, other.pk, connection)
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return int(cursor.fetchone()[0] or 0)


def has_ancestors(branch: Branch) -> bool:
    """Whether the branch's path begins in another branch."""
    return branch.parent_id is not None and branch.fork_position is not None


def path_q(branch: Branch, *, after: int = 0, through: int | None = None) -> Q:
    """Return the filter for the rows of the branch's path, placeholders too, in (after, through].

    However deep the branch is, the database visits only what holds a part of that range.
    """
    if is_own(branch, after):
        return _own_q(branch, after, through)
    where: dict[str, Any] = {"branch_id": branch.pk, "after": after, "through": through}
    if branch.depth <= SHALLOW:
        return Q(PathRows(F("pk"), table=ALL_ROWS, **where))
    return Q(MixedPathRows(F("pk"), session_id=branch.session_id, **where))


def shared_q(branch: Branch) -> Q | None:
    """Return the filter for those rows of the path that belong to ancestors; None without one."""
    if branch.parent is None or not has_ancestors(branch):
        return None
    return path_q(branch.parent, through=branch.fork_position)


def is_own(branch: Branch, after: int) -> bool:
    """Whether everything on the path behind the position is the branch's own."""
    return not has_ancestors(branch) or after >= (branch.fork_position or 0)


def _own_q(branch: Branch, after: int, through: int | None) -> Q:
    rows = Q(branch_id=branch.pk, position__gt=after)
    return rows if through is None else rows & Q(position__lte=through)


def sparse_q(branch: Branch, table: PathTable) -> Q:
    """Return the filter for rows of which a whole path has few: pins, placeholders, summaries.

    A short path is looked through branch by branch; on a long one the session's rows are tested
    one by one, so that not every ancestor is asked. The caller filters by `table.where`, too.
    """
    if not has_ancestors(branch):
        return Q(branch_id=branch.pk)
    if branch.depth <= SHALLOW:
        return Q(PathRows(F("pk"), branch_id=branch.pk, table=table))
    test = OnPath(F("branch"), F(table.position), branch_id=branch.pk)
    return Q(test, session_id=branch.session_id)


def on_path_q(branch: Branch, owner: str, position: str) -> Q:
    """Return the test whether a row of a branch and a position holds on the path.

    `owner` and `position` name its columns, in another query than one of messages, too.
    """
    if not has_ancestors(branch):
        return Q((owner, branch.pk))
    return Q(OnPath(F(owner), F(position), branch_id=branch.pk))


def path_messages(
    branch: Branch, *, after: int = 0, through: int | None = None
) -> QuerySet[Message]:
    """Return messages and notes of the branch's path behind a position; no placeholders.

    The order is the position's, never the time's: rows of one tick stay in place. A reader who
    wants only the first or last of many takes rows_from or rows_before.
    """
    if is_own(branch, after):
        found: Q | PathRows = _own_q(branch, after, through)
    else:
        found = PathRows(
            F("pk"), branch_id=branch.pk, table=MESSAGES, after=after, through=through, jumps=True
        )
    rows = Message.objects.filter(found, kind__in=Message.SPOKEN).order_by("position")
    return rows.defer(*NOT_READ)


def messages_behind(branch: Branch, position: int) -> list[Message]:
    """Return all messages and notes of the branch's path behind a position, in order."""
    asked = asked_behind(branch, position)
    return list(path_messages(branch, after=position)) if asked is None else asked.run()


def asked_behind(branch: Branch, position: int) -> Statement[list[Message]] | None:
    """Return the read of the same; None where it is not the branch's own alone."""
    own = is_own(branch, position)
    return _own_messages.asked(branch=branch.pk, after=position) if own else None


@compiled_read
def _own_messages(*, branch: UUID, after: int) -> QuerySet[Message]:
    rows = Message.objects.filter(branch=branch, position__gt=after, kind__in=Message.SPOKEN)
    return rows.order_by("position").defer(*NOT_READ)


def rows_from(branch: Branch, rows: QuerySet[Message], *, start: int, most: int) -> list[Message]:
    """Return the first `most` of the rows that stand on the path from a position on, in order."""
    found: list[Message] = []
    low = start - 1
    for reach in _reaches(branch, most):
        high = None if reach is None else low + reach
        if high is not None and high >= branch.head_position:
            high = None
        part = rows.filter(path_q(branch, after=low, through=high)).order_by("position")
        found += part[: most - len(found)]
        if high is None or len(found) >= most:
            break
        low = high
    return found


def rows_before(
    branch: Branch,
    rows: QuerySet[Message],
    *,
    most: int,
    end: int | None = None,
    start: int = 0,
) -> list[Message]:
    """Return the last `most` of the rows that stand on the path before a position, in order.

    Without `end` they are the last of all; none stands before `start`.
    """
    found: list[Message] = []
    high = None if end is None else end - 1
    low = branch.head_position if high is None else high
    for reach in _reaches(branch, most):
        low = start - 1 if reach is None else max(start - 1, low - reach)
        part = rows.filter(path_q(branch, after=low, through=high)).order_by("-position")
        found += part[: most - len(found)]
        if low < start or len(found) >= most:
            break
        high = low
    return found[::-1]


def next_turn_mark(branch: Branch, *, after: int) -> str | None:
    """Return the role of the first question or answer without calls behind a position, if any."""
    marks = Message.objects.filter(TURN_MARKS).only("position", "role")
    found = rows_from(branch, marks, start=after + 1, most=1)
    return found[0].role if found else None


def _reaches(branch: Branch, most: int) -> Iterator[int | None]:
    """Yield how far to look at a time, growing; None, at once, where one branch holds all.

    An index reads one branch in order and stops early. Rows of several branches are sorted first:
    only a range of positions that is about as long as what is wanted is read.
    """
    reach = max(LEAST_REACH, 2 * most) * POSITION_STEP
    while has_ancestors(branch):
        yield reach
        reach *= REACH_GROWTH
    yield None


def without_pinned_system(rows: QuerySet[Message]) -> QuerySet[Message]:
    """Return the rows of a query but pinned system messages (Message.is_pinned_system)."""
    return rows.exclude(pinned=True, role=Message.Role.SYSTEM)


def pinned_messages(branch: Branch, *, through: int | None = None) -> QuerySet[Message]:
    """Return the pinned messages of the path up to a position, in order."""
    rows = Message.objects.filter(sparse_q(branch, PINNED), pinned=True, kind__in=Message.SPOKEN)
    rows = rows if through is None else rows.filter(position__lte=through)
    return rows.order_by("position")


def pinned_before(branch: Branch, position: int) -> list[Message]:
    """Return the pinned messages of the path up to a position, in order."""
    if not has_ancestors(branch):
        return _own_pinned(branch=branch.pk, through=position)
    return list(pinned_messages(branch, through=position))


@compiled_read
def _own_pinned(*, branch: UUID, through: int) -> QuerySet[Message]:
    rows = Message.objects.filter(branch=branch, position__lte=through)
    return rows.filter(pinned=True, kind__in=Message.SPOKEN).order_by("position")


class PinnedPlace(NamedTuple):
    """What is known of a pinned message without its text."""

    role: str
    position: int
    tokens: int
    chars: int


def pins_behind(branch: Branch, position: int) -> list[PinnedPlace]:
    """Return the pinned messages of the path behind a position, in order."""
    if is_own(branch, position):
        rows = _own_pins_behind(branch=branch.pk, after=position)
    else:
        rows = list(_places(pinned_messages(branch).filter(position__gt=position)))
    return [PinnedPlace(*row) for row in rows]


def _places(rows: QuerySet[Message]) -> QuerySet[Message, tuple[str, int, int, int]]:
    return rows.order_by("position").values_list("role", "position", "tokens", "chars")


@compiled_read
def _own_pins_behind(*, branch: UUID, after: int) -> QuerySet[Message, tuple[str, int, int, int]]:
    rows = Message.objects.filter(branch=branch, position__gt=after)
    return _places(rows.filter(pinned=True, kind__in=Message.SPOKEN))


class PinnedSums(NamedTuple):
    """How many pinned messages there are, and their tokens."""

    messages: int
    tokens: int


def pinned_sums(branch: Branch, *, through: int) -> PinnedSums:
    """Return the sums of the path's pinned messages up to a position; no text is read."""
    if not has_ancestors(branch):
        found = _own_pinned_sums(branch=branch.pk, through=through)
        return PinnedSums(*found[0]) if found else PinnedSums(0, 0)
    pins = pinned_messages(branch, through=through)
    sums = pins.aggregate(messages=Count("pk"), total=Sum("tokens", default=0))
    return PinnedSums(sums["messages"], sums["total"])


@compiled_read
def _own_pinned_sums(*, branch: UUID, through: int) -> QuerySet[Message, tuple[int, int]]:
    return own_pinned_sums(branch, through=through).values_list("count", "total")


def own_pinned_sums(branch: Any, *, through: Any) -> QuerySet[Any, Any]:
    """Return the query of the sums of a branch's own pinned messages up to a position.

    It has one row with `count` and `total`, the tokens, or none without a pin. Both arguments may
    be references to an outer query.
    """
    rows = Message.objects.filter(branch=branch, position__lte=through)
    rows = rows.filter(pinned=True, kind__in=Message.SPOKEN).order_by()
    return rows.values("branch").annotate(count=Count("pk"), total=Sum("tokens"))


def placeholders(branch: Branch) -> QuerySet[Message]:
    """Return the placeholders of the path in order: they mark where summaries stand."""
    rows = Message.objects.filter(sparse_q(branch, PLACEHOLDERS), kind=Message.Kind.PLACEHOLDER)
    return rows.order_by("position")


def messages_through(message: Message) -> int:
    """Return how many messages its branch's path has up to a message, by the stored sums."""
    branch = Branch.objects.filter(pk=message.branch_id)
    behind = Message.objects.filter(
        branch_id=message.branch_id, position__gt=message.position, kind__in=Message.SPOKEN
    )
    total: int = branch.values_list("message_count", flat=True).get()
    return total - behind.count()


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


def model_of(session: Session) -> ModelConfig:
    """Return the model that counts a session's messages; the default's where it is gone."""
    try:
        return get_model(session.model)
    except UnknownModelError:
        return get_model("default")


def counter_of(session: Session) -> ModelTokenCounter:
    """Return the token counter of the session's model; for a model that is gone, the estimate."""
    return model_of(session).counter


def rebuild_sums(branch: Branch) -> tuple[int, int, dict[UUID, int]]:
    """Return (message_count, token_total, {message id: tokens_through}) counted from scratch.

    It changes nothing: tests and `doctor` compare it with what is stored.
    """
    counter = counter_of(branch.session)
    count = total = 0
    through: dict[UUID, int] = {}
    for row in Message.objects.filter(path_q(branch)).order_by("position", "id"):
        if row.is_spoken:
            count += 1
            total += count_message(row.stored_wire(), counter)
        through[row.pk] = total
    return count, total, through


def whole_content(message: Message) -> Any:
    """Return the content as it came in: a text, null or a list of parts.

    What was not cut costs no query; a row that was cut costs one or two for each time it was.
    """
    return uncut([message])[0].content_with_files()


def uncut(messages: Sequence[Message]) -> list[Message]:
    """Return for each message the row, stored or not, that has its content as it came in.

    That is the message itself unless it was cut. All together cost one query or two for each time
    that the one which was cut most often was cut.
    """
    rows = list(messages)
    cut = _cut_among(rows, range(len(rows)))
    while cut:
        originals = MessageOriginal.objects.in_bulk([rows[n].pk for n in cut])
        repeats = {n: rows[n].metadata.get(REPLAY_OF) for n in cut}
        asked = [key for n, key in repeats.items() if key and rows[n].pk not in originals]
        repeated = {str(pk): row for pk, row in Message.objects.in_bulk(asked).items()}
        changed = []
        for n in cut:
            original = originals.get(rows[n].pk)
            if original is not None:
                rows[n] = Message(content=original.content, parts=original.parts)
                rows[n].session_id = messages[n].session_id
            elif repeats[n] in repeated:
                rows[n] = repeated[repeats[n]]
                changed.append(n)
        cut = _cut_among(rows, changed)
    return rows


def _cut_among(rows: Sequence[Message], numbers: Iterable[int]) -> list[int]:
    return [n for n in numbers if CUT_FROM in rows[n].metadata]
