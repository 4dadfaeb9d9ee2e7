"""Turns and what they send: sessions/{id}/turns/ and sessions/{id}/context/."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle, ScopedRateThrottle

from chatapp.api.answers import ContextSerializer, TurnResultSerializer
from chatapp.api.base import AnyAccept, SessionView
from chatapp.api.messages import IDEMPOTENCY, idempotency_key
from chatapp.api.serializers import TurnSerializer
from chatapp.api.stream import stream_turn, turn_json
from chatapp.context.backend import context_backend, silent
from chatapp.llm.responses_wire import items_of
from chatapp.models import Session
from chatapp.turns.service import Turn, begin_turn, finish_turn
from chatapp.turns.streaming import Event, EventQueue


class TurnView(SessionView):
    """Store what came in, answer it. `stream: true` answers with server-sent events."""

    content_negotiation_class: type[BaseContentNegotiation] = AnyAccept
    # TURN_RATE, such as 30/min; without it there is no limit.
    throttle_classes: Sequence[type[BaseThrottle]] = [ScopedRateThrottle]
    throttle_scope = "turns"

    @extend_schema(
        request=TurnSerializer,
        responses={
            200: TurnResultSerializer,
            (200, "text/event-stream"): OpenApiTypes.STR,
            502: OpenApiTypes.OBJECT,
        },
        parameters=[IDEMPOTENCY],
    )
    def post(self, request: Request, session_id: str) -> HttpResponseBase:
        """Run one turn; a second one of the session gets 409 while it runs."""
        session = self.get_session()
        serializer = TurnSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        wants_stream = serializer.validated_data["stream"]
        queue = EventQueue()

        def emit(name: str, payload: dict[str, Any]) -> None:
            queue.put(Event(name=name, payload=payload))

        # Up to here every failure has its own status, also when a stream was asked for.
        begun = begin_turn(
            Turn(
                session=session,
                drafts=serializer.validated_data["messages"],
                client_key=idempotency_key(request),
                stream=wants_stream,
                emit=emit if wants_stream else silent,
            )
        )
        if wants_stream:
            return stream_turn(begun, queue)
        return Response(turn_json(finish_turn(begun)))


class ContextView(SessionView):
    """Exactly what the next request would send; changes nothing."""

    @extend_schema(
        responses=ContextSerializer,
        parameters=[
            OpenApiParameter(
                "wire",
                str,
                enum=list(Session.Api.values),
                description="The wire format to show; without it, the session's own.",
            )
        ],
    )
    def get(self, request: Request, session_id: str) -> Response:
        """Return the messages, byte for byte, and where their tokens go."""
        session = self.get_session()
        wire = request.query_params.get("wire", session.api)
        if wire not in Session.Api.values:
            raise ValidationError({"wire": [f"One of {', '.join(Session.Api.values)}."]})
        context = context_backend.preview(session)
        sent = {"messages": context.messages}
        if wire == Session.Api.RESPONSES:
            sent = {"input": items_of(context.messages)}
        return Response(sent | {"account": context.account.as_dict(), "facts": context.facts})
