"""What both wires do with a stream: follow it to its end, or say why it has none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.requests import ModelRequest, Reply


class StreamedAnswer(Protocol):
    """An answer that is put together piece by piece."""

    finish_reason: str

    @property
    def ended(self) -> bool:
        """Whether the server said that the answer is whole."""
        ...

    @property
    def closed(self) -> bool:
        """Whether nothing more can follow, so that nobody has to wait for the connection."""
        ...

    def take(self, body: dict[str, Any]) -> None:
        """Take one piece in; raise ModelError for an error sent as a piece."""
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
    raises ModelError with `partial`: the Reply as far as it had come.
    """
    try:
        for piece in pieces:
            answer.take(plain(piece))
            if answer.closed:
                break
            if request.cancelled():
                raise ModelError(ErrorKind.CANCELLED)
            if request.deadline is not None and time.monotonic() > request.deadline:
                raise ModelError(ErrorKind.TIMEOUT, "The answer took longer than a turn may.")
        if not answer.ended:
            raise ModelError(ErrorKind.UNAVAILABLE, "The stream ended without an answer's end.")
    except ModelError as error:
        error.partial = answer.reply("interrupted")
        raise
    except Exception as error:
        failure = as_model_error(error)
        failure.partial = answer.reply("interrupted")
        raise failure from error
    return answer.reply(answer.finish_reason or "stop")


def plain(answer: Any) -> dict[str, Any]:
    """Return the SDK's object, or a body read by hand, as a dict; an empty one for neither."""
    if isinstance(answer, dict):
        return answer
    # Servers send fields of other types than the SDK's models say; that is no news to anybody.
    return answer.to_dict(warnings=False) if hasattr(answer, "to_dict") else {}
