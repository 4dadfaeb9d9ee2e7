"""What tools do: one table from names of tools to files that are viewed, written, deleted, and
to commands that are run.

Only calls count, and of a result only whether it says that a file is new: a path that stands in
some text was never touched. A call whose arguments cannot be read says nothing. Names are compared
without case, a hyphen is an underscore, and of `mcp__server__tool` and `server.tool` the last part
counts where the whole name is not known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from chatapp.messages.pairing import pair
from compaction.engine.types import Item, ToolCall

MODIFIED, CREATED, DELETED, VIEWED, COMMAND = "modified", "created", "deleted", "viewed", "command"
WORDS = (MODIFIED, CREATED, DELETED, VIEWED, COMMAND)
"""What a tool may do, in the words of a profile's `tool_actions`."""

LONGEST_PATH = 1000
MOST_COMMAND_CHARACTERS = 10_000
"""So much of a command is kept: the beginning says what it is."""

PATH_ARGUMENTS = (
    "path",
    "file_path",
    "filename",
    "file",
    "notebook_path",
    "filePath",
    "absolute_path",
    "target_file",
    "file_paths",
    "paths",
)
COMMAND_ARGUMENTS = ("command", "cmd", "script")
PATCH_ARGUMENTS = ("patch", "input", "patch_text", "diff", "command")

_PATCHED_FILE = re.compile(r"^\*\*\* (Add|Update|Delete|Move)(?: File| to): (.+)$", re.M)
_PATCHES = {"Add": CREATED, "Update": MODIFIED, "Delete": DELETED, "Move": CREATED}
# How results begin that say that a file which was written had not been there.
_SAYS_CREATED = re.compile(
    r"\bcreated (?:successfully|and wrote|new file)|\bsuccessfully created\b|\bnew file created\b",
    re.I,
)
RESULT_LOOKED_AT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """What one tool does: a word of WORDS, and the arguments that say to what.

    An editor says in its argument `command` what it does; a patch names its files itself; of a
    writer the result may say that the file is new.
    """

    does: str
    arguments: tuple[str, ...]
    is_editor: bool = False
    is_patch: bool = False
    is_writer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One thing that a call does: a word of WORDS, and the path or the whole command."""

    done: str
    target: str


def _uses(does: str, names: str, **more: bool) -> dict[str, ToolUse]:
    arguments = COMMAND_ARGUMENTS if does == COMMAND else PATH_ARGUMENTS
    return {name: ToolUse(does=does, arguments=arguments, **more) for name in names.split()}


# Of pi, Claude Code, SWE-agent, Augment, Codex, Gemini CLI, OpenHands and others like them.
BUILT_IN: Mapping[str, ToolUse] = {
    **_uses(VIEWED, "read read_file view view_file cat open open_file notebookread"),
    **_uses(MODIFIED, "edit edit_file insert replace notebookedit multiedit str_replace"),
    **_uses(MODIFIED, "write write_file write_to_file", is_writer=True),
    **_uses(MODIFIED, "str_replace_editor str_replace_based_edit_tool file_editor", is_editor=True),
    **_uses(MODIFIED, "apply_patch", is_patch=True),
    **_uses(CREATED, "create create_file save_file"),
    **_uses(DELETED, "remove_files remove_file delete_files delete_file"),
    **_uses(COMMAND, "bash shell terminal run execute execute_bash run_command exec exec_command"),
    **_uses(COMMAND, "launch_process run_shell_command run_terminal_cmd execute_command"),
}

Tools = Mapping[str, ToolUse]


def use_of(name: str, tools: Tools = BUILT_IN) -> ToolUse | None:
    """Return what a tool of this name does; None where nobody knows."""
    folded = _folded(name)
    if folded in tools:
        return tools[folded]
    return tools.get(folded.rsplit("__", 1)[-1].rsplit(".", 1)[-1])


def acts_of(call: ToolCall, result: str = "", tools: Tools = BUILT_IN) -> list[Act]:
    """Return what a call does, in the order in which it says so; `result` is what came of it."""
    use = use_of(call.name, tools)
    if use is None:
        return []
    arguments = arguments_of(call)
    if use.does == COMMAND:
        return [Act(done=COMMAND, target=text) for text in _commands(arguments, use.arguments)]
    if use.is_patch:
        return list(_patched(call, arguments, use))
    done = _done(use, arguments, result)
    return [Act(done=done, target=path) for path in _paths(arguments, use) if done]


def acts_of_items(
    items: Sequence[Item], tools: Tools = BUILT_IN
) -> Iterator[tuple[int, list[Act]]]:
    """Yield the index of each item with calls, and what these do."""
    results = results_of(items)
    for index, item in enumerate(items):
        if item.tool_calls:
            acts: list[Act] = []
            for number, call in enumerate(item.tool_calls):
                result = results.get((index, number))
                acts += acts_of(call, "" if result is None else result.text, tools)
            yield index, acts


def results_of(items: Sequence[Item]) -> dict[tuple[int, int], Item]:
    """Return each call's result: by the index of the item that calls, and the call's number."""
    places = (
        (item.tool_call_id if item.role == "tool" else None, [call.id for call in item.tool_calls])
        for item in items
    )
    return {place: items[index] for index, place in pair(places).items()}


def arguments_of(call: ToolCall) -> dict[str, object]:
    """Return a call's arguments; none where they cannot be read."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


