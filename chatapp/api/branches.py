"""Branches: sessions/{id}/branches/, branches/{id}/, branches/{id}/activate/."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from chatapp import transcript
from chatapp.api.base import KnownQueryView, OldestFirstPagination, SessionView, message_of
from chatapp.api.serializers import (
    BranchLabelSerializer,
    BranchSerializer,
    ForkSerializer,
)
from chatapp.api.switches import ActivateSerializer, SwitchedSerializer
from chatapp.api.tree_json import ListedBranchSerializer
from chatapp.models import Branch
from chatapp.outline import facts_of, with_ends
from chatapp.pools import Pool, answered_in, slow_work


class BranchList(SessionView):
    """The lines of a session's tree; POST starts a new one at a message."""

    pagination_class = OldestFirstPagination
    problems = {"POST": ("conflict",)}

    @extend_schema(summary="List a session's branches", responses=ListedBranchSerializer(many=True))
    def get(self, request: Request, session_id: str) -> Response:
        """Return a page of branches, oldest first: where each begins, where it ends, what it has.

        However deep they are, a page takes the same number of queries.
        """
        session = self.get_session()
        rows = with_ends(Branch.objects.filter(session=session).select_related("session"))
        pages = self.pagination_class()
        page = pages.paginate_queryset(rows, request, view=self) or []
        about = {"facts": facts_of(session, page)}
        listed = ListedBranchSerializer(page, many=True, context=about)
        return pages.get_paginated_response(listed.data)

    @extend_schema(
        summary="Fork at a message", request=ForkSerializer, responses={201: BranchSerializer}
    )
    def post(self, request: Request, session_id: str) -> Response:
        """Fork behind a message, or `before` it, and go on there unless `activate` is false."""
        session = self.get_session()
        serializer = ForkSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        asked = serializer.validated_data
        at = message_of(request.user, asked["message"])
        if at.session_id != session.pk:
            raise Http404
        start = transcript.fork_before if asked["before"] else transcript.fork
        label = asked["label"] or None
        branch = start(session, at=at, label=label or "")
        if asked["activate"]:
            wishes = {"label": label, "requested_by": request.user}
            try:
                transcript.switch(session, branch, wishes)
            except transcript.SwitchRefusedError:
                # No transaction does it: whoever refuses may have been asked for seconds.
                transcript.delete_unused(branch)
                raise
        branch.session = session
        return Response(BranchSerializer(branch).data, status=status.HTTP_201_CREATED)


def _branch_of(user: Any, branch_id: str) -> Branch:
    """Return one of the user's own branches, or 404."""
    rows = Branch.objects.select_related("session__active_branch")
    branch = rows.filter(pk=branch_id, session__owner=user).first()
    if branch is None:
        raise Http404
    return branch


class BranchDetail(KnownQueryView):
    """One branch; PATCH names it."""

    @extend_schema(summary="Read a branch", responses=ListedBranchSerializer)
    def get(self, request: Request, branch_id: str) -> Response:
        """Return what the list of branches tells of it."""
        branch = _branch_of(request.user, branch_id)
        row = with_ends(Branch.objects.filter(pk=branch.pk).select_related("session")).get()
        about = {"facts": facts_of(branch.session, [row])}
        return Response(ListedBranchSerializer(row, context=about).data)

    @extend_schema(
        summary="Name a branch", request=BranchLabelSerializer, responses=BranchSerializer
    )
    def patch(self, request: Request, branch_id: str) -> Response:
        """Give the branch a label for people, or take it away; nothing else of it changes."""
        branch = _branch_of(request.user, branch_id)
        asked = BranchLabelSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        transcript.set_label(branch, asked.validated_data["label"] or "")
        return Response(BranchSerializer(branch).data)


@answered_in(Pool.SLOW)
class BranchActivate(KnownQueryView):
    """Make a branch the line that the next turn goes on with."""

    problems = {"POST": ("conflict", "too_much_at_once")}

    @extend_schema(
        summary="Switch to a branch",
        request=ActivateSerializer,
        responses={200: SwitchedSerializer, 202: SwitchedSerializer},
    )
    def post(self, request: Request, branch_id: str) -> Response:
        """Switch to the branch; nothing is lost on the one that is left.

        With `summarize`, a run makes a summary of what was said on the branch that is left, and the
        session switches when it is stored; where the run came to nothing, `is_active` is false and
        `run` says why. Without `wait` the run is left to the queue (202). The context backend may
        refuse with a sentence (409), as it does while another switch is under way; then the session
        stays where it was.
        """
        branch = _branch_of(request.user, branch_id)
        asked = ActivateSerializer(data=request.data or {})
        asked.is_valid(raise_exception=True)
        wishes = asked.wishes_of() | {"requested_by": request.user}
        waits = wishes["summarize"] and wishes["wait"]
        with slow_work.of(request.user) if waits else nullcontext():
            switched = transcript.switch(branch.session, branch, wishes)
        branch.session = switched.branch.session
        shown = SwitchedSerializer(switched.branch, context={"switched": switched}).data
        code = status.HTTP_202_ACCEPTED if switched.waits else status.HTTP_200_OK
        return Response(shown, status=code)
