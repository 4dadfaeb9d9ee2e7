"""The values of a profile as operators read them: what is in force, where from, what differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from django.core.exceptions import ValidationError

from chatapp import formatting
from compaction.engine.parameters import Profile
from compaction.engine.profile import ENVIRONMENT, PRESETS, WINDOW_ENVIRONMENT, ProfileError
from compaction.models import CompactionProfile

OWN_MODEL_WORDS = "the session's own"
VARIABLES = {
    parameter: variable for variable, parameter in (ENVIRONMENT | WINDOW_ENVIRONMENT).items()
}
# Names of the source documents that say something else than the parameter does.
LABELS = {"compression_cooldown_sec": "Maximum age"}
PARAMETERS = {item.name: item for item in fields(Profile)}
_ABSENT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A parameter's value and who sets it: `variable` of the environment, or else `source`."""

    value: Any
    source: str
    variable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one version says differently from another, in words."""

    name: str
    before: str
    after: str
    note: str = ""

    def __str__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        return f"{self.name} {self.before} → {self.after}{note}"


def label_of(name: str) -> str:
    """Return a parameter's name in words."""
    return LABELS.get(name, name.replace("_", " ").capitalize())


def value_words(name: str, value: Any) -> str:
    """Return a value as it is shown: on or off for a switch, numbers with thousands apart."""
    if value is _ABSENT:
        return "unknown"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return formatting.number(value)
    return OWN_MODEL_WORDS if name == "summary_model" and value == "" else str(value)


def own_parameters(row: CompactionProfile | None) -> dict[str, Any]:
    """Return what a version sets; nothing where an older program stored something else."""
    stored = row.parameters if row is not None else {}
    return dict(stored) if isinstance(stored, dict) else {}


def unknown_parameters(row: CompactionProfile | None) -> dict[str, Any]:
    """Return what a version sets that is no parameter today."""
    return {name: value for name, value in own_parameters(row).items() if name not in PARAMETERS}


def inherited_values(base: str) -> dict[str, Value]:
    """Return what counts where a profile sets nothing: the preset, over it the environment.

    Empty for a preset that is unknown today. A wrong variable counts for nothing here.
    """
    preset = PRESETS.get(base)
    if preset is None:
        return {}
    try:
        environment = CompactionProfile(base=base).environment()
    except ProfileError:
        environment = {}
    return {
        name: Value(value=environment[name], source="Environment", variable=VARIABLES[name])
        if name in environment
        else Value(value=value, source=f"Preset {base}")
        for name, value in preset.as_dict().items()
    }


def values_in_force(row: CompactionProfile) -> dict[str, Value]:
    """Return every value that counts, in the order of the parameters; unknown ones at the end."""
    own = {
        name: Value(value=value, source="Set here") for name, value in own_parameters(row).items()
    }
    return inherited_values(row.base) | own


def inherited_words(name: str, inherited: Mapping[str, Value]) -> str:
    """Return what an empty field means."""
    found = inherited.get(name)
    if found is None:
        return "As the preset"
    words = value_words(name, found.value)
    return f"{words} (by {found.variable})" if found.variable else f"As the preset: {words}"


def stored_problems(row: CompactionProfile) -> list[str]:
    """Return a sentence for everything that keeps a version from being used as it is stored."""
    try:
        row.clean()
    except ValidationError as error:
        return list(error.messages)
    return []


def differences(old: CompactionProfile, new: CompactionProfile) -> list[Change]:
    """Return what differs between two versions: preset, values in force, who sets them, words.

    Values in force are those of today's presets and environment.
    """
    found = []
    if old.base != new.base:
        found.append(Change(name="preset", before=old.base, after=new.base))
    before, after = values_in_force(old), values_in_force(new)
    set_before, set_after = own_parameters(old), own_parameters(new)
    for name in before | after:
        was, now = (v[name].value if name in v else _ABSENT for v in (before, after))
        note = ""
        if (name in set_before) != (name in set_after):
            note = "set" if name in set_after else "no longer set"
        if was != now or note:
            found.append(
                Change(
                    name=name,
                    before=value_words(name, was),
                    after=value_words(name, now),
                    note=note,
                )
            )
    if old.description != new.description:
        found.append(
            Change(name="description", before=f"“{old.description}”", after=f"“{new.description}”")
        )
    return found
