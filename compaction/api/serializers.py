"""Runs, steps and summaries as JSON, and what clients may ask for."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import PolymorphicProxySerializer
from rest_framework import serializers

from chatapp.api.base import KnownFields
from compaction.engine.policy.holds import HoldEnd
from compaction.models import (
    CompactionProfile,
    CompactionRun,
    CompactionStep,
    RecoveryStep,
    SessionSummary,
)
from compaction.summaries.instructions import MOST_INSTRUCTION_CHARS

_SIZES = {
    "tokens_before": {"help_text": "Tokens of the whole next request without what was made."},
    "tokens_after": {"help_text": "Tokens of the whole next request with it, frames included."},
}
_PROMPTS: dict[str, dict[str, Any]] = {
    "cached_tokens": {
        "help_text": "Of the prompts of its calls, as their server told: what its cache had."
    },
    "uncached_tokens": {"help_text": "The rest of those prompts; both are 0 where none was told."},
}


class StepSerializer(serializers.ModelSerializer[CompactionStep]):
    """One model call of a run; `parent` is the step whose input was halved."""

    class Meta:
        model = CompactionStep
        fields = [
            "id",
            "parent",
            "kind",
            "depth",
            "order",
            "first_message",
            "last_message",
            "message_count",
            "input_tokens",
            "output_tokens",
            "cached_tokens",
            "outcome",
            "duration_ms",
            "error",
        ]
        read_only_fields = fields
        extra_kwargs = {
            "cached_tokens": {
                "help_text": "Those of `input_tokens` that the server had in its prompt cache."
            }
        }


class RunSerializer(serializers.ModelSerializer[CompactionRun]):
    """A run with its steps in the order of the calls."""

    profile = serializers.CharField(source="profile.name", read_only=True)
    profile_version = serializers.IntegerField(source="profile.version", read_only=True)
    switch_to = serializers.UUIDField(
        source="switch_to_id",
        read_only=True,
        allow_null=True,
        help_text="Of a switch: the branch that becomes active when the run ends.",
    )
    summary = serializers.SerializerMethodField()
    steps = StepSerializer(many=True, read_only=True)

    class Meta:
        model = CompactionRun
        fields = [
            "id",
            "session",
            "branch",
            "status",
            "trigger",
            "reason",
            "mode",
            "profile",
            "profile_version",
            "instructions",
            "switch_to",
            "tokens_before",
            "tokens_after",
            "chunk_count",
            "max_depth",
            "model_calls",
            "spent_tokens",
            "cached_tokens",
            "uncached_tokens",
            "truncated",
            "cost",
            "summary",
            "error_code",
            "error",
            "created_at",
            "waits_until",
            "started_at",
            "finished_at",
            "steps",
        ]
        read_only_fields = fields
        extra_kwargs = _SIZES | _PROMPTS

    def get_summary(self, run: CompactionRun) -> str | None:
        """Return the id of the summary the run stored, if it stored one."""
        found = next(iter(run.summaries.all()), None)
        return str(found.pk) if found else None


class RecoveryStepSerializer(serializers.ModelSerializer[RecoveryStep]):
    """One step of a turn's recovery; the steps of one turn share `recovery`.

    `move` is the older name of `action`, for one version.
    """

    move = serializers.CharField(
        source="action", read_only=True, help_text="Older name of action, for one version."
    )

    class Meta:
        model = RecoveryStep
        fields = [
            "recovery",
            "order",
            "branch",
            "run",
            "replay",
            "action",
            "move",
            "outcome",
            "text",
            "error_kind",
            "error",
            "observed",
            "allowed",
            "tokens_before",
            "tokens_after",
            "groups",
            "results_cut",
            "characters_cut",
            "created_at",
        ]
        read_only_fields = fields


class SummarySerializer(serializers.ModelSerializer[SessionSummary]):
    """A summary, without its sources and steps: they have addresses of their own."""

    profile = serializers.CharField(source="profile.name", read_only=True, allow_null=True)
    profile_version = serializers.IntegerField(
        source="profile.version", read_only=True, allow_null=True
    )
    author = serializers.CharField(
        source="author.username",
        read_only=True,
        allow_null=True,
        help_text="Who wrote the text; null where a program did, or the person is gone.",
    )
    edited = serializers.BooleanField(
        source="is_edited", read_only=True, help_text="Whether a person wrote the text."
    )
    archived = serializers.BooleanField(
        source="is_digest", read_only=True, help_text="Older name of is_digest, for one version."
    )

    class Meta:
        model = SessionSummary
        fields = [
            "id",
            "session",
            "branch",
            "kind",
            "status",
            "format_version",
            "summary_text",
            "summary_prompt",
            "prompt_version",
            "model",
            "temperature",
            "target_summary_tokens",
            "keep_last_n",
            "message_count",
            "approx_tokens",
            "summary_tokens",
            "first_message",
            "last_message",
            "first_message_created_at",
            "last_message_created_at",
            "metadata",
            "trigger",
            "reason",
            "truncated",
            "is_digest",
            "archived",
            "compression_ratio",
            "previous",
            "supersedes",
            "from_branch",
            "from_message",
            "covers_from",
            "covers_through",
            "tokens_before",
            "tokens_after",
            "cost",
            "files_read",
            "files_modified",
            "files_created",
            "files_deleted",
            "from_hook",
            "details",
            "instructions",
            "author",
            "edited",
            "run",
            "profile",
            "profile_version",
            "created_at",
            "updated_at",
            "activated_at",
            "superseded_at",
            "restored_at",
        ]
        read_only_fields = fields
        extra_kwargs = _SIZES


class CompactSerializer(KnownFields):
    """How to compact: `wait` for the end, or only say what would happen (`dry_run`).

    With `force` also where the next request becomes no smaller; otherwise that is skipped.
    """

    instructions = serializers.CharField(
        required=False, allow_blank=True, default="", max_length=4000
    )
    profile = serializers.CharField(required=False, allow_blank=True, default="", max_length=60)
    dry_run = serializers.BooleanField(required=False, default=False)
    wait = serializers.BooleanField(required=False, default=False)
    force = serializers.BooleanField(required=False, default=False)


class EstimateSerializer(serializers.Serializer[Any]):
    """What a compaction would do: the answer to `dry_run`."""

    dry_run = serializers.BooleanField()
    messages = serializers.IntegerField()
    tokens = serializers.IntegerField()
    calls = serializers.IntegerField()
    cost = serializers.FloatField()
    keep = serializers.IntegerField()
    reason = serializers.CharField(allow_blank=True)


COMPACT_RESULT = PolymorphicProxySerializer(
    component_name="CompactResult",
    serializers=[RunSerializer, EstimateSerializer],
    resource_type_field_name=None,
)


class TriggerSerializer(serializers.Serializer[Any]):
    """One rule: its limit, where things stand, what is left; 0 left means due.

    `waits_for` says what a rule waits for that has reached its limit and does not fire.
    """

    reason = serializers.CharField()
    limit = serializers.IntegerField()
    now = serializers.IntegerField()
    left = serializers.IntegerField()
    waits_for = serializers.CharField(allow_blank=True)


class LastConsolidatedSerializer(serializers.Serializer[Any]):
    """The last message that a summary covers: its id, how many stand up to it, its place."""

    message = serializers.UUIDField(allow_null=True)
    index = serializers.IntegerField()
    sequence_id = serializers.DecimalField(max_digits=20, decimal_places=6)


class SwitchSerializer(serializers.Serializer[Any]):
    """A switch to another branch that waits or is being done."""

    run = serializers.UUIDField()
    to = serializers.UUIDField(allow_null=True)
    status = serializers.CharField()


class CacheClockSerializer(serializers.Serializer[Any]):
    """When the server forgets the prompt of the branch's last request, and when a run is due."""

    expires_at = serializers.DateTimeField()
    expires_in_seconds = serializers.IntegerField()
    fires_in_seconds = serializers.IntegerField(
        help_text="0: it fires now, if characters and gain are enough."
    )


