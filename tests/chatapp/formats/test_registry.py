"""The format is found from the content, and what is not readable is refused with a sentence."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatapp.formats import ParsedFile, UnknownFormatError, parse
from chatapp.formats.registry import decoded

from .conftest import ParseFile, ReadFile

CHAT = {"messages": [{"role": "user", "content": "hello"}]}
PI_HEADER = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01T00:00:00Z"}
CLAUDE = {"type": "user", "uuid": "u", "sessionId": "s", "message": {"content": "hello"}}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (CHAT, "openai_chat"),
        ([CHAT], "openai_chat"),
        (CHAT["messages"], "openai_chat"),
        ({"type": "message", "message": CHAT["messages"][0]}, "pi"),
        (CLAUDE, "claude_code"),
        ({"loglines": [CLAUDE]}, "claude_code"),
    ],
)
def test_the_content_decides_and_not_the_name(content: object, expected: str) -> None:
    assert parse(json.dumps(content), name="misleading.txt").format == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("openai_chat/tau_airline_gpt4o_tasks00-34_trials01.json", "openai_chat"),
        ("openai_chat/openhands_sdk_llm_log_no_native_tools.json", "openai_chat"),
        ("pi/before-compaction.jsonl", "pi"),
        ("pi/agent-sessions_pi_v3_small.jsonl", "pi"),
        ("claude_code/ccl_dag_compact_after_rewind.jsonl", "claude_code"),
        ("claude_code/simonw_web_session_loglines.json", "claude_code"),
        ("claude_code/entire_e12c3e2b3f2a_orphan_result.jsonl", "claude_code"),
        ("chatgpt_export/chatgpt_citations.json", "chatgpt"),
        ("librechat/librechat_linear.json", "librechat"),
        ("librechat/chatbotui_v4_export.json", "chatbot_ui"),
        ("openwebui/openwebui_single_chat.json", "open_webui"),
        ("oasst/en_trees_dev.jsonl", "oasst"),
        ("swe_agent/sweagent_marshmallow_1867_function_calling.traj.json", "swe_agent"),
        ("swe_agent/swesmith_pydantic_8316.traj.json", "swe_agent"),
        ("swe_agent/mini_local.traj.json", "openai_chat"),
    ],
)
def test_real_files_are_recognised(parsed: ParseFile, path: str, expected: str) -> None:
    assert parsed(path).format == expected


@pytest.mark.parametrize(
    "path",
    [
        "claude_ai_export/claude_ai_export_mostly_blank.json",
        "codex/hyperweave_patches_two_compactions.jsonl",
        "gemini_cli/entire_ab2b9748b105_session.json",
        "crosswoz/test_long20.json",
    ],
)
def test_files_of_other_programs_are_refused(real_file: ReadFile, path: str) -> None:
    with pytest.raises(UnknownFormatError):
        parse(real_file(path))


def test_a_refusal_says_what_was_seen_and_what_can_be_read() -> None:
    with pytest.raises(UnknownFormatError) as refused:
        parse('{"mappings": {}, "title": "x"}', name="export.json")

    sentence = str(refused.value)
    assert "“export.json”" in sentence
    assert "the keys mappings, title" in sentence
    assert "pi sessions" in sentence
    assert "Claude Code" in sentence
    assert "OpenAI chat" in sentence
    assert "Anthropic" in sentence


@pytest.mark.parametrize(
    ("content", "looks_like"),
    [
        ([{"role": "user"}, {"role": "assistant"}], "OpenAI chat"),
        ({"messages": []}, "OpenAI chat"),
        ({"messages": [{"role": "user", "text": "hello"}]}, "OpenAI chat"),
        (PI_HEADER, "pi"),
        ({"system": "Be brief.", "messages": [{"role": "user"}]}, "Anthropic"),
        ([{"role": "system", "content": "Be brief."}], "OpenAI chat"),
        ({"messages": [{"role": "system", "content": "Be brief."}]}, "OpenAI chat"),
        ({"system": "Be brief.", "messages": [], "model": "claude"}, "Anthropic"),
        ({"messages": [{"role": "system", "parts": [{"type": "text", "text": "a"}]}]}, "widgets"),
    ],
)
def test_a_file_in_which_nothing_is_readable_is_refused(content: object, looks_like: str) -> None:
    with pytest.raises(UnknownFormatError, match=f"looks like .*{looks_like}") as refused:
        parse(json.dumps(content))

    assert "These formats can be read" in str(refused.value)


def test_a_refusal_says_why_the_first_message_was_left_out_and_how_many_more() -> None:
    with pytest.raises(UnknownFormatError, match=r"it has no content.*So were 2 more"):
        parse(json.dumps([{"role": "user"}] * 3))


@pytest.mark.parametrize("content", [b"", "  \n ", b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused_as_empty(content: bytes | str) -> None:
    with pytest.raises(UnknownFormatError, match="The file is empty"):
        parse(content)


@pytest.mark.parametrize(
    "content",
    ["not json", "[]", "{}", "null", "5", '"text"', "[" * 100_000, '{"n": ' + "9" * 9_999 + "}"],
)
def test_what_holds_no_conversation_is_refused(content: str) -> None:
    with pytest.raises(UnknownFormatError):
        parse(content)


def test_a_byte_order_mark_is_tolerated() -> None:
    assert parse(b"\xef\xbb\xbf" + json.dumps(CHAT).encode()).problems == ()
    assert parse("\ufeff" + json.dumps(CHAT)).problems == ()


def test_undecodable_bytes_are_replaced_and_named_with_their_line() -> None:
    content = b'{"role": "user", "content": "a"}\n{"role": "user", "content": "caf\xe9"}\n'

    parsed = parse(content)

    assert [m.wire["content"] for m in parsed.conversations[0].messages] == ["a", "caf\ufffd"]
    assert [problem.line for problem in parsed.problems] == [2]
    assert "UTF-8" in parsed.problems[0].text


def test_text_that_is_sound_needs_no_problem() -> None:
    file, problems = decoded("über".encode())
    assert (file.read().decode(), problems) == ("über", ())


def test_equal_conversations_of_one_file_keep_identities_of_their_own() -> None:
    first, second = parse(json.dumps([CHAT, CHAT])).conversations

    assert first.identity != second.identity
    assert parse(json.dumps([CHAT])).conversations[0].identity == first.identity


def test_problems_come_in_the_order_of_the_file() -> None:
    lines = ["{broken", json.dumps({"role": "alien"}), "{broken", json.dumps(CHAT["messages"][0])]

    assert [problem.line for problem in parse("\n".join(lines)).problems] == [1, 2, 3]


VOCABULARY = """
    role content type message messages text user assistant tool system session compaction id
    parentId uuid parentUuid sessionId tool_calls function name arguments tool_use tool_result
    toolCall isSidechain isCompactSummary compact_boundary subtype summary firstKeptEntryId
    firstKeptEntryIndex usage response choices timestamp loglines traj task_id trial title metadata
    toolResult bashExecution custom_message branch_summary compactMetadata preservedSegment
    headUuid image source data a b thinking signature parts contents candidates request body input
    functionCall functionResponse args response reasoning toolCallId toolName output document url
    tool-look params message_start content_block_delta delta index events log entries
    mapping current_node conversation_id default_model_slug parent children author recipient weight
    parts content_type conversationId exportAt messageId parentMessageId isCreatedByUser think
    history version folders prompts currentId chat childrenIds parentId message_tree_id prompt
    message_id prompter replies nested_under all python error files
