"""One parameter of a profile: its default, its limits, what it is about, and its variable."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def parameter(
    default: Any,
    text: str,
    *,
    unit: str = "",
    group: str = "",
    variable: str = "",
    preset: str = "bisect",
    **limits: Any,
) -> Any:
    """Return a dataclass field.

    `limits` are minimum and maximum, choices, or the registry whose
    names are the choices.

    `variable` names the environment variable that overrides the parameter in `preset`.
    """
    facts = {"help": text, "unit": unit, "group": group, "variable": variable, "preset": preset}
    return field(default=default, metadata=facts | limits)
