"""SWE-agent's trajectories: its history becomes messages, calls keep their results."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chatapp.formats import Conversation, ParsedFile, UnknownFormatError, parse
from chatapp.messages.pairing import answers

from .conftest import ParseOne

TASK = "Repair the date parser."


def call(call_id: str = "c1", name: str = "bash", **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"index": 1, "id": call_id, "type": "function", "function": function}


def answered(text: str, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    beside = {"thought": text, "action": "ls", "agent": "main", "message_type": "action"}
    return {"role": "assistant", "content": text, "tool_calls": list(calls), **beside, **more}


def observed(text: Any, call_id: str = "c1", **more: Any) -> dict[str, Any]:
    beside = {"agent": "main", "message_type": "observation", "tool_call_ids": [call_id]}
    return {"role": "tool", "content": text, **beside, **more}


RUN: dict[str, Any] = {
    "trajectory": [{"action": "ls", "observation": "a.py\r\n", "response": "I look."}],
    "history": [
        {"role": "system", "content": "Be careful.", "message_type": "system_prompt"},
        {"role": "user", "content": TASK, "message_type": "observation"},
        answered("I look.", call(command="ls")),
        observed([{"type": "text", "text": "a.py\r\n"}, {"type": "text", "text": "b.py"}]),
        answered("Nothing more."),
    ],
    "info": {"exit_status": "submitted", "model_stats": {"api_calls": 2}, "submission": "diff"},
    "replay_config": json.dumps({"agent": {"model": {"name": "some-model"}}}),
    "environment": "dates__1",
}


def parsed_run(**changes: Any) -> ParsedFile:
    return parse(json.dumps(RUN | changes), name="run.traj")


def run(**changes: Any) -> Conversation:
    (found,) = parsed_run(**changes).conversations
    return found


def history(*more: Any) -> list[Any]:
    return [*RUN["history"], *more]


def test_a_run_becomes_a_conversation():
    found = run()

    assert (found.format, found.title, found.model) == ("swe_agent", "dates__1", "some-model")
    assert found.system_prompt == "Be careful."
    assert [one.wire["role"] for one in found.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert found.metadata == {"exit_status": "submitted", "model_stats": {"api_calls": 2}}
    assert parsed_run().problems == ()


def test_a_result_belongs_to_its_call_and_reads_as_it_was_printed():
    wires = [one.wire for one in run().messages]

    assert answers(wires) == {2: (1, 0)}
    assert wires[2]["content"] == "a.py\r\nb.py"


@pytest.mark.parametrize("settings", [{"agent": {"model": {"name": "m"}}}, "{", "[1]", None, 7])
def test_the_model_is_read_from_settings_of_any_kind(settings: Any):
    assert run(replay_config=settings).model == ("m" if isinstance(settings, dict) else "")


def test_a_run_without_a_name_of_its_own_has_no_title():
    assert run(environment="main").title == ""


def test_thoughts_stand_beside_the_answer():
    blocks = [{"type": "thinking", "thinking": "Hm."}, {"type": "redacted_thinking", "data": "x"}]
    found = run(history=history(answered("Well.", thinking_blocks=blocks)))

    assert (found.messages[-1].reasoning, found.messages[-1].wire["content"]) == ("Hm.", "Well.")


def test_a_demonstration_is_sent_and_asks_nothing():
    demo = {"role": "user", "content": "Look how it is done.", "is_demo": True}
    found = run(history=[RUN["history"][0], demo, *RUN["history"][1:]])

    assert [one.kind for one in found.messages[:2]] == ["note", "message"]


def test_a_run_from_before_tool_calls_is_read_as_users_and_answers():
    older = [
        {"role": "user", "content": TASK},
        {"role": "assistant", "content": "```\nls\n```", "action": "ls", "thought": ""},
        {"role": "user", "content": "a.py\r\n", "message_type": "observation"},
    ]
    assert [one.wire["role"] for one in run(history=older).messages] == [
        "user", "assistant", "user",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("damaged", "sentence"),
    [
        (7, "Message 6 was left out: it is not an object but 7."),
        ({"role": "robot", "content": "x"}, "Message 6 was left out: its role is"),
        ({"role": "user"}, "Message 6 was left out: it has no content."),
        (answered("x", {"id": "c"}), "Message 6 was mended: its tool call 1 was left out"),
        (observed({"a": 1}), "Message 6 was left out: its content is neither text nor"),
    ],
)
def test_what_is_damaged_is_told_and_the_rest_is_read(damaged: Any, sentence: str):
    found = parsed_run(history=history(damaged, {"role": "user", "content": "And now?"}))

    assert found.problems[0].text.startswith(sentence)
    assert found.conversations[0].messages[-1].wire["content"] == "And now?"


def test_a_result_that_names_no_call_is_kept():
    found = run(history=history(observed("late", tool_call_ids=[])))

    assert found.messages[-1].wire == {"role": "tool", "content": "late", "tool_call_id": ""}


def test_two_runs_of_one_task_are_two_and_a_longer_file_of_one_is_one():
    other = [*RUN["history"][:2], answered("Otherwise.", call(command="cat a.py"))]

    assert run(history=other).identity != run().identity
    assert run(history=history({"role": "user", "content": "Go on."})).identity == run().identity


def test_several_runs_can_stand_in_one_file():
    lines = "\n".join(json.dumps(RUN | {"environment": name}) for name in ("a", "b"))

    assert [one.title for one in parse(lines).conversations] == ["a", "b"]


@pytest.mark.parametrize(
    "value",
    [
        {"trajectory": [], "info": {}},
        {"trajectory": "x", "history": [{"role": "user", "content": "Hi"}]},
        {"trajectory": [], "history": [1, 2]},
        {"history": [{"role": "user", "content": "Hi"}], "info": {}},
    ],
)
def test_what_is_no_run_is_refused(value: Any):
    with pytest.raises(UnknownFormatError):
        parse(json.dumps(value))


def test_a_history_in_which_nothing_is_readable_is_refused_with_the_reason():
    with pytest.raises(UnknownFormatError, match=r"looks like SWE-agent.*its role is 'robot'"):
        parse(json.dumps(RUN | {"history": [{"role": "robot", "content": "x"}]}))


def test_the_real_runs_are_read_whole(only: ParseOne):
    demo = only("swe_agent/sweagent_marshmallow_1867_function_calling.traj.json")
    smith = only("swe_agent/swesmith_pydantic_8316.traj.json")

    # 28 and 46 in the files, of which the first is the prompt.
    assert (len(demo.messages), len(smith.messages)) == (27, 45)
    assert smith.title == "pydantic__pydantic.acb0f10f.pr_8316"
    for found in (demo, smith):
        wires = [one.wire for one in found.messages]
        results = [index for index, wire in enumerate(wires) if wire["role"] == "tool"]
        assert sorted(answers(wires)) == results
