"""The JSON schemas of what clients post into a conversation: messages, and turns.

Messages are those of OpenAI's Chat Completions, read by `chatapp/messages/wire.py`. No serializer
could describe them: which fields there may be hangs on the role.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.plumbing import ResolvedComponent

WIRE_MESSAGE = "WireMessage"
# Every character that shows something, and so makes a text not blank (`is_blank` decides).
SHOWN = (
    "[^\\u0000-\\u0020\\u007f-\\u00a0\\u00ad\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890\\u0891"
    "\\u08e2\\u115f\\u1160\\u1680\\u180e\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u2064"
    "\\u2066-\\u206f\\u2800\\u3000\\u3164\\ufeff\\uffa0\\ufff9-\\ufffb]"
)
Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_PART: Schema = {
    "title": "part",
    "type": "object",
    "description": "A part of a content: text, an image, a file, a recording. Other types are kept "
    "and passed on; `chars` is no key of a part.",
    "properties": {"type": _TEXT, "text": {"description": "The text of a part of type `text`."}},
    "required": ["type"],
    "not": {"required": ["chars"]},
}
_PARTS: Schema = {"type": "array", "items": {"anyOf": [_TEXT, _PART]}}
_CONTENT: Schema = {"anyOf": [{"type": "null"}, _TEXT, _PARTS]}


def _says_something(text: Schema) -> Schema:
    """Return the content of a message that needs one: `text` is what its text has to be."""
    part = {
        "anyOf": [
            text,
            {"type": "object", "properties": {"text": text}, "required": ["text"]},
            {"type": "object", "not": {"required": ["text"], "properties": {"text": _TEXT}}},
        ]
    }
    return {"anyOf": [text, _PARTS | {"contains": part}]}


_CALL: Schema = {
    "type": "object",
    "properties": {
        "id": {"description": "By which the tool's message names the call."},
        "type": {"description": "`function`, whatever is sent."},
        "function": {
            "type": "object",
            "properties": {
                "name": _TEXT,
                "arguments": {"description": "JSON as a text; other values become one."},
            },
            "required": ["name"],
        },
    },
    "required": ["function"],
}
_NO_CALLS: Schema = {
    "tool_calls": {"anyOf": [{"type": "null"}, {"type": "array", "maxItems": 0}]},
    "function_call": {"type": "null"},
}
_CALLS: Schema = {
    "tool_calls": {"anyOf": [{"type": "null"}, {"type": "array", "items": _CALL}]},
    "function_call": {
        "description": "The form of calls before there were tools.",
        "anyOf": [
            {"type": "null"},
            {"type": "object", "properties": {"name": _TEXT}, "required": ["name"]},
        ],
    },
}


def _message(
    title: str, roles: list[str], content: Schema, *, needs: tuple[str, ...] = (), **own: Schema
) -> Schema:
    properties = {
        # Each a constant: the names of enums are those of serializers.
        "role": {"anyOf": [{"const": role} for role in roles]},
        "content": content,
        "name": _TEXT_OR_NULL,
        "refusal": _TEXT_OR_NULL,
        "reasoning_content": _TEXT_OR_NULL,
        "tool_call_id": _TEXT_OR_NULL,
    }
    return {
        "title": title,
        "type": "object",
        "properties": properties | own,
        "required": ["role", *needs],
    }


def _messages(user_text: Schema) -> list[Schema]:
    call_id = {"tool_call_id": {"type": "string", "minLength": 1}}
    said = _says_something(user_text)
    return [
        _message("user", ["user"], said, needs=("content",), **_NO_CALLS),
        _message("assistant", ["assistant"], _CONTENT, **_CALLS),
        _message("tool", ["tool"], _CONTENT, needs=("tool_call_id",), **_NO_CALLS, **call_id),
        _message("system", ["system", "developer"], _CONTENT, **_NO_CALLS),
        _message("function", ["function"], _CONTENT, **_NO_CALLS),
    ]


_NOT_BLANK: Schema = {"type": "string", "pattern": SHOWN}
_MESSAGE: Schema = {
    "description": "A message as OpenAI's Chat Completions take it. Keys that nobody knows are "
    "kept with it. At most MAX_MESSAGE_CHARS characters; a user's text has no NUL.",
    "oneOf": _messages({"type": "string", "minLength": 1}),
    "example": {"role": "tool", "tool_call_id": "call_1", "content": "12 °C"},
}


def own_component(auto_schema: Any, name: str, schema: Schema) -> Schema:
    """Return a reference to a component that no serializer describes; it is made when missing."""
    make: Any = ResolvedComponent
    component = make(name=name, type=ResolvedComponent.SCHEMA, object=name, schema=schema)
    auto_schema.registry.register_on_missing(component)
    reference: Schema = component.ref
    return reference


def _wire_message(auto_schema: Any) -> Schema:
    return own_component(auto_schema, WIRE_MESSAGE, _MESSAGE)


class KnownFieldsBody(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """Bodies whose other fields are refused."""

    target_class = "chatapp.api.base.KnownFields"
    match_subclasses = True

    def map_serializer(self, auto_schema: Any, direction: Any) -> Schema:
        """Return the usual schema, closed where it describes a request, whole in an answer."""
        schema: Schema = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        if direction == "request":
            return schema | {"additionalProperties": False} | dict(self.target.rules)
        return schema | {"required": sorted(schema["properties"])}


class AppendBody(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """One message, or many."""

    target_class = "chatapp.api.incoming.AppendSerializer"
    priority = 1

    def map_serializer(self, auto_schema: Any, direction: Any) -> Schema:
        """Return both forms."""
        message = _wire_message(auto_schema)
        many = {
            "title": "many",
            "type": "object",
            "properties": {"messages": {"type": "array", "items": message, "minItems": 1}},
            "required": ["messages"],
            "additionalProperties": False,
        }
        return {"description": "One message, or many (`messages`).", "anyOf": [many, message]}


class TurnBody(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """A question as a text, as messages, as one whole message; or the wish to go on."""

    target_class = "chatapp.api.incoming.TurnSerializer"
    priority = 1

    def map_serializer(self, auto_schema: Any, direction: Any) -> Schema:
        """Return the forms that a turn can have."""
        how: Schema = {
            "stream": {
                "type": "boolean",
                "default": False,
                "description": "Answer with server-sent events.",
            },
            "continue": {"const": False, "description": "Goes without a message only."},
        }
        edits: Schema = {
            "edits": {
                "type": "string",
                "format": "uuid",
                "description": "A user's message whose place this takes, in a branch of its own.",
            }
        }
        none = {"messages": {"type": "array", "maxItems": 0}}
        message = _wire_message(auto_schema)
        whole = [
            one | {"properties": one["properties"] | how | edits | none}
            for one in _messages(_NOT_BLANK)
        ]
        on = {"const": True, "description": "Answer what waits, or finish an answer cut off."}
        some = {"type": "array", "items": message, "minItems": 1}
        return {
            "description": "What a turn answers. One without a message needs `continue`.",
            "anyOf": [
                _closed("question", "content", how | edits | none | {"content": _question()}),
                _closed("messages", "messages", how | edits | {"messages": some}),
                _closed("continue", "continue", how | none | {"continue": on}),
                {"title": "message", "oneOf": whole},
            ],
            "example": {"content": "Where do we start?", "stream": False},
        }


def _question() -> Schema:
    return {"description": "A user's message: a text or parts."} | _says_something(_NOT_BLANK)


def _closed(title: str, needed: str, properties: Schema) -> Schema:
    return {
        "title": title,
        "type": "object",
        "properties": properties,
        "required": [needed],
        "additionalProperties": False,
    }
