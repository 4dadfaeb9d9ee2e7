"""Presets, and what is wrong with a parameter's value; the parameters are in parameters.py."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from types import MappingProxyType
from typing import Any, get_type_hints

from compaction.engine.parameters import GROUPS, Profile
from compaction.engine.policy.gates import version_of
from compaction.engine.policy.holds import problem_with_hold
from compaction.engine.registry import REGISTRIES
from compaction.engine.rendering import template_problem
from compaction.engine.tool_actions import problem_with as problem_with_tool_actions


class ProfileError(ValueError):
    """Parameters that cannot work: `errors` maps a parameter's name to a sentence."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        self.errors = dict(errors)
        super().__init__("; ".join(f"{name}: {text}" for name, text in self.errors.items()))


# What new installations use.
DEFAULT_PRESET = "balanced"
PRESETS: dict[str, Profile] = {
    "bisect": Profile(),
    # A tail of messages, batches in the background, and what keeps it from standing still.
    "sliding_window": Profile(
        message_limit=0,
        max_context_tokens=0,
        cooldown_seconds=0,
        cut="tail_size",
        context_size=75,
        tail_keep_size=40,
        compression_window_size=12,
        compression_cooldown_sec=900,
        compression_hard_limit=30,
        batch_messages=60,
        smaller_after_failures=3,
        digest_after_failures=6,
    ),
    # What a coding agent does: the tail by tokens, one summary that is brought up to date.
    "checkpoint": Profile(
        message_limit=0,
        max_context_tokens=0,
        cooldown_seconds=0,
        prepare_ratio=0.0,
        window_trigger=True,
        reserve_tokens=16_384,
        context_size_by="usage",
        cut="checkpoint",
        keep_recent_tokens=20_000,
        strategy="iterative",
        split_turns=True,
        summary_style="checkpoint",
        # Its headings ask for what a ledger appends; where a text knows too little, it gets one.
        ledger=False,
        target_summary_tokens=2000,
        summary_output_share=0.8,
        prefix_output_share=0.5,
        branch_output_tokens=2048,
        result_chars_in_summary=2000,
        overflow_keeps="cut",
        branch_summary="ask",
        max_overflow_compaction_attempts=1,
        halve_history=False,
        rendering="user_tags",
    ),
    # By characters: the newest exchanges stay, one node holds the summary and an abridged history.
    "abridged": Profile(
        message_limit=0,
        max_context_tokens=0,
        cooldown_seconds=0,
        prepare_ratio=0.0,
        trigger_on_history_size_chars=50_000,
        trigger_on_history_size_chars_when_cache_expiring=30_000,
        cache_ttl_ms=300_000,
        buffer_time_before_cache_expiration_ms=30_000,
        cut="tail_chars",
        history_tail_size_chars_to_exclude=5_000,
        head_chars_limit=800_000,
        abridged_total_chars_limit=10_000,
        overflow_keeps="cut",
        max_overflow_compaction_attempts=1,
        excluded_bot_types="1, CODE_REVIEW_BOT, 2, CODE_REVIEW_EVAL_BOT",
        rendering="node",
    ),
    # The best of all: by tokens, in the background before anybody waits, the tail by tokens.
    "balanced": Profile(
        message_limit=0,
        max_context_tokens=0,
        prepare_ratio=0.7,
        window_trigger=True,
        cut="checkpoint",
        keep_recent_tokens=20_000,
        keep_recent_share=0.25,
        strategy="iterative",
        rendering="system",
        precheck_margin=1.2,
        max_overflow_compaction_attempts=3,
        truncate_tool_results=True,
        halve_history=True,
    ),
}


def _variables(preset: str) -> dict[str, str]:
    """Return the variables that override a preset, each with its parameter."""
    facts = {item.name: item.metadata for item in fields(Profile)}
    return {
        fact["variable"]: name
        for name, fact in facts.items()
        if fact["variable"] and fact["preset"] in ("", preset)
    }


# Environment variables and the parameter each one overrides, by preset.
ENVIRONMENT, WINDOW_ENVIRONMENT = _variables("bisect"), _variables("sliding_window")
_BY_PRESET = {name: _variables(name) for name in PRESETS}
# Who sets one of the usual variables means the default, whichever preset that is.
_BY_PRESET[DEFAULT_PRESET] = ENVIRONMENT
# Older names of parameters, which are understood for one version.
RENAMED = {
    "archive_after_failures": "digest_after_failures",
    "archive_tokens": "digest_tokens",
}
# What several names are stored as; a single one is a text.
NAMES = str | tuple[str, ...]
MOST_NAMES = 10
# What no database takes; JSON can hold both, escaped.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_TRUE, _FALSE = {"true", "1", "yes", "on"}, {"false", "0", "no", "off"}


