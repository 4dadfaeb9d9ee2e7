"""What a server alone takes back: kept, bounded, and sent to nobody else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chatapp.messages.vendor import (
    for_server,
    for_server_all,
    is_signed,
    kept_fields,
    merged,
    prefix_digest,
    server_of,
)
from chatapp.messages.wire import REASONING_ITEMS, fields_of

HERE, THERE = server_of("m", "http://here"), server_of("m", "http://there")
TOOLS = [{"type": "function", "function": {"name": "f"}}]
SIGNATURE = {"google": {"thought_signature": "U0lH"}}


def call(**own: Any) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}} | own


def question(text: str = "q") -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(vendor: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """An answer of this server that was made behind one question and TOOLS."""
    own = {"server": HERE, "prefix": prefix_digest([question()], TOOLS, HERE)} | (vendor or {})
    return {"role": "assistant", "content": "a", "vendor": own} | more


def sent(*messages: dict[str, Any], server: str = HERE, tools: list[Any] = TOOLS) -> list[Any]:
    return for_server_all(messages, tools, server)


RESULT = {"role": "tool", "tool_call_id": "c", "content": "r"}


@pytest.mark.parametrize(
    "fields",
    [
        {"annotations": [{"url": "u"}]},
        {"extra_content": {"a": 1}},
        {"provider_id": "p"},
        {"citations": ["u"]},
        {"audio": {"id": "x"}},
    ],
)
def test_own_fields_go_back_to_the_same_server_and_model_only(fields):
    row = answer({"fields": fields})
    (_, here, _) = sent(question(), row, question())
    assert here == {"role": "assistant", "content": "a"} | fields
    for server in (THERE, server_of("other", "http://here"), ""):
        assert sent(question(), row, question(), server=server)[1] == {
            "role": "assistant",
            "content": "a",
        }


def test_own_fields_of_a_call_go_back_to_the_same_server_only():
    row = answer(tool_calls=[call(extra_content=SIGNATURE, note="n")])
    assert sent(question(), row, RESULT)[1]["tool_calls"] == [
        call(extra_content=SIGNATURE, note="n")
    ]
    assert sent(question(), row, RESULT, server=THERE)[1]["tool_calls"] == [call()]


def test_what_a_client_brought_stays_as_it_is():
    row = {"role": "assistant", "content": None, "tool_calls": [call(extra_content=SIGNATURE)]}
    assert sent(question(), row, RESULT, server=THERE)[1] == row


SIGNED_FIELDS = [
    {"reasoning_details": [{"type": "reasoning.text", "text": "t", "signature": "s"}]},
    {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]},
    {"thinking_blocks": [{"type": "thinking", "thinking": "t", "signature": "s"}]},
    {"thinking_blocks": [{"type": "redacted_thinking", "data": "x"}]},
    {"thought_signature": "s"},
    {"extra_content": SIGNATURE},
]
CHANGES: dict[str, Any] = {
    "another question": ([question("other")], TOOLS),
    "a prompt before it": ([{"role": "system", "content": "p"}, question()], TOOLS),
    "a summary before it": ([{"role": "system", "content": "summary"}], TOOLS),
    "other tools": ([question()], []),
    "one message more": ([question(), {"role": "assistant", "content": "b"}], TOOLS),
}


@pytest.mark.parametrize("fields", SIGNED_FIELDS)
def test_signed_fields_go_out_behind_what_they_were_made_behind(fields):
    row = answer({"fields": fields}, tool_calls=[call()])
    assert sent(question(), row, RESULT)[1].items() >= fields.items()


@pytest.mark.parametrize("fields", SIGNED_FIELDS)
@pytest.mark.parametrize(("before", "tools"), CHANGES.values(), ids=CHANGES)
def test_signed_fields_stay_behind_anything_else(fields, before, tools):
    row = answer({"fields": fields}, tool_calls=[call(extra_content=SIGNATURE)])
    found = sent(*before, row, RESULT, tools=tools)[len(before)]
    assert not found.keys() & fields.keys()
    assert found["tool_calls"] == [call()]


@pytest.mark.parametrize("codes", [{"strict_ids"}, {"flat", "user_last"}, {"alternating_roles"}])
def test_another_form_of_the_messages_is_another_prefix(codes):
    row = answer(tool_calls=[call(extra_content=SIGNATURE)])
    found = for_server_all([question(), row, RESULT], TOOLS, HERE, codes)
    assert found[1]["tool_calls"] == [call()]
    parameters = for_server_all([question(), row, RESULT], TOOLS, HERE, {"drop:temperature"})
    assert parameters[1]["tool_calls"] == [call(extra_content=SIGNATURE)]


def test_a_server_that_refuses_thoughts_gets_no_own_fields():
    row = answer({"fields": {"a": 1}, "thoughts_in": "reasoning", "thoughts": "hm"})
    found = for_server_all([question(), row], TOOLS, HERE, {"without_thoughts"})
    assert found[1] == {"role": "assistant", "content": "a"}


def test_what_is_signed_behind_thoughts_stays_when_they_do():
    """The thoughts of a loop go when it ends, so that the prefix of what follows is another."""
    first = answer({"thoughts_in": "reasoning", "thoughts": "hm"}, tool_calls=[call()])
    prefix = prefix_digest([question(), first, RESULT], TOOLS, HERE)
    second = answer({"prefix": prefix}, tool_calls=[call(extra_content=SIGNATURE)])
    inside = sent(question(), first, RESULT, second, RESULT)
    assert inside[3]["tool_calls"] == [call(extra_content=SIGNATURE)]
    behind = sent(question(), first, RESULT, second, RESULT, question("next"))
    assert behind[3]["tool_calls"] == [call()]


def test_a_chain_of_signed_calls_stays_whole_inside_and_behind_its_loop():
    first = answer(tool_calls=[call(extra_content=SIGNATURE)])
    prefix = prefix_digest([question(), first, RESULT], TOOLS, HERE)
    second = answer({"prefix": prefix}, tool_calls=[call(extra_content=SIGNATURE)])
    for more in ([], [answer(content="done"), question("next")]):
        found = sent(question(), first, RESULT, second, RESULT, *more)
        assert found[1]["tool_calls"] == found[3]["tool_calls"] == [call(extra_content=SIGNATURE)]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_thoughts_go_back_inside_a_running_tool_loop_only(name):
    row = answer({"thoughts_in": name, "thoughts": "hm"}, tool_calls=[call()])
    assert sent(question(), row, RESULT)[1][name] == "hm"
    assert name not in sent(question(), row, RESULT, server=THERE)[1]
    done = {"role": "assistant", "content": "done"}
    assert name not in sent(question(), row, RESULT, done, question("next"))[1]
    without_call = answer({"thoughts_in": name, "thoughts": "hm"})
    assert name not in sent(question(), without_call)[1]


def test_encrypted_reasoning_items_follow_the_same_rule():
    row = answer(**{REASONING_ITEMS: [{"encrypted_content": "x"}]})
    assert REASONING_ITEMS in sent(question(), row)[1]
    assert REASONING_ITEMS not in sent(question("other"), row)[1]
    assert REASONING_ITEMS not in sent(question(), row, server=THERE)[1]


def test_own_fields_take_no_place_of_ours():
    row = answer({"fields": {"role": "system", "content": "x", "tool_calls": [], "a": 1}})
    assert for_server(row, HERE) == {"role": "assistant", "content": "a", "a": 1}


@pytest.mark.parametrize("vendor", [None, "acme", 7, {}, {"server": 5}, {"fields": {"a": 1}}])
def test_what_is_no_vendor_is_left_out(vendor):
    row: Any = {"role": "assistant", "content": "a", "vendor": vendor}
    assert for_server(row, HERE) == {"role": "assistant", "content": "a"}


def test_what_is_too_large_is_left_out_and_named():
    kept = kept_fields(
        {"small": 1, "huge": "x" * 70_000},
        {"logprobs": ["y" * 40_000], "citations": ["z" * 40_000]},
        server=HERE,
        prefix="p",
    )
    assert kept.vendor["fields"] == {"small": 1}
    assert set(kept.left_out) == {"huge", "logprobs"} or set(kept.left_out) == {"huge", "citations"}
    assert len(json.dumps(kept.vendor)) < 66_000


def test_what_is_nested_too_deep_is_left_out():
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    assert kept_fields({"deep": deep}, {}, server=HERE, prefix="").left_out == ("deep",)
    assert is_signed(deep)  # too deep to be looked through


@pytest.mark.parametrize(
    ("known", "piece", "name", "result"),
    [
        (None, {"a": 1}, "x", {"a": 1}),
        ({"a": 1}, {"b": 2}, "x", {"a": 1, "b": 2}),
        ({"a": {"b": 1}}, {"a": {"b": None, "c": 2}}, "x", {"a": {"b": 1, "c": 2}}),
        ("ab", "cd", "text", "abcd"),
        ("ab", "cd", "id", "cd"),
        ("ab", "", "id", "ab"),
        ([1], [2], "x", [1, 2]),
        (
            [{"index": 0, "text": "a"}],
            [{"index": 0, "text": "b"}],
            "x",
            [{"index": 0, "text": "ab"}],
        ),
        (
            [{"index": 0, "text": "a"}],
            [{"index": 1, "text": "b"}],
            "x",
            [{"index": 0, "text": "a"}, {"index": 1, "text": "b"}],
        ),
        ([{"url": "a"}], [{"url": "b"}], "x", [{"url": "a"}, {"url": "b"}]),
        ({"a": 1}, "text", "x", "text"),
    ],
)
def test_pieces_are_merged(known, piece, name, result):
    assert merged(known, piece, name) == result


def test_a_vendor_gets_a_column_and_the_rest_stays_extra():
    wire = answer({"fields": {"a": 1}, "thoughts_in": "reasoning", "thoughts": "hm"}, other=1)
    columns = fields_of(wire)
    assert columns["vendor"]["fields"] == {"a": 1}
    assert "thoughts" not in columns["vendor"]
    assert columns["metadata"] == {"extra": {"other": 1}}
    assert fields_of({"role": "user", "content": "a", "vendor": "acme"})["metadata"] == {
        "extra": {"vendor": "acme"}
    }
