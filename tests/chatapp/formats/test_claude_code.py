"""Claude Code sessions: split answers, slices, compactions, and the one way to make a fork."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from chatapp.formats import Conversation, ParsedFile, parse

from .conftest import ParseFile, ParseOne

FOLDER = "claude_code"
DAG = f"{FOLDER}/ccl_dag_compact_after_rewind.jsonl"
PARALLEL = f"{FOLDER}/entire_13db96e5c261_parallel_tools_no_compaction.jsonl"
SLICE = f"{FOLDER}/entire_4b7d5121b42a_compaction.jsonl"
CORRUPT = f"{FOLDER}/entire_5ac45bc32212_corrupt_line.jsonl"
MICRO = f"{FOLDER}/entire_7662d755ef9f_microcompact_and_compact.jsonl"
TWO = f"{FOLDER}/entire_b8659b3a4dd4_two_compactions.jsonl"
ORPHAN = f"{FOLDER}/entire_e12c3e2b3f2a_orphan_result.jsonl"
WEB = f"{FOLDER}/simonw_web_session_loglines.json"


def read(*records: dict[str, Any]) -> ParsedFile:
    return parse("\n".join(json.dumps({"sessionId": "s", **record}) for record in records))


def one(*records: dict[str, Any]) -> Conversation:
    (conversation,) = read(*records).conversations
    return conversation


def user(uuid: str, content: Any, parent: str | None = None, **fields: Any) -> dict[str, Any]:
    message = {"role": "user", "content": content}
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "message": message, **fields}


def answer(
    uuid: str, block: dict[str, Any], parent: str | None = None, api_id: str = "m", **fields: Any
) -> dict[str, Any]:
    message = {"id": api_id, "role": "assistant", "content": [block], **fields}
    return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "message": message}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def call(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "Read", "input": {"path": "文件"}}


def result(call_id: str, content: Any = "done", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def boundary(uuid: str, after: str, **metadata: Any) -> dict[str, Any]:
    return {
        "type": "system",
        "subtype": "compact_boundary",
        "uuid": uuid,
        "parentUuid": None,
        "logicalParentUuid": after,
        "compactMetadata": {"trigger": "auto", "preTokens": 155_000, **metadata},
    }


def summary(uuid: str, content: Any = "sum") -> dict[str, Any]:
    return user(uuid, content, isCompactSummary=True, isVisibleInTranscriptOnly=True)


def outline(conversation: Conversation) -> list[tuple[Any, Any]]:
    """What each message says, and what its parent says."""
    texts = {m.key: m.wire["content"] for m in conversation.messages}
    return [(texts[m.key], texts[m.parent] if m.parent else None) for m in conversation.messages]


def roles(conversation: Conversation) -> dict[str, int]:
    names = [m.wire["role"] if m.kind == "message" else m.kind for m in conversation.messages]
    return {name: names.count(name) for name in sorted(set(names))}


class TestRealFiles:
    @pytest.mark.parametrize(
        ("path", "answers", "results", "summaries"),
        [
            (PARALLEL, 74 - 1, 129, 0),  # one answer is the program's own: "No response requested."
            (SLICE, 40, 39, 1),
            (CORRUPT, 59 - 1, 55, 0),  # here too
            (MICRO, 49, 60, 1),
            (TWO, 169, 171, 2),
            (ORPHAN, 47, 47, 1),
            (DAG, 5, 0, 1),
            (WEB, 15, 12, 1),
        ],
    )
    def test_answers_results_and_summaries_are_counted_once(
        self, only: ParseOne, path: str, answers: int, results: int, summaries: int
    ) -> None:
        found = roles(only(path))

        assert found["assistant"] == answers
        assert found.get("tool", 0) == results
        assert found.get("placeholder", 0) == summaries

    @pytest.mark.parametrize(
        ("path", "calls"), [(PARALLEL, 129), (SLICE, 39), (CORRUPT, 55), (TWO, 171), (ORPHAN, 46)]
    )
    def test_every_call_is_kept(self, only: ParseOne, path: str, calls: int) -> None:
        wires = [m.wire for m in only(path).messages]

        assert sum(len(w.get("tool_calls", ())) for w in wires) == calls

    @pytest.mark.parametrize("path", [PARALLEL, SLICE, CORRUPT, MICRO, TWO, ORPHAN, WEB])
    def test_no_real_session_has_a_fork(self, only: ParseOne, path: str) -> None:
        messages = only(path).messages

        assert [m.parent for m in messages] == [None, *(m.key for m in messages[:-1])]

    def test_the_one_true_rewind_is_a_fork(self, only: ParseOne) -> None:
        assert outline(only(DAG))[:6] == [
            ("Start", None),
            ("Ready", "Start"),
            ("First attempt", "Ready"),
            ("First answer", "First attempt"),
            ("Second attempt", "Ready"),
            ("Second answer", "Second attempt"),
        ]
        assert only(DAG).leaf == "p1a"

    def test_the_compaction_after_the_rewind_stands_on_the_surviving_branch(
        self, only: ParseOne
    ) -> None:
        placeholder = only(DAG).messages[8]

        assert placeholder.kind == "placeholder"
        assert placeholder.parent == "b2a2"
        assert placeholder.metadata["tokens_before"] == 150_000
        assert only(DAG).messages[9].parent == placeholder.key

    def test_glued_objects_of_the_corrupt_line_lose_nothing(self, parsed: ParseFile) -> None:
        parsed_file = parsed(CORRUPT)

        assert not any("JSON" in problem.text for problem in parsed_file.problems)
        assert roles(parsed_file.conversations[0])["tool"] == 55

    def test_the_title_of_a_summary_record_is_taken(self, only: ParseOne) -> None:
        assert only(CORRUPT).title == "Review telemetry defaults and CLI flag strategy"

    def test_a_result_without_its_call_is_kept_as_the_first_message(self, only: ParseOne) -> None:
        first = only(ORPHAN).messages[0]

        assert first.wire["role"] == "tool"
        assert first.parent is None
        assert first.wire["content"]

    def test_slices_of_one_session_have_identities_of_their_own(self, only: ParseOne) -> None:
        identities = [only(path).identity for path in (ORPHAN, TWO, SLICE)]

        prefix = "claude_code:0cf3db51-1c73-43bb-8d05-dc02739514a5:"
        assert all(identity.startswith(prefix) for identity in identities)
        assert len(set(identities)) == 3

    def test_a_microcompaction_is_noted_and_blanks_nothing(self, only: ParseOne) -> None:
        conversation = only(MICRO)
        (noted,) = conversation.metadata["microcompactions"]

        assert (noted["tokens_before"], noted["tokens_saved"]) == (60_888, 21_091)
        cleared = set(noted["tool_call_ids"])
        contents = {
            m.wire["tool_call_id"]: m.wire["content"]
            for m in conversation.messages
            if m.wire["role"] == "tool"
        }
        assert cleared
        assert all(contents[call_id] for call_id in cleared & contents.keys())

    def test_what_was_left_out_is_counted(self, parsed: ParseFile) -> None:
        problems = [(problem.line, problem.text) for problem in parsed(PARALLEL).problems]

        assert [(line, text[-4:]) for line, text in problems] == [
            (361, "(1)."),
            (362, "(2)."),
            (365, "(1)."),
        ]

    def test_both_compactions_stand_at_their_boundaries(self, only: ParseOne) -> None:
        tokens = [
            m.metadata["tokens_before"] for m in only(TWO).messages if m.kind == "placeholder"
        ]

        assert tokens == [155_277, 155_475]

    def test_the_web_container_has_its_summary_after_its_twenty_eighth_record(
        self, only: ParseOne
    ) -> None:
        messages = only(WEB).messages

        assert len(messages) == 33
        assert messages[28].kind == "placeholder"
        assert messages[29].wire == {"role": "user", "content": "Add a multiply function too"}


class TestAnswers:
    def test_records_of_one_answer_are_merged_around_their_results(self) -> None:
        conversation = one(
            user("u1", "go"),
            answer("a1", {"type": "thinking", "thinking": "Hm."}, "u1"),
            answer("a2", text("I look."), "a1"),
            answer("a3", call("t1"), "a2"),
            user("r1", [result("t1", "one")], "a3"),
            answer("a4", call("t2"), "a3"),
            user("r2", [result("t2", "two")], "a4"),
        )

        assert outline(conversation) == [
            ("go", None),
            ("I look.", "go"),
            ("one", "I look."),
            ("two", "one"),
        ]
        merged = conversation.messages[1]
        assert merged.key == "a1"
        assert merged.reasoning == "Hm."
        assert [c["id"] for c in merged.wire["tool_calls"]] == ["t1", "t2"]
        assert merged.wire["tool_calls"][0]["function"] == {
            "name": "Read",
            "arguments": '{"path":"文件"}',
        }

    def test_up_to_eleven_records_make_one_answer(self) -> None:
        records = [answer(f"a{n}", call(f"t{n}")) for n in range(11)]

        (message,) = one(*records).messages

        assert len(message.wire["tool_calls"]) == 11

    def test_usage_is_taken_once_from_the_last_record(self) -> None:
        usage = {"input_tokens": 3, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 7}
        conversation = one(
            answer("a1", text("x"), usage={**usage, "output_tokens": 1}),
            answer("a2", call("t1"), usage={**usage, "output_tokens": 20}, stop_reason="tool_use"),
        )

        (message,) = conversation.messages
        assert message.usage == {
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 90},
        }
        assert message.finish_reason == "tool_calls"

    def test_an_answer_of_calls_alone_has_null_content(self) -> None:
        assert one(answer("a1", call("t1"))).messages[0].wire["content"] is None

    def test_answers_without_an_id_stay_apart(self) -> None:
        conversation = one(answer("a1", text("x"), api_id=""), answer("a2", text("y"), api_id=""))

        assert [m.wire["content"] for m in conversation.messages] == ["x", "y"]

    def test_a_repeated_record_is_taken_once(self) -> None:
        parsed = read(user("u1", "go"), answer("a1", text("x")), answer("a1", text("x")))

        assert outline(parsed.conversations[0]) == [("go", None), ("x", "go")]
        assert [problem.line for problem in parsed.problems] == [3]


class TestUsers:
    def test_each_result_is_a_tool_message_and_text_beside_it_a_user_message(self) -> None:
        conversation = one(
            answer("a1", call("t1")),
            answer("a2", call("t2")),
            user("r1", [result("t1", "one"), text("And now?"), result("t2", "two", is_error=True)]),
        )

        assert [m.wire for m in conversation.messages[1:]] == [
            {"role": "tool", "tool_call_id": "t1", "name": "Read", "content": "one"},
            {"role": "tool", "tool_call_id": "t2", "name": "Read", "content": "two"},
            {"role": "user", "content": "And now?"},
        ]
        assert conversation.messages[2].metadata == {"is_error": True}

    def test_the_content_of_a_result_may_be_blocks_or_missing(self) -> None:
        missing = {"type": "tool_result", "tool_use_id": "t2"}
        conversation = one(user("r1", [result("t1", [text("a"), text("b")]), missing]))

        assert [m.wire["content"] for m in conversation.messages] == ["a\nb", ""]

    def test_an_image_becomes_a_part(self) -> None:
        source = {"type": "base64", "media_type": "image/png", "data": "QUJD"}
        (message,) = one(user("u1", [text("see"), {"type": "image", "source": source}])).messages

        assert message.wire["content"][1]["image_url"]["url"] == "data:image/png;base64,QUJD"

    @pytest.mark.parametrize(
        "record",
        [
            user("x", "caveat", isMeta=True),
            user("x", "sub-agent", isSidechain=True),
            user("x", "<command-name>/exit</command-name>"),
            user("x", "<local-command-stdout>Bye!</local-command-stdout>"),
            answer("x", text("No response requested."), model="<synthetic>"),
        ],
    )
    def test_what_nobody_said_is_left_out_and_counted(self, record: dict[str, Any]) -> None:
        parsed = read(user("u1", "go"), record, user("u2", "on"))

        assert outline(parsed.conversations[0]) == [("go", None), ("on", "go")]
        assert [(p.line, p.text[-4:]) for p in parsed.problems] == [(2, "(1).")]

    def test_a_notice_of_interruption_is_kept_and_marked(self) -> None:
        (message,) = one(user("u1", [text("[Request interrupted by user]")])).messages

        assert message.metadata == {"type": "interruption"}

    @pytest.mark.parametrize("content", [None, "", [], 5])
    def test_a_record_that_says_nothing_is_left_out_and_named(self, content: Any) -> None:
        parsed = read(user("u1", "go"), user("u2", content))

        assert len(parsed.conversations[0].messages) == 1
        assert [problem.line for problem in parsed.problems] == [2]


class TestForks:
    def test_two_typed_records_under_one_parent_are_a_fork(self) -> None:
        conversation = one(
            answer("a1", text("ready")),
            user("u1", "first", "a1"),
            answer("a2", text("one"), "u1", "m2"),
            user("u2", "second", "a1"),
            answer("a3", text("two"), "u2", "m3"),
        )

        assert outline(conversation) == [
            ("ready", None),
            ("first", "ready"),
            ("one", "first"),
            ("second", "ready"),
            ("two", "second"),
        ]

    def test_going_on_with_the_branch_that_was_left_leads_back_to_it(self) -> None:
        conversation = one(
            answer("a1", text("ready")),
            user("u1", "first", "a1"),
            user("u2", "second", "a1"),
            {"type": "progress", "uuid": "p1", "parentUuid": "u1"},
            user("u3", "back", "p1"),
        )

        assert outline(conversation)[2:] == [("second", "ready"), ("back", "first")]

    def test_answers_to_one_question_stand_side_by_side(self) -> None:
        conversation = one(
            user("u1", "go"),
            answer("a1", text("one"), "u1", "m1"),
            answer("a2", call("t1"), "u1", "m2"),
            user("r1", [result("t1", "found")], "a2"),
            answer("a3", text("two"), "r1", "m3"),
            answer("a4", text("three"), "u1", "m4"),
        )

        assert outline(conversation) == [
            ("go", None),
            ("one", "go"),
            (None, "go"),
            ("found", None),
            ("two", "found"),
            ("three", "go"),
        ]

    def test_pieces_of_one_answer_under_one_parent_are_no_fork(self) -> None:
        conversation = one(
            user("u1", "go"),
            answer("a1", text("one"), "u1", "m1"),
            answer("a2", call("t1"), "u1", "m1"),
            answer("a3", text("two"), "a2", "m2"),
        )

        assert outline(conversation) == [("go", None), ("one", "go"), ("two", "one")]

    def test_results_under_one_parent_are_no_fork(self) -> None:
        conversation = one(
            answer("a1", call("t1")),
            user("r1", [result("t1", "one")], "a1"),
            user("r2", [result("t2", "two")], "a1"),
        )

        assert outline(conversation) == [(None, None), ("one", None), ("two", "one")]

    def test_typed_records_without_parents_are_no_fork(self) -> None:
        assert outline(one(user("u1", "a"), user("u2", "b"))) == [("a", None), ("b", "a")]


class TestCompactions:
    def test_the_summary_stands_at_the_boundary(self) -> None:
        conversation = one(
            user("u1", "a"), boundary("b", "u1"), summary("s1", [text("sum")]), user("u2", "c")
        )

        assert outline(conversation) == [("a", None), ("sum", "a"), ("c", "sum")]
        placeholder = conversation.messages[1]
        assert placeholder.kind == "placeholder"
        assert placeholder.summary == "sum"
        assert placeholder.metadata == {
            "type": "session_summary",
            "tokens_before": 155_000,
            "trigger": "auto",
        }

    def test_it_stands_before_what_newer_versions_say_was_preserved(self) -> None:
        conversation = one(
            user("u1", "a"),
            user("u2", "kept"),
            boundary("b", "u2", preservedSegment={"headUuid": "u2", "tailUuid": "u2"}),
            summary("s1"),
            user("u3", "c"),
        )

        assert outline(conversation) == [
            ("a", None),
            ("sum", "a"),
            ("kept", "sum"),
            ("c", "kept"),
        ]

    def test_an_answer_id_that_returns_after_a_boundary_is_another_message(self) -> None:
        conversation = one(
            answer("a1", text("x")), boundary("b", "a1"), summary("s1"), answer("a2", text("x"))
        )

        assert [m.key for m in conversation.messages] == ["a1", "s1", "a2"]


class TestFiles:
    def test_each_session_is_a_conversation(self) -> None:
        parsed = read(
            user("u1", "a", sessionId="one"),
            user("u2", "b", sessionId="two"),
            user("u3", "c", sessionId="one"),
        )

        assert [c.identity for c in parsed.conversations] == [
            "claude_code:one:u1",
            "claude_code:two:u2",
        ]
        assert [len(c.messages) for c in parsed.conversations] == [2, 1]

    def test_a_title_goes_to_the_session_it_points_into(self) -> None:
        title = {"type": "summary", "summary": "Second", "leafUuid": "u2", "sessionId": None}
        parsed = read(title, user("u1", "a", sessionId="one"), user("u2", "b", sessionId="two"))

        assert [c.title for c in parsed.conversations] == ["", "Second"]

    def test_a_name_the_user_gave_comes_before_a_summary(self) -> None:
        titles = (
            {"type": "custom-title", "customTitle": "Mine"},
            {"type": "summary", "summary": "Theirs", "leafUuid": "u1"},
        )

        assert one(*titles, user("u1", "a")).title == "Mine"

    def test_a_broken_line_is_named_and_the_rest_imported(self) -> None:
        lines = [json.dumps(user("u1", "a")), '{"type": "user", "mess', json.dumps(user("u2", "b"))]

        parsed = parse("\n".join(lines))

        assert [problem.line for problem in parsed.problems] == [2]
        assert outline(parsed.conversations[0]) == [("a", None), ("b", "a")]

    def test_a_record_that_is_no_object_is_named_and_the_rest_imported(self) -> None:
        parsed = parse(json.dumps({"loglines": [user("u1", "a"), 5, user("u2", "b")]}))

        assert [problem.line for problem in parsed.problems] == [2]
        assert outline(parsed.conversations[0]) == [("a", None), ("b", "a")]

    def test_a_file_of_many_sessions_is_read_in_linear_time(self) -> None:
        records = [user(f"u{n}", "a", sessionId=f"s{n}") for n in range(20_000)]
        titles = [{"type": "summary", "summary": "x", "leafUuid": f"u{n}"} for n in range(20_000)]

        assert len(read(*records, *titles).conversations) == 20_000

    def test_time_model_and_place_are_kept(self) -> None:
        conversation = one(
            user("u1", "a", timestamp="2026-01-02T03:04:05.678Z", cwd="/tmp", gitBranch="main"),
            answer("a1", text("x"), model="claude"),
        )

        assert conversation.created_at == datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
        assert conversation.model == "claude"
        assert conversation.metadata == {"cwd": "/tmp", "git_branch": "main"}

    def test_characters_that_a_database_refuses_pass_untouched(self) -> None:
        assert one(user("u1", "nul \x00 half \ud83d")).messages[0].wire["content"] == (
            "nul \x00 half \ud83d"
        )


def test_blocks_of_unknown_kinds_are_counted_and_told() -> None:
    found = result("c1", [{"type": "orb"}, text("done")])
    parsed = read(
        user("u1", "Hi"),
        answer("u2", call("c1"), "u1"),
        answer("u3", {"type": "orb"}, "u2"),
        user("u4", [found], "u3"),
    )

    assert [p.text for p in parsed.problems] == ["Left out: content blocks of the kind 'orb' (2)."]


def test_a_document_becomes_a_file() -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": "QQ=="}
    conversation = one(user("u1", [text("Read."), {"type": "document", "source": source}]))

    assert conversation.messages[0].wire["content"][1]["type"] == "file"
