"""The shapes of what comes in and goes out."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import NotFound

from chatapp.api.base import KnownFields
from chatapp.api.message_json import writers_of
from chatapp.conf import chatapp_settings
from chatapp.llm.answer_ends import AnswerEnd
from chatapp.llm.learned_limits import still_known
from chatapp.llm.registry import all_models
from chatapp.messages.wire import (
    Cleaner,
    InvalidMessageError,
    check_size,
    content_of,
    fields_of,
    has_parts_besides_text,
)
from chatapp.models import Branch, Message, Session
from chatapp.transcript.writing import NewMessage

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


class SessionSerializer(KnownFields, serializers.ModelSerializer[Session]):
    """A session. Messages are read on their own pages."""

    adaptations = AdaptationsField(required=False)

    active_branch = serializers.UUIDField(source="active_branch_id", read_only=True)
    tools = serializers.ListField(child=serializers.JSONField(), required=False)
    metadata = serializers.DictField(child=serializers.JSONField(allow_null=True), required=False)
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

    def update(self, instance: Session, validated_data: dict[str, Any]) -> Session:
        """Write only what was sent: a turn may change the other columns at the same time."""
        row = Session.objects.filter(pk=instance.pk)
        if validated_data and not row.update(**validated_data):
            raise NotFound
        for name, value in validated_data.items():
            setattr(instance, name, value)
        return instance

    def validate_title(self, value: str) -> Any:
        """Refuse what no database stores."""
        return _storable(value)

    def validate_metadata(self, value: dict[str, Any]) -> Any:
        """Refuse what no database stores."""
        return _storable(value)

    def validate_tools(self, value: list[Any]) -> Any:
        """Each tool is an object with a type, as the model server wants it."""
        for number, tool in enumerate(value):
            if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
                raise serializers.ValidationError(f"Tool {number} must be an object with a type.")
        return _storable(value)

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


def _too_long(length: int) -> str:
    return (
        f"Has {length:,} characters; {chatapp_settings.max_message_chars:,} are allowed "
        "(MAX_MESSAGE_CHARS)."
    )


class MessageSerializer(serializers.ModelSerializer[Message]):
    """A stored message. `content` is what the client sent: text, null or a list of parts."""

    sequence_id = serializers.DecimalField(max_digits=20, decimal_places=6, read_only=True)
    content = serializers.SerializerMethodField()
    branch = serializers.UUIDField(source="branch_id", read_only=True)
    end = serializers.ChoiceField(
        choices=[end.value for end in AnswerEnd],
        read_only=True,
        allow_null=True,
        help_text="How an answer ended, whatever its server's word. Null for what is no answer.",
    )

    class Meta:
        model = Message
        fields = [
            "id",
            "branch",
            "sequence_id",
            "role",
            "kind",
            "content",
            "tool_calls",
            "tool_call_id",
            "tool_name",
            "reasoning",
            "summary",
            "metadata",
            "vendor",
            "tokens",
            "usage",
            "end",
            "finish_reason",
            "response_id",
            "pinned",
            "created_at",
        ]
        read_only_fields = [name for name in fields if name != "pinned"]

    @extend_schema_field(OpenApiTypes.ANY)
    def get_content(self, message: Message) -> Any:
        """Return the content as it was sent."""
        return content_of(message)

    def to_representation(self, instance: Message) -> dict[str, Any]:
        """Return the row as JSON types.

        The fields above describe it for the schema. Writing it does not go through each of them:
        for a page of 100 messages that took longer than everything else together.
        """
        return {name: write(instance) for name, write in self._writers}

    @cached_property
    def _writers(self) -> list[tuple[str, Callable[[Message], Any]]]:
        return writers_of(self.Meta.fields)


class CompactMessageSerializer(MessageSerializer):
    """`verbosity=compact`: who said what, without the bookkeeping."""

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


class QuietMessageSerializer(MessageSerializer):
    """`verbosity=quiet`: ids, places and sizes, no text at all."""

    class Meta(MessageSerializer.Meta):
        fields = ["id", "sequence_id", "role", "kind", "tokens", "pinned", "created_at"]


class PinSerializer(serializers.Serializer[Any]):
    """The only thing about a message that may change."""

    pinned = serializers.BooleanField()

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Name every other field that the client tried to change."""
        others = sorted(set(self.initial_data) - {"pinned"})
        if others:
            raise serializers.ValidationError(
                {name: ["A stored message cannot be changed, only pinned."] for name in others}
            )
        return attrs


@extend_schema_field(OpenApiTypes.OBJECT)
class WireMessageField(serializers.Field[Any, Any, Any, Any]):
    """One OpenAI chat message, checked and ready to be stored."""

    def to_internal_value(self, data: Any) -> NewMessage:
        """Return a Draft; refuse what has no place in a transcript, with a reason."""
        if not isinstance(data, dict):
            raise serializers.ValidationError("A message must be an object.")
        try:
            fields = fields_of(data)
            check_size(
                fields,
                most_chars=chatapp_settings.max_message_chars,
                most_part_chars=chatapp_settings.max_part_chars,
            )
        except InvalidMessageError as error:
            raise serializers.ValidationError(str(error)) from error
        if fields["role"] == "user":
            _check_user_message(data, fields)
        if fields["role"] == "tool" and not fields["tool_call_id"]:
            raise serializers.ValidationError("tool_call_id: a tool's result must name its call.")
        return NewMessage(wire=data)

    def to_representation(self, value: Any) -> Any:
        """Return the value: this field is only read from clients."""
        return value


