"""Imports under way and those that ended: imports/, imports/{id}/, and what each became."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import Http404
from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from chatapp.api.base import KnownQueryView, NewestFirstPagination
from chatapp.api.exceptions import Conflict, Later
from chatapp.api.serializers import ImportedSessionSerializer
from chatapp.imports import cancel_import, why_it_waits
from chatapp.models import ImportedSession, ImportJob

SESSIONS_SHOWN = 200


class TooManyImports(Later):
    """The owner has as many imports under way as one owner may."""

    status_code = status.HTTP_429_TOO_MANY_REQUESTS
    default_code = "too_many_imports"


class ProgressSerializer(serializers.Serializer[Any]):
    """How many are done, and of how many; null while that is not known."""

    done = serializers.IntegerField()
    total = serializers.IntegerField(allow_null=True)


class ImportErrorSerializer(serializers.Serializer[Any]):
    """Why an import came to nothing, or ended before its time."""

    code = serializers.CharField()
    detail = serializers.CharField()


class FileProblemSerializer(serializers.Serializer[Any]):
    """A part of the file that was left out or mended; line 0 stands for none in particular."""

    line = serializers.IntegerField()
    text = serializers.CharField()


class ImportSerializer(serializers.Serializer[Any]):
    """An import: how far it is, and what came of it."""

    id = serializers.UUIDField()
    name = serializers.CharField(help_text="The file's name, where one was sent.")
    status = serializers.ChoiceField(choices=ImportJob.Status.choices)
    size = serializers.IntegerField(help_text="Bytes of the file.")
    format = serializers.CharField(help_text="Empty while the file is not read.")
    lines = ProgressSerializer()
    conversations = ProgressSerializer()
    sessions_made = serializers.IntegerField(help_text="Conversations that have a session now.")
    messages_added = serializers.IntegerField()
    error = ImportErrorSerializer(allow_null=True)
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)


class WholeImportSerializer(ImportSerializer):
    """An import with the first of its sessions and the first of what was wrong with its file."""

    note = serializers.CharField(help_text="What a queued import waits for, in words.")
    problems = FileProblemSerializer(many=True)
    problems_left_out = serializers.IntegerField(help_text="Problems that are only counted.")
    sessions = ImportedSessionSerializer(
        many=True, help_text=f"The first {SESSIONS_SHOWN}; imports/{{id}}/sessions/ has all."
    )


def imports_of(user: Any) -> Any:
    """Return the user's own imports."""
    return ImportJob.objects.filter(owner=user)


def address_of(request: Request, job: ImportJob) -> str:
    """Return the address of an import."""
    address: str = request.build_absolute_uri(reverse("import-detail", args=[job.pk]))
    return address


def as_dict(job: ImportJob) -> dict[str, Any]:
    """Return an import as lists show it."""
    is_read = job.conversations_total is not None
    failed = {"code": job.error_code, "detail": job.error} if job.error_code else None
    return {
        "id": str(job.pk),
        "name": job.name,
        "status": job.status,
        "size": job.size,
        "format": job.format,
        "lines": {"done": job.lines_total if is_read else 0, "total": job.lines_total},
        "conversations": {"done": job.conversations_done, "total": job.conversations_total},
        "sessions_made": job.sessions_made,
        "messages_added": job.messages_added,
        "error": failed,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
    }


def as_whole_dict(job: ImportJob) -> dict[str, Any]:
    """Return an import as its own address shows it."""
    rows = job.results.select_related("session").order_by("number")[:SESSIONS_SHOWN]
    is_waiting = job.status == ImportJob.Status.QUEUED
    return as_dict(job) | {
        "note": why_it_waits() if is_waiting else "",
        "problems": job.problems,
        "problems_left_out": job.problems_left_out,
        "sessions": [result_as_dict(row, job) for row in rows],
    }


def result_as_dict(row: ImportedSession, job: ImportJob) -> dict[str, Any]:
    """Return what one conversation became, as the answer of a small import says it."""
    return {
        "session": str(row.session_id),
        "title": row.session.title,
        "format": job.format,
        "messages_added": row.messages_added,
        "created": row.created,
    }


class ImportList(KnownQueryView, ListAPIView[ImportJob]):
    """The user's imports, newest first; rows of those that ended go after thirty days."""

    pagination_class = NewestFirstPagination
    serializer_class = ImportSerializer
    queryset = ImportJob.objects.none()

    @extend_schema(summary="List imports")
    def get(self, request: Request) -> Response:
        """Return a page of imports, without their sessions and problems."""
        page = self.paginate_queryset(imports_of(request.user).defer("problems"))
        return self.get_paginated_response([as_dict(job) for job in page or ()])


class OneImport(KnownQueryView):
    """A view below imports/{id}/."""

    def get_job(self) -> ImportJob:
        """Return the import of the address, or 404 where it is missing or somebody else's."""
        found: ImportJob | None = (
            imports_of(self.request.user).filter(pk=self.kwargs["import_id"]).first()
        )
        if found is None:
            raise Http404
        return found


class ImportDetail(OneImport):
    """One import: how far it is; DELETE cancels it."""

    problems = {"DELETE": ("conflict",)}

    @extend_schema(summary="Read an import", responses=WholeImportSerializer)
    def get(self, request: Request, import_id: UUID) -> Response:
        """Return how far the import is, its first sessions, and what was wrong with the file."""
        return Response(as_whole_dict(self.get_job()))

    @extend_schema(summary="Cancel an import", responses={200: WholeImportSerializer})
    def delete(self, request: Request, import_id: UUID) -> Response:
        """End an import that waits or is under way; the sessions that it made stay."""
        job = self.get_job()
        if not cancel_import(job):
            raise Conflict(f"The import has ended already: it is {job.status}.")
        return Response(as_whole_dict(job))


class ImportedSessionPagination(NewestFirstPagination):
    """In the order of the file."""

    ordering = ("number", "id")


class ImportedSessionList(OneImport, ListAPIView[ImportedSession]):
    """The sessions of one import, in the order of its file."""

    pagination_class = ImportedSessionPagination
    serializer_class = ImportedSessionSerializer
    queryset = ImportedSession.objects.none()

    @extend_schema(summary="List the sessions of an import")
    def get(self, request: Request, import_id: UUID) -> Response:
        """Return a page of what the conversations of the file became."""
        job = self.get_job()
        page = self.paginate_queryset(job.results.select_related("session"))
        return self.get_paginated_response([result_as_dict(row, job) for row in page or ()])
