"""How much of a model server's answer is read: a server may be broken, or hostile.

What is longer is cut with a word; nothing is kept of a body that is larger than any answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from chatapp.llm.answer_ends import CUT_OFF
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.requests import Reply

BYTES_PER_CHARACTER = 8
"""Of a body in one piece: JSON writes a character in at most six bytes, with what is around it."""
BYTES_PER_STREAMED_CHARACTER = 64
"""Of a stream, which frames every few characters."""
SMALLEST_BODY_BYTES = 1_000_000
_STREAMS = ("event-stream", "ndjson", "jsonl", "json-lines", "json-seq", "stream+json")


def bounded(stream: Any, *, limit: int) -> Any:
    """Return a response's stream that raises ModelError once more than `limit` bytes came."""
    import httpx2

    class Bounded(httpx2.SyncByteStream):
        """The stream of the connection, counted."""

        def __iter__(self) -> Iterator[bytes]:
            counted = 0
            for chunk in stream:
                counted += len(chunk)
                if counted > limit:
                    raise ModelError(
                        ErrorKind.BAD_ANSWER,
                        f"The answer has more than {limit:,} bytes; the rest was not read.",
                    )
                yield chunk

        def close(self) -> None:
            stream.close()

    return Bounded()


def is_streamed(response: Any) -> bool:
    """Whether an answer comes in pieces: as events, or as objects in lines of their own."""
    kind = response.headers.get("content-type", "").lower()
    return any(word in kind for word in _STREAMS)


def bound_response(response: Any, *, characters: int) -> None:
    """Bound a response before it is read: an event hook of an httpx2 client."""
    each = BYTES_PER_STREAMED_CHARACTER if is_streamed(response) else BYTES_PER_CHARACTER
    response.stream = bounded(response.stream, limit=each * characters + SMALLEST_BODY_BYTES)


def shortened(reply: Reply, *, characters: int) -> Reply:
    """Return a reply whose text, thoughts and refusal have at most so many characters each.

    One whose text or refusal was cut says so.
    """
    text, thoughts, refusal = reply.text or "", reply.reasoning, reply.refusal
    if max(len(text), len(thoughts), len(refusal)) <= characters:
        return reply
    was_cut = max(len(text), len(refusal)) > characters
    return replace(
        reply,
        text=text[:characters] or None,
        reasoning=thoughts[:characters],
        refusal=refusal[:characters],
        # The server's own is longer, so that nobody goes on from it.
        response_id="",
        finish_reason=CUT_OFF if was_cut else reply.finish_reason,
    )
