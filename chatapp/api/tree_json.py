"""The shapes of branches in a list, and of the nodes of a session's tree."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from chatapp.api.serializers import BranchSerializer
from chatapp.extensions import MarkKind
from chatapp.models import Branch, Message
from chatapp.outline_pages import MOST_NAMED


class LastMessageSerializer(serializers.Serializer[Any]):
    """The message that a branch ends with."""

    id = serializers.UUIDField(source="pk")
    role = serializers.ChoiceField(choices=Message.Role.choices)
    preview = serializers.CharField(help_text="The beginning of its text.")
    created_at = serializers.DateTimeField()


class MarkCountSerializer(serializers.Serializer[Any]):
    """How many hold on a branch: its own, and those of its ancestors up to the fork."""

    own = serializers.IntegerField()
    shared = serializers.IntegerField()


class ListedBranchSerializer(BranchSerializer):
    """A branch with its ends; `message_count` and `token_total` are sums along its whole path."""

    fork_message = serializers.UUIDField(
        read_only=True, allow_null=True, help_text="The last message that it shares with `parent`."
    )
    last_message = serializers.SerializerMethodField()
    summaries = serializers.SerializerMethodField()
    branch_summaries = serializers.SerializerMethodField()

    class Meta(BranchSerializer.Meta):
        fields = [
            *BranchSerializer.Meta.fields,
            "fork_message",
            "last_message",
            "summaries",
            "branch_summaries",
        ]
        read_only_fields = fields

    @extend_schema_field(LastMessageSerializer(allow_null=True))
    def get_last_message(self, branch: Branch) -> Any:
        """Return the message that it ends with; null for a line without any."""
        message = self.context["facts"][branch.pk].last_message
        return None if message is None else LastMessageSerializer(message).data

    @extend_schema_field(MarkCountSerializer())
    def get_summaries(self, branch: Branch) -> Any:
        """Return how many summaries hold on it."""
        return self._marks(branch, MarkKind.SUMMARY)

    @extend_schema_field(MarkCountSerializer())
    def get_branch_summaries(self, branch: Branch) -> Any:
        """Return how many summaries of branches that were left hold on it."""
        return self._marks(branch, MarkKind.BRANCH_SUMMARY)

    def _marks(self, branch: Branch, kind: MarkKind) -> Any:
        return MarkCountSerializer(self.context["facts"][branch.pk].marks[kind]).data


class LineEndSerializer(serializers.Serializer[Any]):
    """A branch as a node names it."""

    id = serializers.UUIDField()
    label = serializers.CharField()  # type: ignore[assignment]  # the base class's has that name
    is_active = serializers.BooleanField()


class NodeSerializer(serializers.Serializer[Any]):
    """A message at which branches begin or end, or that opens a line, and the way that leads to it.

    `message`, `role` and `kind` are null for a line that has no message yet. `summaries` and
    `branch_summaries` stand between it and `parent`, the next node above.
    """

    message = serializers.UUIDField(allow_null=True)
    role = serializers.ChoiceField(choices=Message.Role.choices, allow_null=True)
    kind = serializers.ChoiceField(choices=Message.Kind.choices, allow_null=True)
    preview = serializers.CharField(help_text="The beginning of its text.")
    sequence_id = serializers.DecimalField(max_digits=20, decimal_places=6)
    tokens_through = serializers.IntegerField(help_text="Tokens of the path up to here.")
    created_at = serializers.DateTimeField(allow_null=True)
    branch = serializers.UUIDField(help_text="The branch that the message belongs to.")
    parent = serializers.UUIDField(  # type: ignore[assignment]
        allow_null=True, help_text="The message of the node above."
    )
    is_root = serializers.BooleanField()
    is_head = serializers.BooleanField()
    on_active_path = serializers.BooleanField()
    heads = LineEndSerializer(
        many=True, help_text=f"Branches that end here; {MOST_NAMED} at most are named."
    )
    head_count = serializers.IntegerField()
    forks = LineEndSerializer(
        many=True, help_text=f"Branches that begin here; {MOST_NAMED} at most are named."
    )
    fork_count = serializers.IntegerField()
    summaries = serializers.IntegerField()
    branch_summaries = serializers.IntegerField()
