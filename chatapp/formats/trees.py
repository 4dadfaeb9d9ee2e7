"""Conversations kept as trees: nodes that name their parents, of whatever program.

A reader makes a `TreeNode` of everything that a file has; `grown` makes a sound tree of those that
say something. All of it is iterative and linear, however deep or wide a tree is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chatapp.formats.file_records import Record, items_as_records
from chatapp.formats.message_shelf import Keep
from chatapp.formats.nesting import NESTED_UNDER
from chatapp.formats.reading import (
    DamagedError,
    Document,
    Wire,
    shown,
    text_or_empty,
)
from chatapp.formats.records import Conversation, ImportedMessage, ParsedFile, Problem, ProblemList
from chatapp.messages.wire import Cleaner


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeNode:
    """One node of a file's tree.

    `messages` is what it says, one behind the other; a node without any is passed over, and its
    children hang under what is above it. `children` is the order that the file has them in.
    """

    id: str
    parent: str | None
    messages: tuple[ImportedMessage, ...] = ()
    children: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Nodes that say something, parents before their children, siblings in order.

    `nearest` names for every node of the file the one that stands for it: itself, or what is shown
    above it; None where nothing is.
    """

    nodes: tuple[TreeNode, ...]
    nearest: Mapping[str, str | None]

    def newest(self) -> str | None:
        """The node that the last sibling at every fork leads to."""
        last = {node.parent: node.id for node in self.nodes}
        return end_of(last)

    def shown_last(self, current: Any, line: int, problems: list[Problem]) -> str | None:
        """The node that the program showed last, or what is shown above it; else the newest one."""
        if isinstance(current, str) and current in self.nearest:
            return self.nearest[current] or self.newest()
        if current is not None:
            text = "The message that was shown last is not in the file: the newest line is shown."
            problems.append(Problem(line=line, text=text))
        return self.newest()

    def messages(self) -> tuple[tuple[ImportedMessage, ...], dict[str, str]]:
        """The messages with their keys and parents, and the last key of each node."""
        found: list[ImportedMessage] = []
        last: dict[str, str] = {}
        keys = _Keys(node.id for node in self.nodes)
        for node in self.nodes:
            above = last[node.parent] if node.parent is not None else None
            for message in node.messages:
                key = keys.next_of(node.id)
                found.append(message.changed(key=key, parent=above))
                above = key
            last[node.id] = str(above)
        return tuple(found), last


def end_of(following: Mapping[str | None, str]) -> str | None:
    """Where a line ends that goes on from each node to one of its children; None: no root."""
    end = following.get(None)
    while end is not None and end in following:
        end = following[end]
    return end


class _Keys:
    """Names messages by their nodes, as the database keeps it, and none like another."""

    def __init__(self, identifiers: Iterable[str]) -> None:
        self._reserved = {_storable(identifier) for identifier in identifiers}
        self._given: dict[str, int] = defaultdict(int)
        self._taken: set[str] = set()

    def next_of(self, identifier: str) -> str:
        """The key of a node's next message."""
        name = _storable(identifier)
        self._given[name] += 1
        key = name
        while key in self._taken or (key in self._reserved and key != name):
            self._given[name] += key != name
            key = f"{name}:{self._given[name]}"
        self._taken.add(key)
        return key


def _storable(identifier: str) -> str:
    """An id as the database keeps it, by which a later import finds its message."""
    return Cleaner().text(identifier)


def unique_id(value: Any, taken: Mapping[str, Any] | set[str], number: int) -> str:
    """The id that a node has, or one by its place where it has none or another node has it."""
    wanted = text_or_empty(value)
    if wanted and wanted not in taken:
        return wanted
    made = f"node:{number}"
    while made in taken:
        made += "+"
    return made


def grown(nodes: Sequence[TreeNode], *, line: int, problems: list[Problem]) -> Tree:
    """The tree of the nodes that say something; what had to be mended is added to the problems.

    A node whose parent is not in the file, or that is its own ancestor, begins a line of its own.
    """
    parents = _parents(nodes, line, problems)
    _cut_circles(parents, line, problems)
    children = _children(nodes, parents)
    nearest: dict[str, str | None] = {}
    kept: list[TreeNode] = []
    by_id = {node.id: node for node in nodes}
    stack = children[None][::-1]
    while stack:
        node = by_id[stack.pop()]
        parent = parents[node.id]
        above = nearest[parent] if parent is not None else None
        if node.messages:
            kept.append(replace(node, parent=above))
        nearest[node.id] = node.id if node.messages else above
        stack += children.get(node.id, ())[::-1]
    return Tree(nodes=tuple(kept), nearest=nearest)


