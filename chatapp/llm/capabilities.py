"""What a model's server takes, known before it is asked: by its entry in CHATAPP, or by its family.

Whatever is not known here is learnt from refusals (adaptations.py). An entry of CHATAPP's MODELS
says it under CAPABILITIES and counts more than the family: {"temperature": False, …}.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from chatapp.messages.outgoing import (
    ALTERNATING_ROLES,
    ONE_SYSTEM_MESSAGE,
    STRICT_IDS,
    SYSTEM_AS_USER,
    TEXTS_ONLY,
    TOOLS_AS_TEXT,
)

MAX_TOKENS_NAMES = ("max_tokens", "max_completion_tokens")
APIS = ("chat", "responses")
EFFORTS = ("none", "minimal", "low", "medium")


class InvalidCapabilityError(ValueError):
    """An entry's CAPABILITIES name something unknown; the text says what and what there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a model takes. `None` is what nobody has said: it is tried, and a refusal teaches it.

    `max_tokens` is the name of the parameter that limits an answer; `api` the only wire on which
    the model is offered. `call_ids` is False where ids of calls must be nine letters and digits.
    `reasoning_effort` is the lowest effort of reasoning that the model takes.
    """

    temperature: bool | None = None
    max_tokens: str | None = None
    stream_options: bool | None = None
    alternating_roles: bool | None = None
    system_messages: bool | None = None
    several_system_messages: bool | None = None
    tools: bool | None = None
    call_ids: bool | None = None
    parts: bool | None = None
    api: str | None = None
    reasoning_effort: str | None = None

    def codes(self) -> Iterator[str]:
        """Yield the codes of the adaptations that a request to this model needs."""
        if self.temperature is False:
            yield "drop:temperature"
        if self.max_tokens:
            (other,) = (name for name in MAX_TOKENS_NAMES if name != self.max_tokens)
            yield f"rename:{other}:{self.max_tokens}"
        if self.stream_options is False:
            yield "drop:stream_options"
        if self.alternating_roles:
            yield ALTERNATING_ROLES
        if self.system_messages is False:
            yield SYSTEM_AS_USER
        if self.several_system_messages is False:
            yield ONE_SYSTEM_MESSAGE
        if self.tools is False:
            yield TOOLS_AS_TEXT
            yield "drop:tools"
        if self.call_ids is False:
            yield STRICT_IDS
        if self.parts is False:
            yield TEXTS_ONLY
        if self.api:
            yield f"api:{self.api}"


# By the last part of a model's name. Only what the makers' own documents say of all of a family.
_FAMILIES: tuple[tuple[re.Pattern[str], dict[str, Any]], ...] = (
    (
        re.compile(r"(?:o1-(?:mini|preview)|gpt-5(?:\.\d{1,2})?-chat)"),
        {"temperature": False, "max_tokens": "max_completion_tokens"},
    ),
    (
        re.compile(r"(?:o[134](?:-|$)|gpt-5)"),
        {
            "temperature": False,
            "max_tokens": "max_completion_tokens",
            "reasoning_effort": "low",
        },
    ),
    (
        re.compile(r"(?:mi(?:s|x|nis)tral|magistral|devstral|codestral|pixtral)"),
        {"alternating_roles": True, "call_ids": False},
    ),
    (re.compile(r"gemma"), {"alternating_roles": True}),
)


def capabilities_of(name: str, said: Mapping[str, Any] | None = None) -> Capabilities:
    """Return what a model of that name takes; `said` is its entry's CAPABILITIES.

    Raises InvalidCapabilityError for names and values that there are not.
    """
    own = name.casefold().rsplit("/", 1)[-1]
    known = next((changes for pattern, changes in _FAMILIES if pattern.match(own)), {})
    given = {str(key).casefold(): value for key, value in (said or {}).items()}
    _check(given)
    return Capabilities(**{**known, **given})


def _check(given: Mapping[str, Any]) -> None:
    names = [field.name for field in fields(Capabilities)]
    texts = {"max_tokens": MAX_TOKENS_NAMES, "api": APIS, "reasoning_effort": EFFORTS}
    for key, value in given.items():
        if key not in names:
            raise InvalidCapabilityError(
                f"CAPABILITIES has no {key!r}. There are: {', '.join(names)}."
            )
        allowed: tuple[Any, ...] = (None, *texts.get(key, (True, False)))
        if value not in allowed:
            shown = ", ".join(map(repr, allowed))
            raise InvalidCapabilityError(f"CAPABILITIES[{key!r}] must be one of {shown}.")
