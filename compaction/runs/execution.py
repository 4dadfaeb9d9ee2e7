"""What one worker does with one run: plan, summarise, check, store.

Model calls run outside transactions; each one's row is written before the next starts.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from django.db import transaction
from django.db.models import Subquery

from chatapp.database import again_if_cut, database_now
from chatapp.llm.registry import UnknownModelError
from chatapp.models import Branch, Message
from chatapp.selectors import path_messages, without_pinned_system
from compaction.branches.holds import held_since, is_by_hand, until_words
from compaction.branches.leases import asked_state, ensure_state, lock_state
from compaction.branches.planning import PlanFailed, batch_of, decision_of, input_of
from compaction.branches.snapshot import BranchSnapshot, snapshot_of
from compaction.conf import compaction_settings
from compaction.convert import read_items
from compaction.engine.policy.reasons import Reason, RunCode
from compaction.engine.policy.window import uses_digest
from compaction.engine.types import Item, NoMoreCallsError, Outcome, SummaryFailed
from compaction.errors import (
    LostRaceError,
    MustWaitError,
    NoGainError,
    OutOfTimeError,
    RunCancelledError,
    StoppingError,
)
from compaction.events import event
from compaction.limits.circuit_breaker import BREAKER_OPEN
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.runs import lifecycle
from compaction.runs.abridging import with_abridged
from compaction.runs.branch_run import switch_with_summary
from compaction.runs.hooked import HookCancelled, ask_before_compaction
from compaction.runs.lifecycle import apply_backoff, note_failure
from compaction.runs.scheduling import note_problems
from compaction.runs.steps import Work
from compaction.runs.strategy import (
    STRATEGY_ERROR,
    ContinuedTexts,
    most_tokens_at_once,
    summarise,
    with_dropped,
)
from compaction.selectors import continued_by, running_row
from compaction.summaries.columns import Sizes
from compaction.summaries.drafts import publish_draft, store_draft
from compaction.summaries.instructions import Carried, carried_instructions, instructions_of
from compaction.summaries.sizes import (
    must_be_worth_it,
    must_shrink,
    sizes_of,
    sizes_of_version,
)
from compaction.summaries.storing import EndRun, store_new_version, store_summary

logger = logging.getLogger(__name__)
# What stores something when no summariser can: the messages themselves, shortened.
FALLBACK_STRATEGY = "digest"
NOTHING_TO_COMPACT = (
    "There is nothing to compact: all messages since the last summary are kept verbatim "
    "(keep_last_n, an open question, or a tool call with its results)."
)
# Not a rule's reasons: no trigger need be due for them.
_ALWAYS_DUE = frozenset({Reason.PRECHECK, Reason.REST})
Status, Trigger = CompactionRun.Status, CompactionRun.Trigger


def do_work(work: Work, snapshot: BranchSnapshot | None = None) -> BranchSnapshot | None:
    """Do a claimed run's work; every failure that is not the worker's own end becomes its row.

    `snapshot` is the branch where it was read as the lease found it. Return it as it was read for
    the run, if it was.
    """
    run = work.run
    try:
        snapshot = _read_for(run) if snapshot is None else snapshot
        # Known already: whoever asks the branch for its session need not read it.
        snapshot.branch.session = run.session
        note_problems(snapshot)
        if run.trigger == Trigger.BRANCH:
            switch_with_summary(work, snapshot)
        elif run.replaces is not None:
            _replace(work, snapshot, run.replaces)
        else:
            _extend(work, snapshot)
    except RunCancelledError:
        lifecycle.reload(run)
    except HookCancelled as cancel:
        _stop(run, str(cancel))
    except StoppingError as stopping:
        _hand_over(run, stopping)
    except MustWaitError as wait:
        _wait(run, wait)
    except NoGainError as none:
        _skip_without_gain(run, none)
    except LostRaceError as lost:
        lifecycle.finish(run, Status.FAILED, code=RunCode.LOST_RACE, sentence=str(lost))
    except NoMoreCallsError as bound:
        _leave_to_background(run, str(bound))
    except SummaryFailed as failure:
        if work.bound is not None and work.bound.was_reached:
            # What was done until then could not be stored.
            _leave_to_background(run, str(failure))
        else:
            fail(run, failure.code, str(failure))
    except OutOfTimeError as late:
        fail(run, RunCode.OUT_OF_TIME, str(late))
    except UnknownModelError as unknown:
        fail(run, RunCode.UNKNOWN_MODEL, str(unknown))
    except Exception as error:
        # A fault of ours must not fail the user's turn, and must be seen.
        logger.exception("Run %s failed", run.pk)
        fail(
            run,
            RunCode.INTERNAL_ERROR,
            f"An unexpected error ended the run ({type(error).__name__}: {error}).",
        )
    return snapshot


def _read_for(run: CompactionRun) -> BranchSnapshot:
    state = ensure_state(run.branch, asked_state(run.branch, for_run=True).run())
    return snapshot_of(run.session, state=state, profile=run.profile)


def fail(run: CompactionRun, code: str, sentence: str) -> None:
    """End a run as failed; automatic runs of the branch then wait for a while.

    Both or none: a run that ended, and nobody who looks again, would be forgotten.
    """

    def end() -> None:
        with transaction.atomic():
            lock_state(run.branch_id)
            if lifecycle.finish(run, Status.FAILED, code=code, sentence=sentence):
                note_failure(run)

    again_if_cut(end)


def _skip_without_gain(run: CompactionRun, none: NoGainError) -> None:
    """End a run after which the next request would be no smaller: no failure, and no back-off.

    Automatic ones of the branch wait until more has come: the next turn would gain as little.
    """
    with transaction.atomic():
        lock_state(run.branch_id)
        running_row(run).update(tokens_before=none.before, tokens_after=none.after)
        skipped = lifecycle.finish(run, Status.SKIPPED, code=RunCode.NO_GAIN, sentence=str(none))
        if skipped and run.trigger == Trigger.PROACTIVE:
            total = Branch.objects.filter(pk=run.branch_id).values("token_total")
            CompactionState.objects.filter(pk=run.branch_id).update(gainless_total=Subquery(total))


def _leave_to_background(run: CompactionRun, sentence: str) -> None:
    """End a run that a request waited for long enough; no failure, and not tried at once again."""
    sentence = f"{sentence} The work is finished in the background."
    with transaction.atomic():
        lock_state(run.branch_id)
        if lifecycle.finish(run, Status.SKIPPED, code=RunCode.INLINE_LIMIT, sentence=sentence):
            pause = timedelta(seconds=compaction_settings.backoff_seconds)
            apply_backoff(run, database_now() + pause)


def _stop(run: CompactionRun, sentence: str) -> None:
    """End a run that a hook does not want; automatic ones of the branch wait before the next."""
    with transaction.atomic():
        lock_state(run.branch_id)
        code = RunCode.HOOK_CANCELLED
        stopped = lifecycle.finish(run, Status.CANCELLED, code=code, sentence=sentence)
        if stopped and run.trigger == Trigger.PROACTIVE:
            pause = timedelta(seconds=compaction_settings.backoff_seconds)
            apply_backoff(run, database_now() + pause)


def _hand_over(run: CompactionRun, stopping: StoppingError) -> None:
    """End a run whose worker is to stop, and queue another one that does the work.

    Both or none: a worker that dies here leaves a running run, which the sweep takes up.
    """
    with transaction.atomic():
        if lifecycle.finish(run, Status.FAILED, code=RunCode.STOPPED, sentence=str(stopping)):
            lifecycle.retry_run(run, requested_by=run.requested_by, restarts=run.restarts)


def _wait(run: CompactionRun, wait: MustWaitError) -> None:
    """Put off a run that may call no model now; no failure of the branch.

    One that waits for a model goes on when that answers again. Nobody waits for an inline run, and
    what is over its budget is skipped: a later trigger looks at the messages of then.
    """
    if run.mode == "background" and wait.code == BREAKER_OPEN:
        lifecycle.put_back(run, until=wait.until, code=wait.code, sentence=str(wait))
        return
    until = wait.until
    if wait.code == BREAKER_OPEN:
        # The breaker may be closed long before: to ask again costs one query.
        pause = timedelta(seconds=compaction_settings.breaker_seconds)
        until = min(until, database_now() + pause)
    with transaction.atomic():
        lock_state(run.branch_id)
        skipped = lifecycle.finish(run, Status.SKIPPED, code=wait.code, sentence=str(wait))
        if skipped and run.trigger == Trigger.PROACTIVE:
            apply_backoff(run, until)


def _extend(work: Work, snapshot: BranchSnapshot) -> None:
    """Summarise what came since the last summary."""
    run = work.run
    if publish_draft(snapshot, lease=work.lease) is not None:
        snapshot = snapshot_of(run.session, run.branch, profile=run.profile)
    if not _is_still_due(run, snapshot):
        return
    batch = None
    if run.trigger == Trigger.PROACTIVE:
        batch = batch_of(snapshot, only_what_falls_out=_is_last_way(run, snapshot))
    is_last_way = _uses_digest(run, snapshot)
    tokens = None if is_last_way else most_tokens_at_once(work, snapshot)
    items = _input(run, snapshot, at_most=batch, tokens=tokens, is_last_way=is_last_way)
    if not items:
        lifecycle.finish(
            run, Status.SKIPPED, code=RunCode.NOTHING_TO_DO, sentence=NOTHING_TO_COMPACT
        )
        return
    if is_last_way:
        _tell_of_digest(run, snapshot, messages=len(items))
    else:
        must_be_worth_it(snapshot, run, items)
    continued = ContinuedTexts(
        previous=snapshot.previous_text,
        digest=_digest_before(snapshot),
        before=snapshot.continued,
    )
    if not run.instructions:
        _carry(run, carried_instructions(snapshot, items, before=snapshot.continued))
    # The last way is there for all else that failed, hooks too.
    hooked = None if is_last_way else ask_before_compaction(work, snapshot, items, continued)
    if hooked is not None:
        outcome = hooked.outcome
    else:
        strategy = FALLBACK_STRATEGY if is_last_way else snapshot.profile.strategy
        outcome = summarise(work, snapshot, items, continued=continued, strategy=strategy)
    outcome, sizes = with_abridged(
        snapshot, outcome, snapshot.summaries, partial(sizes_of, snapshot)
    )
    must_shrink(snapshot, run, outcome, sizes)
    store = store_draft if _keeps_draft(run, snapshot) else store_summary
    store(
        snapshot=snapshot,
        run=run,
        lease=work.lease,
        outcome=outcome,
        sizes=sizes if hooked is None else hooked.told(sizes),
        end_run=_ends_with(run, sizes),
    )


def _carry(run: CompactionRun, carried: Carried) -> None:
    """Have a run follow instructions that its messages were summarised by before.

    They are stored with its summary, and apart in the run's row, whose own instructions are what
    somebody asked of it: a run that fails has no summary that would tell.
    """
    if carried.text:
        CompactionRun.objects.filter(pk=run.pk).update(carried_instructions=carried.text)
    run.instructions = carried.text
    run.carries_on, run.carries_from = True, carried.by


def _ends_with(run: CompactionRun, measured: Sizes) -> EndRun:
    """Return what ends the run with the sizes that were measured; a hook may say another one."""

    def end(outcome: Outcome, sizes: Sizes, *, saved: int | None = None) -> None:
        lifecycle.succeed(run, outcome, measured, saved=saved)

    return end


def _is_still_due(run: CompactionRun, snapshot: BranchSnapshot) -> bool:
    """Whether an automatic run has still a reason; where it has none, it ends as skipped."""
    if _gives_way_to_hold(run, snapshot):
        lifecycle.finish(
            run,
            Status.SKIPPED,
            code=RunCode.HELD,
            sentence="A person took a summary back and holds its messages: no rule compacts them, "
            f"{until_words(snapshot.state)}, or until the window forces it.",
        )
        return False
    is_automatic = run.trigger == Trigger.PROACTIVE and run.reason not in _ALWAYS_DUE
    if not is_automatic or decision_of(snapshot) is not None:
        return True
    lifecycle.finish(
        run,
        Status.SKIPPED,
        code=RunCode.NOT_DUE,
        sentence="No trigger is due any more: another run has done the work, or a request came "
        "and the prompt cache lasts longer.",
    )
    return False


def _gives_way_to_hold(run: CompactionRun, snapshot: BranchSnapshot) -> bool:
    """Whether a person's hold on the branch counts for more than the run.

    By hand counts what was asked for last. What a request waits for was looked at just before the
    run began, which may have waited in the queue since long before: a hold that came since counts.
    """
    if not snapshot.state.is_held:
        return False
    if is_by_hand(run):
        return held_since(snapshot.state, run.created_at)
    if run.mode == "inline":
        return held_since(snapshot.state, run.started_at or run.created_at)
    return decision_of(snapshot) is None


def _tell_of_digest(run: CompactionRun, snapshot: BranchSnapshot, *, messages: int) -> None:
    event(
        "archiving",
        session=run.session_id,
        branch=run.branch_id,
        run=run,
        reason=run.reason,
        messages=messages,
        failures=snapshot.state.failures,
    )


def _input(
    run: CompactionRun,
    snapshot: BranchSnapshot,
    *,
    at_most: int | None,
    tokens: int | None,
    is_last_way: bool,
) -> Sequence[Item]:
    """Return what the run summarises; raise SummaryFailed where the profile's strategy fails.

    The last way does not fail with it.
    """
    try:
        return input_of(
            snapshot,
            keep_last_n=run.keep_last_n,
            whole=run.reason == Reason.OVERFLOW_AGAIN,
            at_most=at_most,
            tokens=tokens,
            in_any_case=is_last_way,
        )
    except PlanFailed as failure:
        raise SummaryFailed(STRATEGY_ERROR, str(failure)) from failure


def _uses_digest(run: CompactionRun, snapshot: BranchSnapshot) -> bool:
    """Whether the messages themselves are stored: because somebody waits, or all else failed."""
    failures = snapshot.state.failures
    is_automatic = run.trigger == Trigger.PROACTIVE
    keeps_failing = is_automatic and uses_digest(snapshot.profile, failures)
    return keeps_failing or _is_last_way(run, snapshot)


def _is_last_way(run: CompactionRun, snapshot: BranchSnapshot) -> bool:
    """Whether a request waits that would leave messages out, and no model may be called for it.

    When such a run is done again, nobody waits: the model is asked.
    """
    return run.reason == Reason.ARCHIVE and run.mode == "inline" and snapshot.hides_messages


def _keeps_draft(run: CompactionRun, snapshot: BranchSnapshot) -> bool:
    return run.reason == Reason.AHEAD and snapshot.profile.publish_when_needed


def _digest_before(snapshot: BranchSnapshot) -> str:
    """Return the text whose place a fallback digest takes: the fallback digest's before it, or old
    placeholders'.

    Those would not be sent any more beside a summary's row.
    """
    if not snapshot.summaries:
        return snapshot.previous_text
    return snapshot.digest.summary_text if snapshot.digest is not None else ""


def _dropped_before(snapshot: BranchSnapshot, old: SessionSummary) -> list[Item]:
    """Return what an older summary had dropped: its new version knows no more of it."""
    if not old.dropped_messages:
        return []
    rows = path_messages(snapshot.branch, through=old.covers_from - 1)
    newest_first = without_pinned_system(rows).order_by("-position")
    return list(read_items(newest_first[: old.dropped_messages]))[::-1]


def _replace(work: Work, snapshot: BranchSnapshot, old: SessionSummary) -> None:
    """Summarise the messages of an older summary again (compaction.runs.resummarize)."""
    if old.status != SessionSummary.Status.ACTIVE:
        lifecycle.finish(
            work.run,
            Status.SKIPPED,
            code=RunCode.NOT_ACTIVE,
            sentence=f"The summary is {old.status} by now; there is nothing to replace.",
        )
        return
    items = read_items(Message.objects.filter(summary_links__summary=old).order_by("position"))
    if not items:
        lifecycle.finish(
            work.run,
            Status.SKIPPED,
            code=RunCode.NOTHING_TO_DO,
            sentence="The summary has no source messages any more.",
        )
        return
    if not (work.run.instructions or work.run.replaces_instructions):
        _carry(work.run, instructions_of(old))
    before = continued_by(old)
    continued = ContinuedTexts(
        previous="\n\n".join(row.summary_text for row in before), before=before
    )
    hooked = ask_before_compaction(work, snapshot, items, continued, old=old)
    if hooked is not None:
        outcome = hooked.outcome
    else:
        strategy = snapshot.profile.strategy
        outcome = summarise(work, snapshot, items, continued=continued, strategy=strategy)
    outcome = with_dropped(outcome, _dropped_before(snapshot, old))
    outcome, sizes = with_abridged(
        snapshot, outcome, before, partial(sizes_of_version, snapshot, old=old)
    )
    must_shrink(snapshot, work.run, outcome, sizes)
    store_new_version(
        snapshot=snapshot,
        run=work.run,
        lease=work.lease,
        outcome=outcome,
        sizes=sizes,
        end_run=partial(lifecycle.succeed, work.run),
        old=old,
        previous=before[-1] if before else None,
    )
