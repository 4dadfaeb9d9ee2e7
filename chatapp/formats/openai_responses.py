"""Request logs of OpenAI's Responses API: `instructions` and `input`, with what came back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from chatapp.formats.answers import AnswerBuilder, chained
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
from chatapp.formats.reading import (
    DamagedError,
    Document,
    Wire,
    compact_json,
    count,
    file_part,
    is_block,
    joined,
    shown,
    text_or_empty,
    usage_of,
)
from chatapp.formats.records import Conversation, ImportedMessage, ParsedFile, Problem, ProblemList
from chatapp.formats.registry import Format
from chatapp.messages.vendor import ABOUT_KEYS

NAME = "openai_responses"
CALLS: Mapping[str, str] = {"function_call": "arguments", "custom_tool_call": "input"}
RESULTS = ("function_call_output", "custom_tool_call_output")
OWN_ITEMS = frozenset({*CALLS, *RESULTS, "reasoning"})
_READ = ("input", "instructions", "model", "tools", "previous_response_id", "output", "title", "id")
_ROLES = ("system", "developer", "user", "assistant")


def _is_item(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    kind = value.get("type", "message")
    if not isinstance(kind, str):
        return False
    return kind in OWN_ITEMS or (kind == "message" and value.get("role") in _ROLES)


def _is_response(value: Any) -> bool:
    if isinstance(value, list):  # its output, or a stream event by event
        return any(_is_item(item) or _whole_response(item) for item in value)
    return isinstance(value, dict) and isinstance(value.get("output"), list)


def _whole_response(event: Any) -> Wire | None:
    response = event.get("response") if isinstance(event, dict) else None
    is_whole = isinstance(response, dict) and isinstance(response.get("output"), list)
    return response if is_whole and event.get("type") != "response.created" else None


DIALECT = Dialect(key="input", is_message=_is_item, is_response=_is_response, takes_text=True)


def recognises(document: Document) -> bool:
    """Whether a file holds requests of this interface, or items that only it has."""
    return any_value(document, _shows_itself)


def _shows_itself(value: Any) -> bool:
    if _is_own_item(value):
        return True
    exchange = exchange_in(value, DIALECT)
    if exchange is None or "messages" in exchange.request:
        return False
    asked = exchange.request["input"]
    if isinstance(asked, str):  # so has many a data set: what asks a model names it
        return isinstance(exchange.request.get("model"), str)
    return any(map(_is_item, asked))


def _is_own_item(value: Any) -> bool:
    """Whether an item shows by itself that it is of this interface: a call or a result."""
    kind = value.get("type") if isinstance(value, dict) else None
    return kind in (*CALLS, *RESULTS) and isinstance(value.get("call_id"), str)


def parse(document: Document) -> ParsedFile:
    """The conversations of a log, each once; what has no place in a message is told."""
    problems = ProblemList()
    exchanges = exchanges_of(document, DIALECT, problems)
    log = _Log(problems)
    conversations = tuple(longest_of_each(log.conversation(exchange) for exchange in exchanges))
    return ParsedFile(format=NAME, conversations=conversations, problems=problems)


class _Log:
    """Reads exchanges in order; a request may go on from the response of an earlier one."""

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems
        self._until: dict[str, tuple[ImportedMessage, ...]] = {}  # by id of the response

    def conversation(self, exchange: Exchange) -> Conversation:
        """Return what an exchange says, behind what the server had already."""
        request, response = exchange.request, _response_of(exchange.response)
        reader = ItemReader(self._problems)
        asked = request["input"]
        items = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
        for index, item in enumerate(items):
            reader.take(item, line=exchange.line_of(index), subject=f"Item {index + 1}")
        for item in response.get("output", ()):
            reader.take(item, line=exchange.line, subject="An item of the response")
        if exchange.has_unread_response:
            text = "The response was left out: it has no output."
            self._problems.append(Problem(line=exchange.line, text=text))
        read = reader.finished(_usage(response), _end_of(response))
        reader.tell_left_out(exchange.line)
        before = self._before(request, exchange.line)
        messages = chained([*before, *read])
        if response_id := text_or_empty(response.get("id")):
            self._until[response_id] = messages
        prompt = text_or_empty(request.get("instructions"))
        first = messages[0].wire if messages else {}
        if not prompt and first.get("role") == "system" and isinstance(first["content"], str):
            prompt, messages = first["content"], chained(messages[1:])
        return Conversation(
            format=NAME,
            identity=identity_of(NAME, exchange, prompt, [message.wire for message in messages]),
            title=text_or_empty(request.get("title")),
            messages=messages,
            system_prompt=prompt,
            tools=self._tools(request, exchange.line),
            model=text_or_empty(request.get("model")) or text_or_empty(response.get("model")),
            created_at=time_of(exchange),
            metadata=plain_values(request, without=_READ),
        )

    def _before(self, request: Wire, line: int) -> tuple[ImportedMessage, ...]:
        previous = text_or_empty(request.get("previous_response_id"))
        if previous and previous not in self._until:
            text = f"It goes on from the response {shown(previous)}, which is not in the file."
            self._problems.append(Problem(line=line, text=text))
        return self._until.get(previous, ())

    def _tools(self, request: Wire, line: int) -> tuple[Wire, ...]:
        tools: list[Wire] = []
        declared = request.get("tools")
        for tool in declared if isinstance(declared, list) else []:
            if is_block(tool, "function") and isinstance(tool.get("name"), str):
                function = {
                    key: tool[key] for key in ("name", "description", "parameters") if tool.get(key)
                }
                tools.append({"type": "function", "function": function})
            else:
                kind = tool.get("type") if isinstance(tool, dict) else tool
                text = f"The tool {shown(kind)} was left out: it is the server's own."
                self._problems.append(Problem(line=line, text=text))
        return tuple(tools)


def _response_of(value: Any) -> Wire:
    """Return a response as an object: of a stream the last one that is whole."""
    if isinstance(value, list):
        whole = next(
            (found for event in reversed(value) if (found := _whole_response(event))), None
        )
        return whole or {"output": value}
    return value if isinstance(value, dict) else {}


def _usage(response: Wire) -> dict[str, Any] | None:
    usage = response.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("input_tokens_details")
    read = count(details.get("cached_tokens")) if isinstance(details, dict) else 0
    fresh = max(0, count(usage.get("input_tokens")) - read)
    return usage_of(fresh=fresh, read=read, written=0, output=usage.get("output_tokens"))


def _end_of(response: Wire) -> str:
    if response.get("status") != "incomplete":
        return ""
    details = response.get("incomplete_details")
    reason = text_or_empty(details.get("reason")) if isinstance(details, dict) else ""
    return "length" if reason in ("", "max_output_tokens") else reason


class ItemReader:
    """Takes items one by one; those of one answer, which may be many, become its messages."""

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems
        self._messages: list[ImportedMessage] = []
        self._answer: AnswerBuilder | None = None
        self._names: dict[str, str] = {}
        self._left_out: Counter[str] = Counter()

    def take(self, item: Any, *, line: int, subject: str) -> None:
        """Read one item; what cannot be used becomes a problem."""
        try:
            self._read(item)
        except DamagedError as error:
            text = f"{subject} was left out: {error}."
            self._problems.append(Problem(line=line, text=text))

    def finished(self, usage: dict[str, Any] | None, finish_reason: str) -> list[ImportedMessage]:
        """Return the messages; usage and end are those of the last answer."""
        self._close()
        last = self._messages[-1] if self._messages else None
        if last is not None and last.wire["role"] == "assistant":
            self._messages[-1] = last.changed(usage=usage, finish_reason=finish_reason)
        return self._messages

    def tell_left_out(self, line: int) -> None:
        """Add a problem for each kind of item or part that has no place in a message."""
        for kind, number in self._left_out.items():
            text = f"Left out: items or parts of the kind {shown(kind)} ({number})."
            self._problems.append(Problem(line=line, text=text))

    def _read(self, item: Any) -> None:
        if not isinstance(item, dict):
            raise DamagedError(f"it is not an object but {shown(item)}")
        kind = item.get("type", "message")
        if kind == "message":
            self._read_message(item)
        elif kind == "reasoning":
            self._builder.think(_thoughts(item), _signed(item))
        elif isinstance(kind, str) and kind in CALLS:
            call_id, name = text_or_empty(item.get("call_id")), item.get("name")
            self._builder.call(call_id=call_id, name=name, arguments=item.get(CALLS[kind]))
            self._names[call_id] = str(name)
        elif kind in RESULTS:
            self._builder.result(self._result(item), {})
        else:
            self._left_out[str(kind)[:40]] += 1

    @property
    def _builder(self) -> AnswerBuilder:
        if self._answer is None:
            self._answer = AnswerBuilder()
        return self._answer

    def _close(self) -> None:
        if self._answer is not None:
            self._messages += self._answer.finished()
            self._answer = None

    def _read_message(self, item: Wire) -> None:
        role, content = item.get("role"), item.get("content")
        if role not in _ROLES:
            raise DamagedError(f"its role is {shown(role)}")
        parts = self._parts(content)
        if role == "assistant":
            for part in parts:
                if part["type"] == "text":
                    self._builder.say(part["text"])
                else:
                    self._builder.show(part)
            for part in content if isinstance(content, list) else []:
                for name in ABOUT_KEYS:
                    self._builder.note(name, part.get(name) if isinstance(part, dict) else None)
            return
        self._close()
        texts = [part["text"] for part in parts if part["type"] == "text"]
        whole = joined(texts) if len(texts) == len(parts) else parts
        if not whole:
            raise DamagedError("it says nothing that can be read")
        wire = {"role": "system" if role == "developer" else role, "content": whole}
        self._messages.append(ImportedMessage(key="", parent=None, wire=wire))

    def _result(self, item: Wire) -> Wire:
        call_id, output = text_or_empty(item.get("call_id")), item.get("output")
        if isinstance(output, list):
            parts = self._parts(output)
            texts = [part["text"] for part in parts if part["type"] == "text"]
            content: Any = joined(texts) if len(texts) == len(parts) else parts
        else:
            content = output if isinstance(output, str) else compact_json(output)
        wire: Wire = {"role": "tool", "tool_call_id": call_id, "content": content}
        return {**wire, "name": self._names[call_id]} if call_id in self._names else wire

    def _parts(self, content: Any) -> list[Wire]:
        if isinstance(content, str):
            return [{"type": "text", "text": content}] if content else []
        if not isinstance(content, list):
            raise DamagedError("its content is neither text nor a list of parts")
        return [wire for part in content if (wire := self._part(part)) is not None]

    def _part(self, part: Any) -> Wire | None:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("input_text", "output_text", "text", "summary_text"):
            return {"type": "text", "text": text_or_empty(part.get("text"))}
        if kind == "refusal":
            return {"type": "text", "text": text_or_empty(part.get("refusal"))}
        if kind == "input_image" and text_or_empty(part.get("image_url")):
            return {"type": "image_url", "image_url": {"url": part["image_url"]}}
        if kind in ("input_file", "input_image"):
            return _file(part)
        if kind == "input_audio" and isinstance(part.get("input_audio"), dict):
            return dict(part)
        self._left_out[str(kind)[:40]] += 1
        return None


def _file(part: Wire) -> Wire:
    name, data = text_or_empty(part.get("filename")), text_or_empty(part.get("file_data"))
    if data.startswith("data:"):
        return {"type": "file", "file": {"filename": name or "file", "file_data": data}}
    where = text_or_empty(part.get("file_url")) or text_or_empty(part.get("file_id"))
    return file_part(name=name, media_type="", data=data, where=where)


def _thoughts(item: Wire) -> str:
    """Return the reasoning itself where it is there, else its summary."""
    for key in ("content", "summary"):
        parts = item.get(key)
        listed = parts if isinstance(parts, list) else []
        texts = (part.get("text") for part in listed if isinstance(part, dict))
        if text := joined(map(text_or_empty, texts)):
            return text
    return ""


def _signed(item: Wire) -> Wire | None:
    encrypted = text_or_empty(item.get("encrypted_content"))
    return {"type": "reasoning", "encrypted_content": encrypted} if encrypted else None


FORMAT = Format(
    name=NAME,
    label="request logs of OpenAI's Responses API (JSON or JSONL)",
    endings=(".json", ".jsonl"),
    recognises=recognises,
    parse=parse,
)
