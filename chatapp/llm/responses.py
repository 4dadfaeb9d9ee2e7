"""The Responses wire: a ModelRequest as arguments of the SDK, and its answers as a Reply.

Items and flat tools are made in response_items.py, answers put together in response_output.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from chatapp.llm.errors import ErrorKind, ModelError, from_body
from chatapp.llm.messages import ModelRequest, OnEvent, Reply, ignore_event
from chatapp.llm.models import ModelConfig
from chatapp.llm.response_items import items_of, sourced_items, tools_of
from chatapp.llm.response_output import Output
from chatapp.llm.streams import follow, plain

__all__ = [
    "arguments_of",
    "items_of",
    "message_at",
    "read_stream",
    "reply_of",
    "send",
    "tools_of",
    "usage_of",
]

# Less than this is refused.
MIN_OUTPUT_TOKENS = 16
_ENDS = ("response.completed", "response.incomplete", "response.done")
_CUT_SHORT = {"max_output_tokens": "length", "max_tokens": "length"}
_FAILED = ("failed", "cancelled")


def arguments_of(config: ModelConfig, request: ModelRequest) -> dict[str, Any]:
    """Return the keyword arguments of `responses.create`."""
    items = [item for item, _ in _items(request)]
    arguments: dict[str, Any] = {"model": config.name, "input": items, "store": request.stores}
    if request.previous_response_id:
        arguments["previous_response_id"] = request.previous_response_id
    if not request.stores and not config.base_url:
        # Only OpenAI's own server is sure to know the parameter; others may refuse it.
        arguments["include"] = ["reasoning.encrypted_content"]
    if request.tools:
        arguments["tools"] = tools_of(request.tools)
    if request.max_output:
        arguments["max_output_tokens"] = max(MIN_OUTPUT_TOKENS, request.max_output)
    if request.temperature is not None:
        arguments["temperature"] = request.temperature
    if request.stream:
        arguments["stream"] = True
    return arguments


def _items(request: ModelRequest) -> Iterator[tuple[dict[str, Any], int]]:
    held = request.held if request.previous_response_id else 0
    return sourced_items(request.messages, plain_text=request.plain_text, held=held)


def message_at(request: ModelRequest, index: int) -> int | None:
    """Return which of the request's messages `input[index]` was made of; None where there is none.

    One message may be several items, and held ones are none.
    """
    sources = [source for _, source in _items(request)]
    return sources[index] if 0 <= index < len(sources) else None


def send(client: Any, arguments: dict[str, Any]) -> Any:
    """Return what the SDK answers: a response, or a stream of events."""
    return client.responses.create(**arguments)


def reply_of(response: Any) -> Reply:
    """Return the Reply of a whole response; raise ModelError for one that failed or is none."""
    body = plain(response)
    answer = _Answer(ignore_event)
    answer.settle(body)
    if not isinstance(body.get("output"), list):
        raise ModelError(ErrorKind.BAD_ANSWER, "The answer has no output.", status=200)
    return answer.reply(answer.finish_reason)


def read_stream(
    events: Iterable[Any],
    request: ModelRequest,
    on_event: OnEvent,
    as_model_error: Callable[[Exception], ModelError],
) -> Reply:
    """Return the Reply of a stream, telling `on_event` of every piece; see streams.follow."""
    return follow(_Answer(on_event), events, request, as_model_error)


class _Answer:
    """Accumulates the events of one streamed response, or takes a whole one."""

    def __init__(self, on_event: OnEvent) -> None:
        self._output = Output(on_event)
        self._usage: dict[str, Any] | None = None
        self._id = self._model = ""
        self.finish_reason = ""

    @property
    def ended(self) -> bool:
        """Whether the server said that the answer is whole."""
        return bool(self.finish_reason)

    @property
    def closed(self) -> bool:
        """Whether the last event was taken; some servers leave the connection open behind it."""
        return self.ended

    def take(self, body: dict[str, Any]) -> None:
        """Take one event in; raise ModelError for an error sent as an event."""
        kind = str(body.get("type") or "")
        response = body.get("response")
        if kind == "error" or body.get("error"):
            raise _error(body.get("error") or body)
        if isinstance(response, Mapping):
            self._take_head(response)
        if kind == "response.failed":
            raise _error(response.get("error") if isinstance(response, Mapping) else None)
        if kind in _ENDS:
            self.settle({"status": kind.partition(".")[2], **(response or {})})
        else:
            self._output.take(kind, body)

    def _take_head(self, response: Mapping[str, Any]) -> None:
        self._id = str(response.get("id") or self._id)
        self._model = str(response.get("model") or self._model)
        self._usage = usage_of(response.get("usage")) or self._usage

    def settle(self, response: Mapping[str, Any]) -> None:
        """Take the whole response in; raise ModelError for one that failed."""
        self._take_head(response)
        status = response.get("status")
        if response.get("error") or status in _FAILED:
            raise _error(response.get("error"))
        self._output.settle(response.get("output"))
        if status == "incomplete":
            reason = str((response.get("incomplete_details") or {}).get("reason") or "length")
            self.finish_reason = _CUT_SHORT.get(reason, reason)
        else:
            self.finish_reason = "tool_calls" if self._output.tool_calls() else "stop"

    def reply(self, finish_reason: str) -> Reply:
        """Return what has arrived so far."""
        return Reply(
            text=self._output.text or None,
            tool_calls=self._output.tool_calls(),
            reasoning=self._output.reasoning,
            refusal=self._output.refusal,
            finish_reason=finish_reason,
            usage=self._usage,
            response_id=self._id,
            model=self._model,
            reasoning_items=self._output.reasoning_items,
        )


def _error(error: Any) -> ModelError:
    """Return the ModelError of an error inside an answer: often a code and an empty message."""
    if isinstance(error, Mapping):
        # The `type` of an error event only says that it is one.
        error = {key: value for key, value in error.items() if (key, value) != ("type", "error")}
    says_why = isinstance(error, str) or (error and (error.get("code") or error.get("type")))
    fallback = "" if says_why else "The response failed; the server does not say why."
    return from_body({"error": error}, status=200, fallback=fallback)


def usage_of(usage: Any) -> dict[str, Any] | None:
    """Return this API's usage in Chat Completions form; None where none was reported."""
    if not isinstance(usage, Mapping) or not usage:
        return None
    if "input_tokens" not in usage:  # some servers report it in chat form here, too
        return dict(usage)
    prompt, completion = usage["input_tokens"], usage.get("output_tokens")
    mapped = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": usage.get("total_tokens") or (prompt or 0) + (completion or 0),
    }
    for chat, own in (("prompt", "input"), ("completion", "output")):
        if isinstance(details := usage.get(f"{own}_tokens_details"), Mapping):
            mapped[f"{chat}_tokens_details"] = dict(details)
    return mapped
