"""The Chat Completions wire: a ModelRequest as arguments of the SDK, and its answers as a Reply."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from chatapp.llm.adaptations import with_parameters
from chatapp.llm.answer_ends import AnswerEnd, end_of
from chatapp.llm.errors import ErrorKind, ModelError, from_body
from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest, OnEvent, Reply, ignore_event
from chatapp.llm.streams import follow, is_json, plain, splitter_for
from chatapp.llm.thoughts import TEXT_FIELDS, content_of, other_parts, split, thoughts_of
from chatapp.messages.outgoing import TEXTS_ONLY, outgoing
from chatapp.messages.vendor import (
    CALL_KEYS,
    MESSAGE_KEYS,
    fitting,
    for_server_all,
    merged,
    own_fields,
    server_of,
)
from chatapp.messages.wire import MAX_VENDOR_CHARS, WireMessage, is_blank, text_of

# What only the Responses API takes back.
_NOT_ON_THIS_WIRE = ("reasoning_items",)


def arguments_of(config: ModelConfig, request: ModelRequest) -> dict[str, Any]:
    """Return the keyword arguments of `chat.completions.create`."""
    messages = [message for message, _ in outgoing_of(config, request)]
    arguments: dict[str, Any] = {"model": config.name, "messages": messages}
    if request.tools:
        arguments["tools"] = list(request.tools)
    if request.tools and request.forbids_tools:
        arguments["tool_choice"] = "none"
    if request.max_output:
        # OpenAI's newer models refuse the old name, compatible servers know only that one.
        name = "max_tokens" if config.base_url else "max_completion_tokens"
        arguments[name] = request.max_output
    if request.temperature is not None:
        arguments["temperature"] = request.temperature
    if request.effort:
        arguments["reasoning_effort"] = request.effort
    if request.stream:
        arguments |= {"stream": True, "stream_options": {"include_usage": True}}
    return with_parameters(arguments, config.adaptations | request.adaptations)


def outgoing_of(config: ModelConfig, request: ModelRequest) -> list[tuple[WireMessage, int | None]]:
    """Return the messages as they are sent, each with the index that it came from."""
    server = server_of(config.name, config.base_url)
    found = _outgoing(request, config.adaptations, server)
    return [(cast(WireMessage, message), source) for message, source in found]


def _outgoing(
    request: ModelRequest, known: frozenset[str] = frozenset(), server: str = ""
) -> list[tuple[dict[str, Any], int | None]]:
    """Return the messages in the form of this wire, each with the index that it came from."""
    codes = known | request.adaptations | ({TEXTS_ONLY} if request.plain_text else frozenset())
    own = for_server_all(request.messages, request.tools, server, codes)
    return [
        ({key: value for key, value in message.items() if key not in _NOT_ON_THIS_WIRE}, source)
        for message, source in outgoing(own, codes)
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
    if _is_error(body):
        raise from_body(body, status=200)
    choices = _list(body.get("choices"))
    if not choices or not isinstance(choices[0], Mapping):
        raise ModelError(ErrorKind.BAD_ANSWER, "The answer has no choices.", status=200)
    if not isinstance(choices[0].get("message") or {}, Mapping):
        raise ModelError(ErrorKind.BAD_ANSWER, "The answer has no message.", status=200)
    answer = _Completion(ignore_event)
    try:
        answer.take(body)
    except ModelError as error:
        error.partial = answer.reply("interrupted")
        raise
    return answer.reply(answer.finish_reason or "stop")


def _usage(body: dict[str, Any]) -> dict[str, Any] | None:
    usage = body.get("usage")
    return usage if isinstance(usage, dict) and usage else None


# Where a server says why its answer ended: in the choice, in the message, beside the choices.
_REASON_KEYS = ("finish_reason", "stop_reason", "done_reason", "finishReason")
# What is kept of a choice and of a body, besides what everybody has.
_ABOUT = (
    "logprobs",
    "annotations",
    "citations",
    "search_results",
    "references",
    "grounding_metadata",
    "groundingMetadata",
    "provider",
)


def _is_error(body: Mapping[str, Any]) -> bool:
    """Whether a body or a chunk is an error: it has one, says that it is one, or is nothing else.

    Some servers send what is wrong under status 200 and without an envelope.
    """
    if body.get("error") or "error" in (body.get("object"), body.get("type")):
        return True
    is_flat = isinstance(body.get("message"), str) and body.get("code") is not None
    return is_flat and "choices" not in body


def _reason_of(*places: Mapping[str, Any]) -> str:
    """Return the server's word for the end of an answer; empty where it has none yet."""
    for key in _REASON_KEYS:
        for place in places:
            value = place.get(key)
            if isinstance(value, str) and value and value.lower() not in ("null", "none"):
                return value
    return ""


