"""What of an answer is the model's thinking: in fields of its own, or between tags in the text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from chatapp.llm.growing_text import GrowingText, ends_in_half, joined_halves
from chatapp.messages.patterns import lazy_pattern
from chatapp.messages.vendor import THOUGHT_PARTS, THOUGHT_TEXTS

_PART_KINDS = ("thinking", "reasoning", "thought", "redacted_thinking")
_TEXT_KEYS = ("text", "thinking", "content", "summary", "reasoning")
# What tells a part from an object that a model wrote.
_PART_KEYS = frozenset({"type", "parts", *_TEXT_KEYS})
# Parts inside of parts inside of parts: deeper hides no text.
_DEEPEST = 5

_NAMES = (
    "think", "thinking", "thought", "thoughts", "reasoning", "reflection", "seed:think", "mm:think",
    "o_think", "antthinking", "internal_reasoning", "inner_monologue", "chain_of_thought",
)  # fmt: skip
_TAGS: Mapping[str, str] = {
    **{f"<{name}>": f"</{name}>" for name in _NAMES},
    "◁think▷": "◁/think▷",
    "[think]": "[/think]",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|start_thinking|>": "<|end_thinking|>",
    "<|thinking|>": "<|/thinking|>",
    "<|think|>": "<|/think|>",
    "<|inner_prefix|>": "<|inner_suffix|>",
    "<unused94>": "<unused95>",
    "<|channel>thought": "<channel|>",
    "<|channel|>analysis<|message|>": "<|channel|>final<|message|>",
    "<|start|>assistant<|channel|>analysis<|message|>": "<|channel|>final<|message|>",
}
_CLOSINGS = tuple(dict.fromkeys(_TAGS.values()))
_PREFIXES = frozenset(tag[:length] for tag in (*_TAGS, *_CLOSINGS) for length in range(1, len(tag)))
_LONGEST_PREFIX = max(map(len, _PREFIXES))


# A tag of a name may have attributes: <think type="deep">. What else stands behind the name makes
# it words of a text: "<thought experiments> are allowed".
_LONGEST_ATTRIBUTES = 300
_VALUE = r"(?:\"[^\"<>]{0,200}\"|'[^'<>]{0,200}'|[^\s\"'<>=]{1,100})"
_ATTRIBUTES = (
    rf"(?=[^<>]{{0,{_LONGEST_ATTRIBUTES}}}>)"
    rf"(?:\s{{1,8}}[a-z][\w:.-]{{0,40}}\s{{0,2}}=\s{{0,2}}{_VALUE}){{0,8}}\s{{0,8}}>"
)
_OF_NAMES = rf"<(?:{'|'.join(_NAMES)})"
_BEGUN = lazy_pattern(rf"{_OF_NAMES}\s[^<>]{{0,{_LONGEST_ATTRIBUTES}}}\Z", re.IGNORECASE)
"""A tag of which the attributes are not all there yet."""
_LONGEST_BEGUN = max(map(len, _NAMES)) + _LONGEST_ATTRIBUTES + 2


def _any_of(tags: Sequence[str]) -> str:
    return "|".join(map(re.escape, tags))


_OPENINGS = rf"{_any_of(tuple(_TAGS))}|{_OF_NAMES}{_ATTRIBUTES}"
_OPENING = lazy_pattern(_OPENINGS, re.IGNORECASE)
_CLOSING = {closing: lazy_pattern(re.escape(closing), re.IGNORECASE) for closing in _CLOSINGS}
# A longer run of backticks is several: none is waited for without end.
_LONGEST_TICKS = 64
_MARK = lazy_pattern(
    rf"(?P<code>`{{1,{_LONGEST_TICKS}}})|(?P<line>\n)|(?P<opening>{_OPENINGS})"
    rf"|(?P<closing>{_any_of(_CLOSINGS)})",
    re.IGNORECASE,
)
_BEGINNING = lazy_pattern(rf"[`\n{re.escape(''.join({tag[0] for tag in (*_TAGS, *_CLOSINGS)}))}]")
# What remains of a chat template between thoughts and answer.
_TEMPLATE = lazy_pattern(r"(?:<\|end\|>)?(?:<\|start\|>assistant)?\Z")
# Blanks that may stand before a tag. Behind more than so many nobody expects one.
_BLANKS = " \t\r\n\f\v\u00a0\u200b\u2060\ufeff"
_LONGEST_LEAD = 1000
# A long text is taken in slices: what remains of it is copied behind each tag.
_LONGEST_PIECE = 4_096
# How much of the text before a tag decides about it.
_BEFORE_CHARS = 32
_OPENING_QUOTES = "\"'“‘«([{"
_SENTENCE_ENDS = ".!?…:。！？"


_THOUGHT_NAMES = frozenset((*THOUGHT_TEXTS, *THOUGHT_PARTS))


def thoughts_of(message: Mapping[str, Any]) -> tuple[str, str]:
    """Return the thoughts that a message, or a piece of one, has in fields, and the field's name.

    The name is empty where they came as an object or in parts: as such they are kept whole.
    """
    # Asked of every piece of a stream: mostly it has a text alone.
    if _THOUGHT_NAMES.isdisjoint(message):
        return "", ""
    for name in THOUGHT_TEXTS:
        value = message.get(name)
        if isinstance(value, str) and value:
            return value, name
    for name in (*THOUGHT_TEXTS, *THOUGHT_PARTS):
        if text := _told(message.get(name)):
            return text, ""
    return "", ""


def content_of(content: Any) -> tuple[str, str]:
    """Return the text of an answer's content, and the thoughts that are among its parts."""
    if isinstance(content, str):
        return content, ""
    if isinstance(content, Mapping) and (_PART_KEYS & content.keys() or not content):
        # One part alone; some put the texts of several into an object.
        content = content.get("parts", [content])
    if not isinstance(content, list):
        return _as_text(content), ""
    said, thought = [], []
    for part in content:
        if not isinstance(part, Mapping):
            said.append(part if isinstance(part, str) else "")
        elif part.get("type") in _PART_KINDS or part.get("thought") is True:
            thought.append(_told(part))
        else:
            said.append(_text_in(part))
    return "".join(said), "".join(thought)


