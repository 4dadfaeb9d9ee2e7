"""What an agent did: files read, files modified and commands run, taken from its tool calls.

Only the calls themselves count. A path that merely stands in some text was never touched, and a
call whose arguments cannot be read contributes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from compaction.engine.tool_actions import (
    COMMAND,
    CREATED,
    DELETED,
    MODIFIED,
    VIEWED,
    Act,
    acts_of,
    acts_of_items,
    first_line,
    tools_of,
)
from compaction.engine.types import NO_FILES, Files, Item, ToolCall

MAX_FILES = 2000
MAX_COMMANDS = 50
MAX_COMMAND_CHARACTERS = 200
READ = "read"


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


def collect_actions(items: Sequence[Item], tool_actions: str = "") -> Actions:
    """The files read, the files modified and the commands run by the tool calls of `items`.

    A modified file is not listed as read as well. Commands are cut to their first line and to
    MAX_COMMAND_CHARACTERS; when there are more than MAX_COMMANDS, the latest ones are kept.
    `tool_actions` are a profile's lines about further tools.
    """
    acts = list(_acts(items, tool_actions))
    commands = dict.fromkeys(_shown(act.target) for act in acts if act.done == COMMAND)
    known = KnownFiles(NO_FILES)
    known.take(acts)
    files = known.files
    return Actions(
        files_read=files.read,
        files_modified=files.modified,
        files_created=files.created,
        files_deleted=files.deleted,
        commands=tuple(commands)[-MAX_COMMANDS:],
    )


def files_after(before: Files, items: Sequence[Item], tool_actions: str = "") -> Files:
    """Return the files that are known after the calls of `items`, with those from before them.

    A file that was read once and is written later is no longer one that was only read.
    """
    known = KnownFiles(before)
    known.take(_acts(items, tool_actions))
    return known.files


def joined_files(parts: Iterable[Files]) -> Files:
    """Return the files of several stretches as those of one, the older ones first."""
    known = KnownFiles(NO_FILES)
    for part in parts:
        known.take(Act(done=VIEWED, target=path) for path in part.read)
        created = frozenset(part.created)
        known.take(
            Act(done=CREATED if path in created else MODIFIED, target=path)
            for path in part.modified
        )
        known.take(Act(done=DELETED, target=path) for path in part.deleted)
    return known.files


class KnownFiles:
    """What is known of files, call by call: the last thing that changed one counts."""

    def __init__(self, before: Files) -> None:
        # In the order in which they were named last: of very many, the latest are kept.
        self._read = dict.fromkeys(before.read)
        self._modified = dict.fromkeys(before.modified)
        self._created = dict.fromkeys(before.created)
        self._removed = dict.fromkeys(before.deleted)

    def take(self, acts: Iterable[Act]) -> None:
        """Add what was done to files; commands are passed over."""
        for act in acts:
            path = act.target
            if act.done == VIEWED:
                _put_last(self._read, path)
            elif act.done == DELETED:
                self._modified.pop(path, None)
                self._created.pop(path, None)
                _put_last(self._removed, path)
            elif act.done in (MODIFIED, CREATED):
                self._removed.pop(path, None)
                _put_last(self._modified, path)
                if act.done == CREATED:
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


def _acts(items: Sequence[Item], tool_actions: str) -> Iterator[Act]:
    for _, acts in acts_of_items(items, tools_of(tool_actions)):
        yield from acts


def command_of(call: ToolCall) -> str:
    """The first line of the command that a call runs; empty when its arguments cannot be read."""
    return next((_shown(act.target) for act in acts_of(call) if act.done == COMMAND), "")


def called_files(call: ToolCall) -> tuple[str, tuple[str, ...]]:
    """What a call of an action tool does to files (`read` or `modified`), and to which."""
    actions = collect_actions([Item(id=None, role="assistant", tool_calls=(call,))])
    if changed := (*actions.files_modified, *actions.files_deleted):
        return MODIFIED, changed
    return READ, actions.files_read


def _shown(command: str) -> str:
    return first_line(command)[:MAX_COMMAND_CHARACTERS].rstrip()
