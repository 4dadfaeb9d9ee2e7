"""What holds of every format that keeps a tree: damage, depth, width, order."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatapp.formats import Conversation, parse, visible_line
from chatapp.formats.nesting import flattened
from chatapp.formats.trees import TreeNode, grown
from tests.facts import draw_facts, seed
from tests.growth import grows_too_fast

from .test_registry import is_sound

ROLES = ("user", "assistant")
LONG = 5_000
WIDE = 10_000


@dataclass(slots=True, kw_only=True)
class Said:
    """A message of a drawn tree, before a format is chosen; `is_damaged` ones cannot be read."""

    key: str
    parent: str | None
    text: Any
    role: str = "user"
    children: list[str] = field(default_factory=list)
    is_damaged: bool = False

    @property
    def is_shown(self) -> bool:
        return not self.is_damaged and isinstance(self.text, str) and bool(self.text.strip())


# --- one tree in every format ---------------------------------------------------------------------


def as_chatgpt(tree: list[Said]) -> str:
    mapping = {
        one.key: {
            "id": one.key,
            "parent": one.parent,
            "children": one.children,
            "message": {
                "author": {"role": one.role},
                "content": {"content_type": "text", "parts": [one.text]},
                "end_turn": True,
            },
        }
        for one in tree
    }
    return json.dumps([{"conversation_id": "c", "current_node": "?", "mapping": mapping}])


def as_open_webui(tree: list[Said]) -> str:
    messages = {
        one.key: {
            "parentId": one.parent,
            "childrenIds": one.children,
            "role": one.role,
            "content": one.text,
        }
        for one in tree
    }
    return json.dumps({"id": "c", "history": {"messages": messages, "currentId": "?"}})


def _of_librechat(one: Said) -> dict[str, Any]:
    return {
        "messageId": one.key,
        "parentMessageId": one.parent,
        "isCreatedByUser": one.role == "user" if one.role in ROLES else one.role,
        "text": one.text,
    }


def as_librechat(tree: list[Said]) -> str:
    value = {"conversationId": "c", "exportAt": "now", "messages": [_of_librechat(m) for m in tree]}
    return json.dumps(value)


def as_oasst(tree: list[Said]) -> str:
    roles = {"user": "prompter"}
    return "\n".join(
        json.dumps(
            {
                "message_id": one.key,
                "parent_id": one.parent,
                "message_tree_id": "c",
                "role": roles.get(one.role, one.role),
                "text": one.text,
            }
        )
        for one in tree
    )


FLAT = {
    "chatgpt": as_chatgpt,
    "open_webui": as_open_webui,
    "librechat": as_librechat,
    "oasst": as_oasst,
}
each_format = pytest.mark.parametrize("written", FLAT.values(), ids=FLAT)
Written = Callable[[list[Said]], str]


def only(content: str) -> Conversation:
    (conversation,) = parse(content).conversations
    return conversation


# --- damage, drawn by the seed that pytest prints -------------------------------------------------


def draw_tree(chance: random.Random, size: int = 40) -> list[Said]:
    facts = draw_facts(chance, size)
    tree = [Said(key="n0", parent=None, text=facts[0].sentence)]
    for number in range(1, size):
        above = chance.choice(tree[-6:])
        role = "assistant" if above.role == "user" else "user"
        tree.append(
            Said(key=f"n{number}", parent=above.key, text=facts[number].sentence, role=role)
        )
        above.children.append(tree[-1].key)
    return tree


def _hang(tree: list[Said], one: Said, parent: str | None) -> None:
    for other in tree:
        if one.key in other.children:
            other.children.remove(one.key)
    one.parent = parent


def blank(tree: list[Said], one: Said) -> None:
    one.text = " \n"


def alien(tree: list[Said], one: Said) -> None:
    one.role, one.is_damaged = "alien", True


def no_text(tree: list[Said], one: Said) -> None:
    one.text, one.is_damaged = 12.5, True


def own_parent(tree: list[Said], one: Said) -> None:
    _hang(tree, one, one.key)


def lost_parent(tree: list[Said], one: Said) -> None:
    _hang(tree, one, "not-in-the-file")


def no_parent(tree: list[Said], one: Said) -> None:
    _hang(tree, one, None)


def circle(tree: list[Said], one: Said) -> None:
    """Have the oldest ancestor hang under the message."""
    by_key = {other.key: other for other in tree}
    oldest, seen = one, {one.key}
    while oldest.parent in by_key and oldest.parent not in seen:
        seen.add(oldest.parent)
        oldest = by_key[oldest.parent]
    if oldest is not one:
        _hang(tree, oldest, one.key)


SHAPES = (blank, alien, no_text, own_parent, lost_parent, no_parent, circle)


def expected(tree: list[Said]) -> dict[str, str | None]:
    """What each readable text hangs under: the text above it, past what cannot be read."""
    by_key = {one.key: one for one in tree}
    parents = {one.key: one.parent if one.parent in by_key else None for one in tree}
    for one in tree:  # in the order of the file: the first of a circle begins it
        seen, at = [one.key], parents[one.key]
        while at is not None and at not in seen:
            seen.append(at)
            at = parents[at]
        if at == one.key:
            parents[one.key] = None
    found: dict[str, str | None] = {}
    for one in filter(lambda one: one.is_shown, tree):
        at = parents[one.key]
        while at is not None and not by_key[at].is_shown:
            at = parents[at]
        found[one.text] = by_key[at].text if at is not None else None
    return found


def read_links(conversation: Conversation) -> dict[str, str | None]:
    texts = {message.key: message.wire["content"] for message in conversation.messages}
    return {
        message.wire["content"]: texts[message.parent] if message.parent is not None else None
        for message in conversation.messages
    }


@each_format
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_damage_of_one_shape_costs_what_is_damaged_and_nothing_else(
    written: Written, shape: Callable[[list[Said], Said], None]
) -> None:
    chance = random.Random(f"{seed()} {shape.__name__}")
    tree = draw_tree(chance)
    for one in chance.sample(tree[1:], 3):
        shape(tree, one)

    parsed = parse(written(tree))

    assert is_sound(parsed)
    assert read_links(parsed.conversations[0]) == expected(tree)


@each_format
@pytest.mark.parametrize("round_", range(12))
def test_damage_of_many_shapes_at_once_leaves_a_sound_tree(written: Written, round_: int) -> None:
    chance = random.Random(f"{seed()} {round_}")
    tree = draw_tree(chance)
    for one in chance.sample(tree[1:], 12):
        chance.choice(SHAPES)(tree, one)

    parsed = parse(written(tree))

    assert is_sound(parsed)
    assert read_links(parsed.conversations[0]) == expected(tree)
    told = " ".join(problem.text for problem in parsed.problems)
    for one in filter(lambda one: one.is_damaged, tree):
        assert f"'{one.key}' was left out" in told


@each_format
def test_circles_and_lost_parents_are_told(written: Written) -> None:
    tree = [
        Said(key="a", parent="b", text="first", children=["b"]),
        Said(key="b", parent="a", text="second", role="assistant", children=["a"]),
        Said(key="c", parent="c", text="third"),
        Said(key="d", parent="gone", text="fourth"),
    ]

    parsed = parse(written(tree))

    assert read_links(parsed.conversations[0]) == {
        "first": None, "second": "first", "third": None, "fourth": None,
    }  # fmt: skip
    told = " ".join(problem.text for problem in parsed.problems)
    assert "'a' is its own ancestor" in told
    assert "'c' is its own ancestor" in told
    assert "parent is not in the file" in told


@each_format
def test_ids_that_no_database_stores_keep_their_places(written: Written) -> None:
    tree = [
        Said(key="a\x00", parent=None, text="first", children=["a\ud800"]),
        Said(key="a\ud800", parent="a\x00", text="second", role="assistant"),
    ]

    conversation = only(written(tree))

    assert read_links(conversation) == {"first": None, "second": "first"}
    keys = [message.key for message in conversation.messages]
    assert len(set(keys)) == 2
    assert not any(char in key for key in keys for char in "\x00\ud800")


# --- depth, width, size ---------------------------------------------------------------------------


def long_line(length: int) -> list[Said]:
    tree = [
        Said(
            key=f"n{number}",
            parent=f"n{number - 1}" if number else None,
            text=f"text {number}",
            role=ROLES[number % 2],
            children=[f"n{number + 1}"],
        )
        for number in range(length)
    ]
    tree[-1].children = []
    return tree


def broad(width: int) -> list[Said]:
    keys = [f"n{number}" for number in range(width)]
    root = Said(key="q", parent=None, text="Why?", children=keys)
    return [root, *(Said(key=k, parent="q", text=f"says {k}", role="assistant") for k in keys)]


@each_format
def test_a_line_of_thousands_is_read_in_whatever_order(written: Written) -> None:
    tree = long_line(LONG)

    for order in (tree, tree[::-1]):
        conversation = only(written(order))
        assert len(visible_line(conversation)) == len(conversation.messages) == LONG
        assert [m.wire["content"] for m in conversation.messages[:2]] == ["text 0", "text 1"]


@each_format
def test_ten_thousand_answers_to_one_question_are_read(written: Written) -> None:
    conversation = only(written(broad(WIDE)))

    assert len(conversation.messages) == WIDE + 1
    assert {message.parent for message in conversation.messages} == {None, "q"}


@each_format
@pytest.mark.parametrize("shape", [long_line, broad], ids=lambda shape: shape.__name__)
def test_ten_times_the_messages_take_about_ten_times_as_long(
    written: Written, shape: Callable[[int], list[Said]]
) -> None:
    contents = {size: written(shape(size)) for size in (400, 4_000)}
    assert not grows_too_fast(lambda size: parse(contents[size]), 400, times=10)


# --- trees that are written inside each other -----------------------------------------------------


def nested(tree: list[Said], key: str, one: Callable[[Said], dict[str, Any]]) -> str:
    """The text of the tree's root with everything below it, made without recursion."""
    by_key = {said.key: said for said in tree}
    pieces: list[str] = []
    stack: list[str] = [tree[0].key]
    while stack:
        at = stack.pop()
        if at in by_key:
            pieces.append(f'{json.dumps(one(by_key[at]))[:-1]}, "{key}": [')
            inside = [sign for child in by_key[at].children for sign in (child, ",")][:-1]
            stack += ["]}", *inside[::-1]]
        else:
            pieces.append(at)
    return "".join(pieces)


