"""Files that are handed out: sent while they are being made, or made whole before they are sent.

A file is a stranger's text: it is an attachment, and no browser may guess another type. Whoever
hands one out asks for the permission to see texts first, and gives an iterator: of a file of any
size only a piece is in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from chatapp.spooled_files import SpooledFile, gathered

PLAIN = "text/plain"


def text_download(
    request: HttpRequest, pieces: Iterator[str], *, filename: str, media_type: str = PLAIN
) -> StreamingHttpResponse:
    """Return the pieces as one text file; they are made while it is being sent.

    `filename` is a literal of the caller with ids in it, never what somebody wrote. Pieces may be
    asked for in different threads: whoever makes them keeps no cursor of the database open. An
    error among them breaks the connection off, so that nobody takes the beginning for the whole.
    """
    response = StreamingHttpResponse(_body(request, _encoded(pieces)))
    _describe(response, filename, media_type)
    return response


def whole_download(
    request: HttpRequest, pieces: Iterator[str], *, filename: str, media_type: str
) -> HttpResponseBase:
    """Return the pieces as one text file with its length; all of them are made first.

    An error among them is the caller's. A large file waits on the disk until it is sent.
    """
    file = SpooledFile(_encoded(pieces))
    response: HttpResponseBase
    if file.is_large:
        response = StreamingHttpResponse(_body(request, file.pieces()))
        response["Content-Length"] = str(file.size)
    else:
        response = HttpResponse(file.read())
    _describe(response, filename, media_type)
    return response


def _describe(response: HttpResponseBase, filename: str, media_type: str) -> None:
    response["Content-Type"] = f"{media_type}; charset=utf-8"
    response["Content-Disposition"] = f'attachment; filename="{filename}"'
    response["X-Content-Type-Options"] = "nosniff"


def _encoded(pieces: Iterator[str]) -> Iterator[bytes]:
    return (piece.encode("utf-8", "replace") for piece in gathered(pieces))


def _body(request: HttpRequest, parts: Iterator[bytes]) -> AsyncIterator[bytes] | Iterator[bytes]:
    # Each server has to be given its own kind: the other one would be collected whole first.
    return _one_after_the_other(parts) if isinstance(request, ASGIRequest) else parts


async def _one_after_the_other(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    while part := await sync_to_async(_next_of)(parts):
        yield part


def _next_of(parts: Iterator[bytes]) -> bytes:
    """Return the next part, nothing after the last one: no task may raise StopIteration."""
    return next(parts, b"")
