"""The Responses API as a wire: what is sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from chatapp.llm.adaptations import with_parameters
from chatapp.llm.answer_ends import AnswerEnd, end_of
from chatapp.llm.answer_shapes import listed
from chatapp.llm.errors import ErrorKind, ModelError, amid_answer, from_body
from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest, OnEvent, Reply, ignore_event
from chatapp.llm.responses_output import Output
from chatapp.llm.streams import follow, plain
from chatapp.llm.thoughts import split
from chatapp.llm.usage import read_usage
from chatapp.messages.outgoing import TEXTS_ONLY, outgoing
from chatapp.messages.pairing import answers
from chatapp.messages.vendor import CALL_KEYS, for_server_all, own_fields, server_of
from chatapp.messages.wire import is_blank, text_of

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
_UNDER_WAY = ("in_progress", "queued")


def arguments_of(config: ModelConfig, request: ModelRequest) -> dict[str, Any]:
    """Return the keyword arguments of `responses.create`."""
    server = server_of(config.name, config.base_url)
    items = [item for item, _ in _items(request, config.adaptations, server)]
    arguments: dict[str, Any] = {"model": config.name, "input": items, "store": request.stores}
    if request.previous_response_id:
        arguments["previous_response_id"] = request.previous_response_id
    if not request.stores and not config.base_url:
        # Only OpenAI's own server is sure to know the parameter; others may refuse it.
        arguments["include"] = ["reasoning.encrypted_content"]
    if request.tools:
        arguments["tools"] = tools_of(request.tools)
    if request.tools and request.forbids_tools:
        arguments["tool_choice"] = "none"
    if request.max_output:
        arguments["max_output_tokens"] = max(MIN_OUTPUT_TOKENS, request.max_output)
    if request.temperature is not None:
        arguments["temperature"] = request.temperature
    if request.effort:
        arguments["reasoning"] = {"effort": request.effort}
    if request.stream:
        arguments["stream"] = True
    return with_parameters(arguments, config.adaptations | request.adaptations)


def _items(
    request: ModelRequest, known: frozenset[str] = frozenset(), server: str = ""
) -> Iterator[tuple[dict[str, Any], int | None]]:
    """Yield the items of the messages that the server does not have, each with its source."""
    codes = known | request.adaptations
    on_server = request.messages_on_server if request.previous_response_id else 0
    form = codes | ({TEXTS_ONLY} if request.plain_text else frozenset())
    own = for_server_all(request.messages, request.tools, server, form)
    sent = outgoing(own, codes, tools=request.tool_names)
    held = next((n for n, (_, at) in enumerate(sent) if at is not None and at >= on_server), None)
    items = sourced_items(
        [message for message, _ in sent],
        plain_text=request.plain_text or TEXTS_ONLY in codes,
        messages_on_server=len(sent) if held is None else held,
    )
    for item, index in items:
        yield item, sent[index][1]


def message_at(request: ModelRequest, index: int) -> int | None:
    """Return which of the request's messages `input[index]` was made of; None where there is none.

    One message may be several items, and held ones are none.
    """
    sources = [source for _, source in _items(request)]
    return sources[index] if 0 <= index < len(sources) else None


def send(client: Any, arguments: dict[str, Any]) -> Any:
    """Return what the SDK answers: a response, or a stream of events.

    The items go past the SDK's look for values to convert (see chat_wire.send).
    """
    items = {"input": arguments["input"]}
    return client.responses.create(**(arguments | {"input": []}), extra_body=items)


def reply_of(response: Any) -> Reply:
    """Return the Reply of a whole response; raise ModelError for one that failed or is none."""
    body = plain(response)
    answer = _Answer(ignore_event)
    try:
        answer.settle(body)
    except ModelError as error:
        error.partial = answer.reply("interrupted")
        raise
    is_told = listed(body.get("output")) or isinstance(body.get("output_text"), str)
    if not is_told and body.get("output") != []:
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
        self.told_end = False

    @property
    def ended(self) -> bool:
        """Whether the server said that the answer is whole: this API has an event for it."""
        return bool(self.finish_reason)

    @property
    def closed(self) -> bool:
        """Whether the last event was taken; some servers leave the connection open behind it."""
        return self.ended

    @property
    def characters(self) -> int:
        """How long its text, its thoughts or its calls have become, whichever is longest."""
        return self._output.characters

    @property
    def items(self) -> int:
        """How many messages, calls and thoughts it has."""
        return self._output.items

    def take(self, body: dict[str, Any]) -> None:
        """Take one event in; raise ModelError for an error sent as an event."""
        kind = str(body.get("type") or "")
        response = body.get("response")
        if kind == "error" or body.get("error"):
            raise self._failure(body.get("error") or body)
        if isinstance(response, Mapping):
            self._take_head(response)
        told = response if isinstance(response, Mapping) else {}
        if kind == "response.failed":
            self.settle({**told, "status": "failed"})
        elif kind in _ENDS:
            self.settle({"status": kind.partition(".")[2], **told})
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
        self._output.settle(response.get("output"))
        if not self._output.has_begun and isinstance(response.get("output_text"), str):
            self._output.take("response.output_text.done", {"text": response["output_text"]})
        if response.get("error") or status in _FAILED:
            raise self._failure(response.get("error"))
        if status in _UNDER_WAY:
            detail = f"The response is {status}, so it is not whole."
            raise ModelError(ErrorKind.BROKEN_ANSWER, detail, status=200)
        if status == "incomplete":
            details = response.get("incomplete_details")
            told = details.get("reason") if isinstance(details, Mapping) else details
            reason = str(told or "length")
            self.finish_reason = _CUT_SHORT.get(reason, reason)
        else:
            self.finish_reason = "tool_calls" if self._output.tool_calls() else "stop"

    def _failure(self, told: Any) -> ModelError:
        """Return what an error of a response means: a refusal, where nothing of it had come."""
        error = _error(told)
        is_vague = not _says_why(told)
        return amid_answer(error) if is_vague or self._output.has_begun else error

    def finish(self) -> None:
        """Tell what was held back of the text."""
        self._output.finish()

    def reply(self, finish_reason: str) -> Reply:
        """Return what has arrived so far."""
        text, thoughts = split(self._output.text)
        told = self._output.reasoning
        return Reply(
            text=None if is_blank(text) else text,
            tool_calls=self._output.tool_calls(is_cut=end_of(finish_reason) is AnswerEnd.CUT),
            reasoning="\n\n".join(part for part in (told, thoughts) if part),
            refusal=self._output.refusal,
            finish_reason=finish_reason,
            usage=self._usage,
            response_id=self._id,
            model=self._model,
            reasoning_items=self._output.reasoning_items,
            about=self._output.about,
        )


def _error(error: Any) -> ModelError:
    """Return the ModelError of an error inside an answer: often a code and an empty message."""
    if isinstance(error, Mapping):
        # The `type` of an error event only says that it is one.
        error = {key: value for key, value in error.items() if (key, value) != ("type", "error")}
    is_named = isinstance(error, str) or (error and (error.get("code") or error.get("type")))
    fallback = "" if is_named else "The response failed; the server does not say why."
    return from_body({"error": error}, status=200, fallback=fallback)


def _says_why(error: Any) -> bool:
    if not isinstance(error, Mapping):
        return bool(error)
    named = error.get("code") or error.get("message")
    return bool(named or error.get("type") not in (None, "", "error"))


def usage_of(usage: Any) -> dict[str, Any] | None:
    """Return this API's usage in Chat Completions form; None where none was reported."""
    return read_usage(usage)


