"""The life of a memory run: asked for, claimed by one worker, ended, found again when lost.

What waits is announced by `memory_run_waiting`; who has a queue listens, and has a worker call
`execute_memory_run`. Every step is a conditional UPDATE, so any number of processes may try.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from chatapp.database import database_now
from chatapp.llm.registry import UnknownModelError
from chatapp.models import Session
from compaction.conf import compaction_settings
from compaction.engine.memories import bot_of
from compaction.engine.parameters import Profile
from compaction.engine.policy.reasons import RunCode
from compaction.errors import CompactionError
from compaction.events import event
from compaction.models import CompactionRun, Memory, MemoryRun, MemoryVersion, SessionSummary
from compaction.profiles import find_profile, parameters_of
from compaction.signals import memory_run_waiting
from compaction.summaries.summarising_models import summarising_models

Kind, Status = MemoryRun.Kind, MemoryRun.Status
# A claim outlives the time that its work may take: who is silent for longer is dead.
CLAIM_SLACK_SECONDS = 60
LONGEST_BACKOFF_SECONDS = 3_600
MOST_DOUBLINGS = 12
# What was given to the queue so long ago is given to it again.
REDELIVERED_AFTER = timedelta(minutes=10)
SWEEP_BATCH = 100
# The code of a run whose profile has no model that writes.

"""Sent with `run_id` in the transaction that has a run wait for a worker."""


def parameters_in_force() -> Profile:
    """Return the parameters by which memories are kept: the default profile's.

    They belong to an owner and to no session, so no session's profile decides.
    """
    return parameters_of(find_profile())


def can_write(session: Session, profile: Profile) -> bool:
    """Whether a profile has a model that writes: choosing sentences makes no memories."""
    if profile.summariser == "extractive":
        return False
    try:
        return not summarising_models(session, profile)[0].is_embedded
    except UnknownModelError:
        return False


# --- asking ---------------------------------------------------------------------------------------


def request_if_too_many(owner_id: Any, bot: str) -> MemoryRun | None:
    """Have an owner's lines rewritten where there are more than memories_max_lines.

    After failures it waits. After a rewriting that was taken back nothing is rewritten before
    somebody asks for it.
    """
    profile = parameters_in_force()
    if Memory.objects.in_force(owner_id, [bot]).count() <= profile.memories_max_lines:
        return None
    if not can_write(Session(owner_id=owner_id), profile) or _was_taken_back(owner_id, bot):
        return None
    return _request(owner_id=owner_id, bot=bot, waits_until=_backoff_until(owner_id, bot))


def request_compression(
    *, owner: Any, bot: str = "", requested_by: Any = None, is_waited_for: bool = False
) -> MemoryRun:
    """Have an owner's lines for a bot rewritten; return the run, which may be one under way.

    An automatic one that waits becomes theirs who ask, and waits for nothing any more. With
    `is_waited_for` no worker of the queue is told: the caller does the work.
    """
    run = _request(
        owner_id=owner.pk, bot=bot, requested_by=requested_by, is_announced=not is_waited_for
    )
    if requested_by is not None:
        _hasten(run, requested_by=requested_by, is_announced=not is_waited_for)
    return run


def _hasten(run: MemoryRun, *, requested_by: Any, is_announced: bool) -> None:
    """Have a run that was queued without anybody's asking, or that waits, begin at once."""
    waits = Q(requested_by__isnull=True) | Q(waits_until__isnull=False)
    told = {"requested_by": requested_by, "waits_until": None, "error_code": "", "error": ""}
    with transaction.atomic():
        queued = MemoryRun.objects.filter(waits, pk=run.pk, status=Status.QUEUED)
        if queued.update(queued_at=database_now(), **told) and is_announced:
            memory_run_waiting.send(sender=MemoryRun, run_id=run.pk)
    run.refresh_from_db()


