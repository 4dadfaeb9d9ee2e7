"""Who answers whom, and requests that a strict server takes."""

from __future__ import annotations

from copy import deepcopy

from hypothesis import given, settings
from hypothesis import strategies as st

from chatapp.messages.pairing import MISSING_RESULT, answers, strict_with_sources
from tests.factories import call, result
from tests.facts import code
from tests.fakes.strict_checker import faults
from tests.growth import takes_longer


def strict(messages: list[dict]) -> list[dict]:
    """Return the messages as they are sent, without where they came from."""
    return [message for message, _ in strict_with_sources(messages)]


def calls(*ids: str) -> dict:
    """Return one assistant message with several calls."""
    made = call("f", "x")
    made["tool_calls"] = [{**made["tool_calls"][0], "id": call_id} for call_id in ids]
    return made


USER = {"role": "user", "content": "question"}
ANSWER = {"role": "assistant", "content": "answer"}

IDS = st.sampled_from(["", "a", "b", "a-2", "call_0_0"])
CONTENT = st.sampled_from([None, "", "text", [], [{"type": "text", "text": "t"}]])
PLAIN = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "developer", "user", "assistant"]),
        "content": CONTENT,
    },
    optional={"refusal": st.sampled_from(["", "no"])},
)
CALLING = st.builds(
    lambda ids, content: {**calls(*ids), "content": content},
    st.lists(IDS, min_size=1, max_size=3),
    CONTENT,
)
RESULT = st.builds(lambda call_id, content: result(call_id, content), IDS, CONTENT)
MESSAGES = st.lists(st.one_of(PLAIN, CALLING, RESULT), max_size=25)


@given(MESSAGES)
@settings(max_examples=400)
def test_any_messages_become_a_request_that_a_strict_server_takes(messages):
    before = deepcopy(messages)
    assert faults(strict(messages), need_user=False) == []
    assert messages == before


@given(MESSAGES)
@settings(max_examples=200)
def test_a_request_that_is_strict_already_is_left_as_it_is(messages):
    once = strict(messages)
    assert strict(once) == once


@given(st.lists(st.one_of(CALLING, st.builds(result, IDS, st.uuids().map(str))), max_size=25))
@settings(max_examples=200)
def test_no_result_is_lost_and_none_is_sent_twice(messages):
    sent = "\n".join(str(message.get("content")) for message in strict(messages))
    for message in messages:
        if message["role"] == "tool":
            assert sent.count(message["content"]) == 1


@given(MESSAGES)
def test_a_result_answers_a_call_before_it_and_no_call_is_answered_twice(messages):
    found = answers(messages)
    assert len(set(found.values())) == len(found)
    assert all(place[0] < index for index, place in found.items())


def test_a_result_belongs_to_the_nearest_earlier_call_that_is_open():
    messages = [calls("a"), result("a", "1"), calls("a"), calls("a"), result("a", "2")]
    assert answers(messages) == {1: (0, 0), 4: (3, 0)}


def test_a_result_goes_to_an_older_call_when_the_nearest_is_answered():
    messages = [calls("a"), calls("a"), result("a", "1"), result("a", "2")]
    assert answers(messages) == {2: (1, 0), 3: (0, 0)}


def test_results_of_one_id_in_one_message_answer_its_calls_in_order():
    messages = [calls("a", "a"), result("a", "1"), result("a", "2")]
    assert answers(messages) == {1: (0, 0), 2: (0, 1)}


def test_a_result_before_its_call_is_an_orphan():
    assert answers([result("a"), calls("a")]) == {}


def test_calls_that_only_an_assistant_can_make_are_not_answered():
    assert answers([{**calls("a"), "role": "user"}, result("a")]) == {}


def test_results_are_sent_in_the_order_of_their_calls():
    sent = strict([USER, calls("a", "b"), result("b", "second"), result("a", "first")])
    assert [m["content"] for m in sent[2:]] == ["first", "second"]


def test_a_late_result_moves_behind_its_call():
    sent = strict([USER, calls("a"), USER, result("a", "late"), ANSWER])
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "user", "assistant"]
    assert sent[2]["content"] == "late"


def test_a_missing_result_is_stated():
    assert strict([USER, calls("a"), USER])[2] == {
        "role": "tool",
        "tool_call_id": "a",
        "content": MISSING_RESULT,
    }


def test_an_empty_result_is_no_missing_one():
    assert strict([USER, calls("a"), result("a", "")])[2]["content"] == ""


def test_an_orphan_becomes_a_users_text_with_its_facts_and_its_tools_name():
    (sent,) = strict([{**result("gone", code(711)), "name": "search"}])
    assert sent["role"] == "user"
    assert code(711) in sent["content"]
    assert "search" in sent["content"]


def test_an_orphan_with_parts_keeps_its_parts():
    parts = [{"type": "text", "text": code(711)}]
    (sent,) = strict([result("gone", parts)])
    assert sent["content"][1:] == parts


def test_repeated_ids_are_told_apart_with_their_results():
    sent = strict([USER, calls("a"), result("a", "1"), USER, calls("a"), result("a", "2")])
    assert [m["tool_call_id"] for m in sent if m["role"] == "tool"] == ["a", "a-2"]
    assert [m["content"] for m in sent if m["role"] == "tool"] == ["1", "2"]


def test_a_made_up_id_never_meets_one_that_is_in_use():
    sent = strict([USER, calls("a", "a-2", "a"), result("a"), result("a-2"), result("a")])
    ids = [c["id"] for c in sent[1]["tool_calls"]]
    assert len(set(ids)) == 3


def test_a_late_system_message_becomes_a_users_note_with_its_text():
    sent = strict(
        [{"role": "system", "content": "front"}, USER, {"role": "system", "content": "S"}]
    )
    assert [m["role"] for m in sent] == ["system", "user", "user"]
    assert sent[2]["content"].endswith("S")


def test_a_developer_message_is_sent_as_a_system_message():
    sent = strict([{"role": "developer", "content": "D"}, {"role": "system", "content": "S"}, USER])
    assert [m["role"] for m in sent] == ["system", "system", "user"]


def test_a_refusal_without_content_is_sent_as_what_the_assistant_said():
    sent = strict([USER, {"role": "assistant", "content": None, "refusal": "I cannot."}])
    assert sent[1]["content"] == "I cannot."


def test_an_image_alone_is_no_empty_message():
    image = [{"type": "image_url", "image_url": {"url": "data:,"}}]
    assert strict([{"role": "user", "content": image}])[0]["content"] == image


def test_ten_thousand_open_calls_are_paired_in_linear_time():
    messages = [calls(f"c{n}") for n in range(10_000)]
    messages += [result(f"c{n}") for n in range(10_000)] + [result("none")] * 10_000
    assert len(answers(messages)) == 10_000
    assert not takes_longer(lambda: answers(messages), 1)
