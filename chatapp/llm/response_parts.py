"""The parts of an item of a response: what an event at a part's end says that was not told yet.

A part comes in pieces, whole at its end (`output_text.done`), whole again (`content_part.done`),
or in any of these alone. Some servers do not number the parts, or give all the same number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from chatapp.llm.growing_text import GrowingText

END, WHOLE_PART = "end", "whole part"
"""The two ways in which a part's end is told; a part may have both."""
_WAYS: Final = (END, WHOLE_PART)
TEXT, REFUSAL, THOUGHTS, DIGEST = "text", "refusal", "thoughts", "digest"
"""What parts are of; a digest is the summary of thoughts."""
_BY_TYPE: Mapping[str, str] = {
    "refusal": REFUSAL,
    "reasoning_text": THOUGHTS,
    "summary_text": DIGEST,
}


def kind_of(part: Mapping[str, Any]) -> str:
    """Return what a part is of; a text, where its type says nothing else."""
    return _BY_TYPE.get(str(part.get("type")), TEXT)


class _Unended:
    """The text of pieces whose end was not told yet; a part of it may have been."""

    __slots__ = ("ended", "start", "text")

    def __init__(self) -> None:
        self.ended = ""  # the last text that was told as a whole
        self.begin()

    def begin(self) -> None:
        """Forget the pieces: their end has come."""
        self.text, self.start = GrowingText(), 0

    def rest_of(self, whole: str) -> str:
        """Return what the end of a part says behind its pieces.

        All of it where it had none, and nothing where it says something else than they did: what
        was told stays as it is.
        """
        left = len(self.text) - self.start
        if not left:
            is_news, self.ended = whole != self.ended, whole
            return whole if is_news else ""
        told = str(self.text)
        if told.startswith(whole, self.start) and left > len(whole):
            # The pieces of several parts had no numbers; the other parts' ends follow.
            self.start += len(whole)
            return ""
        opens = left <= len(whole) and whole.startswith(told[self.start :])
        self.ended = whole
        self.begin()
        return whole[left:] if opens else ""


class PartTexts:
    """The parts of one item, by what they are of and their number."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: defaultdict[tuple[str, int | None], dict[str, _Unended]] = defaultdict(
            lambda: {way: _Unended() for way in _WAYS}
        )

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._parts)

    def take(self, of: str, number: Any, piece: str) -> None:
        """Take a piece of a part in."""
        for unended in self._of(of, number).values():
            unended.text.add(piece)

    def rest_of(self, of: str, number: Any, whole: str, *, way: str) -> str:
        """Return what an end says that no piece and no other end has said."""
        if not whole:
            return ""
        ways = self._of(of, number)
        rest = ways[way].rest_of(whole)
        for other, unended in ways.items():
            if other != way:
                unended.text.add(rest)
        return rest

    def _of(self, of: str, number: Any) -> dict[str, _Unended]:
        return self._parts[of, number if isinstance(number, int) else None]
