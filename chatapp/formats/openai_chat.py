"""OpenAI chat JSON: lists of messages, alone, in objects, and one a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from chatapp.formats.answers import chained
from chatapp.formats.exchanges import (
    longest_of_each,
)
from chatapp.formats.message_shelf import Keep, as_it_is
from chatapp.formats.openai_export import to_json, to_openai_chat_jsonl
from chatapp.formats.openai_messages import CheckedMessage, check_message
from chatapp.formats.openai_sources import (
    MESSAGE_LISTS,
    Source,
    is_readable,
    message_list,
    sources_of,
)
from chatapp.formats.own_parts import OWN_KEY, OwnParts, read_parts
from chatapp.formats.reading import (
    DamagedError,
    Document,
    Wire,
    digest,
    digest_of_line,
    moment,
    text_or_empty,
)
from chatapp.formats.records import (
    Conversation,
    ImportedMessage,
    ParsedFile,
    Problem,
    ProblemList,
    Wires,
)
from chatapp.formats.registry import Export, Format
from chatapp.messages.vendor import ABOUT_KEYS, without_imported
from chatapp.messages.wire import LEFT_OUT, VENDOR_LEFT_OUT, text_of

TIMES = ("created_at", "timestamp", "created")
OWN_KEYS = frozenset(
    {*MESSAGE_LISTS, *TIMES, "title", "model", "response", "system_prompt", OWN_KEY}
)
PROMPTS = ("system_prompt", "system", "systemPrompt", "system_message", "instructions")
NATIVE_IDS = ("task_id", "conversation_id", "session_id", "id")


@dataclass(frozen=True, slots=True, kw_only=True)
class _AnswerMessage:
    """What a `response` holds: the message, and what the completion says about it."""

    checked: CheckedMessage
    finish_reason: str = ""
    usage: dict[str, Any] | None = None


def read_conversation(
    source: Source, problems: list[Problem], keep: Keep = as_it_is
) -> Conversation:
    """The conversation without its damaged parts, which are added to the problems."""
    value = source.value
    messages = _messages(source, problems, keep)
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
        identity=_identity(system_prompt, Wires(messages), metadata),
        title=text_or_empty(value.get("title")),
        messages=tuple(_chained(messages, own, keep)),
        system_prompt=system_prompt,
        tools=_tools(source, problems),
        model=_model(value),
        created_at=_time(value),
        metadata=metadata,
        parts=own.parts,
    )


def _messages(source: Source, problems: list[Problem], keep: Keep) -> list[ImportedMessage]:
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
        messages.append(keep(_message(checked, created_at=_time(entry))))
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


def _chained(
    messages: Sequence[ImportedMessage], own: OwnParts, keep: Keep
) -> Iterator[ImportedMessage]:
    for index, message in enumerate(chained(messages)):
        is_note = index in own.notes
        placed = message.changed(pinned=index in own.pinned, kind="note" if is_note else "message")
        told = _told_of(own, index)
        yield keep(placed.changed(metadata=placed.metadata | told)) if told else placed


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
        said = digest_of_line(system_prompt, items=map(without_imported, wires))
        return f"openai_chat:{said}"
    if _is_id(trial := metadata.get("trial")):
        native = f"{native}:{trial}"
    asked = next((wire["content"] for wire in wires if wire["role"] == "user"), None)
    return f"openai_chat:{digest(system_prompt, asked)[:16]}:{native}"


def _is_id(value: Any) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool) and value != ""


NAME = "openai_chat"


def recognises(document: Document) -> bool:
    """Whether the file holds OpenAI chat messages in any of the known containers."""
    return any(is_readable(record.value) for record in document.records)


def parse(document: Document) -> ParsedFile:
    """The conversations of the file; damaged messages are left out and named as problems."""
    problems = ProblemList()
    sources = sources_of(document, problems)
    read = (read_conversation(source, problems, document.keep) for source in sources)
    # In a log of requests each repeats those before it; elsewhere all stand for themselves.
    are_logged = any(source.is_logged for source in sources)
    conversations = tuple(longest_of_each(read) if are_logged else read)
    return ParsedFile(format=NAME, conversations=conversations, problems=problems)


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
