"""ChatGPT's export: `conversations.json`, each conversation a map of nodes.

Nodes have no order but their links. What the program hides is passed over; an answer that it split
into several nodes (thoughts, text, a call) is put together again. Calls have no ids: a result
belongs to the nearest call above it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chatapp.formats.message_shelf import Keep
from chatapp.formats.reading import (
    DamagedError,
    Document,
    Wire,
    compact_json,
    digest,
    joined,
    moment,
    shown,
    text_or_empty,
    tool_call,
)
from chatapp.formats.records import Conversation, ImportedMessage, ParsedFile, Problem
from chatapp.formats.registry import Format
from chatapp.formats.trees import Tree, TreeNode, grown, items_of, read_all
from chatapp.messages.vendor import kept_of_file, merged
from chatapp.messages.wire import VENDOR

NAME = "chatgpt"
ROLES = ("system", "user", "assistant", "tool")
HIDDEN_KINDS = ("user_editable_context", "model_editable_context", "reasoning_recap")
"""Kinds of content that nobody said: instructions around the conversation, notices."""

CONTEXT_KINDS = HIDDEN_KINDS[:2]
MOST_CONTEXT_CHARS = 20_000
ABOUT = ("citations", "content_references", "search_result_groups")
"""What a node's metadata says about an answer."""

ENDS = {
    "stop": "stop",
    "max_tokens": "length",
    "interrupted": "interrupted",
    "content_filter": "content_filter",
}
MOST_REPEATED_CHARS = 1_000_000
"""Of calls that several branches begin with, each of which needs a call of its own."""


def recognises(document: Document) -> bool:
    """Whether the file holds conversations with a map of nodes, or of which the map is gone."""
    return any(_is_conversation(value) for _, value in items_of(document))


