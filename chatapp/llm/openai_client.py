"""Calls of an OpenAI-compatible server: retries, streams, a watchdog for silent servers."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from chatapp.conf import chatapp_settings
from chatapp.llm.answer_ends import AnswerEnd, end_of
from chatapp.llm.bounded import is_streamed, shortened
from chatapp.llm.client_pool import client_for
from chatapp.llm.errors import ErrorKind, ModelError, from_body, silent_overflow
from chatapp.llm.registry import ModelConfig, all_models
from chatapp.llm.requests import ModelRequest, OnEvent, Reply, ignore_event
from chatapp.llm.streams import pieces_of
from chatapp.llm.usage import read_usage
from chatapp.llm.wires import wire_of
from chatapp.messages.patterns import lazy_pattern

MAX_ATTEMPTS = 4
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 20.0
# A server may ask for longer, up to the time of the turn; without one, this is the end of patience.
LONGEST_ASKED_WAIT_SECONDS = 60.0
CANCEL_CHECK_SECONDS = 0.5
_CUT = lazy_pattern(
    r"could not finish the message because|\bmodel output limit was reached"
    r"|\b(?:try again|retry) with (?:a )?(?:higher|larger) max_\w{0,12}tokens"
)
_BACKEND = "chatapp.llm.openai_client.OpenAIModel"


class OpenAIModel:
    """A model behind an OpenAI-compatible server."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config

    def complete(self, request: ModelRequest, on_event: OnEvent = ignore_event) -> Reply:
        """Return the server's answer; wait and try again for rate limits and outages.

        Raises ModelError. Nothing that was partly streamed is asked for again.
        """
        attempt = 1
        while True:
            try:
                return self._call(request, on_event)
            except ModelError as error:
                wait = _wait_before(attempt, error)
                if not _may_retry(error, attempt, wait, request):
                    raise
                on_event("retry", _retry_news(error, attempt, wait))
            _pause(wait, request)
            attempt += 1

    def _call(self, request: ModelRequest, on_event: OnEvent) -> Reply:
        timeout = _timeout(request)
        seconds = _left(request) if request.stream else timeout
        server = self.config.api_key, self.config.base_url
        with client_for(*server) as (client, line), line.cut_after(seconds):
            try:
                answer = self._ask(client.with_options(timeout=timeout), request, on_event)
                reply = replace(answer, usage=read_usage(answer.usage))
                reply = shortened(reply, characters=chatapp_settings.max_answer_chars)
                if (hidden := silent_overflow(reply, self.config.context_window)) is not None:
                    raise hidden
                if (taken := _taken_away(reply)) is not None:
                    raise taken
                return reply
            except Exception as error:
                failure = as_model_error(error)
                if _CUT.search(failure.detail.lower()):
                    # Some servers call an answer of which nothing was left for its text an error.
                    return Reply(finish_reason="length")
                if line.is_cut:  # whatever the SDK makes of a connection that was cut
                    late = ModelError(ErrorKind.TIMEOUT, "The answer took longer than it may.")
                    late.partial = failure.partial
                    raise late from error
                if failure is error:
                    raise
                raise failure from error

    def _ask(self, client: Any, request: ModelRequest, on_event: OnEvent) -> Reply:
        wire = wire_of(request)

        def read(pieces: Iterable[Any]) -> Reply:
            return wire.read_stream(pieces, request, on_event, as_model_error)

        try:
            answer = wire.send(client, wire.arguments_of(self.config, request))
            if not request.stream:
                # The SDK gives back as a text what is no JSON: some servers stream always.
                pieces = _pieces_in(answer)
                return read(pieces) if pieces else wire.reply_of(answer)
            with answer:
                if _comes_in_pieces(answer.response):
                    return read(pieces_of(answer.response.iter_bytes()))
                # The server took no notice of `stream`: an error, or the answer in one piece.
                body = json.loads(answer.response.read())
                pieces = body if isinstance(body, list) else []
                return read(_pieces_in(pieces)) if pieces else wire.reply_of(body)
        except json.JSONDecodeError as error:
            # It has tabs or line ends in its texts, or calls pieces by the name of a whole.
            if (body := _read_loosely(error.doc)) is not None:
                return wire.reply_of(body)
            if pieces := _pieces_in(error.doc):
                return read(pieces)
            raise


def _read_loosely(text: str) -> dict[str, Any] | None:
    """Return the object that a text is whose strings hold tabs and line ends as they are."""
    try:
        body = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _pieces_in(answer: Any) -> list[dict[str, Any]]:
    if isinstance(answer, list):
        return [one for one in answer if isinstance(one, dict)]
    return list(pieces_of([answer.encode()])) if isinstance(answer, str) else []


def _comes_in_pieces(response: Any) -> bool:
    return is_streamed(response) or "json" not in response.headers.get("content-type", "")


