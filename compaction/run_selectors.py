"""Reads of runs that several places need: who may start one, and whose it is while it runs."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Q, QuerySet
from django.db.models.functions import Coalesce

from compaction.models import CompactionRun

# Since when a ready run waits for a worker: what waited for a model, since that wait was over.
QUEUED_SINCE = Coalesce("waits_until", "created_at")


def ready_q(now: datetime) -> Q:
    """Return the condition for runs that wait for nothing but a worker."""
    return Q(waits_until__isnull=True) | Q(waits_until__lte=now)


def running_row(run: CompactionRun) -> QuerySet[CompactionRun]:
    """Return the query of the run while it runs in the hands of the worker that it names.

    An UPDATE of it is the compare-and-set of rule 3: no row where it ended or changed hands.
    """
    return CompactionRun.objects.filter(
        pk=run.pk, status=CompactionRun.Status.RUNNING, worker=run.worker
    )
