"""Sessions and branches: sessions/, sessions/{id}/, …/branches/, branches/{id}/activate/."""

from __future__ import annotations

from typing import Any, cast

from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import generics, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from chatapp import transcript
from chatapp.api.base import (
    KnownQueryView,
    OldestFirstPagination,
    SessionView,
    message_of,
    sessions_of,
)
from chatapp.api.query import QueryParameter
from chatapp.api.serializers import (
    ActivateSerializer,
    BranchSerializer,
    ForkSerializer,
    SessionSerializer,
)
from chatapp.models import Branch, Session


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

    def perform_destroy(self, instance: Session) -> None:
        """Delete the session whole, also while a turn or a compaction writes to it."""
        transcript.delete_session(instance)


class BranchList(SessionView):
    """The lines of a session's tree; POST starts a new one at a message."""

    pagination_class = OldestFirstPagination
    problems = {"POST": ("conflict",)}

    @extend_schema(summary="List a session's branches", responses=BranchSerializer(many=True))
    def get(self, request: Request, session_id: str) -> Response:
        """Return a page of branches, oldest first."""
        rows = Branch.objects.filter(session=self.get_session()).select_related("session")
        pages = self.pagination_class()
        page = pages.paginate_queryset(rows, request, view=self)
        return pages.get_paginated_response(BranchSerializer(page or [], many=True).data)

    @extend_schema(
        summary="Fork at a message", request=ForkSerializer, responses={201: BranchSerializer}
    )
    def post(self, request: Request, session_id: str) -> Response:
        """Fork at a message; the session goes on there unless `activate` is false."""
        session = self.get_session()
        serializer = ForkSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        at = message_of(request.user, serializer.validated_data["message"])
        if at.session_id != session.pk:
            raise Http404
        branch = transcript.fork(session, at=at)
        if serializer.validated_data["activate"]:
            transcript.switch(session, branch)
        branch.session = session
        return Response(BranchSerializer(branch).data, status=status.HTTP_201_CREATED)


class BranchActivate(KnownQueryView):
    """Make a branch the line that the next turn goes on with."""

    problems = {"POST": ("conflict",)}

    @extend_schema(
        summary="Switch to a branch", request=ActivateSerializer, responses=BranchSerializer
    )
    def post(self, request: Request, branch_id: str) -> Response:
        """Switch to the branch; nothing is lost on the one that is left.

        The context backend may refuse with a sentence (409); then the session stays where it was.
        """
        branch = (
            Branch.objects.select_related("session__active_branch")
            .filter(pk=branch_id, session__owner=cast(Any, request.user))
            .first()
        )
        if branch is None:
            raise Http404
        asked = ActivateSerializer(data=request.data or {})
        asked.is_valid(raise_exception=True)
        transcript.switch(branch.session, branch, asked.validated_data.get("wishes"))
        return Response(BranchSerializer(branch).data)