def _failure(reason: str, *places: Mapping[str, Any]) -> ModelError | None:
    """Return the failure of the server that a choice tells of: an error, or the word for one."""
    error = next((place["error"] for place in places if place.get("error")), None)
    if error is not None:
        failure = from_body({"error": error}, status=200, fallback="The answer broke off.")
        # Nothing was wrong with the request, or the answer would not have begun.
        is_vague = failure.kind in (ErrorKind.REJECTED, ErrorKind.BAD_ANSWER)
        return _broken(failure.detail, failure.code) if is_vague else failure
    if end_of(reason) is AnswerEnd.BROKEN:
        return _broken(f"The server ended its answer with {reason}.", reason)
    return None


def _broken(detail: str, code: str) -> ModelError:
    return ModelError(ErrorKind.UNAVAILABLE, detail, status=200, code=code[:100])


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


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
        call["id"] = call["id"] or str(piece.get("id") or "")
        name, arguments = str(function.get("name") or ""), _arguments_of(function)
        # A name may come in pieces; one that comes with an id is whole.
        if not call["name"] or not (piece.get("id") or call["arguments"] or name == call["name"]):
            call["name"] += name
        # Some servers say all of them once more at the end.
        if not (arguments == call["arguments"] and is_json(arguments)):
            call["arguments"] += arguments
        call["own"] = merged(call["own"], own_fields(piece, CALL_KEYS))
        return call

    def _find(self, piece: dict[str, Any]) -> dict[str, Any]:
        index, call_id = piece.get("index"), piece.get("id")
        known: dict[str, Any] | None = self._by_index.get(index) if index is not None else None
        if known is not None and not _starts_another(known, piece):
            return known
        if index is None:
            if call_id:
                for call in reversed(self._calls):
                    if call["id"] == call_id and not _starts_another(call, piece):
                        return call
            elif self._calls and not _starts_another(self._calls[-1], piece):
                return self._calls[-1]
        call = {"id": "", "name": "", "arguments": "", "own": {}, "number": len(self._calls)}
        self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def finished(self) -> tuple[dict[str, Any], ...]:
        """Return the calls in OpenAI form; a missing id is made up once, here."""
        room = MAX_VENDOR_CHARS // max(1, len(self._calls))
        return tuple(
            {
                "id": call["id"] or f"call_{uuid.uuid4().hex[:24]}",
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
                **fitting(call["own"], room),
            }
            for call in self._calls
            if call["name"] or call["arguments"]
        )

    def left_out(self) -> list[str]:
        """Return the names of own fields that were too large to be kept."""
        room = MAX_VENDOR_CHARS // max(1, len(self._calls))
        return [
            name
            for call in self._calls
            for name in call["own"].keys() - fitting(call["own"], room).keys()
        ]

    def has_half_a_call(self) -> bool:
        """Whether the arguments of a call break off."""
        return any(not is_json(call["arguments"]) for call in self._calls if call["arguments"])


def _starts_another(call: dict[str, Any], piece: dict[str, Any]) -> bool:
    """Whether a piece that seems to go on with a call is a further one.

    Some servers number every call 0, or give all of them one id or none: then a name behind whole
    arguments tells.
    """
    function = piece.get("function") or {}
    call_id, name = piece.get("id"), function.get("name")
    if not name or not call["name"]:
        return False
    if call_id and call["id"] and call_id != call["id"]:
        return True
    has_new = name != call["name"] or (not call_id and piece.get("index") is None)
    return has_new and bool(_arguments_of(function)) and is_json(call["arguments"])


def _arguments_of(function: Mapping[str, Any]) -> str:
    arguments = function.get("arguments") or ""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False)


def read_stream(
    chunks: Iterable[Any],
    request: ModelRequest,
    on_event: OnEvent,
    as_model_error: Callable[[Exception], ModelError],
) -> Reply:
    """Return the Reply of a stream, telling `on_event` of every piece; see streams.follow."""
    return follow(_Completion(on_event), chunks, request, as_model_error)


