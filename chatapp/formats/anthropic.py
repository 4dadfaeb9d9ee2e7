"""Request logs of Anthropic's Messages API: requests with their responses, or messages alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from chatapp.formats import claude_records as records
from chatapp.formats.answers import AnswerBuilder, chained
from chatapp.formats.anthropic_blocks import (
    content_of_blocks,
    is_own_block,
    is_result,
    result_wire,
    take_answer,
)
from chatapp.formats.exchanges import (
    Dialect,
    Exchange,
    any_value,
    exchange_in,
    exchanges_of,
    identity_of,
    longest_of_each,
    plain_values,
    time_of,
)
from chatapp.formats.openai_messages import check_message
from chatapp.formats.own_parts import OWN_KEY
from chatapp.formats.reading import (
    DamagedError,
    Document,
    Wire,
    is_block,
    joined,
    moment,
    shown,
    text_or_empty,
)
from chatapp.formats.records import (
    Conversation,
    ImportedMessage,
    ParsedFile,
    Problem,
    ProblemList,
    placeholder,
)
from chatapp.formats.registry import Format

NAME = "anthropic"
_READ = ("messages", "system", "system_prompt", "model", "tools", "stream", "role", "type", "id")
_OPENAI_ROLES = ("tool", "function", "developer", "system")


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        return False
    return "content" in value or "tool_calls" in value


def _is_response(value: Any) -> bool:
    if isinstance(value, list):  # a stream, event by event
        return any(is_block(event, "message_start") for event in value)
    if not isinstance(value, dict):
        return False
    if is_block(value, "error"):
        return isinstance(value.get("error"), dict)
    if _choice(value):
        return True
    return value.get("role") == "assistant" and isinstance(value.get("content"), list)


def _choice(value: Any) -> Wire | None:
    """Return the message of a response as a gateway gives it to programs made for OpenAI."""
    choices = _listed(value.get("choices"))
    message = choices[0].get("message") if choices and isinstance(choices[0], dict) else None
    return message if isinstance(message, dict) else None


DIALECT = Dialect(key="messages", is_message=_is_message, is_response=_is_response)


def recognises(document: Document) -> bool:
    """Whether a file holds requests, responses or messages that only this interface has."""
    return any_value(document, _shows_itself)


def _shows_itself(value: Any) -> bool:
    if _has_own_blocks(value) or _is_own_response(value):
        return True
    exchange = exchange_in(value, DIALECT)
    if exchange is None or OWN_KEY in exchange.request or "system_prompt" in exchange.request:
        return False
    request, response = exchange.request, exchange.response
    return (
        isinstance(request.get("system"), (str, list))
        or "anthropic_version" in request
        or any(map(_has_schema, _listed(request.get("tools"))))
        or any(map(_has_own_blocks, request["messages"]))
        or _is_own_response(response)
        or isinstance(response, list)
    )


def _is_own_response(value: Any) -> bool:
    # OpenAI's Responses API has messages of this type too, which say no reason for their end.
    return is_block(value, "message") and _is_response(value) and "stop_reason" in value


def _has_own_blocks(value: Any) -> bool:
    return _is_message(value) and any(map(is_own_block, _listed(value.get("content"))))


def _has_schema(tool: Any) -> bool:
    return isinstance(tool, dict) and isinstance(tool.get("input_schema"), dict)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def parse(document: Document) -> ParsedFile:
    """The conversations of a log, each once; damaged messages are left out and told."""
    problems = ProblemList()
    exchanges = exchanges_of(document, DIALECT, problems)
    # One by one: each request of a long log repeats all that came before it.
    read = (_conversation(exchange, problems) for exchange in exchanges)
    conversations = tuple(longest_of_each(read))
    return ParsedFile(format=NAME, conversations=conversations, problems=problems)


def _conversation(exchange: Exchange, problems: list[Problem]) -> Conversation:
    reader = MessageReader(problems)
    request = exchange.request
    for index, value in enumerate(request["messages"]):
        reader.take(value, line=exchange.line_of(index), subject=f"Message {index + 1}")
    if exchange.response is not None:
        reader.take_response(exchange.response, line=exchange.line)
    elif exchange.has_unread_response:
        text = "The response was left out: it is no message of the assistant."
        problems.append(Problem(line=exchange.line, text=text))
    reader.tell_left_out(exchange.line)
    prompt = _system_prompt(request, reader)
    created_at = time_of(exchange)
    messages = chained(reader.messages)
    return Conversation(
        format=NAME,
        identity=identity_of(NAME, exchange, prompt, [message.wire for message in messages]),
        title=text_or_empty(request.get("title")) or text_or_empty(exchange.around.get("title")),
        messages=messages,
        system_prompt=prompt,
        tools=_tools(request, exchange.line, problems),
        model=text_or_empty(request.get("model")) or reader.model,
        created_at=created_at,
        metadata=plain_values(request, without=_READ),
    )


def _system_prompt(request: Wire, reader: MessageReader) -> str:
    """Return the prompt: the request's own, or of a message of the role system that opens it."""
    stated = request.get("system") or request.get("system_prompt")
    blocks = stated if isinstance(stated, list) else [stated]
    prompt = joined(
        text_or_empty(block.get("text")) if isinstance(block, dict) else text_or_empty(block)
        for block in blocks
    )
    first = reader.messages[0].wire if reader.messages else {}
    opening = first.get("content") if first.get("role") == "system" else None
    if isinstance(opening, str) and prompt in ("", opening):
        del reader.messages[0]
        return opening
    return prompt