def as_nested_librechat(tree: list[Said]) -> str:
    inside = nested(tree, "children", _of_librechat)
    return f'{{"conversationId": "c", "exportAt": "now", "messages": [{inside}]}}'


def as_nested_oasst(tree: list[Said]) -> str:
    def one(said: Said) -> dict[str, Any]:
        role = "prompter" if said.role == "user" else said.role
        return {"message_id": said.key, "role": role, "text": said.text}

    return f'{{"message_tree_id": "c", "prompt": {nested(tree, "replies", one)}}}'


NESTED = {"librechat": as_nested_librechat, "oasst": as_nested_oasst}
each_nested = pytest.mark.parametrize("written", NESTED.values(), ids=NESTED)


@each_nested
@pytest.mark.parametrize("length", [40, 49, 50, 51, 60, LONG])
def test_a_nested_line_of_any_length_is_read(written: Written, length: int) -> None:
    parsed = parse(written(long_line(length)))

    assert parsed.problems == ()
    assert [m.wire["content"] for m in visible_line(parsed.conversations[0])] == [
        f"text {number}" for number in range(length)
    ]


@each_nested
@pytest.mark.parametrize("round_", range(6))
def test_a_deep_nested_tree_is_the_same_as_a_shallow_one(written: Written, round_: int) -> None:
    chance = random.Random(f"{seed()} deep {round_}")
    tree = draw_tree(chance, size=60)
    # A tail that makes all of it too deep, below any message.
    end = chance.choice(tree)
    for number in range(80):
        tree.append(Said(key=f"x{number}", parent=end.key, text=f"tail {number}"))
        end.children.append(f"x{number}")
        end = tree[-1]

    conversation = only(written(tree))

    assert read_links(conversation) == expected(tree)
    keys = [message.key for message in conversation.messages if message.key.startswith("n")]
    shallow = [one for one in tree if one.key.startswith("n")]
    for one in shallow:
        one.children = [child for child in one.children if child.startswith("n")]
    assert keys == [message.key for message in only(written(shallow)).messages]