def _parents(
    nodes: Sequence[TreeNode], line: int, problems: list[Problem]
) -> dict[str, str | None]:
    """The parent of every node: the one it names, else the one that has it among its children."""
    known = {node.id for node in nodes}
    listed: dict[str, str] = {}
    for node in nodes:
        for child in node.children:
            listed.setdefault(child, node.id)
    parents: dict[str, str | None] = {}
    strays: list[str] = []
    for node in nodes:
        parent = node.parent if node.parent in known else listed.get(node.id)
        if parent is None and node.parent is not None:
            strays.append(node.id)
        parents[node.id] = parent
    if strays:
        which = f"{shown(strays[0])}{f' and {len(strays) - 1} more' if strays[1:] else ''}"
        text = (
            f"A parent is not in the file: what hung under it begins a line of its own ({which})."
        )
        problems.append(Problem(line=line, text=text))
    return parents


def _cut_circles(parents: dict[str, str | None], line: int, problems: list[Problem]) -> None:
    """Make the first node of every circle of parents a root."""
    order = {identifier: number for number, identifier in enumerate(parents)}
    seen: dict[str, str] = {}
    for start in order:
        at: str | None = start
        while at is not None and at not in seen:
            seen[at] = start
            at = parents[at]
        if at is None or seen[at] != start:
            continue
        first, step = at, parents[at]
        while step is not None and step != at:
            first = min(first, step, key=order.__getitem__)
            step = parents[step]
        parents[first] = None
        text = f"The node {shown(first)} is its own ancestor; it begins a line of its own."
        problems.append(Problem(line=line, text=text))


def _children(
    nodes: Sequence[TreeNode], parents: Mapping[str, str | None]
) -> dict[str | None, list[str]]:
    children: dict[str | None, list[str]] = defaultdict(list)
    for identifier, parent in parents.items():
        children[parent].append(identifier)
    for node in nodes:
        if len(children.get(node.id, ())) > 1 and node.children:
            place = {child: number for number, child in enumerate(node.children)}
            children[node.id].sort(key=lambda child, place=place: place.get(child, len(place)))  # type: ignore[misc]
    return children


def descendants(roots: Sequence[Any], *, key: str) -> Iterator[tuple[int, Any, int | None]]:
    """Walk through nodes that hold their children under `key`.

    Yields (number, node, number of its parent), parents first and siblings in order; numbers count
    from 0 in the order in which nodes are met.
    """
    number = 0
    # Of siblings that wait only the list is held: they may be many, and lie in a file.
    stack: list[tuple[Sequence[Any], int, int | None]] = [(roots, 0, None)] if roots else []
    # Lists that were too deep hold all descendants; these are met before the list goes on.
    flat: dict[int, list[int]] = {}
    while stack:
        siblings, index, parent = stack.pop()
        node = siblings[index]
        if index + 1 < len(siblings):
            stack.append((siblings, index + 1, parent))
        owner = parent
        above = node.get(NESTED_UNDER) if isinstance(node, dict) else None
        met = flat.setdefault(-1 if owner is None else owner, [])
        if isinstance(above, int) and 0 <= above < len(met):
            parent = met[above]
        met.append(number)
        yield number, node, parent
        inside = node.get(key) if isinstance(node, dict) else None
        if isinstance(inside, list) and inside:
            stack.append((inside, 0, number))
        number += 1


def items_of(document: Document) -> Iterator[tuple[int, Any]]:
    """The values of a file with their lines, or the items of its one list with their numbers."""
    return ((record.line, record.value) for record in records_of(document))


def records_of(document: Document) -> Iterator[Record]:
    """The same as records, which may be held: those of a large file are decoded when looked at."""
    for record in document.records:
        if not document.is_lines and isinstance(record.value, list):
            yield from items_as_records(record.value)
        else:
            yield record


def read_all(
    document: Document,
    *,
    name: str,
    holds: Callable[[Any], bool],
    read: Callable[[Wire, int, list[Problem], Keep], Conversation],
) -> ParsedFile:
    """Every conversation of a file that can be read, and a problem for each that cannot."""
    problems = ProblemList()
    conversations: list[Conversation] = []
    for line, value in items_of(document):
        subject = "The line" if document.is_lines else f"Item {line}"
        if not holds(value):
            text = f"{subject} was left out: it is no conversation."
            problems.append(Problem(line=line, text=text))
            continue
        try:
            conversations.append(read(value, line, problems, document.keep))
        except DamagedError as error:
            called = text_or_empty(value.get("title"))
            which = f"{subject}{f', {shown(called)},' if called else ''}"
            problems.append(Problem(line=line, text=f"{which} was left out: {error}."))
    return ParsedFile(format=name, conversations=tuple(conversations), problems=problems)
