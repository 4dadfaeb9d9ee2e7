"""The shapes in which servers write an answer over Chat Completions, read as one.

What stands in a list with one server is alone with another, what is a text is an object, what is
beside the choices is inside of one or around the whole. Nothing here judges an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from chatapp.messages.wire import text_of

# Where a server says why its answer ended: in the choice, in the message, beside the choices.
# The model's own word counts where a gateway has none.
REASON_KEYS = (
    "finish_reason", "stop_reason", "done_reason", "finishReason", "finish_details",
    "native_finish_reason",
)  # fmt: skip
# Where gateways put the whole answer of their model, or a piece of it.
_AROUND = ("data", "response", "result", "body", "chunk", "output", "message", "payload")
_USAGE_KEYS = ("usage", "usage_metadata", "usageMetadata")
# Of a number in a list. Python reads no number of some thousand digits.
_MOST_DIGITS = 9
# Other words for the arguments of a call.
_ARGUMENT_KEYS = ("arguments", "parameters", "input", "args")


def unwrapped(body: dict[str, Any]) -> dict[str, Any]:
    """Return the answer in a body, or the piece in a piece: itself, or what a gateway wrapped."""
    if body.get("choices") or says_error(body.get("error")):
        return body
    inside = (one for key in _AROUND for one in _alone(body.get(key)))
    return next((one for one in inside if isinstance(one, dict) and "choices" in one), body)


def _alone(value: Any) -> list[Any]:
    """Return a value, and the only one of a list, as a list of one."""
    return [value] if not isinstance(value, list) else value[:1] if len(value) == 1 else []


def says_error(value: Any) -> bool:
    """Whether what stands under `error` tells of one: not nothing, and no object of nothings."""
    if isinstance(value, Mapping):
        return any(map(says_error, value.values()))
    return bool(value)


def choices_of(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the choices of a body: a list of them, or one alone."""
    return [one for one in listed(body.get("choices")) if isinstance(one, Mapping)]


def index_of(choice: Mapping[str, Any]) -> int:
    """Return the number of a choice among the answers to one request."""
    index = choice.get("index")
    return index if isinstance(index, int) else 0


def listed(value: Any) -> list[Any]:
    """Return a list as it is, and an object as the only one of a list.

    An object whose names are numbers stands for a list: {"0": {…}, "1": {…}}.
    """
    if isinstance(value, list):
        return value
    if not value or not isinstance(value, Mapping):
        return []
    is_numbered = all(str(key).isdecimal() and len(str(key)) <= _MOST_DIGITS for key in value)
    return [value[key] for key in sorted(value, key=int)] if is_numbered else [value]


def spoken(message: Mapping[str, Any]) -> str:
    """Return what is said in a recording, or in a piece of one."""
    audio = message.get("audio")
    return text_of(audio.get("transcript")) if isinstance(audio, Mapping) else ""


def refusal_of(message: Mapping[str, Any]) -> str:
    """Return what a model said instead of an answer: beside the content, or as its part."""
    if (beside := text_of(message.get("refusal"))) or isinstance(message.get("content"), str):
        return beside
    parts = [one for one in listed(message.get("content")) if isinstance(one, Mapping)]
    return "".join(text_of(one.get("refusal")) for one in parts)


_CALL_PLACES = frozenset(("tool_calls", "function_call"))


def calls_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the calls of a message, or of a piece of one, each with a `function`.

    The form before there were tools is one, and so is a part of the content: it counts where there
    is no other, because some gateways say the same calls in two forms.
    """
    if _CALL_PLACES.isdisjoint(message) and not isinstance(message.get("content"), list):
        return []  # nearly every piece of a stream
    calls = [one for one in listed(message.get("tool_calls")) if isinstance(one, Mapping)]
    called = message.get("function_call")
    if not calls and isinstance(called, Mapping) and called:
        calls = [{"index": 0, "function": called}]
    if not calls:
        parts = [one for one in listed(message.get("content")) if isinstance(one, Mapping)]
        calls = [one for one in parts if one.get("type") == "tool_use"]
    return [_with_function(call) for call in calls]


def _with_function(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call.get("function")
    if isinstance(function, Mapping):
        given = function.get("arguments")
        if given is None:
            found = (function.get(key) for key in _ARGUMENT_KEYS)
            given = next((one for one in found if one is not None), "")
            return {**call, "function": {**function, "arguments": given}}
        return call
    if not isinstance(call.get("name"), str):
        return {**call, "function": {}}
    given = next((call[key] for key in _ARGUMENT_KEYS if call.get(key) is not None), "")
    kept = {key: value for key, value in call.items() if key not in ("name", *_ARGUMENT_KEYS)}
    kept |= {"type": "function"} if kept.get("type") == "tool_use" else {}
    return {**kept, "function": {"name": call["name"], "arguments": given}}


def usage_of(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the usage report of a body, or of a piece; None for none, and for one of zeros.

    Some servers put it into the choice, or under a name of their own.
    """
    beside = body.get("x_groq")
    places = (body, beside if isinstance(beside, Mapping) else {}, *choices_of(body))
    found = (place.get(key) for place in places for key in _USAGE_KEYS)
    reports = (one for one in found if isinstance(one, dict))
    return next((one for one in reports if _counts_something(one)), None)


def _counts_something(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_counts_something, value.values()))
    if isinstance(value, list):
        return any(map(_counts_something, value))
    return bool(value)


_REASON_NAMES = frozenset(REASON_KEYS)


def reason_of(*places: Mapping[str, Any]) -> str:
    """Return the server's word for the end of an answer; empty where it has none yet."""
    return next(_reasons(places), "")


def _reasons(places: tuple[Mapping[str, Any], ...]) -> Iterator[str]:
    telling = [place for place in places if not _REASON_NAMES.isdisjoint(place)]
    for key in REASON_KEYS if telling else ():
        for place in telling:
            value = place.get(key)
            if isinstance(value, Mapping):
                value = value.get("type") or value.get("reason")
            if isinstance(value, str) and value and value.lower() not in ("null", "none"):
                yield value
