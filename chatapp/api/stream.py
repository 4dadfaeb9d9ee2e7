"""Server-sent events of a turn: message, delta, tool_call, done, error, and the backend's own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from django.http import StreamingHttpResponse
from rest_framework.utils.encoders import JSONEncoder

from chatapp.api.serializers import MessageSerializer
from chatapp.conf import chatapp_settings
from chatapp.models import Message
from chatapp.turns.service import BegunTurn, TurnResult
from chatapp.turns.streaming import Event, EventQueue, start_turn

HEARTBEAT = b": still working\n\n"


def stream_turn(begun: BegunTurn, queue: EventQueue) -> StreamingHttpResponse:
    """Finish the turn in its own thread and return its events as they come."""
    start_turn(begun, queue)
    response = StreamingHttpResponse(_events(queue), content_type="text/event-stream")
    response["Cache-Control"] = "no-cache"
    response["X-Accel-Buffering"] = "no"
    return response


async def _events(queue: EventQueue) -> AsyncIterator[bytes]:
    heartbeat = chatapp_settings.heartbeat_seconds
    async with aclosing(queue.read(heartbeat=heartbeat)) as events:
        async for event in events:
            yield HEARTBEAT if event is None else _encode(event)


def _encode(event: Event) -> bytes:
    body = json.dumps(as_json(event.payload), cls=JSONEncoder, ensure_ascii=False)
    return f"event: {event.name}\ndata: {body}\n\n".encode("utf-8", "replace")


def as_json(payload: dict[str, Any]) -> dict[str, Any]:
    """Return an event's payload with rows and results as the API writes them."""
    if isinstance(payload.get("result"), TurnResult):
        return turn_json(payload["result"])
    if isinstance(payload.get("message"), Message):
        return dict(MessageSerializer(payload["message"]).data)
    return payload


def turn_json(result: TurnResult) -> dict[str, Any]:
    """Return a finished turn as the API answers it."""
    return {
        "messages": MessageSerializer(result.stored, many=True).data,
        "answer": MessageSerializer(result.answer).data,
        "context": result.context.account.as_dict(),
        "run": result.context.run_id,
    }
