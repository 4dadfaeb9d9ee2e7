"""LibreChat's exports of one conversation: nested, flat with all branches, or its visible line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from chatapp.formats.answers import AnswerBuilder
from chatapp.formats.message_shelf import Keep
from chatapp.formats.reading import (
    DamagedError,
    Document,
    Wire,
    digest,
    joined,
    moment,
    shown,
    text_or_empty,
)
from chatapp.formats.records import Conversation, ImportedMessage, ParsedFile, Problem
from chatapp.formats.registry import Format
from chatapp.formats.trees import TreeNode, descendants, grown, items_of, read_all, unique_id

NAME = "librechat"
LISTS = ("messages", "messagesTree")
NO_PARENT = "00000000-0000-0000-0000-000000000000"
_MARKS = ("agent_update", "")
"""Kinds of parts that say nothing."""


def recognises(document: Document) -> bool:
    """Whether the file is an export: a conversation's id, and messages with ids and senders."""
    return any(_is_conversation(value) for _, value in items_of(document))


def _is_conversation(value: Any) -> bool:
    if not isinstance(value, dict) or "conversationId" not in value:
        return False
    messages = _messages(value)
    if messages is None:
        return False
    return "exportAt" in value or any(map(_is_message, messages))


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and "messageId" in value and "isCreatedByUser" in value


def _messages(value: Wire) -> list[Any] | None:
    found = (value.get(key) for key in LISTS)
    return next((messages for messages in found if isinstance(messages, list)), None)


def parse(document: Document) -> ParsedFile:
    """The conversations of the file, each a tree; what cannot be read is told."""
    return read_all(document, name=NAME, holds=_is_conversation, read=_conversation)


def _conversation(value: Wire, line: int, problems: list[Problem], keep: Keep) -> Conversation:
    nodes = list(_nodes(_messages(value) or [], line, problems, keep))
    tree = grown(nodes, line=line, problems=problems)
    messages, keys = tree.messages()
    newest = tree.newest()
    options = _object(value.get("options"))
    answered = (message.metadata.get("model") for message in reversed(messages))
    native = text_or_empty(value.get("conversationId"))
    endpoint = text_or_empty(value.get("endpoint"))
    return Conversation(
        format=NAME,
        identity=f"{NAME}:{native or digest([(m.key, m.wire) for m in messages[:1]])}",
        title=text_or_empty(value.get("title")),
        messages=messages,
        leaf=keys[newest] if newest is not None else None,
        system_prompt=text_or_empty(options.get("promptPrefix")),
        model=text_or_empty(options.get("model")) or next(filter(None, answered), ""),
        created_at=next((m.created_at for m in messages if m.created_at), None),
        metadata={"endpoint": endpoint} if endpoint else {},
    )


def _object(value: Any) -> Wire:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _nodes(
    messages: Sequence[Any], line: int, problems: list[Problem], keep: Keep
) -> Iterator[TreeNode]:
    ids: list[str] = []
    taken: set[str] = set()
    left_out = Counter[str]()
    for number, value, inside in descendants(messages, key="children"):
        links = _object(value)
        identifier = unique_id(links.get("messageId"), taken, number)
        said: tuple[ImportedMessage, ...] = ()
        try:
            said = tuple(map(keep, _said(value, left_out)))
        except DamagedError as error:
            text = f"The message {shown(identifier)} was left out: {error}."
            problems.append(Problem(line=line, text=text))
        previous = ids[-1] if ids else None
        parent = ids[inside] if inside is not None else _parent(links, previous)
        ids.append(identifier)
        taken.add(identifier)
        yield TreeNode(id=identifier, parent=parent, messages=said)
    for kind, count in left_out.items():
        problems.append(Problem(line=line, text=f"Left out: {kind} ({count})."))


def _parent(links: Wire, previous: str | None) -> str | None:
    """The parent that a message names; where it names none at all, the one before it."""
    if "parentMessageId" not in links:
        return previous
    parent = text_or_empty(links["parentMessageId"])
    return parent if parent and parent != NO_PARENT else None