def _taken_away(reply: Reply) -> ModelError | None:
    """Return the refusal that an answer of nothing tells by its end, or None."""
    end = end_of(reply.finish_reason)
    if not reply.is_empty or end not in (AnswerEnd.FILTERED, AnswerEnd.REFUSED):
        return None
    error = ModelError(
        ErrorKind.CONTENT_FILTER,
        f"The answer is empty; it ended with {reply.finish_reason}.",
        status=200,
        code=reply.finish_reason[:100],
    )
    error.partial = reply
    return error


def _retry_news(error: ModelError, attempt: int, wait: float) -> dict[str, Any]:
    """Return what is told of a request that will be sent again."""
    return {
        "code": error.kind.value,
        "text": f"{error.sentence} It is asked again in {wait:.1f} seconds.",
        "attempt": attempt,
        "wait_seconds": round(wait, 3),
    }


def _pause(seconds: float, request: ModelRequest) -> None:
    """Wait, but not longer than until the turn is cancelled."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not request.cancelled():
        time.sleep(min(left, CANCEL_CHECK_SECONDS))


def _left(request: ModelRequest) -> float | None:
    return None if request.deadline is None else request.deadline - time.monotonic()


def _timeout(request: ModelRequest) -> float:
    longest = float(chatapp_settings.model_timeout_seconds)
    left = _left(request)
    if left is None:
        return longest
    if left <= 0:
        raise ModelError(ErrorKind.TIMEOUT, "The time for this turn is used up.")
    return min(longest, left)


def _wait_before(attempt: int, error: ModelError) -> float:
    """Return the seconds to wait: longer each time, and never less than the server asks for.

    Chance keeps those who were refused together from coming back together.
    """
    longest = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** (attempt - 1))
    if error.retry_after is None:
        return float(longest * random.uniform(0.5, 1))
    return float(error.retry_after + FIRST_WAIT_SECONDS * random.uniform(0, 1))


def _may_retry(error: ModelError, attempt: int, wait: float, request: ModelRequest) -> bool:
    if not error.is_temporary or (
        error.partial and (error.partial.text or error.partial.tool_calls)
    ):
        return False
    if attempt >= MAX_ATTEMPTS or request.cancelled():
        return False
    left = _left(request)
    return wait < (LONGEST_ASKED_WAIT_SECONDS if left is None else left)


def load_ahead(*, then: Callable[[], None] = lambda: None) -> threading.Thread:
    """Begin to import the client's library in a thread of its own, and return the thread.

    `then` is called when what there is to load is loaded, or cannot be. For the process of a server
    alone: it takes a second, which the first turn would wait for. Nothing is imported where every
    model does without.
    """
    # No daemon: a process that ended while such a thread imports compiled code would be aborted.
    loading = threading.Thread(target=_load, args=(then,), name="load-openai")
    loading.start()
    return loading


def _load(then: Callable[[], None]) -> None:
    # What is missing or broken is told by the turn that needs it.
    with contextlib.suppress(Exception):
        if any(model.backend == _BACKEND for model in all_models().values()):
            # What the first call would import besides, too.
            for name in ("openai", "openai.resources.chat", "openai.resources.responses"):
                importlib.import_module(name)
    then()


def as_model_error(error: Exception) -> ModelError:
    """Return the ModelError for an exception of the SDK, which may hide one of ours."""
    import httpx2
    import openai

    if isinstance(error, ModelError):
        return error
    if isinstance(error.__cause__, ModelError):
        return error.__cause__
    if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
        return ModelError(ErrorKind.TIMEOUT, str(error))
    if isinstance(error, openai.APIStatusError):
        # The SDK's text quotes the body, which may quote the conversation, so it is not used.
        return from_body(
            {} if error.body is None else error.body,  # JSON's null; without a body it is ""
            status=error.status_code,
            fallback=f"HTTP status {error.status_code}",
            retry_after=_retry_after(error.response.headers),
        )
    if isinstance(error, openai.APIResponseValidationError):
        return ModelError(ErrorKind.BAD_ANSWER, str(error))
    if _broke_off(error):
        return ModelError(ErrorKind.BROKEN_ANSWER, str(error.__cause__))
    if isinstance(error, openai.APIConnectionError):
        return ModelError(ErrorKind.UNAVAILABLE, str(error))
    if isinstance(error, openai.APIError):
        return from_body(error.body or str(error), status=200, fallback=error.message)
    # What is nested without end is read no further.
    if isinstance(error, ValueError | TypeError | LookupError | AttributeError | RecursionError):
        return ModelError(ErrorKind.BAD_ANSWER, f"{type(error).__name__}: {error}")
    return ModelError(ErrorKind.UNAVAILABLE, f"{type(error).__name__}: {error}")


def _broke_off(error: Exception) -> bool:
    """Whether a connection was lost in the middle of an answer: the server was reached."""
    return "without sending complete message body" in str(error.__cause__ or "")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server asks to wait: in milliseconds, seconds or as a date."""
    try:
        if value := headers.get("retry-after-ms"):
            seconds = float(value) / 1000
        elif not (value := headers.get("retry-after")):
            return None
        elif value.strip()[:1].isalpha():
            seconds = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
        else:
            seconds = float(value)
    except (ValueError, TypeError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
