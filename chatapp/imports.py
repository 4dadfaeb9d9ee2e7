"""Imports: accepted at the door, done at once or by a worker, cancelled, found again when lost.

What a request may not do at once waits in the database and is announced by `import_waiting`; an app
that has a queue listens, and has a worker call `continue_import`. Where nobody listens everything
is done at once.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import Error, transaction
from django.db.models import F, Q
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from chatapp.conf import chatapp_settings
from chatapp.database import database_now
from chatapp.extensions import registered
from chatapp.formats import ProblemList, TooMuchInFileError, UnknownFormatError
from chatapp.formats.first_sight import is_large, refuse_at_sight
from chatapp.formatting import plural
from chatapp.import_jobs import (
    MAX_NAME_CHARS,
    ImportJob,
    ImportPiece,
    content_of,
    import_waiting,
    keep_content,
    lost_jobs,
)
from chatapp.import_work import (
    ImportEndedError,
    ImportFailedError,
    ImportWork,
    how_far,
    keeping_lease,
    lease_end,
    limits_of_files,
)
from chatapp.spooled_files import SpooledFile
from chatapp.transfer import Imported

Status = ImportJob.Status
# A worker puts a job back after this long: others wait, too, and the queue kills what takes long.
SLICE_SECONDS = 120
MAX_ATTEMPTS = 3
# What was given to the queue so long ago is given to it again.
REDELIVERED_AFTER = timedelta(minutes=10)
# Rows of imports that ended so long ago are removed.
FORGOTTEN_AFTER = timedelta(days=30)
SWEEP_BATCH = 100
# Lines, brackets and colons of a file that a request reads itself: a second or two.
MOST_PIECES_AT_ONCE = 100_000

logger = logging.getLogger(__name__)


class TooManyImportsError(Exception):
    """The owner has as many imports under way as one owner may; `retry_after` are seconds."""

    retry_after = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What became of a file at the door.

    `is_waiting` says that a worker will do it. Else it is done: `imported` is what its
    conversations became, `problems` what was left out.
    """

    job: ImportJob
    is_waiting: bool
    imported: Sequence[Imported] = ()
    problems: ProblemList = field(default_factory=ProblemList)


def accept_file(
    *,
    owner: Any,
    content: bytes | SpooledFile,
    name: str = "",
    in_background: bool = False,
    is_abandoned: Callable[[], bool] = lambda: False,
) -> Accepted:
    """Import a file at once if it is small, or leave it to a worker; `in_background` asks for that.

    Raises TooManyImportsError, TooMuchInFileError, UnknownFormatError and ImportFailedError, and
    ImportEndedError where it was cancelled, or `is_abandoned` between two batches: what was stored
    until then stays.
    """
    content = SpooledFile.of(content)
    refuse_at_sight(content, limits_of_files())
    job = _open(owner=owner, size=content.size, name=name)
    has_workers = import_waiting.has_listeners(ImportJob)
    work = ImportWork(
        job,
        seconds=chatapp_settings.import_seconds,
        most=chatapp_settings.import_at_once_conversations if has_workers else None,
        keeps_results=True,
        is_abandoned=is_abandoned,
    )
    waits = has_workers and (in_background or _is_much(content))
    try:
        with keeping_lease(job):
            is_done = not waits and work.go_on(content)
            if not is_done and not has_workers:
                work.fail(_too_slow(job, chatapp_settings.import_seconds))
            if not is_done:
                _leave_to_worker(work, job, content)
    except (ImportEndedError, ImportFailedError, TooMuchInFileError, UnknownFormatError):
        raise
    except Exception:
        with suppress(Error, ImportEndedError, ImportFailedError):
            work.fail(_broken_off(job))
        raise
    job.refresh_from_db()
    return Accepted(job=job, is_waiting=not is_done, imported=work.imported, problems=work.problems)


def _is_much(content: SpooledFile) -> bool:
    return is_large(content, size=chatapp_settings.import_at_once_bytes, pieces=MOST_PIECES_AT_ONCE)


def _open(*, owner: Any, size: int, name: str) -> ImportJob:
    """Store a job that is worked at; raise TooManyImportsError where the owner has enough.

    The row is there before it is counted: of two that come at once both may be refused, but never
    are there too many.
    """
    job = ImportJob.objects.create(
        owner=owner,
        name=name[:MAX_NAME_CHARS],
        size=size,
        status=Status.WORKING,
        worker=uuid.uuid4(),
        lease_expires_at=lease_end(),
        started_at=timezone.now(),
    )
    limit = chatapp_settings.imports_per_owner
    # What a dead process left behind is under way no more, whether a sweep found it yet or not.
    is_alive = Q(status=Status.QUEUED) | Q(status=Status.WORKING, lease_expires_at__gte=Now())
    if ImportJob.objects.filter(is_alive, owner=owner).count() > limit:
        job.delete()
        raise TooManyImportsError(
            f"{limit} imports of yours are waiting or under way, which is as many as may be at "
            "once. Wait for one of them to end, or cancel one, then send this again."
        )
    return job


def _leave_to_worker(work: ImportWork, job: ImportJob, content: SpooledFile) -> None:
    with transaction.atomic():
        keep_content(job, content)
        work.pause()
        import_waiting.send(sender=ImportJob, job=job)