def request_extraction(run: CompactionRun) -> MemoryRun | None:
    """Have lines proposed from what a run has summarised, where its profile asks for that."""
    is_new = run.status == CompactionRun.Status.SUCCEEDED and run.replaces_id is None
    if not is_new or run.trigger == CompactionRun.Trigger.BRANCH or run.profile is None:
        return None
    profile = parameters_of(run.profile)
    if not (profile.extract_memories and can_write(run.session, profile)):
        return None
    summary = SessionSummary.objects.filter(run=run).only("pk").order_by("-created_at").first()
    if summary is None:
        return None
    return _request(
        kind=Kind.EXTRACT,
        owner_id=run.session.owner_id,
        bot=bot_of(run.session.metadata),
        session_id=run.session_id,
        summary=summary,
    )


def run_again(run: MemoryRun, *, requested_by: Any) -> MemoryRun:
    """Have the work of a run that ended be done again; raise CompactionError for one under way."""
    if run.kind == Kind.COMPRESS:
        if run.status in MemoryRun.UNDER_WAY:
            raise CompactionError("The run waits or works; there is nothing to be done again.")
        return request_compression(owner=run.owner, bot=run.bot, requested_by=requested_by)
    with transaction.atomic():
        ended = MemoryRun.objects.filter(pk=run.pk).exclude(status__in=MemoryRun.UNDER_WAY)
        queued = {"status": Status.QUEUED, "queued_at": database_now(), "finished_at": None}
        if not ended.update(attempts=0, requested_by=requested_by, **queued):
            raise CompactionError("The run waits or works; there is nothing to be done again.")
        memory_run_waiting.send(sender=MemoryRun, run_id=run.pk)
    run.refresh_from_db()
    return run


def _request(
    *, is_announced: bool = True, waits_until: datetime | None = None, **columns: Any
) -> MemoryRun:
    """Store a run; return the one that is there where the same work waits or is done already."""
    columns = {"kind": Kind.COMPRESS} | columns
    now = database_now()
    try:
        with transaction.atomic():
            run = MemoryRun.objects.create(
                created_at=now, queued_at=now, waits_until=waits_until, **columns
            )
            if is_announced and waits_until is None:
                memory_run_waiting.send(sender=MemoryRun, run_id=run.pk)
    except IntegrityError:
        return _under_way(columns)
    event("memory_run_requested", run=run, owner=run.owner_id, kind=str(run.kind))
    return run


def _under_way(columns: dict[str, Any]) -> MemoryRun:
    same = MemoryRun.objects.filter(kind=columns["kind"])
    if columns["kind"] == Kind.EXTRACT:
        return same.get(summary=columns["summary"])
    own = same.filter(owner_id=columns["owner_id"], bot=columns["bot"])
    return own.filter(status__in=MemoryRun.UNDER_WAY).first() or own.latest("created_at")


def _was_taken_back(owner_id: Any, bot: str) -> bool:
    versions = MemoryVersion.objects.filter(owner_id=owner_id, bot=bot).order_by("-created_at")
    last = versions.values_list("undone_at", flat=True).first()
    return last is not None


def _backoff_until(owner_id: Any, bot: str) -> datetime | None:
    """Return until when automatic runs wait after failures in a row; None where they may go on."""
    ended = MemoryRun.objects.filter(owner_id=owner_id, bot=bot, kind=Kind.COMPRESS)
    ended = ended.filter(status__in=[Status.SUCCEEDED, Status.FAILED]).order_by("-created_at")
    failures, last = 0, None
    for status, finished_at in ended.values_list("status", "finished_at")[:MOST_DOUBLINGS]:
        if status == Status.SUCCEEDED:
            break
        failures, last = failures + 1, last or finished_at
    if not failures or last is None:
        return None
    seconds = compaction_settings.backoff_seconds * 2 ** (failures - 1)
    until: datetime = last + timedelta(seconds=min(LONGEST_BACKOFF_SECONDS, seconds))
    return until if until > database_now() else None


# --- working --------------------------------------------------------------------------------------