def build(base: Profile, values: Mapping[str, Any]) -> Profile:
    """Return `base` with `values` put over it; raise ProfileError naming every wrong one.

    Values are typed: no text counts as true, no "42px" as 42.
    """
    values = {RENAMED.get(name, name): value for name, value in values.items()}
    if type(minutes := values.get("restore_hold")) is int:
        values["restore_hold"] = str(minutes)
    known = {item.name: item for item in fields(Profile)}
    errors = {
        name: f"There is no such parameter. Known: {', '.join(known)}."
        for name in values
        if name not in known
    }
    for name, value in values.items():
        if name in known and (problem := _problem(name, value, known[name].metadata)):
            errors[name] = problem
    if errors:
        raise ProfileError(errors)
    # JSON knows no tuples.
    frozen: dict[str, Any] = {
        name: tuple(one) if isinstance(one, list) else one for name, one in values.items()
    }
    profile = replace(base, **frozen)
    errors = _across(profile)
    if errors:
        raise ProfileError(errors)
    return profile


def parameter_groups() -> dict[str, tuple[str, ...]]:
    """Return every group's title with the names of its parameters; new groups stand at the end."""
    names: dict[str, list[str]] = {group: [] for group in GROUPS}
    for item in fields(Profile):
        names.setdefault(item.metadata["group"], []).append(item.name)
    return {
        GROUPS.get(group, group.replace("_", " ").capitalize() or "Other"): tuple(found)
        for group, found in names.items()
        if found
    }


@cache
def parameter_types() -> Mapping[str, Any]:
    """Return every parameter's type."""
    # Annotations are texts until this compiles them, which takes milliseconds.
    hints = get_type_hints(Profile)
    return MappingProxyType({item.name: hints[item.name] for item in fields(Profile)})


def parameter_choices(name: str) -> tuple[str, ...]:
    """Return the values that a parameter may have; empty where any will do."""
    limits = next(item.metadata for item in fields(Profile) if item.name == name)
    if "registry" in limits:
        return tuple(REGISTRIES[limits["registry"]])
    return tuple(limits.get("choices", ()))


def _problem(name: str, value: Any, limits: Mapping[str, Any]) -> str:
    kind = parameter_types()[name]
    if kind is bool:
        return "" if isinstance(value, bool) else "Must be true or false."
    if kind is str:
        if not isinstance(value, str):
            return "Must be a text."
        if len(value) > limits.get("longest", len(value)):
            return f"Must be at most {limits['longest']:,} characters long."
        if _UNSTORABLE.search(value):
            return "Must be text: this has a NUL or a broken character."
        if name == "tool_actions":
            return problem_with_tool_actions(value)
        return _choice_problem(name, value, limits)
    if kind == NAMES:
        return _names_problem(value)
    if value is None and kind is not int:
        return ""
    if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
        return "Must be a whole number." if kind is int else "Must be a number."
    if not limits["minimum"] <= value <= limits["maximum"]:
        return f"Must be from {limits['minimum']} to {limits['maximum']}."
    return ""


def _names_problem(value: Any) -> str:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(one, str) for one in names):
        return "Must be a text, or a list of texts in the order in which they are tried."
    if not 1 <= len(names) <= MOST_NAMES:
        return f"Must hold from 1 to {MOST_NAMES} names."
    twice = next((one for one in names if names.count(one) > 1), None)
    return "" if twice is None else f"Holds {twice!r} twice."


def names_in(text: str) -> str | list[str]:
    """Return the names that a line of text lists, with commas between; a text where it is one."""
    names = [one.strip() for one in text.split(",") if one.strip()]
    return names if len(names) > 1 else "".join(names)


def _choice_problem(name: str, value: str, limits: Mapping[str, Any]) -> str:
    choices = parameter_choices(name)
    if choices and value not in choices:
        return f"Must be one of {', '.join(choices)}."
    return REGISTRIES[limits["registry"]].problem_with(value) if "registry" in limits else ""


def _across(profile: Profile) -> dict[str, str]:
    """Return what is wrong between parameters that are each right alone."""
    limit = profile.message_limit
    if 0 < limit <= profile.tail:
        sentence = (
            f"Must be below message_limit ({limit}), or the rule fires when nothing is left to "
            "summarise."
        )
        return {_tail_name(profile): sentence}
    return (
        _sending_problems(profile)
        or _across_window(profile)
        or _across_history(profile)
        or _across_memories(profile)
    )


def _sending_problems(profile: Profile) -> dict[str, str]:
    """Return what is wrong with the hold, a summary node's words, and the sessions left out."""
    if problem := problem_with_hold(profile.restore_hold):
        return {"restore_hold": problem}
    name = "summary_node_request_message_template"
    if problem := template_problem(profile.summary_node_request_message_template):
        return {name: problem}
    if profile.min_client_version.strip() and not version_of(profile.min_client_version):
        sentence = "Must be numbers with dots between, as 3.10 is; or empty, which asks for none."
        return {"min_client_version": sentence}
    return {}


# An abridged history of fewer characters would be hardly more than its tags.
LEAST_ABRIDGED_CHARS = 200


