"""What the tests of recoveries and timelines share: steps without the turn that climbs them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from chatapp.models import Session
from compaction.models import CompactionRun, RecoveryStep
from compaction.profiles import find_profile

# Long past, so that a row of this moment never comes after one of now.
START = datetime(2024, 2, 28, 12, 0, 0, tzinfo=UTC)


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def run_of(session: Session, second: float = 0, **columns) -> CompactionRun:
    words = {
        "status": "succeeded", "trigger": "proactive", "reason": "window", "mode": "inline",
        "tokens_before": 9000, "tokens_after": 4000, "model_calls": 2,
    }  # fmt: skip
    return CompactionRun.objects.create(
        session=session, branch=session.branch, profile=find_profile(), created_at=at(second),
        **(words | columns),
    )  # fmt: skip


def recovery_step_of(session: Session, second: float = 0, **columns) -> RecoveryStep:
    words = {
        "recovery": uuid4(), "order": 0, "action": "halve", "outcome": "smaller",
        "error_kind": "context_overflow", "error": "too large", "tokens_before": 9000,
        "tokens_after": 4000,
    }  # fmt: skip
    return RecoveryStep.objects.create(
        session=session, branch=session.branch, created_at=at(second), **(words | columns)
    )


def recovery_of(session: Session, *recovery_steps: dict, second: float = 0) -> UUID:
    """Store the steps of one turn, one a second."""
    recovery = uuid4()
    for order, columns in enumerate(recovery_steps):
        recovery_step_of(session, second + order, recovery=recovery, order=order, **columns)
    return recovery
