"""Versions of a summary: which one counts, and texts that people write."""

from __future__ import annotations

from typing import Any, cast

from django.db.models import prefetch_related_objects
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from chatapp.api.base import KnownFields, KnownQueryView
from chatapp.api.exceptions import Conflict
from compaction.api.serializers import SummarySerializer
from compaction.errors import CompactionError, UnfitTextError
from compaction.models import SessionSummary
from compaction.runs.measuring import edit_and_measure
from compaction.summaries.activating import Newer, activate_version

INSTRUCTIONS_CHARS = 4000
# Far above what any profile may ask for: who writes more gets the service's sentence.
TEXT_CHARS = 1_000_000


class ActivateVersionSerializer(KnownFields):
    """What becomes of newer summaries that took in the version which is replaced."""

    newer = serializers.ChoiceField(
        choices=[one.value for one in Newer if one],
        required=False,
        allow_blank=True,
        default="",
        help_text="`restore` takes them back, `keep` leaves them; empty: 409 where there are any.",
    )


class ActivatedSerializer(serializers.Serializer[Any]):
    """What counts now, what it replaced, and what became of newer summaries."""

    summary = SummarySerializer()
    replaced = SummarySerializer(allow_null=True)
    restored = SummarySerializer(many=True)
    kept = SummarySerializer(many=True)
    cursor = serializers.IntegerField()
    is_sent = serializers.BooleanField(
        help_text="Whether the session's next request holds the text; not where it holds newer "
        "summaries alone, or where the conversation goes on in another branch."
    )
    hold = serializers.CharField(
        help_text="Until when what is sent verbatim again is held; empty where nothing is."
    )


class EditSerializer(KnownFields):
    """A text of your own; without `instructions` those of the summary stay."""

    text = serializers.CharField(trim_whitespace=False, max_length=TEXT_CHARS)
    instructions = serializers.CharField(
        required=False, allow_blank=True, max_length=INSTRUCTIONS_CHARS
    )


class EditedSerializer(serializers.Serializer[Any]):
    """The new version, and sentences about its size and what was changed in it."""

    summary = SummarySerializer()
    notes = serializers.ListField(child=serializers.CharField())


def _own_summary(request: Request, summary_id: str) -> SessionSummary:
    rows = SessionSummary.objects.filter(session__owner=cast(Any, request.user))
    row = rows.select_related("profile", "branch", "session", "author").filter(pk=summary_id)
    found = row.first()
    if found is None:
        raise Http404
    return found


class SummaryActivate(KnownQueryView):
    """Let a stored version count again."""

    problems = {"POST": ("conflict",)}

    @extend_schema(
        summary="Activate a version of a summary",
        request=ActivateVersionSerializer,
        responses=ActivatedSerializer,
    )
    def post(self, request: Request, summary_id: str) -> Response:
        """Activate; 409 says what stands against it, and what can be done instead."""
        summary = _own_summary(request, summary_id)
        form = ActivateVersionSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        try:
            newer = Newer(form.validated_data["newer"])
            done = activate_version(summary, newer=newer, by=request.user)
        except CompactionError as error:
            raise Conflict(str(error)) from error
        prefetch_related_objects([*done.restored, *done.kept], "profile", "author")
        return Response(ActivatedSerializer(done).data)


class SummaryEdit(KnownQueryView):
    """Store a text of your own as the version that counts."""

    problems = {"POST": ("conflict", "unknown_model")}

    @extend_schema(
        summary="Edit a summary", request=EditSerializer, responses={201: EditedSerializer}
    )
    def post(self, request: Request, summary_id: str) -> Response:
        """Store a new version; the one before stays and can be activated again."""
        summary = _own_summary(request, summary_id)
        form = EditSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        try:
            edited = edit_and_measure(summary, author=request.user, **form.validated_data)
        except UnfitTextError as error:
            raise ValidationError({"text": [str(error)]}) from error
        except CompactionError as error:
            raise Conflict(str(error)) from error
        return Response(EditedSerializer(edited).data, status=status.HTTP_201_CREATED)