"""
WORDS = st.sampled_from(VOCABULARY.split())
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(WORDS, inner, max_size=6),
    max_leaves=40,
)


def is_sound(parsed: ParsedFile) -> bool:
    """Whether keys are unique and every parent comes before its children."""
    for conversation in parsed.conversations:
        seen: set[str | None] = {None}
        for message in conversation.messages:
            if message.key in seen or message.parent not in seen:
                return False
            seen.add(message.key)
        if conversation.leaf not in seen:
            return False
    return True


@given(st.lists(JSON_VALUES, min_size=1, max_size=8))
def test_no_content_whatsoever_crashes_a_reader(values: list[object]) -> None:
    for content in (json.dumps(values), "\n".join(map(json.dumps, values))):
        try:
            assert is_sound(parse(content))
        except UnknownFormatError as refused:
            assert str(refused)


ENTRIES = st.fixed_dictionaries(
    {"type": st.sampled_from(["user", "assistant", "message", "session", "compaction", "system"])},
    optional={
        "id": st.sampled_from("abc"),
        "uuid": st.sampled_from("abc"),
        "parentId": st.sampled_from(["a", "b", "c", None, 1]),
        "parentUuid": st.sampled_from(["a", "b", "c", None, 1]),
        "summary": WORDS,
        "firstKeptEntryId": st.sampled_from("abc"),
        "isCompactSummary": st.booleans(),
        "subtype": st.just("compact_boundary"),
        "message": st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "toolResult", "custom"])},
            optional={"content": WORDS | JSON_VALUES, "id": st.sampled_from("xy")},
        ),
    },
)


@given(st.lists(ENTRIES, min_size=1, max_size=12))
def test_no_tangle_of_ids_breaks_the_tree(entries: list[dict[str, object]]) -> None:
    try:
        assert is_sound(parse("\n".join(map(json.dumps, entries))))
    except UnknownFormatError as refused:
        assert str(refused)
