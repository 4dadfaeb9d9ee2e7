"""What a worker does with a run that switches: summarise the branch that is left, then go on.

It changes nothing until everything is stored at once. Cancelled, failed, or where the conversation
went on meanwhile, the session stays where it is, and the run says why.
"""

from __future__ import annotations

import logging
from datetime import datetime
from functools import partial

from django.db import transaction
from django.utils import timezone

from chatapp.context.backend import notify
from chatapp.models import Branch, Session
from compaction.branches.left_branch import LeftBranch, last_message
from compaction.branches.snapshot import BranchSnapshot
from compaction.engine.policy.reasons import RunCode
from compaction.engine.strategies.actions import joined_files
from compaction.engine.strategies.branch_summary import NAME
from compaction.engine.types import Files, Outcome
from compaction.errors import LostRaceError
from compaction.events import event
from compaction.models import CompactionRun, SessionSummary
from compaction.runs import lifecycle
from compaction.runs.hooked_switches import ask_in_run
from compaction.runs.scheduling import check_branch
from compaction.runs.steps import Work
from compaction.runs.strategy import ContinuedTexts, summarise, with_sources
from compaction.signals import branch_summarised, branch_switched, send_after_commit
from compaction.summaries.branch_notes import Switch, store_branch_summary, switch_plainly

logger = logging.getLogger(__name__)
NOTHING_TO_SAY = (
    "Nothing was said on the branch that was left, so there is no summary; the session goes on in "
    "the other branch."
)


def switch_with_summary(work: Work, snapshot: BranchSnapshot) -> None:
    """Do a claimed run's switch.

    Raises LostRaceError where the session goes on elsewhere, and what summarising raises.
    """
    run = work.run
    new = _target(run)
    left = LeftBranch(snapshot=snapshot, new=new)
    _still_wanted(run, left)
    switch = Switch(left=left, run=run, lease=work.lease)
    summary = None
    if not left.entries:
        _without_summary(switch)
    else:
        summary = _with_summary(switch, work)
    send_after_commit(
        branch_switched,
        sender=Session,
        session=run.session_id,
        branch=new.pk,
        from_branch=run.branch_id,
        summary=summary.pk if summary else None,
    )
    _look_at(run, new)


def _target(run: CompactionRun) -> Branch:
    """Return the branch to go to; raise LostRaceError where the session is elsewhere by now."""
    new = run.switch_to
    if new is None:
        raise LostRaceError("The branch to switch to does not exist any more.")
    active = Session.objects.filter(pk=run.session_id).values_list("active_branch", flat=True)
    if active.first() != run.branch_id:
        raise LostRaceError(
            "The conversation goes on in another branch by now; nothing was switched."
        )
    return new


def _still_wanted(run: CompactionRun, left: LeftBranch) -> None:
    """Raise LostRaceError where somebody went on talking since the switch was asked for.

    A run may have waited for a worker, or be the successor of one whose worker died.
    """
    asked_at = _asked_at(run)
    # What an import dates in the future was not said meanwhile.
    now = timezone.now()
    for newest in (left.leaf, last_message(left.new)):
        if newest is not None and asked_at < newest.created_at <= now:
            raise LostRaceError(
                "The conversation went on after the switch was asked for; the session stayed where "
                "it was. Switch again."
            )


def _asked_at(run: CompactionRun) -> datetime:
    """Return when somebody asked for the switch: before the first of its workers died."""
    if not run.restarts:
        return run.created_at
    earlier = CompactionRun.objects.filter(
        session=run.session_id,
        branch=run.branch_id,
        trigger=run.trigger,
        switch_to=run.switch_to_id,
        restarts=0,
        created_at__lt=run.created_at,
    )
    found = earlier.order_by("-created_at").values_list("created_at", flat=True).first()
    return found or run.created_at


def _with_summary(switch: Switch, work: Work) -> SessionSummary:
    left, run = switch.left, switch.run
    continued = ContinuedTexts(previous="")
    outcome = ask_in_run(work, left)
    if outcome is None:
        items = [entry.item for entry in left.entries]
        outcome = summarise(work, left.snapshot, items, continued=continued, strategy=NAME)
    else:
        outcome = with_sources(left.snapshot, outcome, texts=continued)
    summary = store_branch_summary(
        switch,
        outcome=outcome,
        files=joined_files([*left.earlier_files, _files_of(outcome)]),
        end_run=partial(lifecycle.succeed, run),
    )
    send_after_commit(
        branch_summarised,
        sender=CompactionRun,
        session=run.session_id,
        branch=left.new.pk,
        from_branch=run.branch_id,
        run=run.pk,
        summary=summary.pk,
        messages=summary.message_count,
        from_hook=summary.from_hook,
    )
    return summary


def _files_of(outcome: Outcome) -> Files:
    return Files(
        read=outcome.files_read,
        modified=outcome.files_modified,
        created=outcome.files_created,
        deleted=outcome.files_deleted,
    )


def _without_summary(switch: Switch) -> None:
    with transaction.atomic():
        switch_plainly(switch)
        ended = lifecycle.finish(
            switch.run,
            CompactionRun.Status.SKIPPED,
            code=RunCode.NOTHING_TO_DO,
            sentence=NOTHING_TO_SAY,
        )
        if not ended:
            raise LostRaceError("The run was cancelled or taken over; nothing was switched.")


def _look_at(run: CompactionRun, new: Branch) -> None:
    """Look at the branch that is active now: the sweep leaves the others alone."""
    session = Session.objects.select_related("active_branch").get(pk=run.session_id)
    event(
        "branch_switched",
        session=session,
        branch=new,
        run=run,
        reason=run.reason,
        left=run.branch_id,
    )
    notify(check_branch, session, new)
