"""The Chat Completions wire: a ModelRequest as arguments of the SDK, and its answers as a Reply."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from chatapp.llm.adaptations import with_parameters
from chatapp.llm.errors import ErrorKind, ModelError, from_body
from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest, OnEvent, Reply
from chatapp.llm.streams import follow, plain
from chatapp.messages.outgoing import TEXTS_ONLY, outgoing
from chatapp.messages.wire import text_of

# What only the Responses API takes back.
_NOT_ON_THIS_WIRE = ("reasoning_items",)


def arguments_of(config: ModelConfig, request: ModelRequest) -> dict[str, Any]:
    """Return the keyword arguments of `chat.completions.create`."""
    messages = [message for message, _ in _outgoing(request, config.adaptations)]
    arguments: dict[str, Any] = {"model": config.name, "messages": messages}
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
    return with_parameters(arguments, config.adaptations | request.adaptations)


def _outgoing(
    request: ModelRequest, known: frozenset[str] = frozenset()
) -> list[tuple[dict[str, Any], int | None]]:
    """Return the messages in the form of this wire, each with the index that it came from."""
    codes = known | request.adaptations | ({TEXTS_ONLY} if request.plain_text else frozenset())
    return [
        ({key: value for key, value in message.items() if key not in _NOT_ON_THIS_WIRE}, source)
        for message, source in outgoing(request.messages, codes)
    ]


def message_at(request: ModelRequest, index: int) -> int | None:
    """Return which of the request's messages `messages[index]` is; None where there is none."""
    sent = _outgoing(request)
    return sent[index][1] if 0 <= index < len(sent) else None


def send(client: Any, arguments: dict[str, Any]) -> Any:
    """Return what the SDK answers: a completion, or a stream of chunks."""
    return client.chat.completions.create(**arguments)


def reply_of(completion: Any) -> Reply:
    """Return the Reply of a finished completion; raise ModelError for a body that is none."""
    body = plain(completion)
    if body.get("error"):
        raise from_body(body, status=200)
    choices = body.get("choices") or []
    if not choices:
        raise ModelError(ErrorKind.BAD_ANSWER, "The answer has no choices.", status=200)
    message = choices[0].get("message") or {}
    calls = _Calls()
    for index, call in enumerate(message.get("tool_calls") or []):
        calls.add({**call, "index": index})
    return Reply(
        text=text_of(message.get("content")) or None,
        tool_calls=calls.finished(),
        reasoning=text_of(message.get("reasoning_content") or message.get("reasoning")),
        refusal=text_of(message.get("refusal")),
        finish_reason=str(choices[0].get("finish_reason") or "stop"),
        usage=_usage(body),
        response_id=str(body.get("id") or ""),
        model=str(body.get("model") or ""),
    )


def _usage(body: dict[str, Any]) -> dict[str, Any] | None:
    usage = body.get("usage")
    return usage if isinstance(usage, dict) else None


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
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        call["arguments"] += arguments
        return call

    def _find(self, piece: dict[str, Any]) -> dict[str, Any]:
        index, call_id = piece.get("index"), piece.get("id")
        known = self._by_index.get(index) if index is not None else None
        if known is not None and not _starts_another(known, piece):
            return known
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


def _starts_another(call: dict[str, Any], piece: dict[str, Any]) -> bool:
    """Whether a piece with a known index is a further call: some servers number every call 0."""
    call_id, name = piece.get("id"), (piece.get("function") or {}).get("name")
    return bool(call_id and name and call["id"] and call_id != call["id"])


def read_stream(
    chunks: Iterable[Any],
    request: ModelRequest,
    on_event: OnEvent,
    as_model_error: Callable[[Exception], ModelError],
) -> Reply:
    """Return the Reply of a stream, telling `on_event` of every piece; see streams.follow."""
    return follow(_Stream(on_event), chunks, request, as_model_error)


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
        self.closed = False  # usage may come after the reason

    @property
    def ended(self) -> bool:
        """Whether the server said that the answer is whole: by its reason, or by its usage."""
        return bool(self.finish_reason or self._usage)

    def take(self, body: dict[str, Any]) -> None:
        """Take one chunk in; raise ModelError for an error sent as a chunk."""
        if body.get("error"):
            raise from_body(body, status=200)
        self._usage = _usage(body) or self._usage
        self._id = self._id or str(body.get("id") or "")
        self._model = self._model or str(body.get("model") or "")
        for choice in (body.get("choices") or [])[:1]:
            self.finish_reason = str(choice.get("finish_reason") or self.finish_reason)
            self._take_delta(choice.get("delta") or {})

    def _take_delta(self, delta: dict[str, Any]) -> None:
        text = text_of(delta.get("content"))
        if text:
            self._text.append(text)
            self._on_event("delta", {"text": text})
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        self._reasoning.append(text_of(reasoning))
        self._refusal += text_of(delta.get("refusal"))
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
