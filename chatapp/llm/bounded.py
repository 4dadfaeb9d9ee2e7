"""How much of a model server's answer is read: a server may be broken, or hostile.

What is longer is cut with a word; nothing is kept of a body that is larger than any answer. What
counts are the bytes behind a compression: a megabyte may hide a thousand.
"""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from chatapp.llm.answer_ends import CUT_OFF
from chatapp.llm.cut_json import without_long_strings
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.requests import Reply
from chatapp.llm.streams import MOST_ITEMS

BYTES_PER_CHARACTER = 8
"""Of a body in one piece: JSON writes a character in at most six bytes, with what is around it."""
BYTES_PER_STREAMED_CHARACTER = 64
"""Of a stream, which frames every few characters."""
SMALLEST_BODY_BYTES = 1_000_000
_STREAMS = ("event-stream", "ndjson", "jsonl", "json-lines", "json-seq", "stream+json")


MOST_ERROR_BYTES = 1_000_000
"""Of the body of an error, whose long strings are cut; its status counts however long it is."""
MOST_QUOTING_BYTES = 16_000_000
"""Of an error that quotes the request: so far its own words are looked for."""
ENCODINGS = "gzip, deflate"
"""The compressions that a server is asked for, and that are read."""
_READ = ("gzip", "x-gzip", "deflate")
_COMPRESSIONS = (*_READ, "br", "zstd", "compress", "x-compress", "dcb", "dcz")
_INFLATED_AT_ONCE = 65_536
_GZIP_HEAD = b"\x1f\x8b"
_HEAD_BYTES = 2


def _read_through(stream: Any, chunks: Callable[[Iterable[bytes]], Iterator[bytes]]) -> Any:
    """Return a response's stream of what `chunks` makes of it."""
    import httpx2

    class Stream(httpx2.SyncByteStream):
        """The stream of the connection, looked at on its way."""

        def __iter__(self) -> Iterator[bytes]:
            return chunks(stream)

        def close(self) -> None:
            stream.close()

    return Stream()


def bounded(chunks: Iterable[bytes], *, limit: int) -> Iterator[bytes]:
    """Yield the bytes of an answer; raise ModelError once there are more than `limit`."""
    counted = 0
    for chunk in chunks:
        counted += len(chunk)
        if counted > limit:
            raise ModelError(
                ErrorKind.BAD_ANSWER,
                f"The answer has more than {limit:,} bytes; the rest was not read.",
            )
        yield chunk


def beginning(chunks: Iterable[bytes], *, limit: int) -> Iterator[bytes]:
    """Yield the first `limit` bytes of an error, and a word where there are more.

    Of one that cannot be read its status counts all the same.
    """
    left = limit
    with contextlib.suppress(ModelError):
        for chunk in chunks:
            yield chunk[:left]
            left -= len(chunk)
            if left < 0:
                # No mark of JSON is in it: what came is read as far as it goes.
                yield f" ... cut after {limit} bytes".encode()
                return


