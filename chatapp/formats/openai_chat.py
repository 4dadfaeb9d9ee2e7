"""OpenAI chat JSON: lists of messages, alone, in objects, and one a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from chatapp.formats.exchanges import (
    Dialect,
    body_in,
    exchange_in,
    longest_of_each,
    response_in,
    time_of,
)
from chatapp.formats.openai_export import to_json, to_openai_chat_jsonl
from chatapp.formats.openai_messages import CheckedMessage, check_message, is_foreign, is_message
from chatapp.formats.own_parts import OWN_KEY, OwnParts, read_parts
from chatapp.formats.reading import (
    DamagedError,
    Document,
    Record,
    Wire,
    digest,
    moment,
    text_or_empty,
)
from chatapp.formats.records import (
    Conversation,
    ImportedMessage,
    ParsedFile,
    Problem,
    ProblemList,
)
from chatapp.formats.registry import Export, Format
from chatapp.messages.vendor import ABOUT_KEYS, without_imported
from chatapp.messages.wire import LEFT_OUT, VENDOR_LEFT_OUT, text_of

MESSAGE_LISTS = ("messages", "traj")
TIMES = ("created_at", "timestamp", "created")
OWN_KEYS = frozenset(
    {*MESSAGE_LISTS, *TIMES, "title", "model", "response", "system_prompt", OWN_KEY}
)
PROMPTS = ("system_prompt", "system", "systemPrompt", "system_message", "instructions")
NATIVE_IDS = ("task_id", "conversation_id", "session_id", "id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The object that holds a conversation, and the line (or item number) it starts on.

    `numbers` are the lines of its messages; None if they all stand on `line`.
    """

    value: Wire
    line: int
    numbers: Sequence[int] | None
    is_logged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _AnswerMessage:
    """What a `response` holds: the message, and what the completion says about it."""

    checked: CheckedMessage
    finish_reason: str = ""
    usage: dict[str, Any] | None = None


def message_list(value: Wire) -> list[Any] | None:
    """The list that holds the messages, wherever the container keeps it."""
    lists = (value.get(key) for key in MESSAGE_LISTS)
    return next((found for found in lists if isinstance(found, list)), None)


def read_conversation(source: Source, problems: list[Problem]) -> Conversation:
    """The conversation without its damaged parts, which are added to the problems."""
    value = source.value
    messages = _messages(source, problems)
    is_whole = len(messages) == len(message_list(value) or ())
    system_prompt = _system_prompt(messages, stated=value.get("system_prompt"))
    if system_prompt:
        del messages[0]
    elif beside := _prompt_beside(value):
        system_prompt = _settled(beside, messages, source.line, problems)
    own = read_parts(value, messages, is_whole=is_whole)
    problems += [Problem(line=source.line, text=text) for text in own.problems]
    messages += _answered(source, messages, problems)
    metadata = _metadata(value)
    return Conversation(
        format="openai_chat",
        identity=_identity(system_prompt, [message.wire for message in messages], metadata),
        title=text_or_empty(value.get("title")),
        messages=_chained(messages, own),
        system_prompt=system_prompt,
        tools=_tools(source, problems),
        model=_model(value),
        created_at=_time(value),
        metadata=metadata,
        parts=own.parts,
    )


def _messages(source: Source, problems: list[Problem]) -> list[ImportedMessage]:
    messages = []
    for index, entry in enumerate(message_list(source.value) or ()):
        line = source.numbers[index] if source.numbers else source.line
        subject = f"Message {index + 1}"
        try:
            checked = check_message(entry)
        except DamagedError as error:
            problems.append(Problem(line=line, text=f"{subject} was left out: {error}."))
            continue
        problems += _mended(checked, line, subject)
        messages.append(_message(checked, created_at=_time(entry)))
    return messages


def _mended(checked: CheckedMessage, line: int, subject: str) -> list[Problem]:
    return [Problem(line=line, text=f"{subject} was mended: {text}.") for text in checked.mended]


