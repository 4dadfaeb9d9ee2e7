"""Stored text on a terminal: what it could do there is made visible, and long lines are wrapped."""

from __future__ import annotations

import unicodedata

from chatapp.management.terminal import display_width

TAB = " " * 4


def printable(text: str) -> str:
    r"""Return a text with everything a terminal would obey written out: ESC as `\x1b`.

    Control characters, invisible ones and those that turn the reading direction are escaped as in
    Python; newlines, tabs and spaces of any width stay. A CR before a newline is part of it.
    """
    text = text.replace("\r\n", "\n")
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(map(_visible, text))


def one_line(text: str) -> str:
    """Return a printable text for a heading: newlines and tabs are spaces."""
    return printable(" ".join(text.split()))


def _visible(character: str) -> str:
    if character in "\n\t" or character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode("ascii")


def wrapped(text: str, width: int) -> list[str]:
    """Return a printable text in lines of at most `width` cells; its own indentation stays."""
    lines: list[str] = []
    for line in text.split("\n"):
        lines += _pieces(line.replace("\t", TAB), width)
    return lines


def _pieces(line: str, width: int) -> list[str]:
    # By offsets: a text of megabytes without a newline must not be copied for every piece.
    pieces, start = [], 0
    # A break inside the indentation would leave a line of nothing.
    indentation = len(line) - len(line.lstrip())
    while (end := _end_of_piece(line, start, width)) < len(line):
        space = end if line[end] == " " else line.rfind(" ", max(start + 1, indentation), end)
        pieces.append(line[start : space if space > 0 else end].rstrip())
        start = space + 1 if space > 0 else end
    return [*pieces, line[start:].rstrip()]


def _end_of_piece(line: str, start: int, width: int) -> int:
    """Return behind which character at most `width` cells are full; one is taken at least."""
    piece = line[start : start + width]
    if piece.isascii():
        return start + len(piece)
    used, end = 0, start
    while end < len(line):
        used += display_width(line[end])
        if used > width:
            return max(end, start + 1)
        end += 1
    return end