def claim(run_id: uuid.UUID, *, seconds: float) -> MemoryRun | None:
    """Take a run that waits, or whose worker fell silent; None where another one has it."""
    worker = uuid.uuid4()
    is_free = Q(status=Status.QUEUED) | Q(status=Status.RUNNING, lease_expires_at__lt=Now())
    taken = MemoryRun.objects.filter(is_free, pk=run_id).update(
        status=Status.RUNNING,
        worker=worker,
        lease_expires_at=Now() + timedelta(seconds=seconds + CLAIM_SLACK_SECONDS),
        attempts=F("attempts") + 1,
        started_at=Now(),
        waits_until=None,
        error_code="",
        error="",
    )
    if not taken:
        return None
    runs = MemoryRun.objects.select_related("owner", "session", "summary", "requested_by")
    return runs.filter(pk=run_id, worker=worker).first()


def held(run: MemoryRun) -> QuerySet[MemoryRun]:
    """Return the query of a run while its worker has it; an UPDATE of it is a compare-and-set."""
    return MemoryRun.objects.filter(pk=run.pk, status=Status.RUNNING, worker=run.worker)


def finish(
    run: MemoryRun, status: MemoryRun.Status, *, code: str = "", sentence: str = "", **columns: Any
) -> bool:
    """End a run; return whether it was still its worker's."""
    told = {"error_code": code, "error": sentence} | columns
    ended = held(run).update(
        status=status, worker=None, lease_expires_at=None, finished_at=database_now(), **told
    )
    if ended:
        run.refresh_from_db()
        event("memory_run_ended", run=run, owner=run.owner_id, status=str(status), code=code)
    return bool(ended)


def put_back(run: MemoryRun, *, until: datetime | None, code: str, sentence: str) -> None:
    """Have a run wait: for a moment, or for the next worker."""
    freed = {"status": Status.QUEUED, "worker": None, "lease_expires_at": None}
    told = {"error_code": code, "error": sentence, "waits_until": until}
    with transaction.atomic():
        # Whoever was to stop, or may call no model, has not tried.
        back = held(run).update(
            queued_at=database_now(), attempts=F("attempts") - 1, **freed, **told
        )
        if back and until is None:
            memory_run_waiting.send(sender=MemoryRun, run_id=run.pk)
    if back:
        run.refresh_from_db()


# --- what the sweep does --------------------------------------------------------------------------


def deliver_lost() -> int:
    """Announce again what a dead worker left, what waited until now, and what the queue lost.

    Return how many. A run whose workers died too often ends as failed.
    """
    now = database_now()
    freed = {"status": Status.QUEUED, "worker": None, "lease_expires_at": None}
    dead = MemoryRun.objects.filter(status=Status.RUNNING, lease_expires_at__lt=now)
    dead.filter(attempts__gte=compaction_settings.max_run_attempts).update(
        **freed | {"status": Status.FAILED},
        error_code=RunCode.INTERRUPTED,
        error="Its workers died in the middle of it; nothing was changed.",
        finished_at=now,
    )
    queued = MemoryRun.objects.filter(status=Status.QUEUED)
    over = queued.filter(waits_until__lte=now)
    lost = queued.filter(waits_until__isnull=True, queued_at__lt=now - REDELIVERED_AFTER)
    return _announce(dead, freed) + _announce(over, {"waits_until": None}) + _announce(lost, {})


def _announce(found: QuerySet[MemoryRun], columns: dict[str, Any]) -> int:
    """Announce some of the runs, each once: of two sweeps one does it."""
    announced = 0
    for run_id in list(found.order_by("queued_at").values_list("pk", flat=True)[:SWEEP_BATCH]):
        with transaction.atomic():
            if found.filter(pk=run_id).update(queued_at=database_now(), **columns):
                memory_run_waiting.send(sender=MemoryRun, run_id=run_id)
                announced += 1
    return announced


def waiting_memory_runs() -> int:
    """Return how many runs wait for nothing but a worker."""
    ready = Q(waits_until__isnull=True) | Q(waits_until__lte=database_now())
    return MemoryRun.objects.filter(ready, status=Status.QUEUED).count()
