"""Compacting a sample conversation, unless that was done before, and the figures of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models.signals import post_save

from chatapp.models import Session
from compaction.models import CompactionRun, CompactionStep
from compaction.services.compact import compact_branch, execute_run
from compaction.services.resummarize import estimate_compaction
from compaction.services.situation import Situation, situation_of

Status = CompactionRun.Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """A session and the run that compacted it, now or earlier; tokens are those of one request."""

    session: Session
    messages: int
    run: CompactionRun
    before: bool

    @property
    def succeeded(self) -> bool:
        """Whether there is a summary."""
        return self.run.status == Status.SUCCEEDED

    @property
    def is_elsewhere(self) -> bool:
        """Whether another run has the conversation, perhaps one of a demo that was killed."""
        return self.run.error_code == "busy"

    @property
    def ratio(self) -> float | None:
        """Tokens after over tokens before; smaller is better."""
        if not self.run.tokens_before or self.run.tokens_after is None:
            return None
        return self.run.tokens_after / self.run.tokens_before

    @property
    def seconds(self) -> float:
        """How long the run took."""
        if self.run.started_at is None or self.run.finished_at is None:
            return 0.0
        return (self.run.finished_at - self.run.started_at).total_seconds()


def calls_ahead(session: Session) -> int:
    """Return how many model calls compacting the session will take; 0 when it needs nothing."""
    situation = situation_of(session)
    return 0 if _done_run(situation) else estimate_compaction(situation).calls


def compact_sample(session: Session) -> Compacted:
    """Compact a session and return its run; one that needs nothing keeps its last run.

    Storing the conversation has queued a run where a trigger was due. It is done here, in the
    worker's place: the queue's own delivery then finds it finished.
    """
    situation = situation_of(session)
    run = _done_run(situation)
    before = run is not None
    if run is None:
        waiting = CompactionRun.objects.filter(branch=situation.branch, status=Status.QUEUED)
        queued = waiting.order_by("created_at").first()
        if queued is not None:
            run = execute_run(queued.pk)
        if run is None or run.status == Status.SKIPPED:
            run = compact_branch(
                session=session,
                branch=situation.branch,
                trigger=CompactionRun.Trigger.MANUAL,
                reason="manual",
            )
    return Compacted(
        session=session, messages=situation.branch.message_count, run=run, before=before
    )


def _done_run(situation: Situation) -> CompactionRun | None:
    """Return the newest run that succeeded, if the branch needs no other one now."""
    if not situation.summaries:
        return None
    if situation.decision is not None and situation.plan().summarise:
        return None
    runs = CompactionRun.objects.filter(branch=situation.branch, status=Status.SUCCEEDED)
    return runs.order_by("-finished_at").first()


@contextlib.contextmanager
def every_call(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` after every model call of this process's runs, inside the block."""

    def stored(*, created: bool, **kwargs: Any) -> None:
        if created:
            tell()

    post_save.connect(stored, sender=CompactionStep, weak=False, dispatch_uid="compaction.demo")
    try:
        yield
    finally:
        post_save.disconnect(sender=CompactionStep, dispatch_uid="compaction.demo")
