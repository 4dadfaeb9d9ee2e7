"""Memories of an owner: memories/, their rewriting, and taking it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import generics, status
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from chatapp.api.base import BoundedPagination, KnownQueryView, NoFields
from chatapp.api.exceptions import Conflict
from chatapp.api.query import QueryParameter
from chatapp.llm.registry import UnknownModelError
from chatapp.pools import Pool, answered_in, slow_work
from compaction.api import memory_json as shapes
from compaction.conf import compaction_settings
from compaction.errors import CompactionError
from compaction.memories.execution import execute_memory_run
from compaction.memories.lines import (
    MemoryGoneError,
    MemoryRefusedError,
    accept_memory,
    add_memory,
    change_memory,
    delete_memory,
)
from compaction.memories.rewriting import estimate_rewriting
from compaction.memories.runs import request_compression
from compaction.memories.versions import undo_rewriting
from compaction.models import Memory, MemoryRun, MemoryVersion

BOT = QueryParameter(
    name="bot", description="Those of this bot; empty: those that count for all bots."
)


class MemoryPagination(BoundedPagination):
    """The newest lines first, as requests order them."""

    ordering = ("-position", "-id")


def _own(request: Request, model: Any) -> QuerySet[Any]:
    found: QuerySet[Any] = model._default_manager.filter(owner=cast(Any, request.user))
    return found


def _find(request: Request, model: Any, key: str) -> Any:
    row = _own(request, model).filter(pk=key).first()
    if row is None:
        raise Http404
    return row


def _done(do: Callable[[], Memory]) -> Memory:
    """Return what a service returns; a refusal is the field's, what is gone is 404."""
    try:
        return do()
    except MemoryRefusedError as refusal:
        raise ValidationError({refusal.field: [str(refusal)]}) from refusal
    except MemoryGoneError as gone:
        raise Http404 from gone


class _Listed(KnownQueryView, generics.ListAPIView[Any]):
    """The owner's rows of a table, with those of one bot where that is asked for."""

    pagination_class = BoundedPagination
    model: Any = None

    def get_queryset(self) -> QuerySet[Any]:
        """Return those of the caller's own rows that were asked for."""
        if getattr(self, "swagger_fake_view", False):
            return cast(QuerySet[Any], self.model._default_manager.none())
        rows = _own(self.request, self.model)
        return rows.filter(bot=self.asked["bot"]) if "bot" in self.asked else rows


@extend_schema_view(
    get=extend_schema(
        summary="List your memories",
        description="The newest first; requests send them the other way round.",
    )
)
class MemoryList(_Listed):
    """Your memories; POST stores one."""

    pagination_class = MemoryPagination
    serializer_class = shapes.MemorySerializer
    model = Memory
    query = (
        BOT,
        QueryParameter(
            name="state",
            choices=("accepted", "proposed"),
            description="`accepted`: those that are sent; `proposed`: those that wait for a yes.",
        ),
    )

    def get_queryset(self) -> QuerySet[Any]:
        """Return those of the caller's own lines that were asked for."""
        rows = super().get_queryset()
        if state := self.asked.get("state"):
            rows = rows.filter(accepted_at__isnull=state == "proposed")
        return rows

    @extend_schema(
        summary="Store a memory",
        request=shapes.NewMemorySerializer,
        responses={201: shapes.MemorySerializer},
    )
    def post(self, request: Request) -> Response:
        """Store one line; it is sent from the next request on, where a profile has a budget."""
        form = shapes.NewMemorySerializer(data=request.data)
        form.is_valid(raise_exception=True)
        asked = form.validated_data
        row = _done(lambda: add_memory(owner=request.user, created_by=request.user, **asked))
        return Response(shapes.MemorySerializer(row).data, status=status.HTTP_201_CREATED)


