"""The newest part of a request that is too long for a page: what is shown, and how much is not.

A request of a long history that nobody summarised holds all of it. Pages and the API show its
newest messages; how many more there are, and their tokens, is told by stored sums. So a page costs
the same however long the history is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from chatapp.models import Branch, Message
from chatapp.selectors import path_messages, pinned_messages, rows_before, rows_from

PREVIEW_MESSAGES = 200
"""Most messages of the history that a preview shows: about as many as anybody reads."""
PREVIEW_CHARS = 1_000_000
"""Most characters of them; the newest message is shown whatever its size."""
_LEAN = ("branch", "position", "role", "kind", "chars", "tokens", "tokens_through")


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
            f"{self.messages:,} older messages with {self.tokens:,} tokens, from {self.first} to "
            f"{self.last}, are sent, too, and not shown here."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPart:
    """The newest messages behind a position in order, the rules before them, and what is not shown."""

    rows: Sequence[Message]
    not_shown: NotShown


def newest_part(
    branch: Branch,
    *,
    after: int = 0,
    messages: int = 0,
    tokens: int = 0,
    most: int = PREVIEW_MESSAGES,
    chars: int = PREVIEW_CHARS,
) -> ShownPart | None:
    """Return the newest messages behind a position, at most so many; None where that is all.

    `messages` and `tokens` are how many the path has up to that position. The part begins with a
    question where one is near, never with a result whose call is not shown.
    """
    if branch.message_count - messages <= most:
        return None
    lean = Message.objects.filter(kind__in=Message.SPOKEN).only(*_LEAN)
    start = _start_of(rows_before(branch, lean, start=after + 1, most=most), chars)
    if start is None:
        return None
    marked = pinned_messages(branch, through=start.position - 1).filter(position__gt=after)
    rules = list(marked.filter(role=Message.Role.SYSTEM))
    rows = [*rules, *path_messages(branch, after=start.position - 1)]
    left = branch.message_count - messages - len(rows)
    # Rules open a conversation, or stand anywhere: behind so many another message must come.
    near = len(rules) + 1
    first = rows_from(branch, lean, start=after + 1, most=near)
    last = rows_before(branch, lean, start=after + 1, end=start.position, most=near)
    apart = {row.pk for row in rules}
    ends = [next((row for row in part if row.pk not in apart), None) for part in (first, last[::-1])]
    if left <= 0 or ends[0] is None or ends[1] is None:
        return None
    before = start.tokens_through - start.tokens - tokens - sum(row.tokens for row in rules)
    return ShownPart(
        rows=rows,
        not_shown=NotShown(
            messages=left, tokens=max(0, before), first=ends[0].place, last=ends[1].place
        ),
    )


def _start_of(rows: Sequence[Message], chars: int) -> Message | None:
    """Return the first of the rows to show; None where there is none."""
    within = len(rows)
    for row in reversed(rows):
        chars -= row.chars
        if chars < 0 and within < len(rows):
            break
        within -= 1
    shown = rows[within:]
    half = shown[: len(shown) // 2]
    question = next((row for row in half if row.is_question), None)
    whole = next((row for row in shown if row.role != Message.Role.TOOL), None)
    return question or whole or next(iter(shown), None)