def inflated(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Yield the bytes that were compressed, a few at a time.

    What is compressed may come in several parts, each with a head of its own; what else follows is
    not read. Raises ModelError for a compression that no server is asked for, and for broken data.
    """
    if encoding not in _READ:
        raise ModelError(ErrorKind.BAD_ANSWER, f"Its Content-Encoding is {encoding[:40]}.")
    reader: Any = None
    data, is_first = b"", True
    head, rest = _begun(chunks)
    if encoding != "deflate" and not _is_compressed(head):
        # A proxy has inflated it, and left the header.
        yield from itertools.chain((head,), rest)
        return
    try:
        for chunk in itertools.chain((head,), rest):
            data += chunk
            while data and (reader is not None or len(data) >= _HEAD_BYTES):
                if reader is None:
                    if not is_first and not data.startswith(_GZIP_HEAD):
                        return
                    reader, is_first = zlib.decompressobj(_window_of(data)), False
                yield reader.decompress(data, _INFLATED_AT_ONCE)
                if reader.eof:
                    # Given more, it would keep all of it.
                    reader, data = None, reader.unused_data
                else:
                    data = reader.unconsumed_tail
        if reader is not None:
            yield reader.flush()  # without a checksum, the last ones may lie in it
    except zlib.error as error:
        raise ModelError(ErrorKind.BAD_ANSWER, f"It is compressed and broken: {error}.") from error


def _untold(chunks: Iterable[bytes], *, limit: int) -> Iterator[bytes]:
    """Yield the bytes of an answer that no header calls compressed; gzip's head tells by itself."""
    head, rest = _begun(chunks)
    whole = itertools.chain((head,), rest)
    is_gzip = head.startswith(_GZIP_HEAD)
    yield from inflated(bounded(whole, limit=limit), "gzip") if is_gzip else whole


def _begun(chunks: Iterable[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return the first bytes, two at least where there are as many, and what follows them."""
    head, rest = b"", iter(chunks)
    while len(head) < _HEAD_BYTES and (chunk := next(rest, None)) is not None:
        head += chunk
    return head, rest


def _is_compressed(data: bytes) -> bool:
    """Whether data begins as gzip's or zlib's does. No text of JSON or of events does."""
    if len(data) < _HEAD_BYTES:
        return False
    is_zlib = data[0] & 15 == zlib.DEFLATED and int.from_bytes(data[:_HEAD_BYTES]) % 31 == 0
    return is_zlib or data.startswith(_GZIP_HEAD)


def _window_of(data: bytes) -> int:
    """Return how zlib reads data by its head; what some servers call deflate has none."""
    return zlib.MAX_WBITS | 32 if _is_compressed(data) else -zlib.MAX_WBITS


def is_streamed(response: Any) -> bool:
    """Whether an answer comes in pieces: as events, or as objects in lines of their own."""
    kind = response.headers.get("content-type", "").lower()
    return any(word in kind for word in _STREAMS)


def bound_response(response: Any, *, characters: int) -> None:
    """Bound a response before it is read: an event hook of an httpx2 client."""
    each = BYTES_PER_STREAMED_CHARACTER if is_streamed(response) else BYTES_PER_CHARACTER
    limit = each * characters + SMALLEST_BODY_BYTES
    # Inflated here, and so by nobody else. Some servers name a character set there.
    told = response.headers.pop("content-encoding", "").lower().split(",")
    encoding = ", ".join(word.strip() for word in told if word.strip() in _COMPRESSIONS)

    def read(chunks: Iterable[bytes]) -> Iterator[bytes]:
        # What comes is counted, too: a compression may hide nothing at all, without end.
        if encoding:
            whole = inflated(bounded(chunks, limit=limit), encoding)
        else:
            whole = _untold(chunks, limit=limit)
        if response.is_error:
            # What quotes the request in front of its own words is read through.
            short = without_long_strings(bounded(whole, limit=MOST_QUOTING_BYTES))
            return beginning(short, limit=MOST_ERROR_BYTES)
        return bounded(whole, limit=limit)

    response.stream = _read_through(response.stream, read)


def shortened(reply: Reply, *, characters: int) -> Reply:
    """Return a reply whose text, thoughts, refusal and calls have at most so many characters each.

    One whose text, refusal or calls were cut says so; no call is cut in its middle.
    """
    text, thoughts, refusal = reply.text or "", reply.reasoning, reply.refusal
    calls = _first_calls(reply.tool_calls, characters)
    lost_calls = len(calls) < len(reply.tool_calls)
    if max(len(text), len(thoughts), len(refusal)) <= characters and not lost_calls:
        return reply
    was_cut = max(len(text), len(refusal)) > characters or lost_calls
    return replace(
        reply,
        text=text[:characters] or None,
        reasoning=thoughts[:characters],
        refusal=refusal[:characters],
        tool_calls=calls,
        # The server's own is longer, so that nobody goes on from it.
        response_id="",
        finish_reason=CUT_OFF if was_cut else reply.finish_reason,
    )


def _first_calls(calls: tuple[dict[str, Any], ...], characters: int) -> tuple[dict[str, Any], ...]:
    """Return the calls before the one that is too many, or whose arguments are too long."""
    left = characters
    for place, call in enumerate(calls):
        left -= len(call["function"]["arguments"])
        if left < 0 or place == MOST_ITEMS:
            return calls[:place]
    return calls
