"""What an agent did: files read, files modified and commands run, taken from its tool calls.

Only the calls themselves count. A path that merely stands in some text was never touched, and a
call whose arguments cannot be read contributes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from compaction.engine.types import NO_FILES, Files, Item, ToolCall

MAX_FILES = 2000
LONGEST_PATH = 1000
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

_PATCHED_FILE = re.compile(r"^\*\*\* (Add|Update|Delete|Move)(?: File| to): (.+)$", re.M)
READ, MODIFIED, CREATED, REMOVED = "read", "modified", "created", "removed"
_PATCHES = {"Add": CREATED, "Update": MODIFIED, "Delete": REMOVED, "Move": CREATED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """The files and commands of some items: files sorted, commands in the order they were run.

    Created files are among the modified ones; deleted ones are in neither.
    """

    files_read: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    files_created: tuple[str, ...] = ()
    files_deleted: tuple[str, ...] = ()


def collect_actions(items: Iterable[Item]) -> Actions:
    """The files read, the files modified and the commands run by the tool calls of `items`.

    A modified file is not listed as read as well. Commands are cut to their first line and to
    MAX_COMMAND_CHARACTERS; when there are more than MAX_COMMANDS, the latest ones are kept.
    """
    commands: dict[str, None] = {}
    known = _KnownFiles(NO_FILES)
    for call in (call for item in items for call in item.tool_calls):
        name = call.name.strip().casefold()
        if name in COMMAND_TOOLS:
            commands.update(dict.fromkeys(_commands(_arguments(call))))
        elif name in ACTION_TOOLS:
            known.take(_touched(name, call))
    files = known.files
    return Actions(
        files_read=files.read,
        files_modified=files.modified,
        files_created=files.created,
        files_deleted=files.deleted,
        commands=tuple(commands)[-MAX_COMMANDS:],
    )


def files_after(before: Files, items: Iterable[Item]) -> Files:
    """Return the files that are known after the calls of `items`, with those from before them.

    A file that was read once and is written later is no longer one that was only read.
    """
    known = _KnownFiles(before)
    for call in (call for item in items for call in item.tool_calls):
        name = call.name.strip().casefold()
        if name in READING_TOOLS | WRITING_TOOLS:
            known.take(_touched(name, call))
    return known.files


def joined_files(parts: Iterable[Files]) -> Files:
    """Return the files of several stretches as those of one, the older ones first."""
    known = _KnownFiles(NO_FILES)
    for part in parts:
        known.take((READ, path) for path in part.read)
        created = frozenset(part.created)
        known.take((CREATED if path in created else MODIFIED, path) for path in part.modified)
        known.take((REMOVED, path) for path in part.deleted)
    return known.files


class _KnownFiles:
    """What is known of files, call by call: the last thing that changed one counts."""

    def __init__(self, before: Files) -> None:
        # In the order in which they were named last: of very many, the latest are kept.
        self._read = dict.fromkeys(before.read)
        self._modified = dict.fromkeys(before.modified)
        self._created = dict.fromkeys(before.created)
        self._removed = dict.fromkeys(before.deleted)

    def take(self, touched: Iterable[tuple[str, str]]) -> None:
        """Add what was done to files: pairs of a word for it and a path."""
        for done, path in touched:
            if done == READ:
                _put_last(self._read, path)
            elif done == REMOVED:
                self._modified.pop(path, None)
                self._created.pop(path, None)
                _put_last(self._removed, path)
            else:
                self._removed.pop(path, None)
                _put_last(self._modified, path)
                if done == CREATED:
                    _put_last(self._created, path)

    @property
    def files(self) -> Files:
        """The latest MAX_FILES of each kind, sorted by code unit."""
        changed = self._modified.keys() | self._removed.keys()
        read = [path for path in self._read if path not in changed]
        modified = _latest(self._modified)
        kept = frozenset(modified)
        created = [path for path in self._created if path in kept]
        return Files(
            read=_latest(read),
            modified=modified,
            created=_latest(created),
            deleted=_latest(self._removed),
        )


def _put_last(paths: dict[str, None], path: str) -> None:
    paths.pop(path, None)
    paths[path] = None


def _latest(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(list(paths)[-MAX_FILES:]))


def _touched(name: str, call: ToolCall) -> Iterator[tuple[str, str]]:
    """Yield what a call of an action tool does to files, and to which."""
    arguments = _arguments(call)
    if name == "apply_patch":
        yield from _patched_files(call, arguments)
        return
    command = arguments.get("command")
    if name in READING_TOOLS or command == "view":
        done = READ
    elif command == "undo_edit":
        return
    else:
        done = CREATED if name == "create_file" or command == "create" else MODIFIED
    for path in _paths(arguments):
        yield done, path


def command_of(call: ToolCall) -> str:
    """The first line of the command that a call runs; empty when its arguments cannot be read."""
    return next(_commands(_arguments(call)), "")


def called_files(call: ToolCall) -> tuple[str, tuple[str, ...]]:
    """What a call of an action tool does to files (`read` or `modified`), and to which."""
    actions = collect_actions([Item(id=None, role="assistant", tool_calls=(call,))])
    if changed := (*actions.files_modified, *actions.files_deleted):
        return MODIFIED, changed
    return READ, actions.files_read


def _arguments(call: ToolCall) -> dict[str, object]:
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _paths(arguments: dict[str, object]) -> Iterator[str]:
    for key in PATH_ARGUMENTS:
        value = arguments.get(key)
        if isinstance(value, str) and (path := _path(_first_line(value))):
            yield path


def _commands(arguments: dict[str, object]) -> Iterator[str]:
    for key in COMMAND_ARGUMENTS:
        value = arguments.get(key)
        if isinstance(value, list):
            value = " ".join(part for part in value if isinstance(part, str))
        if isinstance(value, str) and (line := _first_line(value)):
            yield line[:MAX_COMMAND_CHARACTERS].rstrip()
            return


def _patched_files(call: ToolCall, arguments: dict[str, object]) -> Iterator[tuple[str, str]]:
    values = [arguments.get(key) for key in PATCH_ARGUMENTS]
    # Some models send the patch itself instead of JSON; its own markers make it readable.
    for text in (*values, "" if arguments else call.arguments):
        if isinstance(text, list):
            text = "\n".join(part for part in text if isinstance(part, str))
        if isinstance(text, str):
            for match in _PATCHED_FILE.finditer(text):
                if path := _path(match[2].strip()):
                    yield _PATCHES[match[1]], path
    for path in _paths(arguments):
        yield MODIFIED, path


def _path(text: str) -> str:
    """Return a path without what no database stores; nothing of what is too long for one."""
    return "".join(filter(str.isprintable, text)) if len(text) <= LONGEST_PATH else ""


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
