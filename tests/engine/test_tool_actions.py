"""One table says what tools do; a profile can add to it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from compaction.engine.profile import PRESETS, ProfileError, build
from compaction.engine.strategies.actions import collect_actions
from compaction.engine.tool_actions import (
    Act,
    acts_of,
    acts_of_items,
    problem_with,
    results_of,
    tools_of,
    use_of,
)
from compaction.engine.types import Item, ToolCall
from tests.facts import seed

CLAUDE_CREATED = "File created successfully at: /srv/app.py"
CLAUDE_WRITTEN = "The file /srv/app.py has been updated. Here's the result of running `cat -n`"


def call(name: str, call_id: str = "c1", **arguments: Any) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=json.dumps(arguments))


def done(name: str, result: str = "", lines: str = "", **arguments: Any) -> list[tuple[str, str]]:
    acts = acts_of(call(name, **arguments), result, tools_of(lines))
    return [(act.done, act.target) for act in acts]


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        # pi
        ("read", {"path": "a"}, [("viewed", "a")]),
        ("write", {"path": "a"}, [("modified", "a")]),
        ("edit", {"path": "a", "oldText": "x"}, [("modified", "a")]),
        ("bash", {"command": "ls"}, [("command", "ls")]),
        # Claude Code
        ("Read", {"file_path": "a"}, [("viewed", "a")]),
        ("Edit", {"file_path": "a"}, [("modified", "a")]),
        ("MultiEdit", {"file_path": "a", "edits": []}, [("modified", "a")]),
        ("NotebookEdit", {"notebook_path": "a"}, [("modified", "a")]),
        ("Bash", {"command": "make", "description": "x"}, [("command", "make")]),
        ("Grep", {"pattern": "x", "path": "a"}, []),
        ("TodoWrite", {"todos": []}, []),
        # SWE-agent
        ("str_replace_editor", {"command": "view", "path": "a"}, [("viewed", "a")]),
        ("str_replace_editor", {"command": "create", "path": "a"}, [("created", "a")]),
        ("str_replace_editor", {"command": "str_replace", "path": "a"}, [("modified", "a")]),
        ("str_replace_editor", {"command": "insert", "path": "a"}, [("modified", "a")]),
        ("str_replace_editor", {"command": "undo_edit", "path": "a"}, []),
        ("open", {"path": "a"}, [("viewed", "a")]),
        ("create", {"filename": "a"}, [("created", "a")]),
        ("submit", {}, []),
        # Augment
        ("str-replace-editor", {"command": "str_replace", "path": "a"}, [("modified", "a")]),
        ("save-file", {"path": "a", "file_content": "x"}, [("created", "a")]),
        ("remove-files", {"file_paths": ["a", "b"]}, [("deleted", "a"), ("deleted", "b")]),
        ("view", {"path": "a", "type": "file"}, [("viewed", "a")]),
        ("launch-process", {"command": "npm test", "wait": True}, [("command", "npm test")]),
        # Codex
        ("exec_command", {"cmd": "pwd"}, [("command", "pwd")]),
        ("shell", {"command": ["bash", "-lc", "ls"]}, [("command", "bash -lc ls")]),
    ],
)
def test_each_agents_tools_are_known(name: str, arguments: dict[str, Any], expected: Any):
    assert done(name, **arguments) == expected


@pytest.mark.parametrize(
    "name",
    ["mcp__files__read_file", "mcp__my_files__Read_File", "files.read_file", "READ-FILE", " read "],
)
def test_of_a_servers_tool_the_last_part_counts_and_case_does_not(name: str):
    assert done(name, path="a") == [("viewed", "a")]


def test_a_written_file_is_created_where_the_result_says_so():
    assert done("Write", CLAUDE_CREATED, file_path="/srv/app.py") == [("created", "/srv/app.py")]
    assert done("Write", CLAUDE_WRITTEN, file_path="/srv/app.py") == [("modified", "/srv/app.py")]
    assert done("Write", "", file_path="/srv/app.py") == [("modified", "/srv/app.py")]


def test_only_a_writing_tools_result_is_believed():
    assert done("Read", CLAUDE_CREATED, file_path="a") == [("viewed", "a")]
    far = "x" * 300 + CLAUDE_CREATED
    assert done("Write", far, file_path="a") == [("modified", "a")]


def test_a_result_is_that_of_its_own_call_though_ids_repeat():
    items = [
        Item(id=1, role="assistant", tool_calls=(call("Write", "x", file_path="old"),)),
        Item(id=2, role="tool", tool_call_id="x", text=CLAUDE_WRITTEN),
        Item(id=3, role="assistant", tool_calls=(call("Write", "x", file_path="new"),)),
        Item(id=4, role="tool", tool_call_id="x", text=CLAUDE_CREATED),
    ]
    acts = [act for _, found in acts_of_items(items) for act in found]
    assert acts == [Act(done="modified", target="old"), Act(done="created", target="new")]
    assert {place: one.id for place, one in results_of(items).items()} == {(0, 0): 2, (2, 0): 4}


def test_a_patch_says_of_each_file_what_becomes_of_it():
    patch = (
        "*** Begin Patch\n*** Add File: new\n+x\n*** Update File: changed\n@@\n"
        "*** Delete File: old\n*** Update File: from\n*** Move to: to\n*** End Patch"
    )
    expected = [
        ("created", "new"),
        ("modified", "changed"),
        ("deleted", "old"),
        ("modified", "from"),
        ("created", "to"),
    ]
    assert done("apply_patch", input=patch) == expected
    bare = ToolCall(id="c", name="functions.apply_patch", arguments=patch)
    assert [(act.done, act.target) for act in acts_of(bare)] == expected


@pytest.mark.parametrize(
    "arguments",
    ["", "{", "[]", "null", "3", '{"path": 3}', '{"path": null}', '{"file_paths": [1, {}]}', "["],
)
@pytest.mark.parametrize("name", ["read", "remove-files", "bash", "str_replace_editor"])
def test_arguments_that_cannot_be_read_count_nothing(name: str, arguments: str):
    assert acts_of(ToolCall(id="c", name=name, arguments=arguments)) == []


@pytest.mark.parametrize("name", ["", ".", "__", "mcp__", "mcp__a__", "get_weather", "読む"])
def test_an_unknown_tool_counts_nothing(name: str):
    assert use_of(name) is None
    assert done(name, path="a", command="ls") == []


# --- what a profile adds --------------------------------------------------------------------------

LINES = """
save_note = created note_path
  Fetch-Page=viewed url

