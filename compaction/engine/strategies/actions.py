"""What an agent did: files read, files modified and commands run, taken from its tool calls.

Only the calls themselves count. A path that merely stands in some text was never touched, and a
call whose arguments cannot be read contributes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from compaction.engine.types import Item, ToolCall

MAX_COMMANDS = 50
MAX_COMMAND_CHARACTERS = 200

READING_TOOLS = frozenset({"read", "read_file", "view", "cat", "open"})
WRITING_TOOLS = frozenset(
    {
        "write",
        "write_file",
        "edit",
        "edit_file",
        "str_replace",
        "str_replace_editor",
        "str_replace_based_edit_tool",
        "apply_patch",
        "create_file",
        "notebookedit",
        "multiedit",
    }
)
COMMAND_TOOLS = frozenset(
    {"bash", "shell", "terminal", "run", "execute", "execute_bash", "run_command", "exec"}
)
ACTION_TOOLS = READING_TOOLS | WRITING_TOOLS | COMMAND_TOOLS

PATH_ARGUMENTS = ("path", "file_path", "filename", "file", "notebook_path")
COMMAND_ARGUMENTS = ("command", "cmd", "script")
PATCH_ARGUMENTS = ("patch", "input", "patch_text", "diff", "command")

_PATCHED_FILE = re.compile(
    r"^\*\*\* (?:Add|Update|Delete) File: (.+)$|^\*\*\* Move to: (.+)$", re.M
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """The files and commands of some items: files sorted, commands in the order they were run."""

    files_read: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


def collect_actions(items: Iterable[Item]) -> Actions:
    """The files read, the files modified and the commands run by the tool calls of `items`.

    A modified file is not listed as read as well. Commands are cut to their first line and to
    MAX_COMMAND_CHARACTERS; when there are more than MAX_COMMANDS, the latest ones are kept.
    """
    read: set[str] = set()
    modified: set[str] = set()
    commands: dict[str, None] = {}
    for call in (call for item in items for call in item.tool_calls):
        name = call.name.strip().casefold()
        if name not in ACTION_TOOLS:
            continue
        arguments = _arguments(call)
        if name in COMMAND_TOOLS:
            commands.update(dict.fromkeys(_commands(arguments)))
        elif name == "apply_patch":
            modified.update(_patched_files(call, arguments))
        elif name in READING_TOOLS or arguments.get("command") == "view":
            read.update(_paths(arguments))
        elif arguments.get("command") != "undo_edit":
            modified.update(_paths(arguments))
    return Actions(
        files_read=tuple(sorted(read - modified)),
        files_modified=tuple(sorted(modified)),
        commands=tuple(commands)[-MAX_COMMANDS:],
    )


def command_of(call: ToolCall) -> str:
    """The first line of the command that a call runs; empty when its arguments cannot be read."""
    return next(_commands(_arguments(call)), "")


def called_files(call: ToolCall) -> tuple[str, tuple[str, ...]]:
    """What a call of an action tool does to files (`read` or `modified`), and to which."""
    actions = collect_actions([Item(id=None, role="assistant", tool_calls=(call,))])
    if actions.files_modified:
        return "modified", actions.files_modified
    return "read", actions.files_read


def _arguments(call: ToolCall) -> dict[str, object]:
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _paths(arguments: dict[str, object]) -> Iterator[str]:
    for key in PATH_ARGUMENTS:
        value = arguments.get(key)
        if isinstance(value, str) and (path := _first_line(value)):
            yield path


def _commands(arguments: dict[str, object]) -> Iterator[str]:
    for key in COMMAND_ARGUMENTS:
        value = arguments.get(key)
        if isinstance(value, list):
            value = " ".join(part for part in value if isinstance(part, str))
        if isinstance(value, str) and (line := _first_line(value)):
            yield line[:MAX_COMMAND_CHARACTERS].rstrip()
            return


def _patched_files(call: ToolCall, arguments: dict[str, object]) -> Iterator[str]:
    values = [arguments.get(key) for key in PATCH_ARGUMENTS]
    # Some models send the patch itself instead of JSON; its own markers make it readable.
    for text in (*values, "" if arguments else call.arguments):
        if isinstance(text, list):
            text = "\n".join(part for part in text if isinstance(part, str))
        if isinstance(text, str):
            for match in _PATCHED_FILE.finditer(text):
                yield (match[1] or match[2]).strip()
    yield from _paths(arguments)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
