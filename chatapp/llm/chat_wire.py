"""The Chat Completions wire: a ModelRequest as arguments of the SDK, and its answers as a Reply."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from chatapp.llm.adaptations import with_parameters
from chatapp.llm.answer_ends import AnswerEnd, end_of
from chatapp.llm.answer_shapes import (
    REASON_KEYS,
    calls_of,
    choices_of,
    index_of,
    listed,
    reason_of,
    refusal_of,
    says_error,
    spoken,
    unwrapped,
    usage_of,
)
from chatapp.llm.call_pieces import CallPieces, arguments_in
from chatapp.llm.errors import ErrorKind, ModelError, amid_answer, from_body, from_words
from chatapp.llm.growing_text import GrowingText
from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest, OnEvent, Reply, ignore_event
from chatapp.llm.streams import follow, plain, splitter_for
from chatapp.llm.thoughts import content_of, other_parts, split, thoughts_of
from chatapp.messages.outgoing import TEXTS_ONLY, outgoing
from chatapp.messages.vendor import (
    ABOUT_KEYS,
    MESSAGE_KEYS,
    THOUGHT_TEXTS,
    GrowingFields,
    for_server_all,
    own_fields,
    server_of,
)
from chatapp.messages.wire import WireMessage, is_blank

# What only the Responses API takes back.
_NOT_ON_THIS_WIRE = ("reasoning_items",)
_KNOWN_FIELDS = frozenset((*MESSAGE_KEYS, "error", *REASON_KEYS))


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
        for message, source in outgoing(own, codes, tools=request.tool_names)
    ]


def message_at(request: ModelRequest, index: int) -> int | None:
    """Return which of the request's messages `messages[index]` is; None where there is none."""
    sent = _outgoing(request)
    return sent[index][1] if 0 <= index < len(sent) else None


def send(client: Any, arguments: dict[str, Any]) -> Any:
    """Return what the SDK answers: a completion, or a stream of chunks.

    Messages go past the SDK's look for values to convert, of which they have none: it goes through
    every part of every message, and takes more than all else of a turn.
    """
    messages = {"messages": arguments["messages"]}
    return client.chat.completions.create(**(arguments | {"messages": []}), extra_body=messages)


def reply_of(completion: Any) -> Reply:
    """Return the Reply of a finished completion; raise ModelError for a body that is none."""
    body = unwrapped(plain(completion))
    if _is_error(body):
        raise from_body(body, status=200)
    choices = choices_of(body)
    if not choices:
        raise from_words(body)
    if not isinstance(choices[0].get("message") or {}, Mapping):
        raise ModelError(ErrorKind.BAD_ANSWER, "The answer has no message.", status=200)
    answer = _Completion(ignore_event)
    try:
        answer.take(body)
    except ModelError as error:
        error.partial = answer.reply("interrupted")
        raise
    answer.finish()
    return answer.reply(answer.finish_reason or "stop")


def _named(part: Any) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    return f"[{str(kind or 'part').removesuffix('_url')[:40]}]"


def _is_error(body: Mapping[str, Any]) -> bool:
    """Whether a body or a chunk is an error: it has one, says that it is one, or is nothing else.

    Some servers send what is wrong under status 200 and without an envelope.
    """
    if says_error(body.get("error")) or "error" in (body.get("object"), body.get("type")):
        return True
    if body.get("choices"):
        return False
    status = body.get("base_resp")
    if isinstance(status, Mapping) and status.get("status_code"):
        return True
    is_flat = isinstance(body.get("message"), str) and body.get("code") is not None
    return is_flat and "choices" not in body