class NextTurnSerializer(serializers.Serializer[Any]):
    """What the next turn does, before its own message is known."""

    window = serializers.IntegerField(help_text="The model's window in tokens; 0: not known.")
    request_tokens = serializers.IntegerField(help_text="Tokens of the next request.")
    compacts = serializers.CharField(
        allow_null=True,
        help_text="Why it compacts first; `overflow`: only if the server refuses the request; "
        "null: it does not.",
    )


class HoldSerializer(serializers.Serializer[Any]):
    """Who holds restored messages, which, until when, and what the next turn will do."""

    by = serializers.CharField(allow_null=True, help_text="The user's name; null: nobody known.")
    since = serializers.DateTimeField(allow_null=True)
    ends = serializers.ChoiceField(
        choices=[each.value for each in HoldEnd],
        help_text="What ends it, besides a person and a request that does not fit.",
    )
    until = serializers.DateTimeField(allow_null=True)
    through = serializers.DecimalField(
        max_digits=20, decimal_places=6, help_text="The sequence id of the last message held."
    )
    next_turn = NextTurnSerializer()
    text = serializers.CharField(help_text="The same as sentences.")


class StateSerializer(serializers.Serializer[Any]):
    """A branch's state: cursor, lease, what comes next."""

    branch = serializers.UUIDField()
    profile = serializers.CharField()
    profile_version = serializers.IntegerField()
    cursor = serializers.IntegerField()
    last_consolidated = LastConsolidatedSerializer(allow_null=True)
    last_consolidated_at = serializers.DateTimeField(allow_null=True)
    is_consolidating = serializers.BooleanField()
    lease_expires_at = serializers.DateTimeField(allow_null=True)
    recheck_requested = serializers.BooleanField()
    pending = serializers.BooleanField(
        source="recheck_requested", help_text="Older name of recheck_requested, for one version."
    )
    failures = serializers.IntegerField()
    backoff_until = serializers.DateTimeField(allow_null=True)
    next_check_at = serializers.DateTimeField(allow_null=True)
    look_again_at = serializers.DateTimeField(
        source="next_check_at",
        allow_null=True,
        help_text="Older name of next_check_at, for one version.",
    )
    cache = CacheClockSerializer(
        allow_null=True,
        help_text="The clock of the server's prompt cache; null where the profile has none, or no "
        "request is known whose prompt is still kept.",
    )
    waiting = serializers.IntegerField()
    draft = serializers.UUIDField(allow_null=True)
    due = serializers.CharField(allow_null=True)
    gate = serializers.CharField(
        allow_blank=True,
        help_text="Why no rule compacts the session (excluded_bot_types, min_client_version), as a "
        "sentence; empty where rules count.",
    )
    hold = HoldSerializer(
        allow_null=True,
        help_text="A person took a summary back, and no rule compacts its messages; null: no hold.",
    )
    triggers = TriggerSerializer(many=True)
    switch = SwitchSerializer(allow_null=True)
    branch_summary = serializers.ChoiceField(
        choices=["never", "ask"],
        help_text="Whether the profile has people asked, at a switch, if the branch that they "
        "leave shall be summarised.",
    )


