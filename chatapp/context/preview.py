"""A part of a request that is too long for a page: what is shown, and how much is not.

A request of a long history that nobody summarised holds all of it. Pages and the API show its
newest messages; how many more there are, and their tokens, is told by stored sums. So a page costs
the same however long the history is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from chatapp.formatting import plural
from chatapp.models import Branch, Message
from chatapp.selectors import pinned_messages, rows_before, rows_from

PREVIEW_MESSAGES = 200
"""Most messages of the history that a preview shows: about as many as anybody reads."""
PREVIEW_CHARS = 1_000_000
"""Most characters of them; the newest message is shown whatever its size."""
# What no request holds.
UNREAD = ("usage", "summary", "response_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotShown:
    """Messages that a request sends and a preview leaves out; `first` and `last` are places."""

    messages: int
    tokens: int
    first: str
    last: str

    def as_dict(self) -> dict[str, Any]:
        """Return it for the API."""
        return asdict(self)

    @property
    def words(self) -> str:
        """Say it in a sentence."""
        return (
            f"{plural(self.messages, 'message')} with {plural(self.tokens, 'token')}, from "
            f"{self.first} to {self.last}, "
            f"{'is' if self.messages == 1 else 'are'} sent, too, and not shown here."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPart:
    """Messages behind a position in order, and what is not shown; None where they are all."""

    rows: Sequence[Message]
    not_shown: NotShown | None


def shown_part(
    branch: Branch,
    *,
    after: int = 0,
    messages: int = 0,
    tokens: int = 0,
    most: int = PREVIEW_MESSAGES,
    oldest: int = 0,
    chars: int = PREVIEW_CHARS,
) -> ShownPart | None:
    """Return the newest messages behind a position, at most so many; None where that is all.

    `messages` and `tokens` are how many the path has up to that position. With `oldest` so many of
    the first are among them; then both ends are read, of a short history, too. Rules are shown
    wherever they stand. The newest begin with no result whose call is not shown.
    """
    behind = branch.message_count - messages
    if behind <= most and not oldest:
        return None
    spoken = Message.objects.filter(kind__in=Message.SPOKEN).defer(*UNREAD)
    newest = rows_before(branch, spoken, start=after + 1, most=most + 1)
    marked = list(pinned_messages(branch).filter(role=Message.Role.SYSTEM, position__gt=after))
    # One more than is shown at each end says where the rest begins and ends.
    first = rows_from(branch, spoken, start=after + 1, most=oldest + len(marked) + 1)
    start = _start_of(newest, most=most, chars=chars)
    shown = {row.pk: row for row in (*marked, *_closed(first[:oldest]), *newest[start:])}
    rows = sorted(shown.values(), key=lambda row: row.position)
    left = behind - len(rows)
    if left <= 0 or not start:
        return ShownPart(rows=rows, not_shown=None)
    rest = branch.token_total - tokens - sum(row.tokens for row in rows)
    begin = next((row for row in first if row.pk not in shown), first[-1])
    return ShownPart(
        rows=rows,
        not_shown=NotShown(
            messages=left, tokens=max(0, rest), first=begin.place, last=newest[start - 1].place
        ),
    )


def _start_of(rows: Sequence[Message], *, most: int, chars: int) -> int:
    """Return the index of the first of the rows to show: no more characters, no stray result."""
    within = len(rows)
    while within and len(rows) - within < most:
        chars -= rows[within - 1].chars
        if chars < 0 and within < len(rows):
            break
        within -= 1
    calls = (index for index in range(within, len(rows)) if rows[index].role != Message.Role.TOOL)
    return next(calls, within) if within else 0


def _closed(rows: Sequence[Message]) -> Sequence[Message]:
    """Return the rows without a call at their end, whose results may not be among them."""
    end = len(rows)
    while end and (rows[end - 1].role == Message.Role.TOOL or rows[end - 1].tool_calls):
        end -= 1
    return rows[:end]
