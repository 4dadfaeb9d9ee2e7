"""Sessions: sessions/ and sessions/{id}/."""

from __future__ import annotations

from typing import Any, cast

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import generics
from rest_framework.serializers import BaseSerializer

from chatapp import transcript
from chatapp.api.base import BoundedPagination, KnownQueryView, session_of, sessions_of
from chatapp.api.query import QueryParameter
from chatapp.api.serializers import SessionSerializer
from chatapp.models import Session


class OwnSessions(KnownQueryView, generics.GenericAPIView[Session]):
    """The caller's own sessions, as a view of one or of all of them."""

    serializer_class = SessionSerializer

    def get_queryset(self) -> QuerySet[Session]:
        """Return the caller's own sessions; none while the schema is drawn, which has no caller."""
        if getattr(self, "swagger_fake_view", False):
            return Session.objects.none()
        return sessions_of(self.request.user)


@extend_schema_view(
    get=extend_schema(summary="List your sessions", description="Newest first."),
    post=extend_schema(summary="Start a session", description="It has its first branch at once."),
)
class SessionList(OwnSessions, generics.ListCreateAPIView[Session]):
    """Your sessions, newest first; POST starts one."""

    pagination_class = BoundedPagination

    query = (
        QueryParameter(name="title", description="Sessions with this in their title."),
        QueryParameter(name="model", description="Sessions of this alias."),
    )

    def get_queryset(self) -> QuerySet[Session]:
        """Return the sessions that were asked for."""
        rows = super().get_queryset()
        if title := self.asked.get("title"):
            rows = rows.filter(title__icontains=title)
        if model := self.asked.get("model"):
            rows = rows.filter(model=model)
        return rows

    def perform_create(self, serializer: BaseSerializer[Session]) -> None:
        """Create the session with its root branch."""
        fields = cast(dict[str, Any], serializer.validated_data)
        serializer.instance = transcript.create_session(owner=self.request.user, **fields)


@extend_schema_view(
    get=extend_schema(summary="Read a session", description="Messages have pages of their own."),
    patch=extend_schema(
        summary="Change a session", description="Writes what is sent; the rest stays as it is."
    ),
    delete=extend_schema(
        summary="Delete a session",
        description="Removes it with everything that belongs to it, also while a turn runs.",
    ),
)
class SessionDetail(OwnSessions, generics.RetrieveUpdateDestroyAPIView[Session]):
    """One session. DELETE removes it with everything that belongs to it."""

    http_method_names = ["get", "patch", "delete", "head", "options"]
    lookup_url_kwarg = "session_id"
    problems = {"DELETE": ("conflict",)}

    def get_object(self) -> Session:
        """Return the session of the address, or 404 where it is missing or somebody else's."""
        return session_of(self.request.user, self.kwargs["session_id"])

    def perform_destroy(self, instance: Session) -> None:
        """Delete the session whole, also while a turn or a compaction writes to it."""
        transcript.delete_session(instance)
