"""Open WebUI's chats: a list of rows, one row, or the chat inside one.

The history is a map of nodes; the flat list of messages beside it is a copy of the visible line
that may be out of date. Thoughts and tool calls are read from a message's `output`; in `content`
they stand as HTML, which is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from chatapp.formats.message_shelf import Keep
from chatapp.formats.openai_responses import ItemReader
from chatapp.formats.reading import (
    DamagedError,
    Document,
    Wire,
    content_of,
    count,
    digest,
    joined,
    moment,
    shown,
    text_or_empty,
    usage_of,
)
from chatapp.formats.records import Conversation, ImportedMessage, ParsedFile, Problem
from chatapp.formats.registry import Format
from chatapp.formats.trees import TreeNode, grown, items_of, read_all, unique_id

NAME = "open_webui"
ROLES = ("system", "user", "assistant")
RENDERED = re.compile(
    r'<details\s[^<>]*?\btype="(?P<kind>reasoning|tool_calls|code_interpreter)"[^<>]*>'
)
CLOSING = "</details>"


def recognises(document: Document) -> bool:
    """Whether the file holds chats with a history of linked messages."""
    return any(_is_chat(value) for _, value in items_of(document))


def _is_chat(value: Any) -> bool:
    chat = _chat(value)
    history = chat.get("history")
    if isinstance(history, dict):
        return isinstance(history.get("messages"), dict) or "currentId" in history
    listed = chat.get("messages")
    return isinstance(listed, list) and any("childrenIds" in _object(one) for one in listed)


def _chat(value: Any) -> Wire:
    """The chat in a row of the export, or the chat itself."""
    row = _object(value)
    return row["chat"] if isinstance(row.get("chat"), dict) else row


def _object(value: Any) -> Wire:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def parse(document: Document) -> ParsedFile:
    """The chats of the file, each a tree; what cannot be read is told."""
    return read_all(document, name=NAME, holds=_is_chat, read=_conversation)


def _conversation(value: Wire, line: int, problems: list[Problem], keep: Keep) -> Conversation:
    chat = _chat(value)
    history = _object(chat.get("history"))
    tree = grown(
        _nodes(chat, history, _NodeReader(line, problems, keep)), line=line, problems=problems
    )
    messages, keys = tree.messages()
    last = tree.shown_last(history.get("currentId"), line, problems)
    params = _object(chat.get("params"))
    native = text_or_empty(value.get("id")) or text_or_empty(chat.get("id"))
    times = (value.get("created_at"), chat.get("timestamp"))
    return Conversation(
        format=NAME,
        identity=f"{NAME}:{native or digest([(m.key, m.wire) for m in messages[:1]])}",
        title=text_or_empty(value.get("title")) or text_or_empty(chat.get("title")),
        messages=messages,
        leaf=keys[last] if last is not None else None,
        system_prompt=text_or_empty(params.get("system")) or text_or_empty(chat.get("system")),
        model=_model(chat, messages),
        created_at=next((time for time in map(moment, times) if time), None),
    )


def _model(chat: Wire, messages: Sequence[ImportedMessage]) -> str:
    answered = (message.metadata.get("model") for message in reversed(messages))
    chosen = (model for model in _list(chat.get("models")) if isinstance(model, str))
    return next(filter(None, chosen), "") or next(filter(None, answered), "")


# --- one node -------------------------------------------------------------------------------------


def _nodes(chat: Wire, history: Wire, reader: _NodeReader) -> list[TreeNode]:
    mapping = history.get("messages")
    if isinstance(mapping, dict) and mapping:
        nodes = [reader.node(identifier, value) for identifier, value in mapping.items()]
    else:
        nodes = list(_listed(chat, reader))
    reader.tell_left_out()
    return nodes


def _listed(chat: Wire, reader: _NodeReader) -> Iterator[TreeNode]:
    """The nodes of the flat list: of chats that have nothing else."""
    taken: set[str] = set()
    previous: str | None = None
    for number, value in enumerate(_list(chat.get("messages"))):
        identifier = unique_id(_object(value).get("id"), taken, number)
        taken.add(identifier)
        node = reader.node(identifier, value)
        has_place = "parentId" in _object(value)
        yield node if has_place else replace(node, parent=previous)
        previous = identifier


class _NodeReader:
    """Reads the messages of one chat, and keeps what has no place in them."""

    def __init__(self, line: int, problems: list[Problem], keep: Keep) -> None:
        self._keep = keep
        self._line = line
        self._problems = problems
        self._left_out = Counter[str]()

    def node(self, identifier: str, value: Any) -> TreeNode:
        """Return a message as a node; one that is damaged says nothing."""
        said: tuple[ImportedMessage, ...] = ()
        try:
            said = tuple(map(self._keep, self._said(identifier, value)))
        except DamagedError as error:
            text = f"The message {shown(identifier)} was left out: {error}."
            self._problems.append(Problem(line=self._line, text=text))
        links = _object(value)
        parent = links.get("parentId")
        children = links.get("childrenIds")
        return TreeNode(
            id=identifier,
            parent=parent if parent is None or isinstance(parent, str) else shown(parent),
            messages=said,
            children=[child for child in _list(children) if isinstance(child, str)],
        )

    def tell_left_out(self) -> None:
        """Add a problem for each kind of thing that was left out."""
        for what, number in self._left_out.items():
            self._problems.append(Problem(line=self._line, text=f"Left out: {what} ({number})."))

    def _said(self, identifier: str, value: Any) -> tuple[ImportedMessage, ...]:
        if not isinstance(value, dict):
            raise DamagedError(f"it is not an object but {shown(value)}")
        role = value.get("role")
        if role not in ROLES:
            raise DamagedError(f"its role is {shown(role)}")
        created_at = moment(value.get("timestamp"))
        content = content_of(value.get("content"))
        if role == "assistant":
            found = self._answer(identifier, value, content)
        else:
            content = _with_files(content, _list(value.get("files")))
            wire = {"role": role, "content": content}
            found = [ImportedMessage(key="", parent=None, wire=wire)] if _says(content) else []
        return tuple(replace(message, created_at=created_at) for message in found)

    def _answer(self, identifier: str, value: Wire, content: Any) -> list[ImportedMessage]:
        """Return the messages of an answer: from its output, else its text without the HTML."""
        model = text_or_empty(value.get("model"))
        if sources := _list(value.get("sources")):
            self._left_out["sources of answers"] += len(sources)
        kinds: list[str] = []
        text = without_rendered(content, kinds) if isinstance(content, str) else content
        reader = ItemReader(self._problems)
        for item in _list(value.get("output")):
            reader.take(item, line=self._line, subject=f"An item of {shown(identifier)}")
        usage, end = _usage(_object(value.get("usage"))), _end(value)
        found = reader.finished(usage, end)
        reader.tell_left_out(self._line)
        if not found:
            self._left_out.update(f"{kind} that stand in the text as HTML only" for kind in kinds)
        if _says(text) and not any(_is_said(message) for message in found):
            wire = {"role": "assistant", "content": text}
            last = ImportedMessage(key="", parent=None, wire=wire, usage=usage, finish_reason=end)
            found = _with_text(found, last)
        if not found and value.get("error"):
            self._left_out["error notices in the place of answers"] += 1
        return [
            replace(message, metadata=message.metadata | {"model": model})
            if model and message.wire["role"] == "assistant"
            else message
            for message in found
        ]


def _says(content: Any) -> bool:
    return bool(content.strip() if isinstance(content, str) else content)


def _is_said(message: ImportedMessage) -> bool:
    return message.wire["role"] == "assistant" and _says(message.wire["content"])


def _with_text(found: Sequence[ImportedMessage], last: ImportedMessage) -> list[ImportedMessage]:
    """Put the text of an answer behind what its output had: thoughts, calls and results."""
    if not found or found[-1].wire["role"] != "assistant" or "tool_calls" in found[-1].wire:
        return [*found, last]
    return [*found[:-1], replace(found[-1], wire=last.wire)]


def _end(value: Wire) -> str:
    return "interrupted" if value.get("done") is False else ""


def _usage(usage: Wire) -> dict[str, Any] | None:
    details = _object(usage.get("prompt_tokens_details"))
    read = count(details.get("cached_tokens"))
    fresh = max(0, count(usage.get("prompt_tokens")) - read)
    return usage_of(fresh=fresh, read=read, written=0, output=usage.get("completion_tokens"))


def without_rendered(text: str, kinds: list[str]) -> str:
    """The text without thoughts and tool calls drawn as HTML; their kinds are added to `kinds`."""
    kept: list[str] = []
    position = 0
    while opening := RENDERED.search(text, position):
        end = text.find(CLOSING, opening.end())
        if end < 0:  # an answer that broke off inside: the rest is what was drawn
            end = len(text)
        kinds.append(opening["kind"])
        kept.append(text[position : opening.start()])
        position = end + len(CLOSING)
    kept.append(text[position:])
    return "".join(kept).strip() if kinds else text


def _with_files(content: Any, files: Sequence[Any]) -> Any:
    """The content with the images and the names of the files that were sent along."""
    images: list[Wire] = []
    names: list[str] = []
    for file in map(_object, files):
        url = text_or_empty(file.get("url"))
        if file.get("type") == "image" and url.startswith(("data:", "http://", "https://")):
            images.append({"type": "image_url", "image_url": {"url": url}})
        else:
            names.append(f"[{_called(file)}]")
    text = joined([content, *names]) if isinstance(content, str) else ""
    if not images:
        return text if isinstance(content, str) else content
    parts = content if isinstance(content, list) else []
    return [*([{"type": "text", "text": text}] if text else []), *parts, *images]


def _called(file: Mapping[str, Any]) -> str:
    inner = _object(file.get("file"))
    names = (file.get("name"), inner.get("filename"), file.get("url"), file.get("id"))
    kind = "image" if file.get("type") == "image" else "file"
    return " ".join([kind, *[text_or_empty(name)[:200] for name in names if name][:1]])


FORMAT = Format(
    name=NAME,
    label="Open WebUI chats (JSON)",
    endings=(".json",),
    recognises=recognises,
    parse=parse,
)
