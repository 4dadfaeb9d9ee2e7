"""Turns over HTTP: answered whole, or streamed as server-sent events."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any
from uuid import UUID

from django.http import Http404, StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle, ScopedRateThrottle
from rest_framework.views import APIView

from chatapp.api.base import AnyAccept, SessionView, message_of
from chatapp.api.etags import ETAG, IF_NONE_MATCH, NOT_MODIFIED, tagged
from chatapp.api.incoming import CONTINUE, EDITS, EMPTY_TURN, TurnSerializer
from chatapp.api.json_bytes import as_bytes
from chatapp.api.message_json import message_json, messages_json
from chatapp.api.messages import IDEMPOTENCY, idempotency_key
from chatapp.api.problems import FAILED_TURN
from chatapp.api.query import Kind, QueryParameter
from chatapp.api.serializers import ContextSerializer, TurnResultSerializer
from chatapp.api.stream_events import TurnEventSerializer
from chatapp.conf import chatapp_settings
from chatapp.context.backend import context_backend, silent
from chatapp.messages.wire import LEFT_OUT
from chatapp.models import Message, Session
from chatapp.pools import Pool, answered_in
from chatapp.selectors import rows_before
from chatapp.turns.request import sent_whole
from chatapp.turns.service import StartedTurn, Turn, TurnResult, begin_turn, finish_turn
from chatapp.turns.streaming import Event, EventQueue, start_turn

HEARTBEAT = b": still working\n\n"

logger = logging.getLogger(__name__)


def stream_turn(started: StartedTurn, queue: EventQueue) -> StreamingHttpResponse:
    """Finish the turn in its own thread and return its events as they come."""
    start_turn(started, queue)
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
    return b"event: %b\ndata: %b\n\n" % (event.name.encode(), as_bytes(as_json(event.payload)))


def as_json(payload: dict[str, Any]) -> dict[str, Any]:
    """Return an event's payload with rows and results as the API writes them."""
    if isinstance(payload.get("result"), TurnResult):
        return turn_json(payload["result"])
    if isinstance(payload.get("message"), Message):
        return message_json(payload["message"])
    return payload


def turn_json(result: TurnResult) -> dict[str, Any]:
    """Return a finished turn as the API answers it."""
    return {
        "messages": messages_json(result.stored),
        "answer": message_json(result.answer),
        "context": result.context.account.as_dict(),
        "run": result.context.run_id,
        "left_out": result.answer.metadata.get(LEFT_OUT),
        "events": [dict(event) for event in result.events],
    }


class TurnThrottle(ScopedRateThrottle):
    """Holds users to TURN_RATE; while the cache that counts their turns is away, lets all pass."""

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Whether the turn may begin."""
        try:
            return super().allow_request(request, view)
        except Exception:  # each cache has errors of its own; a rate is checked at the start
            logger.exception("TURN_RATE is not kept: the cache that counts turns is away.")
            return True


@answered_in(Pool.SLOW)
class TurnView(SessionView):
    """Store what came in, answer it. `stream: true` answers with server-sent events."""

    content_negotiation_class: type[BaseContentNegotiation] = AnyAccept
    # TURN_RATE, such as 30/min; without it there is no limit.
    throttle_classes: Sequence[type[BaseThrottle]] = [TurnThrottle]
    throttle_scope = "turns"
    problems = {
        "POST": (
            "turn_in_progress",
            "conflict",
            "nothing_to_answer",
            "key_reused",
            "unknown_model",
            "throttled",
            "too_many_turns",
            "too_much_at_once",
            "answer_not_stored",
            FAILED_TURN,
        )
    }

    @extend_schema(
        summary="Run a turn",
        request=TurnSerializer,
        responses={
            200: TurnResultSerializer,
            (200, "text/event-stream"): TurnEventSerializer,
        },
        parameters=[IDEMPOTENCY],
    )
    def post(self, request: Request, session_id: str) -> HttpResponseBase:
        """Store what came in, ask the model, store its answer.

        With `stream` the answer comes as server-sent events, once nothing is left that could be
        refused at once. A session runs one turn at a time; a second one gets 409. A turn without a
        message needs `continue`. With `edits` the conversation forks before an earlier question and
        goes on there; nothing is lost of the other branch.
        """
        session = self.get_session()
        asked = TurnSerializer.read(request.data)
        wants_stream, goes_on, drafts = asked["stream"], asked[CONTINUE], asked["messages"]
        if not drafts and not goes_on and not _follows_results(session):
            raise ValidationError({"content": [EMPTY_TURN]})
        queue = EventQueue()

        def emit(name: str, payload: dict[str, Any]) -> None:
            queue.put(Event(name=name, payload=payload))

        # Up to here every failure has its own status, also when a stream was asked for.
        started = begin_turn(
            Turn(
                session=session,
                drafts=drafts,
                goes_on=goes_on,
                edits=_edited(request, session, asked[EDITS]),
                client_key=idempotency_key(request),
                stream=wants_stream,
                emit=emit if wants_stream else silent,
            )
        )
        if wants_stream:
            return stream_turn(started, queue)
        return Response(turn_json(finish_turn(started)))


def _edited(request: Request, session: Session, message_id: UUID | None) -> Message | None:
    """Return the message that a turn edits; 404 where it is another session's."""
    if message_id is None:
        return None
    message = message_of(request.user, message_id)
    if message.session_id != session.pk:
        raise Http404
    if not message.is_question:
        raise ValidationError({EDITS: ["Only a user's message can be edited."]})
    return message


def _follows_results(session: Session) -> bool:
    """Whether the last message is a tool's result.

    Results were always posted by themselves, and an empty turn behind them still goes on.
    """
    rows = Message.objects.only("role", "kind").filter(kind=Message.Kind.MESSAGE)
    last = next(iter(rows_before(session.branch, rows, most=1)), None)
    return last is not None and last.role == Message.Role.TOOL


class ContextView(SessionView):
    """Exactly what the next request would send; changes nothing."""

    query = (
        QueryParameter(
            name="wire",
            choices=Session.Api.values,
            description="The wire format to show; without it, the session's own.",
        ),
        QueryParameter(
            name="whole",
            kind=Kind.FLAG,
            description="Show all messages of a request however many there are: that takes as "
            "long as reading them. Without it, `not_shown` says what a long one leaves out here.",
        ),
    )
    problems = {"GET": ("unknown_model",)}

    @extend_schema(
        summary="Show what the next request sends",
        responses={200: ContextSerializer, 304: NOT_MODIFIED},
        parameters=[IF_NONE_MATCH, ETAG],
    )
    def get(self, request: Request, session_id: str) -> Response:
        """Return the messages, byte for byte, and where their tokens go. Nothing is changed.

        Of a long history that nobody summarised, the newest messages are shown: `not_shown` says
        how many more are sent, from where to where, and their tokens, which the account counts.
        """
        session = self.get_session()
        is_whole = self.asked.get("whole", False)
        read = context_backend.preview if is_whole else context_backend.preview_part
        context = read(session)
        sent = sent_whole(session, context, self.asked.get("wire", session.api))
        more = context.not_shown
        told = sent | {
            "account": context.account.as_dict(),
            "facts": context.facts,
            "not_shown": more.as_dict() if more else None,
        }
        # A tag of the bytes alone is sure: what decides them is not in a few rows. Holds, back-offs
        # and the cache's clock end with time, hooks may say anything, and pins, memories, runs and
        # edited summaries change without the branch's head.
        return tagged(request, as_bytes(told))
