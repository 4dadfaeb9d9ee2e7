"""Things that need a look, for the pictures and the accessibility run: one of most kinds.

They are stored as rows, because the demo's sessions are sound: nothing of it needs a look.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.utils import timezone

from chatapp.models import AnswerRequest, Incident, Message, Session
from compaction.models import CompactionRun, CompactionState, ModelBreaker
from compaction.profiles import find_profile


def store_things(session: Session) -> None:
    """Store an answer with messages left out, an overflow, a failed run, a stale lease, a model."""
    now = timezone.now()
    others = list(Session.objects.exclude(pk=session.pk).order_by("created_at")[:2])
    left_out(session, now - timedelta(minutes=12))
    overflow(others[0] if others else session, now)
    failed(others[-1] if others else session, now)
    expired = now - timedelta(minutes=40)
    CompactionState.objects.filter(branch=session.active_branch).update(
        lease_owner=uuid4(), lease_expires_at=expired
    )
    ModelBreaker.objects.update_or_create(
        model="summaries",
        defaults={"failing_since": now - timedelta(minutes=30), "failing_code": "summariser_error"},
    )


def left_out(session: Session, at: Any) -> AnswerRequest:
    """Store that the newest answer was given with messages left out."""
    answer = Message.objects.filter(session=session, role="assistant").latest("position")
    return AnswerRequest.objects.create(
        session=session, message=answer, digest="", left_out=12, left_out_branch=answer.branch_id,
        created_at=at,
    )  # fmt: skip


def overflow(session: Session, at: Any) -> Incident:
    """Store that a turn ended without an answer, because its request was too large."""
    return Incident.objects.create(
        session=session, branch=session.branch, kind="error", code="context_overflow",
        text="The request is larger than the window.", created_at=at,
    )  # fmt: skip


def failed(session: Session, at: Any) -> CompactionRun:
    """Store that a compaction failed."""
    return CompactionRun.objects.create(
        session=session, branch=session.branch, profile=find_profile(), status="failed",
        trigger="proactive", reason="window", mode="background", error_code="bad_answer",
        error="The model answered with an empty text.", created_at=at, started_at=at,
        finished_at=at,
    )  # fmt: skip
