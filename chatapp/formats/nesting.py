"""Trees that are written inside each other, deeper than a reader of JSON goes.

Some exports nest every answer in its question: a conversation of 60 messages is 120 levels deep,
one of thousands deeper than any parser's stack. `flattened` writes such a text anew, with all
descendants of a node in one list.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

NESTED_UNDER = "nested_under"
"""Key of a node in a list of all descendants: the index of its parent in that list."""

CHILD_KEYS = frozenset({'"children"', '"replies"'})
"""Keys, as they stand in the text, of lists that hold nodes of the same kind as their owner."""

# A text that does not end is a token, too: looking for its end again and again would take long.
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
_COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
_OBJECT = re.compile(r"[ \t\r\n]*\{[ \t\r\n]*")
_CLOSING = {"{": "}", "[": "]"}


@dataclass(slots=True)
class _Family:
    """A node whose list of children takes up all its descendants, in the order of the text."""

    texts: list[list[str]] = field(default_factory=list)

    def written(self) -> str:
        return ",".join("".join(pieces) for pieces in self.texts)


@dataclass(slots=True)
class _Open:
    """A bracket that is still open; `node` is set where it begins a node of a family."""

    sign: str
    holds_nodes: bool = False
    node: int | None = None


class _Writer:
    """Writes the text of one value piece by piece; what belongs to a node goes to that node."""

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._from = start
        self._root: list[str] = []
        self._family: _Family | None = None
        self._open: list[_Open] = []
        self._nodes: list[int] = []
        self.has_moved = False

    def opens(self, sign: str, at: int, *, holds_nodes: bool) -> None:
        """Take an opening bracket."""
        around = self._open[-1] if self._open else None
        if around is not None and around.holds_nodes and sign == "{":
            self._begin_node(at)
            return
        self._open.append(_Open(sign, holds_nodes=holds_nodes))
        if holds_nodes:
            self._flush(at + 1)
            self._family = self._family or _Family()

    def closes(self, sign: str, at: int) -> bool:
        """Take a closing bracket; False where it closes nothing."""
        if not self._open or _CLOSING[self._open[-1].sign] != sign:
            return False
        closed = self._open.pop()
        if closed.node is not None:
            self._flush(at + 1)
            self._nodes.pop()
        elif closed.holds_nodes:
            if not self._nodes and self._family is not None:
                self._root.append(self._family.written())
                self._family = None
            self._from = at
        return True

    @property
    def is_done(self) -> bool:
        """Whether the value has ended."""
        return not self._open

    def written(self, end: int) -> str:
        """Return the text of the value, which ends before `end`."""
        self._flush(end)
        return "".join(self._root)

    def _begin_node(self, at: int) -> None:
        family = self._family or _Family()
        parent = self._nodes[-1] if self._nodes else None
        self._open.append(_Open("{", node=len(family.texts)))
        self._nodes.append(len(family.texts))
        family.texts.append([])
        self._from = at
        if parent is None:
            return
        found = _OBJECT.match(self._text, at)
        end = found.end() if found else at + 1
        comma = "" if self._text[end : end + 1] == "}" else ","
        family.texts[-1].append(f'{{"{NESTED_UNDER}":{parent}{comma}')
        self._from = at + 1
        self.has_moved = True

    def _flush(self, end: int) -> None:
        pieces = self._root
        if self._nodes and self._family is not None:
            pieces = self._family.texts[self._nodes[-1]]
        pieces.append(self._text[self._from : end])
        self._from = end


def flattened(text: str, start: int) -> tuple[str, int] | None:
    """The value that begins at `start`, written flatter, and where it ends in the text.

    In a list of children that stands in no other, all descendants follow each other; those that
    were nested say under which of them (`nested_under`, an index into the list). None where
    nothing is nested like that, or the brackets do not fit.
    """
    if not any(text.find(key, start) >= 0 for key in CHILD_KEYS):
        return None
    writer = _Writer(text, start)
    key, key_end = "", -1
    position = start
    while token := _TOKEN.search(text, position):
        sign, at, position = token.group(), token.start(), token.end()
        if sign[0] == '"':
            key, key_end = sign if len(sign) < 20 else "", position
        elif sign in _CLOSING:
            is_list_of_nodes = (
                sign == "["
                and key in CHILD_KEYS
                and _OBJECT.match(text, position) is not None
                and (colon := _COLON.match(text, key_end)) is not None
                and colon.end() == at
            )
            writer.opens(sign, at, holds_nodes=is_list_of_nodes)
        elif not writer.closes(sign, at):
            return None
        elif writer.is_done:
            return (writer.written(position), position) if writer.has_moved else None
    return None
