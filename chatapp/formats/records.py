"""What every importer returns: conversations, their messages and places, and what was wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Self, overload

MOST_PROBLEMS = 200
"""So many problems of a file are told one by one."""


def placeholder(
    *,
    key: str,
    parent: str | None,
    summary: str,
    created_at: datetime | None,
    metadata: Mapping[str, Any],
) -> ImportedMessage:
    """The message that marks a stored summary; it goes right before the first kept message."""
    return ImportedMessage(
        key=key,
        parent=parent,
        wire={"role": "assistant", "content": summary},
        kind="placeholder",
        summary=summary,
        created_at=created_at,
        metadata={"type": "session_summary", **metadata},
    )


def place_before(
    messages: Sequence[ImportedMessage], placeholders: Mapping[str, Sequence[ImportedMessage]]
) -> tuple[ImportedMessage, ...]:
    """All messages, with each list of placeholders linked in before the message of its key.

    The order stays such that a parent comes before its children. Several summaries before one
    message keep their order, so the latest stands nearest to what it kept.
    """
    placed: list[ImportedMessage] = []
    for message in messages:
        parent = message.parent
        for summary in placeholders.get(message.key, ()):
            placed.append(summary.changed(parent=parent))
            parent = summary.key
        placed.append(message if parent == message.parent else message.changed(parent=parent))
    return tuple(placed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMessage:
    """One message: `wire` is its OpenAI chat form, `key`/`parent` place it in the file's tree.

    `kind` is `message`, `note` for what is sent though nobody said it, or `placeholder` for a
    summary that the source had stored: then `summary` holds its text and the row stands between the
    last summarised and the first kept message.
    """

    key: str
    parent: str | None
    wire: dict[str, Any]
    kind: str = "message"
    summary: str = ""
    reasoning: str = ""
    usage: dict[str, Any] | None = None
    finish_reason: str = ""
    created_at: datetime | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    pinned: bool = False

    @property
    def size(self) -> int:
        """How many bytes of it lie in a file."""
        return 0

    def whole(self) -> ImportedMessage:
        """Return the message with all that it says in memory."""
        return self

    def changed(self, **fields: Any) -> ImportedMessage:
        """Return the message with other fields."""
        return replace(self, **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One part that was left out or mended: the line (or item) number, counted from 1, and why."""

    line: int
    text: str


class ProblemList(list[Problem]):
    """Problems as they are found: the first MOST_PROBLEMS are kept, the others are only counted."""

    def __init__(self, problems: Iterable[Problem] = ()) -> None:
        super().__init__()
        self.left_out = 0
        self.extend(problems)

    def append(self, problem: Problem, /) -> None:
        """Keep a problem, or count it."""
        if len(self) < MOST_PROBLEMS:
            super().append(problem)
        else:
            self.left_out += 1

    def extend(self, problems: Iterable[Problem], /) -> None:
        """Keep or count each of several problems, and count what another list has only counted."""
        for problem in problems:
            self.append(problem)
        self.left_out += problems.left_out if isinstance(problems, ProblemList) else 0

    def __iadd__(self, problems: Iterable[Problem], /) -> Self:  # type: ignore[override,misc]
        self.extend(problems)
        return self

    def told(self) -> list[Problem]:
        """Return what is kept, and a sentence about the others."""
        if not self.left_out:
            return list(self)
        one = self.left_out == 1
        said = "1 more part" if one else f"{self.left_out:,} more parts"
        more = f"And {said} of the file {'was' if one else 'were'} left out or mended."
        return [*self, Problem(line=0, text=more)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """How much a file may hold; None: any number.

    `lines` counts lines and the items of a list, too. `marks` are the brackets and colons of the
    file: at least as many as it has lists, objects and keys, all of which take memory.
    """

    lines: int | None = None
    conversations: int | None = None
    marks: int | None = None


NO_LIMITS = FileLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One conversation of a file.

    `identity` names it across imports (format, native id, and where it starts). `leaf` is the key
    of the message that the visible line ends on; None means the last one. `parts` are what apps add
    to an export of a conversation in one line; they count its messages from 0.
    """

    format: str
    identity: str
    title: str
    messages: Sequence[ImportedMessage]
    leaf: str | None = None
    system_prompt: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    model: str = ""
    created_at: datetime | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    parts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedFile:
    """All conversations of a file, and what was not sound in it.

    A parser may return a ProblemList; `problems_left_out` is how many more problems there are.
    `lines` are the lines of the file, or the items of the list that it is; `parse` counts them.
    """

    format: str
    conversations: tuple[Conversation, ...]
    problems: Sequence[Problem] = ()
    problems_left_out: int = 0
    lines: int = 0


class UnknownFormatError(ValueError):
    """The content is none of the formats that can be imported."""


class TooMuchInFileError(ValueError):
    """A file holds more than it may; `code` says more of what, the text how many and how much."""

    def __init__(self, sentence: str, *, code: str) -> None:
        super().__init__(sentence)
        self.code = code


def refuse_more(number: int, limit: int | None, *, what: str, code: str, setting: str = "") -> None:
    """Raise TooMuchInFileError where a file has more of something than its limit."""
    if limit is None or number <= limit:
        return
    named = f" ({setting})" if setting else ""
    raise TooMuchInFileError(
        f"The file has {number:,} {what}; {limit:,} are allowed{named}. Send it in parts.",
        code=code,
    )


def refuse_marks(number: int, limits: FileLimits) -> None:
    """Raise TooMuchInFileError where a file has too many brackets and colons."""
    refuse_more(number, limits.marks, what="brackets and colons", code="too_many_values")


def refuse_lines(number: int, limits: FileLimits) -> None:
    """Raise TooMuchInFileError where a file has too many lines, or a list too many items."""
    refuse_more(
        number,
        limits.lines,
        what="lines or items",
        code="too_many_lines",
        setting="MAX_IMPORT_LINES",
    )


class Wires(Sequence[dict[str, Any]]):
    """The chat forms of messages, of which one is held at a time."""

    def __init__(self, messages: Sequence[ImportedMessage]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> Wires: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return Wires(self._messages[index])
        return self._messages[index].wire


class MessageLine(Sequence[ImportedMessage]):
    """Messages without branches or placeholders, read anew by whoever goes through them.

    Whoever asks for their number, or for one by its number, has all of them kept.
    """

    def __init__(self, read: Callable[[], Iterator[ImportedMessage]]) -> None:
        self._read = read

    @cached_property
    def _all(self) -> tuple[ImportedMessage, ...]:
        return tuple(self._read())

    def __iter__(self) -> Iterator[ImportedMessage]:
        return self._read()

    def __bool__(self) -> bool:
        return next(self._read(), None) is not None

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, index: int) -> ImportedMessage: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[ImportedMessage, ...]: ...

    def __getitem__(self, index: int | slice) -> Any:
        return self._all[index]


def visible_line(conversation: Conversation) -> Sequence[ImportedMessage]:
    """The messages from the first one to the leaf, without placeholders."""
    if isinstance(conversation.messages, MessageLine):
        return conversation.messages
    by_key = {message.key: message for message in conversation.messages}
    last = conversation.messages[-1].key if conversation.messages else None
    key = conversation.leaf if conversation.leaf is not None else last
    line: list[ImportedMessage] = []
    while key is not None:
        message = by_key.pop(key)  # popped, so that a loop of parents ends with a KeyError
        if message.kind != "placeholder":
            line.append(message)
        key = message.parent
    return line[::-1]
