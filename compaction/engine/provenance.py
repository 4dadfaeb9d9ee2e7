"""Where the lines of a summary come from: clauses of messages, and what they are worth.

A `Unit` is one clause that somebody wrote, with its place. A pass of compaction chooses from all
units of the covered messages, those of earlier passes included, so that nothing is summarised twice
and nothing wears away. A `SourcedLine` is one line of a finished summary with its sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple


class UnitKind(StrEnum):
    """What a clause is about."""

    RULE = "rule"
    REQUEST = "request"
    DECISION = "decision"
    QUESTION = "question"
    FACT = "fact"
    ACTION = "action"
    CHANGE = "change"


class Origin(StrEnum):
    """How a line of a summary is known to come from its messages."""

    EXACT = "exact"
    CITED = "cited"
    MATCHED = "matched"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePiece:
    """A piece of a message: its id, and the offsets of the piece in the message's content.

    Offsets are code points; both are 0 where the message as a whole is meant, or a tool call of it.
    """

    message: Any
    start: int = 0
    end: int = 0


class Unit(NamedTuple):
    """One clause, verbatim but for white space, with who said it and where.

    `worth` is what it counts before anything else is chosen (1 is an ordinary clause of a user);
    `entities` are the keys of what it names. `note` says which older value it replaces or removes.
    `message` is None where only an older summary's text is known. `position` orders units.
    """

    text: str
    kind: UnitKind
    speaker: str
    position: int
    message: Any = None
    start: int = 0
    end: int = 0
    entities: tuple[str, ...] = ()
    worth: float = 1.0
    note: str = ""

    @property
    def source(self) -> SourcePiece | None:
        """The piece of a message that reproduces the text; None where nobody knows."""
        if self.message is None:
            return None
        return SourcePiece(message=self.message, start=self.start, end=self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcedLine:
    """One line of a summary: its offsets in the summary's text, and the pieces it comes from."""

    start: int
    end: int
    origin: Origin
    sources: tuple[SourcePiece, ...] = ()