def _as_text(content: Any) -> str:
    """Return a content that is no list: some read the JSON that was asked for, and send a value."""
    if isinstance(content, str) or content is None or isinstance(content, bool):
        return content if isinstance(content, str) else ""
    return json.dumps(content, ensure_ascii=False)


def _text_in(part: Mapping[str, Any]) -> str:
    """Return the text of a part: as a text, or in an object that has it as its value."""
    text = part.get("text")
    text = text.get("value") if isinstance(text, Mapping) else text
    return text if isinstance(text, str) else ""


def other_parts(content: Any) -> list[Mapping[str, Any]]:
    """Return the parts of a content that are neither text nor thoughts: images, recordings."""
    return [
        part
        for part in (content if isinstance(content, list) else [])
        if isinstance(part, Mapping)
        and part.get("type") not in (*_PART_KINDS, "refusal", "tool_use")
        and not isinstance(part.get("text"), str | Mapping)
    ]


def _told(value: Any, depth: int = 0) -> str:
    """Return the text in a value of whatever form: a text, an object that has one, a list."""
    if isinstance(value, str) or depth > _DEEPEST:
        return value if isinstance(value, str) else ""
    if isinstance(value, list):
        return "".join(_told(one, depth + 1) for one in value)
    if isinstance(value, Mapping):
        texts = (_told(value.get(key), depth + 1) for key in _TEXT_KEYS)
        return next((text for text in texts if text), "")
    return ""


def split(text: str) -> tuple[str, str]:
    """Return a whole answer's text without the thoughts at its start, and the thoughts."""
    splitter = ThoughtSplitter()
    splitter.feed(text)
    splitter.finish()
    return splitter.text, splitter.thoughts


def _ignore(*_: Any) -> None:
    pass


