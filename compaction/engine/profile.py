"""Profile: the named parameters of a compaction, their presets, and what is wrong with a value.

Names are those of the source documents. Where a document's default is a fault, the comment says
what is right instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, get_type_hints

# What the groups of the parameters are about, in the order in which they are shown.
GROUPS = {
    "when": "When to compact",
    "cut": "What stays verbatim",
    "summariser": "Who summarises, and how long",
    "bisect": "Inputs that are too large",
    "recovery": "After a refused request",
    "sending": "What is sent",
}


class ProfileError(ValueError):
    """Parameters that cannot work: `errors` maps a parameter's name to a sentence."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        self.errors = dict(errors)
        super().__init__("; ".join(f"{name}: {text}" for name, text in self.errors.items()))


def _parameter(default: Any, text: str, *, unit: str = "", group: str = "", **limits: Any) -> Any:
    return field(default=default, metadata={"help": text, "unit": unit, "group": group, **limits})


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """All parameters with the defaults of preset `bisect` (document 002; spec 1.1)."""

    enabled: bool = _parameter(
        True, "Compaction as a whole; off means that everything is sent.", group="when"
    )
    message_limit: int = _parameter(
        40,
        "Compact when this many messages came since the last summary; 0 switches the rule off.",
        unit="messages",
        group="when",
        minimum=0,
        maximum=100_000,
    )
    max_context_tokens: int = _parameter(
        6000,
        "Compact when this many tokens came since the last summary; 0 switches the rule off.",
        unit="tokens",
        group="when",
        minimum=0,
        maximum=100_000_000,
    )
    window_trigger: bool = _parameter(
        False, "Compact when the next request would not leave the reserve free.", group="when"
    )
    reserve_tokens: int = _parameter(
        0,
        "Part of the window kept free for the answer; the model's own maximum counts if larger.",
        unit="tokens",
        group="when",
        minimum=0,
        maximum=100_000_000,
    )
    cooldown_seconds: int = _parameter(
        60,
        "Shortest time between two compactions by count or tokens; overflow and window ignore it.",
        unit="seconds",
        group="when",
        minimum=0,
        maximum=86_400,
    )
    cut: str = _parameter(
        "last_n",
        "What stays verbatim: the last N messages, or the most recent tokens.",
        group="cut",
        choices=("last_n", "recent_tokens"),
    )
    keep_last_n: int = _parameter(
        6,
        "Messages that stay verbatim; more where a tool call would lose its results.",
        unit="messages",
        group="cut",
        minimum=0,
        maximum=10_000,
    )
    keep_recent_tokens: int = _parameter(
        20_000,
        "Tokens that stay verbatim, counted from the newest message.",
        unit="tokens",
        group="cut",
        minimum=1,
        maximum=100_000_000,
    )
    summariser: str = _parameter(
        "model",
        "Who summarises: a language model, or chosen sentences without one.",
        group="summariser",
        choices=("model", "extractive"),
    )
    summary_model: str = _parameter(
        "", "Alias of the summarising model, or the session's own.", group="summariser"
    )
    target_summary_tokens: int = _parameter(
        700,
        "Size asked of a summary.",
        unit="tokens",
        group="summariser",
        minimum=16,
        maximum=100_000,
    )
    merge_target_tokens: int = _parameter(
        0,
        "Size asked of a merged summary; 0 means the same as a summary's.",
        unit="tokens",
        group="summariser",
        minimum=0,
        maximum=100_000,
    )
    temperature: float | None = _parameter(
        0.2,
        "Temperature of the summarising calls; none sends no temperature.",
        group="summariser",
        minimum=0.0,
        maximum=2.0,
    )
    bisect_enabled: bool = _parameter(
        True, "Halve an input that is too large and merge the two summaries.", group="bisect"
    )
    bisect_max_depth: int = _parameter(
        6, "How often an input may be halved.", unit="levels", group="bisect", minimum=0, maximum=20
    )
    bisect_min_messages: int = _parameter(
        # The document allows 1, with which a merge halves itself without end (1.12 D18).
        4,
        "Inputs of this many messages or fewer are not halved.",
        unit="messages",
        group="bisect",
        minimum=2,
        maximum=1000,
    )
    planned_split: bool = _parameter(
        False, "Halve at once what clearly exceeds the summariser's known window.", group="bisect"
    )
    max_model_calls: int = _parameter(
        200, "Most model calls of one run.", unit="calls", group="bisect", minimum=1, maximum=1000
    )
    fallback: str = _parameter(
        "extractive",
        "When no halving is left: chosen sentences first, or the plain head of the text.",
        group="bisect",
        choices=("extractive", "truncate"),
    )
    retry_on_context_overflow: bool = _parameter(
        True,
        "After a refused request, compact everything but the question and try once more.",
        group="recovery",
    )
    summary_limit: int = _parameter(
        2,
        "How many of the newest summaries are sent, oldest first.",
        unit="summaries",
        group="sending",
        minimum=1,
        maximum=20,
    )
    history_limit: int = _parameter(
        # The document's 20 would hide messages that no summary covers yet (1.12 D4).
        0,
        "Most messages sent behind the summaries, the newest; 0 sends all. Older ones that no "
        "summary covers yet are then not sent.",
        unit="messages",
        group="sending",
        minimum=0,
        maximum=100_000,
    )

    @property
    def merge_target(self) -> int:
        """Tokens asked of a merge."""
        return self.merge_target_tokens or self.target_summary_tokens

    def as_dict(self) -> dict[str, Any]:
        """Return every parameter."""
        return asdict(self)


