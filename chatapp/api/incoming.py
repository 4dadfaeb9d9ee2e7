"""What clients post into a conversation: messages, and turns (chatapp/api/wire_schema.py)."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any

from rest_framework import serializers

from chatapp.api.base import KnownFields
from chatapp.api.json_types import json_type, unknown_names
from chatapp.api.serializers import NUL
from chatapp.conf import chatapp_settings
from chatapp.messages.wire import (
    InvalidMessageError,
    check_size,
    fields_of,
    has_parts_besides_text,
    is_blank,
)
from chatapp.transcript.writing import NewMessage

CONTINUE = "continue"
EDITS = "edits"
HOW_TO_GO_ON = (
    '{"continue": true} goes on without a message: it answers one that waits, or finishes an '
    "answer that was cut off."
)
MOST_COMPARED_NAMES = 50
"""So many of a message's own names are looked at for one that may have been meant otherwise."""
EMPTY_TURN = f"The turn has no message. Send `content` or `messages`; {HOW_TO_GO_ON}"


class WireMessageField(serializers.Field[Any, Any, Any, Any]):
    """One OpenAI chat message, checked and ready to be stored."""

    def to_internal_value(self, data: Any) -> NewMessage:
        """Return a draft; refuse what has no place in a transcript, with a reason."""
        if not isinstance(data, dict):
            raise serializers.ValidationError("A message must be an object.")
        _check_function_call(data)
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


def _check_function_call(data: dict[str, Any]) -> None:
    """Refuse the older form of a call where it is none, or where no call can stand."""
    called = data.get("function_call")
    if called is None:
        return
    if not isinstance(called, dict):
        problem = f"must be an object, not {json_type(called)}."
    elif data.get("role") != "assistant":
        problem = "only an assistant's message can have one."
    else:
        return
    raise serializers.ValidationError(f"function_call: {problem}")


def _check_user_message(data: dict[str, Any], fields: dict[str, Any]) -> None:
    if not fields["content"] and not has_parts_besides_text(fields):
        # Fields of one's own are kept, so a slip of the pen is no unknown field here.
        names = [] if "content" in data else list(islice(data, MOST_COMPARED_NAMES))
        near = get_close_matches("content", names, n=1)
        hint = f" Did you mean 'content' by {near[0]!r}?" if near else ""
        raise serializers.ValidationError(
            f"content: a user's message needs a text or a part.{hint}"
        )
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
                f"{len(value)} messages in one request; at most {limit}. Send them in parts."
            )
        return value


class TurnSerializer(AppendSerializer):
    """`content` (a user's message), one whole message, `messages`, or `continue` alone.

    `continue` goes on with what is stored: an answer that was cut off goes on where it stopped.
    Whether a turn without any of them is one, the view decides.
    """

    messages = serializers.ListField(child=WireMessageField(), required=False, default=list)
    content = serializers.JSONField(required=False, write_only=True)
    stream = serializers.BooleanField(required=False, default=False)
    edits = serializers.UUIDField(
        required=False,
        default=None,
        help_text="A user's message whose place these messages take, in a branch of their own.",
    )

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Add the field whose name is a keyword of Python."""
        own = {CONTINUE: serializers.BooleanField(required=False, default=False)}
        return super().get_fields() | own

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a message beside the wish to continue an answer: it would ask something else."""
        if attrs[CONTINUE] and attrs["messages"]:
            problem = "Send a message or continue the last answer, not both."
            raise serializers.ValidationError({CONTINUE: [problem]})
        if attrs[EDITS] and not attrs["messages"]:
            problem = "Send the message that takes the place of the edited one."
            raise serializers.ValidationError({EDITS: [problem]})
        return attrs

    def to_internal_value(self, data: Any) -> Any:
        """Take `content` (or a whole message) as one message; both at once are refused."""
        if isinstance(data, dict) and ("content" in data or "role" in data):
            data = self._of_one_message(data)
        return super().to_internal_value(data)

    def _of_one_message(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the turn with its one message in the list; raise ValidationError."""
        _refuse_messages_beside(data)
        message = {
            k: v for k, v in data.items() if k not in ("stream", "messages", CONTINUE, EDITS)
        }
        if "role" not in message:
            if wrong := unknown_names(data, self.fields, what="field"):
                raise serializers.ValidationError(wrong)
            message = {"role": "user", "content": data["content"]}
        if _says_nothing(message):
            raise serializers.ValidationError({"content": [f"Is blank. {EMPTY_TURN}"]})
        given = {key: data[key] for key in ("stream", CONTINUE, EDITS) if key in data}
        return {"messages": [message]} | given


def _refuse_messages_beside(data: Mapping[str, Any]) -> None:
    messages = data.get("messages", [])
    if not isinstance(messages, list):
        wrong = [f"Must be a list, not {json_type(messages)}."]
        raise serializers.ValidationError({"messages": wrong})
    if messages:
        raise serializers.ValidationError({"content": ["Send content or messages, not both."]})


def _says_nothing(message: Mapping[str, Any]) -> bool:
    """Whether a message is a user's whose content shows nothing."""
    content = message.get("content")
    if message["role"] != "user":
        return False
    if isinstance(content, list):
        return all(_is_blank_part(part) for part in content)
    return content is None or (isinstance(content, str) and is_blank(content))


def _is_blank_part(part: Any) -> bool:
    text = part.get("text") if isinstance(part, Mapping) else part
    return isinstance(text, str) and is_blank(text)
