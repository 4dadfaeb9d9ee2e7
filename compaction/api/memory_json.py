"""Memories, their runs and their versions as JSON, and what clients may ask for."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema_field
from rest_framework import serializers

from chatapp.api.base import KnownFields
from compaction.engine.memories import MAX_LINE_CHARS, fault_of_line
from compaction.engine.types import MAX_BOT_CHARS
from compaction.memories.versions import texts_of_lines
from compaction.models import Memory, MemoryRun, MemoryVersion

# What no line holds, and what a line that says something holds one of; of JSON Schema's patterns.
_ENDS = "\\n\\r\\u000b\\u000c\\u001c-\\u001e\\u0085\\u2028\\u2029"
ONE_LINE = f"^[^{_ENDS}]*[^\\s\\u001c-\\u001f\\u0085][^{_ENDS}]*$"


@extend_schema_field(
    {"type": "string", "minLength": 1, "maxLength": MAX_LINE_CHARS, "pattern": ONE_LINE}
)
class LineField(serializers.CharField):
    """One line of text, as it was sent: nothing is trimmed, so that nothing is taken off unsaid."""

    def __init__(self, **options: Any) -> None:
        # Not allow_blank, and a sentence of ours: the schema would take an empty text beside lines.
        told: dict[str, Any] = {"blank": fault_of_line("")}
        super().__init__(trim_whitespace=False, error_messages=told, **options)

    def run_validators(self, value: Any) -> None:
        """Refuse what is no line, with the sentence that says why."""
        super().run_validators(value)
        if fault := fault_of_line(value):
            raise serializers.ValidationError(fault)


def bot_field(**options: Any) -> serializers.CharField:
    """Return the field of a bot's name."""
    return serializers.CharField(
        max_length=MAX_BOT_CHARS,
        allow_blank=True,
        required=False,
        help_text="`bot` (or `bot_type`) of the metadata of the sessions that it counts for; "
        "empty: it counts for all.",
        **options,
    )


class MemorySerializer(serializers.ModelSerializer[Memory]):
    """A line; `accepted_at` is null while it waits for a yes, and then it is not sent."""

    class Meta:
        model = Memory
        fields = ["id", "bot", "text", "tokens", "origin", "source", "accepted_at", "created_at"]
        read_only_fields = fields
        extra_kwargs = {"source": {"help_text": "The message that it comes from, if one is known."}}


class NewMemorySerializer(KnownFields):
    """A line to store."""

    text = LineField()
    bot = bot_field(default="")


class ChangedMemorySerializer(KnownFields):
    """What may change of a line."""

    text = LineField(required=False)
    bot = bot_field()


class CompressMemoriesSerializer(KnownFields):
    """Whose lines: `bot`; `wait` for the end, or only say what would happen (`dry_run`)."""

    bot = bot_field(default="")
    dry_run = serializers.BooleanField(required=False, default=False)
    wait = serializers.BooleanField(required=False, default=False)


class MemoryEstimateSerializer(serializers.Serializer[Any]):
    """What a rewriting would read and ask for: the answer to `dry_run`."""

    dry_run = serializers.BooleanField()
    bot = serializers.CharField(allow_blank=True)
    lines = serializers.IntegerField()
    kept_lines = serializers.IntegerField()
    rewritten_lines = serializers.IntegerField()
    target_lines = serializers.IntegerField(help_text="0: there is nothing to rewrite.")
    model = serializers.CharField(allow_blank=True)
    calls = serializers.IntegerField()
    input_tokens = serializers.IntegerField()
    cost = serializers.FloatField()


class MemoryRunSerializer(serializers.ModelSerializer[MemoryRun]):
    """One attempt to rewrite lines (`compress`) or to propose some (`extract`)."""

    class Meta:
        model = MemoryRun
        fields = [
            "id",
            "bot",
            "kind",
            "status",
            "session",
            "summary",
            "lines_before",
            "lines_after",
            "model",
            "model_calls",
            "spent_tokens",
            "cost",
            "error_code",
            "error",
            "created_at",
            "waits_until",
            "started_at",
            "finished_at",
        ]
        read_only_fields = fields


MEMORY_COMPRESSION = PolymorphicProxySerializer(
    component_name="MemoryCompression",
    serializers=[MemoryRunSerializer, MemoryEstimateSerializer],
    resource_type_field_name=None,
)


class MemoryVersionSerializer(serializers.ModelSerializer[MemoryVersion]):
    """A rewriting: the lines that it took away, and those that stand in their places since."""

    before = serializers.SerializerMethodField()
    after = serializers.SerializerMethodField()

    class Meta:
        model = MemoryVersion
        fields = [
            "id",
            "bot",
            "run",
            "model",
            "before",
            "after",
            "kept_lines",
            "created_at",
            "undone_at",
        ]
        read_only_fields = fields

    def get_before(self, version: MemoryVersion) -> list[str]:
        """Return the lines that were rewritten, the oldest first."""
        return texts_of_lines(version.before)

    def get_after(self, version: MemoryVersion) -> list[str]:
        """Return the lines that they became."""
        return texts_of_lines(version.after)


class UndoRewritingSerializer(KnownFields):
    """Whether newer rewritings are taken back too, and lines that were changed since go."""

    cascade = serializers.BooleanField(required=False, default=False)


class UndoneSerializer(serializers.Serializer[Any]):
    """What was taken back, and how many lines are back."""

    versions = MemoryVersionSerializer(many=True)
    lines = serializers.IntegerField()
