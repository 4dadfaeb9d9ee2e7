"""A conversation as a replay sees it: sizes of all messages, and texts of those that are asked for.

Sizes are read once and shared by all profiles that are compared; a sum over any stretch is a
subtraction. Texts come in stretches, so that a long conversation is never in memory as a whole.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol, overload

from compaction.engine.types import Item

# A conversation that went faster was imported, or written by a program: its times say nothing.
FASTEST_SECONDS_A_MESSAGE = 1.0
# How far apart its messages are taken to be then.
ASSUMED_SECONDS_A_MESSAGE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSize:
    """One message without its text; `chars` are all of its characters, `text_chars` its content's.

    `seconds` is when it was stored. `has_calls`: it asks for tools. A pinned system message is a
    rule: always sent, never summarised.
    """

    position: int
    role: str
    tokens: int
    chars: int = 0
    text_chars: int = 0
    seconds: float = 0.0
    has_calls: bool = False
    is_note: bool = False
    pinned: bool = False

    @property
    def is_rule(self) -> bool:
        """Whether it is a system message that is always sent first."""
        return self.pinned and self.role == "system"

    @property
    def is_question(self) -> bool:
        """Whether a user speaks."""
        return self.role == "user" and not self.is_note

    @property
    def is_final_answer(self) -> bool:
        """Whether it ends a turn."""
        return self.role == "assistant" and not self.has_calls


class ReplayedConversation(Protocol):
    """What is replayed."""

    @property
    def sums(self) -> ConversationSums:
        """The sizes."""
        ...

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt and the tools, which every request holds, and of their frames."""
        ...

    @property
    def has_prompt(self) -> bool:
        """Whether a system prompt opens every request."""
        ...

    def items(self, start: int, end: int) -> Sequence[Item]:
        """Return the messages from one number up to another, rules not counted."""
        ...

    def with_thoughts(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return the items with what models thought before they wrote them."""
        ...

    def fixed_texts(self) -> Sequence[str]:
        """Return the texts that every request holds: the system prompt and the rules."""
        ...


class MessageSizes(Sequence[MessageSize]):
    """The sizes of many messages, kept as numbers alone: a fifth of what they take as objects."""

    def __init__(self) -> None:
        self._whole = {name: array("q") for name in ("position", "tokens", "chars", "text_chars")}
        self._seconds = array("d")
        # Role and marks, of which a conversation has few combinations.
        self._kinds: list[tuple[str, bool, bool, bool]] = []
        self._kind_of = array("B")

    def append(self, size: MessageSize) -> None:
        """Put one behind the others."""
        for name, column in self._whole.items():
            column.append(getattr(size, name))
        self._seconds.append(size.seconds)
        kind = size.role, size.has_calls, size.is_note, size.pinned
        if kind not in self._kinds:
            self._kinds.append(kind)
        self._kind_of.append(self._kinds.index(kind))

    def column(self, name: str) -> Sequence[int]:
        """Return one number of each message: its position, tokens, chars or text_chars."""
        return self._whole[name]

    @property
    def seconds(self) -> Sequence[float]:
        """When each message was stored."""
        return self._seconds

    def __len__(self) -> int:
        return len(self._seconds)

    @overload
    def __getitem__(self, place: int) -> MessageSize: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[MessageSize]: ...

    def __getitem__(self, place: int | slice) -> MessageSize | Sequence[MessageSize]:
        if isinstance(place, slice):
            return [self[number] for number in range(len(self))[place]]
        role, has_calls, is_note, pinned = self._kinds[self._kind_of[place]]
        return MessageSize(
            **{name: column[place] for name, column in self._whole.items()},
            role=role,
            seconds=self._seconds[place],
            has_calls=has_calls,
            is_note=is_note,
            pinned=pinned,
        )


class ConversationSums:
    """The sizes of a conversation's messages, and sums over stretches of them.

    Messages are numbered without the rules, which stand apart.
    """

    def __init__(self, sizes: Iterable[MessageSize]) -> None:
        self.messages, rules = MessageSizes(), MessageSizes()
        self.pinned, self.questions, self.results = array("l"), array("l"), array("l")
        self._ends = array("l")
        for one in sizes:
            if one.is_rule:
                rules.append(one)
                continue
            self._number(one, len(self.messages))
            self.messages.append(one)
        self._positions, self._rule_positions = (
            found.column("position") for found in (self.messages, rules)
        )
        self._tokens = _sums_of(self.messages.column("tokens"))
        self._chars = _sums_of(self.messages.column("chars"))
        self._rule_tokens = _sums_of(rules.column("tokens"))
        self._rule_chars = _sums_of(rules.column("chars"))
        tokens = self.messages.column("tokens")
        self._pinned_tokens = _sums_of([tokens[number] for number in self.pinned])
        self._seconds = _seconds_of(self.messages.seconds)

    def _number(self, size: MessageSize, number: int) -> None:
        """Note where the messages stand that are looked for."""
        for numbers, is_one in (
            (self.pinned, size.pinned),
            (self.questions, size.is_question),
            (self.results, size.role == "tool"),
            (self._ends, size.is_question or size.is_final_answer),
        ):
            if is_one:
                numbers.append(number)

    def __len__(self) -> int:
        """How many messages there are without the rules."""
        return len(self.messages)

    def tokens(self, start: int, end: int) -> int:
        """Return the tokens of a stretch of messages, rules not counted."""
        return self._tokens[end] - self._tokens[start]

    def chars(self, start: int, end: int) -> int:
        """Return the characters of a stretch of messages, rules not counted."""
        return self._chars[end] - self._chars[start]

    def rules_stored(self, count: int) -> int:
        """Return how many rules are there when so many messages have come."""
        if not self._rule_positions or count >= len(self._positions):
            return len(self._rule_positions)
        return bisect_left(self._rule_positions, self._positions[count])

    def rules_covered(self, count: int) -> int:
        """Return how many rules stand before the last of so many messages."""
        if not self._rule_positions or not count:
            return 0
        return bisect_left(self._rule_positions, self._positions[count - 1])

    def rule_tokens(self, start: int, end: int) -> int:
        """Return the tokens of a stretch of rules."""
        return self._rule_tokens[end] - self._rule_tokens[start]

    def rule_chars(self, start: int, end: int) -> int:
        """Return the characters of a stretch of rules."""
        return self._rule_chars[end] - self._rule_chars[start]

    def pinned_in(self, start: int, end: int) -> Sequence[int]:
        """Return the numbers of the pinned messages of a stretch."""
        return self.pinned[bisect_left(self.pinned, start) : bisect_left(self.pinned, end)]

    def pinned_tokens(self, start: int, end: int) -> int:
        """Return their tokens."""
        first, last = bisect_left(self.pinned, start), bisect_left(self.pinned, end)
        return self._pinned_tokens[last] - self._pinned_tokens[first]

    def results_in(self, start: int, end: int) -> Sequence[int]:
        """Return the numbers of the tool results of a stretch."""
        return self.results[bisect_left(self.results, start) : bisect_left(self.results, end)]

    def question_before(self, end: int) -> int | None:
        """Return the number of the newest question before a message; None where nobody asked."""
        found = bisect_left(self.questions, end)
        return self.questions[found - 1] if found else None

    def question_from(self, start: int, end: int) -> int | None:
        """Return the number of the first question of a stretch; None where there is none."""
        found = bisect_left(self.questions, start)
        return next((number for number in self.questions[found : found + 1] if number < end), None)

    def parted_question(self, cursor: int, end: int, *, start: int = 0) -> int | None:
        """Return the number of the question whose turn a cursor parts, where it is still open.

        It is sent although it stands before the cursor; None where a turn ended there, where it is
        answered behind or another one is asked, or where it is pinned and sent in any case. What is
        sent of the messages behind the cursor begins at `start`.
        """
        last = self._last_spoken(cursor)
        if last is None or self.messages[last].is_final_answer:
            return None
        question = self.question_before(cursor)
        if question is None or self.messages[question].pinned:
            return None
        after = bisect_left(self._ends, max(cursor, start))
        is_over = after < len(self._ends) and self._ends[after] < end
        return None if is_over else question

    def seconds(self, count: int) -> float:
        """Return when so many messages had come."""
        return self._seconds[min(count, len(self._seconds)) - 1] if self._seconds and count else 0.0

    def _last_spoken(self, end: int) -> int | None:
        for number in range(end - 1, -1, -1):
            if not self.messages[number].is_note:
                return number
        return None


def _sums_of(values: Sequence[int]) -> array[int]:
    return array("q", accumulate(values, initial=0))


def _seconds_of(seconds: Sequence[float]) -> array[float]:
    """Return when each message came; evenly apart where the stored times cannot be true."""
    stored = array("d", accumulate(seconds, max))
    if not stored or stored[-1] - stored[0] < FASTEST_SECONDS_A_MESSAGE * (len(stored) - 1):
        return array("d", (ASSUMED_SECONDS_A_MESSAGE * number for number in range(len(stored))))
    return stored
