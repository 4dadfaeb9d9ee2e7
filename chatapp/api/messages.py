"""Messages: sessions/{id}/messages/ and messages/{id}/."""

from __future__ import annotations

import re
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
from chatapp.api.brief import VERBOSITY, BriefPagination
from chatapp.api.etags import ETAG, IF_NONE_MATCH, NOT_MODIFIED, tagged
from chatapp.api.incoming import AppendSerializer
from chatapp.api.json_bytes import as_bytes
from chatapp.api.message_json import message_json, messages_json
from chatapp.api.message_pages import FIELDS, StoredPagination
from chatapp.api.query import Kind, QueryParameter
from chatapp.api.serializers import (
    AnyMessageSerializer,
    MessageSerializer,
    PinnedMessageSerializer,
    PinSerializer,
    StoredSerializer,
)
from chatapp.context.backend import context_backend, notify, warning_of_pins
from chatapp.messages.verbosity import Verbosity
from chatapp.models import Branch, Session
from chatapp.selectors import active_branch, whole_content

_ORDERS = {"oldest": ("position", "id"), "newest": ("-position", "-id")}
# What can stand in a header without a question of its encoding.
_KEY = re.compile("[ -~]*")
IDEMPOTENCY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "pattern": f"^[!-~]([ -~]{{0,{MAX_KEY_CHARS - 2}}}[!-~])?$"},
    OpenApiParameter.HEADER,
    description="Sent again with the same key, the same body is stored once. "
    f"1 to {MAX_KEY_CHARS} characters of ASCII.",
)


def idempotency_key(request: Request) -> str | None:
    """Return the request's Idempotency-Key; refuse one that cannot be stored."""
    if "Idempotency-Key" not in request.headers:
        return None
    key = request.headers["Idempotency-Key"].strip()
    if not key:
        problem = "Is blank. Send a key, or leave the header out."
    elif len(key) > MAX_KEY_CHARS:
        problem = f"At most {MAX_KEY_CHARS} characters."
    elif _KEY.fullmatch(key) is None:
        problem = "Must be printable characters of ASCII."
    else:
        return key
    raise ValidationError({"Idempotency-Key": [problem]})


class MessageList(SessionView):
    """A branch's messages in order, all that was ever stored; POST appends one or many."""

    pagination_class = TranscriptPagination
    query = (
        QueryParameter(
            name="branch", kind=Kind.ID, description="Another branch than the active one."
        ),
        VERBOSITY,
        QueryParameter(
            name="fields",
            choices=[name for name in FIELDS if name],
            description="`light`: who said what; `sizes`: ids, places and sizes, no text.",
        ),
        QueryParameter(
            name="order", choices=list(_ORDERS), description="`newest` starts at the end."
        ),
    )
    problems = {"POST": ("conflict", "key_reused")}

    @extend_schema(
        summary="List a branch's messages",
        responses={200: AnyMessageSerializer(many=True), 304: NOT_MODIFIED},
        parameters=[IF_NONE_MATCH, ETAG],
    )
    def get(self, request: Request, session_id: str) -> Response:
        """Return a page of messages, placeholders included: they mark where summaries stand."""
        session = self.get_session()
        branch = self._branch(session, self.asked.get("branch"))
        order = _ORDERS[self.asked.get("order", "oldest")]
        verbosity = Verbosity(self.asked.get("verbosity", Verbosity.DEFAULT))
        if verbosity is not Verbosity.DEFAULT:
            if "fields" in self.asked:
                raise ValidationError({"fields": ["Leave it out, or `verbosity`: each shortens."]})
            brief = BriefPagination()
            brief.ordering, brief.verbosity = order, verbosity
            told = brief.told_page(branch, request, self)
            return tagged(request, as_bytes(brief.get_paginated_response(told).data))
        pages = StoredPagination()
        pages.ordering = order
        return pages.answer(branch, request, self, self.asked.get("fields", ""))

    @extend_schema(
        summary="Append messages",
        request=AppendSerializer,
        responses={201: StoredSerializer},
        parameters=[IDEMPOTENCY],
    )
    def post(self, request: Request, session_id: str) -> Response:
        """Append messages to the active branch; all or none."""
        session = self.get_session()
        drafts = AppendSerializer.read(request.data)["messages"]
        rows = transcript.append(
            active_branch(session), drafts, client_key=idempotency_key(request)
        )
        notify(context_backend.message_stored, session, rows[-1])
        return Response({"messages": messages_json(rows)}, status=status.HTTP_201_CREATED)

    def _branch(self, session: Session, branch_id: UUID | None) -> Branch:
        if branch_id is None:
            return session.branch
        found = Branch.objects.filter(session=session, pk=branch_id).first()
        if found is None:
            raise Http404
        return found


class MessageDetail(KnownQueryView):
    """One message: GET reads it; PATCH pins or unpins it, and nothing else."""

    query = (
        QueryParameter(
            name="whole", kind=Kind.FLAG, description="A cut tool result as it came in."
        ),
    )
    problems = {"PATCH": ("conflict",)}

    @extend_schema(summary="Read a message", responses=MessageSerializer)
    def get(self, request: Request, message_id: UUID) -> Response:
        """Return the message; with `whole=true` a cut tool result has its whole content."""
        message = message_of(request.user, message_id)
        body = message_json(message)
        if self.asked.get("whole"):
            body["content"] = whole_content(message)
        return Response(body)

    @extend_schema(
        summary="Pin or unpin a message", request=PinSerializer, responses=PinnedMessageSerializer
    )
    def patch(self, request: Request, message_id: UUID) -> Response:
        """Pin or unpin a message and with it its tool calls and results.

        What is pinned is sent always. `warning` says where all pins take more than their share.
        """
        message = message_of(request.user, message_id)
        pinned = PinSerializer.read(request.data)["pinned"]
        transcript.set_pinned(message, pinned, by=request.user)
        message.refresh_from_db()
        warning = warning_of_pins(message.session)
        return Response({**message_json(message), "warning": warning or None})