def _tools(request: Wire, line: int, problems: list[Problem]) -> tuple[Wire, ...]:
    tools: list[Wire] = []
    for tool in _listed(request.get("tools")):
        if isinstance(tool, dict) and isinstance(tool.get("function"), dict):
            tools.append(tool)
        elif isinstance(tool, dict) and _has_schema(tool) and isinstance(tool.get("name"), str):
            function = {"name": tool["name"], "parameters": tool["input_schema"]}
            if description := text_or_empty(tool.get("description")):
                function["description"] = description
            tools.append({"type": "function", "function": function})
        else:
            name = tool.get("name") if isinstance(tool, dict) else tool
            text = f"The tool {shown(name)} was left out: it is one of the server's own."
            problems.append(Problem(line=line, text=text))
    return tuple(tools)


class MessageReader:
    """Takes messages and a response one by one; what cannot be used becomes a problem."""

    def __init__(self, problems: list[Problem]) -> None:
        self.messages: list[ImportedMessage] = []
        self.model = ""
        self._problems = problems
        self._names: dict[str, str] = {}
        self._left_out: Counter[str] = Counter()

    def take(self, value: Any, *, line: int, subject: str) -> None:
        """Read one message of a request."""
        try:
            self.messages += self._read(value)
        except DamagedError as error:
            text = f"{subject} was left out: {error}."
            self._problems.append(Problem(line=line, text=text))

    def take_response(self, value: Any, *, line: int) -> None:
        """Read what came back, whole or as the events of a stream."""
        response = message_of_events(value) if isinstance(value, list) else value
        if is_block(response, "error"):
            error = response.get("error")
            said = text_or_empty(error.get("message")) if isinstance(error, dict) else ""
            text = (
                f"The response was left out: it is an error{f' ({shown(said)})' if said else ''}."
            )
            self._problems.append(Problem(line=line, text=text))
            return
        self.model = text_or_empty(response.get("model"))
        response = _choice(response) or response
        last = self.messages[-1] if self.messages else None
        begun = (
            last is not None and last.wire["role"] == "assistant" and "tool_calls" not in last.wire
        )
        before = len(self.messages)
        self.take(response, line=line, subject="The response")
        if begun and len(self.messages) > before:
            self._join_begun_answer(before)

    def _join_begun_answer(self, at: int) -> None:
        """Put the start of an answer that the request gave before what the model went on with."""
        begun, rest = self.messages[at - 1].wire["content"], self.messages[at]
        said = rest.wire["content"]
        if isinstance(begun, str) and (said is None or isinstance(said, str)):
            wire = {**rest.wire, "content": begun + (said or "")}
            self.messages[at - 1 : at + 1] = [replace(rest, wire=wire)]

    def tell_left_out(self, line: int) -> None:
        """Add a problem for each kind of block that has no place in a message."""
        for kind, count in self._left_out.items():
            text = f"Left out: content blocks of the kind {shown(kind)} ({count})."
            self._problems.append(Problem(line=line, text=text))
        self._left_out.clear()

    def _read(self, value: Any) -> list[ImportedMessage]:
        if not isinstance(value, dict):
            raise DamagedError(f"it is not an object but {shown(value)}")
        role, content = value.get("role"), value.get("content")
        if role in _OPENAI_ROLES or "tool_calls" in value:
            return self._read_openai(value)
        if role == "assistant":
            return self._read_answer(value)
        if role != "user":
            raise DamagedError(f"its role is {shown(role)}")
        return self._read_user(content, value)

    def _read_openai(self, value: Wire) -> list[ImportedMessage]:
        if isinstance(content := value.get("content"), list) and value["role"] == "system":
            value = {**value, "content": content_of_blocks(content, self._left_out)}
        checked = check_message(value)
        return [
            ImportedMessage(key="", parent=None, wire=checked.wire, reasoning=checked.reasoning)
        ]

    def _read_user(self, content: Any, value: Wire) -> list[ImportedMessage]:
        if content is None:
            raise DamagedError("it has no content")
        created_at = moment(value.get("timestamp")) or moment(value.get("created_at"))
        found: list[tuple[Wire, dict[str, Any]]] = []
        said = content
        if isinstance(content, list):
            found = [result_wire(b, self._names, self._left_out) for b in content if is_result(b)]
            said = [block for block in content if not is_result(block)]
        if said or not found:
            text = content_of_blocks(said, self._left_out)
            if isinstance(content, list) and not text and not found:
                raise DamagedError("it says nothing that can be read")
            found += [({"role": "user", "content": text}, {})] if text or not found else []
        return [
            ImportedMessage(key="", parent=None, wire=wire, metadata=more, created_at=created_at)
            for wire, more in found
        ]

    def _read_answer(self, value: Wire) -> list[ImportedMessage]:
        builder = AnswerBuilder()
        content = value.get("content")
        summaries = [block for block in _listed(content) if is_block(block, "compaction")]
        rest = [block for block in _listed(content) if not is_block(block, "compaction")]
        take_answer(
            rest if isinstance(content, list) else content, builder, self._names, self._left_out
        )
        stop = text_or_empty(value.get("stop_reason"))
        answers = builder.finished(
            created_at=moment(value.get("timestamp")) or moment(value.get("created_at")),
            usage=records.usage([value]),
            finish_reason=records.FINISH_REASONS.get(stop, stop),
        )
        marks = [_placeholder(text) for block in summaries if (text := _summary_of(block))]
        if not answers and not marks:
            raise DamagedError("it has no content and no call")
        return marks + answers


