"""Compacting a branch: claim, lease, plan, summarise, check, store.

Every way into a compaction ends here: inline before a request, in a worker, by hand, after an
overflow. Model calls run outside transactions; each one's row is written before the next starts.
"""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import dataclass
from typing import Any

from django.db.models import F

from chatapp.models import Branch, Message, Session
from compaction.conf import compaction_settings
from compaction.convert import to_item
from compaction.engine.bisect import BisectSummary, SummaryFailed
from compaction.engine.types import Item, Outcome, Step
from compaction.engine.validation import does_not_shrink
from compaction.models import (
    CompactionProfile,
    CompactionRun,
    CompactionState,
    CompactionStep,
    SessionSummary,
)
from compaction.services import runs
from compaction.services.errors import (
    BranchBusyError,
    LostRaceError,
    OutOfTimeError,
    RunCancelledError,
)
from compaction.services.leases import Lease, state_of
from compaction.services.situation import Situation, situation_of
from compaction.services.store import Sizes, store_new_version, store_summary
from compaction.summarizer import summarizer_for

logger = logging.getLogger(__name__)
Status, Trigger = CompactionRun.Status, CompactionRun.Trigger


def compact_branch(
    *,
    session: Session,
    branch: Branch | None = None,
    trigger: str,
    reason: str,
    profile: CompactionProfile | None = None,
    instructions: str = "",
    keep_last_n: int | None = None,
    replaces: SessionSummary | None = None,
    requested_by: Any = None,
) -> CompactionRun:
    """Compact a branch here and now and return the finished run, however it ended.

    A trigger by hand or after an overflow bypasses the thresholds, never the input (1.12 D1).
    """
    situation = situation_of(session, branch, profile=profile)
    run = runs.request_run(
        session=session,
        branch=situation.branch,
        trigger=trigger,
        reason=reason,
        profile=situation.profile_row,
        background=False,
        instructions=instructions,
        keep_last_n=keep_last_n,
        replaces=replaces,
        requested_by=requested_by,
    )
    return execute_run(run.pk, seconds=compaction_settings.inline_seconds)


def execute_run(run_id: uuid.UUID, *, seconds: float | None = None) -> CompactionRun:
    """Do a queued run's work and return it finished; one that is not queued is returned as it is.

    Delivering a run twice is harmless: only one worker can claim it.
    """
    worker = uuid.uuid4()
    run = runs.claim(run_id, worker)
    if run is None:
        return CompactionRun.objects.get(pk=run_id)
    state = state_of(run.branch)
    try:
        lease = Lease.take(run.branch_id, worker)
    except BranchBusyError as busy:
        CompactionState.objects.filter(pk=state.pk).update(pending=True)
        runs.finish(run, Status.SKIPPED, code="busy", sentence=str(busy))
        return run
    budget = compaction_settings.run_seconds if seconds is None else seconds
    try:
        _work(_Work(run=run, lease=lease, deadline=time.monotonic() + budget))
    except BaseException:
        # Also a queue's time-out, which is no Exception: the row must not say "running" for ever.
        runs.finish(
            run,
            Status.FAILED,
            code="interrupted",
            sentence="The worker was stopped or failed in the middle of the run; nothing was stored.",
        )
        runs.note_failure(state)
        raise
    finally:
        lease.release()
    _look_again(run)
    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """One run in the hands of one worker."""

    run: CompactionRun
    lease: Lease
    deadline: float


def _work(work: _Work) -> None:
    run = work.run
    situation = situation_of(run.session, run.branch, profile=run.profile)
    try:
        if run.replaces is not None:
            _replace(work, situation, run.replaces)
        else:
            _extend(work, situation)
    except RunCancelledError:
        run.refresh_from_db()
    except (SummaryFailed, LostRaceError, OutOfTimeError) as failure:
        code = getattr(failure, "code", "") or {
            LostRaceError: "lost_race",
            OutOfTimeError: "out_of_time",
        }.get(type(failure), "failed")
        runs.finish(run, Status.FAILED, code=code, sentence=str(failure))
        if not isinstance(failure, LostRaceError):
            runs.note_failure(situation.state)


def _extend(work: _Work, situation: Situation) -> None:
    """Summarise what came since the last summary."""
    run = work.run
    if run.trigger == Trigger.PROACTIVE and situation.decision is None:
        runs.finish(
            run,
            Status.SKIPPED,
            code="not_due",
            sentence="No trigger is due any more: another run has done the work.",
        )
        return
    plan = situation.plan(keep_last_n=run.keep_last_n)
    if not plan.summarise:
        runs.finish(
            run,
            Status.SKIPPED,
            code="nothing_to_compact",
            sentence="There is nothing to compact: all messages since the last summary are kept "
            "verbatim (keep_last_n, an open question, or a tool call with its results).",
        )
        return
    outcome = _summarise(work, situation, plan.summarise, previous=situation.previous_text)
    sizes = _sizes(situation, outcome)
    _must_shrink(sizes)
    store_summary(
        situation=situation, run=run, lease=work.lease, outcome=outcome, sizes=sizes
    )
    run.refresh_from_db()