# --- what a profile adds --------------------------------------------------------------------------


def problem_with(text: str) -> str:
    """Return a sentence about the first line of a profile's `tool_actions` that is wrong."""
    seen: set[str] = set()
    for number, line in _lines(text):
        name, use = _parsed(line)
        shown = f"Line {number} (“{line[:60]}”)"
        if use is None:
            words = f"{', '.join(WORDS[:-1])} or {WORDS[-1]}"
            return (
                f"{shown} cannot be read: write the tool's name, =, one of {words}, and perhaps "
                "the argument that says to what, such as: save_note = created note_path."
            )
        if name in seen:
            return f"{shown} names a tool for the second time: leave one of the lines."
        seen.add(name)
    return ""


@lru_cache(maxsize=32)
def tools_of(text: str) -> Tools:
    """Return the table with the lines of a profile's `tool_actions`, which go before it.

    A line that cannot be read adds nothing.
    """
    added = dict(_parsed(line) for _, line in _lines(text))
    return {**BUILT_IN, **{name: use for name, use in added.items() if use is not None}}


def _lines(text: str) -> Iterator[tuple[int, str]]:
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return ((number, line) for number, line in lines if line)


def _parsed(line: str) -> tuple[str, ToolUse | None]:
    """Return the folded name of a line, and what it says of the tool; None where it says none."""
    name, _, rest = line.partition("=")
    name, (does, *given) = _folded(name), rest.split() or [""]
    does = does.casefold()
    if len(name.split()) != 1 or does not in WORDS or len(given) > 1:
        return name, None
    usual = COMMAND_ARGUMENTS if does == COMMAND else PATH_ARGUMENTS
    return name, ToolUse(does=does, arguments=tuple(given) or usual)


def _folded(name: str) -> str:
    return name.strip().casefold().replace("-", "_")


# --- one call -------------------------------------------------------------------------------------


def _done(use: ToolUse, arguments: Mapping[str, object], result: str) -> str:
    """Return what is done to a call's files; empty for what leaves no trace."""
    if use.is_editor:
        command = arguments.get("command")
        words = {"view": VIEWED, "create": CREATED, "undo_edit": ""}
        return words.get(command, MODIFIED) if isinstance(command, str) else MODIFIED
    if use.is_writer and _SAYS_CREATED.search(result[:RESULT_LOOKED_AT]):
        return CREATED
    return use.does


def _paths(arguments: Mapping[str, object], use: ToolUse) -> Iterator[str]:
    for key in use.arguments:
        for value in _texts(arguments.get(key)):
            if path := _path(first_line(value)):
                yield path


def _commands(arguments: Mapping[str, object], keys: Iterable[str]) -> Iterator[str]:
    """Yield the command, if there is one: lists are joined, further arguments not looked at."""
    for key in keys:
        text = " ".join(_texts(arguments.get(key))).strip()
        if text:
            yield text[:MOST_COMMAND_CHARACTERS]
            return


def _patched(call: ToolCall, arguments: Mapping[str, object], use: ToolUse) -> Iterator[Act]:
    texts = ["\n".join(_texts(arguments.get(key))) for key in PATCH_ARGUMENTS]
    # Some models send the patch itself instead of JSON; its own markers make it readable.
    for text in (*texts, "" if arguments else call.arguments):
        for match in _PATCHED_FILE.finditer(text):
            if path := _path(match[2].strip()):
                yield Act(done=_PATCHES[match[1]], target=path)
    for path in _paths(arguments, use):
        yield Act(done=MODIFIED, target=path)


def _texts(value: object) -> list[str]:
    """Return a text, or the texts of a list."""
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, str)]


def _path(text: str) -> str:
    """Return a path without what no database stores; nothing of what is too long for one."""
    return "".join(filter(str.isprintable, text)) if len(text) <= LONGEST_PATH else ""


def first_line(text: str) -> str:
    """Return the first line that is not blank, without blanks around it."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
