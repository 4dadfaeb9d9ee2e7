"""pi sessions: three versions, a tree, and summaries placed before what they kept."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from chatapp.formats import Conversation, ImportedMessage, ParsedFile, parse

from .conftest import ParseFile, ParseOne, ReadFile

BIG = "pi/before-compaction.jsonl"
SMALL = "pi/agent-sessions_pi_v3_small.jsonl"

HEADER = {"type": "session", "id": "s1", "timestamp": "2026-01-02T03:04:05.000Z", "cwd": "/tmp"}


def session(*entries: dict[str, Any], **header: Any) -> ParsedFile:
    return parse("\n".join(json.dumps(entry) for entry in ({**HEADER, **header}, *entries)))


def one(*entries: dict[str, Any], **header: Any) -> Conversation:
    (conversation,) = session(*entries, **header).conversations
    return conversation


def said(role: str, content: Any = "text", **fields: Any) -> dict[str, Any]:
    return {"type": "message", "message": {"role": role, "content": content, **fields}}


def user(text: str, **place: Any) -> dict[str, Any]:
    return {**said("user", text), **place}


def only_message(*entries: dict[str, Any]) -> ImportedMessage:
    (message,) = one(*entries).messages
    return message


def outline(conversation: Conversation) -> list[tuple[str, str | None]]:
    """What each message says, and what its parent says."""
    texts = {m.key: m.wire["content"] for m in conversation.messages}
    return [(texts[m.key], texts[m.parent] if m.parent else None) for m in conversation.messages]


class TestVersion1File:
    def test_all_rows_but_the_thirteen_empty_answers_are_messages(self, parsed: ParseFile) -> None:
        result = parsed(BIG)
        kinds = [m.kind for m in result.conversations[0].messages]

        assert kinds.count("placeholder") == 2
        assert kinds.count("message") == 992 - 2 - 13
        assert [(p.line, p.text[-3:]) for p in result.problems] == [(91, "13.")]

    def test_calls_and_results_are_all_there(self, only: ParseOne) -> None:
        wires = [m.wire for m in only(BIG).messages]

        assert sum(len(w.get("tool_calls", ())) for w in wires) == 454
        assert sum(w["role"] == "tool" for w in wires) == 448

    @pytest.mark.parametrize(("line", "first_kept"), [(359, 293), (628, 551)])
    def test_a_summary_stands_right_before_the_user_message_it_kept_first(
        self, real_file: ReadFile, only: ParseOne, line: int, first_kept: int
    ) -> None:
        rows = [json.loads(row) for row in real_file(BIG).decode().splitlines()]
        messages = only(BIG).messages

        index = next(i for i, m in enumerate(messages) if m.summary == rows[line]["summary"])

        kept = messages[index + 1]
        assert rows[line]["firstKeptEntryIndex"] == first_kept
        assert kept.wire["role"] == "user"
        assert kept.wire["content"] == rows[first_kept]["message"]["content"][0]["text"]
        assert kept.parent == messages[index].key
        assert messages[index].metadata["tokens_before"] == rows[line]["tokensBefore"]
        assert messages[index].wire == {"role": "assistant", "content": rows[line]["summary"]}

    def test_the_session_is_one_line(self, only: ParseOne) -> None:
        messages = only(BIG).messages

        assert [m.parent for m in messages] == [None, *(m.key for m in messages[:-1])]
        assert only(BIG).leaf == messages[-1].key

    def test_the_context_grew_to_the_sizes_of_its_compactions(self, only: ParseOne) -> None:
        totals = [m.usage["total_tokens"] for m in only(BIG).messages if m.usage]

        assert max(totals) == 185_014
        assert 0 not in totals

    def test_it_has_the_identity_model_and_time_of_its_header(self, only: ParseOne) -> None:
        conversation = only(BIG)

        assert conversation.identity == "pi:ffae836b-9420-4060-ac13-7745215f90ff"
        assert conversation.model == "claude-opus-4-5"
        assert conversation.created_at == datetime(2025, 12, 9, 0, 53, 29, 825000, tzinfo=UTC)


class TestVersion3File:
    def test_both_summaries_stand_before_the_message_after_the_named_model_change(
        self, only: ParseOne
    ) -> None:
        keys = [m.key for m in only(SMALL).messages]

        assert keys == ["c139a627", "2c19d326", "30c6a75f", "22a2720e", "ddd2179a", "4a666296"]

    def test_the_line_ends_on_the_last_message_although_a_compaction_follows(
        self, only: ParseOne
    ) -> None:
        assert only(SMALL).leaf == "4a666296"


class TestTree:
    def test_a_branch_is_a_second_child(self) -> None:
        conversation = one(
            user("a", id="1", parentId=None),
            user("b", id="2", parentId="1"),
            user("c", id="3", parentId="1"),
            version=3,
        )

        assert outline(conversation) == [("a", None), ("b", "a"), ("c", "a")]
        assert conversation.leaf == "3"

    def test_children_of_an_entry_that_says_nothing_join_the_message_above(self) -> None:
        conversation = one(
            user("a", id="1", parentId=None),
            {"type": "label", "id": "2", "parentId": "1", "targetId": "1", "label": "here"},
            {"type": "custom", "id": "3", "parentId": "2", "customType": "x", "data": {}},
            user("b", id="4", parentId="3"),
        )

        assert outline(conversation) == [("a", None), ("b", "a")]

    def test_an_entry_with_an_unknown_parent_joins_the_last_one_and_is_named(self) -> None:
        parsed = session(user("a", id="1", parentId=None), user("b", id="2", parentId="lost"))

        assert outline(parsed.conversations[0]) == [("a", None), ("b", "a")]
        assert [problem.line for problem in parsed.problems] == [3]

    def test_a_repeated_id_does_not_repeat_a_key(self) -> None:
        parsed = session(user("a", id="1", parentId=None), user("b", id="1", parentId="1"))

        assert outline(parsed.conversations[0]) == [("a", None), ("b", "a")]
        assert len(parsed.problems) == 1

    def test_two_joined_files_are_two_conversations(self) -> None:
        parsed = session(user("a"), {**HEADER, "id": "s2"}, user("b"))

        assert [c.identity for c in parsed.conversations] == ["pi:s1", "pi:s2"]

    def test_a_line_that_is_no_object_is_named_and_the_rest_imported(self) -> None:
        content = "\n".join(map(json.dumps, (HEADER, user("a"), [1], user("b"))))

        parsed = parse(content)

        assert [problem.line for problem in parsed.problems] == [3]
        assert outline(parsed.conversations[0]) == [("a", None), ("b", "a")]

    def test_a_session_of_many_branches_and_compactions_is_read_in_linear_time(self) -> None:
        entries = []
        for number in range(20_000):
            parent = str(number - 1) if number else None
            entries.append(user("x", id=str(number), parentId=parent))
        compaction = {"type": "compaction", "summary": "sum", "firstKeptEntryId": "1"}
        for number in range(20_000):
            entries.append({**compaction, "id": f"c{number}", "parentId": "19999"})

        assert len(one(*entries).messages) == 40_000


class TestCompaction:
    def test_a_summary_stands_before_the_first_kept_message_on_its_own_branch(self) -> None:
        conversation = one(
            user("a", id="1", parentId=None),
            user("b", id="2", parentId="1"),
            user("other", id="3", parentId="1"),
            user("c", id="4", parentId="2"),
            compaction("sum", id="5", parentId="4", firstKeptEntryId="2"),
            user("d", id="6", parentId="5"),
        )

        assert outline(conversation) == [
            ("a", None),
            ("sum", "a"),
            ("b", "sum"),
            ("other", "a"),
            ("c", "b"),
            ("d", "c"),
        ]

    @pytest.mark.parametrize("first_kept", ["3", "5", "unknown", None])
    def test_without_a_first_kept_message_on_its_line_it_stays_where_it_stands(
        self, first_kept: str | None
    ) -> None:
        conversation = one(
            user("a", id="1", parentId=None),
            user("b", id="2", parentId="1"),
            user("other", id="3", parentId="1"),
            compaction("sum", id="5", parentId="2", firstKeptEntryId=first_kept),
            user("d", id="6", parentId="5"),
        )

        assert outline(conversation)[3:] == [("sum", "b"), ("d", "sum")]

    def test_in_version_1_the_index_counts_the_header_as_zero(self) -> None:
        conversation = one(
            user("a"), user("b"), user("c"), compaction("sum", firstKeptEntryIndex=3), user("d")
        )

        assert [text for text, _ in outline(conversation)] == ["a", "b", "sum", "c", "d"]

    def test_it_keeps_tokens_files_and_where_it_stood(self) -> None:
        conversation = one(
            user("a", id="1", parentId=None),
            user("b", id="2", parentId="1"),
            compaction(
                "sum",
                id="3",
                parentId="2",
                firstKeptEntryId="2",
                tokensBefore=175_004,
                details={"readFiles": ["a.py"], "modifiedFiles": []},
            ),
        )

        assert conversation.messages[1].metadata == {
            "type": "session_summary",
            "tokens_before": 175_004,
            "stood_after": "2",
            "files_read": ["a.py"],
            "files_modified": [],
        }


def compaction(summary: str, **fields: Any) -> dict[str, Any]:
    return {"type": "compaction", "summary": summary, **fields}


class TestMessages:
    def test_an_answer_has_text_calls_and_reasoning(self) -> None:
        blocks = [
            {"type": "thinking", "thinking": "Let me see."},
            {"type": "text", "text": "I look."},
            {"type": "toolCall", "id": "t1", "name": "read", "arguments": {"path": "文件.py"}},
        ]

        message = only_message(said("assistant", blocks, stopReason="toolUse"))

        assert message.wire == {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {
                    "id": "t1",
                    "type": "function",
                    "function": {"name": "read", "arguments": '{"path":"文件.py"}'},
                }
            ],
        }
        assert message.reasoning == "Let me see."
        assert message.finish_reason == "tool_calls"

    def test_an_answer_of_calls_alone_has_null_content(self) -> None:
        call = {"type": "toolCall", "id": "t1", "name": "read", "arguments": {}}

        assert only_message(said("assistant", [call])).wire["content"] is None

    def test_usage_counts_cached_input_as_prompt(self) -> None:
        usage = {"input": 10, "output": 5, "cacheRead": 100, "cacheWrite": 20, "totalTokens": 135}

        assert only_message(said("assistant", "text", usage=usage)).usage == {
            "prompt_tokens": 130,
            "completion_tokens": 5,
            "total_tokens": 135,
            "prompt_tokens_details": {"cached_tokens": 100},
        }

    @pytest.mark.parametrize("reason", ["stop", "length", "error", "aborted"])
    def test_other_stop_reasons_keep_their_name(self, reason: str) -> None:
        assert only_message(said("assistant", "x", stopReason=reason)).finish_reason == reason

    def test_a_tool_result_keeps_name_call_and_error(self) -> None:
        blocks = [{"type": "text", "text": "no such file"}]
        entry = said("toolResult", blocks, toolCallId="t1", toolName="read", isError=True)

        message = only_message(entry)

        assert message.wire == {
            "role": "tool",
            "tool_call_id": "t1",
            "name": "read",
            "content": "no such file",
        }
        assert message.metadata == {"is_error": True}

    def test_an_image_becomes_a_part_with_a_data_uri(self) -> None:
        image = {"type": "image", "data": "QUJD", "mimeType": "image/jpeg"}

        message = only_message(said("user", [{"type": "text", "text": "see"}, image]))

        assert message.wire["content"] == [
            {"type": "text", "text": "see"},
            {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,QUJD"}},
        ]

    def test_a_command_of_the_user_is_a_readable_user_message(self) -> None:
        entry = said("bashExecution", None, command="ls", output="a.py\n", exitCode=2)

        message = only_message(entry)

        assert message.wire == {
            "role": "user",
            "content": "Ran `ls`\n```\na.py\n```\nExit code: 2",
        }

    def test_a_command_kept_out_of_the_context_is_no_message(self) -> None:
        entry = said("bashExecution", None, command="ls", output="x", excludeFromContext=True)
        parsed = session(user("a"), entry, user("b"))

        assert outline(parsed.conversations[0]) == [("a", None), ("b", "a")]
        assert parsed.problems == ()

    def test_a_custom_message_is_a_user_message(self) -> None:
        entry = {"type": "custom_message", "customType": "todo", "content": "buy milk"}

        message = only_message(entry)

        assert message.wire == {"role": "user", "content": "buy milk"}
        assert message.metadata == {"type": "custom_message", "custom_type": "todo"}

    @pytest.mark.parametrize("role", ["hookMessage", "custom"])
    def test_older_versions_keep_custom_messages_under_a_role(self, role: str) -> None:
        assert only_message(said(role, "note")).wire == {"role": "user", "content": "note"}

    def test_a_branch_summary_is_a_user_message_that_says_so(self) -> None:
        message = only_message({"type": "branch_summary", "fromId": "9", "summary": "We tried."})

        assert message.wire["role"] == "user"
        assert message.wire["content"].endswith("We tried.")
        assert message.metadata == {"type": "branch_summary", "from_id": "9"}

    def test_session_info_gives_the_title_and_model_change_the_model(self) -> None:
        conversation = one(
            {"type": "session_info", "name": "old"},
            {"type": "model_change", "provider": "p", "modelId": "m2"},
            {"type": "thinking_level_change", "thinkingLevel": "high"},
            {"type": "session_info", "name": "new"},
            said("user"),
            modelId="m1",
        )

        assert (conversation.title, conversation.model) == ("new", "m2")
        assert len(conversation.messages) == 1

    def test_the_time_of_the_entry_comes_before_the_one_of_the_message(self) -> None:
        entry = {**said("user", "x", timestamp=1_778_547_747_671)}
        timed = {**entry, "timestamp": "2026-01-01T00:00:00+02:00"}

        times = [m.created_at for m in one(entry, timed).messages]

        assert times == [
            datetime(2026, 5, 12, 1, 2, 27, 671000, tzinfo=UTC),
            datetime(2025, 12, 31, 22, tzinfo=UTC),
        ]

    @pytest.mark.parametrize("time", ["yesterday", 1e300, {}, True])
    def test_an_unreadable_time_is_no_time(self, time: Any) -> None:
        assert only_message({**user("x"), "timestamp": time}).created_at is None

    @pytest.mark.parametrize(
        "damaged",
        [
            {"type": "message"},
            said("alien"),
            said("user", None),
            said("user", 5),
            said("assistant", [{"type": "toolCall", "id": "t1"}]),
        ],
    )
    def test_a_damaged_entry_is_left_out_and_named(self, damaged: dict[str, Any]) -> None:
        parsed = session(user("a"), damaged, user("b"))

        assert outline(parsed.conversations[0]) == [("a", None), ("b", "a")]
        assert [problem.line for problem in parsed.problems] == [3]


def test_blocks_of_unknown_kinds_are_counted_and_told() -> None:
    content = [{"type": "orb"}, {"type": "text", "text": "Hi"}, {"type": "orb"}]
    parsed = session(said("user", content))

    assert parsed.conversations[0].messages[0].wire["content"] == "Hi"
    assert [p.text for p in parsed.problems] == ["Left out: content blocks of the kind 'orb' (2)."]