def _replace(work: _Work, situation: Situation, old: SessionSummary) -> None:
    """Summarise the messages of an older summary again (services/resummarize.py)."""
    rows = list(
        Message.objects.filter(summary_links__summary=old).order_by("position").distinct()
    )
    if not rows:
        runs.finish(
            work.run,
            Status.SKIPPED,
            code="nothing_to_compact",
            sentence="The summary has no source messages any more.",
        )
        return
    before = _previous_version(old)
    outcome = _summarise(work, situation, [to_item(row) for row in rows], previous=before)
    counter = situation.model.counter
    tokens = counter.count(outcome.text)
    sizes = Sizes(
        before=old.tokens_before, after=old.tokens_after - old.summary_tokens + tokens, summary=tokens
    )
    if problem := does_not_shrink(outcome.input_tokens, tokens):
        raise SummaryFailed("not_smaller", problem)
    store_new_version(
        situation=situation,
        run=work.run,
        lease=work.lease,
        outcome=outcome,
        sizes=sizes,
        old=old,
        rows=rows,
    )
    work.run.refresh_from_db()


def _previous_version(old: SessionSummary) -> str:
    """Return the text that the old summary continued, in its newest active version."""
    newest = (
        SessionSummary.objects.filter(
            branch_id=old.branch_id,
            status=SessionSummary.Status.ACTIVE,
            covers_through__lt=old.covers_from,
        )
        .order_by("-covers_through")
        .first()
    )
    return (newest or old.previous).summary_text if (newest or old.previous) else ""


def _summarise(
    work: _Work, situation: Situation, items: tuple[Item, ...] | list[Item], *, previous: str
) -> Outcome:
    engine = BisectSummary(
        profile=situation.profile,
        summarizer=summarizer_for(
            situation.session, situation.profile, deadline=work.deadline
        ),
        counter=situation.model.counter,
        on_step=_StepWriter(work).write,
    )
    return engine.run(items, previous=previous, instructions=work.run.instructions)


class _StepWriter:
    """Stores every finished call and asks, before the next one, whether to go on."""

    def __init__(self, work: _Work) -> None:
        self._work = work
        self._rows: dict[int, int] = {}

    def write(self, step: Step) -> None:
        """Store one step; raise when the run was cancelled, lost its lease or is out of time."""
        run = self._work.run
        row = CompactionStep.objects.create(
            run=run,
            parent_id=self._rows.get(step.parent or 0),
            kind=step.kind,
            depth=step.depth,
            order=step.order,
            first_message_id=step.first,
            last_message_id=step.last,
            message_count=step.message_count,
            input_tokens=step.input_tokens,
            output_tokens=step.output_tokens,
            outcome=step.outcome,
            duration_ms=step.duration_ms,
            error=step.error,
            output=step.output,
            model=step.model[:100],
            cost=step.cost,
        )
        self._rows[step.key] = row.pk
        running = CompactionRun.objects.filter(
            pk=run.pk, status=Status.RUNNING, worker=run.worker
        ).update(model_calls=F("model_calls") + 1)
        if not running:
            raise RunCancelledError("The run was cancelled.")
        self._work.lease.renew()
        if time.monotonic() > self._work.deadline:
            raise OutOfTimeError(
                "The run used up its time (COMPACTION_RUN_SECONDS); nothing was stored. "
                "A faster summariser or a larger window needs fewer calls."
            )


def _sizes(situation: Situation, outcome: Outcome) -> Sizes:
    """Return what the next request holds of summaries and history, before and after."""
    tokens = situation.model.counter.count(outcome.text)
    kept = situation.facts.tokens - sum(item.tokens for item in outcome.items)
    before = situation.summary_tokens + situation.facts.tokens
    staying = situation.summaries[-(situation.profile.summary_limit - 1) :]
    if situation.profile.summary_limit == 1:
        staying = []
    after = sum(row.summary_tokens for row in staying) + tokens + kept
    return Sizes(before=before, after=after, summary=tokens)


def _must_shrink(sizes: Sizes) -> None:
    if problem := does_not_shrink(sizes.before, sizes.after):
        raise SummaryFailed("not_smaller", problem)


def _look_again(run: CompactionRun) -> None:
    """After a run, look once more if somebody else asked while it worked."""
    asked = CompactionState.objects.filter(pk=run.branch_id, pending=True).update(pending=False)
    if asked:
        check_branch(run.session, run.branch)


def check_branch(session: Session, branch: Branch | None = None) -> CompactionRun | None:
    """Queue a run for a branch whose trigger is due; return it, or None.

    While another worker holds the branch only `pending` is set; after failures nothing happens
    until the back-off is over.
    """
    situation = situation_of(session, branch)
    decision = situation.decision
    if decision is None or situation.backs_off:
        return None
    if situation.state.is_consolidating:
        CompactionState.objects.filter(pk=situation.state.pk).update(pending=True)
        return None
    return runs.request_run(
        session=session,
        branch=situation.branch,
        trigger=Trigger.PROACTIVE,
        reason=decision.reason,
        profile=situation.profile_row,
        background=True,
    )
