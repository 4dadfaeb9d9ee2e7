"""What a summary still knows, where its lines come from, and what became of a message."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.db import transaction
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from chatapp.api.base import KnownFields, KnownQueryView, NewestFirstPagination, message_of
from compaction.models import SessionSummary, SummaryQuality
from compaction.summaries.judging import (
    NOTE_CHARS,
    give_verdict,
    ignore_facts,
    show_facts_again,
)
from compaction.summaries.sources import (
    Fate,
    fate_of,
    line_numbers,
    lost_facts,
    with_sources,
)

# A key is an entity's text; the longest are addresses.
KEY_CHARS, MOST_IGNORED = 2000, 500
NOT_MEASURED = (
    "There is no such summary of yours, or its quality was not measured: it was made before that, "
    "or a person wrote its text just now."
)


# --- shapes ---------------------------------------------------------------------------------------


class LostFactSerializer(serializers.Serializer[Any]):
    """One thing that a covered message names and the summary does not; offsets are code points."""

    key = serializers.CharField(help_text="By which it is ignored.")
    text = serializers.CharField()
    kind = serializers.CharField()
    speaker = serializers.CharField(allow_blank=True)
    message = serializers.UUIDField(allow_null=True)
    start = serializers.IntegerField()
    end = serializers.IntegerField()
    # A field of this name takes nothing away: the class of serializers moves fields aside.
    context = serializers.CharField(allow_blank=True)  # type: ignore[assignment]
    weight = serializers.FloatField()


class SummaryQualitySerializer(serializers.ModelSerializer[SummaryQuality]):
    """How much one summary knows; `figures` are what the score is made of."""

    figures = serializers.DictField(read_only=True)
    lost = serializers.SerializerMethodField(help_text="Best first, without the ignored ones.")
    ignored = serializers.ListField(child=serializers.CharField(), read_only=True)
    verdict = serializers.ChoiceField(
        choices=SummaryQuality.Verdict.choices, allow_blank=True, read_only=True
    )

    class Meta:
        model = SummaryQuality
        fields = [
            "summary",
            "version",
            "score",
            "yardstick",
            "cumulative",
            "unsupported_count",
            "rejected",
            "hindsight",
            "hindsight_facts",
            "figures",
            "lost",
            "ignored",
            "verdict",
            "verdict_note",
            "verdict_at",
            "created_at",
        ]
        read_only_fields = fields

    @extend_schema_field(LostFactSerializer(many=True))
    def get_lost(self, quality: SummaryQuality) -> Any:
        """Return the lost facts that nobody ignores."""
        return LostFactSerializer(lost_facts(quality), many=True).data


class JudgeSerializer(KnownFields):
    """A verdict with its words, and the keys of the lost facts that do not matter.

    What is not named stays as it is. An empty verdict takes it back, and its words with it.
    """

    rules = {"dependentRequired": {"note": ["verdict"]}}

    verdict = serializers.ChoiceField(
        choices=SummaryQuality.Verdict.choices, allow_blank=True, required=False
    )
    note = serializers.CharField(allow_blank=True, max_length=NOTE_CHARS, required=False)
    ignored = serializers.ListField(
        child=serializers.CharField(max_length=KEY_CHARS, trim_whitespace=False),
        max_length=MOST_IGNORED,
        required=False,
        help_text="All that is ignored from now on.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse words without a verdict."""
        if "note" in attrs and "verdict" not in attrs:
            raise serializers.ValidationError({"note": ["Goes with a verdict; send both."]})
        return attrs


class SourceTextSerializer(serializers.Serializer[Any]):
    """A piece of a message; offsets 0 and no text mean the message as a whole, or a call of it."""

    message = serializers.UUIDField()
    sequence_id = serializers.DecimalField(max_digits=20, decimal_places=6)
    role = serializers.CharField()
    start = serializers.IntegerField()
    end = serializers.IntegerField()
    text = serializers.CharField(allow_blank=True)


