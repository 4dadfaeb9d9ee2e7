"""Request logs of Google's Gemini API: `contents` of `parts`, with their responses if logged."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from typing import Any, TypeGuard

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
    image_part,
    joined,
    shown,
    text_or_empty,
    usage_of,
)
from chatapp.formats.records import Conversation, ImportedMessage, ParsedFile, Problem, ProblemList
from chatapp.formats.registry import Format
from chatapp.messages.vendor import merged

NAME = "gemini"
ABOUT = ("citationMetadata", "groundingMetadata", "urlContextMetadata", "logprobsResult")
"""What a candidate says about its text."""
ROLES = ("user", "model", "function", "system")
FINISH_REASONS: Mapping[str, str] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "BLOCKLIST": "content_filter",
    "SPII": "content_filter",
}
_READ = ("contents", "systemInstruction", "system_instruction", "model", "tools", "title")
_SNAKE = {
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "inline_data": "inlineData",
    "file_data": "fileData",
    "thought_signature": "thoughtSignature",
    "executable_code": "executableCode",
    "code_execution_result": "codeExecutionResult",
    "mime_type": "mimeType",
    "file_uri": "fileUri",
    "system_instruction": "systemInstruction",
    "function_declarations": "functionDeclarations",
    "finish_reason": "finishReason",
    "usage_metadata": "usageMetadata",
    "model_version": "modelVersion",
    "parameters_json_schema": "parametersJsonSchema",
    "display_name": "displayName",
}
"""Python's and REST's spellings of one thing."""


def _camel(value: Any) -> Wire:
    """Return an object with the spelling of REST; an empty one for what is no object."""
    if not isinstance(value, dict):
        return {}
    return {_SNAKE.get(str(key), str(key)): item for key, item in value.items()}


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("parts"), list):
        return False
    typed = any(isinstance(part, dict) and "type" in part for part in value["parts"])
    return value.get("role", "user") in ROLES and not typed


def _is_response(value: Any) -> bool:
    if isinstance(value, list):  # a stream, piece by piece
        return bool(value) and all(_is_response(piece) for piece in value)
    return isinstance(value, dict) and isinstance(value.get("candidates"), list)


DIALECT = Dialect(key="contents", is_message=_is_message, is_response=_is_response)


def recognises(document: Document) -> bool:
    """Whether a file holds requests, responses or messages of this interface."""
    return any_value(document, _shows_itself)


def _shows_itself(value: Any) -> bool:
    if _is_message(value):
        return bool(value["parts"])
    exchange = exchange_in(value, DIALECT)
    return exchange is not None and any(map(_is_message, exchange.request["contents"]))


def parse(document: Document) -> ParsedFile:
    """The conversations of a log, each once; damaged messages are left out and told."""
    problems = ProblemList()
    exchanges = exchanges_of(document, DIALECT, problems)
    # One by one: each request of a long log repeats all that came before it.
    read = (_conversation(exchange, problems) for exchange in exchanges)
    conversations = tuple(longest_of_each(read))
    return ParsedFile(format=NAME, conversations=conversations, problems=problems)


def _conversation(exchange: Exchange, problems: list[Problem]) -> Conversation:
    request = _camel(exchange.request)
    config = _camel(request.get("config"))
    reader = ContentReader(problems)
    for index, value in enumerate(request["contents"]):
        reader.take(value, line=exchange.line_of(index), subject=f"Message {index + 1}")
    if exchange.response is not None:
        reader.take_response(exchange.response, line=exchange.line)
    elif exchange.has_unread_response:
        text = "The response was left out: it is no answer of the model."
        problems.append(Problem(line=exchange.line, text=text))
    reader.tell_left_out(exchange.line)
    stated = request.get("systemInstruction") or config.get("systemInstruction")
    prompt = _prompt(stated)
    messages = chained(reader.messages)
    return Conversation(
        format=NAME,
        identity=identity_of(NAME, exchange, prompt, [message.wire for message in messages]),
        title=text_or_empty(request.get("title")),
        messages=messages,
        system_prompt=prompt,
        tools=_tools(request.get("tools") or config.get("tools"), exchange.line, problems),
        model=text_or_empty(request.get("model")).removeprefix("models/") or reader.model,
        created_at=time_of(exchange),
        metadata=plain_values(request, without=_READ),
    )


def _prompt(value: Any) -> str:
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else _camel(value).get("parts")
    parts = parts if isinstance(parts, list) else [parts if parts is not None else value]
    return joined(
        part if isinstance(part, str) else text_or_empty(_camel(part).get("text")) for part in parts
    )


def _tools(value: Any, line: int, problems: list[Problem]) -> tuple[Wire, ...]:
    tools: list[Wire] = []
    for tool in map(_camel, value if isinstance(value, list) else []):
        declared = tool.pop("functionDeclarations", None)
        for function in map(_camel, declared if isinstance(declared, list) else []):
            schema = function.pop("parametersJsonSchema", None) or function.get("parameters")
            if name := text_or_empty(function.get("name")):
                kept = {"name": name, "description": text_or_empty(function.get("description"))}
                parameters = {"parameters": schema} if isinstance(schema, dict) else {}
                tools.append({"type": "function", "function": kept | parameters})
        problems += [
            Problem(line=line, text=f"The tool {shown(name)} was left out: it is the server's own.")
            for name in tool
        ]
    return tuple(tools)


class ContentReader:
    """Takes contents and a response one by one; calls without ids are given some."""

    def __init__(self, problems: list[Problem]) -> None:
        self.messages: list[ImportedMessage] = []
        self.model = ""
        self._problems = problems
        self._left_out: Counter[str] = Counter()
        self._calls = 0
        self._unanswered: dict[str, deque[str]] = defaultdict(deque)

    def take(
        self, value: Any, *, line: int, subject: str, ended: Mapping[str, Any] | None = None
    ) -> None:
        """Read one content; `ended` is what a response says of it."""
        try:
            self.messages += self._read(value, ended or {})
        except DamagedError as error:
            text = f"{subject} was left out: {error}."
            self._problems.append(Problem(line=line, text=text))

    def take_response(self, value: Any, *, line: int) -> None:
        """Read what came back, whole or as the pieces of a stream."""
        pieces = list(map(_camel, value if isinstance(value, list) else [value]))
        parts: list[Any] = []
        ended: Wire = {}
        others = max((len(piece.get("candidates") or [0]) - 1 for piece in pieces), default=0)
        if others:
            text = f"The response has more candidates than one; {others} were left out."
            self._problems.append(Problem(line=line, text=text))
        for piece in pieces:
            self.model = text_or_empty(piece.get("modelVersion")) or self.model
            candidates = piece.get("candidates") or [{}]
            candidate = _camel(candidates[0])
            found = _camel(candidate.get("content")).get("parts")
            parts += found if isinstance(found, list) else []
            if reason := text_or_empty(candidate.get("finishReason")):
                ended["finish_reason"] = FINISH_REASONS.get(reason, reason.lower())
            about = {name: candidate[name] for name in ABOUT if candidate.get(name)}
            ended["about"] = merged(ended.get("about"), about)
            if usage := _usage(_camel(piece.get("usageMetadata"))):
                ended["usage"] = usage
        content = {"role": "model", "parts": _with_joined_texts(parts)}
        self.take(content, line=line, subject="The response", ended=ended)

    def tell_left_out(self, line: int) -> None:
        """Add a problem for each kind of part that has no place in a message."""
        for kind, number in self._left_out.items():
            text = f"Left out: parts of the kind {shown(kind)} ({number})."
            self._problems.append(Problem(line=line, text=text))

    def _read(self, value: Any, ended: Mapping[str, Any]) -> list[ImportedMessage]:
        value = {"role": "user", "parts": [value]} if isinstance(value, str) else _camel(value)
        role, parts = value.get("role", "user"), value.get("parts")
        if role not in ROLES:
            raise DamagedError(f"its role is {shown(role)}")
        if not isinstance(parts, list):
            raise DamagedError("it has no list of parts")
        if role == "model":
            messages = self._answer(parts, ended)
        else:
            messages = self._question("system" if role == "system" else "user", parts)
        if not messages:
            raise DamagedError("it says nothing that can be read")
        return messages

    def _question(self, role: str, parts: list[Any]) -> list[ImportedMessage]:
        results: list[Wire] = []
        said: list[Wire] = []
        for part in parts:
            answered = _camel(part).get("functionResponse")
            if isinstance(answered, dict):
                results.append(self._result(answered))
            elif wire := self._part(part):
                said.append(wire)
        wires = results
        if said:
            texts = joined(one["text"] for one in said if one["type"] == "text")
            whole = texts if all(one["type"] == "text" for one in said) else said
            wires = [*results, {"role": role, "content": whole}]
        return [ImportedMessage(key="", parent=None, wire=wire) for wire in wires]

    def _result(self, answered: Wire) -> Wire:
        name, response = text_or_empty(answered.get("name")), answered.get("response")
        waiting = self._unanswered[name]
        call_id = text_or_empty(answered.get("id"))
        if call_id in waiting:
            waiting.remove(call_id)
        elif not call_id and waiting:
            call_id = waiting.popleft()
        inner = response if isinstance(response, dict) else {}
        only = next(iter(inner.values())) if set(inner) in ({"result"}, {"output"}) else response
        content = only if isinstance(only, str) else compact_json(only)
        return {"role": "tool", "tool_call_id": call_id, "content": content, "name": name}

    def _answer(self, parts: list[Any], ended: Mapping[str, Any]) -> list[ImportedMessage]:
        builder = AnswerBuilder()
        for value in parts:
            part = {"text": value} if isinstance(value, str) else _camel(value)
            signature = text_or_empty(part.get("thoughtSignature"))
            signed = {"type": "thought", "signature": signature} if signature else None
            if part.get("thought") is True:
                builder.think(text_or_empty(part.get("text")), signed)
            elif isinstance(call := part.get("functionCall"), dict):
                builder.call(
                    call_id=self._call_id(call),
                    name=call.get("name"),
                    arguments=call.get("args") or {},
                )
            elif isinstance(part.get("text"), str):
                builder.say(part["text"])
            elif wire := self._part(part):
                builder.show(wire)
            if signed and part.get("thought") is not True:
                builder.sign(signed)
        for name, value in (ended.get("about") or {}).items():
            builder.note(name, value)
        return builder.finished(
            usage=ended.get("usage"), finish_reason=ended.get("finish_reason", "")
        )

    def _call_id(self, call: Wire) -> str:
        self._calls += 1
        call_id = text_or_empty(call.get("id")) or f"call_{self._calls}"
        self._unanswered[text_or_empty(call.get("name"))].append(call_id)
        return call_id

    def _part(self, value: Any) -> Wire | None:
        if isinstance(value, str):
            return {"type": "text", "text": value} if value else None
        part = _camel(value)
        if isinstance(part.get("text"), str):
            return {"type": "text", "text": part["text"]}
        if inline := _camel(part.get("inlineData")):
            return _media(inline)
        if named := _camel(part.get("fileData")):
            where = text_or_empty(named.get("fileUri"))
            return file_part(
                name=named.get("displayName"),
                media_type=named.get("mimeType"),
                data="",
                where=where,
            )
        if code := _camel(part.get("executableCode")):
            return {"type": "text", "text": f"```\n{text_or_empty(code.get('code'))}\n```"}
        if result := _camel(part.get("codeExecutionResult")):
            return {"type": "text", "text": text_or_empty(result.get("output"))}
        kinds = [key for key in part if key not in ("thought", "thoughtSignature")]
        self._left_out[str((kinds or ["(empty)"])[0])[:40]] += 1
        return None


def _media(inline: Wire) -> Wire:
    media_type, data = text_or_empty(inline.get("mimeType")), inline.get("data")
    family, _, form = media_type.partition("/")
    if family == "image":
        return image_part(media_type=media_type, data=data)
    if family == "audio" and isinstance(data, str) and data:
        return {"type": "input_audio", "input_audio": {"data": data, "format": form}}
    return file_part(name=inline.get("displayName"), media_type=media_type, data=data)


def _with_joined_texts(parts: list[Any]) -> list[Any]:
    """Return the parts of a stream with neighbouring pieces of one text, or thought, as one."""
    whole: list[Any] = []
    for part in parts:
        before = whole[-1] if whole else None
        if _is_text(part) and _is_text(before) and part.get("thought") == before.get("thought"):
            whole[-1] = {**before, **part, "text": before["text"] + part["text"]}
        else:
            whole.append(part)
    return whole


def _is_text(part: Any) -> TypeGuard[Wire]:
    return isinstance(part, dict) and isinstance(part.get("text"), str)


def _usage(usage: Wire) -> dict[str, Any] | None:
    read = count(usage.get("cachedContentTokenCount"))
    return usage_of(
        fresh=max(0, count(usage.get("promptTokenCount")) - read),
        read=read,
        written=0,
        output=count(usage.get("candidatesTokenCount")) + count(usage.get("thoughtsTokenCount")),
    )


FORMAT = Format(
    name=NAME,
    label="request logs of Google's Gemini API (JSON or JSONL)",
    endings=(".json", ".jsonl"),
    recognises=recognises,
    parse=parse,
)