def _check_user_message(data: dict[str, Any], fields: dict[str, Any]) -> None:
    if not fields["content"] and not has_parts_besides_text(fields):
        raise serializers.ValidationError("content: a user's message needs a text or a part.")
    if _holds_nul(data.get("content")):
        raise serializers.ValidationError(
            "content: has a NUL character, which is no text. Remove it and send it again."
        )


def _holds_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_holds_nul(item) for item in value.values())
    if isinstance(value, list):
        return any(_holds_nul(item) for item in value)
    return isinstance(value, str) and NUL in value


class AppendSerializer(KnownFields):
    """One message (`role`, `content`, …) or many (`messages`)."""

    messages = serializers.ListField(child=WireMessageField(), allow_empty=False)

    def to_internal_value(self, data: Any) -> Any:
        """Take a single message as a list of one."""
        if isinstance(data, dict) and "messages" not in data and "role" in data:
            data = {"messages": [data]}
        return super().to_internal_value(data)

    def validate_messages(self, value: list[NewMessage]) -> list[NewMessage]:
        """Keep one request within bounds."""
        limit = chatapp_settings.max_messages_per_request
        if len(value) > limit:
            raise serializers.ValidationError(
                f"{len(value)} messages in one request; {limit} are allowed. Send them in parts."
            )
        return value


CONTINUE = "continue"


class TurnSerializer(AppendSerializer):
    """`content` (a user's message), `messages`, or neither: an empty turn goes on.

    `continue` goes on with an answer that was cut off, from where it stopped.
    """

    messages = serializers.ListField(child=WireMessageField(), required=False, default=list)
    content = serializers.JSONField(required=False, write_only=True)
    stream = serializers.BooleanField(required=False, default=False)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Add the field whose name is a keyword of Python."""
        own = {CONTINUE: serializers.BooleanField(required=False, default=False)}
        return super().get_fields() | own

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a message beside the wish to continue an answer: it would ask something else."""
        if attrs[CONTINUE] and attrs["messages"]:
            problem = "Send a message or continue the last answer, not both."
            raise serializers.ValidationError({CONTINUE: [problem]})
        return attrs

    def to_internal_value(self, data: Any) -> Any:
        """Take `content` (or a whole message) as one message; both at once are refused."""
        if isinstance(data, dict) and ("content" in data or "role" in data):
            if data.get("messages"):
                raise serializers.ValidationError(
                    {"content": ["Send content or messages, not both."]}
                )
            own = {"stream", "messages", CONTINUE}
            message = {key: value for key, value in data.items() if key not in own}
            if "role" not in message:
                message = {"role": "user", "content": data["content"]}
            given = {key: data[key] for key in ("stream", CONTINUE) if key in data}
            data = {"messages": [message]} | given
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


class ActivateSerializer(KnownFields):
    """What the context backend is asked to do with a switch, besides switching."""

    wishes = serializers.DictField(
        required=False, help_text="Passed on to the context backend as it is."
    )


class ForkSerializer(KnownFields):
    """Where a new branch starts, and whether to go on there at once."""

    message = serializers.UUIDField(help_text="The last message that both branches share.")
    activate = serializers.BooleanField(required=False, default=True)


class AccountSerializer(serializers.Serializer[Any]):
    """Where a request's tokens go."""

    system = serializers.IntegerField()
    tools = serializers.IntegerField()
    summaries = serializers.IntegerField()
    kept = serializers.IntegerField()
    pending = serializers.IntegerField()
    reserve = serializers.IntegerField()
    window = serializers.IntegerField()
    counter = serializers.CharField()
    exact = serializers.BooleanField()
    tokens_per_count = serializers.FloatField()
    used = serializers.IntegerField()
    free = serializers.IntegerField()


class ContextSerializer(serializers.Serializer[Any]):
    """Exactly what the next request would send, with the token account and the backend's news.

    `messages` on the chat wire, `input` on the Responses wire.
    """

    messages = serializers.ListField(child=serializers.DictField(), required=False)
    input = serializers.ListField(child=serializers.DictField(), required=False)
    account = AccountSerializer()
    facts = serializers.DictField()


class StoredSerializer(serializers.Serializer[Any]):
    """The messages that a request stored, in order."""

    messages = MessageSerializer(many=True)


class TurnResultSerializer(serializers.Serializer[Any]):
    """A finished turn."""

    messages = MessageSerializer(many=True)
    answer = MessageSerializer()
    context = AccountSerializer()  # type: ignore[assignment]  # the base class's has that name
    run = serializers.UUIDField(allow_null=True)


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
