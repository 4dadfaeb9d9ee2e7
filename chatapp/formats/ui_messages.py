"""Messages of Vercel's AI SDK: lists, chats, and one a line.

Those of its chat widgets stand in `parts`, each tool's call with its output. Those that it sends to
models stand in `content`; calls and results are parts of their own there, in messages of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from chatapp.formats.answers import AnswerBuilder, chained
from chatapp.formats.exchanges import (
    Dialect,
    Exchange,
    any_value,
    exchange_in,
    exchanges_of,
    identity_of,
    plain_values,
    time_of,
)
from chatapp.formats.reading import (
    DamagedError,
    Document,
    Wire,
    compact_json,
    file_part,
    is_block,
    joined,
    moment,
    shown,
    text_or_empty,
)
from chatapp.formats.records import Conversation, ImportedMessage, ParsedFile, Problem, ProblemList
from chatapp.formats.registry import Format

NAME = "ui_messages"
ROLES = ("system", "user", "assistant", "tool")
_READ = ("messages", "system", "systemPrompt", "model", "title", "role", "parts", "content")
_MARKS = ("step-start",)
"""Parts that say nothing: they part the steps of an answer."""
CALL, RESULT = "tool-call", "tool-result"
"""Parts of messages to models; those of chat widgets are named after their tools."""
_FILES = ("file", "image", "media", "file-data", "image-data", "file-url", "image-url")
_APPROVALS = ("tool-approval-request", "tool-approval-response")
_MEDIA_KEYS = frozenset(("mediaType", "mimeType", "providerOptions", "image"))
_FAILED = ("error-text", "error-json", "execution-denied")
_TYPED = ("text", "json", "content", *_FAILED)
"""What an output is; before the SDK's fifth version a result stood there as it is."""


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        return False
    parts = value.get("parts")
    if parts is None:  # the form before there were parts, where it is told by its calls
        return _invocations(value) != [] or _is_for_models(value)
    return isinstance(parts, list) and all(_has_type(part) for part in parts)


def _invocations(value: Wire) -> list[Any]:
    calls = value.get("toolInvocations")
    return calls if isinstance(calls, list) else []


def _is_for_models(value: Wire) -> bool:
    """Whether a message's content has a part as no other interface has it."""
    content = value.get("content")
    return isinstance(content, list) and any(map(_is_sdks_own, content))


def _is_sdks_own(part: Any) -> bool:
    if not _has_type(part):
        return False
    if part["type"] in (CALL, RESULT):
        return isinstance(part.get("toolCallId"), str)
    has_data = "image" in part if part["type"] == "image" else "data" in part
    return part["type"] in ("file", "image") and has_data and not _MEDIA_KEYS.isdisjoint(part)


def _has_type(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("type"), str)


def _may_be_message(value: Any) -> bool:
    """Whether a value is a message in a file that has shown itself: plain ones are others', too."""
    has_role = isinstance(value, dict) and isinstance(value.get("role"), str)
    return has_role and not {"parts", "content", "toolInvocations"}.isdisjoint(value)


DIALECT = Dialect(key="messages", is_message=_may_be_message, is_response=lambda value: False)


def recognises(document: Document) -> bool:
    """Whether a file holds messages whose words stand in `parts`, each with a type."""
    return any_value(document, _shows_itself)


def _shows_itself(value: Any) -> bool:
    if _is_message(value):
        return bool(value.get("parts") or _invocations(value) or _is_for_models(value))
    exchange = exchange_in(value, DIALECT)
    return exchange is not None and any(map(_is_message, exchange.request["messages"]))


def parse(document: Document) -> ParsedFile:
    """The chats of a file; what cannot be read is left out and told."""
    problems = ProblemList()
    exchanges = exchanges_of(document, DIALECT, problems)
    conversations = tuple(_conversation(exchange, problems) for exchange in exchanges)
    return ParsedFile(format=NAME, conversations=conversations, problems=problems)