def test_ten_thousand_nested_answers_are_read() -> None:
    for written in NESTED.values():
        assert len(only(written(broad(WIDE))).messages) == WIDE + 1


def test_one_deep_tree_among_others_costs_none_of_them() -> None:
    trees = [as_nested_oasst(tree) for tree in (long_line(3), long_line(500), long_line(4))]

    parsed = parse("\n".join(trees))

    assert parsed.problems == ()
    assert [len(one.messages) for one in parsed.conversations] == [3, 500, 4]


@pytest.mark.parametrize(
    ("text", "flat"),
    [
        (
            '{"a": 1, "children": [{"b": 2, "children": [{"c": 3}, {}]}, {"d": 4}]} tail',
            '{"a": 1, "children": [{"b": 2, "children": []},'
            '{"nested_under":0,"c": 3},{"nested_under":0},{"d": 4}]}',
        ),
        (
            '[{"replies": [{"replies" : [ {"x": "[{\\"replies\\": [{"} ]}]}, 5]',
            '[{"replies": [{"replies" : []},{"nested_under":0,"x": "[{\\"replies\\": [{"}]}, 5]',
        ),
    ],
)
def test_nested_lists_are_written_behind_each_other(text: str, flat: str) -> None:
    found = flattened(text, 0)

    assert found is not None
    assert found[0] == flat
    assert text[found[1] :] in (" tail", "")