def _message(checked: CheckedMessage, *, created_at: datetime | None) -> ImportedMessage:
    return ImportedMessage(
        key="",
        parent=None,
        wire=checked.wire,
        reasoning=checked.reasoning,
        created_at=created_at,
        metadata=_not_kept(checked),
    )


def _not_kept(checked: CheckedMessage) -> dict[str, Any]:
    return {VENDOR_LEFT_OUT: list(checked.left_out)} if checked.left_out else {}


def _chained(messages: Sequence[ImportedMessage], own: OwnParts) -> tuple[ImportedMessage, ...]:
    return tuple(
        ImportedMessage(
            key=str(number),
            parent=str(number - 1) if number > 1 else None,
            wire=message.wire,
            reasoning=message.reasoning,
            usage=message.usage,
            finish_reason=message.finish_reason,
            created_at=message.created_at,
            pinned=number - 1 in own.pinned,
            kind="note" if number - 1 in own.notes else "message",
            metadata=message.metadata | _told_of(own, number - 1),
        )
        for number, message in enumerate(messages, start=1)
    )


def _told_of(own: OwnParts, index: int) -> dict[str, Any]:
    note, left_out = own.notes.get(index), own.left_out.get(index)
    told = {"type": note} if note else {}
    return told | ({LEFT_OUT: dict(left_out)} if left_out else {})


def _system_prompt(messages: Sequence[ImportedMessage], *, stated: Any) -> str:
    """The prompt that the first message holds; `stated` is what our own export says of it."""
    if isinstance(stated, str):
        first = messages[0].wire if messages else {}
        return stated if first == {"role": "system", "content": stated} else ""
    roles = [message.wire["role"] for message in messages[:2]]
    if not roles or roles[0] != "system" or roles[1:] == ["system"]:
        return ""
    wire = messages[0].wire
    return text_or_empty(wire["content"]) if wire.keys() == {"role", "content"} else ""


def _settled(
    prompt: str, messages: Sequence[ImportedMessage], line: int, problems: list[Problem]
) -> str:
    """The prompt beside the messages, unless these open with rules of their own."""
    first = messages[0].wire if messages else {}
    if first.get("role") not in ("system", "developer"):
        return prompt
    if text_of(first["content"]) != prompt:
        text = "The system prompt beside the messages was left out: they open with another."
        problems.append(Problem(line=line, text=text))
    return ""


def _prompt_beside(value: Wire) -> str:
    """The prompt that other programs keep beside the messages."""
    found = (text_or_empty(value.get(key)) for key in PROMPTS)
    return next((text for text in found if text.strip()), "")


def _answered(
    source: Source, messages: Sequence[ImportedMessage], problems: list[Problem]
) -> list[ImportedMessage]:
    response = source.value.get("response")
    if response is None and source.value.get("choices"):
        response = source.value  # request and response in one object
    if response is None:
        return []
    try:
        answer = _answer(response)
    except DamagedError as error:
        text = f"The response was left out: {error}."
        problems.append(Problem(line=source.line, text=text))
        return []
    wire = answer.checked.wire
    if messages and _substance(messages[-1].wire) == _substance(wire):
        return []
    problems += _mended(answer.checked, source.line, "The response")
    if (others := len(response.get("choices") or [0]) - 1) > 0:
        text = f"The response has more answers than one; {others} were left out."
        problems.append(Problem(line=source.line, text=text))
    return [
        ImportedMessage(
            key="",
            parent=None,
            wire=wire,
            reasoning=answer.checked.reasoning,
            usage=answer.usage,
            finish_reason=answer.finish_reason,
            created_at=_time(source.value) or _time(response),
            metadata=_not_kept(answer.checked),
        )
    ]


