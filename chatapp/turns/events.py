"""What happened while a turn was answered: news for whoever watches, and for whoever reads later.

A streamed turn tells it as it happens. Every turn's result has it as `events`, and the answer's
metadata keeps the short form, so that a plain turn and an old answer say as much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chatapp.context.assembly import Context
from chatapp.context.backend import Emit
from chatapp.messages.wire import EVENTS, LEFT_OUT

# Pieces of the answer itself, and what was sent: no news about the turn.
_PIECES = frozenset({"message", "delta", "reasoning", "tool_call", "reset"})
LEFT_OUT_EVENT = "left_out"
# Of one turn; recoveries and changes are bounded far below.
MOST_EVENTS = 50
MOST_KEPT = 20
# What the answer's row keeps of an event: codes and numbers, no text and no id.
_KEPT = ("event", "code", "phase", "reason", "action", "status", "outcome", "messages", "why")
# That something began says nothing once it has ended.
_BEGINNINGS = ("started", "waiting")
_LONGEST_KEPT = 80


class EventLog:
    """An Emit that passes news on and remembers them as {"event": name, …}."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._told: Mapping[str, Any] | None = None
        self.events: list[dict[str, Any]] = []

    def __call__(self, name: str, payload: dict[str, Any]) -> None:
        """Remember what is news of the turn, and pass everything on."""
        if name not in _PIECES and len(self.events) < MOST_EVENTS:
            self.events.append({"event": name, **payload})
        self._emit(name, payload)

    def tell_what_is_left_out(self, context: Context) -> None:
        """Say before a request what it goes without, once for the same messages."""
        if context.left_out and context.left_out != self._told:
            self._told = context.left_out
            self(LEFT_OUT_EVENT, dict(context.left_out))


def told_of(context: Context, log: EventLog) -> dict[str, Any]:
    """Return what an answer's metadata says of its turn: what was left out, what happened.

    Nothing of an answer that was given for a whole request, at once.
    """
    events = kept_events(log.events)
    told: dict[str, Any] = {LEFT_OUT: dict(context.left_out)} if context.left_out else {}
    return told | ({EVENTS: events} if events else {})


def kept_events(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what an answer's metadata keeps of a turn's events; what only began is left out."""
    ended = [event for event in events if event.get("phase") not in _BEGINNINGS]
    return [
        {key: _short(event[key]) for key in _KEPT if event.get(key) not in (None, "")}
        for event in ended[:MOST_KEPT]
    ]


def _short(value: Any) -> Any:
    return value[:_LONGEST_KEPT] if isinstance(value, str) else value
