"""What an answer's usage report says, in one form, without the numbers that cannot be.

Chat form whatever the wire: `prompt_tokens` with the cached ones among them, `completion_tokens`
with the reasoning ones among them. What is negative, absurd or no number is left out, so that it
changes no limit, no budget and no cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chatapp.llm.tokens import plausible

# No window is larger. What is above it was not counted.
LARGEST_TOKENS = 20_000_000
MAX_ITERATIONS = 100
MAX_NOTES = 20
MAX_NOTE_CHARS = 200
# fmt: off
_COUNTS = {
    "prompt_tokens": (
        "prompt_tokens", "input_tokens", "prompt_token_count", "promptTokens", "inputTokens",
        "promptTokenCount",
    ),
    "completion_tokens": (
        "completion_tokens", "output_tokens", "candidates_token_count", "completionTokens",
        "outputTokens", "candidatesTokenCount",
    ),
    "total_tokens": ("total_tokens", "total_token_count", "totalTokens", "totalTokenCount"),
}
# fmt: on
_DETAILS = {
    "prompt_tokens_details": ("prompt_tokens_details", "input_tokens_details"),
    "completion_tokens_details": ("completion_tokens_details", "output_tokens_details"),
}
# How the names of counts end; other numbers may be seconds, or money.
_COUNTED = ("tokens", "token_count", "Tokens", "TokenCount")
# Names of cached tokens beside the details; they are a part of the prompt's.
_CACHED = ("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens",
           "cachedContentTokenCount")  # fmt: skip
# Servers with these names leave them out of the prompt's.
_BESIDE = ("cache_read_input_tokens", "cache_creation_input_tokens")
_REASONING = ("reasoning_tokens", "thoughts_token_count", "thoughtsTokenCount")
_READ = frozenset(name for names in (*_COUNTS.values(), *_DETAILS.values()) for name in names) | {
    "iterations"
}


def read_usage(usage: Any) -> dict[str, Any] | None:
    """Return a usage report in chat form; None where there is none, or nothing in it counts.

    `iterations`, the parts of a report, have the same names. Other numbers and short texts of the
    server stay as they are.
    """
    if not isinstance(usage, Mapping):
        return None
    read = _report(usage)
    iterations = usage.get("iterations")
    if isinstance(iterations, list):
        parts = [_report(one) for one in iterations[:MAX_ITERATIONS] if isinstance(one, Mapping)]
        read["iterations"] = [part for part in parts if part]
    return read or None


def _report(usage: Mapping[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for own, names in _COUNTS.items():
        if (count := _first(usage, names)) is not None:
            read[own] = count
    for own, names in _DETAILS.items():
        found = (usage[name] for name in names if isinstance(usage.get(name), Mapping))
        details: Mapping[str, Any] = next(found, {})
        if kept := _notes(details):
            read[own] = kept
    _add_named_beside(read, usage)
    _complete(read)
    others = {name: value for name, value in usage.items() if name not in _READ}
    return read | {name: value for name, value in _notes(others).items() if name not in read}


def _add_named_beside(read: dict[str, Any], usage: Mapping[str, Any]) -> None:
    """Move cached and reasoning tokens that stand beside the details into them."""
    beside = sum(_count(usage.get(name)) or 0 for name in _BESIDE)
    prompt = read.get("prompt_tokens")
    if prompt is not None and prompt < beside:
        read["prompt_tokens"] = prompt + beside
        read.pop("total_tokens", None)
    for details, own, names in (
        ("prompt_tokens_details", "cached_tokens", _CACHED),
        ("completion_tokens_details", "reasoning_tokens", _REASONING),
    ):
        known = read.get(details, {})
        if own not in known and (count := _first(usage, names)):
            read[details] = {**known, own: count}


def _complete(read: dict[str, Any]) -> None:
    """Give a report its sum, and never more of a kind of tokens than there are."""
    prompt, completion = read.get("prompt_tokens"), read.get("completion_tokens")
    if prompt is not None and completion is not None:
        total = read.get("total_tokens")
        read["total_tokens"] = prompt + completion if total is None else total
    details = read.get("prompt_tokens_details", {})
    if "cached_tokens" in details and prompt is not None:
        cached = min(prompt, details["cached_tokens"])
        read["prompt_tokens_details"] = {**details, "cached_tokens": cached}


def _first(usage: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    counts = (_count(usage.get(name)) for name in names)
    return next((count for count in counts if count is not None), None)


def _count(value: Any) -> int | None:
    count = plausible(value)
    return count if count is not None and count <= LARGEST_TOKENS else None


def _notes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts and the short texts among a server's own fields."""
    kept: dict[str, Any] = {}
    for name, value in list(values.items())[:MAX_NOTES]:
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = _number(name, value)
            if number is not None:
                kept[str(name)] = number
        elif str(name).endswith(_COUNTED):
            continue  # whoever reads such a name reckons with it
        elif isinstance(value, str) and len(value) <= MAX_NOTE_CHARS:
            kept[str(name)] = value
        elif isinstance(value, Mapping) and all(_count(one) is not None for one in value.values()):
            kept[str(name)] = {str(key): _count(one) for key, one in value.items()}
    return kept


def _number(name: str, value: float) -> float | None:
    """Return a count, or what is none by its name: seconds, money."""
    if str(name).endswith((*_COUNTED, "count")):
        return _count(value)
    return value if 0 <= value <= LARGEST_TOKENS else None


def billed(usage: Mapping[str, Any] | None) -> dict[str, int]:
    """Return what costs money of a report: prompt, cached and completion tokens.

    Tokens that stand only in `iterations` count, too: some servers leave those of their own work
    out of the sum, others have them in it.
    """
    read = read_usage(usage) or {}
    parts = [_billed(part) for part in read.get("iterations", ())]
    return {
        name: max(count, sum(part[name] for part in parts)) for name, count in _billed(read).items()
    }


def _billed(report: Mapping[str, Any]) -> dict[str, int]:
    prompt = _count(report.get("prompt_tokens")) or 0
    details = report.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, Mapping) else 0
    return {
        "prompt_tokens": prompt,
        "cached_tokens": min(prompt, cached or 0),
        "completion_tokens": _count(report.get("completion_tokens")) or 0,
    }
