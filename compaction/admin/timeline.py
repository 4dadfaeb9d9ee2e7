"""Runs and recoveries as entries of a session's timeline.

A run or a replayed branch that is a step of a recovery is told there, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Exists, OuterRef, QuerySet, Subquery

from chatapp import formatting
from chatapp.admin.toolkit.page_parts import Link
from chatapp.admin.toolkit.timeline import CompiledSource, Replays, TimelineEntry
from chatapp.models import Branch, Message, Session
from compaction import vocabulary
from compaction.admin import lists
from compaction.admin.recovery import (
    TurnRecovery,
    actions_words,
    recoveries_of,
    title_of,
    tone_of,
)
from compaction.admin.recovery_drawing import recovery_body
from compaction.models import CompactionRun, RecoveryStep, SessionSummary
from compaction.recovery.too_large import message_named_in
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
    "No summariser could be asked: from here on the messages are sent shortened, as a fallback "
    "digest; "
    "nothing stored is lost. It can be summarised again."
)


class Runs(CompiledSource):
    """Compactions that came by themselves or were asked for."""

    key = "run"

    def rows(self, session: Session) -> QuerySet[CompactionRun]:
        """Return the session's runs that are no step of a recovery."""
        steps = RecoveryStep.objects.filter(run=OuterRef("pk"))
        made = SessionSummary.objects.filter(run=OuterRef("pk"))
        rows = CompactionRun.objects.filter(~Exists(steps), session=session.pk)
        # No join: a session's runs are found by their own index.
        people = get_user_model().objects.filter(pk=OuterRef("requested_by"))
        return rows.defer("instructions").annotate(
            is_draft=Exists(made.filter(status=SessionSummary.Status.DRAFT)),
            is_digest=Exists(made.filter(is_digest=True)),
            asked_by=Subquery(people.values(get_user_model().USERNAME_FIELD)[:1]),
        )

    def entries(
        self, session: Session, rows: Sequence[CompactionRun], *, texts: bool
    ) -> Mapping[Any, TimelineEntry]:
        """Return an entry a row; nothing more is read."""
        return {row.pk: self._entry(row, texts=texts) for row in rows}

    def _entry(self, run: CompactionRun, *, texts: bool) -> TimelineEntry:
        reason = vocabulary.why(run)
        if run.error and texts:
            reason = f"{reason} {formatting.shortened(run.error, REASON_CHARS)}"
        explained = explanation_of(run)
        return TimelineEntry(
            at=run.created_at,
            title=f"Compaction: {explained.title}" if explained else "Compaction",
            label=vocabulary.status_words(run),
            tone=lists.status_tone(run),
            reason=reason,
            numbers=_numbers(run),
            means=explained.means if explained else _meaning(run),
            links=[
                Link.to("Run", CompactionRun, run.pk),
                Link.to("Branch", Branch, run.branch_id),
            ],
        )


def _meaning(run: CompactionRun) -> str:
    """Return what follows from a run that has not failed; Runs.rows told what it made."""
    if vocabulary.waits(run):
        return "It waits, and goes on by itself when the time has come; nothing is lost."
    if getattr(run, "is_draft", False):
        return DRAFT_MEANING
    if getattr(run, "is_digest", False):
        return ARCHIVE_MEANING
    return MEANINGS.get(run.status, "")


def _numbers(run: CompactionRun) -> list[tuple[str, str]]:
    known = [
        ("Tokens of the request", formatting.before_after(run.tokens_before, run.tokens_after)),
        ("Model calls", formatting.number(run.model_calls) if run.model_calls else "—"),
        ("Took", vocabulary.seconds(run)),
        ("Cost", formatting.money(run.cost)),
    ]
    asked_by = getattr(run, "asked_by", None)
    by = [("By", str(asked_by))] if asked_by else []
    return [*by, *((name, value) for name, value in known if value != "—")]


class Recoveries(CompiledSource):
    """What turns tried when their requests were refused as too large; one entry a turn."""

    key = "recovery"

    def rows(self, session: Session) -> QuerySet[RecoveryStep]:
        """Return the last step of each of the session's recoveries."""
        later = RecoveryStep.objects.filter(
            recovery=OuterRef("recovery"), order__gt=OuterRef("order")
        )
        return RecoveryStep.objects.filter(~Exists(later), session=session.pk)

    def entries(
        self, session: Session, rows: Sequence[RecoveryStep], *, texts: bool
    ) -> Mapping[Any, TimelineEntry]:
        """Return an entry a recovery; one query reads the steps of all of them."""
        recoveries = recoveries_of(session, [row.recovery for row in rows]) if rows else {}
        return {row.pk: self._entry(recoveries[row.recovery], row, texts=texts) for row in rows}

    def _entry(self, recovery: TurnRecovery, last: RecoveryStep, *, texts: bool) -> TimelineEntry:
        first = recovery.steps[0]
        cut = sum(step.characters_cut for step in recovery.steps)
        numbers = [
            (
                "Tokens of the request",
                formatting.before_after(first.tokens_before, last.tokens_after),
            )
        ]
        if recovery.limit:
            numbers.append(("Allowed" if recovery.is_named else "Window", f"{recovery.limit:,}"))
        if cut:
            numbers.append(("Characters cut", formatting.number(cut)))
        return TimelineEntry(
            at=last.created_at,
            title=title_of(recovery),
            label="Recovery",
            tone=tone_of(recovery),
            reason=actions_words(recovery),
            numbers=numbers,
            means=_means(recovery),
            links=_links(recovery),
            drawing=recovery_body(recovery, texts=texts),
        )


def _means(recovery: TurnRecovery) -> str:
    """Return what follows from the steps that helped; the end stands below the drawing."""
    helped = {
        step.action for step in recovery.tried if step.outcome == RecoveryStep.Outcome.SMALLER
    }
    return " ".join(
        vocabulary.ACTION_MEANINGS[action] for action in vocabulary.ACTIONS if action in helped
    )


def _links(recovery: TurnRecovery) -> list[Link]:
    """Return the ways to runs and branches, in the order of the steps."""
    links = []
    if (cause := message_named_in(recovery.last.text)) is not None:
        links.append(Link.to("What is too large", Message, cause))
    for number, step in enumerate(recovery.steps, 1):
        if step.run_id:
            links.append(Link.to(f"Run of step {number}", CompactionRun, step.run_id))
        if step.replay_id:
            links.append(Link.to(f"New branch of step {number}", Branch, step.replay_id))
    links.append(Link.to("Branch", Branch, recovery.steps[0].branch_id))
    return links


class OtherReplays(Replays):
    """Replayed branches that no recovery tells of."""

    def rows(self, session: Session) -> QuerySet[Branch]:
        """Leave out the branches that a recovery made."""
        steps = RecoveryStep.objects.filter(replay=OuterRef("pk"))
        return super().rows(session).filter(~Exists(steps))


TIMELINE_SOURCES = (Recoveries(), OtherReplays(), Runs())