@pytest.mark.parametrize(
    "text",
    [
        '{"children": ["a", "b"]}',
        '{"children": [{"a": 1}]}',
        '{"a": [{"b": [{"c": 1}]}]}',
        '{"children": [{"children": [{"a": 1}]',
        '{"children": [{"children": [{"a": 1]}]}',
        '{"children": [{"children": [{"a": "1',
        '"children" [[[',
        "",
    ],
)
def test_what_is_not_nested_like_a_tree_is_left_alone(text: str) -> None:
    assert flattened(text, 0) is None


JSON_TREES = st.recursive(
    st.dictionaries(st.sampled_from("ab"), st.integers() | st.text(max_size=5), max_size=2),
    lambda inner: st.builds(
        lambda about, children: about | {"children": children},
        st.dictionaries(st.sampled_from("ab"), st.text(max_size=5), max_size=2),
        st.lists(inner, max_size=4),
    ),
    max_leaves=20,
)


def paths(value: Any) -> list[tuple[Any, ...]]:
    """Every node with the numbers of its ancestors, in the order of the text."""
    found: list[tuple[Any, ...]] = []

    def walk(node: dict[str, Any], above: tuple[int, ...]) -> None:
        place = (*above, len(found))
        found.append((place, {key: x for key, x in node.items() if key != "children"}))
        for child in node.get("children", ()):
            walk(child, place)

    walk(value, ())
    return found


def unflattened(value: dict[str, Any]) -> dict[str, Any]:
    listed = value.get("children", [])
    roots = []
    for child in listed:
        above = child.pop("nested_under", None)
        (roots if above is None else listed[above].setdefault("children", [])).append(child)
    return value | {"children": roots}


@given(JSON_TREES)
def test_a_flat_form_holds_the_same_tree(value: dict[str, Any]) -> None:
    found = flattened(json.dumps(value), 0)

    if found is not None:
        assert paths(unflattened(json.loads(found[0]))) == paths(value)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 8),
            st.none() | st.integers(0, 9),
            st.lists(st.integers(0, 9), max_size=3),
        ),
        max_size=9,
        unique_by=lambda drawn: drawn[0],
    )
)
def test_no_tangle_of_links_loses_a_node(drawn: list[tuple[int, int | None, list[int]]]) -> None:
    nodes = [
        TreeNode(
            id=str(key),
            parent=None if parent is None else str(parent),
            children=[str(child) for child in children],
        )
        for key, parent, children in drawn
    ]

    tree = grown(nodes, line=1, problems=[])

    assert tree.nearest.keys() == {node.id for node in nodes}
