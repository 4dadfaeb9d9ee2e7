"""What both wires do with a stream: follow it to its end, or say why it has none."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, Protocol

from chatapp.conf import chatapp_settings
from chatapp.llm.answer_ends import CUT_OFF
from chatapp.llm.cut_json import read_cut
from chatapp.llm.errors import ErrorKind, ModelError
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
    ValueError for data that is no JSON.
    """
    name, data, longest = "", GrowingJson(), _longest_event()
    for line in _lines(chunks, longest=longest):
        if data and line.startswith((b"data:", b"event:")) and data.is_whole:
            # No empty line between two events: what is whole is not gone on with.
            yield from _piece(name, str(data))
            name, data = "", GrowingJson()
        if len(line) + len(data) > longest:
            yield from _beginning(name, f"{data}{_text(line.removeprefix(b'data:'))}")
            return
        if line.startswith(b"data:"):
            told = b"\n" + line[5:] if data else line[5:].lstrip()
            data.add(_text(told))
        elif line.startswith(b"event:"):
            name = _text(line[6:].strip())
        elif line.startswith((b"{", b"[")) and not data:
            yield from _bare(line)
        elif not line:
            whole = str(data)
            yield from _piece(name, whole)
            if _says_done(name, whole):
                return
            name, data = "", GrowingJson()
    # The last one may lack the empty line behind it; half of one is nothing.
    try:
        yield from list(_piece(name, str(data)))
    except ValueError:
        return


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
        yield from _objects(name, json.loads(data))


def _objects(name: str, body: Any) -> Iterator[dict[str, Any]]:
    for one in body if isinstance(body, list) else [body]:
        if isinstance(one, dict):
            # Some say in the event's name alone what it is.
            yield {"type": name, **one} if name.startswith("response.") else one


def _says_done(name: str, data: str) -> bool:
    return data[:6].upper() == "[DONE]" or (name == "done" and data.strip() in ("", "{}"))


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
