"""A recovery as a piece of a page: its drawing, a legend, and the same as a table."""

from __future__ import annotations

from django.template.loader import render_to_string
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.parts import Panel, Table
from chatapp.models import Branch
from compaction.admin.ladder.climb import (
    Climb,
    RecoveryAction,
    amount_words,
    climbs_of,
    end_words,
    move_words,
    moves_words,
    outcome_words,
    refusal_words,
    title_of,
)
from compaction.admin.ladder.drawing import draw
from compaction.models import CompactionRun, RecoveryStep


def ladder_panels(run: CompactionRun) -> list[Panel]:
    """Return the recoveries that a run is a step of: one, or none for a run that came by itself."""
    recoveries = RecoveryStep.objects.filter(run=run).values_list("recovery", flat=True)
    climbs = climbs_of(run.session, recoveries)
    return [
        Panel(
            title="Ladder of the turn",
            body=ladder_body(climb),
            note=f"{title_of(climb)}. {moves_words(climb)}",
        )
        for climb in climbs.values()
    ]


def ladder_body(climb: Climb) -> SafeString:
    """Return drawing, legend and table of a recovery."""
    return render_to_string(
        "admin/compaction/ladder.html",
        {
            "drawing": draw(climb),
            "end": end_words(climb),
            "limit": climb.limit,
            "said": list(
                dict.fromkeys(
                    recovery_step.error
                    for recovery_step in climb.recovery_steps
                    if recovery_step.error
                )
            ),
            "table": _table(climb),
        },
    )


def _table(climb: Climb) -> Table:
    return Table(
        title="Rungs of the ladder",
        columns=("Rung", "Tried", "Came of it", "Tokens before → after", "Refused before it", ""),
        rows=[
            _row(number, recovery_step)
            for number, recovery_step in enumerate(climb.recovery_steps, 1)
        ],
    )


def _row(number: int, recovery_step: RecoveryStep) -> tuple[SafeString | str | int, ...]:
    if recovery_step.action == RecoveryAction.GIVE_UP:
        tokens = formatting.number(recovery_step.tokens_before)
    else:
        tokens = f"{recovery_step.tokens_before:,} → {recovery_step.tokens_after:,}"
    return (
        number,
        move_words(recovery_step),
        outcome_words(recovery_step),
        tokens,
        refusal_words(recovery_step),
        _more(recovery_step),
    )


def _more(recovery_step: RecoveryStep) -> SafeString:
    """Return what else is known: how much, why it did not help, and where it can be seen.

    What the user was told in the end stands above the table.
    """
    why = "" if recovery_step.action == RecoveryAction.GIVE_UP else recovery_step.text
    parts: list[SafeString | str] = [part for part in (amount_words(recovery_step), why) if part]
    if recovery_step.run_id:
        parts.append(cells.link("its run", cells.change_url(CompactionRun, recovery_step.run_id)))
    if recovery_step.replay_id:
        parts.append(
            cells.link("the new branch", cells.change_url(Branch, recovery_step.replay_id))
        )
    return format_html_join(" · ", "{}", ((part,) for part in parts))
