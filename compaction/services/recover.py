"""Recovering from a refused request: one full compaction that keeps the question, one retry."""

from __future__ import annotations

from time import monotonic, sleep

from chatapp.connections import release_connection
from chatapp.context import Emit, Recovery
from chatapp.llm.errors import ModelError
from chatapp.models import Branch, Session
from compaction.conf import compaction_settings
from compaction.models import CompactionRun
from compaction.services.compact import compact_branch
from compaction.services.describe import run_summary
from compaction.services.leases import state_of
from compaction.services.situation import Situation, situation_of

MAX_RETRIES = 1
POLL_SECONDS = 0.5


def recover_overflow(session: Session, error: ModelError, attempt: int, *, emit: Emit) -> Recovery:
    """Return a smaller context after an overflow, or a sentence that says what to do.

    Document 002, 1.4: keep nothing but the unanswered question, then try once. A compaction that
    did not get smaller is not retried: the same request is never sent twice.
    """
    before = situation_of(session)
    if not (before.profile.enabled and before.profile.retry_on_context_overflow):
        return Recovery(error=_sentence(error, "Compaction after an overflow is switched off."))
    if attempt > MAX_RETRIES:
        return Recovery(error=_sentence(error, "It was still too large after a compaction."))
    emit("compaction", {"phase": "started", "reason": "overflow_retry"})
    run = _compact_fully(session, before.branch)
    if run.error_code == "busy" and _wait_for_holder(before):
        if state_of(before.branch).cursor != before.state.cursor:
            # The other run has made the request smaller: that is worth a try.
            return Recovery(context=situation_of(session).context())
        run = _compact_fully(session, before.branch)
    emit("compaction", {"phase": "finished", **run_summary(run)})
    if run.status != CompactionRun.Status.SUCCEEDED:
        return Recovery(error=_sentence(error, run.error))
    return Recovery(context=situation_of(session).context(run_id=str(run.pk)))


def _compact_fully(session: Session, branch: Branch) -> CompactionRun:
    return compact_branch(
        session=session,
        branch=branch,
        trigger=CompactionRun.Trigger.OVERFLOW_RETRY,
        reason="overflow_retry",
        keep_last_n=0,
    )


def _wait_for_holder(before: Situation) -> bool:
    """Wait until nobody works on the branch; return whether that came within the user's time."""
    end = monotonic() + compaction_settings.inline_seconds
    while state_of(before.branch).is_consolidating:
        if monotonic() > end:
            return False
        release_connection()
        sleep(POLL_SECONDS)
    return True


def _sentence(error: ModelError, why: str) -> str:
    return (
        f"{error.sentence} {why} Shorten the message or its attachments, compact the session by "
        "hand, or use a model with a larger window."
    )
