"""The shapes of what comes in and goes out."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import NotFound

from chatapp.api.base import KnownFields
from chatapp.api.json_types import MOST_NAMES
from chatapp.api.message_json import MESSAGE_FIELDS, writers_of
from chatapp.conf import chatapp_settings
from chatapp.llm.answer_ends import AnswerEnd
from chatapp.llm.learned_limits import still_known
from chatapp.llm.registry import all_models
from chatapp.messages.wire import Cleaner
from chatapp.models import MAX_LABEL_CHARS, Branch, Message, Session
from chatapp.transcript import resized_by

# PostgreSQL stores neither, SQLite takes the first: refused or replaced before either sees it.
NUL = "\x00"


def _storable(value: Any) -> Any:
    """Return a text or JSON value, or refuse it: settings are never replaced silently."""
    cleaner = Cleaner()
    cleaned = cleaner.json(value)
    if cleaner.replaced:
        raise serializers.ValidationError("Must not hold NUL or broken characters.")
    return cleaned


@extend_schema_field({"type": "array", "items": {"type": "string"}})
class AdaptationsField(serializers.Field[Any, Any, Any, Any]):
    """The codes of the changes that the session's requests need; some or all can be taken back."""

    def to_representation(self, value: dict[str, Any]) -> list[str]:
        """Return the codes that are in force."""
        return sorted(still_known(value))

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        """Return what is left of them; raise ValidationError for a code that was not there."""
        known = self.parent.instance.adaptations if self.parent.instance else {}
        if not isinstance(data, list) or not all(isinstance(code, str) for code in data):
            raise serializers.ValidationError("This must be a list of codes.")
        if more := [code for code in data if code not in known]:
            raise serializers.ValidationError(
                f"{more[0]!r} was not learnt for this session. Codes can only be taken back."
            )
        return {code: known[code] for code in data}


@extend_schema_field({"type": "object", "additionalProperties": True})
class MetadataField(serializers.DictField):
    """An object of the client's own; any JSON value has a place in it."""

    child = serializers.JSONField(allow_null=True)


@extend_schema_field(
    {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]}
)
class ToolField(serializers.JSONField):
    """The definition of a tool, as the model server takes it."""


class SessionSerializer(KnownFields, serializers.ModelSerializer[Session]):
    """A session. Messages are read on their own pages."""

    adaptations = AdaptationsField(required=False)

    active_branch = serializers.UUIDField(source="active_branch_id", read_only=True)
    tools = serializers.ListField(child=ToolField(), required=False)
    metadata = MetadataField(required=False)
    system_prompt = serializers.CharField(required=False, allow_blank=True, trim_whitespace=False)
    message_count = serializers.IntegerField(source="active_branch.message_count", read_only=True)
    token_total = serializers.IntegerField(source="active_branch.token_total", read_only=True)

    class Meta:
        model = Session
        fields = [
            "id",
            "title",
            "model",
            "api",
            "system_prompt",
            "tools",
            "metadata",
            "stateless",
            "plain_text",
            "adaptations",
            "active_branch",
            "message_count",
            "token_total",
            "created_at",
            "updated_at",
        ]
        read_only_fields = ["id", "created_at", "updated_at"]
        extra_kwargs = {"model": {"trim_whitespace": False}}

    def update(self, instance: Session, validated_data: dict[str, Any]) -> Session:
        """Write only what was sent: a turn may change the other columns at the same time."""
        row = Session.objects.filter(pk=instance.pk)
        if validated_data and not row.update(**resized_by(instance, validated_data)):
            raise NotFound
        for name, value in validated_data.items():
            setattr(instance, name, value)
        return instance

    def validate_title(self, value: str) -> Any:
        """Refuse what no database stores."""
        return _storable(value)

    def validate_metadata(self, value: dict[str, Any]) -> Any:
        """Refuse what no database stores, and what is longer than a message."""
        return _storable(_of_some_size(value))

    def validate_tools(self, value: list[Any]) -> Any:
        """Each tool is an object with a type, as the model server wants it."""
        for number, tool in enumerate(value):
            if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
                raise serializers.ValidationError(f"Tool {number} must be an object with a type.")
        return _storable(_of_some_size(value))

    def validate_model(self, value: str) -> str:
        """Only aliases of the settings can be used."""
        if value not in all_models():
            raise serializers.ValidationError(
                f"There is no model {value!r}. There are: {', '.join(all_models())}."
            )
        return value

    def validate_system_prompt(self, value: str) -> Any:
        """Keep the prompt within the size of a message."""
        if len(value) > chatapp_settings.max_message_chars:
            raise serializers.ValidationError(_too_long(len(value)))
        return _storable(value)


