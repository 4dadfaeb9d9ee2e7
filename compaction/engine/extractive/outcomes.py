"""What came of tool calls, one line an action: command, exit status, first error, last line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.forms import is_error, signs_in
from compaction.engine.extractive.sentences import (
    encodable,
    fold,
    is_json,
    line_spans,
    printable,
    shorten,
    split_lines,
)
from compaction.engine.fidelity.entities import find_entities
from compaction.engine.provenance import Unit, UnitKind
from compaction.engine.strategies.actions import called_files, command_of
from compaction.engine.strategies.prompts import POSITIONS_PER_MESSAGE, message_number
from compaction.engine.tool_actions import COMMAND, results_of, use_of
from compaction.engine.types import Item, ToolCall

COMMAND_CHARACTERS = 90
LINE_CHARACTERS = 90
ARGUMENT_CHARACTERS = 60
ENDS_READ = 20_000
"""Characters of an output that are looked at from each end."""
ACTION_WORTH = 1.1
FAILED_WORTH = 1.6
CALL_WORTH = 0.8
FILE_ACTION_WORTH = 0.5
LOOKING_WORTH = 0.3
"""Of a command that only looks at files: what it found is used or said later."""
MAX_LEAVES = 3
ARROW = " → "

_LEAF = lazy_pattern(
    r"\"[^\"\\\n]{1,60}\"\s{0,4}:\s{0,4}(?:\"(?:[^\"\\]|\\.){1,300}\"|-?\d[\d.eE+-]{0,30}|true|false)"
)
_EXIT = lazy_pattern(
    r"(?:\"?exit[_ ]?(?:code|status)\"?\s?[:=]?\s?|returncode\"?\s?[:=]>?\s?|"
    r"exited with (?:code |status )?)"
    r"(-?\d{1,3})",
    re.I,
)
_ANSWERING = lazy_pattern(
    r"\"(?:\w*status|result|error|reason|message|state|total\w*|\w*price|amount|balance|answer|"
    r"\w*_id|id|confirmation\w*|reference|tracking\w*|eta|success|ok)\"\s*:",
    re.I,
)
_LOOKING = lazy_pattern(
    r"(?:cd \S+ && )?(?:grep|rg|ls|cat|head|tail|find|sed -n|wc|tree|nl|which|pwd|stat|file|echo|"
    r"type|jq|git (?:log|show|diff|status|blame|branch))\b(?!.*\s>{1,2}\s?\S)"
)
_UNFINISHED = lazy_pattern(r"<<-?\s?[\"']?\w+[\"']?$|\bdo$")
_BORING = lazy_pattern(r"[\W_]*|</?\w+>|\$\s*|\(?(?:venv|base)\)?.{0,20}[$#>]\s*")


def leaf_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where the values of a JSON text stand with their keys, be it whole or cut off."""
    for match in _LEAF.finditer(text):
        yield match.start(), match.end()


def outcome_units(items: Sequence[Item]) -> Iterator[Unit]:
    """Yield one line an action: what was called, and what came of it as far as a result tells."""
    results = results_of(items)
    asked = ""
    for index, item in enumerate(items):
        if item.is_question and item.position >= POSITIONS_PER_MESSAGE:
            asked = f" (asked in #{message_number(item.position)})"
        for number, call in enumerate(item.tool_calls):
            result = results.get((index, number))
            yield from _outcome(item, call, result, asked)


def failure_of(text: str) -> str:
    """Return what a result says of a failure: an exit status that is not 0, or its first error."""
    if status := _status_in(text):
        return f"exit {status[1]}" if int(status[1]) else ""
    return _first_error(text)


def only_looks(command: str) -> bool:
    """Whether a command only looks at files: what it prints is no word about itself."""
    return bool(_LOOKING.match(command))


def _status_in(text: str) -> re.Match[str] | None:
    return _EXIT.search(text, max(0, len(text) - ENDS_READ)) or _EXIT.search(text[:ENDS_READ])


def _outcome(item: Item, call: ToolCall, result: Item | None, asked: str) -> Iterator[Unit]:
    """Yield the line of one call; `asked` says in which message the user asked for something."""
    use = use_of(call.name)
    text = "" if result is None else encodable(result.text)
    error = _first_error(text)
    if use is not None and use.does == COMMAND:
        command = command_of(call)
        if not command or _UNFINISHED.search(command):
            command = printable(command)[:COMMAND_CHARACTERS] or call.name
        said = f"run: {shorten(command, COMMAND_CHARACTERS)}"
        looks = only_looks(command)
        error = "" if looks else error
        worth = LOOKING_WORTH if looks else ACTION_WORTH
        parts = _command_parts(text, error)
    elif use is not None:
        done, files = called_files(call)
        if not files:
            return
        said, worth = f"{done}: {', '.join(files)}", FILE_ACTION_WORTH
        parts = [error] if error and done != "read" else []
    else:
        said = f"{call.name}: {shorten(printable(call.arguments), ARGUMENT_CHARACTERS)}"
        worth = CALL_WORTH
        parts = [error] if error and not is_json(text) else _answering_leaves(text)
        if not parts:
            return
    line = ARROW.join([printable(said), *dict.fromkeys(part for part in parts if part)])
    line += asked
    source = result or item
    yield Unit(
        text=line,
        kind=UnitKind.ACTION,
        speaker="",
        position=source.position,
        message=source.id,
        entities=tuple(dict.fromkeys(one.key for one in find_entities(line))),
        worth=worth * (FAILED_WORTH if error else 1.0),
    )


def _command_parts(text: str, error: str) -> list[str]:
    """Return exit status, first error and last line of a command's output."""
    status = _status_in(text)
    parts = [f"exit {status[1]}"] if status else []
    return [*parts, error, _last_line(text)]


def _first_error(text: str) -> str:
    looked_at = text if len(text) <= 2 * ENDS_READ else f"{text[:ENDS_READ]}\n{text[-ENDS_READ:]}"
    signs = signs_in(looked_at)
    if not signs.errors:
        return ""
    errors = (line for line in split_lines(looked_at) if is_error(line, signs))
    first = next(errors, "")
    if first.startswith("Traceback"):
        # What went wrong stands at its end.
        first = next(errors, first)
    return shorten(first, LINE_CHARACTERS)


def _last_line(text: str) -> str:
    for start, end in reversed([*line_spans(end_of := text[-ENDS_READ:])]):
        line = fold(end_of[start:end])
        if not _BORING.fullmatch(line) and not _EXIT.match(line.strip("[](){}<> ")):
            return shorten(line, LINE_CHARACTERS)
    return ""


def _answering_leaves(text: str) -> list[str]:
    """Return the fields of a JSON result that look like its answer; of a short text, all of it."""
    leaves = [printable(text[start:end]) for start, end in leaf_spans(text)]
    if leaves:
        best = [leaf for leaf in leaves if _ANSWERING.match(leaf) or is_error(leaf)] or leaves
        return [shorten(leaf, LINE_CHARACTERS) for leaf in best[:MAX_LEAVES]]
    folded = printable(text)
    return [shorten(folded, LINE_CHARACTERS)] if folded else []
