"""Which JSON type each field takes: `"1"` is no number, and `1` is not true.

REST framework's fields make of a value what they want: a number becomes a text, `"off"` becomes
false. What a client sent by mistake would be stored as something else. Here the type is looked at
before any field sees the value, and a wrong one is refused with both names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from rest_framework import serializers

# How a type is named in a sentence, by what JSON's values are in Python. A bool is an int, too.
_NAMES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (type(None), "null"),
    (bool, "true or false"),
    ((int, float), "a number"),
    (str, "a text"),
    (list, "a list"),
    (dict, "an object"),
)
# What fields take; the first that fits counts. Fields that are not named here look for themselves.
_TAKES: tuple[tuple[type[serializers.Field[Any, Any, Any, Any]], str], ...] = (
    (serializers.BooleanField, "true or false"),
    (serializers.UUIDField, "a text"),
    (serializers.ChoiceField, "a text"),
    (serializers.CharField, "a text"),
    (serializers.IntegerField, "a number"),
    (serializers.FloatField, "a number"),
    (serializers.ListField, "a list"),
    (serializers.DictField, "an object"),
)
_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
MAX_NAME_CHARS = 60
MOST_NAMES = 20
"""So many unknown names are answered one by one; a body can have a million."""


def json_type(value: Any) -> str:
    """Return what a JSON value is, as a sentence names it."""
    return next((name for kind, name in _NAMES if isinstance(value, kind)), "of no JSON type")


def is_uuid(value: str) -> bool:
    """Whether a text is a UUID as the API writes it: 32 digits with hyphens."""
    return _UUID.fullmatch(value) is not None


def unknown_names(given: Iterable[str], known: Iterable[str], *, what: str) -> dict[str, list[str]]:
    """Return a sentence for each name that there is not, with the one that may be meant."""
    names = sorted(known)
    wrong: dict[str, list[str]] = {}
    for name in given:
        if name in names:
            continue
        if len(wrong) == MOST_NAMES:
            break
        shown = name[:MAX_NAME_CHARS]
        near = get_close_matches(shown, names, n=1)
        there_are = f"There are: {', '.join(names)}." if names else "It takes none."
        hint = f"Did you mean {near[0]!r}?" if near else there_are
        wrong[shown] = [f"There is no {what} {shown!r}. {hint}"]
    return wrong


def wrong_types(
    fields: Mapping[str, serializers.Field[Any, Any, Any, Any]], data: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what is wrong by the names of fields, in the shape of validation errors.

    Null is each field's own matter, and so is what is only read: it may come back.
    """
    wrong: dict[str, Any] = {}
    for name, field in fields.items():
        if name in data and not field.read_only and (found := _fault(field, data[name])):
            wrong[name] = found
    return wrong


def _fault(field: serializers.Field[Any, Any, Any, Any], value: Any) -> Any:
    wanted = next((name for kind, name in _TAKES if isinstance(field, kind)), None)
    if wanted is None or value is None:
        return None
    is_type = json_type(value)
    if is_type != wanted:
        return [f"Must be {wanted}, not {is_type}."]
    if isinstance(field, serializers.IntegerField) and isinstance(value, float):
        return ["Must be a whole number."]
    if isinstance(field, serializers.UUIDField) and not is_uuid(value):
        return ["Must be a UUID: 32 digits with hyphens, as the API writes it."]
    if isinstance(field, serializers.ListField):
        return _faults_of(field.child, dict(enumerate(value)))
    if isinstance(field, serializers.DictField):
        return _faults_of(field.child, value)
    return None


def _faults_of(child: Any, values: Mapping[Any, Any]) -> dict[Any, Any] | None:
    found = {key: fault for key, value in values.items() if (fault := _fault(child, value))}
    return found or None
