"""Hooks of a third party: the example of docs/hooks.md, and others that answer all kinds of things.

The example keeps an index of artifacts: whatever files the assistant wrote stay named through every
compaction, with the number of times, although no summary is asked to remember them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from compaction.hooks import (
    BranchAnswer,
    BranchPayload,
    Cancel,
    CompactPayload,
    Replacement,
    RequestFacts,
)

HERE = __name__
MOST_LINE_CHARS = 120


class ArtifactIndex:
    """Summarises by an index: files that were written, and each question's first line."""

    def before_compact(self, payload: CompactPayload) -> Replacement | None:
        """Return the index of all files so far; None, the default, where none was written."""
        written = dict(payload.previous_details.get("artifacts", {}))
        for message in payload.messages:
            for name, arguments in message.tool_calls:
                path = _path_of(arguments) if name == "write" else ""
                if path:
                    written[path] = written.get(path, 0) + 1
        if not written:
            return None
        asked = list(payload.previous_details.get("asked", []))
        asked += [
            one.text.splitlines()[0][:MOST_LINE_CHARS]
            for one in payload.messages
            if one.role == "user" and one.text.strip()
        ]
        lines = ["Artifacts:"]
        lines += [f"- {path} (written {times} times)" for path, times in sorted(written.items())]
        lines += ["Asked so far:", *(f"- {line}" for line in asked)]
        return Replacement(summary="\n".join(lines), details={"artifacts": written, "asked": asked})


def _path_of(arguments: str) -> str:
    try:
        found = json.loads(arguments)
    except ValueError:
        return ""
    path = found.get("path") if isinstance(found, dict) else None
    return path if isinstance(path, str) else ""


class Scripted:
    """Answers what a test says, and remembers what it was given."""

    compact: Callable[[CompactPayload], Any] | None = None
    branch: Callable[[BranchPayload], Any] | None = None
    request: Callable[[list[dict[str, Any]], RequestFacts], Any] | None = None
    given: list[Any]

    def before_compact(self, payload: CompactPayload) -> Any:
        """Answer before a compaction."""
        type(self).given.append(payload)
        return self.compact(payload) if self.compact else None

    def before_request(self, messages: list[dict[str, Any]], facts: RequestFacts) -> Any:
        """Answer before a request."""
        type(self).given.append(facts)
        return self.request(messages, facts) if self.request else None

    def before_branch_summary(self, payload: BranchPayload) -> Any:
        """Answer before a switch to another branch."""
        type(self).given.append(payload)
        return self.branch(payload) if self.branch else None


class First(Scripted):
    """The one that is asked first."""


class Second(Scripted):
    """The one that is asked behind it."""


class OldName:
    """Knows the hook of a branch's summary by the name that coding agents use."""

    def session_before_tree(self, payload: BranchPayload) -> BranchAnswer:
        """Name the branch."""
        return BranchAnswer(label="from a hook")


class OlderName:
    """Knows it by the name of a fork."""

    def session_before_fork(self, payload: BranchPayload) -> BranchAnswer:
        """Name the branch."""
        return BranchAnswer(label="from a hook")


class Nothing:
    """Has none of the names that are asked."""


class Slow:
    """Never comes to an end."""

    def before_compact(self, payload: CompactPayload) -> Cancel:
        """Sleep far longer than anybody waits."""
        time.sleep(30)
        return Cancel("too late")


class Broken:
    """Cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("no such service")

    def before_compact(self, payload: CompactPayload) -> None:
        """Never be asked."""
