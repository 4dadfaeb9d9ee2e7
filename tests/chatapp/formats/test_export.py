"""What is exported as OpenAI chat JSON imports back equal."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from chatapp.formats import Conversation, ImportedMessage, parse, visible_line
from chatapp.formats.openai_export import to_json, to_openai_chat_json, to_openai_chat_jsonl

from .conftest import ParseFile, ParseOne
from .test_openai_chat import LOG_WITH_CALLS, LOG_WITHOUT_CALLS, TAU


def comparable(conversation: Conversation) -> dict[str, Any]:
    """What the format has a place for."""
    return {
        "messages": [(m.key, m.parent, m.wire, m.reasoning) for m in conversation.messages],
        "system_prompt": conversation.system_prompt,
        "tools": conversation.tools,
        "title": conversation.title,
        "model": conversation.model,
        "created_at": conversation.created_at,
        "metadata": conversation.metadata,
        "identity": conversation.identity,
    }


def again(conversation: Conversation) -> Conversation:
    (imported,) = parse(json.dumps(to_openai_chat_json(conversation))).conversations
    return imported


def test_all_tau_conversations_come_back_equal_from_lines(parsed: ParseFile) -> None:
    conversations = parsed(TAU).conversations

    content = "".join(to_openai_chat_jsonl(conversations))

    assert content.count("\n") == 70
    imported = parse(content.encode()).conversations
    assert [comparable(c) for c in imported] == [comparable(c) for c in conversations]


@pytest.mark.parametrize("path", [LOG_WITH_CALLS, LOG_WITHOUT_CALLS])
def test_logs_come_back_equal(only: ParseOne, path: str) -> None:
    conversation = only(path)

    assert comparable(again(conversation)) == comparable(conversation)


def test_the_system_prompt_is_written_as_the_first_message() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    (conversation,) = parse(json.dumps(messages)).conversations

    assert to_openai_chat_json(conversation) == {
        "title": "",
        "system_prompt": "Be brief.",
        "messages": messages,
    }


@pytest.mark.parametrize("prompt", ["", "Be brief.", "Be kind."])
def test_a_prompt_and_an_opening_system_message_are_told_apart(prompt: str) -> None:
    opening = {"role": "system", "content": "Be kind."}
    wires = [opening, {"role": "user", "content": "hi"}]
    messages = tuple(
        ImportedMessage(key=str(n), parent=str(n - 1) if n > 1 else None, wire=wire)
        for n, wire in enumerate(wires, 1)
    )
    conversation = Conversation(
        format="test", identity="test", title="", system_prompt=prompt, messages=messages
    )

    imported = again(conversation)

    assert imported.system_prompt == prompt
    assert [message.wire for message in imported.messages] == wires


def test_reasoning_comes_back() -> None:
    answer = ImportedMessage(
        key="2", parent="1", wire={"role": "assistant", "content": "4"}, reasoning="2 + 2"
    )
    question = ImportedMessage(key="1", parent=None, wire={"role": "user", "content": "2 + 2?"})
    conversation = Conversation(
        format="test", identity="test", title="", messages=(question, answer)
    )

    assert [message.reasoning for message in again(conversation).messages] == ["", "2 + 2"]


TREE = Conversation(
    format="test",
    identity="test",
    title="Tree",
    messages=(
        ImportedMessage(key="a", parent=None, wire={"role": "user", "content": "a"}),
        ImportedMessage(
            key="s",
            parent="a",
            kind="placeholder",
            summary="sum",
            wire={"role": "assistant", "content": "sum"},
        ),
        ImportedMessage(key="b", parent="s", wire={"role": "assistant", "content": "b"}),
        ImportedMessage(key="c", parent="s", wire={"role": "assistant", "content": "c"}),
    ),
)


def contents(conversation: Conversation) -> list[str]:
    return [m["content"] for m in to_openai_chat_json(conversation)["messages"]]


def test_only_the_visible_line_is_written_and_no_placeholder() -> None:
    assert contents(replace(TREE, leaf="b")) == ["a", "b"]


def test_without_a_leaf_the_line_ends_on_the_last_message() -> None:
    assert contents(TREE) == ["a", "c"]


def test_a_system_prompt_without_messages_is_written_and_makes_nothing_when_it_is_read() -> None:
    empty = replace(TREE, messages=(), system_prompt="Be brief.")
    written = "".join(to_openai_chat_jsonl([empty, TREE]))

    assert "Be brief." in written
    (read,) = parse(written).conversations
    assert [message.wire["content"] for message in read.messages] == ["a", "c"]
    assert "without a readable message" in parse(written).problems[0].text


def test_a_lone_surrogate_is_escaped_and_other_text_is_readable() -> None:
    def line(text: str) -> str:
        message = ImportedMessage(key="1", parent=None, wire={"role": "user", "content": text})
        return next(to_openai_chat_jsonl([replace(TREE, messages=(message,))]))

    assert "你好" in line("你好")
    assert r"\ud83d" in line("half \ud83d")
    assert line("half \ud83d").isascii()


TEXTS = st.text(max_size=20) | st.sampled_from(
    ["", "nul \x00", "half \ud83d", "\u2028", "\n", "{", '"', "你好", "🙂"]
)
PARTS = st.lists(
    st.builds(lambda text: {"type": "text", "text": text}, TEXTS)
    | st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}),
    max_size=3,
)
CALLS = st.lists(
    st.builds(
        lambda call_id, name, arguments: {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        },
        st.sampled_from(["c1", "c2", ""]),
        st.sampled_from(["look", "find"]),
        TEXTS,
    ),
    min_size=1,
    max_size=3,
)


def wire(role: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"role": st.just(role), **fields})


WIRES = (
    st.sampled_from(["system", "developer", "user"]).flatmap(
        lambda role: wire(role, content=TEXTS | PARTS)
    )
    | wire("user", content=TEXTS, name=TEXTS)
    | wire("assistant", content=TEXTS | PARTS)
    | wire("assistant", content=st.none() | TEXTS | PARTS, tool_calls=CALLS)
    | wire("assistant", content=st.none(), function_call=CALLS.map(lambda c: c[0]["function"]))
    | wire("tool", content=st.none() | TEXTS | PARTS, tool_call_id=TEXTS, name=TEXTS)
    | wire("function", content=TEXTS, name=st.just("look"))
)


@given(
    messages=st.lists(WIRES, min_size=1, max_size=8),
    title=TEXTS,
    tools=st.lists(st.just({"type": "function", "function": {"name": "look"}}), max_size=2),
    metadata=st.dictionaries(TEXTS, TEXTS | st.integers() | st.booleans(), max_size=3),
)
def test_whatever_was_imported_comes_back_equal(
    messages: list[Any], title: str, tools: list[Any], metadata: dict[str, Any]
) -> None:
    # A prompt alone is no conversation: the test of a prompt without messages holds that.
    assume([message["role"] for message in messages] != ["system"])
    source = {"messages": messages, "title": title, "tools": tools, "metadata": metadata}
    parsed = parse(json.dumps(source))
    (conversation,) = parsed.conversations

    written = to_openai_chat_json(conversation)

    assert parsed.problems == ()
    assert written["messages"] == messages
    (from_lines,) = parse("".join(to_openai_chat_jsonl([conversation])).encode()).conversations
    assert comparable(from_lines) == comparable(conversation)
    assert comparable(again(conversation)) == comparable(conversation)


@pytest.mark.parametrize(
    "path",
    [
        "pi/before-compaction.jsonl",
        "claude_code/ccl_dag_compact_after_rewind.jsonl",
        "claude_code/entire_b8659b3a4dd4_two_compactions.jsonl",
        "claude_code/entire_e12c3e2b3f2a_orphan_result.jsonl",
        "chatgpt_export/chatgpt_tree.json",
        "chatgpt_export/chatgpt_2025_user_context.json",
        "librechat/librechat_flat_branches.json",
        "openwebui/openwebui_single_chat.json",
    ],
)
def test_sessions_of_other_formats_are_written_soundly(only: ParseOne, path: str) -> None:
    written = to_openai_chat_json(only(path))

    parsed = parse(json.dumps(written))

    assert parsed.problems == ()
    wires = [message.wire for message in parsed.conversations[0].messages]
    said = [
        {key: value for key, value in message.items() if key != "reasoning_content"}
        for message in written["messages"]
    ]
    assert wires == said


@pytest.mark.parametrize(
    "path",
    [
        "chatgpt_export/chatgpt_modern_export.json",
        "librechat/librechat_tree_nested.json",
        "librechat/librechat_linear.json",
        "librechat/chatbotui_v4_export.json",
        "openwebui/openwebui_export_list.json",
        "oasst/en_trees_dev.jsonl",
    ],
)
def test_the_visible_lines_of_trees_come_back_equal(parsed: ParseFile, path: str) -> None:
    conversations = parsed(path).conversations

    read = parse("".join(to_json(conversations)))

    assert read.problems == ()
    for one, again_ in zip(conversations, read.conversations, strict=True):
        line = visible_line(one)
        assert [m.wire for m in again_.messages] == [m.wire for m in line]
        assert [m.reasoning for m in again_.messages] == [m.reasoning for m in line]
        assert again_.system_prompt == one.system_prompt
        assert again_.title == one.title
        assert again_.model == one.model
        assert again_.created_at == one.created_at