def _summary_of(block: Mapping[str, Any]) -> str:
    return text_or_empty(block.get("content")) or text_or_empty(block.get("summary"))


def _placeholder(summary: str) -> ImportedMessage:
    return placeholder(key="", parent=None, summary=summary, created_at=None, metadata={})


_DELTAS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}


def message_of_events(events: list[Any]) -> Wire:
    """Return the message that the events of a stream make up, as far as they go."""
    message: Wire = {"role": "assistant", "content": []}
    blocks: dict[Any, Wire] = {}
    for event in filter(lambda found: isinstance(found, dict), events):
        inner = event.get("delta") if isinstance(event.get("delta"), dict) else {}
        if is_block(event, "message_start") and isinstance(event.get("message"), dict):
            message = {**event["message"], "content": []}
        elif is_block(event, "content_block_start") and isinstance(
            event.get("content_block"), dict
        ):
            blocks[str(event.get("index"))] = dict(event["content_block"])
        elif is_block(event, "content_block_delta"):
            key = _DELTAS.get(str(inner.get("type")))
            block = blocks.get(str(event.get("index")))
            if key and block is not None:
                block[key] = text_or_empty(block.get(key)) + text_or_empty(inner.get(key))
        elif is_block(event, "message_delta"):
            message |= {k: v for k, v in inner.items() if k in ("stop_reason", "stop_sequence")}
            if isinstance(event.get("usage"), dict):
                message["usage"] = {**(message.get("usage") or {}), **event["usage"]}
    for block in blocks.values():
        if partial := block.pop("partial_json", ""):
            block["input"] = partial
    message["content"] = list(blocks.values())
    return message


FORMAT = Format(
    name=NAME,
    label="request logs of Anthropic's Messages API (JSON or JSONL)",
    endings=(".json", ".jsonl"),
    recognises=recognises,
    parse=parse,
)