psql = command
mcp__db__run = deleted table
"""


def test_a_profile_says_what_further_tools_do():
    assert problem_with(LINES) == ""
    assert done("save_note", lines=LINES, note_path="n", path="p") == [("created", "n")]
    assert done("web.fetch_page", lines=LINES, url="https://a.b/c") == [("viewed", "https://a.b/c")]
    assert done("psql", lines=LINES, command="select 1") == [("command", "select 1")]
    assert done("read", lines=LINES, path="a") == [("viewed", "a")]


def test_a_whole_name_goes_before_its_last_part_and_a_profile_before_the_table():
    assert done("mcp__db__run", lines=LINES, table="t", command="ls") == [("deleted", "t")]
    assert done("run", lines=LINES, table="t", command="ls") == [("command", "ls")]
    assert done("read", lines="read = modified", path="a") == [("modified", "a")]


def test_what_a_profile_adds_counts_for_the_files_of_a_summary():
    items = [Item(id=1, role="assistant", tool_calls=(call("save_note", note_path="n"),))]
    assert collect_actions(items).files_created == ()
    assert collect_actions(items, LINES).files_created == ("n",)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("a = viewed\nb : created", "Line 2 (“b : created”) cannot be read"),
        ("a = wrote path", "Line 1 (“a = wrote path”) cannot be read"),
        ("= viewed", "Line 1 (“= viewed”) cannot be read"),
        ("two words = viewed", "Line 1"),
        ("a = viewed path more", "Line 1"),
        ("a =", "Line 1"),
        ("\n\na = viewed\nA = created", "Line 4 (“A = created”) names a tool for the second time"),
    ],
)
def test_a_wrong_line_of_a_profile_is_named(lines: str, said: str):
    assert problem_with(lines).startswith(said)
    with pytest.raises(ProfileError) as refused:
        build(PRESETS["bisect"], {"tool_actions": lines})
    assert refused.value.errors["tool_actions"].startswith(said)
    # A stored profile from before a rule is read all the same.
    assert use_of("read", tools_of(lines)) is not None


def test_right_lines_are_kept_as_they_were_written():
    assert build(PRESETS["bisect"], {"tool_actions": LINES}).tool_actions == LINES


def test_nothing_whatsoever_in_a_call_raises():
    draw = random.Random(seed())
    values: list[Any] = [None, 1, True, "", "a\x00b", "\ud800", [], ["a", 2, None], {"path": "a"}]
    names = ["read", "Write", "apply_patch", "bash", "remove-files", "str_replace_editor", "x.y"]
    keys = ["path", "file_paths", "command", "input", "patch"]
    for _ in range(300):
        arguments = {key: draw.choice(values) for key in draw.sample(keys, 3)}
        for act in acts_of(
            call(draw.choice(names), **arguments), draw.choice(["", CLAUDE_CREATED])
        ):
            assert act.target
            assert act.done in ("modified", "created", "deleted", "viewed", "command")
