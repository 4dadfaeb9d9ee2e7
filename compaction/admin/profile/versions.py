"""The history of a profile: versions with what each changed, and any two of them compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.parts import Table
from chatapp.formatting import when
from compaction.admin.profile.values import Change, differences
from compaction.models import CompactionProfile

VERSIONS_SHOWN = 20
VERSIONS_OFFERED = 200


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
                else cells.row_link(row, f"v{row.version}"),
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


def change_list(changes: list[Change]) -> SafeString | str:
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
        return cells.badge("Current, default", "good")
    return cells.badge("Current", "good") if row.is_current else "Old"
