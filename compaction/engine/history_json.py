"""The JSON in which other systems keep these parameters, read into the flat ones of a profile.

Its names are the established ones, and its part `abridged_history_params` is nested. Everything
that is wrong is named by its path, as in `abridged_history_params.total_chars_limit`; then nothing
of it counts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from compaction.engine.parameters import Profile
from compaction.engine.profile import ProfileError, build
from compaction.engine.rendering import template_problem

NESTED = "abridged_history_params"
LONGEST_JSON = 200_000
"""Characters; two texts of the longest kind fit in, however they are escaped."""
LONGEST_PATH_SHOWN = 100
_AS_NAMED = (
    "trigger_on_history_size_chars",
    "trigger_on_history_size_chars_when_cache_expiring",
    "history_tail_size_chars_to_exclude",
    "prompt",
    "cache_ttl_ms",
    "buffer_time_before_cache_expiration_ms",
    "summary_node_request_message_template",
    "summary_node_response_message",
)
_NESTED_NAMES = {
    "total_chars_limit": "abridged_total_chars_limit",
    "user_message_chars_limit": "abridged_user_message_chars_limit",
    "agent_response_chars_limit": "abridged_agent_response_chars_limit",
    "action_chars_limit": "abridged_action_chars_limit",
    "num_files_modified_limit": "abridged_num_files_modified",
    "num_files_created_limit": "abridged_num_files_created",
    "num_files_deleted_limit": "abridged_num_files_deleted",
    "num_files_viewed_limit": "abridged_num_files_viewed",
    "num_terminal_commands_limit": "abridged_num_terminal_commands",
}
PARAMETER_OF = {name: name for name in _AS_NAMED} | {
    f"{NESTED}.{key}": name for key, name in _NESTED_NAMES.items()
}
"""Every path with the parameter that it sets."""
_PATH_OF = {name: path for path, name in PARAMETER_OF.items()}
_TEMPLATE = "summary_node_request_message_template"
_TEXTS = frozenset(name for name in _AS_NAMED if "_message" in name or name == "prompt")


class _Object(dict[str, Any]):
    """A JSON object, of which later values win, and the keys that stand there more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(key for key, _ in pairs)
        self.repeated = [key for key, count in counts.items() if count > 1]


class HistoryJsonError(ValueError):
    """The JSON cannot be taken: `errors` maps a path to a sentence, "" for the whole."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        self.errors = dict(errors)
        super().__init__("\n".join(self.sentences))

    @property
    def sentences(self) -> list[str]:
        """What is wrong, each with its path."""
        return [f"{path}: {text}" if path else text for path, text in self.errors.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryValues:
    """What the JSON says: values by parameter, and the parameters that it gives back (null)."""

    values: Mapping[str, Any]
    given_back: frozenset[str]

    def over(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return a profile's own parameters with these over them, key by key."""
        left = {name: value for name, value in own.items() if name not in self.given_back}
        return left | dict(self.values)


def read_history_json(text: str) -> HistoryValues:
    """Return what the JSON sets. Raises HistoryJsonError with a sentence for each wrong path.

    A key that is missing sets nothing, and null gives the parameter back to the preset.
    """
    flat, errors = _flat(_parsed(text))
    for path, value in flat.items():
        if problem := _problem(path, value):
            errors.setdefault(_short(path), problem)
    if errors:
        raise HistoryJsonError(errors)
    known = {PARAMETER_OF[path]: value for path, value in flat.items()}
    return HistoryValues(
        values={name: value for name, value in known.items() if value is not None},
        given_back=frozenset(name for name, value in known.items() if value is None),
    )


def check_history_values(base: Profile, parameters: Mapping[str, Any]) -> None:
    """Raise HistoryJsonError where a profile of these parameters could not work.

    What is wrong is named by the path that sets it; by the parameter where the JSON has none.
    """
    try:
        build(base, parameters)
    except ProfileError as error:
        raise HistoryJsonError(errors_by_path(error.errors)) from error


def errors_by_path(errors: Mapping[str, str]) -> dict[str, str]:
    """Return sentences about parameters by the paths that set them."""
    return {_PATH_OF.get(name, name): sentence for name, sentence in errors.items()}


def _flat(document: _Object) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values by path, and what is wrong with the paths themselves."""
    flat: dict[str, Any] = {}
    errors = _twice(document, "")
    for key, value in document.items():
        if "." in key:
            # Only a part of its own may set what is nested.
            errors[_short(key)] = _unknown("")
        elif key != NESTED:
            flat[key] = value
        elif isinstance(value, _Object):
            errors |= _twice(value, f"{NESTED}.")
            flat |= {f"{NESTED}.{inner}": one for inner, one in value.items()}
        elif value is None:
            flat |= {f"{NESTED}.{inner}": None for inner in _NESTED_NAMES}
        else:
            errors[NESTED] = f"Must be an object, and is {_shown(value)}."
    return flat, errors


def _twice(document: _Object, before: str) -> dict[str, str]:
    sentence = "Stands there more than once: leave one of them."
    return {_short(before + key): sentence for key in document.repeated}


def _short(path: str) -> str:
    return path[:LONGEST_PATH_SHOWN]


def _parsed(text: str) -> _Object:
    # What a file begins with in some editors may be pasted along.
    text = text.removeprefix("\ufeff")
    if len(text) > LONGEST_JSON:
        _refuse(f"This is longer than {LONGEST_JSON:,} characters.")
    try:
        found = json.loads(text, object_pairs_hook=_Object, parse_constant=_no_number)
    except HistoryJsonError:
        raise
    except json.JSONDecodeError as error:
        _refuse(f"This is no JSON: {error.msg} at line {error.lineno}, column {error.colno}.")
    except (ValueError, RecursionError):
        _refuse("This is no JSON that can be read: a number is too long, or it is nested too deep.")
    if not isinstance(found, _Object):
        _refuse(f"This must be one JSON object, and is {_shown(found)}.")
    return found


def _no_number(word: str) -> NoReturn:
    raise HistoryJsonError({"": f"This is no JSON: {word} is no number."})


def _refuse(sentence: str) -> NoReturn:
    raise HistoryJsonError({"": sentence})


def _problem(path: str, value: Any) -> str:
    name = PARAMETER_OF.get(path)
    if name is None:
        return _unknown(path)
    if value is None:
        return ""
    if name in _TEXTS and not isinstance(value, str):
        return f"Must be a text, and is {_shown(value)}."
    if name == _TEMPLATE:
        # A profile would refuse it, too, but only once nothing else is wrong.
        return template_problem(value)
    if name in _TEXTS:
        return ""
    if isinstance(value, bool) or not isinstance(value, int):
        return f"Must be a whole number, and is {_shown(value)}."
    return f"Must not be negative, and is {value}." if value < 0 else ""


def _unknown(path: str) -> str:
    known = _NESTED_NAMES if path.startswith(f"{NESTED}.") else (*_AS_NAMED, NESTED)
    return f"There is no such key. Known: {', '.join(known)}."


def _shown(value: Any) -> str:
    """Return what a value is, in words, with its beginning."""
    kinds = {str: "the text", bool: "", _Object: "an object", list: "a list", type(None): ""}
    kind = kinds.get(type(value), "the number")
    if kind.startswith("a"):
        return kind
    return f"{kind} {json.dumps(value, ensure_ascii=False)[:60]}".strip()
