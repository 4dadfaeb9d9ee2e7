"""Files that a page hands out: made piece by piece while they are being sent.

A file is a stranger's text: it is an attachment, and no browser may guess another type.

Whoever hands one out asks for the permission to see texts first
(chatapp/admin/toolkit/permissions.py), and gives an iterator: of a file of any size only a piece is
in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse

PIECE_CHARS = 64_000
PLAIN = "text/plain"


def text_download(
    request: HttpRequest, pieces: Iterator[str], *, filename: str, media_type: str = PLAIN
) -> StreamingHttpResponse:
    """Return the pieces as one text file; they are made while it is being sent.

    `filename` is a literal of the caller with ids in it, never what somebody wrote. Pieces may be
    asked for in different threads: whoever makes them keeps no cursor of the database open.
    """
    parts = _in_parts(pieces)
    # Each server has to be given its own kind: the other one would be collected whole first.
    body = _one_after_the_other(parts) if isinstance(request, ASGIRequest) else parts
    response = StreamingHttpResponse(body, content_type=f"{media_type}; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{filename}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response


def _in_parts(pieces: Iterator[str]) -> Iterator[bytes]:
    """Yield parts of a size that is worth a write."""
    waiting: list[str] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= PIECE_CHARS:
            yield "".join(waiting).encode("utf-8", "replace")
            waiting, size = [], 0
    if waiting:
        yield "".join(waiting).encode("utf-8", "replace")


async def _one_after_the_other(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    while part := await sync_to_async(_next_of)(parts):
        yield part


def _next_of(parts: Iterator[bytes]) -> bytes:
    """Return the next part, nothing after the last one: no task may raise StopIteration."""
    return next(parts, b"")