def _of_some_size(value: Any) -> Any:
    """Return JSON that is no longer than a message may be."""
    length = len(json.dumps(value, ensure_ascii=False))
    if length > chatapp_settings.max_message_chars:
        raise serializers.ValidationError(_too_long(length))
    return value


def _too_long(length: int) -> str:
    return (
        f"Has {length:,} characters; {chatapp_settings.max_message_chars:,} are allowed "
        "(MAX_MESSAGE_CHARS)."
    )


@extend_schema_field({"type": ["object", "null"]})
class ObjectOrNullField(serializers.JSONField):
    """An object of a shape that others choose, or nothing."""


@extend_schema_field({"type": ["array", "null"], "items": {"type": "object"}})
class CallsField(serializers.JSONField):
    """The tool calls of an answer, or nothing."""


@extend_schema_field(
    {
        "description": "The content as it was sent: a text, null, or a list of parts.",
        "anyOf": [
            {"type": ["string", "null"]},
            {"type": "array", "items": {"type": "object"}},
        ],
    }
)
class ContentField(serializers.JSONField):
    """What was said."""


class MessageSerializer(serializers.ModelSerializer[Message]):
    """A stored message. `content` is what the client sent: text, null or a list of parts."""

    sequence_id = serializers.DecimalField(max_digits=20, decimal_places=6, read_only=True)
    content = ContentField(read_only=True)
    tool_calls = CallsField(read_only=True)
    vendor = ObjectOrNullField(read_only=True)
    usage = ObjectOrNullField(read_only=True)
    metadata = serializers.DictField(read_only=True)
    branch = serializers.UUIDField(source="branch_id", read_only=True)
    end = serializers.ChoiceField(
        choices=[end.value for end in AnswerEnd],
        read_only=True,
        allow_null=True,
        help_text="How an answer ended, whatever its server's word. Null for what is no answer.",
    )

    class Meta:
        model = Message
        fields = MESSAGE_FIELDS
        read_only_fields = fields

    def to_representation(self, instance: Message) -> dict[str, Any]:
        """Return the row as JSON types.

        The fields above describe it for the schema. Writing it does not go through each of them:
        for a page of 100 messages that took longer than everything else together.
        """
        return {name: write(instance) for name, write in self._writers}

    @cached_property
    def _writers(self) -> list[tuple[str, Callable[[Message], Any]]]:
        return writers_of(self.Meta.fields)


class LightMessageSerializer(MessageSerializer):
    """`fields=light`: who said what, without the bookkeeping."""

    class Meta(MessageSerializer.Meta):
        fields = [
            "id",
            "sequence_id",
            "role",
            "kind",
            "content",
            "tool_calls",
            "tool_call_id",
            "pinned",
            "created_at",
        ]


class MessageSizeSerializer(MessageSerializer):
    """`fields=sizes`: ids, places and sizes, no text at all."""

    class Meta(MessageSerializer.Meta):
        fields = ["id", "sequence_id", "role", "kind", "tokens", "pinned", "created_at"]


class AnyMessageSerializer(serializers.Serializer[Any]):
    """Stands in the schema for a message in any of its forms (chatapp/api/operations.py)."""


class PinnedMessageSerializer(MessageSerializer):
    """The message, and what there is to say of all pins together."""

    warning = serializers.CharField(
        read_only=True,
        allow_null=True,
        help_text="A sentence where pinned messages take, or will take, more room than their "
        "share of the window; null otherwise. They are sent all the same.",
    )

    class Meta(MessageSerializer.Meta):
        fields = [*MessageSerializer.Meta.fields, "warning"]


class PinSerializer(KnownFields):
    """The only thing about a message that may change."""

    pinned = serializers.BooleanField()

    def to_internal_value(self, data: Any) -> Any:
        """Name every other field of a message that the client tried to change."""
        given = set(map(str, data)) - {"pinned"}
        if others := sorted(given.intersection(MessageSerializer.Meta.fields)):
            problem = "A stored message cannot be changed, only pinned."
            raise serializers.ValidationError({name: [problem] for name in others[:MOST_NAMES]})
        return super().to_internal_value(data)