def _failure(reason: str, *places: Mapping[str, Any]) -> ModelError | None:
    """Return the failure of the server that a choice tells of: an error, or the word for one."""
    error = next((place["error"] for place in places if says_error(place.get("error"))), None)
    if error is not None:
        broken = {"error": error}
        return amid_answer(from_body(broken, status=200, fallback="The answer broke off."))
    if end_of(reason) is AnswerEnd.BROKEN:
        detail = f"The server ended its answer with {reason}."
        return ModelError(ErrorKind.BROKEN_ANSWER, detail, status=200, code=reason[:100])
    return None


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
        self._text = GrowingText()
        self._reasoning = GrowingText()
        self._refusal = GrowingText()
        self._calls = CallPieces()
        self._fields = GrowingFields()
        self._about = GrowingFields()
        self._usage: dict[str, Any] | None = None
        self._id = self._model = self._thoughts_in = ""
        self._has_begun = self._was_counted = self._came_in_pieces = False
        # Of several answers to one request the first one counts.
        self._index: int | None = None
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

    @property
    def characters(self) -> int:
        """How long its text, its thoughts or its calls have become, whichever is longest."""
        said = len(self._text) + len(self._refusal)
        return max(said, len(self._reasoning), self._calls.characters)

    @property
    def items(self) -> int:
        """How many calls it has."""
        return len(self._calls)

    def take(self, body: dict[str, Any]) -> None:
        """Take one chunk in; raise ModelError for an error sent as a chunk or inside a choice."""
        body = unwrapped(body)
        if _is_error(body):
            error = from_body(body, status=200)
            raise amid_answer(error) if self._has_begun else error
        self._usage = usage_of(body) or self._usage
        self._id = self._id or str(body.get("id") or "")
        self._model = self._model or str(body.get("model") or "")
        self._keep_about(body)
        choices = choices_of(body)
        self._was_counted = not choices and (bool(usage_of(body)) or self._was_counted)
        if choices and self._index is None:
            self._index = min(map(index_of, choices))
        for choice in choices:
            if index_of(choice) == self._index:
                self._has_begun = True
                self._take_choice(choice, body)
                break
        if not choices:
            self._end_with(reason_of(body))

    def _take_choice(self, choice: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        is_whole = "delta" not in choice
        given = choice.get("message" if is_whole else "delta")
        # The form before there were messages.
        said = {"content": choice.get("text")} if is_whole else {}
        message: Mapping[str, Any] = given if isinstance(given, Mapping) else said
        self._take_message(message, is_whole=is_whole)
        self._take_calls(message, is_whole=is_whole)
        self._keep_about(choice)
        reason = reason_of(choice, message, body)
        failure = _failure(reason, choice, message)
        if failure is not None:
            raise failure
        self._end_with(reason)

    def _end_with(self, reason: str) -> None:
        """Take a word for the end in; a plain `stop` behind another end takes it not back."""
        if not self.finish_reason or (reason and end_of(reason) is not AnswerEnd.WHOLE):
            self.finish_reason = reason or self.finish_reason

    def _keep_about(self, place: Mapping[str, Any]) -> None:
        self._about.add({name: place[name] for name in ABOUT_KEYS if place.get(name)})

    def _take_message(self, message: Mapping[str, Any], *, is_whole: bool) -> None:
        """Take in what a message, or a piece of one, says and thinks."""
        thoughts, field = thoughts_of(message)
        text, thoughts_beside = content_of(message.get("content"))
        text = text or spoken(message)
        thoughts += thoughts_beside
        refusal = refusal_of(message)
        if not is_whole:
            self._came_in_pieces = True
        elif self._came_in_pieces and (text or thoughts or refusal):
            # Behind its pieces the whole says them once more. What says more than that, or comes
            # without a `delta` from the start, is a piece: those may repeat each other.
            text = self._text.rest_of(text)
            thoughts = self._reasoning.rest_of(thoughts)
            refusal = self._refusal.rest_of(refusal)
            self._came_in_pieces = not (text or thoughts or refusal)
        self._thoughts_in = self._thoughts_in or field
        self._think(thoughts)
        if others := other_parts(message.get("content")):
            self._about.add({"parts": others})
        if text:
            self._text.add(text)
            self._splitter.feed(text)
        self._refusal.add(refusal)
        own = own_fields(message, _KNOWN_FIELDS | {field})
        # The same thoughts once more, as a text, are kept as such.
        again = [name for name in THOUGHT_TEXTS if isinstance(own.get(name), str)]
        self._fields.add({name: value for name, value in own.items() if name not in again})

    def _take_calls(self, message: Mapping[str, Any], *, is_whole: bool) -> None:
        for place, piece in enumerate(calls_of(message)):
            self._call({**piece, "index": place} if is_whole else dict(piece))

    def _think(self, text: str) -> None:
        if text:
            self._reasoning.add(text)
            self._on_event("reasoning", {"text": text})

    def _call(self, piece: dict[str, Any]) -> None:
        call = self._calls.add(piece)
        self._on_event(
            "tool_call",
            {
                "index": call.number,
                "id": call.id,
                "name": call.name,
                "arguments_delta": arguments_in(piece.get("function") or {}),
            },
        )

    def finish(self) -> None:
        """Tell what was held back of the text, and what an answer without words is made of."""
        self._splitter.finish()
        if is_blank(self._splitter.text) and not self._calls.finished():
            images = self._fields.values.get("images")
            parts = [*listed(images), *listed(self._about.values.get("parts"))]
            if named := "\n".join(map(_named, parts)):
                self._text.add(named)
                self._on_event("delta", {"text": named})

    def reply(self, finish_reason: str) -> Reply:
        """Return what has arrived so far."""
        text, thoughts = split(str(self._text))
        told = str(self._reasoning)
        return Reply(
            text=None if is_blank(text) else text,
            tool_calls=self._calls.finished(is_cut=end_of(finish_reason) is AnswerEnd.CUT),
            reasoning="\n\n".join(part for part in (told, thoughts) if part),
            refusal=str(self._refusal),
            finish_reason=finish_reason,
            usage=self._usage,
            response_id=self._id,
            model=self._model,
            fields=self._fields.values,
            about=self._about.values,
            thoughts_in=self._thoughts_in,
            left_out=tuple(self._calls.left_out()),
        )
