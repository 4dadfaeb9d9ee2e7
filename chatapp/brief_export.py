"""Exports to be read: the steps of each turn in lines, or questions and answers alone.

They are conversations like any other, so that every form writes them, and they say so in their
metadata: they do not import back equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from typing import Any

from chatapp.exports import read_path
from chatapp.formats import Export
from chatapp.formats.records import Conversation, ImportedMessage, MessageLine
from chatapp.messages.verbosity import (
    TurnState,
    Verbosity,
    call_names,
    is_question,
    lines_of,
    marks_of,
    without_words,
)
from chatapp.messages.wire import LEFT_OUT
from chatapp.models import Branch, Message, Session
from chatapp.selectors import TURN_MARKS


def export_briefly(
    sessions: Iterable[Session], export: Export, verbosity: Verbosity
) -> Iterator[str]:
    """Yield sessions as text in one of `all_exports`, told as briefly as `verbosity` says."""
    return export.write(brief_conversation(session, verbosity) for session in sessions)


def brief_conversation(session: Session, verbosity: Verbosity) -> Conversation:
    """Return a session's active branch told briefly, without tools and the parts of apps.

    What is told in lines is one message of the assistant for all that stands between two whole
    ones; so is, where `quiet` finds no answer to a question, the state of its turn.
    """
    is_quiet = verbosity is Verbosity.QUIET
    return Conversation(
        format="openai_chat",
        identity=f"palimpsest:{session.pk}:{verbosity}",
        title=session.title,
        system_prompt="" if is_quiet else session.system_prompt,
        messages=MessageLine(lambda: _messages(session.branch, is_quiet=is_quiet)),
        metadata={"verbosity": str(verbosity)},
    )


def _messages(branch: Branch, *, is_quiet: bool) -> Iterator[ImportedMessage]:
    marks = Message.objects.filter(TURN_MARKS) if is_quiet else None
    rows = chain.from_iterable(read_path(branch, marks))
    parent: str | None = None
    for turn in _turns(rows):
        for key, wire in _told(turn, is_quiet=is_quiet):
            yield ImportedMessage(key=key, parent=parent, wire=wire)
            parent = key


def _turns(rows: Iterable[Message]) -> Iterator[tuple[list[Message], bool]]:
    """Yield the rows of each turn, and whether another follows: a turn at a time is held."""
    turn: list[Message] = []
    for row in rows:
        if turn and is_question(row.role, row.kind):
            yield turn, True
            turn = []
        turn.append(row)
    if turn:
        yield turn, False


def _told(
    turn: tuple[list[Message], bool], *, is_quiet: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    rows, is_followed = turn
    names = call_names(rows)
    marks = marks_of(rows, next_role="user" if is_followed else None)
    for is_whole, marked in groupby(zip(rows, marks, strict=True), lambda one: one[1].is_whole):
        found = list(marked)
        if is_whole:
            for row, _ in found:
                yield str(row.pk), _whole(row)
                if without := without_words(row.metadata):
                    yield f"{row.pk}:{LEFT_OUT}", {"role": "assistant", "content": f"[{without}]"}
        elif not is_quiet:
            lines = [line for row, _ in found for line in lines_of(row, names)]
            yield str(found[0][0].pk), {"role": "assistant", "content": "\n".join(lines)}
    state = marks[0].state
    if is_quiet and state in (TurnState.INTERRUPTED, TurnState.CONTINUES):
        yield f"{rows[0].pk}:state", {"role": "assistant", "content": f"[{state}]"}


def _whole(row: Message) -> dict[str, Any]:
    """Return what was said, refusals too, without what only a model's server needs."""
    wire: dict[str, Any] = dict(row.wire())
    return {key: wire[key] for key in ("role", "content", "refusal") if key in wire}