def _answer(response: Any) -> _AnswerMessage:
    if not isinstance(response, dict):
        raise DamagedError("it is no chat completion")
    choices = response.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else response
    message = choice.get("message", choice) if isinstance(choice, dict) else choice
    around = (response, choice if isinstance(choice, dict) else {})
    beside = {name: one[name] for one in around for name in ABOUT_KEYS if one.get(name)}
    checked = check_message(message, beside=beside)
    if checked.wire["role"] != "assistant":
        raise DamagedError("it is no message of the assistant")
    usage = response.get("usage")
    return _AnswerMessage(
        checked=checked,
        finish_reason=text_or_empty(choice.get("finish_reason")),
        usage=usage if isinstance(usage, dict) else None,
    )


def _substance(wire: Wire) -> tuple[Any, ...]:
    """What makes two messages the same whether content is text or a list with one text."""
    content = wire["content"]
    if isinstance(content, list) and all(part.get("type") == "text" for part in content):
        content = "".join(text_or_empty(part.get("text")) for part in content)
    return wire["role"], content or "", wire.get("tool_calls"), wire.get("function_call")


def _tools(source: Source, problems: list[Problem]) -> tuple[dict[str, Any], ...]:
    tools = source.value.get("tools")
    if not tools and isinstance(legacy := source.value.get("functions"), list):
        tools = [{"type": "function", "function": function} for function in legacy]
    if not tools:
        return ()
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        text = "Tools were left out: they are no list of objects."
        problems.append(Problem(line=source.line, text=text))
        tools = tools if isinstance(tools, list) else []
    return tuple(tool for tool in tools if isinstance(tool, dict))


def _model(value: Wire) -> str:
    response = value.get("response")
    answered_by = response.get("model") if isinstance(response, dict) else ""
    return text_or_empty(value.get("model")) or text_or_empty(answered_by)


def _time(value: Any) -> datetime | None:
    times = (moment(value.get(key)) for key in TIMES) if isinstance(value, dict) else ()
    return next((time for time in times if time), None)


def _metadata(value: Wire) -> dict[str, Any]:
    """The container's own metadata and its other plain values; nested ones repeat the request."""
    plain = {
        key: item
        for key, item in value.items()
        if key not in OWN_KEYS and isinstance(item, (str, int, float))
    }
    own = value.get("metadata")
    return {**plain, **own} if isinstance(own, dict) else plain


def _identity(system_prompt: str, wires: Sequence[Wire], metadata: dict[str, Any]) -> str:
    native = next((metadata[key] for key in NATIVE_IDS if _is_id(metadata.get(key))), None)
    if native is None:
        return f"openai_chat:{digest(system_prompt, list(map(without_imported, wires)))}"
    if _is_id(trial := metadata.get("trial")):
        native = f"{native}:{trial}"
    asked = next((wire["content"] for wire in wires if wire["role"] == "user"), None)
    return f"openai_chat:{digest(system_prompt, asked)[:16]}:{native}"


def _is_id(value: Any) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool) and value != ""


NAME = "openai_chat"


def recognises(document: Document) -> bool:
    """Whether the file holds OpenAI chat messages in any of the known containers."""
    return any(_is_readable(record.value) for record in document.records)


def parse(document: Document) -> ParsedFile:
    """The conversations of the file; damaged messages are left out and named as problems."""
    problems = ProblemList()
    sources = _sources(document, problems)
    read = (read_conversation(source, problems) for source in sources)
    # In a log of requests each repeats those before it; elsewhere all stand for themselves.
    are_logged = any(source.is_logged for source in sources)
    conversations = tuple(longest_of_each(read) if are_logged else read)
    return ParsedFile(format=NAME, conversations=conversations, problems=problems)


def _is_completion(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("choices"), list)


LOGGED = Dialect(key="messages", is_message=is_message, is_response=_is_completion)


