"""Runs and recoveries as entries of a session's timeline.

A run or a replayed branch that is a step of a recovery is told there, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.parts import Link
from chatapp.admin.timeline.entries import Entry
from chatapp.admin.timeline.sources import Incidents, Replays
from chatapp.models import Branch, Session
from compaction import vocabulary
from compaction.admin import badges
from compaction.admin.ladder.climb import (
    GAVE_UP,
    THROUGH,
    Climb,
    climbs_of,
    moves_words,
    title_of,
)
from compaction.admin.ladder.panel import ladder_body
from compaction.models import CompactionRun, RecoveryStep, SessionSummary
from compaction.vocabulary import explanation_of

Status = CompactionRun.Status
REASON_CHARS = 600
MEANINGS: Mapping[str, str] = {
    Status.QUEUED: "It waits for a worker.",
    Status.RUNNING: "A worker is at it.",
    Status.SUCCEEDED: "From here on, a summary is sent in the place of what it covers; nothing "
    "stored is lost.",
}

DRAFT_MEANING = (
    "A summary was made ahead and waits as a draft: it is not sent before a rule asks for it."
)
ARCHIVE_MEANING = (
    "No summariser could be asked: from here on the messages are sent shortened, as an archive; "
    "nothing stored is lost. It can be summarised again."
)


class Runs:
    """Compactions that came by themselves or were asked for."""

    key = "run"

    def rows(self, session: Session) -> QuerySet[CompactionRun]:
        """Return the session's runs that are no step."""
        recovery_steps = RecoveryStep.objects.filter(run=OuterRef("pk"))
        made = SessionSummary.objects.filter(run=OuterRef("pk"))
        rows = CompactionRun.objects.filter(~Exists(recovery_steps), session=session.pk)
        return rows.defer("instructions").annotate(
            is_draft=Exists(made.filter(status=SessionSummary.Status.DRAFT)),
            is_archive=Exists(made.filter(archived=True)),
        )

    def entries(self, session: Session, rows: Sequence[CompactionRun]) -> Mapping[Any, Entry]:
        """Return an entry a row; nothing more is read."""
        return {row.pk: self._entry(row) for row in rows}

    def _entry(self, run: CompactionRun) -> Entry:
        reason = vocabulary.why(run)
        if run.error:
            reason = f"{reason} {formatting.shortened(run.error, REASON_CHARS)}"
        explained = explanation_of(run)
        return Entry(
            at=run.created_at,
            title=f"Compaction: {explained.title}" if explained else "Compaction",
            label=vocabulary.status_words(run),
            tone=badges.status_tone(run),
            reason=reason,
            numbers=_numbers(run),
            means=explained.means if explained else _meaning(run),
            links=[
                Link(label="Run", url=cells.change_url(CompactionRun, run.pk)),
                Link(label="Branch", url=cells.change_url(Branch, run.branch_id)),
            ],
        )


def _meaning(run: CompactionRun) -> str:
    """Return what follows from a run that has not failed; Runs.rows told what it made."""
    if vocabulary.waits(run):
        return "It waits, and goes on by itself when the time has come; nothing is lost."
    if getattr(run, "is_draft", False):
        return DRAFT_MEANING
    if getattr(run, "is_archive", False):
        return ARCHIVE_MEANING
    return MEANINGS.get(run.status, "")


def _numbers(run: CompactionRun) -> list[tuple[str, str]]:
    known = [
        ("Tokens", formatting.before_after(run.tokens_before, run.tokens_after)),
        ("Model calls", formatting.number(run.model_calls) if run.model_calls else "—"),
        ("Took", vocabulary.seconds(run)),
        ("Cost", formatting.money(run.cost)),
    ]
    return [(name, value) for name, value in known if value != "—"]


class Ladders:
    """What turns tried when their requests were refused as too large; one entry a turn."""

    key = "ladder"

    def rows(self, session: Session) -> QuerySet[RecoveryStep]:
        """Return the last step of each of the session's recoveries."""
        later = RecoveryStep.objects.filter(
            recovery=OuterRef("recovery"), order__gt=OuterRef("order")
        )
        return RecoveryStep.objects.filter(~Exists(later), session=session.pk)

    def entries(self, session: Session, rows: Sequence[RecoveryStep]) -> Mapping[Any, Entry]:
        """Return an entry a recovery; one query reads the steps of all of them."""
        climbs = climbs_of(session, [row.recovery for row in rows]) if rows else {}
        return {row.pk: self._entry(climbs[row.recovery], row) for row in rows}

    def _entry(self, climb: Climb, last: RecoveryStep) -> Entry:
        first = climb.recovery_steps[0]
        cut = sum(recovery_step.characters_cut for recovery_step in climb.recovery_steps)
        numbers = [("Tokens", formatting.before_after(first.tokens_before, last.tokens_after))]
        if climb.limit:
            numbers.append(("Allowed" if climb.is_named else "Window", f"{climb.limit:,}"))
        if cut:
            numbers.append(("Characters cut", formatting.number(cut)))
        return Entry(
            at=last.created_at,
            title=title_of(climb),
            label="Ladder",
            tone={THROUGH: "good", GAVE_UP: "bad"}.get(climb.end, "busy"),
            reason=moves_words(climb),
            numbers=numbers,
            means=_means(climb),
            links=_links(climb),
            drawing=ladder_body(climb),
        )


def _means(climb: Climb) -> str:
    """Return what follows from the steps that helped; the end stands below the drawing."""
    helped = {
        recovery_step.action
        for recovery_step in climb.tried
        if recovery_step.outcome == RecoveryStep.Outcome.SMALLER
    }
    return " ".join(
        vocabulary.RECOVERY_ACTION_MEANINGS[action]
        for action in vocabulary.RECOVERY_ACTIONS
        if action in helped
    )


def _links(climb: Climb) -> list[Link]:
    """Return the ways to runs and branches, in the order of the steps."""
    links = []
    for number, recovery_step in enumerate(climb.recovery_steps, 1):
        if recovery_step.run_id:
            url = cells.change_url(CompactionRun, recovery_step.run_id)
            links.append(Link(label=f"Run of rung {number}", url=url))
        if recovery_step.replay_id:
            url = cells.change_url(Branch, recovery_step.replay_id)
            links.append(Link(label=f"New branch of rung {number}", url=url))
    links.append(
        Link(label="Branch", url=cells.change_url(Branch, climb.recovery_steps[0].branch_id))
    )
    return links


class OtherReplays(Replays):
    """Replayed branches that no recovery tells of."""

    def rows(self, session: Session) -> QuerySet[Branch]:
        """Leave out the branches of steps."""
        recovery_steps = RecoveryStep.objects.filter(replay=OuterRef("pk"))
        return super().rows(session).filter(~Exists(recovery_steps))


TIMELINE_SOURCES = (Incidents(), Ladders(), OtherReplays(), Runs())