def _across_history(profile: Profile) -> dict[str, str]:
    """Return which sizes and times of an abridged history do not fit each other."""
    tail = profile.history_tail_size_chars_to_exclude
    for name in (
        "trigger_on_history_size_chars",
        "trigger_on_history_size_chars_when_cache_expiring",
    ):
        limit = getattr(profile, name)
        if profile.cut == "tail_chars" and 0 < limit <= tail:
            return {
                "history_tail_size_chars_to_exclude": f"Must be below {name} ({limit:,}), or the "
                "rule fires when nothing is left to summarise: lower it, or raise the other above "
                f"{tail:,}."
            }
    ttl, buffer = profile.cache_ttl_ms, profile.buffer_time_before_cache_expiration_ms
    if 0 < ttl <= buffer:
        return {
            "buffer_time_before_cache_expiration_ms": f"Must be below cache_ttl_ms ({ttl:,}), or "
            "the cache would always be about to expire: lower it, or raise the other above "
            f"{buffer:,}."
        }
    if 0 < profile.abridged_total_chars_limit < LEAST_ABRIDGED_CHARS:
        return {
            "abridged_total_chars_limit": f"Must be {LEAST_ABRIDGED_CHARS} or more, or no entry "
            f"has room in it: raise it to {LEAST_ABRIDGED_CHARS}, or set it to 0 for none."
        }
    return {}


def _tail_name(profile: Profile) -> str:
    """Return the parameter that says how many messages stay."""
    return "tail_keep_size" if profile.cut == "tail_size" else "keep_last_n"


def _across_window(profile: Profile) -> dict[str, str]:
    """Return which of the window's numbers do not fit each other."""
    window, limit = profile.compression_window_size, profile.compression_hard_limit
    tail, context = profile.tail, profile.context_size
    if profile.counts_window and not profile.counts_tail:
        return {
            "cut": "Must be tail_size or last_n: the sliding window counts messages beyond a tail "
            "of messages. Or set context_size, compression_window_size, compression_hard_limit and "
            "compression_cooldown_sec to 0."
        }
    if 0 < profile.history_limit < context:
        return {
            "history_limit": f"Must not be below context_size ({context}), or messages are left "
            f"out that no summary has read: set it to 0, or to {context} or more."
        }
    if limit and window > limit:
        return {
            "compression_window_size": f"Must not be above compression_hard_limit ({limit}), or "
            f"every run would make a request wait: lower it to {limit}, or raise the hard limit "
            f"to {window}."
        }
    if context and tail >= context:
        return {
            _tail_name(profile): "Must be below "
            f"context_size ({context}), or nothing but the tail is ever sent: lower it, or raise "
            f"context_size above {tail}."
        }
    if context and limit and tail + limit > context:
        return {
            "compression_hard_limit": f"With the tail of {tail} it must not be above context_size "
            f"({context}), or messages fall out before they are summarised: lower it to "
            f"{context - tail}, or raise context_size to {tail + limit}."
        }
    if context and not limit and tail + window > context:
        return {
            "compression_window_size": f"With the tail of {tail} it must not be above context_size "
            f"({context}): lower it to {context - tail}, or raise context_size to {tail + window}."
        }
    return {}


def _across_memories(profile: Profile) -> dict[str, str]:
    """Return which of the numbers of memories do not fit each other."""
    most = profile.memories_max_lines
    after = profile.compression_target + profile.num_recent_memories_to_keep
    if most > after:
        return {}
    return {
        "memories_max_lines": f"Must be above {after}, what a rewriting may leave "
        "(compression_target and num_recent_memories_to_keep together), or every new line would "
        f"start another one: raise it to {after + 1}, or lower those."
    }


def from_environment(environment: Mapping[str, str], preset: str = "bisect") -> dict[str, Any]:
    """Return the parameters that a preset's variables set; raise ProfileError for junk.

    Each preset has variables of its own.

    Booleans are words (true, 1, yes, on / false, 0, no, off); elsewhere any other word,
    even "no", is often taken for true. Numbers below a parameter's minimum count as the minimum,
    which is what people mean by "0 or less switches it off".
    """
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    types = parameter_types()
    minimum = {item.name: item.metadata.get("minimum") for item in fields(Profile)}
    for variable, name in _BY_PRESET.get(preset, {}).items():
        # An empty variable is none.
        if text := environment.get(variable, "").strip():
            try:
                value = _parse(text, types[name])
                values[name] = max(value, minimum[name]) if types[name] is int else value
            except ValueError:
                errors[variable] = f"{text!r} cannot be read as a value of {name}."
    if errors:
        raise ProfileError(errors)
    return values


def _parse(text: str, kind: Any) -> Any:
    if kind is bool:
        if text.lower() not in _TRUE | _FALSE:
            raise ValueError(text)
        return text.lower() in _TRUE
    if kind == NAMES:
        return names_in(text)
    if kind is int:
        return int(text)
    return None if text.lower() == "none" else float(text)
