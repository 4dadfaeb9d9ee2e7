"""The values of a profile as operators read them, and its versions: what each changed.

A value says where it comes from: set here, the environment, or the preset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.page_parts import Table
from chatapp.formatting import when
from compaction.engine.parameters import Profile
from compaction.engine.profile import ENVIRONMENT, PRESETS, WINDOW_ENVIRONMENT, ProfileError
from compaction.models import CompactionProfile

OWN_MODEL_WORDS = "the session's own"
VARIABLES = {
    parameter: variable for variable, parameter in (ENVIRONMENT | WINDOW_ENVIRONMENT).items()
}
# Parameters whose established name says something else than they do.
LABELS = {"compression_cooldown_sec": "Maximum age"}
PARAMETERS = {item.name: item for item in fields(Profile)}
_ABSENT = object()

VERSIONS_SHOWN = 20
VERSIONS_OFFERED = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A parameter's value and who sets it: `variable` of the environment, or else `source`."""

    value: Any
    source: str
    variable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterChange:
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
    """Return a value as it is shown: a switch is on or off, a text of nothing is empty."""
    if value is _ABSENT:
        return "unknown"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return formatting.number(value)
    if name == "summary_model":
        names = [value] if isinstance(value, str) else value
        return ", ".join(str(one) or OWN_MODEL_WORDS for one in names)
    return str(value) or "empty"


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


def differences(old: CompactionProfile, new: CompactionProfile) -> list[ParameterChange]:
    """Return what differs between two versions: preset, values in force, who sets them, words.

    Values in force are those of today's presets and environment.
    """
    found = []
    if old.base != new.base:
        found.append(ParameterChange(name="preset", before=old.base, after=new.base))
    before, after = values_in_force(old), values_in_force(new)
    set_before, set_after = own_parameters(old), own_parameters(new)
    for name in before | after:
        was, now = (v[name].value if name in v else _ABSENT for v in (before, after))
        note = ""
        if (name in set_before) != (name in set_after):
            note = "set" if name in set_after else "no longer set"
        if was != now or note:
            found.append(
                ParameterChange(
                    name=name,
                    before=value_words(name, was),
                    after=value_words(name, now),
                    note=note,
                )
            )
    if old.description != new.description:
        found.append(
            ParameterChange(
                name="description", before=f"“{old.description}”", after=f"“{new.description}”"
            )
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A version against another one that the operator chose; `table` is None before."""

    offered: list[int]
    chosen: int | None
    table: Table | None


def authors_of(rows: Iterable[CompactionProfile]) -> dict[int, str]:
    """Return who saved each version, by id; versions saved without the admin are missing."""
    entries = (
        LogEntry.objects.filter(
            content_type=ContentType.objects.get_for_model(CompactionProfile),
            object_id__in=[str(row.pk) for row in rows],
        )
        .select_related("user")
        .order_by("-action_time", "-pk")
    )
    # The oldest entry of a row is the one of its making.
    return {int(entry.object_id or 0): entry.user.get_username() for entry in entries}


def author_of(row: CompactionProfile) -> str:
    """Return who saved a version; empty where nobody did in the admin."""
    return authors_of([row]).get(row.pk, "")


def version_table(profile: CompactionProfile) -> Table:
    """Return the newest versions, each with what it changed against the one before it."""
    every = CompactionProfile.objects.filter(name=profile.name).order_by("-version")
    rows = list(every[: VERSIONS_SHOWN + 1])
    shown = rows[:VERSIONS_SHOWN]
    changes = {new.pk: change_list(differences(old, new)) for new, old in pairwise(rows)}
    authors = authors_of(shown)
    note = "Each version against the one before it: values in force, as presets and environment "
    note += "are today."
    if len(rows) > VERSIONS_SHOWN:
        note += f" The newest {VERSIONS_SHOWN}; older ones can be compared below."
    return Table(
        title="Versions",
        columns=("Version", "What changed", "State", "Saved", "By"),
        note=note,
        rows=[
            (
                f"v{row.version} (this page)"
                if row.pk == profile.pk
                else html.row_link(row, f"v{row.version}"),
                changes.get(row.pk, "The first version."),
                state_words(row),
                when(row.created_at),
                authors.get(row.pk, "—"),
            )
            for row in shown
        ],
    )


def comparison(request: HttpRequest, profile: CompactionProfile) -> Comparison:
    """Return the version that ?against= names compared with this one, and what can be chosen."""
    versions = (
        CompactionProfile.objects.filter(name=profile.name)
        .exclude(pk=profile.pk)
        .order_by("-version")
    )
    offered = list(versions.values_list("version", flat=True)[:VERSIONS_OFFERED])
    asked = request.GET.get("against", "")
    chosen = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 10 else None
    other = versions.filter(version=chosen).first() if chosen is not None else None
    if other is None:
        note = (
            "" if not asked else f"There is no other version {formatting.shortened(asked, 20)!r}."
        )
        table = Table(title="Compared", columns=(), rows=[], empty=note) if note else None
        return Comparison(offered=offered, chosen=None, table=table)
    return Comparison(offered=offered, chosen=chosen, table=change_table(other, profile))


def change_table(old: CompactionProfile, new: CompactionProfile) -> Table:
    """Return what differs between two versions, a row a parameter."""
    return Table(
        title=f"From version {old.version} to version {new.version}",
        columns=("Parameter", f"v{old.version}", f"v{new.version}", "Note"),
        rows=[
            (
                format_html("<code>{}</code>", each.name),
                format_html("<bdi>{}</bdi>", each.before),
                format_html("<bdi>{}</bdi>", each.after),
                each.note,
            )
            for each in differences(old, new)
        ],
        empty="The two versions say the same.",
    )


def change_list(changes: list[ParameterChange]) -> SafeString | str:
    """Return changes as a list for one cell."""
    if not changes:
        return "Nothing."
    items: list[tuple[Any, ...]] = [
        (each.name, each.before, each.after, f"({each.note})" if each.note else "")
        for each in changes
    ]
    lines = format_html_join("", "<li><code>{}</code> <bdi>{}</bdi> → <bdi>{}</bdi> {}</li>", items)
    return format_html('<ul class="profile-changes">{}</ul>', lines)


def state_words(row: CompactionProfile) -> SafeString | str:
    """Return whether a version is the current one, and the default."""
    if row.is_current and row.is_default:
        return html.badge("Current, default", "good")
    return html.badge("Current", "good") if row.is_current else "Old"
