"""The events that compaction sends while a turn is streamed, for the OpenAPI schema."""

from __future__ import annotations

from typing import Any

from chatapp.api.stream_events import TEXT, StreamEvent
from compaction.models import CompactionRun, RecoveryStep

_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_COUNT_OR_NULL: dict[str, Any] = {"type": ["integer", "null"], "minimum": 0}
_ID: dict[str, Any] = {"type": "string", "format": "uuid"}
_RUN: dict[str, Any] = {
    "run": _ID,
    "status": {"enum": CompactionRun.Status.values},
    "tokens_before": _COUNT_OR_NULL,
    "tokens_after": _COUNT_OR_NULL,
    "error": TEXT,
    "hold_broken": {
        "const": True,
        "description": "There where it summarised what a person held: the request did not fit.",
    },
}
_ACTIONS = {"enum": RecoveryStep.Action.values}
_STEP: dict[str, Any] = {
    "action": _ACTIONS,
    "rung": _ACTIONS | {"description": "Older name of action, for one version."},
    "outcome": {"enum": RecoveryStep.Outcome.values},
    "branch": _ID | {"description": "The branch that repeats this one with shorter results."},
    "results_cut": _COUNT,
    "characters_cut": _COUNT,
    "groups": _COUNT | {"description": "How many of the newest groups are sent."},
}


def _phase(phase: str, description: str, **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": phase,
        "type": "object",
        "description": description,
        "properties": {"phase": {"const": phase}, "reason": TEXT, **properties},
        "required": ["phase", "reason"],
        "additionalProperties": False,
    }


STREAM_EVENTS = [
    StreamEvent(
        name="compaction",
        description="The turn compacts, waits for a worker that does, or recovers from a refusal.",
        data={
            "oneOf": [
                _phase("started", "A compaction or a recovery step begins."),
                _phase("waiting", "A worker does just what the request needs."),
                _phase(
                    "finished",
                    "It ended: a compaction tells of its run, a recovery step what it did.",
                    **_RUN,
                    **_STEP,
                ),
            ]
        },
        example={
            "phase": "finished",
            "reason": "context_tokens",
            "run": "5b2f0b3e-7d2b-4f0e-9a53-5d5f1f5c7f11",
            "status": "succeeded",
            "tokens_before": 7900,
            "tokens_after": 2100,
            "error": "",
        },
    ),
]