class ProfileSerializer(serializers.ModelSerializer[CompactionProfile]):
    """A profile that sessions may name; `is_default` counts where none is named."""

    class Meta:
        model = CompactionProfile
        fields = ["name", "version", "base", "description", "is_default"]
        read_only_fields = fields


class ProfileListSerializer(serializers.Serializer[Any]):
    """All profiles; there is one page of them."""

    results = ProfileSerializer(many=True)


class AssignProfileSerializer(KnownFields):
    """The profile of a session's branch; an empty name goes back to the default."""

    profile = serializers.CharField(allow_blank=True, max_length=60)


class RestoreSerializer(KnownFields):
    """Whether the newer summaries that were built on this one are taken back too.

    With `dry_run` nothing is changed: the answer says what would be.
    """

    cascade = serializers.BooleanField(required=False, default=False)
    dry_run = serializers.BooleanField(required=False, default=False)


class RestoredSerializer(serializers.Serializer[Any]):
    """What was taken back, where the cursor stands now, and what follows; or what would be."""

    dry_run = serializers.BooleanField()
    summaries = SummarySerializer(many=True)
    cursor = serializers.IntegerField()
    messages = serializers.IntegerField(help_text="Messages that are sent verbatim again.")
    tokens = serializers.IntegerField(help_text="Their tokens.")
    next_turn = NextTurnSerializer()
    text = serializers.CharField(help_text="What the next turn would do, as a sentence.")
    hold = HoldSerializer(allow_null=True)


class InstructionsSerializer(KnownFields):
    """What the next summary of the same messages should pay attention to; empty: nothing."""

    instructions = serializers.CharField(allow_blank=True, max_length=MOST_INSTRUCTION_CHARS)