class MemoryDetail(KnownQueryView):
    """One of your memories."""

    @extend_schema(
        summary="Change a memory",
        request=shapes.ChangedMemorySerializer,
        responses=shapes.MemorySerializer,
    )
    def patch(self, request: Request, memory_id: str) -> Response:
        """Store another text, or another bot that it counts for; its place stays."""
        row = _find(request, Memory, memory_id)
        form = shapes.ChangedMemorySerializer(data=request.data)
        form.is_valid(raise_exception=True)
        changed = _done(lambda: change_memory(row, **form.validated_data))
        return Response(shapes.MemorySerializer(changed).data)

    @extend_schema(summary="Delete a memory", responses={204: None})
    def delete(self, request: Request, memory_id: str) -> Response:
        """Take a line away, or refuse a proposed one: the same line is not proposed again."""
        row = _find(request, Memory, memory_id)
        try:
            delete_memory(row)
        except MemoryGoneError as gone:
            raise Http404 from gone
        return Response(status=status.HTTP_204_NO_CONTENT)


class MemoryAccept(KnownQueryView):
    """Say yes to a line that a summariser proposed."""

    @extend_schema(summary="Accept a memory", request=NoFields, responses=shapes.MemorySerializer)
    def post(self, request: Request, memory_id: str) -> Response:
        """Have it sent from now on, as the newest; one that is sent already stays as it is."""
        row = _find(request, Memory, memory_id)
        NoFields(data=request.data).is_valid(raise_exception=True)
        return Response(shapes.MemorySerializer(_done(lambda: accept_memory(row))).data)


@answered_in(Pool.SLOW)
class MemoryCompress(KnownQueryView):
    """Rewrite memories to fewer, now."""

    problems = {"POST": ("conflict", "too_much_at_once")}

    @extend_schema(
        summary="Rewrite your memories to fewer",
        request=shapes.CompressMemoriesSerializer,
        responses={200: shapes.MEMORY_COMPRESSION, 202: shapes.MemoryRunSerializer},
    )
    def post(self, request: Request) -> Response:
        """Queue a run (202), wait for its end (200 with `wait`), or only estimate (`dry_run`)."""
        form = shapes.CompressMemoriesSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        asked, owner = form.validated_data, cast(Any, request.user)
        if asked["dry_run"]:
            return Response(shapes.MemoryEstimateSerializer(_estimate(owner, asked["bot"])).data)
        whose = {"owner": owner, "bot": asked["bot"], "requested_by": owner}
        if not asked["wait"]:
            run = request_compression(**whose)
            return Response(shapes.MemoryRunSerializer(run).data, status=status.HTTP_202_ACCEPTED)
        # Refused before there is a run: nobody would be told of it.
        with slow_work.of(owner):
            run = request_compression(**whose, is_waited_for=True)
            execute_memory_run(run.pk, seconds=compaction_settings.inline_seconds)
        return Response(shapes.MemoryRunSerializer(_find(request, MemoryRun, str(run.pk))).data)


def _estimate(owner: Any, bot: str) -> Mapping[str, Any]:
    try:
        return {"dry_run": True, **estimate_rewriting(owner, bot)}
    except (CompactionError, UnknownModelError) as error:
        raise Conflict(str(error)) from error


@extend_schema_view(
    get=extend_schema(
        summary="List what was done with your memories",
        description="Rewritings and proposals, the newest first, failed ones with the reason.",
    )
)
class MemoryRunList(_Listed):
    """The runs of your memories, newest first."""

    serializer_class = shapes.MemoryRunSerializer
    model = MemoryRun
    query = (BOT,)


@extend_schema_view(
    get=extend_schema(
        summary="List the rewritings of your memories",
        description="The newest first, each with the lines before and after it.",
    )
)
class MemoryVersionList(_Listed):
    """The rewritings of your memories, newest first."""

    serializer_class = shapes.MemoryVersionSerializer
    model = MemoryVersion
    query = (BOT,)


class MemoryVersionUndo(KnownQueryView):
    """Take a rewriting back: the lines return as they were."""

    problems = {"POST": ("conflict",)}

    @extend_schema(
        summary="Take a rewriting of memories back",
        request=shapes.UndoRewritingSerializer,
        responses=shapes.UndoneSerializer,
    )
    def post(self, request: Request, version_id: str) -> Response:
        """Give the lines back; 409 while newer lines would be lost and `cascade` is not set."""
        version = _find(request, MemoryVersion, version_id)
        form = shapes.UndoRewritingSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        try:
            undone = undo_rewriting(version, cascade=form.validated_data["cascade"])
        except CompactionError as error:
            raise Conflict(str(error)) from error
        return Response(shapes.UndoneSerializer(undone).data)
