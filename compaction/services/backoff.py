"""Holding a branch's automatic runs off: after failures, after a cancel, past a budget."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import F, Q
from django.utils import timezone

from compaction.conf import compaction_settings
from compaction.events import event
from compaction.models import CompactionRun, CompactionState

LONGEST_BACKOFF_SECONDS = 3600


def note_failure(run: CompactionRun) -> None:
    """Make automatic runs of the branch wait, twice as long after every failed automatic run.

    What somebody tried by hand, perhaps with another profile, says nothing about the next trigger.
    """
    if run.trigger not in (CompactionRun.Trigger.PROACTIVE, CompactionRun.Trigger.OVERFLOW_RETRY):
        return
    states = CompactionState.objects.filter(pk=run.branch_id)
    states.update(failures=F("failures") + 1)
    failures = states.values_list("failures", flat=True).first() or 1
    seconds = min(
        LONGEST_BACKOFF_SECONDS, compaction_settings.backoff_seconds * 2 ** min(failures - 1, 12)
    )
    hold_off(run, timezone.now() + timedelta(seconds=seconds), failures=failures)


def hold_off(run: CompactionRun, until: datetime, *, failures: int | None = None) -> None:
    """Make automatic runs of the branch wait; the sweep looks again then, if nobody else does.

    A longer pause is not made shorter.
    """
    shorter = Q(backoff_until__isnull=True) | Q(backoff_until__lt=until)
    if CompactionState.objects.filter(shorter, pk=run.branch_id).update(
        backoff_until=until, look_again_at=until
    ):
        event(
            "held_off",
            session=run.session_id,
            branch=run.branch_id,
            run=run,
            reason=run.reason,
            code=run.error_code,
            seconds=(until - timezone.now()).total_seconds(),
            failures=failures,
        )
