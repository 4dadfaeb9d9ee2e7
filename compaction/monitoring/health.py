"""What compaction needs to be ready: the queue's broker, and a cluster that works."""

from __future__ import annotations

import logging
from datetime import timedelta

from chatapp.database import database_now
from chatapp.extensions import ReadinessPart
from compaction.models import WorkerHeartbeat
from compaction.runs import queue as task_queue

logger = logging.getLogger(__name__)
# A cluster beats at least with each sweep: three missed beats are no chance.
ALIVE_SECONDS = 3 * 60 * task_queue.SWEEP_MINUTES


def broker() -> ReadinessPart:
    """Look whether tasks could be put into the queue."""
    try:
        task_queue.ping()
    except Exception:
        logger.exception("The queue's broker does not answer")
        return ReadinessPart(
            ok=False,
            text="The queue's broker does not answer: background work waits until the sweep "
            "delivers it. Start it, or correct REDIS_URL; the server's log has the error.",
        )
    return ReadinessPart(ok=True, text="The queue's broker answers.")


def queue() -> ReadinessPart:
    """Look whether a queue cluster gave a sign of life lately."""
    beats = WorkerHeartbeat.objects.filter(kind=WorkerHeartbeat.Kind.QUEUE)
    newest = beats.order_by("-beat_at").values_list("beat_at", flat=True).first()
    if newest is None:
        return ReadinessPart(
            ok=False,
            text="No queue cluster has given a sign of life yet: nothing is compacted in the "
            "background. Start `manage.py qcluster`.",
        )
    # The clocks of two machines differ a little.
    age = max(database_now() - newest, timedelta())
    if age >= timedelta(seconds=ALIVE_SECONDS):
        return ReadinessPart(
            ok=False,
            text=f"The last sign of life of a queue cluster is {age // timedelta(seconds=1):,} "
            "seconds old: nothing is compacted in the background. Start `manage.py qcluster`, or "
            "look into its log.",
        )
    return ReadinessPart(
        ok=True,
        text=f"A queue cluster gave a sign of life {age // timedelta(seconds=1)} seconds ago.",
    )
