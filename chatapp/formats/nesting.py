"""Trees that are written inside each other, deeper than a reader of JSON goes.

Some exports nest every answer in its question: a conversation of 60 messages is 120 levels deep,
one of thousands deeper than any parser's stack. `flattened` writes such a text anew, with all
descendants of a node in one list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from chatapp.formats.stored_json import DROPPED_EACH, Buffer, drop_pages

NESTED_UNDER = "nested_under"
"""Key of a node in a list of all descendants: the index of its parent in that list."""

CHILD_KEYS = (b'"children"', b'"replies"')
"""Keys, as they stand in the text, of lists that hold nodes of the same kind as their owner."""

# A text that does not end is a token, too: looking for its end again and again would take long.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
_COLON = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")
_OBJECT = re.compile(rb"[ \t\r\n]*\{[ \t\r\n]*")
_CLOSING = {b"{": b"}", b"[": b"]"}
_LONGEST_KEY = max(map(len, CHILD_KEYS))

Piece = bytes | tuple[int, int]
"""What is written: bytes, or from where to where they stand in the text."""


@dataclass(slots=True)
class _Family:
    """A node whose list of children takes up all its descendants, in the order of the text."""

    texts: list[list[Piece]] = field(default_factory=list)

    def written(self) -> Iterator[Piece]:
        for number, pieces in enumerate(self.texts):
            if number:
                yield b","
            yield from pieces


@dataclass(slots=True)
class _Open:
    """A bracket that is still open; `node` is set where it begins a node of a family."""

    sign: bytes
    holds_nodes: bool = False
    node: int | None = None


class _Writer:
    """Writes the text of one value piece by piece; what belongs to a node goes to that node."""

    def __init__(self, text: Buffer, start: int) -> None:
        self._text = text
        self._from = start
        self._root: list[Piece] = []
        self._family: _Family | None = None
        self._open: list[_Open] = []
        self._nodes: list[int] = []
        self.has_moved = False

    def opens(self, sign: bytes, at: int, *, holds_nodes: bool) -> None:
        """Take an opening bracket."""
        around = self._open[-1] if self._open else None
        if around is not None and around.holds_nodes and sign == b"{":
            self._begin_node(at)
            return
        self._open.append(_Open(sign, holds_nodes=holds_nodes))
        if holds_nodes:
            self._flush(at + 1)
            self._family = self._family or _Family()

    def closes(self, sign: bytes, at: int) -> bool:
        """Take a closing bracket; False where it closes nothing."""
        if not self._open or _CLOSING[self._open[-1].sign] != sign:
            return False
        closed = self._open.pop()
        if closed.node is not None:
            self._flush(at + 1)
            self._nodes.pop()
        elif closed.holds_nodes:
            if not self._nodes and self._family is not None:
                self._root += self._family.written()
                self._family = None
            self._from = at
        return True

    @property
    def is_done(self) -> bool:
        """Whether the value has ended."""
        return not self._open

    def written(self, end: int) -> Iterator[bytes]:
        """Yield the text of the value, which ends before `end`."""
        self._flush(end)
        dropped = 0
        for piece in self._root:
            if isinstance(piece, bytes):
                yield piece
                continue
            yield self._text[piece[0] : piece[1]]
            if abs(piece[1] - dropped) > DROPPED_EACH:
                drop_pages(self._text, len(self._text))
                dropped = piece[1]

    def _begin_node(self, at: int) -> None:
        family = self._family or _Family()
        parent = self._nodes[-1] if self._nodes else None
        self._open.append(_Open(b"{", node=len(family.texts)))
        self._nodes.append(len(family.texts))
        family.texts.append([])
        self._from = at
        if parent is None:
            return
        found = _OBJECT.match(self._text, at)
        end = found.end() if found else at + 1
        comma = "" if self._text[end : end + 1] == b"}" else ","
        family.texts[-1].append(f'{{"{NESTED_UNDER}":{parent}{comma}'.encode())
        self._from = at + 1
        self.has_moved = True

    def _flush(self, end: int) -> None:
        pieces = self._root
        if self._nodes and self._family is not None:
            pieces = self._family.texts[self._nodes[-1]]
        pieces.append((self._from, end))
        self._from = end


def flattened(text: str, start: int) -> tuple[str, int] | None:
    """The value that begins at `start`, written flatter, and where it ends in the text.

    In a list of children that stands in no other, all descendants follow each other; those that
    were nested say under which of them (`nested_under`, an index into the list). None where
    nothing is nested like that, or the brackets do not fit.
    """
    content = text[start:].encode("utf-8", "surrogatepass")
    found = flattened_pieces(content, 0)
    if found is None:
        return None
    pieces, end = found
    read = len(content[:end].decode("utf-8", "surrogatepass"))
    return b"".join(pieces).decode("utf-8", "surrogatepass"), start + read


def flattened_pieces(text: Buffer, start: int) -> tuple[Iterator[bytes], int] | None:
    """The same of bytes: the pieces of what `flattened` returns, and where the value ends."""
    if all(text.find(key, start) < 0 for key in CHILD_KEYS):
        return None
    writer = _Writer(text, start)
    key, key_end, dropped = b"", -1, start
    for token in _TOKEN.finditer(text, start):
        at, position = token.span()
        sign = text[at : at + 1]
        if sign == b'"':
            key = text[at:position] if position - at <= _LONGEST_KEY else b""
            key_end = position
            if at - dropped > DROPPED_EACH:
                dropped = drop_pages(text, at)
        elif sign in _CLOSING:
            is_list_of_nodes = (
                sign == b"["
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