class SummaryLineSerializer(serializers.Serializer[Any]):
    """One line of a summary, its offsets in `summary_text`, and what it comes from.

    `origin`: exact, cited, matched, or none where no source is known.
    """

    number = serializers.IntegerField()
    start = serializers.IntegerField()
    end = serializers.IntegerField()
    text = serializers.CharField(allow_blank=True)
    origin = serializers.CharField()
    sources = SourceTextSerializer(many=True)


class SummaryFateSerializer(serializers.Serializer[Any]):
    """One summary that read a message, and the numbers of the lines that it went into."""

    summary = serializers.UUIDField()
    status = serializers.CharField()
    created_at = serializers.DateTimeField()
    traced = serializers.BooleanField(
        help_text="False: it was made before lines knew their sources."
    )
    lines = serializers.ListField(child=serializers.IntegerField())


class MessageFateSerializer(serializers.Serializer[Any]):
    """What became of a message: in lines, covered but in none, unknown, or not covered."""

    message = serializers.UUIDField()
    fate = serializers.ChoiceField(choices=[(fate.value, fate.value) for fate in Fate])
    summaries = SummaryFateSerializer(many=True)


# --- views ----------------------------------------------------------------------------------------


class SummaryQualityView(KnownQueryView):
    """How much one summary still knows, and what a person thinks of it."""

    @extend_schema(summary="Show what a summary knows", responses=SummaryQualitySerializer)
    def get(self, request: Request, summary_id: UUID) -> Response:
        """Return the measured quality; 404 for a summary that was made before it was measured."""
        return Response(SummaryQualitySerializer(_own_quality(request, summary_id)).data)

    @extend_schema(
        summary="Judge a summary", request=JudgeSerializer, responses=SummaryQualitySerializer
    )
    def patch(self, request: Request, summary_id: UUID) -> Response:
        """Give or take back a verdict, and say which lost facts do not matter."""
        quality = _own_quality(request, summary_id)
        form = JudgeSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        said = form.validated_data
        with transaction.atomic():
            if "verdict" in said:
                give_verdict(
                    quality.summary,
                    verdict=said["verdict"],
                    note=said.get("note", ""),
                    by=request.user,
                )
            if "ignored" in said:
                before, after = set(quality.ignored), set(said["ignored"])
                show_facts_again(quality.summary, keys=before - after)
                ignore_facts(quality.summary, keys=after - before)
        return Response(SummaryQualitySerializer(_own_quality(request, summary_id)).data)


def _own_quality(request: Request, summary_id: UUID) -> SummaryQuality:
    """Return the quality of one of the caller's own summaries, or 404."""
    rows = SummaryQuality.objects.filter(summary__session__owner=cast(Any, request.user))
    found = rows.select_related("summary").defer("facts").filter(pk=summary_id).first()
    if found is None:
        raise NotFound(NOT_MEASURED)
    return found


class LinePagination(NewestFirstPagination):
    """The lines of a summary in their order."""

    ordering = ("number", "start")


class SummaryLines(KnownQueryView):
    """The lines of a summary with their sources."""

    pagination_class = LinePagination

    @extend_schema(summary="List a summary's lines", responses=SummaryLineSerializer(many=True))
    def get(self, request: Request, summary_id: UUID) -> Response:
        """Return a page of lines; none for a summary that was made before lines were stored."""
        summary = _own_summary(request, summary_id)
        pages = LinePagination()
        page = pages.paginate_queryset(line_numbers(summary), request, view=self) or []
        shown = SummaryLineSerializer(with_sources(summary, page), many=True)
        return pages.get_paginated_response(shown.data)


def _own_summary(request: Request, summary_id: UUID) -> SessionSummary:
    rows = SessionSummary.objects.filter(session__owner=cast(Any, request.user), pk=summary_id)
    found = rows.only("summary_text").first()
    if found is None:
        raise NotFound
    return found


class MessageFateView(KnownQueryView):
    """What became of a message in the summaries of its session."""

    @extend_schema(summary="Show what became of a message", responses=MessageFateSerializer)
    def get(self, request: Request, message_id: UUID) -> Response:
        """Return the summaries that read the message, and the lines that it went into."""
        message = message_of(request.user, message_id)
        return Response(MessageFateSerializer(fate_of(message)).data)
