"""Messages: sessions/{id}/messages/ and messages/{id}/."""

from __future__ import annotations

from uuid import UUID

from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from chatapp import transcript
from chatapp.api.base import (
    MAX_KEY_CHARS,
    KnownQueryView,
    SessionView,
    TranscriptPagination,
    message_of,
)
from chatapp.api.message_json import stored_rows, written
from chatapp.api.serializers import (
    AppendSerializer,
    CompactMessageSerializer,
    MessageSerializer,
    PinSerializer,
    QuietMessageSerializer,
    StoredSerializer,
)
from chatapp.context.backend import context_backend, notify
from chatapp.models import Branch, Message, Session
from chatapp.selectors import active_branch, whole_content

_VERBOSITY = {
    "default": MessageSerializer,
    "compact": CompactMessageSerializer,
    "quiet": QuietMessageSerializer,
}
_ORDERS = {"oldest": ("position", "id"), "newest": ("-position", "-id")}
IDEMPOTENCY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="Sent again with the same key, the same request is stored once.",
)


def idempotency_key(request: Request) -> str | None:
    """Return the request's Idempotency-Key; refuse one that cannot be stored."""
    key = request.headers.get("Idempotency-Key", "").strip()
    if len(key) > MAX_KEY_CHARS:
        raise ValidationError({"Idempotency-Key": [f"At most {MAX_KEY_CHARS} characters."]})
    if not key.isprintable():
        raise ValidationError({"Idempotency-Key": ["Must be printable characters."]})
    return key or None


class MessageList(SessionView):
    """A branch's messages in order, all that was ever stored; POST appends one or many."""

    pagination_class = TranscriptPagination
    query = ("branch", "verbosity", "order")

    @extend_schema(
        responses=MessageSerializer(many=True),
        parameters=[
            OpenApiParameter("branch", str, description="Another branch than the active one."),
            OpenApiParameter("verbosity", str, enum=list(_VERBOSITY)),
            OpenApiParameter("order", str, enum=list(_ORDERS)),
        ],
    )
    def get(self, request: Request, session_id: str) -> Response:
        """Return a page of messages, placeholders included: they mark where summaries stand."""
        session = self.get_session()
        branch = self._branch(session, request.query_params.get("branch"))
        verbosity = request.query_params.get("verbosity", "default")
        if verbosity not in _VERBOSITY:
            raise ValidationError({"verbosity": [f"One of {', '.join(_VERBOSITY)}."]})
        fields = _VERBOSITY[verbosity].Meta.fields
        order = request.query_params.get("order", "oldest")
        if order not in _ORDERS:
            raise ValidationError({"order": [f"One of {', '.join(_ORDERS)}."]})
        pages = self.pagination_class()
        pages.ordering = _ORDERS[order]
        rows = stored_rows(Message.objects.filter(pages.path_q(branch, request)), fields)
        page = pages.paginate_queryset(rows, request, view=self) or []
        return pages.get_paginated_response(written(page, fields))

    @extend_schema(
        request=AppendSerializer,
        responses={201: StoredSerializer},
        parameters=[IDEMPOTENCY],
    )
    def post(self, request: Request, session_id: str) -> Response:
        """Append messages to the active branch; all or none."""
        session = self.get_session()
        serializer = AppendSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        rows = transcript.append(
            active_branch(session),
            serializer.validated_data["messages"],
            client_key=idempotency_key(request),
        )
        notify(context_backend.message_stored, session, rows[-1])
        body = StoredSerializer({"messages": rows}).data
        return Response(body, status=status.HTTP_201_CREATED)

    def _branch(self, session: Session, branch_id: str | None) -> Branch:
        if not branch_id:
            return session.branch
        try:
            key = UUID(branch_id)
        except ValueError as error:
            raise ValidationError({"branch": ["Must be a branch's id."]}) from error
        found = Branch.objects.filter(session=session, pk=key).first()
        if found is None:
            raise Http404
        return found


class MessageDetail(KnownQueryView):
    """One message: GET reads it; PATCH pins or unpins it, and nothing else."""

    query = ("whole",)

    @extend_schema(
        responses=MessageSerializer,
        parameters=[
            OpenApiParameter("whole", bool, description="A cut tool result as it came in.")
        ],
    )
    def get(self, request: Request, message_id: UUID) -> Response:
        """Return the message; with `whole=true` a cut tool result has its whole content."""
        message = message_of(request.user, message_id)
        body = dict(MessageSerializer(message).data)
        if request.query_params.get("whole") == "true":
            body["content"] = whole_content(message)
        return Response(body)

    @extend_schema(request=PinSerializer, responses=MessageSerializer)
    def patch(self, request: Request, message_id: UUID) -> Response:
        """Pin or unpin a message and with it its tool calls and results."""
        message = message_of(request.user, message_id)
        serializer = PinSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        transcript.set_pinned(message, serializer.validated_data["pinned"])
        message.refresh_from_db()
        return Response(MessageSerializer(message).data)
