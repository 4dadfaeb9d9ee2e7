"""A ladder as a piece of a page: its drawing, a legend, and the same as a table."""

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
    Move,
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
from compaction.models import CompactionRun, RecoveryRung


def ladder_panels(run: CompactionRun) -> list[Panel]:
    """Return the ladders that a run is a rung of: one, or none for a run that came by itself."""
    recoveries = RecoveryRung.objects.filter(run=run).values_list("recovery", flat=True)
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
    """Return drawing, legend and table of a ladder."""
    return render_to_string(
        "admin/compaction/ladder.html",
        {
            "drawing": draw(climb),
            "end": end_words(climb),
            "limit": climb.limit,
            "said": list(dict.fromkeys(rung.error for rung in climb.rungs if rung.error)),
            "table": _table(climb),
        },
    )


def _table(climb: Climb) -> Table:
    return Table(
        title="Rungs of the ladder",
        columns=("Rung", "Tried", "Came of it", "Tokens before → after", "Refused before it", ""),
        rows=[_row(number, rung) for number, rung in enumerate(climb.rungs, 1)],
    )


def _row(number: int, rung: RecoveryRung) -> tuple[SafeString | str | int, ...]:
    if rung.move == Move.GIVE_UP:
        tokens = formatting.number(rung.tokens_before)
    else:
        tokens = f"{rung.tokens_before:,} → {rung.tokens_after:,}"
    return (number, move_words(rung), outcome_words(rung), tokens, refusal_words(rung), _more(rung))


def _more(rung: RecoveryRung) -> SafeString:
    """Return what else is known: how much, why it did not help, and where it can be seen.

    What the user was told in the end stands above the table.
    """
    why = "" if rung.move == Move.GIVE_UP else rung.text
    parts: list[SafeString | str] = [part for part in (amount_words(rung), why) if part]
    if rung.run_id:
        parts.append(cells.link("its run", cells.change_url(CompactionRun, rung.run_id)))
    if rung.replay_id:
        parts.append(cells.link("the new branch", cells.change_url(Branch, rung.replay_id)))
    return format_html_join(" · ", "{}", ((part,) for part in parts))
