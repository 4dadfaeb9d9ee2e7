"""`event`: one structured log line for each decision, to be searched and counted.

A line holds ids, names of rules and numbers, and never a word of a conversation.
"""

from __future__ import annotations

import json
import logging
import re
from uuid import UUID

logger = logging.getLogger("compaction.events")

Field = str | int | float | UUID | None

# What is longer is no name; error texts of servers may quote what was said.
LONGEST_VALUE_CHARS = 100
DECIMALS = 3
_PLAIN = re.compile(r"[A-Za-z0-9_.:/+@-]+")
# A record's own attributes cannot be given again.
_TAKEN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "event"}


def event(
    name: str,
    *,
    session: object = None,
    branch: object = None,
    run: object = None,
    reason: str = "",
    level: int = logging.INFO,
    **fields: Field,
) -> None:
    """Log a decision: `run_ended session=… run=… reason=message_limit seconds=1.2`.

    Session, branch and run are rows or ids. Fields without a value are left out. The record has the
    same fields as attributes, for formatters that write JSON (LOG_FORMAT).
    """
    if not logger.isEnabledFor(level):
        return
    given: dict[str, object] = {"session": session, "branch": branch, "run": run}
    given = {key: getattr(one, "pk", one) for key, one in given.items()}
    given |= {"reason": reason or None, **fields}
    known = {key: _value(value) for key, value in given.items() if value is not None}
    line = " ".join([_quoted(name), *(f"{_quoted(key)}={_text(known[key])}" for key in known)])
    shown = {f"field_{key}" if key in _TAKEN else key: value for key, value in known.items()}
    # The line is no format: a percent sign in it is itself.
    logger.log(level, "%s", line, extra={"event": name, **shown}, stacklevel=2)


def _value(value: object) -> str | int | float | bool:
    """Return a value as it is shown; of what is neither name nor number only its type's name."""
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return round(value, DECIMALS)
    if isinstance(value, str | UUID):
        return str(value)[:LONGEST_VALUE_CHARS]
    return type(value).__name__


def _text(value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    """Return a text that is one word of the line: quoted, with escapes, unless it is plain."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
