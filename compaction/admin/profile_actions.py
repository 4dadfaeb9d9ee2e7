"""What can be done with a profile: save, make default, reset, restore; what each comes to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.forms.utils import ErrorList
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.page_forms import PageForm, RefusedError
from chatapp.admin.toolkit.page_parts import Table
from chatapp.admin.toolkit.permissions import holds
from compaction.admin.profile_form import allowed_values
from compaction.admin.profile_values import (
    PARAMETERS,
    ParameterChange,
    Value,
    differences,
    inherited_values,
    inherited_words,
    label_of,
    own_parameters,
    stored_problems,
    unknown_parameters,
    value_words,
    values_in_force,
)
from compaction.errors import CompactionError
from compaction.models import CompactionProfile
from compaction.profiles import find_profile, make_default, reset_profile, restore_version

CHANGES_NAMED = 6


class OpenedForm(forms.Form):
    """Remembers which version was the current one when the page was opened."""

    opened = forms.IntegerField(widget=forms.HiddenInput)


def may_change(request: HttpRequest) -> bool:
    """Whether the operator may make new versions."""
    return holds(request, "compaction.change_compactionprofile")


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


def listed(changes: list[ParameterChange]) -> str:
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
    return format_html("{}: {}.", done, html.row_link(made))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveOutcome:
    """Wrong fields with the way to them, sentences about the rest, and what would change."""

    wrong: list[tuple[str, str]]
    refusals: ErrorList
    warnings: list[str]
    changes: list[ParameterChange]
    sentence: str
    table: Table


def outcome_of(form: Any, stored: CompactionProfile | None) -> SaveOutcome:
    """Return what a form comes to against the stored version that was opened.

    Of a form that was sent, the instance holds what would be saved.
    """
    # The errors first: looking for them is what puts the values into the instance.
    wrong = [(f"id_{name}", label_of(name)) for name in form.errors if name in form.fields]
    refusals = form.non_field_errors()
    draft: CompactionProfile = form.instance
    changes = differences(stored, draft) if stored and form.is_bound else []
    return SaveOutcome(
        wrong=wrong,
        refusals=refusals,
        warnings=stored_warnings(stored) if stored else [],
        changes=[] if wrong or refusals else changes,
        sentence=_sentence(stored, changes, refused=bool(wrong or refusals)),
        table=value_table(draft, "Every value that would be in force"),
    )


def stored_warnings(stored: CompactionProfile) -> list[str]:
    """Return what an operator must know about a version as it is stored."""
    unknown = ", ".join(unknown_parameters(stored))
    problems = [f"As it is stored: {each}" for each in stored_problems(stored)]
    if unknown:
        problems.append(f"The next version leaves out what is unknown today: {unknown}.")
    return problems


def live_answer(form: Any, outcome: SaveOutcome, html: str) -> dict[str, Any]:
    """Return the answer of the live validation: sentences by field, and what empty ones mean."""
    inherited = inherited_values(form.base_shown)
    return {
        "errors": form.sentences(),
        "inherited": {name: inherited_words(name, inherited) for name in PARAMETERS},
        "outcome": html,
        "said": outcome.sentence,
    }


def value_table(profile: CompactionProfile, title: str) -> Table:
    """Return every parameter with the value in force, who sets it, and what it may be."""
    return Table(
        title=title,
        columns=("Parameter", "Value", "From", "Allowed", "What it does"),
        note="The preset, over it the environment (bisect only), over both what is set here.",
        rows=[
            (
                format_html("<code>{}</code>", name),
                format_html("<bdi>{}</bdi>", value_words(name, value.value)),
                _source(value),
                (allowed_values(name) or "any text") if name in PARAMETERS else "—",
                PARAMETERS[name].metadata["help"] if name in PARAMETERS else "Unknown today.",
            )
            for name, value in values_in_force(profile).items()
        ],
    )


def _source(value: Value) -> SafeString | str:
    if not value.variable:
        return value.source
    return format_html("{}: <code>{}</code>", value.source, value.variable)


def _sentence(
    stored: CompactionProfile | None, changes: list[ParameterChange], *, refused: bool
) -> str:
    if refused:
        return "This cannot be saved yet."
    if stored is None:
        return "Saving makes version 1."
    if not changes:
        return f"Nothing is changed: saving leaves version {stored.version} as it is."
    count = f"{len(changes)} change{'s' if len(changes) > 1 else ''}"
    return f"{count}: saving makes a new version and leaves version {stored.version} as it is."
