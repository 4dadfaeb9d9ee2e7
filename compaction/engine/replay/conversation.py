"""A conversation as a replay sees it: sizes and texts of those messages that are asked for.

Both come in pages, of which a few are kept, so that a long conversation is never in memory as a
whole. What is known of it from its beginning on is held for the first message of each page.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

from compaction.engine.types import Item

# A conversation that went faster was imported, or written by a program: its times say nothing.
FASTEST_SECONDS_A_MESSAGE = 1.0
# How far apart its messages are taken to be then.
ASSUMED_SECONDS_A_MESSAGE = 60.0
# Messages of a page of sizes, and pages that are kept: of what lies between a cursor and the newest
# message mostly the first and the last are asked for.
PAGE, PAGES_KEPT = 256, 8
NONE = -1


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


class SizeReader(Protocol):
    """Reads sizes from where they are stored."""

    def __call__(self, after: int, through: int | None) -> Iterable[MessageSize]:
        """Return those behind a position up to another one (None: to the end), in order."""
        ...


class PrefixSums(NamedTuple):
    """What is known of all messages before a place: sums, the latest time, the newest of a kind.

    `question`, `turn_end` (a question or a final answer) and `spoken` (no note) are the numbers of
    messages, NONE where there is none before the place.
    """

    tokens: int = 0
    chars: int = 0
    seconds: float = -math.inf
    question: int = NONE
    turn_end: int = NONE
    spoken: int = NONE

    def behind(self, size: MessageSize, number: int) -> PrefixSums:
        """Return the same for the place behind one more message, which has that number."""
        return PrefixSums(
            self.tokens + size.tokens,
            self.chars + size.chars,
            max(self.seconds, size.seconds),
            number if size.is_question else self.question,
            number if size.is_question or size.is_final_answer else self.turn_end,
            self.spoken if size.is_note else number,
        )


class SizePage(NamedTuple):
    """Consecutive messages, and what is known before each of them."""

    sizes: Sequence[MessageSize]
    sums: Sequence[PrefixSums]


class ConversationSums:
    """The sizes of a conversation's messages, and sums over stretches of them.

    Messages are numbered without the rules, which stand apart. Rules and pinned messages are held,
    as each request holds them; of the others a few pages are. What is stored meanwhile is not seen.
    """

    def __init__(self, read: SizeReader) -> None:
        self._read = read
        self.rules: set[int] = set()
        """The positions of the rules."""
        self.pinned = array("l")
        self._pinned: dict[int, MessageSize] = {}
        self._pinned_tokens, self._pinned_chars = array("q", [0]), array("q", [0])
        # How many messages stand before each rule, and the sums of the rules.
        self._rule_numbers = array("l")
        self._rule_tokens, self._rule_chars = array("q", [0]), array("q", [0])
        self._starts: list[PrefixSums] = []
        self._positions = array("q")
        self._page = lru_cache(maxsize=PAGES_KEPT)(self._read_page)
        self._count, self._last, first = 0, 0, 0.0
        self._whole = PrefixSums()
        for one in read(0, None):
            if one.is_rule:
                self._add_rule(one)
                continue
            if not self._count:
                first = one.seconds
            self._add(one)
        passed = self._whole.seconds - first
        self._is_timeless = passed < FASTEST_SECONDS_A_MESSAGE * (self._count - 1)

    def _add_rule(self, size: MessageSize) -> None:
        self.rules.add(size.position)
        self._rule_numbers.append(self._count)
        self._rule_tokens.append(self._rule_tokens[-1] + size.tokens)
        self._rule_chars.append(self._rule_chars[-1] + size.chars)

    def _add(self, size: MessageSize) -> None:
        number = self._count
        if number % PAGE == 0:
            self._starts.append(self._whole)
            self._positions.append(size.position)
        if size.pinned:
            self.pinned.append(number)
            self._pinned[number] = size
            self._pinned_tokens.append(self._pinned_tokens[-1] + size.tokens)
            self._pinned_chars.append(self._pinned_chars[-1] + size.chars)
        self._whole = self._whole.behind(size, number)
        self._count, self._last = number + 1, size.position

    def _read_page(self, page: int) -> SizePage:
        is_last = page + 1 == len(self._positions)
        through = self._last if is_last else self._positions[page + 1] - 1
        sizes: list[MessageSize] = []
        sums, known = [], self._starts[page]
        for one in self._read(self._positions[page] - 1, through):
            # Somebody may pin a system message meanwhile: it keeps its number.
            if one.position not in self.rules:
                sums.append(known)
                known = known.behind(one, page * PAGE + len(sizes))
                sizes.append(one)
        return SizePage(sizes, sums)

    def __len__(self) -> int:
        """How many messages there are without the rules."""
        return self._count

    def message(self, number: int) -> MessageSize:
        """Return the size of one message."""
        return self._pinned.get(number) or self._page(number // PAGE).sizes[number % PAGE]

    def _before(self, count: int) -> PrefixSums:
        """Return what is known of so many messages."""
        if count == self._count:
            return self._whole
        page, place = divmod(count, PAGE)
        return self._page(page).sums[place] if place else self._starts[page]

    def tokens(self, start: int, end: int) -> int:
        """Return the tokens of a stretch of messages, rules not counted."""
        return self._before(end).tokens - self._before(start).tokens

    def chars(self, start: int, end: int) -> int:
        """Return the characters of a stretch of messages, rules not counted."""
        return self._before(end).chars - self._before(start).chars

    def rules_stored(self, count: int) -> int:
        """Return how many rules are there when so many messages have come."""
        return bisect_right(self._rule_numbers, count)

    def rules_covered(self, count: int) -> int:
        """Return how many rules stand before the last of so many messages."""
        return bisect_left(self._rule_numbers, count)

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

    def pinned_chars(self, start: int, end: int) -> int:
        """Return their characters."""
        first, last = bisect_left(self.pinned, start), bisect_left(self.pinned, end)
        return self._pinned_chars[last] - self._pinned_chars[first]

    def results_in(self, start: int, end: int) -> Sequence[int]:
        """Return the numbers of the tool results of a stretch."""
        return [number for number in range(start, end) if self.message(number).role == "tool"]

    def question_before(self, end: int) -> int | None:
        """Return the number of the newest question before a message; None where nobody asked."""
        found = self._before(end).question
        return None if found == NONE else found

    def question_from(self, start: int, end: int) -> int | None:
        """Return the number of the first question of a stretch; None where there is none."""
        if self._before(end).question < start:
            return None
        return next(number for number in range(start, end) if self.message(number).is_question)

    def split_question(self, cursor: int, end: int, *, start: int = 0) -> int | None:
        """Return the number of the question whose turn a cursor parts, where it is still open.

        It is sent although it stands before the cursor; None where a turn ended there, where it is
        answered behind or another one is asked, or where it is pinned and sent in any case. What is
        sent of the messages behind the cursor begins at `start`.
        """
        known = self._before(cursor)
        if known.spoken == NONE or self.message(known.spoken).is_final_answer:
            return None
        if known.question == NONE or known.question in self._pinned:
            return None
        is_over = self._before(end).turn_end >= max(cursor, start)
        return None if is_over else known.question

    def seconds(self, count: int) -> float:
        """Return when so many messages had come; evenly apart where times cannot be true."""
        count = min(count, self._count)
        if not count or self._is_timeless:
            return ASSUMED_SECONDS_A_MESSAGE * max(0, count - 1)
        return self._before(count).seconds
