"""What both wires do with a stream: follow it to its end, or say why it has none."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, Protocol

from chatapp.conf import chatapp_settings
from chatapp.llm.answer_ends import CUT_OFF
from chatapp.llm.cut_json import read_cut
from chatapp.llm.errors import ErrorKind, ModelError, amid_answer, from_words
from chatapp.llm.growing_text import GrowingJson
from chatapp.llm.requests import ModelRequest, OnEvent, Reply
from chatapp.llm.thoughts import ThoughtSplitter

DONE: Final[dict[str, Any]] = {}
"""Stands for `[DONE]`, known by its identity: the server says that nothing follows."""
CUT: Final[dict[str, Any]] = {}
"""Stands for all that follows a piece that was too long; it is read no further."""
BYTES_BESIDE_ANSWER: Final = 1_000_000
"""An event holds an answer of the longest length at most, and what is told beside it."""
MOST_ITEMS: Final = 2_000
"""Of one answer: without words an answer could have calls without end."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DONE_CHARS = len("[DONE]")
# What begins a line of an event. Other lines are words, of which the first ones are kept.
_FIELD = re.compile(rb"\s*$|:|(?:data|event|id|retry)(?::|$)")
_MOST_WORDS, _LONGEST_WORDS = 40, 500
# Tabs and line ends stand in the texts of servers that write their JSON by hand.
_DECODER = json.JSONDecoder(strict=False)
_BETWEEN = re.compile(r"[\s,]*(?:data:\s*)?")
_RECORD_MARK = b"\x1e"
"""What `application/json-seq` puts before each object."""


class StreamedAnswer(Protocol):
    """An answer that is put together piece by piece."""

    finish_reason: str
    told_end: bool
    """Whether the server said that nothing follows."""

    @property
    def ended(self) -> bool:
        """Whether the server said that the answer is whole."""
        ...

    @property
    def closed(self) -> bool:
        """Whether nothing more can follow, so that nobody has to wait for the connection."""
        ...

    @property
    def characters(self) -> int:
        """How long what is longest of it has become: its text, its thoughts or its calls."""
        ...

    @property
    def items(self) -> int:
        """How many calls it has, and other things that are told apart."""
        ...

    def take(self, body: dict[str, Any]) -> None:
        """Take one piece in; raise ModelError for an error sent as a piece."""
        ...

    def finish(self) -> None:
        """Tell what was held back of a text that has come to its end."""
        ...

    def reply(self, finish_reason: str) -> Reply:
        """Return what has arrived so far."""
        ...


def follow(
    answer: StreamedAnswer,
    pieces: Iterable[Any],
    request: ModelRequest,
    as_model_error: Callable[[Exception], ModelError],
) -> Reply:
    """Return the Reply of a stream; `answer` takes every piece in.

    `as_model_error` reads the exceptions of whatever the pieces come through. A failure half-way
    raises ModelError with `partial`: the Reply as far as it had come. An answer that is longer than
    any may be is read no further, and is one that was cut off.
    """
    has_begun = False
    longest = chatapp_settings.max_answer_chars
    try:
        for piece in pieces:
            has_begun = True
            if piece is DONE:
                answer.told_end = True
                break
            if piece is CUT:
                return _too_long(answer)
            answer.take(plain(piece))
            if answer.closed:
                break
            if answer.characters > longest or answer.items > MOST_ITEMS:
                return _as_cut(answer)
            if request.cancelled():
                raise ModelError(ErrorKind.CANCELLED)
            if request.deadline is not None and time.monotonic() > request.deadline:
                raise ModelError(ErrorKind.TIMEOUT, "The answer took longer than a turn may.")
        if not answer.ended:
            raise ModelError(ErrorKind.BROKEN_ANSWER, "The stream ended without an answer's end.")
    except ModelError as error:
        error.partial = answer.reply("interrupted")
        raise
    except Exception as error:
        # A connection that breaks behind the end of an answer takes nothing of it away.
        if not answer.finish_reason:
            failure = as_model_error(error)
            if has_begun and isinstance(error, ValueError):
                # Words among the pieces: the server's, or a gateway's, of what went wrong.
                failure = amid_answer(failure)
            if has_begun and failure.kind is ErrorKind.UNAVAILABLE and failure.status is None:
                # The server was reached; its connection was lost in the middle of the answer.
                failure = ModelError(ErrorKind.BROKEN_ANSWER, failure.detail)
            failure.partial = answer.reply("interrupted")
            raise failure from error
    answer.finish()
    return answer.reply(answer.finish_reason or "stop")