def _conversation(exchange: Exchange, problems: list[Problem]) -> Conversation:
    chat, left_out = exchange.request, Counter[str]()
    read: list[ImportedMessage] = []
    for index, value in enumerate(chat["messages"]):
        try:
            read += _messages(value, left_out)
        except DamagedError as error:
            text = f"Message {index + 1} was left out: {error}."
            problems.append(Problem(line=exchange.line_of(index), text=text))
    for kind, count in left_out.items():
        text = f"Left out: parts of the kind {shown(kind)} ({count})."
        problems.append(Problem(line=exchange.line, text=text))
    prompt = text_or_empty(chat.get("system")) or text_or_empty(chat.get("systemPrompt"))
    first = read[0].wire if read else {}
    if not prompt and first.get("role") == "system" and isinstance(first["content"], str):
        prompt = first["content"]
        del read[0]
    identity = _identity(exchange, prompt, read)
    messages = chained(read)
    return Conversation(
        format=NAME,
        identity=identity,
        title=text_or_empty(chat.get("title")),
        messages=messages,
        system_prompt=prompt,
        model=text_or_empty(chat.get("model")),
        created_at=time_of(exchange)
        or next((m.created_at for m in messages if m.created_at), None),
        metadata=plain_values(chat, without=_READ),
    )


def _identity(exchange: Exchange, prompt: str, messages: Sequence[ImportedMessage]) -> str:
    """Return what names a chat: its own id, the id of its first message, or what it says."""
    first = exchange.request["messages"][0] if exchange.request["messages"] else {}
    native = text_or_empty(exchange.request.get("id"))
    of_message = text_or_empty(first.get("id")) if isinstance(first, dict) else ""
    if native or len(of_message) >= 8:  # shorter ones are counted, and the same in every chat
        return f"{NAME}:{native or of_message}"
    return identity_of(NAME, exchange, prompt, [message.wire for message in messages])


def _messages(value: Any, left_out: Counter[str]) -> list[ImportedMessage]:
    if not isinstance(value, dict):
        raise DamagedError(f"it is not an object but {shown(value)}")
    role = value.get("role")
    if role not in ROLES:
        raise DamagedError(f"its role is {shown(role)}")
    parts = value.get("parts")
    if not isinstance(parts, list):
        parts = _parts_of_older(value)
    created_at = moment(value.get("createdAt")) or moment(
        _object(value.get("metadata")).get("createdAt")
    )
    if role == "assistant":
        builder = AnswerBuilder()
        for part in parts:
            _take(part, builder, left_out)
        found = builder.finished(created_at=created_at)
    elif role == "tool":
        results = AnswerBuilder()
        for part in parts:
            _take_result(part, results, left_out)
        found = results.finished(created_at=created_at)
    else:
        content = _said(parts + _attached(value), left_out)
        wire = {"role": role, "content": content}
        message = ImportedMessage(key="", parent=None, wire=wire, created_at=created_at)
        found = [message] if content else []
    if not found:
        raise DamagedError("it says nothing that can be read")
    return found


def _parts_of_older(value: Wire) -> list[Any]:
    """Return the parts of a message from before there were any."""
    parts: list[Any] = []
    if thoughts := text_or_empty(value.get("reasoning")):
        parts.append({"type": "reasoning", "text": thoughts})
    parts += [{"type": "tool-invocation", "toolInvocation": call} for call in _invocations(value)]
    content = value.get("content")
    if isinstance(content, list):
        return parts + content
    return parts + ([{"type": "text", "text": content}] if text_or_empty(content) else [])


def _attached(value: Wire) -> list[Any]:
    """Return the files of a message that stand beside its parts."""
    attached = value.get("experimental_attachments")
    files = attached if isinstance(attached, list) else []
    return [{**file, "type": "file"} for file in files if isinstance(file, dict)]


def _take(part: Any, builder: AnswerBuilder, left_out: Counter[str]) -> None:
    if is_block(part, "text"):
        builder.say(text_or_empty(part.get("text")))
    elif is_block(part, "reasoning"):
        builder.think(text_or_empty(part.get("text")) or text_or_empty(part.get("reasoning")))
    elif any(is_block(part, kind) for kind in _MARKS):
        builder.next_step()
    elif is_block(part, CALL):
        given = part.get("input") if part.get("input") is not None else part.get("args")
        call_id, name = text_or_empty(part.get("toolCallId")), part.get("toolName")
        builder.call(call_id=call_id, name=name, arguments={} if given is None else given)
    elif is_block(part, RESULT):
        _take_result(part, builder, left_out)
    elif (call := _call_in(part)) is not None:
        _take_call(call, builder)
    elif (other := _part(part, left_out)) is not None:
        builder.show(other)


