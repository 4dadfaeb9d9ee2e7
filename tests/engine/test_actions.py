"""What an agent did is read off its tool calls, and off nothing else."""

from __future__ import annotations

import json

import pytest

from compaction.engine.strategies.actions import (
    MAX_FILES,
    Actions,
    collect_actions,
    files_after,
    joined_files,
)
from compaction.engine.types import NO_FILES, Files, Item, ToolCall


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(id="c1", name=name, arguments=json.dumps(arguments))


def actions_of(*calls: ToolCall, text: str = "") -> Actions:
    return collect_actions([Item(id=1, role="assistant", text=text, tool_calls=calls)])


@pytest.mark.parametrize("name", ["read", "read_file", "view", "cat", "open", "READ_FILE"])
def test_a_reading_tool_reads_its_file(name):
    assert actions_of(call(name, path="a.py")) == Actions(files_read=("a.py",))


@pytest.mark.parametrize(
    "name", ["write", "write_file", "Edit", "edit_file", "MultiEdit", "str_replace"]
)
def test_a_writing_tool_modifies_its_file(name):
    assert actions_of(call(name, file_path="a.py")) == Actions(files_modified=("a.py",))


@pytest.mark.parametrize("argument", ["path", "file_path", "filename", "file", "notebook_path"])
def test_every_usual_argument_names_the_file(argument):
    assert actions_of(call("NotebookEdit", **{argument: "x.ipynb"})).files_modified == ("x.ipynb",)


@pytest.mark.parametrize(
    "name", ["bash", "shell", "terminal", "run", "execute", "execute_bash", "run_command", "exec"]
)
def test_a_command_tool_runs_its_command(name):
    assert actions_of(call(name, command="make test")) == Actions(commands=("make test",))


@pytest.mark.parametrize("name", ["str_replace_editor", "str_replace_based_edit_tool"])
def test_an_editor_that_only_views_has_read_the_file(name):
    found = actions_of(call(name, command="view", path="a.py"))
    assert found == Actions(files_read=("a.py",))


@pytest.mark.parametrize("command", ["str_replace", "insert"])
def test_an_editor_that_changes_has_modified_the_file(command):
    found = actions_of(call("str_replace_editor", command=command, path="a.py"))
    assert found == Actions(files_modified=("a.py",))


@pytest.mark.parametrize(
    ("name", "more"), [("create_file", {}), ("str_replace_editor", {"command": "create"})]
)
def test_a_file_that_is_created_is_told_apart_and_modified_too(name, more):
    assert actions_of(call(name, path="a.py", **more)) == Actions(
        files_modified=("a.py",), files_created=("a.py",)
    )


def test_a_patch_tells_created_moved_and_deleted_files_apart():
    patch = (
        "*** Add File: new.py\n+x\n*** Delete File: old.py\n*** Update File: from.py\n"
        "*** Move to: to.py\n@@"
    )
    found = actions_of(call("read", path="old.py"), call("apply_patch", input=patch))
    assert found.files_created == ("new.py", "to.py")
    assert found.files_modified == ("from.py", "new.py", "to.py")
    assert found.files_deleted == ("old.py",)
    assert found.files_read == ()


def after(before: Files, *calls: ToolCall) -> Files:
    return files_after(before, [Item(id=1, role="assistant", tool_calls=calls)])


def test_files_add_up_from_summary_to_summary():
    calls = (
        *(call("read", path=path) for path in ("b", "a", "Z")),
        call("edit", path="a"),
        call("write", path="c"),
    )
    first = after(NO_FILES, *calls)
    assert (first.read, first.modified) == (("Z", "b"), ("a", "c"))
    second = after(first, call("edit", path="b"))
    assert (second.read, second.modified) == (("Z",), ("a", "b", "c"))


def test_a_file_that_is_deleted_and_made_again_is_there():
    gone = after(
        Files(created=("a",), modified=("a",)), call("apply_patch", input="*** Delete File: a")
    )
    assert gone == Files(deleted=("a",))
    assert after(gone, call("create_file", path="a")) == Files(modified=("a",), created=("a",))


def test_the_files_of_several_summaries_are_joined_the_later_ones_last():
    older = Files(read=("a", "b"), modified=("c",), created=("c",))
    newer = Files(modified=("b",), deleted=("c",))
    assert joined_files([older, newer]) == Files(read=("a",), modified=("b",), deleted=("c",))
    assert joined_files([]) == NO_FILES


def test_a_path_holds_nothing_that_no_database_stores():
    assert actions_of(call("read", path="a\x00\ud800b\x1b.py")).files_read == ("ab.py",)
    assert actions_of(call("read", path="x" * 1001), call("read", path="\x00")) == Actions()


def test_of_very_many_files_the_latest_are_kept():
    known = Files(read=tuple(f"a{n:04d}" for n in range(MAX_FILES)))
    found = after(known, call("read", path="a0000"), call("read", path="0"))
    assert len(found.read) == MAX_FILES
    assert {"a0000", "0"} <= set(found.read)
    assert "a0001" not in found.read


def test_a_patch_modifies_the_files_its_markers_name():
    patch = "*** Begin Patch\n*** Update File: src/b.py\n@@\n*** Add File: a.py\n*** End Patch"
    assert actions_of(call("apply_patch", input=patch)).files_modified == ("a.py", "src/b.py")


def test_a_patch_sent_without_json_is_read_all_the_same():
    bare = ToolCall(id="c1", name="apply_patch", arguments="*** Update File: a.py\n@@\n-x\n+y")
    assert actions_of(bare).files_modified == ("a.py",)


def test_a_modified_file_is_not_listed_as_read():
    found = actions_of(call("read", path="a.py"), call("edit", path="a.py"), call("read", path="b"))
    assert found == Actions(files_read=("b",), files_modified=("a.py",))


def test_files_are_sorted_and_listed_once():
    found = actions_of(*(call("read", path=path) for path in ("c", "a", "c", "b")))
    assert found.files_read == ("a", "b", "c")


def test_commands_keep_their_order_and_are_listed_once():
    found = actions_of(*(call("bash", command=one) for one in ("make", "ls", "make")))
    assert found.commands == ("make", "ls")


def test_of_a_command_only_the_first_line_is_listed():
    assert actions_of(call("bash", command="\ncat <<E\nx\nE")).commands == ("cat <<E",)


def test_a_long_command_is_cut_to_200_characters():
    assert actions_of(call("bash", command="x" * 500)).commands == ("x" * 200,)


def test_the_latest_50_commands_are_listed():
    found = actions_of(*(call("bash", command=f"echo {n}") for n in range(60)))
    assert found.commands == tuple(f"echo {n}" for n in range(10, 60))


def test_a_command_given_as_a_list_is_joined():
    assert actions_of(call("shell", command=["ls", "-l"])).commands == ("ls -l",)


@pytest.mark.parametrize(
    "arguments", ["", "{", '{"path": "a.py"', "[]", "null", '"a.py"', '{"path": 7}', "[" * 100_000]
)
def test_arguments_that_cannot_be_read_say_nothing(arguments):
    broken = ToolCall(id="c1", name="read", arguments=arguments)
    assert actions_of(broken) == Actions()


def test_an_unknown_tool_says_nothing():
    assert actions_of(call("get_weather", path="a.py", command="ls")) == Actions()


def test_a_path_in_the_text_was_never_touched():
    assert actions_of(text='I will read {"path": "a.py"} and run `ls`') == Actions()