PRESETS: dict[str, Profile] = {"bisect": Profile()}

# Variables of document 002 (spec 1.1) and the parameter each one overrides in preset `bisect`.
ENVIRONMENT = {
    "DYNAMIC_SUMMARY_ENABLED": "enabled",
    "SUMMARY_MESSAGE_LIMIT": "message_limit",
    "SUMMARY_MAX_CONTEXT_TOKENS": "max_context_tokens",
    "SUMMARY_KEEP_LAST_N": "keep_last_n",
    "SUMMARY_TARGET_TOKENS": "target_summary_tokens",
    "SUMMARY_MERGE_TARGET_TOKENS": "merge_target_tokens",
    "SUMMARY_TEMPERATURE": "temperature",
    "SUMMARY_COOLDOWN_SECONDS": "cooldown_seconds",
    "SUMMARY_BISECT_ENABLED": "bisect_enabled",
    "SUMMARY_BISECT_MAX_DEPTH": "bisect_max_depth",
    "SUMMARY_BISECT_MIN_MESSAGES": "bisect_min_messages",
    "SUMMARY_RETRY_ON_CONTEXT_OVERFLOW": "retry_on_context_overflow",
    "HISTORY_LIMIT": "history_limit",
}
_TRUE, _FALSE = {"true", "1", "yes", "on"}, {"false", "0", "no", "off"}


def build(base: Profile, values: Mapping[str, Any]) -> Profile:
    """Return `base` with `values` put over it; raise ProfileError naming every wrong one.

    Values are typed: no text counts as true, no "42px" as 42 (spec 1.1, DECIDE).
    """
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
    profile = replace(base, **values)
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


def parameter_types() -> dict[str, Any]:
    """Return every parameter's type."""
    hints = get_type_hints(Profile)
    return {item.name: hints[item.name] for item in fields(Profile)}


def _problem(name: str, value: Any, limits: Mapping[str, Any]) -> str:
    kind = parameter_types()[name]
    if kind is bool:
        return "" if isinstance(value, bool) else "Must be true or false."
    if kind is str:
        if not isinstance(value, str):
            return "Must be a text."
        choices = limits.get("choices")
        return f"Must be one of {', '.join(choices)}." if choices and value not in choices else ""
    if value is None and kind is not int:
        return ""
    if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
        return "Must be a whole number." if kind is int else "Must be a number."
    if not limits["minimum"] <= value <= limits["maximum"]:
        return f"Must be from {limits['minimum']} to {limits['maximum']}."
    return ""


def _across(profile: Profile) -> dict[str, str]:
    """Return what is wrong between parameters that are each right alone."""
    if profile.cut == "last_n" and 0 < profile.message_limit <= profile.keep_last_n:
        return {
            "keep_last_n": f"Must be below message_limit ({profile.message_limit}), or the rule "
            "fires when nothing is left to summarise."
        }
    return {}


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters that variables of document 002 set; raise ProfileError for junk.

    Booleans are words (true, 1, yes, on / false, 0, no, off); the document took any other word,
    even "no", for true. Numbers below a parameter's minimum count as the minimum, which is what
    the document's floors and its "<= 0 switches off" come to (spec 1.1).
    """
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    types = parameter_types()
    minimum = {item.name: item.metadata.get("minimum") for item in fields(Profile)}
    for variable, name in ENVIRONMENT.items():
        if variable in environment:
            text = environment[variable].strip()
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
    if kind is int:
        return int(text)
    return float(text) if text else None
