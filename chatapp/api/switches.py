"""What is asked of a switch to another branch, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from chatapp.api.base import KnownFields
from chatapp.api.serializers import BranchSerializer, label_field
from chatapp.context.backend import EDITS, Switched
from chatapp.models import Branch

MOST_INSTRUCTION_CHARS = 4_000
_TOLD = {"type": ["object", "null"], "additionalProperties": True}


class ActivateSerializer(KnownFields):
    """What is asked of a switch, besides switching; the context backend does it."""

    summarize = serializers.BooleanField(
        required=False,
        default=False,
        help_text="Summarise what was said on the branch that is left, and tell it in this one.",
    )
    instructions = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=MOST_INSTRUCTION_CHARS,
        help_text="What the summary is to pay attention to.",
    )
    replace_instructions = serializers.BooleanField(
        required=False,
        default=False,
        help_text="The instructions take the place of ours, not beside them.",
    )
    label = label_field(required=False)  # type: ignore[assignment]
    wait = serializers.BooleanField(
        required=False,
        default=True,
        help_text="Answer when the summary is stored; false: leave it to the queue (202).",
    )
    wishes = serializers.DictField(
        required=False,
        help_text="Others, passed on to the context backend as they are. Deprecated: for one "
        "version.",
    )

    def validate_wishes(self, wishes: dict[str, Any]) -> dict[str, Any]:
        """Refuse what has a field of its own, where it is checked."""
        if own := sorted(set(wishes) & set(self.fields)):
            raise serializers.ValidationError(
                f"{', '.join(own)}: name these beside `wishes`, not in it."
            )
        return wishes

    def wishes_of(self) -> dict[str, Any]:
        """Return all of it for the backend; `label` only where it was sent, empty for null."""
        asked = dict(self.validated_data)
        others = asked.pop("wishes", {})
        if "label" in asked:
            asked["label"] = asked["label"] or ""
        # Who asks, and that this is an edit, are no wishes: a backend is told by those who know.
        told = ("requested_by", EDITS)
        return {key: value for key, value in others.items() if key not in told} | asked


class SwitchedSerializer(BranchSerializer):
    """The branch, and what the context backend did for the switch; null where it did nothing."""

    run = serializers.SerializerMethodField()
    summary = serializers.SerializerMethodField()

    class Meta(BranchSerializer.Meta):
        fields = [*BranchSerializer.Meta.fields, "run", "summary"]
        read_only_fields = fields

    @extend_schema_field(_TOLD)
    def get_run(self, branch: Branch) -> Mapping[str, Any] | None:
        """Return the run that summarised the branch which was left, or is to."""
        return self._switched.run

    @extend_schema_field(_TOLD)
    def get_summary(self, branch: Branch) -> Mapping[str, Any] | None:
        """Return the summary, and the note that tells it in this branch."""
        return self._switched.summary

    @property
    def _switched(self) -> Switched:
        switched: Switched = self.context["switched"]
        return switched
