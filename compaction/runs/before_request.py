"""What is done before a request goes out: as little as can be, and nothing where nothing must be.

A draft is published, a due compaction is done, and where messages would fall out of the request
that no summary has read, they are summarised, or at the very last stored as a digest. Whatever
fails costs the user nothing: the request goes out as it is
(docs/architecture.md#a-failing-summariser-fails-no-turn).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from time import monotonic, sleep
from typing import Any

from django.db import Error
from django.db.models.functions import Now

from chatapp.context.assembly import Context
from chatapp.context.backend import Emit
from chatapp.database import release_connection
from chatapp.models import Session
from compaction.branches.cache_clock import without_clock
from compaction.branches.context_builder import foreseen, sendable
from compaction.branches.past_window import bounded
from compaction.branches.planning import cut_of, decision_of, due_before_request
from compaction.branches.reading import current_snapshot, is_still_so
from compaction.branches.snapshot import BranchSnapshot, snapshot_of
from compaction.conf import compaction_settings
from compaction.engine.extractive.summarizer import EXTRACTIVE
from compaction.engine.policy.reasons import Reason, RunCode
from compaction.engine.policy.window import is_last_resort, uses_digest
from compaction.engine.types import Decision
from compaction.events import event
from compaction.limits import circuit_breaker
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.runs.lifecycle import BUSY
from compaction.runs.scheduling import check, note_problems
from compaction.runs.status import run_summary
from compaction.runs.worker import compact_branch
from compaction.summaries.drafts import publish_draft
from compaction.summaries.summarizer import NO_MODEL

logger = logging.getLogger(__name__)
POLL_SECONDS = 0.25
# Codes of runs whose summariser gave nothing usable: a smaller batch may help.
_OF_NO_USE = frozenset(
    {
        RunCode.BAD_ANSWER,
        RunCode.SUMMARISER_ERROR,
        RunCode.NOT_SMALLER,
        RunCode.TOO_MANY_CALLS,
        RunCode.STRATEGY_ERROR,
    }
)
# A summary can be restored between two reads of one request: it is then put together again.
MOST_READS = 3
# How often a request tries again when a worker took the branch just before it did.
MOST_STEPS_ASIDE = 3
# How many attempts of one request may fail: a profile may take long before it tries another way.
MOST_FAILURES = 16


@dataclass(kw_only=True)
class Preparation:
    """One request's preparation; `emit` tells whoever watches the turn what it waits for."""

    session: Session
    emit: Emit
    _end: float = field(
        init=False, default_factory=lambda: monotonic() + compaction_settings.inline_seconds
    )
    _stored: int = field(init=False, default=0)
    """How many batches were stored so far; nearly always each took one call."""
    _run: CompactionRun | None = field(init=False, default=None)
    _is_done: bool = field(init=False, default=False)
    _uses_digest: bool = field(init=False, default=False)
    _stepped_aside: int = field(init=False, default=0)
    _failed: int = field(init=False, default=0)

    def context(self) -> Context:
        """Return what the next request sends."""
        snapshot = self._settled()
        run_id = str(self._run.pk) if self._run else None
        for _ in range(MOST_READS - 1):
            context = sendable(snapshot, run_id=run_id)
            self._or_go_on(partial(note_problems, snapshot))
            if is_still_so(snapshot):
                return replace(context, origin=snapshot)
            snapshot = bounded(snapshot_of(self.session))
        return sendable(snapshot, run_id=run_id)

    def _settled(self) -> BranchSnapshot:
        """Return the branch as it is when nothing more is to be done before the request."""
        snapshot = self._read()
        if _waits_for_a_worker(snapshot):
            self._or_go_on(partial(check, snapshot))
        while (decision := self._due(snapshot)) is not None:
            if publish_draft(snapshot) is not None:
                # That costs no time: perhaps nothing is due any more.
                snapshot = self._read()
                continue
            helped = bool(self._or_go_on(partial(self._compact, decision, snapshot)))
            snapshot = self._read()
            goes_on = helped and not self._uses_digest
            if decision.reason != Reason.HARD_LIMIT:
                # One compaction is what a user is asked to wait for; one without a model is quick.
                if not (helped and self._went_without_model(snapshot)):
                    break
            elif not (goes_on or snapshot.hides_messages):
                break
        self._tell_what_is_left_out(snapshot)
        return snapshot

    def _read(self) -> BranchSnapshot:
        """Return the branch as it is; wait for a worker that does just what this request needs."""
        snapshot = bounded(current_snapshot(self.session))
        without_clock(snapshot.state)
        if snapshot.hides_messages and _has_live_holder(snapshot.state):
            self._wait_for_holder(snapshot)
            snapshot = bounded(snapshot_of(self.session))
        return snapshot

    def _due(self, snapshot: BranchSnapshot) -> Decision | None:
        if self._is_done or monotonic() > self._end:
            return None
        if self._stored >= compaction_settings.inline_calls:
            # What is left of a long backlog is due in the background as well.
            return None
        return due_before_request(snapshot) or foreseen(snapshot)

    def _went_without_model(self, snapshot: BranchSnapshot) -> bool:
        """Whether sentences were chosen since the model is of no use, and more is due at once."""
        if self._run is None or self._due(snapshot) is None:
            return False
        chosen = SessionSummary.objects.filter(run=self._run, model=EXTRACTIVE)
        # Another model may have written it; that takes as long as any call.
        return circuit_breaker.failed_in(self._run.pk) and chosen.exists()

    def _or_go_on(self, work: Callable[[], Any]) -> Any:
        """Return what the work returns; None, and nothing more is tried, where the database fails.

        A request that can be read and sent is not lost for it.
        """
        try:
            return work()
        except Error:
            logger.exception("Nothing is compacted before this request.")
            self._is_done = True
            release_connection()
            return None

    def _compact(self, decision: Decision, snapshot: BranchSnapshot) -> bool:
        """Do what is due; return whether that helped.

        Where messages would fall out, failing attempts go on as long as the next one would be
        another: they make the batches smaller and end in a fallback digest. Where no model may be
        called, what would fall out is stored as a digest at once, and only that. Nor is the
        summariser asked again by a request that it has made store a fallback digest: a long backlog
        would cost a call every batch.
        """
        run = self._do(Reason.ARCHIVE if self._uses_digest else decision.reason)
        if run.error_code in (*NO_MODEL, RunCode.INLINE_LIMIT):
            if snapshot.hides_messages:
                run = self._do(Reason.ARCHIVE)
            self._is_done = True
        elif not run.is_finished or run.error_code == BUSY:
            # A worker was quicker. It is waited for, and may leave something to do.
            self._stepped_aside += 1
            self._is_done = self._stepped_aside > MOST_STEPS_ASIDE
        elif run.status != CompactionRun.Status.SUCCEEDED:
            self._failed += 1
            of_no_use = run.error_code in _OF_NO_USE and not self._uses_digest
            goes_on = of_no_use and not _was_last_resort(snapshot)
            self._is_done = not goes_on or self._failed >= MOST_FAILURES
        else:
            self._stored += 1
            self._uses_digest |= uses_digest(snapshot.profile, snapshot.state.failures)
        return run.status == CompactionRun.Status.SUCCEEDED

    def _tell_what_is_left_out(self, snapshot: BranchSnapshot) -> None:
        if snapshot.hides_messages:
            event(
                "messages_left_out",
                session=self.session,
                branch=snapshot.branch,
                reason=Reason.HARD_LIMIT,
                level=logging.WARNING,
                messages=snapshot.facts.countable - snapshot.profile.context_size,
            )

    def _do(self, reason: str) -> CompactionRun:
        self.emit("compaction", {"phase": "started", "reason": reason})
        try:
            self._run = compact_branch(
                session=self.session,
                trigger=CompactionRun.Trigger.PROACTIVE,
                reason=reason,
                seconds=max(1.0, self._end - monotonic()),
            )
        except Error:
            # Whoever watches the turn waits for an end.
            self.emit("compaction", {"phase": "finished", "status": "failed", "reason": reason})
            raise
        self.emit("compaction", {"phase": "finished", **run_summary(self._run)})
        return self._run

    def _wait_for_holder(self, snapshot: BranchSnapshot) -> None:
        self.emit("compaction", {"phase": "waiting", "reason": Reason.HARD_LIMIT})
        event("waiting_for_worker", session=self.session, branch=snapshot.branch)
        while monotonic() < self._end and _has_live_holder(snapshot.state):
            release_connection()
            sleep(POLL_SECONDS)


def _was_last_resort(snapshot: BranchSnapshot) -> bool:
    """Whether another attempt would be just the one that failed for this snapshot."""
    return is_last_resort(
        snapshot.profile,
        waiting=cut_of(snapshot).messages,
        failures=snapshot.state.failures,
    )


def _waits_for_a_worker(snapshot: BranchSnapshot) -> bool:
    """Whether the message that just came makes a run due in the background."""
    # Whether it is worth a run is looked at where it is queued, and only if none waits already.
    decision = decision_of(snapshot, modes=("background",), by_limits_alone=True)
    if decision is None or snapshot.backs_off:
        return False
    return decision_of(snapshot, modes=("inline",)) is None


def _has_live_holder(state: CompactionState) -> bool:
    """Whether a worker holds the branch that has just renewed its lease.

    A lease that missed its renewals belongs to a dead worker: it is not worth waiting for.
    """
    left = compaction_settings.lease_seconds - 2 * compaction_settings.heartbeat_seconds
    return CompactionState.objects.filter(
        pk=state.pk,
        lease_owner__isnull=False,
        lease_expires_at__gt=Now() + timedelta(seconds=left),
    ).exists()
