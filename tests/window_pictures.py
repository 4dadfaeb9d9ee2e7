"""A session of a sliding window for the pictures: a fallback digest, a draft, and a run that waits.

No server is needed: sentences are chosen. What a failing server would have left is written here.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

PROFILE = "pictures-window"
MESSAGES = 300


def store_window(user: Any) -> Any:
    """Store the session with all that its pages show, and return it."""
    from chatapp import transcript
    from chatapp.transcript.writing import NewMessage
    from compaction.profiles import save_profile
    from compaction.runs.scheduling import assign_profile

    parameters = {"summariser": "extractive", "publish_when_needed": True}
    save_profile(name=PROFILE, base="sliding_window", parameters=parameters)
    session = transcript.create_session(owner=user, title="A long walk, sliding window")
    assign_profile(session, PROFILE)
    transcript.append(session.branch, [NewMessage(wire=wire) for wire in _talk(MESSAGES)])
    for reason in ("archive", "message_window", "ahead"):
        _compact(session, reason)
    _wait(session)
    _workers(session)
    return session


def _talk(count: int) -> list[dict[str, Any]]:
    hut = "The hut at 2,340 m opens at 7:00; the path by the lake is closed after rain. "
    return [
        {
            "role": "assistant" if number % 2 else "user",
            "content": f"Stage {number // 2 + 1}: " + hut * 4,
        }
        for number in range(count)
    ]


def _compact(session: Any, reason: str) -> None:
    from compaction.models import CompactionRun
    from compaction.runs.worker import compact_branch

    # The one before has queued the next batch already: this run stands in its place.
    CompactionRun.objects.filter(session=session, status="queued").delete()
    run = compact_branch(session=session, trigger="proactive", reason=reason)
    assert run.status == "succeeded", run.error


def _wait(session: Any) -> None:
    """Leave what an open breaker leaves: a run that waits, and a branch to be looked at again."""
    from django.utils import timezone

    from compaction.models import CompactionRun, CompactionState, ModelBreaker

    now = timezone.now()
    until = now + timedelta(minutes=12)
    ModelBreaker.objects.create(
        model="summaries", failures=5, opened_at=now, retry_at=until, last_error="503: overloaded"
    )
    # After a batch the next one is queued, as others wait behind it.
    CompactionRun.objects.filter(session=session, status="queued").update(
        waits_until=until,
        error_code="breaker_open",
        error="Model summaries has failed 5 times in a row (503: overloaded); it is left alone "
        "until its breaker lets one call try again.",
    )
    CompactionState.objects.filter(branch=session.active_branch_id).update(next_check_at=until)


def _workers(session: Any) -> None:
    from django.utils import timezone

    from compaction.models import CompactionRun, WorkerHeartbeat

    run = CompactionRun.objects.filter(session=session).order_by("created_at").first()
    now = timezone.now()
    for pid, silent, held in ((11, 2, None), (12, 900, run), (13, 3600, None)):
        beat_at = now - timedelta(seconds=silent)
        WorkerHeartbeat.objects.create(
            id=uuid.uuid4(), kind="queue", host="worker-one", pid=pid, run=held, beat_at=beat_at
        )
