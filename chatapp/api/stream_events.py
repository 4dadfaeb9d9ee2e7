"""The events of a streamed turn, as the OpenAPI schema describes them: name, data, example.

`data` of each event is JSON as a text. An app whose context backend sends news of its own names
their events in its Extension (`stream_events`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.module_loading import import_string
from drf_spectacular.extensions import OpenApiSerializerExtension
from rest_framework import serializers

from chatapp.api.serializers import LeftOutSerializer, MessageSerializer, TurnResultSerializer
from chatapp.api.wire_schema import Schema, own_component
from chatapp.extensions import registered
from chatapp.llm.error_kinds import ErrorKind

# How a stream ends that did not get as far as a model.
_ENDS = (
    "nothing_to_answer",
    "turn_in_progress",
    "conflict",
    "busy",
    "unavailable",
    "answer_not_stored",
    "internal_error",
)
THOUGHTS = "reasoning"
TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """One event: when it comes, and its data as a JSON schema or a serializer."""

    name: str
    description: str
    data: Schema | type[serializers.Serializer[Any]]
    example: Mapping[str, Any]


def fields_of_event(**properties: Schema) -> Schema:
    """Return the schema of data whose fields are always there."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_ERROR_CODE: Schema = {"enum": [kind.value for kind in ErrorKind]}
BUILT_IN: tuple[StreamEvent, ...] = (
    StreamEvent(
        name="message",
        description="A message of the request was stored. First, once for each message.",
        data=MessageSerializer,
        example={"id": "3779…", "sequence_id": "3.000000", "role": "user", "content": "And then?"},
    ),
    StreamEvent(
        name="delta",
        description="A piece of the answer's text.",
        data=fields_of_event(text=TEXT),
        example={"text": "The "},
    ),
    StreamEvent(
        name=THOUGHTS,
        description="A piece of the model's thoughts; never a part of the text.",
        data=fields_of_event(text=TEXT),
        example={"text": "They want the shortest way."},
    ),
    StreamEvent(
        name="tool_call",
        description="A piece of a tool call. Pieces of one call share `index`.",
        data=fields_of_event(index=COUNT, id=TEXT, name=TEXT, arguments_delta=TEXT),
        example={"index": 0, "id": "call_1", "name": "weather", "arguments_delta": '{"city"'},
    ),
    StreamEvent(
        name="retry",
        description="The server is busy; the same request goes out again after a while.",
        data=fields_of_event(
            code=_ERROR_CODE, text=TEXT, attempt=COUNT, wait_seconds={"type": "number"}
        ),
        example={
            "code": "rate_limited",
            "text": "The model server asks to slow down. It is asked again in 2.0 seconds.",
            "attempt": 0,
            "wait_seconds": 2.0,
        },
    ),
    StreamEvent(
        name="change",
        description="The request was changed after a refusal.",
        data=fields_of_event(code=TEXT, text=TEXT),
        example={"code": "output_lowered", "text": "A shorter answer was asked for."},
    ),
    StreamEvent(
        name="left_out",
        description="The request that goes out now lacks a part of the conversation, and no "
        "summary tells it. `first` and `last` are the places of those messages.",
        data=LeftOutSerializer,
        example={
            "messages": 12,
            "first": "3",
            "last": "14",
            "tokens": 9300,
            "why": "halve_history",
        },
    ),
    StreamEvent(
        name="reset",
        description="The deltas so far do not count: the answer starts anew, or, with the code "
        f"`{THOUGHTS}`, they were thoughts.",
        data=fields_of_event(code={"enum": [THOUGHTS, *_ERROR_CODE["enum"]]}),
        example={"code": THOUGHTS},
    ),
    StreamEvent(
        name="not_stored",
        description="The database does not take the answer, which is told here whole. With "
        "`is_kept` a file on the server holds it, and it is stored later under this id; else this "
        "is the only copy. `error` follows.",
        data=fields_of_event(answer={"type": "object"}, is_kept={"type": "boolean"}),
        example={
            "answer": {"id": "3779…", "role": "assistant", "content": "The answer."},
            "is_kept": True,
        },
    ),
    StreamEvent(
        name="done",
        description="The end, once: the turn as it is answered without a stream.",
        data=TurnResultSerializer,
        example={
            "messages": ["…"],
            "answer": {"content": "…"},
            "context": {},
            "run": None,
            "left_out": None,
            "events": [],
        },
    ),
    StreamEvent(
        name="error",
        description="The end, once, instead of `done`. What was sent is stored.",
        data=fields_of_event(code={"enum": [*_ERROR_CODE["enum"], *_ENDS]}, detail=TEXT),
        example={
            "code": "timeout",
            "detail": "The model server did not answer in time. Try again later.",
        },
    ),
)


def all_events() -> list[StreamEvent]:
    """Return every event that a stream may hold, the end last."""
    added: list[StreamEvent] = []
    for extension in registered():
        if extension.stream_events:
            added += import_string(extension.stream_events)
    return [*BUILT_IN[:-2], *added, *BUILT_IN[-2:]]


class TurnEventSerializer(serializers.Serializer[Any]):
    """Stands for one event of a stream in the schema; nothing is written by it."""


class TurnEvents(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """Describes a stream event by event: each is one form of the component `TurnEvent`."""

    target_class = TurnEventSerializer

    def map_serializer(self, auto_schema: Any, direction: Any) -> Schema:
        """Return the schema of one event."""
        events = all_events()
        return {
            "description": _words(events),
            "oneOf": [_component(auto_schema, event) for event in events],
        }


def _words(events: Sequence[StreamEvent]) -> str:
    lines = [f"* `{event.name}`: {event.description}" for event in events]
    return "\n".join(
        [
            "One event of a stream: its name, and its data as JSON. Clients should pass over names "
            "that they do not know; lines that begin with a colon are signs of life.",
            "",
            *lines,
        ]
    )


def _component(auto_schema: Any, event: StreamEvent) -> Schema:
    """Return a reference to the event's own component, which is made when it is missing."""
    name = f"{event.name.title().replace('_', '')}Event"
    data = event.data
    if not isinstance(data, dict):
        data = auto_schema.resolve_serializer(data, "response").ref
    text = json.dumps(event.example, ensure_ascii=False)
    schema = {
        "type": "object",
        "description": event.description,
        "properties": {
            "event": {"const": event.name},
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": data,
                "examples": [text],
            },
        },
        "required": ["event", "data"],
        "examples": [{"event": event.name, "data": text}],
    }
    return own_component(auto_schema, name, schema)