class ThoughtSplitter:
    """Parts an answer that comes in pieces into its text and the thoughts at its start.

    Thoughts stand between tags, or before a closing tag alone, where the chat template had opened
    it; a tag that is never closed leaves no text. A tag in code, or behind the start of the text,
    is text. `show` and `think` are told what is new of both; `take_back` is called when what was
    shown turns out to be thoughts. The result does not depend on where the pieces are cut.
    """

    def __init__(
        self,
        show: Callable[[str], object] = _ignore,
        think: Callable[[str], object] = _ignore,
        take_back: Callable[[], object] = _ignore,
    ) -> None:
        self._show, self._think, self._take_back = show, think, take_back
        self._said, self._thought = GrowingText(), GrowingText()
        self._rest = ""
        self._half = ""  # of a character: nobody can show it alone
        self._step: Callable[[bool], bool] = self._begin
        self._closing = ""
        self._closed = False  # thoughts have ended before
        self._looks = True  # for a closing tag alone
        self._code = ""  # the backticks that opened code
        self._before = ""

    @property
    def text(self) -> str:
        """The text so far."""
        return str(self._said)

    @property
    def thoughts(self) -> str:
        """The thoughts so far."""
        return _TEMPLATE.sub("", str(self._thought).rstrip()).strip()

    def feed(self, piece: str) -> None:
        """Take a piece in."""
        piece = joined_halves(self._half, piece)
        self._half = piece[-1] if ends_in_half(piece) else ""
        piece = piece.removesuffix(self._half)
        for start in range(0, len(piece), _LONGEST_PIECE):
            self._rest += piece[start : start + _LONGEST_PIECE]
            self._advance(final=False)

    def finish(self) -> None:
        """Take it that nothing follows."""
        self._rest, self._half = self._rest + self._half, ""
        self._advance(final=True)

    def _advance(self, *, final: bool) -> None:
        while self._step(final):
            pass

    def _begin(self, final: bool) -> bool:
        """At the start, or behind thoughts: is there a tag? Return whether to go on."""
        body = self._rest.lstrip(_BLANKS)
        if self._closed:
            self._rest = body
        if len(self._rest) - len(body) >= _LONGEST_LEAD:
            self._step = self._in_text
            return True
        if not body and not final:
            return False
        if found := _OPENING.match(body):
            self._closing = _closing_of(found[0].lower())
            self._rest = body[found.end() :]
            self._step = self._in_thoughts
            return True
        if not final and (body.lower() in _PREFIXES or _BEGUN.match(body)):
            return False
        self._looks = not self._closed
        self._step = self._in_text
        return True

    def _in_thoughts(self, final: bool) -> bool:
        found = _CLOSING[self._closing].search(self._rest)
        if found is None:
            self._thinks(self._taken(len(self._rest) - (0 if final else _held(self._rest))))
            return False
        self._thinks(self._taken(found.start()))
        self._rest = self._rest[found.end() - found.start() :]
        self._closed, self._step = True, self._begin
        return True

    def _in_text(self, final: bool) -> bool:
        if not self._looks:
            self._says(self._taken(len(self._rest)))
            return False
        end = len(self._rest) - (0 if final else _held(self._rest))
        for mark in _marks(self._rest):
            if mark.start() >= end:
                break  # in what may be a tag
            if not final and mark.end() == len(self._rest) and _may_grow(mark):
                end = min(end, mark.start())  # what follows decides
                break
            if mark.lastgroup == "closing" and not self._code and self._ends_thoughts(mark):
                self._turn_into_thoughts(mark)
                return True
            if mark.lastgroup == "opening" and not self._code:
                self._looks = False
                return True
            self._follow_code(mark)
        self._says(self._taken(end))
        return False

    def _follow_code(self, mark: re.Match[str]) -> None:
        if mark.lastgroup == "line" and len(self._code) < 3:
            self._code = ""  # a lone backtick is no code
        elif mark.lastgroup == "code":
            run = mark[0]
            if not self._code:
                self._code = run
            elif run == self._code or len(self._code) >= 3 <= len(run):
                self._code = ""

    def _ends_thoughts(self, mark: re.Match[str]) -> bool:
        """Whether a closing tag without an opening one closes, and is not talked about."""
        near = self._rest[max(0, mark.start() - _BEFORE_CHARS) : mark.start()]
        before = (self._before + near)[-_BEFORE_CHARS:]
        after = self._rest[mark.end() : mark.end() + 1]
        if before[-1:] and before[-1] in _OPENING_QUOTES:
            return False
        if before[-1:] not in (" ", "\t") or after in ("", "\n", "\r"):
            return True
        end = before.rstrip(" \t")[-1:]
        return end in ("", "\n") or end in _SENTENCE_ENDS

    def _turn_into_thoughts(self, mark: re.Match[str]) -> None:
        shown = self.text
        thought = shown + self._rest[: mark.start()]
        self._said = GrowingText()
        if shown:
            self._take_back()
        self._thinks(thought)
        self._rest = self._rest[mark.end() :]
        self._closed, self._step = True, self._begin

    def _taken(self, end: int) -> str:
        taken, self._rest = self._rest[:end], self._rest[end:]
        return taken

    def _says(self, text: str) -> None:
        if text:
            self._before = (self._before + text)[-_BEFORE_CHARS:]
            self._said.add(text)
            self._show(text)

    def _thinks(self, text: str) -> None:
        if text:
            self._thought.add(text)
            self._think(text)


def _marks(text: str) -> Iterator[re.Match[str]]:
    """Yield what _MARK finds, trying it only where one may begin: most of a text is words."""
    end = 0
    for begun in _BEGINNING.finditer(text):
        if begun.start() >= end and (mark := _MARK.match(text, begun.start())):
            end = mark.end()
            yield mark


def _may_grow(mark: re.Match[str]) -> bool:
    """Whether what follows a mark at the end of what has come decides about it."""
    return mark.lastgroup != "line" and len(mark[0]) != _LONGEST_TICKS


def _closing_of(tag: str) -> str:
    """Return what closes thoughts that a tag opened, with or without attributes."""
    return _TAGS.get(tag) or _TAGS[f"{tag.split()[0]}>"]


def _held(text: str) -> int:
    """Return how many characters at the end of a text may be the beginning of a tag."""
    if begun := _BEGUN.search(text, max(0, len(text) - _LONGEST_BEGUN)):
        return len(text) - begun.start()
    for length in range(min(len(text), _LONGEST_PREFIX), 0, -1):
        if text[-length:].lower() in _PREFIXES:
            return length
    return 0
