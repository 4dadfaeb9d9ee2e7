"""One parameter of a profile: its default, its limits, and what it is about."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def parameter(default: Any, text: str, *, unit: str = "", group: str = "", **limits: Any) -> Any:
    """Return a dataclass field.

    `limits` are minimum and maximum, choices, or the registry whose
    names are the choices.
    """
    return field(default=default, metadata={"help": text, "unit": unit, "group": group, **limits})
