"""How much of a conversation is told: all of it, a line for each step, or questions and answers.

    compact   questions and the last answer of each turn whole; a call, a result, an answer on the
              way, a note, a summary's mark one line each, of at most MAX_LINE characters
    quiet     questions and last answers alone; a turn without one is told by its state

A turn goes from a question to the next one. Its last answer is the last message of the assistant
that calls no tool. Sizes are code points of text; images have none.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from chatapp.messages.wire import CUT_FROM, LEFT_OUT, Cleaner, content_of, text_of

MAX_LINE = 120
MAX_NAME = 40
"""The most characters of a tool's name in a line: room for an argument and the sizes is left."""
CALLS, ANSWERS = "→", "←"
ELLIPSIS = "…"
_IS_ERROR = "is_error"
# How a tool says in words that it failed, where its client does not: at the very beginning.
_FAILED = re.compile(
    r"\s*(?:<(?:tool_use_)?error>|traceback \(most recent call last\)"
    r"|(?:fatal )?\w*(?:error|exception)\s*:|fatal\s*:)",
    re.IGNORECASE,
)
_BEGINNING = 200


class Verbosity(enum.StrEnum):
    """How much is told."""

    DEFAULT = "default"
    COMPACT = "compact"
    QUIET = "quiet"


class TurnState(enum.StrEnum):
    """What became of a question: answered; overtaken by the next one; or nothing as yet."""

    ANSWERED = "answered"
    INTERRUPTED = "interrupted"
    CONTINUES = "continues"


class Speech(Protocol):
    """The columns of a stored message that decide what is told of it."""

    role: str
    kind: str
    content: str | None
    parts: Any
    tool_calls: Any
    tool_call_id: str
    tool_name: str
    reasoning: str
    metadata: dict[str, Any]
    vendor: Any


class Mark(NamedTuple):
    """What a message is in its turn; `state` is that of the turn, for its question alone."""

    is_whole: bool
    state: TurnState | None = None


def is_question(role: str, kind: str) -> bool:
    """Whether a user begins a turn with it: notes are sent as a user's, and ask nothing."""
    return role == "user" and kind == "message"


def is_answer(role: str, kind: str, calls: Any) -> bool:
    """Whether it may be the last answer of its turn: the assistant speaks and calls no tool."""
    return role == "assistant" and kind == "message" and not calls


def marks_of(rows: Sequence[Speech], *, next_role: str | None) -> list[Mark]:
    """Return for each of some rows in a row, oldest first, what it is in its turn.

    `next_role` is the role of the first question or answer without calls behind them: `user`,
    `assistant`, or None where none follows. It decides about the turn that the rows end in.
    """
    marks: list[Mark] = []
    for row in reversed(rows):
        if is_question(row.role, row.kind):
            marks.append(Mark(True, _state(next_role)))
            next_role = "user"
        elif is_answer(row.role, row.kind, row.tool_calls):
            marks.append(Mark(next_role != "assistant"))
            next_role = "assistant"
        else:
            marks.append(Mark(False))
    return marks[::-1]


def _state(next_role: str | None) -> TurnState:
    if next_role is None:
        return TurnState.CONTINUES
    return TurnState.ANSWERED if next_role == "assistant" else TurnState.INTERRUPTED


# --- lines ----------------------------------------------------------------------------------------


def call_names(rows: Sequence[Speech]) -> dict[str, str]:
    """Return the names of the tools that the rows call, by the ids of the calls."""
    return {
        str(call.get("id")): call["function"]["name"]
        for row in rows
        for call in row.tool_calls or ()
    }


def lines_of(row: Speech, names: Mapping[str, str], *, most: int = MAX_LINE) -> list[str]:
    """Return what is told of a message that is not told whole: a line for its text, one a call.

    Each has at most `most` characters, as far as names and sizes leave it so.

    `names` are those of call_names. A result of another call is named by the call's id.
    """
    text = text_of(content_of(row))
    if row.role == "tool":
        name = row.tool_name or names.get(row.tool_call_id) or row.tool_call_id or "unnamed call"
        size = _size(text, row.metadata.get(CUT_FROM))
        return [_line(f"{ANSWERS} {_name(name)}", "", size, _outcome(row, text), most=most)]
    if row.kind == "placeholder":
        summary = str(getattr(row, "summary", "") or "") or text
        return [_line("summary:", summary, _size(summary), most=most)]
    if row.kind == "note" or row.role != "assistant":
        head = "note:" if row.kind == "note" else f"{row.role}:"
        return [_line(head, text, _size(text), most=most)]
    is_told = text.strip() or not row.tool_calls
    own = [_line("", text, _size(text), most=most)] if is_told else []
    return own + [_call_line(call, most) for call in row.tool_calls or ()]


def without_words(metadata: Mapping[str, Any]) -> str:
    """Return what an answer was given without, in a few words; empty for nothing."""
    left_out = metadata.get(LEFT_OUT)
    if not isinstance(left_out, Mapping):
        return ""
    count = left_out.get("messages")
    messages = f"{count} message{'' if count == 1 else 's'}"
    return (
        f"given without {messages} of the conversation, "
        f"{left_out.get('first')} to {left_out.get('last')}"
    )


def failed(row: Speech, text: str) -> bool:
    """Whether a result tells of a failure: by what its client said of it, or by its first words."""
    extra = row.metadata.get("extra")
    said = extra.get(_IS_ERROR) if isinstance(extra, Mapping) else None
    is_told = row.metadata.get(_IS_ERROR) is True or said is True
    return is_told or _FAILED.match(text[:_BEGINNING]) is not None


def first_argument(arguments: str) -> str:
    """Return the first argument of a call on one line: its value, or all where it is no JSON.

    JSON can escape what no text that is sent may hold: half of a character's pair.
    """
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return one_line(arguments)
    if isinstance(value, dict):
        value = next(iter(value.values()), "")
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return one_line(Cleaner().text(value))


def one_line(text: str) -> str:
    """Return a text with every white space, line ends of any kind too, as one space."""
    return " ".join(text.split())


def _outcome(row: Speech, text: str) -> str:
    return "error" if failed(row, text) else "ok"


def _call_line(call: Mapping[str, Any], most: int) -> str:
    function = call["function"]
    arguments = function["arguments"]
    head = f"{CALLS} {_name(function['name'])}"
    return _line(head, first_argument(arguments), _size(arguments), most=most)


def _name(name: str) -> str:
    return _cut(one_line(name), MAX_NAME)


def _size(text: str, cut_from: Any = None) -> str:
    """Return how long a text is, or was before it was cut for storing."""
    size = cut_from if isinstance(cut_from, int) else len(text)
    return f"{size:,} character{'' if size == 1 else 's'}"


def _line(head: str, middle: str, *facts: str, most: int) -> str:
    """Return a line of at most so many characters, in which the middle gives way."""
    tail = " · ".join(facts)
    room = most - len(f"{head}  · {tail}")
    # Of a long text only what can be in the line is looked at.
    said = f"{head} {_cut(one_line(middle[: 20 * MAX_LINE]), room)}".strip()
    return f"{said} · {tail}" if said else tail


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most - 1].rstrip()}{ELLIPSIS}" if most > 1 else ""