class _Completion:
    """Accumulates the chunks of one streamed completion, or takes a whole one."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._splitter = splitter_for(on_event)
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls = _Calls()
        self._fields: dict[str, Any] = {}
        self._about: dict[str, Any] = {}
        self._usage: dict[str, Any] | None = None
        self._id = self._model = self._refusal = self._thoughts_in = ""
        self._has_begun = self._was_counted = False
        self.finish_reason = ""
        self.told_end = False
        self.closed = False  # usage may come after the reason

    @property
    def ended(self) -> bool:
        """Whether the server said that the answer is whole.

        It says so by a reason, by `[DONE]`, or by a last piece with its usage and no choice. Usage
        in a piece of the answer is no end: some servers report it with each.
        """
        if self.finish_reason:
            return True
        is_over = self.told_end or self._was_counted
        return is_over and self._has_begun and not self._calls.has_half_a_call()

    def take(self, body: dict[str, Any]) -> None:
        """Take one chunk in; raise ModelError for an error sent as a chunk or inside a choice."""
        if _is_error(body):
            raise from_body(body, status=200)
        self._usage = _usage(body) or self._usage
        self._id = self._id or str(body.get("id") or "")
        self._model = self._model or str(body.get("model") or "")
        self._keep_about(body)
        choices = [one for one in _list(body.get("choices")) if isinstance(one, Mapping)][:1]
        self._was_counted = not choices and (bool(_usage(body)) or self._was_counted)
        for choice in choices:
            self._has_begun = True
            self._take_choice(choice, body)
        if not choices:
            self.finish_reason = _reason_of(body) or self.finish_reason

    def _take_choice(self, choice: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        is_whole = "delta" not in choice
        given = choice.get("message" if is_whole else "delta")
        message: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        self._take_message(message)
        self._take_calls(message, is_whole=is_whole)
        self._keep_about(choice)
        reason = _reason_of(choice, message, body)
        failure = _failure(reason, choice, message)
        if failure is not None:
            raise failure
        self.finish_reason = reason or self.finish_reason

    def _keep_about(self, place: Mapping[str, Any]) -> None:
        for name in _ABOUT:
            if place.get(name):
                self._about[name] = merged(self._about.get(name), place[name], name)

    def _take_message(self, message: Mapping[str, Any]) -> None:
        """Take in what a message, or a piece of one, says and thinks."""
        thoughts, field = thoughts_of(message)
        text, thoughts_beside = content_of(message.get("content"))
        self._thoughts_in = self._thoughts_in or field
        self._think(thoughts + thoughts_beside)
        if others := other_parts(message.get("content")):
            self._about["parts"] = merged(self._about.get("parts"), others)
        if text:
            self._text.append(text)
            self._splitter.feed(text)
        self._refusal += text_of(message.get("refusal"))
        known = (*MESSAGE_KEYS, field, "error", *_REASON_KEYS)
        for name, value in own_fields(message, known).items():
            # The same thoughts once more, as a text, are kept as such.
            if not (isinstance(value, str) and name in TEXT_FIELDS):
                self._fields[name] = merged(self._fields.get(name), value, name)

    def _take_calls(self, message: Mapping[str, Any], *, is_whole: bool) -> None:
        calls = _list(message.get("tool_calls"))
        called = message.get("function_call")
        if not calls and isinstance(called, Mapping) and called:
            calls = [{"index": 0, "function": called}]  # the form before there were tools
        for place, piece in enumerate(calls):
            self._call({**piece, "index": place} if is_whole else piece)

    def _think(self, text: str) -> None:
        if text:
            self._reasoning.append(text)
            self._on_event("reasoning", {"text": text})

    def _call(self, piece: dict[str, Any]) -> None:
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

    def finish(self) -> None:
        """Tell what was held back of the text."""
        self._splitter.finish()

    def reply(self, finish_reason: str) -> Reply:
        """Return what has arrived so far."""
        text, thoughts = split("".join(self._text))
        told = "".join(self._reasoning)
        return Reply(
            text=None if is_blank(text) else text,
            tool_calls=self._calls.finished(),
            reasoning="\n\n".join(part for part in (told, thoughts) if part),
            refusal=self._refusal,
            finish_reason=finish_reason,
            usage=self._usage,
            response_id=self._id,
            model=self._model,
            fields=self._fields,
            about=self._about,
            thoughts_in=self._thoughts_in,
            left_out=tuple(self._calls.left_out()),
        )