def _logged(value: Any) -> Wire | None:
    """The request in an object that holds one beside its response, with that inside it."""
    if not isinstance(value, dict) or message_list(value) is not None:
        return None
    exchange = exchange_in(value, LOGGED)
    if exchange is None or not _is_conversation(exchange.request):
        return None
    answered = exchange.response or value.get("response")
    time = time_of(exchange)
    known = {"response": answered, "created_at": time.isoformat() if time else None}
    return {**exchange.request, **{key: item for key, item in known.items() if item}}


def _is_readable(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_readable_item, value))
    return _is_readable_item(value)


def _is_readable_item(value: Any) -> bool:
    return is_message(value) or _is_conversation(value) or _logged(value) is not None


def _is_conversation(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(is_message, value)) and not any(map(is_foreign, value))
    if not isinstance(value, dict) or isinstance(value.get("history"), dict):
        return False  # with a history object the flat list is Open WebUI's copy of its tree
    messages = message_list(value)
    return messages == [] or _is_conversation(messages)


def _sources(document: Document, problems: list[Problem]) -> list[Source]:
    if document.is_lines:
        return _sources_of_lines(document, problems)
    value = document.records[0].value
    if is_message(value):
        return [_source([value], 1, numbered=True)]
    if _is_conversation(value):
        return [_source(value, 1, numbered=True)]
    sources = []
    for number, item in enumerate(value if isinstance(value, list) else [value], start=1):
        if _is_conversation(item):
            sources.append(_source(item, number, numbered=False))
        elif (logged := _logged(item)) is not None:
            sources.append(Source(value=logged, line=number, numbers=None, is_logged=True))
        else:
            problems.append(_holds_none(number, f"Item {number}"))
    return sources


def _sources_of_lines(document: Document, problems: list[Problem]) -> list[Source]:
    sources: list[Source] = []
    loose: list[Record] = []
    for record in document.records:
        if _is_conversation(record.value):
            sources += _gathered(loose)
            sources.append(_source(record.value, record.line, numbered=False))
        elif isinstance(record.value, dict) and "role" in record.value:
            loose.append(record)
        elif (logged := _logged(record.value)) is not None:
            sources += _gathered(loose)
            sources.append(Source(value=logged, line=record.line, numbers=None, is_logged=True))
        elif sources and not loose and (answered := _completed(sources[-1], record.value)):
            sources[-1] = answered
        else:
            problems.append(_holds_none(record.line, "The line"))
    return sources + _gathered(loose)


def _completed(source: Source, value: Any) -> Source | None:
    """The request with its response that a log has on the next line; None where it is none."""
    if source.numbers or "response" in source.value:
        return None
    response = response_in(value, LOGGED) or body_in(value, LOGGED.is_response)
    if response is None:
        return None
    return replace(source, value={**source.value, "response": response}, is_logged=True)


def _gathered(loose: list[Record]) -> list[Source]:
    """One conversation from lines that hold one message each; empties the list."""
    if not loose:
        return []
    messages = [record.value for record in loose]
    numbers = [record.line for record in loose]
    loose.clear()
    return [Source(value={"messages": messages}, line=numbers[0], numbers=numbers)]


def _source(value: Any, line: int, *, numbered: bool) -> Source:
    if isinstance(value, list):
        value = {"messages": value}
    numbers = range(1, len(message_list(value) or ()) + 1) if numbered else None
    return Source(value=value, line=line, numbers=numbers)


def _holds_none(line: int, subject: str) -> Problem:
    return Problem(line=line, text=f"{subject} was left out: it holds no messages.")


FORMAT = Format(
    name=NAME,
    label="OpenAI chat messages (JSON or JSONL)",
    endings=(".json", ".jsonl"),
    recognises=recognises,
    parse=parse,
    exports=(
        Export(name="json", ending=".json", media_type="application/json", write=to_json),
        Export(
            name="jsonl",
            ending=".jsonl",
            media_type="application/x-ndjson",
            write=to_openai_chat_jsonl,
        ),
    ),
)