# --- one message ----------------------------------------------------------------------------------


def _said(value: Any, left_out: Counter[str]) -> tuple[ImportedMessage, ...]:
    """What a message says, one message for each step; nothing where its text is empty."""
    if not isinstance(value, dict):
        raise DamagedError(f"it is not an object but {shown(value)}")
    by_user = value.get("isCreatedByUser")
    if not isinstance(by_user, bool):
        raise DamagedError("it does not say whether the user sent it")
    if value.get("error") is True:
        left_out["error notices in the place of answers"] += 1
        return ()
    if not isinstance(value.get("text", ""), (str, type(None))):
        raise DamagedError(f"its text is {shown(value['text'])}")
    created_at = moment(value.get("createdAt"))
    if by_user:
        text = joined([_user_text(value, left_out), *_files(value)])
        if not text.strip():
            return ()
        wire = {"role": "user", "content": text}
        return (ImportedMessage(key="", parent=None, wire=wire, created_at=created_at),)
    builder = AnswerBuilder()
    for part in _list(value.get("content")):
        _take(part, builder, left_out)
    found = builder.finished(created_at=created_at, finish_reason=_end(value))
    if not found:
        builder.say(_unless_blank(text_or_empty(value.get("text"))))
        found = builder.finished(created_at=created_at, finish_reason=_end(value))
    return tuple(_by(message, text_or_empty(value.get("model"))) for message in found)


def _by(message: ImportedMessage, model: str) -> ImportedMessage:
    if model and message.wire["role"] == "assistant":
        message.metadata["model"] = model
    return message


def _end(value: Wire) -> str:
    reason = text_or_empty(value.get("finish_reason"))
    return reason or ("interrupted" if value.get("unfinished") is True else "")


def _unless_blank(text: str) -> str:
    return text if text.strip() else ""


def _user_text(value: Wire, left_out: Counter[str]) -> str:
    builder = AnswerBuilder()
    for part in _list(value.get("content")):
        _take(part, builder, left_out)
    said = [message.wire["content"] for message in builder.finished()]
    return joined(text_or_empty(text) for text in said) or text_or_empty(value.get("text"))


def _files(value: Wire) -> list[str]:
    """Names of files that were sent along: the export does not hold them."""
    files = (_object(file) for file in _list(value.get("files")))
    return [f"[file {name}]" for file in files if (name := text_or_empty(file.get("filename")))]


def _take(part: Any, builder: AnswerBuilder, left_out: Counter[str]) -> None:
    part = _object(part)
    kind = text_or_empty(part.get("type"))
    if kind == "text":
        builder.say(_unless_blank(_text(part.get("text"))))
    elif kind == "think":
        builder.think(_text(part.get("think")))
    elif kind == "tool_call":
        _take_call(_object(part.get("tool_call")) or part, builder)
    elif kind == "image_file":
        file = _object(part.get("image_file"))
        where = text_or_empty(file.get("filename")) or text_or_empty(file.get("filepath"))
        builder.say(f"[image {where}]" if where else "[image]")
    elif kind not in _MARKS:
        left_out[f"parts of the kind {shown(kind)}"] += 1


def _text(value: Any) -> str:
    """A text, which some versions put into an object with its annotations."""
    return text_or_empty(value) or text_or_empty(_object(value).get("value"))


def _take_call(call: Wire, builder: AnswerBuilder) -> None:
    function = _object(call.get("function"))
    name = text_or_empty(call.get("name")) or function.get("name")
    arguments = call.get("args", function.get("arguments"))
    call_id = text_or_empty(call.get("id"))
    builder.next_step()
    builder.call(call_id=call_id, name=name, arguments=arguments)
    output = call.get("output", function.get("output"))
    if isinstance(output, str):
        wire = {"role": "tool", "tool_call_id": call_id, "name": name, "content": output}
        builder.result(wire, {})


FORMAT = Format(
    name=NAME,
    label="LibreChat exports (JSON)",
    endings=(".json",),
    recognises=recognises,
    parse=parse,
)
