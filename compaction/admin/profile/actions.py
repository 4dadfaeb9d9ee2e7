"""What can be done with a profile beside editing it: make default, reset, restore a version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp.admin import cells
from chatapp.admin.page_forms import PageForm, RefusedError
from compaction.admin.profile.values import Change, differences, own_parameters
from compaction.errors import CompactionError
from compaction.models import CompactionProfile
from compaction.profiles import find_profile, make_default, reset_profile, restore_version

CHANGES_NAMED = 6


class OpenedForm(forms.Form):
    """Remembers which version was the current one when the page was opened."""

    opened = forms.IntegerField(widget=forms.HiddenInput)


def may_change(request: HttpRequest) -> bool:
    """Whether the operator may make new versions."""
    user: Any = request.user
    return bool(user.has_perm("compaction.change_compactionprofile"))


def as_reset(row: CompactionProfile) -> CompactionProfile:
    """Return, unsaved, the version that a reset stores."""
    return CompactionProfile(name=row.name, base=row.base, description=row.description)


def current_of(row: CompactionProfile) -> CompactionProfile:
    """Return the current version of a row's profile."""
    return row if row.is_current else find_profile(row.name)


def reset_help(row: CompactionProfile) -> str:
    """Return what a reset changes."""
    return (
        f"Takes away every value set here and saves that as a new version; the preset {row.base} "
        f"counts then. {listed(differences(row, as_reset(row)))}"
    )


def restore_help(row: CompactionProfile) -> str:
    """Return what restoring an old version changes."""
    current = current_of(row)
    return (
        f"Saves what version {row.version} says as a new version in the place of version "
        f"{current.version}. {listed(differences(current, row))}"
    )


def default_help(row: CompactionProfile) -> str:
    """Return what making a profile the default changes."""
    try:
        before = f"instead of {find_profile().name}"
    except CompactionError:
        before = "from now on"
    return f"Every session that names no profile uses {row.name} {before}, in its next turn."


def listed(changes: list[Change]) -> str:
    """Return changes as a sentence."""
    if not changes:
        return "No value changes."
    named = "; ".join(str(each) for each in changes[:CHANGES_NAMED])
    more = len(changes) - CHANGES_NAMED
    return f"What changes: {named}{f'; and {more} more' if more > 0 else ''}."


def _opened_form(
    makes_sense: Callable[[CompactionProfile], bool],
) -> Callable[[HttpRequest, Any, Any], forms.Form | None]:
    def make(request: HttpRequest, row: CompactionProfile, data: Any) -> forms.Form | None:
        # What was sent is judged by the service: the page may have been opened long ago.
        if data is not None:
            return OpenedForm(data)
        if not makes_sense(row):
            return None
        return OpenedForm(initial={"opened": current_of(row).version})

    return make


def _stored(
    request: HttpRequest, row: CompactionProfile, save: Callable[[], CompactionProfile], done: str
) -> SafeString:
    """Save, remember the row for the way back, and say what was done."""
    try:
        made = save()
    except CompactionError as refusal:
        raise RefusedError(str(refusal)) from refusal
    except ValidationError as wrong:
        raise RefusedError(" ".join(wrong.messages)) from wrong
    request._profile_made = made  # type: ignore[attr-defined]
    return format_html("{}: {}.", done, cells.row_link(made))


def _reset(request: HttpRequest, row: CompactionProfile, sent: dict[str, Any]) -> SafeString:
    def save() -> CompactionProfile:
        return reset_profile(row.name, opened=sent["opened"])

    return _stored(request, row, save, "Reset to the preset")


def _restore(request: HttpRequest, row: CompactionProfile, sent: dict[str, Any]) -> SafeString:
    def save() -> CompactionProfile:
        return restore_version(row, opened=sent["opened"])

    return _stored(request, row, save, f"Version {row.version} is in force again")


def _make_default(request: HttpRequest, row: CompactionProfile, sent: dict[str, Any]) -> SafeString:
    def save() -> CompactionProfile:
        return make_default(row.name)

    return _stored(request, row, save, "The default now")


PROFILE_FORMS = {
    "default": PageForm(
        label="Make default",
        make=_opened_form(lambda row: row.is_current and not row.is_default),
        do=_make_default,
        may=may_change,
    ),
    "reset": PageForm(
        label="Reset to the preset",
        make=_opened_form(lambda row: row.is_current and bool(own_parameters(row))),
        do=_reset,
        may=may_change,
    ),
    "restore": PageForm(
        label="Restore this version",
        make=_opened_form(lambda row: not row.is_current),
        do=_restore,
        may=may_change,
    ),
}
HELP = {"default": default_help, "reset": reset_help, "restore": restore_help}
"""What each form changes, in words, for a row."""