def _too_slow(job: ImportJob, seconds: int) -> ImportFailedError:
    return ImportFailedError(
        f"The import took longer than the {plural(seconds, 'second')} that it may. {how_far(job)} "
        "Send the file again: what is missing is added.",
        code="import_too_slow",
    )


def _broken_off(job: ImportJob) -> ImportFailedError:
    return ImportFailedError(
        f"The server failed, and its log says why. {how_far(job)} Send the file again: what is "
        "missing is added.",
        code="interrupted",
    )


def continue_import(job_id: UUID, *, is_stopping: Callable[[], bool] = lambda: False) -> str:
    """Work at a waiting import for a while; return its status, "gone" where it is not to be had.

    What is not done by then, or when the worker `is_stopping`, waits for the next one.
    """
    job = _claim(job_id)
    if job is None:
        return "gone"
    left = chatapp_settings.import_background_seconds - job.seconds
    work = ImportWork(job, seconds=min(SLICE_SECONDS, left), is_stopping=is_stopping)
    with suppress(ImportFailedError, TooMuchInFileError, UnknownFormatError):  # the row says it
        try:
            with keeping_lease(job):
                _take_a_turn(work, job, is_last=left <= SLICE_SECONDS, is_stopping=is_stopping)
        except ImportEndedError:
            return "gone"
    return str(ImportJob.objects.values_list("status", flat=True).get(pk=job_id))


def _take_a_turn(
    work: ImportWork, job: ImportJob, *, is_last: bool, is_stopping: Callable[[], bool]
) -> None:
    content = content_of(job)
    if not content.size or job.attempts > MAX_ATTEMPTS:
        # It was a request's own work, or nobody who took it came any further.
        work.fail(_broken_off(job))
    if work.go_on(content):
        return
    if is_last and not is_stopping():
        work.fail(_too_slow(job, chatapp_settings.import_background_seconds))
    with transaction.atomic():
        work.pause()
        import_waiting.send(sender=ImportJob, job=job)


def _claim(job_id: UUID) -> ImportJob | None:
    """Take a job that waits, or whose worker fell silent; None where another one has it."""
    worker = uuid.uuid4()
    is_free = Q(status=Status.QUEUED) | Q(status=Status.WORKING, lease_expires_at__lt=Now())
    taken = ImportJob.objects.filter(is_free, pk=job_id).update(
        status=Status.WORKING,
        worker=worker,
        lease_expires_at=lease_end(),
        attempts=F("attempts") + 1,
        started_at=Coalesce("started_at", Now()),
    )
    if not taken:
        return None
    return ImportJob.objects.select_related("owner").filter(pk=job_id, worker=worker).first()


def cancel_import(job: ImportJob) -> bool:
    """End an import that waits or is worked at; what is stored stays. Return whether it was one.

    Whoever works at it stores nothing more: its next note finds the row gone from its hands.
    """
    with transaction.atomic():
        cancelled = ImportJob.objects.filter(pk=job.pk, status__in=ImportJob.UNDER_WAY).update(
            status=Status.CANCELLED,
            error_code="cancelled",
            error="It was cancelled; what is stored stays.",
            worker=None,
            lease_expires_at=None,
            finished_at=timezone.now(),
        )
        ImportPiece.objects.filter(job=job.pk).delete()
    job.refresh_from_db()
    return bool(cancelled)


# --- what the sweep does --------------------------------------------------------------------------


def deliver_lost() -> int:
    """Announce again what a dead worker left, and what the queue may have lost; return how many."""
    ids = list(lost_jobs().values_list("pk", flat=True)[:SWEEP_BATCH])
    found = lost_jobs()
    freed = {"status": Status.QUEUED, "worker": None, "lease_expires_at": None}
    delivered = sum(_announce(pk, found, freed) for pk in ids)
    old = ImportJob.objects.filter(
        status=Status.QUEUED, queued_at__lt=database_now() - REDELIVERED_AFTER
    )
    ids = list(old.order_by("queued_at").values_list("pk", flat=True)[:SWEEP_BATCH])
    return delivered + sum(_announce(pk, old, {}) for pk in ids)


def _announce(job_id: UUID, found: Any, columns: dict[str, Any]) -> int:
    """Announce one job, if it is still what was looked for: of two sweeps one does it."""
    with transaction.atomic():
        changed = found.filter(pk=job_id).update(queued_at=database_now(), **columns)
        if not changed:
            return 0
        import_waiting.send(sender=ImportJob, job=ImportJob(pk=job_id))
    return 1


def forget_old() -> int:
    """Remove the rows of imports that ended long ago; return how many. Their sessions stay."""
    old = ImportJob.objects.filter(finished_at__lt=database_now() - FORGOTTEN_AFTER)
    ids = list(old.values_list("pk", flat=True)[:SWEEP_BATCH])
    ImportJob.objects.filter(pk__in=ids).delete()
    return len(ids)


def why_it_waits() -> str:
    """Return what an import that is queued waits for, in a sentence for its owner."""
    looks = [each.readiness["queue"] for each in registered() if "queue" in each.readiness]
    troubles = [found.text for found in (look() for look in looks) if not found.ok]
    return " ".join(["It waits for a worker of the queue.", *troubles])


def waiting_imports() -> int:
    """Return how many imports wait for a worker."""
    return ImportJob.objects.filter(status=Status.QUEUED).count()