def _is_conversation(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    mapping = value.get("mapping")
    if isinstance(mapping, dict):
        return "current_node" in value or any(map(_is_node, mapping.values()))
    # Of what is damaged: keys that only this export has.
    return "conversation_id" in value and bool({"current_node", "default_model_slug"} & {*value})


def _is_node(value: Any) -> bool:
    return (
        isinstance(value, dict) and "message" in value and bool({"parent", "children"} & {*value})
    )


def parse(document: Document) -> ParsedFile:
    """The conversations of the file, each a tree; one that cannot be read is a problem."""
    return read_all(document, name=NAME, holds=_is_conversation, read=_conversation)


def _conversation(value: Wire, line: int, problems: list[Problem], keep: Keep) -> Conversation:
    mapping = value.get("mapping")
    if not isinstance(mapping, dict) or not mapping:
        raise DamagedError("it has no `mapping`, which holds the messages; export it again")
    tree = grown(_nodes(mapping, line, problems, keep), line=line, problems=problems)
    answers = _Answers(tree, finished=_finished(mapping), keep=keep)
    for node in tree.nodes:
        answers.take(node)
    messages, keys = answers.joined_tree().messages()
    shown_last = tree.shown_last(value.get("current_node"), line, problems)
    return Conversation(
        format=NAME,
        identity=_identity(value, messages),
        title=text_or_empty(value.get("title")),
        messages=messages,
        leaf=keys[answers.unit_of(shown_last)] if shown_last is not None else None,
        model=text_or_empty(value.get("default_model_slug")) or _answered_by(messages),
        created_at=moment(value.get("create_time")),
        metadata=_metadata(value, mapping),
    )


def _metadata(value: Wire, mapping: Mapping[str, Any]) -> dict[str, Any]:
    gizmo, context = text_or_empty(value.get("gizmo_id")), _user_context(mapping)
    return ({"gizmo_id": gizmo} if gizmo else {}) | ({"user_context": context} if context else {})


def _identity(value: Wire, messages: Sequence[ImportedMessage]) -> str:
    native = text_or_empty(value.get("conversation_id")) or text_or_empty(value.get("id"))
    if native:
        return f"{NAME}:{native}"
    first = [messages[0].key, messages[0].wire] if messages else []
    return f"{NAME}:{digest(value.get('create_time'), first)}"


def _answered_by(messages: Sequence[ImportedMessage]) -> str:
    models = (message.metadata.get("model") for message in reversed(messages))
    return next((str(model) for model in models if model), "")


# --- one node -------------------------------------------------------------------------------------


def _nodes(
    mapping: Mapping[str, Any], line: int, problems: list[Problem], keep: Keep
) -> list[TreeNode]:
    nodes: list[TreeNode] = []
    unread = Counter[str]()
    for identifier, value in mapping.items():
        said: ImportedMessage | None = None
        try:
            if not isinstance(value, dict):
                raise DamagedError(f"it is not an object but {shown(value)}")
            said = _said(identifier, value.get("message"), unread)
        except DamagedError as error:
            text = f"The node {shown(identifier)} was left out: {error}."
            problems.append(Problem(line=line, text=text))
        links = value if isinstance(value, dict) else {}
        parent, listed = links.get("parent"), links.get("children")
        nodes.append(
            TreeNode(
                id=identifier,
                parent=parent if parent is None or isinstance(parent, str) else shown(parent),
                messages=(keep(said),) if said else (),
                children=[child for child in _list(listed) if isinstance(child, str)],
            )
        )
    for kind, number in unread.items():
        text = f"Left out: content of the kind {shown(kind)} that has no text ({number})."
        problems.append(Problem(line=line, text=text))
    return nodes


def _user_context(mapping: Mapping[str, Any]) -> dict[str, str]:
    """What the user had set for all conversations: custom instructions, memories.

    Nobody said it, so it is no message; of several versions the last one counts.
    """
    found: dict[str, str] = {}
    for node in mapping.values():
        content = _object(_object(_object(node).get("message")).get("content"))
        if content.get("content_type") in CONTEXT_KINDS:
            texts = {key: text_or_empty(content[key]).strip() for key in content}
            found |= {key: text for key, text in texts.items() if text and key != "content_type"}
    return {key: text[:MOST_CONTEXT_CHARS] for key, text in found.items()}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _object(value: Any) -> Wire:
    return value if isinstance(value, dict) else {}


def _finished(mapping: Mapping[str, Any]) -> set[str]:
    """The nodes that end a turn: what follows is another answer, even without a question."""
    return {
        identifier
        for identifier, value in mapping.items()
        if _object(_object(value).get("message")).get("end_turn") is True
    }


def _said(identifier: str, message: Any, unread: Counter[str]) -> ImportedMessage | None:
    """What a node says; None where it says nothing or is hidden."""
    if message is None:
        return None
    if not isinstance(message, dict):
        raise DamagedError(f"its message is {shown(message)}")
    metadata, author = _object(message.get("metadata")), _object(message.get("author"))
    if message.get("weight") == 0 or metadata.get("is_visually_hidden_from_conversation") is True:
        return None
    if (role := author.get("role")) not in ROLES:
        raise DamagedError(f"its author is {shown(role)}")
    content = message.get("content")
    if not isinstance(content, dict):
        raise DamagedError(f"its content is {shown(content)}")
    kind = text_or_empty(content.get("content_type"))
    if kind in HIDDEN_KINDS:
        return None
    thoughts, text = _thoughts(content), _text(content)
    is_call = role == "assistant" and text_or_empty(message.get("recipient")) not in ("", "all")
    if not (thoughts or text or is_call or kind == "execution_output"):
        if kind not in KINDS:
            unread[kind[:40]] += 1
        return None
    model = text_or_empty(metadata.get("model_slug"))
    is_answer = role == "assistant"
    wire = _call(identifier, message, text) if is_call else _wire(identifier, author, text)
    about = {name: metadata[name] for name in ABOUT if metadata.get(name)} if is_answer else {}
    if vendor := kept_of_file(about).vendor:
        wire[VENDOR] = vendor
    return ImportedMessage(
        key="",
        parent=None,
        wire=wire,
        reasoning=thoughts if is_answer else "",
        finish_reason=_end(message, metadata) if is_answer else "",
        created_at=moment(message.get("create_time")),
        metadata={"model": model} if model and is_answer else {},
    )


def _wire(identifier: str, author: Wire, text: str) -> Wire:
    wire: Wire = {"role": author["role"], "content": text}
    if author["role"] != "tool":
        return wire
    # An id of its own, unless `_Answers` finds the call that it answers.
    wire["tool_call_id"] = f"result_{identifier}"
    name = text_or_empty(author.get("name"))
    return wire | {"name": name} if name else wire


def _call(identifier: str, message: Wire, text: str) -> Wire:
    arguments: Any = text
    if not text.lstrip().startswith("{"):  # no JSON object: what a tool takes as it is
        is_code = message["content"].get("content_type") == "code"
        arguments = {"code" if is_code else "input": text}
    called = tool_call(call_id=f"call_{identifier}", name=message["recipient"], arguments=arguments)
    return {"role": "assistant", "content": None, "tool_calls": [called]}


def _end(message: Wire, metadata: Wire) -> str:
    kind = text_or_empty(_object(metadata.get("finish_details")).get("type"))
    unfinished = "interrupted" if message.get("status") == "in_progress" else ""
    return ENDS.get(kind, unfinished)


# --- content --------------------------------------------------------------------------------------

KINDS = ("text", "multimodal_text", "code", "thoughts", "execution_output")
"""Kinds of content that may be empty and miss nothing."""

_TEXT_KEYS = ("text", "result", "summary", "name")
"""Where kinds of content without parts have their text, the best first."""


def _thoughts(content: Wire) -> str:
    found = [one for one in _list(content.get("thoughts")) if isinstance(one, dict)]
    return joined(
        text_or_empty(one.get("content")) or text_or_empty(one.get("summary")) for one in found
    )


def _text(content: Wire) -> str:
    """The text of a content; empty where it says nothing."""
    if isinstance(parts := content.get("parts"), list):
        text = joined(_part(part) for part in parts)
    elif content.get("content_type") == "tether_quote":
        text = joined(text_or_empty(content.get(key)).strip() for key in ("title", "url", "text"))
    else:
        texts = (text_or_empty(content.get(key)) for key in _TEXT_KEYS)
        text = next((text for text in texts if text.strip()), "")
    return text if text.strip() else ""


def _part(value: Any) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        raise DamagedError(f"a part of it is {shown(value)}")
    if isinstance(text := value.get("text"), str):
        return text
    # Pictures and recordings are files of their own beside conversations.json.
    kind = text_or_empty(value.get("content_type")).removesuffix("_asset_pointer") or "part"
    where = text_or_empty(value.get("asset_pointer"))
    return f"[{' '.join(filter(None, [kind, where]))}]"


# --- answers put together -------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True, eq=False)
class _Unit:
    """A message that one node or several make; `call` is the id of the nearest call above."""

    id: str
    parent: str | None
    said: list[ImportedMessage]
    call: str = ""

    @property
    def first(self) -> ImportedMessage:
        return self.said[0]

    @property
    def last(self) -> ImportedMessage:
        return self.said[-1]

    def message(self) -> ImportedMessage:
        """Return what the nodes say as one message."""
        texts: list[str] = []
        about: dict[str, Any] = {}
        goes_on = False
        for message in self.said:
            wire = message.wire
            text = wire["content"] or ""
            apart = "" if goes_on or not texts or not text else "\n\n"
            texts += [apart, text] if text else []
            about = merged(about, wire.get(VENDOR, {}).get("about", {}))
            goes_on = message.finish_reason == "length"
        first, last = self.first.whole(), self.last.whole()
        calls = last.wire.get("tool_calls")
        vendor = kept_of_file(about).vendor
        return last.changed(
            wire=first.wire
            | {"content": "".join(texts) or (None if calls else "")}
            | ({"tool_calls": calls} if calls else {})
            | ({VENDOR: vendor} if vendor else {}),
            reasoning=joined(message.reasoning for message in self.said),
            created_at=first.created_at or last.created_at,
            metadata=first.metadata | last.metadata,
        )


class _Answers:
    """Takes the nodes of a tree, parents first, and joins those of one answer or one result."""

    def __init__(self, tree: Tree, *, finished: Container[str], keep: Keep) -> None:
        self._finished = finished
        self._keep = keep
        self._units: dict[str, _Unit] = {}
        self._of_node: dict[str, str] = {}
        self._children = Counter(node.parent for node in tree.nodes)
        self._ids = {node.id for node in tree.nodes}
        self._answered: set[str] = set()
        self._sizes: dict[str, int] = {}
        self._repeatable = MOST_REPEATED_CHARS

    def take(self, node: TreeNode) -> None:
        """Read the next node."""
        (message,) = node.messages
        above = self._units[self._of_node[node.parent]] if node.parent is not None else None
        is_only = self._children[node.parent] == 1
        if above is not None and is_only and self._goes_on(above, node.parent, message):
            above.said.append(message)
            above.call = _call_id(message) or above.call
            self._of_node[node.id] = above.id
            return
        if above is not None and _call_id(above.last) and not is_only:
            above = self._with_a_call(above, node)
        call = above.call if above is not None else ""
        if message.wire["role"] == "tool":
            wire = message.wire | ({"tool_call_id": call} if call else {})
            message = self._keep(message.changed(wire=wire))
        else:
            call = _call_id(message)
        parent = above.id if above is not None else None
        unit = _Unit(id=node.id, parent=parent, said=[message], call=call)
        self._units[unit.id] = unit
        self._of_node[node.id] = unit.id

    def unit_of(self, node: str) -> str:
        """The id of the unit that a node is in."""
        return self._of_node[node]

    def joined_tree(self) -> Tree:
        """The tree of the messages that were put together."""
        nodes = (
            TreeNode(id=unit.id, parent=unit.parent, messages=(self._keep(unit.message()),))
            for unit in self._units.values()
        )
        return Tree(nodes=tuple(nodes), nearest={})

    def _goes_on(self, above: _Unit, parent: str | None, message: ImportedMessage) -> bool:
        """Whether a node goes on with what the one above it says."""
        first, wire = above.first.wire, message.wire
        if wire["role"] != first["role"] or wire["role"] not in ("assistant", "tool"):
            return False
        is_over = parent in self._finished or bool(_call_id(above.last))
        return not is_over and wire.get("name") == first.get("name")

    def _with_a_call(self, above: _Unit, node: TreeNode) -> _Unit | None:
        """Each branch below a call needs it for itself: a call and its result are never parted."""
        if above.id not in self._answered:
            self._answered.add(above.id)
            return above
        if above.id not in self._sizes:
            self._sizes[above.id] = len(compact_json(above.message().wire))
        size = self._sizes[above.id]
        if size > self._repeatable:
            return self._units[above.parent] if above.parent is not None else None
        self._repeatable -= size
        identifier = f"{above.id}:{node.id}"
        while identifier in self._ids:
            identifier += "+"
        self._ids.add(identifier)
        self._units[identifier] = again = replace(above, id=identifier)
        return again


def _call_id(message: ImportedMessage) -> str:
    calls = message.wire.get("tool_calls")
    return str(calls[0]["id"]) if calls else ""


FORMAT = Format(
    name=NAME,
    label="ChatGPT exports (conversations.json)",
    endings=(".json",),
    recognises=recognises,
    parse=parse,
)
