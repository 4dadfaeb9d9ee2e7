"""OpenAssistant's conversation trees: a prompt with replies, each with replies; one tree a line.

The same trees also come as single messages, one a line, that name their tree and their parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from chatapp.formats.file_records import Record
from chatapp.formats.message_shelf import Keep
from chatapp.formats.reading import (
    DamagedError,
    Document,
    Wire,
    moment,
    shown,
    text_or_empty,
)
from chatapp.formats.records import Conversation, ImportedMessage, ParsedFile, Problem, ProblemList
from chatapp.formats.registry import Format
from chatapp.formats.trees import (
    Tree,
    TreeNode,
    descendants,
    end_of,
    grown,
    items_of,
    records_of,
    unique_id,
)

NAME = "oasst"
ROLES = {"prompter": "user", "assistant": "assistant"}
_ABOUT = ("tree_state", "lang")
UNRANKED = 1 << 31
"""What no file ranks as low."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _TreeSource:
    """A tree of the file: the record it starts with, and those of messages that stand alone.

    Each message comes with its line and the number of its parent, where it hangs inside that.
    """

    record: Record
    single: list[Record] = field(default_factory=list)

    @property
    def about(self) -> Wire:
        """What the tree says of itself, or its first message does."""
        return cast(Wire, self.record.value)

    def messages(self) -> Iterator[tuple[int, Any, int | None]]:
        """Yield the messages."""
        if self.single:
            yield from ((record.line, record.value, None) for record in self.single)
            return
        for _, node, parent in descendants([self.about["prompt"]], key="replies"):
            yield self.record.line, node, parent


def recognises(document: Document) -> bool:
    """Whether the file holds trees, or messages of trees."""
    return any(_is_tree(value) or _is_message(value) for _, value in items_of(document))


def _is_tree(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and "message_tree_id" in value
        and isinstance(value.get("prompt"), dict)
    )


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and {"message_tree_id", "message_id", "role"} <= value.keys()


def parse(document: Document) -> ParsedFile:
    """The trees of the file, each a conversation; damaged messages are left out and told."""
    problems = ProblemList()
    sources = _sources(document, problems)
    conversations = tuple(_conversation(one, problems, document.keep) for one in sources)
    return ParsedFile(format=NAME, conversations=conversations, problems=problems)


def _sources(document: Document, problems: list[Problem]) -> list[_TreeSource]:
    found: list[_TreeSource] = []
    by_tree: dict[str, _TreeSource] = {}
    for record in records_of(document):
        value = record.value
        if _is_tree(value):
            found.append(_TreeSource(record=record))
        elif _is_message(value):
            tree = text_or_empty(value["message_tree_id"])
            if tree not in by_tree:
                by_tree[tree] = _TreeSource(record=record)
                found.append(by_tree[tree])
            by_tree[tree].single.append(record)
        else:
            text = "It was left out: it holds no conversation tree."
            problems.append(Problem(line=record.line, text=text))
    return found


def _conversation(source: _TreeSource, problems: list[Problem], keep: Keep) -> Conversation:
    nodes, ranks = [], {}
    for node, rank in _nodes(source.messages(), problems, keep):
        nodes.append(node)
        ranks[node.id] = rank
    tree = grown(nodes, line=source.record.line, problems=problems)
    messages, keys = tree.messages()
    best = _best(tree, ranks)
    native = text_or_empty(source.about.get("message_tree_id"))
    return Conversation(
        format=NAME,
        identity=f"{NAME}:{native or (messages[0].key if messages else '')}",
        title="",
        messages=messages,
        leaf=keys[best] if best is not None else None,
        created_at=messages[0].created_at if messages else None,
        metadata=_about(source),
    )


def _about(source: _TreeSource) -> dict[str, Any]:
    _, first, _ = next(source.messages(), (0, None, None))
    said = {**first, **source.about} if isinstance(first, dict) else source.about
    return {key: said[key] for key in _ABOUT if isinstance(said.get(key), str)}


def _nodes(
    messages: Iterable[tuple[int, Any, int | None]], problems: list[Problem], keep: Keep
) -> Iterator[tuple[TreeNode, int]]:
    """Yield every message as a node, with its rank among its siblings."""
    ids: list[str] = []
    taken: set[str] = set()
    for number, (line, value, inside) in enumerate(messages):
        links = value if isinstance(value, dict) else {}
        identifier = unique_id(links.get("message_id"), taken, number)
        named = text_or_empty(links.get("parent_id")) or None
        said: tuple[ImportedMessage, ...] = ()
        try:
            said = (keep(_message(value)),)
        except DamagedError as error:
            text = f"The message {shown(identifier)} was left out: {error}."
            problems.append(Problem(line=line, text=text))
        ids.append(identifier)
        taken.add(identifier)
        parent = ids[inside] if inside is not None else named
        rank = links.get("rank")
        yield (
            TreeNode(id=identifier, parent=parent, messages=said),
            rank if isinstance(rank, int) else UNRANKED,
        )


def _message(value: Any) -> ImportedMessage:
    if not isinstance(value, dict):
        raise DamagedError(f"it is not an object but {shown(value)}")
    role, text = value.get("role"), value.get("text")
    if not isinstance(role, str) or role not in ROLES:
        raise DamagedError(f"its role is {shown(role)}")
    if value.get("deleted") is True:
        raise DamagedError("it was deleted")
    if not isinstance(text, str) or not text.strip():
        raise DamagedError("it has no text")
    model = text_or_empty(value.get("model_name")) if role == "assistant" else ""
    return ImportedMessage(
        key="",
        parent=None,
        wire={"role": ROLES[role], "content": text},
        created_at=moment(value.get("created_date")),
        metadata={"model": model} if model else {},
    )


def _best(tree: Tree, ranks: dict[str, int]) -> str | None:
    """The end of the line of the best reply at every fork, as people ranked them."""
    best: dict[str | None, str] = {}
    for node in tree.nodes:
        rival = best.get(node.parent)
        if rival is None or ranks[node.id] < ranks[rival]:
            best[node.parent] = node.id
    return end_of(best)


FORMAT = Format(
    name=NAME,
    label="OpenAssistant trees (JSONL)",
    endings=(".json", ".jsonl"),
    recognises=recognises,
    parse=parse,
)