class BranchSerializer(serializers.ModelSerializer[Branch]):
    """A branch; `is_active` tells whether the next turn goes on there.

    A `replay` stands for the branch that it `replaces`, with tool results shortened.
    """

    parent = serializers.UUIDField(  # type: ignore[assignment]
        source="parent_id", read_only=True, allow_null=True
    )
    replaces = serializers.UUIDField(source="replaces_id", read_only=True, allow_null=True)
    is_active = serializers.SerializerMethodField()

    class Meta:
        model = Branch
        fields = [
            "id",
            "parent",
            "kind",
            "label",
            "replaces",
            "fork_position",
            "head_position",
            "message_count",
            "token_total",
            "is_active",
            "created_at",
        ]
        read_only_fields = fields

    def get_is_active(self, branch: Branch) -> bool:
        """Return whether this is the session's active branch."""
        return branch.pk == branch.session.active_branch_id


def label_field(**options: Any) -> serializers.CharField:
    """Return the field of a branch's label."""
    return serializers.CharField(
        max_length=MAX_LABEL_CHARS,
        allow_null=True,
        allow_blank=True,
        help_text="A name for people; null takes it away.",
        **options,
    )


class ForkSerializer(KnownFields):
    """Where a new branch starts, and whether to go on there at once."""

    message = serializers.UUIDField(
        help_text="The last message that both branches share, or with `before` the first that the "
        "new one does not."
    )
    before = serializers.BooleanField(required=False, default=False)
    label = label_field(required=False, default="")  # type: ignore[assignment]
    activate = serializers.BooleanField(required=False, default=True)


class BranchLabelSerializer(KnownFields):
    """What may change of a branch: its label; null takes it away."""

    label = label_field()  # type: ignore[assignment]


class AccountSerializer(serializers.Serializer[Any]):
    """Where a request's tokens go."""

    system = serializers.IntegerField()
    tools = serializers.IntegerField()
    memories = serializers.IntegerField()
    summaries = serializers.IntegerField()
    pinned = serializers.IntegerField(help_text="What is sent for its pin alone.")
    kept = serializers.IntegerField()
    pending = serializers.IntegerField()
    frames = serializers.IntegerField(help_text="Roles and marks of the messages.")
    reserve = serializers.IntegerField()
    window = serializers.IntegerField()
    counter = serializers.CharField()
    exact = serializers.BooleanField()
    tokens_per_count = serializers.FloatField()
    memories_left_out = serializers.IntegerField()
    used = serializers.IntegerField()
    free = serializers.IntegerField()


class NotShownSerializer(serializers.Serializer[Any]):
    """Messages that the next request sends and that are not listed here."""

    messages = serializers.IntegerField(min_value=1)
    tokens = serializers.IntegerField(min_value=0)
    first = serializers.CharField(help_text="Place of the first one, as in `sequence_id`.")
    last = serializers.CharField(help_text="Place of the last one.")


class ContextSerializer(serializers.Serializer[Any]):
    """Exactly what the next request would send, with the token account and the backend's news.

    `messages` on the chat wire, `input` on the Responses wire.
    """

    messages = serializers.ListField(child=serializers.DictField(), required=False)
    input = serializers.ListField(child=serializers.DictField(), required=False)
    account = AccountSerializer()
    facts = serializers.DictField()
    not_shown = NotShownSerializer(
        allow_null=True,
        help_text="What stands before the messages that are listed; null where all are.",
    )


class StoredSerializer(serializers.Serializer[Any]):
    """The messages that a request stored, in order."""

    messages = MessageSerializer(many=True)


class LeftOutSerializer(NotShownSerializer):
    """Messages that an answer's request went without: neither they nor a summary of them."""

    why = serializers.CharField(
        help_text="`halve_history`: the request was refused as too large, and nothing else helped; "
        "`history_limit`: the profile sends no more messages than that; `head_overflow`: the "
        "profile had summarisers pass over them unread."
    )


class TurnResultSerializer(serializers.Serializer[Any]):
    """A finished turn."""

    messages = MessageSerializer(many=True)
    answer = MessageSerializer()
    context = AccountSerializer()  # type: ignore[assignment]  # the base class's has that name
    run = serializers.UUIDField(allow_null=True)
    left_out = LeftOutSerializer(
        allow_null=True,
        help_text="What of the conversation the answer was given without; null for nothing.",
    )
    events = serializers.ListField(
        child=serializers.DictField(),
        help_text="What happened in the turn, in order: the events of a stream that are no pieces "
        "of the answer, each with its name as `event`.",
    )


class ImportedSessionSerializer(serializers.Serializer[Any]):
    """What one conversation of a file became."""

    session = serializers.UUIDField()
    title = serializers.CharField()
    format = serializers.CharField()
    messages_added = serializers.IntegerField()
    created = serializers.BooleanField()


class ImportResultSerializer(serializers.Serializer[Any]):
    """What an import stored and what it left out, line by line."""

    sessions = ImportedSessionSerializer(many=True)
    problems = serializers.ListField(child=serializers.DictField())
