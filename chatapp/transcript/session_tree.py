"""The tree of a session in memory: whole lines are added to it, and stored in a few statements.

append() and fork() take a dozen statements for each line; an imported tree may have ten thousand.
Places, sums and lineage are what they would make.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from uuid import UUID

from chatapp.conf import chatapp_settings
from chatapp.lineage import child_lineage
from chatapp.llm.tokens import ModelTokenCounter
from chatapp.messages.pairing import parted
from chatapp.models import Branch, Message, Session
from chatapp.selectors import GROUP_REACH, counter_of
from chatapp.transcript.part_files import look_again
from chatapp.transcript.placing import INSERT_BATCH, store_originals
from chatapp.transcript.sums import PathSums, give_places, set_totals
from chatapp.transcript.writing import (
    NewMessage,
    SessionDeletedError,
    lock_branches,
    row_of,
)

_SUMS = ("head_position", "message_count", "token_total", "char_total")
_COLUMNS = (
    "id", "session_id", "branch_id", "position", "role", "kind", "tool_calls", "tool_call_id",
    "tokens_through", "chars_through", "metadata",
)  # fmt: skip
"""Of rows that are stored already: what their places and groups are found by."""

WRITTEN_CHARS = 1_000_000
"""Rows are written as soon as so many characters of them wait, or INSERT_BATCH of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a row stands, and what groups are found by: all that is held of it in memory.

    `key` is what its message was called in the file that it came from.
    """

    pk: UUID
    branch: Branch
    position: int
    is_spoken: bool
    key: str | None
    tokens_through: int
    chars_through: int
    role: str
    calls: Sequence[str] = ()
    answers: str = ""

    @classmethod
    def of(cls, row: Message) -> Place:
        """Return the place of a row."""
        return cls(
            pk=row.pk,
            branch=row.branch,
            position=row.position,
            is_spoken=row.is_spoken,
            key=row.metadata.get("import_key"),
            tokens_through=row.tokens_through,
            chars_through=row.chars_through,
            role=row.role,
            calls=tuple(str(call.get("id") or "") for call in row.tool_calls or ()),
            answers=row.tool_call_id,
        )

    def wire(self) -> dict[str, object]:
        """Return as much of a message as groups are found by."""
        calls = [{"id": call} for call in self.calls] or None
        return {"role": self.role, "tool_calls": calls, "tool_call_id": self.answers}


@dataclass(slots=True, eq=False)
class _TreeBranch:
    """A branch with its rows in order, and how many messages its path has up to each of them."""

    branch: Branch
    is_new: bool
    is_changed: bool = False
    shared: int = 0
    rows: list[Place] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    last_message: int = -1
    last_result: int = -1

    def take(self, row: Place) -> None:
        """Add a row at the end."""
        before = self.counts[-1] if self.counts else self.shared
        is_message = row.is_spoken
        self.rows.append(row)
        self.counts.append(before + is_message)
        if is_message:
            self.last_message = row.position
        if row.role == Message.Role.TOOL:
            self.last_result = row.position

    def index(self, position: int) -> int:
        """The number of the last row up to a position; -1 where there is none."""
        return bisect_right(self.rows, position, key=lambda row: row.position) - 1


class SessionTree:
    """A session's branches and rows; `add_line` adds to them, and `store` writes what was added."""

    def __init__(self, session: Session, counter: ModelTokenCounter | None = None) -> None:
        """Make the tree of a new session: its root branch, which has no message yet."""
        self._session = session
        self._counter = counter or counter_of(session)
        root = session.branch
        self._branches = {root.pk: _TreeBranch(branch=root, is_new=False)}
        self._root = self._branches[root.pk]
        self._waiting: list[Message] = []
        self._waiting_chars = 0
        self._ends: dict[tuple[UUID, int], Place] = {}

    @classmethod
    def loaded(cls, session: Session) -> SessionTree:
        """Return the tree that is stored, locked until the transaction ends.

        Raises SessionDeletedError where there is none any more.
        """
        lock_branches(session.pk)
        stored = list(Branch.objects.filter(session=session).order_by("depth", "created_at", "pk"))
        branches = {branch.pk: branch for branch in stored}
        if session.active_branch_id not in branches:
            raise SessionDeletedError
        session.active_branch = branches[session.active_branch_id]
        tree = cls(session)
        tree._branches = {}
        rows = Message.objects.filter(session=session).only(*_COLUMNS).order_by("position", "id")
        by_branch: dict[UUID, list[Place]] = {pk: [] for pk in branches}
        for row in rows.iterator(chunk_size=500):
            row.branch = branches[row.branch_id]
            by_branch[row.branch_id].append(Place.of(row))
        for branch in stored:
            tree._take_stored(branch, by_branch[branch.pk])
        tree._root = tree._branches[session.active_branch_id]
        return tree

    def places(self) -> Iterator[Place]:
        """Return the places of all rows of the session."""
        return (row for one in self._branches.values() for row in one.rows)

    def add_line(self, parent: Place | None, drafts: Iterable[NewMessage]) -> list[Place]:
        """Add messages behind `parent`, or as a line of their own, and return their places.

        They go on with the branch of `parent` where no message follows it there; else they are a
        branch that forks behind it, or behind the results of the call that it belongs to. Rows are
        written as they become many, inside the caller's transaction; `store` writes the others.
        """
        line = self._place_behind(parent)
        branch = line.branch
        opens = not branch.message_count
        places = []
        for draft in drafts:
            row = row_of(branch, draft, self._counter)
            after, through = branch.head_position, PathSums.whole(branch)
            set_totals(branch, give_places([row], after=after, through=through, is_empty=opens))
            opens = opens and row.role == Message.Role.SYSTEM
            places.append(Place.of(row))
            line.take(places[-1])
            branch.head_position = row.position
            branch.message_count = line.counts[-1]
            self._write_later(row)
        line.is_changed = True
        return places

    def store(self) -> None:
        """Write what was added and is not written yet, inside the caller's transaction."""
        new = [one.branch for one in self._branches.values() if one.is_new]
        Branch.objects.bulk_create(new, batch_size=INSERT_BATCH)
        for one in self._branches.values():
            if one.is_changed and not one.is_new:
                one.branch.save(update_fields=_SUMS)
        self._write()

    def _write_later(self, row: Message) -> None:
        # Parts are no characters; files of theirs that are long lie in the store already.
        parts = chatapp_settings.part_storage_bytes if row.parts else 0
        self._waiting.append(row)
        self._waiting_chars += row.chars + len(row.reasoning) + parts
        if len(self._waiting) == INSERT_BATCH or self._waiting_chars >= WRITTEN_CHARS:
            self._write()

    def _write(self) -> None:
        """Write rows that wait; the branch that they name may come later in the transaction."""
        rows, self._waiting, self._waiting_chars = self._waiting, [], 0
        look_again(rows)
        Message.objects.bulk_create(rows, batch_size=INSERT_BATCH)
        store_originals(rows)

    def _take_stored(self, branch: Branch, rows: Sequence[Place]) -> None:
        """Take up a branch whose ancestors are there."""
        one = self._branches[branch.pk] = _TreeBranch(branch=branch, is_new=False)
        if branch.parent_id is not None:
            parent = self._branches[branch.parent_id]
            index = parent.index(branch.fork_position or 0)
            one.shared = parent.counts[index] if index >= 0 else parent.shared
        for row in rows:
            one.take(row)

    def _place_behind(self, parent: Place | None) -> _TreeBranch:
        if parent is None:
            is_empty = not self._root.branch.head_position
            return self._root if is_empty else self._new_branch()
        one = self._branches[parent.branch.pk]
        if one.last_message <= parent.position:
            return one
        if not parent.is_spoken:
            before = next(self._back_from(parent), None)
            if before is None or before.branch.pk != parent.branch.pk:
                return self._new_branch()
            parent = before
        return self._new_branch(at=self._end_of_group(parent))

    def _new_branch(self, at: Place | None = None) -> _TreeBranch:
        """Return a new branch that shares the path up to a message; without one, a new root."""
        branch = Branch(session=self._session, kind=Branch.Kind.FORK)
        one = _TreeBranch(branch=branch, is_new=True)
        if at is not None:
            parent = self._branches[at.branch.pk]
            one.shared = parent.counts[parent.index(at.position)]
            branch.parent = parent.branch
            branch.fork_position = branch.head_position = at.position
            branch.message_count = one.shared
            set_totals(branch, PathSums(tokens=at.tokens_through, chars=at.chars_through))
            branch.depth, branch.jump_id = self._lineage_below(parent.branch)
        self._branches[branch.pk] = one
        return one

    def _lineage_below(self, parent: Branch) -> tuple[int, UUID]:
        jump = self._branch(parent.jump_id)
        farther = self._branch(jump.jump_id) if jump is not None else None
        return child_lineage(
            parent.pk,
            parent.depth,
            parent.jump_id,
            jump.depth if jump is not None else None,
            farther.pk if farther is not None else None,
            farther.depth if farther is not None else None,
        )

    def _branch(self, pk: UUID | None) -> Branch | None:
        found = self._branches.get(pk) if pk is not None else None
        return found.branch if found is not None else None

    def _end_of_group(self, message: Place) -> Place:
        """Return the last message of what a branch behind this one would part; else this one.

        As groups.parted_at finds it: results stand on the path of the message's own branch.
        """
        one = self._branches[message.branch.pk]
        if one.last_result <= message.position:
            return message
        # Very many branches may begin at one message, and what stands behind it is known then.
        known = (message.pk, len(one.rows))
        if known not in self._ends:
            self._ends[known] = self._looked_for_end(message, one)
        return self._ends[known]

    def _looked_for_end(self, message: Place, one: _TreeBranch) -> Place:
        path = list(islice(self._back_from(message), GROUP_REACH))[::-1]
        behind = islice(one.rows, one.index(message.position) + 1, None)
        rows = [*path, *islice((row for row in behind if row.is_spoken), GROUP_REACH)]
        found = parted([row.wire() for row in rows], len(path))
        return rows[found[1]] if found else message

    def _back_from(self, message: Place) -> Iterator[Place]:
        """Yield the messages of the path from this one back to the root."""
        one: _TreeBranch | None = self._branches[message.branch.pk]
        position = message.position
        while one is not None:
            for index in range(one.index(position), -1, -1):
                if one.rows[index].is_spoken:
                    yield one.rows[index]
            position = one.branch.fork_position or 0
            parent = one.branch.parent_id
            one = self._branches[parent] if parent is not None else None
