"""The Chat Completions wire: a ModelRequest as arguments of the SDK, and its answers as a Reply."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from typing import Any

from chatapp.llm.errors import ErrorKind, ModelError, from_body
from chatapp.llm.messages import ModelRequest, OnEvent, Reply
from chatapp.llm.models import ModelConfig


def arguments_of(config: ModelConfig, request: ModelRequest) -> dict[str, Any]:
    """Return the keyword arguments of `chat.completions.create`."""
    arguments: dict[str, Any] = {"model": config.name, "messages": list(request.messages)}
    if request.tools:
        arguments["tools"] = list(request.tools)
    if request.max_output:
        # OpenAI's newer models refuse the old name, compatible servers know only that one.
        name = "max_tokens" if config.base_url else "max_completion_tokens"
        arguments[name] = request.max_output
    if request.temperature is not None:
        arguments["temperature"] = request.temperature
    if request.stream:
        arguments |= {"stream": True, "stream_options": {"include_usage": True}}
    return arguments


def reply_of(completion: Any) -> Reply:
    """Return the Reply of a finished completion; raise ModelError for a body that is none."""
    body = _plain(completion)
    if body.get("error"):
        raise from_body(body, status=200)
    choices = body.get("choices") or []
    if not choices:
        raise ModelError(ErrorKind.BAD_ANSWER, "The answer has no choices.", status=200)
    message = choices[0].get("message") or {}
    calls = _Calls()
    for index, call in enumerate(message.get("tool_calls") or []):
        calls.add({"index": index, **call})
    return Reply(
        text=_text(message.get("content")),
        tool_calls=calls.finished(),
        reasoning=_text(message.get("reasoning_content") or message.get("reasoning")) or "",
        refusal=message.get("refusal") or "",
        finish_reason=choices[0].get("finish_reason") or "stop",
        usage=body.get("usage"),
        response_id=body.get("id") or "",
        model=body.get("model") or "",
    )


def _plain(answer: Any) -> dict[str, Any]:
    if isinstance(answer, dict):
        return answer
    # Servers send fields of other types than the SDK's models say; that is no news to anybody.
    return answer.to_dict(warnings=False) if hasattr(answer, "to_dict") else {}


def _text(content: Any) -> str | None:
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else None


class _Calls:
    """Puts tool calls together from pieces that may lack an index, an id or a name.

    A piece belongs to the call of its index; without one, to the call of its id; without either,
    to the last one. Empty strings mean: as before.
    """

    def __init__(self) -> None:
        self._calls: list[dict[str, Any]] = []
        self._by_index: dict[int, dict[str, Any]] = {}

    def add(self, piece: dict[str, Any]) -> dict[str, Any]:
        """Take one piece in; return the call it belongs to, as far as it is known."""
        function = piece.get("function") or {}
        call = self._find(piece)
        call["id"] = call["id"] or piece.get("id") or ""
        call["name"] = call["name"] or function.get("name") or ""
        arguments = function.get("arguments")
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments, ensure_ascii=False)
        call["arguments"] += arguments or ""
        return call

    def _find(self, piece: dict[str, Any]) -> dict[str, Any]:
        index, call_id = piece.get("index"), piece.get("id")
        if index is not None and index in self._by_index:
            return self._by_index[index]
        if index is None:
            if call_id:
                for call in self._calls:
                    if call["id"] == call_id:
                        return call
            elif self._calls:
                return self._calls[-1]
        call = {"id": "", "name": "", "arguments": "", "number": len(self._calls)}
        self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def finished(self) -> tuple[dict[str, Any], ...]:
        """Return the calls in OpenAI form; a missing id is made up once, here."""
        return tuple(
            {
                "id": call["id"] or f"call_{uuid.uuid4().hex[:24]}",
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for call in self._calls
            if call["name"] or call["arguments"]
        )


def read_stream(chunks: Iterable[Any], request: ModelRequest, on_event: OnEvent) -> Reply:
    """Return the Reply of a stream, telling `on_event` of every piece.

    A failure half-way raises ModelError with `partial`: the Reply as far as it had come.
    """
    stream = _Stream(on_event)
    try:
        for chunk in chunks:
            stream.take(_plain(chunk))
            if request.cancelled():
                raise ModelError(ErrorKind.CANCELLED)
        if not stream.ended:
            raise ModelError(ErrorKind.UNAVAILABLE, "The stream ended without an answer's end.")
    except ModelError as error:
        error.partial = stream.reply("interrupted")
        raise
    except Exception as error:
        from chatapp.llm.client import as_model_error

        failure = as_model_error(error)
        failure.partial = stream.reply("interrupted")
        raise failure from error
    return stream.reply(stream.finish_reason or "stop")


class _Stream:
    """Accumulates the chunks of one streamed answer."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls = _Calls()
        self._usage: dict[str, Any] | None = None
        self._id = self._model = self._refusal = ""
        self.finish_reason = ""

    @property
    def ended(self) -> bool:
        """Whether the server said how the answer ended, or at least answered something."""
        return bool(self.finish_reason or self._text or self._calls.finished())

    def take(self, body: dict[str, Any]) -> None:
        """Take one chunk in; raise ModelError for an error sent as a chunk."""
        if body.get("error"):
            raise from_body(body, status=200)
        self._usage = body.get("usage") or self._usage
        self._id = self._id or body.get("id") or ""
        self._model = self._model or body.get("model") or ""
        for choice in (body.get("choices") or [])[:1]:
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            self._take_delta(choice.get("delta") or {})

    def _take_delta(self, delta: dict[str, Any]) -> None:
        text = _text(delta.get("content"))
        if text:
            self._text.append(text)
            self._on_event("delta", {"text": text})
        self._reasoning.append(
            _text(delta.get("reasoning_content") or delta.get("reasoning")) or ""
        )
        self._refusal += delta.get("refusal") or ""
        for piece in delta.get("tool_calls") or []:
            call = self._calls.add(piece)
            self._on_event(
                "tool_call",
                {
                    "index": call["number"],
                    "id": call["id"],
                    "name": call["name"],
                    "arguments_delta": (piece.get("function") or {}).get("arguments") or "",
                },
            )

    def reply(self, finish_reason: str) -> Reply:
        """Return what has arrived so far."""
        return Reply(
            text="".join(self._text) or None,
            tool_calls=self._calls.finished(),
            reasoning="".join(self._reasoning),
            refusal=self._refusal,
            finish_reason=finish_reason,
            usage=self._usage,
            response_id=self._id,
            model=self._model,
        )
