"""What all views share: an owner sees only their own, and somebody else's looks like nothing."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import Http404
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.views import APIView

from chatapp.models import Message, Session

MAX_KEY_CHARS = 200


def sessions_of(user: Any) -> QuerySet[Session]:
    """Return the user's own sessions; staff rights give nothing here, only in the admin."""
    return Session.objects.filter(owner=user).select_related("active_branch")


class SessionView(APIView):
    """A view below sessions/{id}/."""

    def get_session(self) -> Session:
        """Return the session of the address, or 404 where it is missing or somebody else's."""
        try:
            return sessions_of(self.request.user).get(pk=self.kwargs["session_id"])
        except Session.DoesNotExist as error:
            raise Http404 from error


def message_of(user: Any, message_id: UUID) -> Message:
    """Return one of the user's own messages, or 404."""
    row = (
        Message.objects.select_related("branch", "session")
        .filter(pk=message_id, session__owner=user)
        .first()
    )
    if row is None:
        raise Http404
    return row


class AnyAccept(DefaultContentNegotiation):
    """Serves every Accept header: a browser that asks for an event stream gets its errors too."""

    def select_renderer(
        self, request: Any, renderers: Any, format_suffix: str | None = None
    ) -> Any:
        """Return the first renderer, whatever was asked for."""
        return renderers[0], renderers[0].media_type
