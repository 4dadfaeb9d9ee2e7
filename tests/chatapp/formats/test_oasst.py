"""OpenAssistant's trees: prompts with replies in replies, and single messages that name parents."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from chatapp.formats import Conversation, UnknownFormatError, parse, visible_line

from .conftest import ParseFile

TREES = "oasst/en_trees_dev.jsonl"


def node(key: str, text: Any = "", *replies: Any, **more: Any) -> dict[str, Any]:
    role = "assistant" if key.startswith("a") else "prompter"
    return {"message_id": key, "text": text, "role": role, "replies": list(replies)} | more


def tree(prompt: dict[str, Any], **more: Any) -> str:
    about = {"message_tree_id": "t1", "tree_state": "ready_for_export"}
    return json.dumps(about | {"prompt": prompt} | more)


def one(prompt: dict[str, Any]) -> Conversation:
    parsed = parse(tree(prompt))
    assert parsed.problems == ()
    (conversation,) = parsed.conversations
    return conversation


def links(conversation: Conversation) -> dict[str, str | None]:
    return {message.key: message.parent for message in conversation.messages}


def test_the_real_trees_have_these_messages_branches_and_forks(parsed: ParseFile) -> None:
    found = parsed(TREES)

    assert found.format == "oasst"
    assert found.problems == ()
    assert len(found.conversations) == 60
    messages = [message for one in found.conversations for message in one.messages]
    assert len(messages) == 684
    children = Counter(message.parent for message in messages if message.parent is not None)
    assert len(messages) - len(children) == 360
    assert sum(number > 1 for number in children.values()) == 149
    assert {message.wire["role"] for message in messages} == {"user", "assistant"}
    assert all(one.messages[0].wire["role"] == "user" for one in found.conversations)


def test_the_best_reply_at_every_fork_is_shown() -> None:
    conversation = one(
        node(
            "q",
            "Why?",
            node("a1", "So.", rank=1),
            node("a2", "Thus.", node("r1", "Oh."), node("r2", "Ah."), rank=0),
            node("a3", "Hence."),
        )
    )

    assert [message.key for message in visible_line(conversation)] == ["q", "a2", "r1"]


def test_what_is_known_of_a_message_is_kept() -> None:
    conversation = one(
        node(
            "q",
            "Why?",
            node("a", "So.", model_name="chip20b", created_date="2023-02-05T14:23:50+00:00"),
            lang="en",
        )
    )

    assert conversation.identity == "oasst:t1"
    assert conversation.metadata == {"tree_state": "ready_for_export", "lang": "en"}
    assert conversation.messages[1].metadata == {"model": "chip20b"}
    assert conversation.messages[1].created_at == datetime(2023, 2, 5, 14, 23, 50, tzinfo=UTC)


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        ("hello", "it is not an object but 'hello'"),
        (node("a", "So.", node("r", "Oh."), role="moderator"), "its role is 'moderator'"),
        (node("a", 5, node("r", "Oh.")), "it has no text"),
        (node("a", " ", node("r", "Oh.")), "it has no text"),
        (node("a", "So.", node("r", "Oh."), deleted=True), "it was deleted"),
    ],
)
def test_a_damaged_message_is_left_out_by_name_and_its_replies_stay(damaged: Any, why: str) -> None:
    found = parse(tree(node("q", "Why?", damaged, node("a9", "Thus."))))

    kept = links(found.conversations[0])
    assert kept.pop("r", "q") == "q"
    assert kept == {"q": None, "a9": "q"}
    (problem,) = found.problems
    assert why in problem.text


def test_replies_that_are_no_list_are_none() -> None:
    assert links(one(node("q", "Why?", replies="none"))) == {"q": None}


def test_single_messages_become_trees_again() -> None:
    def single(key: str, parent: str | None, tree_id: str) -> str:
        links = {"parent_id": parent, "message_tree_id": tree_id}
        return json.dumps(node(key, f"says {key}") | links)

    lines = [single("a", "q", "q"), single("x", None, "x"), single("q", None, "q")]

    found = parse("\n".join(lines))

    assert [links(one) for one in found.conversations] == [{"q": None, "a": "q"}, {"x": None}]
    assert [one.identity for one in found.conversations] == ["oasst:q", "oasst:x"]


def test_a_line_that_is_no_tree_is_told_and_the_others_are_read() -> None:
    found = parse("\n".join([tree(node("q", "Why?")), '{"n": 1}', "{broken"]))

    assert len(found.conversations) == 1
    assert [problem.line for problem in found.problems] == [2, 3]


def test_a_file_of_trees_without_readable_messages_says_what_it_is() -> None:
    with pytest.raises(UnknownFormatError, match="looks like OpenAssistant trees"):
        parse(tree(node("q", "")))