def _too_long(answer: StreamedAnswer) -> Reply:
    """Return what had come of an answer before a piece that was too long, if anything had."""
    if answer.characters:
        return _as_cut(answer)
    raise ModelError(
        ErrorKind.BAD_ANSWER,
        f"An event of the stream has more than {_longest_event():,} bytes; it was not read.",
    )


def _longest_event() -> int:
    """Return the bytes of one event that are held; all answers of models are far shorter."""
    return chatapp_settings.max_answer_chars + BYTES_BESIDE_ANSWER


def _as_cut(answer: StreamedAnswer) -> Reply:
    """Return an answer that is read no further; nobody goes on from its server's longer one."""
    answer.finish()
    return replace(answer.reply(CUT_OFF), response_id="")


def pieces_of(chunks: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a stream of server-sent events, and DONE where the server says so.

    The SDK would read them, too, but keep it to itself whether `[DONE]` came: without it, a stream
    that breaks off looks like one that ends. An object in a line of its own is a piece as well:
    some servers send nothing else, others an error in the middle of their events. Raises
    ValueError for data that is no JSON, and ModelError for a page of words without any piece.
    """
    words: list[str] = []
    has_pieces = False
    for piece in _pieces(chunks, words):
        has_pieces = True
        yield piece
    if words and not has_pieces:
        raise from_words("\n".join(words))


def _pieces(chunks: Iterable[bytes], words: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the pieces; `words` gets the first lines that belong to none."""
    event, longest = _Event(), _longest_event()
    for line in _lines(chunks, longest=longest):
        if event.is_over_before(line):
            yield from event.taken()
        if len(line) + len(event) > longest:
            yield from _beginning(event.name, f"{event.data}{_text(line.removeprefix(b'data:'))}")
            return
        if line.startswith((b"{", b"[")) and not event.data:
            yield from _bare(line)
        elif not event.add(line):
            for piece in event.taken():
                yield piece
                if piece is DONE:
                    return
        elif not event.data and len(words) < _MOST_WORDS and not _FIELD.match(line):
            words.append(_text(line[:_LONGEST_WORDS]))
    # The last one may lack the empty line behind it; half of one is nothing.
    with contextlib.suppress(ValueError):
        yield from event.taken()


class _Event:
    """One server-sent event, as far as its lines have come."""

    def __init__(self) -> None:
        self.name, self.data = "", GrowingJson()
        self._blank_lines = 0  # in a text of it

    def __len__(self) -> int:
        return len(self.data) + self._blank_lines

    def is_over_before(self, line: bytes) -> bool:
        """Whether a line begins another one, though nothing said that this one is over."""
        if not self.data or not line.startswith((b"data:", b"event:")):
            return False
        # What is whole is not gone on with; what breaks off before an empty line stays broken.
        return self._blank_lines > 0 or self.data.is_whole

    def add(self, line: bytes) -> bool:
        """Take a line in; return whether the event may go on behind it."""
        if line.startswith(b"data:"):
            self.data.add(_text(b"\n" + line[5:] if self.data else line[5:].lstrip()))
        elif line.startswith(b"event:"):
            self.name = _text(line[6:].strip())
        elif not line:
            if not self._breaks_off():
                return False
            self._blank_lines += 1
        elif self.data and self.data.is_in_string:
            # A line end that the server did not escape: the text goes on.
            self.data.add("\n" * (self._blank_lines + 1) + _text(line))
            self._blank_lines = 0
        return True

    def _breaks_off(self) -> bool:
        """Whether the data ends inside of a text. Nearly all ends with a bracket."""
        if not self.data or str(self.data).endswith(("}", "]")):
            return False
        return self.data.is_in_string

    def taken(self) -> Iterator[dict[str, Any]]:
        """Yield what the event says, and begin the next one."""
        name, data = self.name, str(self.data)
        self.name, self.data, self._blank_lines = "", GrowingJson(), 0
        return _piece(name, data)


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def _beginning(name: str, data: str) -> Iterator[dict[str, Any]]:
    """Yield what an event says that is too long, as far as it is kept, and CUT."""
    yield from _objects(name, read_cut(data))
    yield CUT


def _piece(name: str, data: str) -> Iterator[dict[str, Any]]:
    if _says_done(name, data):
        yield DONE
    elif name == "error":
        body = _error(data)
        yield body if body.get("error") else {"error": body}
    elif data.strip():
        yield from _values(name, data)


def _values(name: str, data: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of an event; some servers glue several events into one."""
    place = 0
    while place < len(data):
        value, place = _DECODER.raw_decode(data, place)
        yield from _objects(name, value)
        if (between := _BETWEEN.match(data, place)) is not None:
            place = between.end()
        if _says_done("", data[place : place + _DONE_CHARS]):
            yield DONE
            return


def _objects(name: str, body: Any) -> Iterator[dict[str, Any]]:
    for one in body if isinstance(body, list) else [body]:
        if isinstance(one, dict):
            # Some say in the event's name alone what it is.
            yield {"type": name, **one} if name.startswith("response.") else one


def _says_done(name: str, data: str) -> bool:
    return data[:_DONE_CHARS].upper() == "[DONE]" or (name == "done" and data.strip() in ("", "{}"))


def _bare(line: bytes) -> Iterator[dict[str, Any]]:
    """Yield the object that a line without a field's name is; half of one is nothing."""
    try:
        yield from list(_piece("", _text(line)))
    except ValueError:
        return


def _error(text: str) -> dict[str, Any]:
    """Return what an event of the name `error` says; some say it as a plain text."""
    try:
        body = json.loads(text)
    except ValueError:
        body = text
    return body if isinstance(body, dict) else {"message": str(body)}


def _lines(chunks: Iterable[bytes], *, longest: int) -> Iterator[bytes]:
    """Yield the lines without their ends (LF, CR LF or CR); long ones come in many chunks.

    Of one that is longer than any may be the beginning is yielded, and nothing more is read.
    """
    begun: list[bytes] = []
    size = 0  # of what has begun
    is_first, ends_in_cr = True, False
    for chunk in chunks:
        if not chunk:
            continue
        if ends_in_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # of a CR LF that is cut in two: the CR has ended the line
        ends_in_cr = chunk.endswith(b"\r")
        *lines, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            whole = b"".join((*begun, line))
            yield (whole.removeprefix(_BYTE_ORDER_MARK) if is_first else whole).lstrip(_RECORD_MARK)
            begun, size, is_first = [], 0, False
        begun.append(rest)
        size += len(rest)
        if size > longest:
            break
    if last := b"".join(begun):
        yield last.lstrip(_RECORD_MARK)


def splitter_for(on_event: OnEvent) -> ThoughtSplitter:
    """Return what parts a streamed text from its thoughts, telling `on_event` of both."""
    return ThoughtSplitter(
        lambda text: on_event("delta", {"text": text}),
        lambda text: on_event("reasoning", {"text": text}),
        lambda: on_event("reset", {"code": "reasoning"}),
    )


def plain(answer: Any) -> dict[str, Any]:
    """Return the SDK's object, or a body read by hand, as a dict; an empty one for neither."""
    if isinstance(answer, dict):
        return answer
    # Servers send fields of other types than the SDK's models say; that is no news to anybody.
    return answer.to_dict(warnings=False) if hasattr(answer, "to_dict") else {}
