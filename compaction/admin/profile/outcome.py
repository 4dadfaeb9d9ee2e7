"""What saving a profile's form would come to, for the page and for its live validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.forms.utils import ErrorList
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp.admin.parts import Table
from compaction.admin.profile.fields import allowed_values
from compaction.admin.profile.values import (
    PARAMETERS,
    Change,
    Value,
    differences,
    inherited_values,
    inherited_words,
    label_of,
    stored_problems,
    unknown_parameters,
    value_words,
    values_in_force,
)
from compaction.models import CompactionProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Wrong fields with the way to them, sentences about the rest, and what would change."""

    wrong: list[tuple[str, str]]
    refusals: ErrorList
    warnings: list[str]
    changes: list[Change]
    sentence: str
    table: Table


def outcome_of(form: Any, stored: CompactionProfile | None) -> Outcome:
    """Return what a form comes to against the stored version that was opened.

    Of a form that was sent, the instance holds what would be saved.
    """
    # The errors first: looking for them is what puts the values into the instance.
    wrong = [(f"id_{name}", label_of(name)) for name in form.errors if name in form.fields]
    refusals = form.non_field_errors()
    draft: CompactionProfile = form.instance
    changes = differences(stored, draft) if stored and form.is_bound else []
    return Outcome(
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


def live_answer(form: Any, outcome: Outcome, html: str) -> dict[str, Any]:
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
                allowed_values(name) if name in PARAMETERS else "—",
                PARAMETERS[name].metadata["help"] if name in PARAMETERS else "Unknown today.",
            )
            for name, value in values_in_force(profile).items()
        ],
    )


def _source(value: Value) -> SafeString | str:
    if not value.variable:
        return value.source
    return format_html("{}: <code>{}</code>", value.source, value.variable)


def _sentence(stored: CompactionProfile | None, changes: list[Change], *, refused: bool) -> str:
    if refused:
        return "This cannot be saved yet."
    if stored is None:
        return "Saving makes version 1."
    if not changes:
        return f"Nothing is changed: saving leaves version {stored.version} as it is."
    count = f"{len(changes)} change{'s' if len(changes) > 1 else ''}"
    return f"{count}: saving makes a new version and leaves version {stored.version} as it is."