# Parts that a message may bring in the form of this API already.
_OWN_PARTS = ("input_image", "input_file", "input_audio")
_WORDS = {
    "image_url": "image",
    "input_image": "image",
    "input_file": "file",
    "input_audio": "audio",
}
_FILE_KEYS = ("file_data", "file_id", "file_url", "filename")
_NO_PARAMETERS = {"type": "object", "properties": {}}


def items_of(
    messages: Sequence[Mapping[str, Any]], *, plain_text: bool = False, messages_on_server: int = 0
) -> list[dict[str, Any]]:
    """Return the messages behind the first `messages_on_server` ones as items of a Responses
    request.

    A call is only given with its result, a result only with its call, which may be one of the held
    messages. `plain_text`: contents are texts, not typed parts.
    """
    return [
        item
        for item, _ in sourced_items(
            messages, plain_text=plain_text, messages_on_server=messages_on_server
        )
    ]


def sourced_items(
    messages: Sequence[Mapping[str, Any]], *, plain_text: bool = False, messages_on_server: int = 0
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield what items_of returns, each with the index of its message."""
    placed = answers(messages)
    answered = set(placed.values())
    for index, message in enumerate(messages):
        if index < messages_on_server:
            continue
        items: Iterable[dict[str, Any]]
        if message["role"] == "tool":
            items = [_output(message, plain_text=plain_text)] if index in placed else []
        elif message["role"] == "assistant":
            calls = enumerate(message.get("tool_calls") or ())
            kept = [call for number, call in calls if (index, number) in answered]
            items = _produced(message, kept, plain_text=plain_text)
        else:
            items = _said(message, plain_text=plain_text)
        for item in items:
            yield item, index


def _said(message: Mapping[str, Any], *, plain_text: bool) -> Iterator[dict[str, Any]]:
    """Yield the item of a user's or system message; none for an empty one."""
    role = "user" if message["role"] == "user" else "system"
    content = _input(message.get("content"), plain_text=plain_text)
    if content:
        yield {"type": "message", "role": role, "content": content}


def _produced(
    message: Mapping[str, Any], calls: Sequence[Mapping[str, Any]], *, plain_text: bool
) -> list[dict[str, Any]]:
    """Return what the model once produced: its reasoning, its text, its calls, in this order."""
    produced: list[dict[str, Any]] = []
    parts = list(_output_parts(message))
    if parts:
        content: Any = parts
        if plain_text:
            content = "".join(part.get("text") or part.get("refusal") or "" for part in parts)
        produced.append({"type": "message", "role": "assistant", "content": content})
    produced += [_call(call) for call in calls]
    # Servers refuse reasoning that leads to nothing.
    return [*_reasoning(message), *produced] if produced else []


def _reasoning(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the reasoning items as they came, without the nulls that no server takes back.

    One that holds nothing but its id is of no use to a server that did not keep it.
    """
    for item in message.get("reasoning_items") or ():
        if item.get("encrypted_content") or item.get("content"):
            yield {key: value for key, value in item.items() if value is not None}


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["function"].get("arguments")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments or {}, ensure_ascii=False)
    return {
        "type": "function_call",
        "call_id": call.get("id") or "",
        "name": call["function"]["name"],
        "arguments": arguments,
        **own_fields(call, CALL_KEYS),
    }


def _output(message: Mapping[str, Any], *, plain_text: bool) -> dict[str, Any]:
    """Return a result's item: its text, or its parts where some are no text."""
    content = message.get("content")
    parts = _parts(content)
    only_text = all(isinstance(part.get("text"), str) for part in parts)
    output = text_of(content) if only_text else _input(content, plain_text=plain_text)
    return {
        "type": "function_call_output",
        "call_id": message.get("tool_call_id") or "",
        "output": output,
    }


def _parts(content: Any) -> list[Mapping[str, Any]]:
    """Return a chat message's content as its list of parts."""
    if isinstance(content, list):
        return [part for part in content if isinstance(part, Mapping)]
    return [{"type": "text", "text": content}] if isinstance(content, str) else []


def _input(content: Any, *, plain_text: bool) -> str | list[dict[str, Any]]:
    """Return what goes in: typed parts, or one text that names the parts it cannot hold."""
    parts = _parts(content)
    if plain_text:
        return "".join(_text_or_name(part) for part in parts)
    return [_input_part(part) for part in parts if part.get("text") != ""]


def _input_part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if kind == "image_url":
        image = part.get("image_url")
        image = image if isinstance(image, Mapping) else {"url": image}
        detail = image.get("detail") or "auto"
        return {"type": "input_image", "image_url": image.get("url"), "detail": detail}
    if kind == "file" and isinstance(part.get("file"), Mapping):
        file = part["file"]
        return {"type": "input_file", **{key: file[key] for key in _FILE_KEYS if file.get(key)}}
    if kind in _OWN_PARTS:
        return dict(part)
    return {"type": "input_text", "text": _text_or_name(part)}


def _text_or_name(part: Mapping[str, Any]) -> str:
    text = part.get("text")
    if isinstance(text, str):
        return text
    kind = str(part.get("type") or "part")
    return f"[{_WORDS.get(kind, kind)} not sent]"


def _output_parts(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the typed parts of an assistant's message; a refusal is one, also beside a text."""
    refusal = message.get("refusal") or ""
    text = message.get("content")
    # Chat messages repeat a refusal as content where there is no other.
    for part in _parts(text if text != refusal else None):
        if isinstance(part.get("refusal"), str):
            refusal = refusal or part["refusal"]
        elif part.get("text") != "":
            yield {"type": "output_text", "text": _text_or_name(part)}
    if refusal:
        yield {"type": "refusal", "refusal": refusal}


def tools_of(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return chat tools in this API's flat form; what is in it already stays as it is."""
    return [_tool(tool) for tool in tools]


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return dict(tool)
    given = {key: value for key, value in function.items() if value is not None}
    # Without `strict` this API would enforce the schema, which Chat Completions does not.
    return {"type": "function", "parameters": _NO_PARAMETERS, "strict": False, **given}
