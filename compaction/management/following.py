"""A conversation followed in a terminal: what is stored at its end from now on, as it comes.

It looks once a second at the branch's end, and goes along when the session goes on in another
branch. What is put between earlier messages, as the marks of summaries are, is not shown.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from uuid import UUID

from django.db.models import F

from chatapp.database import again_if_cut
from chatapp.formatting import short_id
from chatapp.models import Branch, Message
from chatapp.selectors import rows_before
from compaction.management.conversation import ConversationText

POLL_SECONDS = 1.0
DELETED = "The session was deleted: nothing more will come."


def wait() -> None:
    """Let some time pass between two looks."""
    time.sleep(POLL_SECONDS)


def followed(text: ConversationText, *, is_fixed: bool) -> Iterator[list[str]]:
    """Yield the lines of what is new, look by look; end with a sentence if the session is deleted.

    `is_fixed`: that branch alone, whatever the session changes to.
    """
    follower = Follower(text=text, is_fixed=is_fixed)
    yield follower.begin()
    while (branch := follower.look()) is not None:
        yield from follower.news(branch)
        wait()
    yield ["", DELETED]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """How far a branch was told: its end then, and the message that was last on its path."""

    head: int
    last: UUID | None = None
    position: int = 0


class Follower:
    """Remembers how far each branch was told."""

    def __init__(self, *, text: ConversationText, is_fixed: bool) -> None:
        self._text = text
        self._is_fixed = is_fixed
        self._old: set[UUID] = set()
        self._seen: dict[UUID, _Seen] = {}

    def begin(self) -> list[str]:
        """Remember where everything ends now; return the lines that say so."""
        branch = self._text.branch
        branches = Branch.objects.filter(session=self._text.session)
        self._old = set(branches.values_list("pk", flat=True))
        self._seen[branch.pk] = _end_of(branch)
        title = next(self._text.lines())
        return [title, f"Branch {short_id(branch.pk)}, from now on. Ctrl-C ends it."]

    def look(self) -> Branch | None:
        """Return the branch that is followed as it is now; None for a session that is gone."""
        branches = Branch.objects.filter(session=self._text.session.pk)
        if self._is_fixed:
            branches = branches.filter(pk=self._text.branch.pk)
        else:
            branches = branches.filter(session__active_branch=F("pk"))
        return again_if_cut(branches.first)

    def news(self, branch: Branch) -> Iterator[list[str]]:
        """Yield what the branch has more than was told, some rows at a time."""
        if branch.pk != self._text.branch.pk:
            yield ["", f"The session goes on in branch {short_id(branch.pk)}."]
            if branch.pk not in self._seen:
                self._seen[branch.pk] = self._where_to_begin(branch)
        self._text = replace(self._text, branch=branch)
        seen = self._seen[branch.pk]
        if branch.head_position == seen.head:
            return
        start = _position_of(seen) + 1
        for rows in self._text.batches(start=start):
            yield list(self._text.told(rows))
            seen = _Seen(head=seen.head, last=rows[-1].pk, position=rows[-1].position)
        self._seen[branch.pk] = replace(seen, head=branch.head_position)

    def _where_to_begin(self, branch: Branch) -> _Seen:
        """Return how far a branch that was not followed yet is known."""
        if branch.kind == Branch.Kind.REPLAY:
            # It repeats what was told, at the same positions.
            return replace(self._seen[self._text.branch.pk], head=-1)
        if branch.pk in self._old:
            return _end_of(branch)
        return _Seen(head=-1, position=branch.fork_position or 0)


def _end_of(branch: Branch) -> _Seen:
    newest = rows_before(branch, Message.objects.only("position"), most=1)
    if not newest:
        return _Seen(head=branch.head_position)
    return _Seen(head=branch.head_position, last=newest[0].pk, position=newest[0].position)


def _position_of(seen: _Seen) -> int:
    """Return where the message stands that was told last: a session may have been renumbered."""
    rows = Message.objects.filter(pk=seen.last) if seen.last else Message.objects.none()
    found = rows.values_list("position", flat=True).first()
    return seen.position if found is None else found