def _call_in(part: Any) -> Wire | None:
    """Return a tool's part in the newer form: name, id, input, output; None for other parts."""
    if not _has_type(part):
        return None
    kind = part["type"]
    if kind == "tool-invocation" and isinstance(inner := part.get("toolInvocation"), dict):
        return {
            "toolName": inner.get("toolName"),
            "toolCallId": inner.get("toolCallId"),
            "input": inner.get("args"),
            **({"output": inner["result"]} if "result" in inner else {}),
        }
    if kind == "dynamic-tool":
        return dict(part)
    if kind.startswith("tool-") and kind not in _APPROVALS:
        return {"toolName": kind.removeprefix("tool-"), **part}
    return None


def _take_call(call: Wire, builder: AnswerBuilder) -> None:
    call_id, name = text_or_empty(call.get("toolCallId")), call.get("toolName")
    given = call.get("input") if call.get("input") is not None else call.get("rawInput")
    builder.call(call_id=call_id, name=name, arguments={} if given is None else given)
    failed = text_or_empty(call.get("errorText"))
    if not failed and call.get("output") is None:
        return
    output = failed or call["output"]
    content = output if isinstance(output, str) else compact_json(output)
    wire = {"role": "tool", "tool_call_id": call_id, "content": content, "name": name}
    builder.result(wire, {"is_error": True} if failed else {})


def _take_result(part: Any, builder: AnswerBuilder, left_out: Counter[str]) -> None:
    """Take what a tool returned, from a part of a message to a model."""
    if not is_block(part, RESULT):
        left_out[str(part.get("type") if isinstance(part, dict) else part)[:40]] += 1
        return
    output = part.get("output", part.get("result"))
    kind = output.get("type") if isinstance(output, dict) else None
    is_typed = "output" in part and kind in _TYPED
    value = output.get("value", output.get("reason")) if is_typed else output
    told = value if kind == "content" and is_typed else part.get("experimental_content")
    content: str | list[Wire] = _said(told, left_out) if isinstance(told, list) else ""
    if not content:
        content = value if isinstance(value, str) else compact_json(value)
    call_id, name = text_or_empty(part.get("toolCallId")), part.get("toolName")
    wire = {"role": "tool", "tool_call_id": call_id, "content": content, "name": name}
    has_failed = part.get("isError") is True or (is_typed and kind in _FAILED)
    builder.result(wire, {"is_error": True} if has_failed else {})


def _said(parts: Sequence[Any], left_out: Counter[str]) -> str | list[Wire]:
    found = [wire for part in parts if (wire := _part(part, left_out)) is not None]
    if any(wire["type"] != "text" for wire in found):
        return found
    return joined(wire["text"] for wire in found)


def _part(part: Any, left_out: Counter[str]) -> Wire | None:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        return {"type": "text", "text": text_or_empty(part.get("text"))}
    if kind in _FILES:
        return _file(part)
    if kind in ("source-url", "source-document", "source"):
        source = _object(part.get("source")) or part
        said = (text_or_empty(source.get(key)) for key in ("title", "filename", "url"))
        return {"type": "text", "text": f"[source: {' '.join(filter(None, said))}]"}
    if kind not in _MARKS:
        left_out[str(kind)[:40]] += 1
    return None


def _file(part: Wire) -> Wire:
    keys = ("mediaType", "mimeType", "contentType")
    media_type = next((text for key in keys if (text := text_or_empty(part.get(key)))), "")
    keys = ("url", "image", "data")
    url = next((text for key in keys if (text := text_or_empty(part.get(key)))), "")
    name = text_or_empty(part.get("filename")) or text_or_empty(part.get("name"))
    is_address = "://" in url[:20]
    if (media_type.startswith("image/") or part["type"].startswith("image")) and url:
        address = (
            url
            if is_address or url.startswith("data:")
            else f"data:{media_type or 'image/png'};base64,{url}"
        )
        return {"type": "image_url", "image_url": {"url": address}}
    if url.startswith("data:"):
        return {"type": "file", "file": {"filename": name or "file", "file_data": url}}
    data, where = ("", url) if is_address else (url, "")
    return file_part(name=name, media_type=media_type, data=data, where=where)


def _object(value: Any) -> Wire:
    return value if isinstance(value, dict) else {}


FORMAT = Format(
    name=NAME,
    label="messages with parts, of Vercel's AI SDK and its chat widgets (JSON or JSONL)",
    endings=(".json", ".jsonl"),
    recognises=recognises,
    parse=parse,
)
