"""One process's work at an import: batch by batch, each noted in the transaction that stores it.

Whoever works holds the job's lease. A batch whose note finds the lease gone is taken back: the job
was cancelled, or another process has it now and goes on behind what is noted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from chatapp.conf import chatapp_settings
from chatapp.database import beating, database_now
from chatapp.formats import FileLimits, ParsedFile, ProblemList, TooMuchInFileError, parse
from chatapp.formats.records import Conversation, Problem, UnknownFormatError
from chatapp.formatting import plural
from chatapp.import_batches import batches
from chatapp.import_jobs import ImportedSession, ImportJob, ImportPiece
from chatapp.messages.wire import InvalidMessageError
from chatapp.spooled_files import SpooledFile
from chatapp.transcript.writing import TranscriptError
from chatapp.transfer import Imported, Results, import_batch, nothing_stored, problems_of

Status = ImportJob.Status
LEASE_SECONDS = 60
BEAT_SECONDS = 15
# Brackets and colons of a file: it is searched for some seconds then.
MOST_MARKS = 4_000_000


class ImportEndedError(Exception):
    """The import was cancelled, or another process has it now; nothing more may be stored."""


class ImportFailedError(Exception):
    """The import came to its end without success; `code` is for programs."""

    def __init__(self, sentence: str, *, code: str) -> None:
        super().__init__(sentence)
        self.code = code


def limits_of_files() -> FileLimits:
    """Return how much a file that comes by request may hold."""
    return FileLimits(
        lines=chatapp_settings.max_import_lines,
        conversations=chatapp_settings.max_import_conversations,
        marks=MOST_MARKS,
    )


def lease_end() -> Any:
    """Return when a lease that is taken now expires, by the database's clock."""
    return Now() + timedelta(seconds=LEASE_SECONDS)


def held_by(job: ImportJob) -> QuerySet[ImportJob]:
    """Return the job's row, if it is still worked at under the lease that `job` was read with."""
    return ImportJob.objects.filter(pk=job.pk, worker=job.worker, status=Status.WORKING)


def how_far(job: ImportJob) -> str:
    """Return the sentence that says what of a job is stored."""
    if job.conversations_total is None:
        return "Nothing was stored."
    return (
        f"{job.conversations_done:,} of {plural(job.conversations_total, 'conversation')} were "
        "taken in; what is stored stays."
    )


class ImportWork:
    """The work at one job until all is stored, the time is over, or somebody wants it to end.

    `most` are as many conversations as may be stored now; a file that holds more is left as it is.
    """

    def __init__(
        self,
        job: ImportJob,
        *,
        seconds: float,
        most: int | None = None,
        keeps_results: bool = False,
        is_stopping: Callable[[], bool] = lambda: False,
        is_abandoned: Callable[[], bool] = lambda: False,
    ) -> None:
        self._job = job
        self._begun = time.monotonic()
        self._seconds = seconds
        self._most = most
        self._keeps_results = keeps_results
        self._is_stopping = is_stopping
        self._is_abandoned = is_abandoned
        self.imported: list[Imported] = []
        self.problems = ProblemList()

    def go_on(self, content: SpooledFile) -> bool:
        """Store what is not stored yet; return whether that is all now.

        What cannot be imported ends the job and is raised: UnknownFormatError, TooMuchInFileError,
        ImportFailedError. Raises ImportEndedError where the job is this process's no more.
        """
        try:
            left = self._begin(parse(content, name=self._job.name, limits=limits_of_files()))
            if self._most is not None and len(left) > self._most:
                return False
            for batch in batches(left):
                if self._must_pause():
                    return False
                self._store(batch)
            if not ImportedSession.objects.filter(job=self._job).exists():
                raise nothing_stored(self.problems)
        except (UnknownFormatError, TooMuchInFileError) as error:
            code = error.code if isinstance(error, TooMuchInFileError) else "unknown_format"
            self._end(Status.FAILED, code, str(error))
            raise
        except (TranscriptError, InvalidMessageError) as error:
            sentence = f"It could not be stored: {error} {how_far(self._job)}"
            self.fail(ImportFailedError(sentence, code="not_stored"))
        self._end(Status.DONE)
        return True

    def pause(self) -> None:
        """Have the job wait for another process; raises ImportEndedError if it was cancelled."""
        self._update(
            status=Status.QUEUED,
            worker=None,
            lease_expires_at=None,
            attempts=0,
            queued_at=database_now(),
            seconds=self._spent(),
        )

    def fail(self, error: ImportFailedError) -> None:
        """End the job with an error, and raise it."""
        self._end(Status.FAILED, error.code, str(error))
        raise error

    def _begin(self, parsed: ParsedFile) -> Sequence[Conversation]:
        """Note what the file holds, or take up what was noted; return what is left to do."""
        job, total = self._job, len(parsed.conversations)
        self.problems = problems_of(parsed)
        if job.conversations_done:
            self.problems = ProblemList(Problem(**problem) for problem in job.problems)
            self.problems.left_out += job.problems_left_out
        job.conversations_total = total
        self._update(
            format=parsed.format,
            lines_total=parsed.lines,
            conversations_total=total,
            **self._told(),
        )
        return parsed.conversations[job.conversations_done :]

    def _must_pause(self) -> bool:
        if self._is_abandoned():
            sentence = f"The client went away. {how_far(self._job)}"
            self._end(Status.CANCELLED, "client_left", sentence)
            raise ImportEndedError
        is_over = time.monotonic() - self._begun > self._seconds
        return is_over or self._is_stopping()

    def _store(self, batch: Sequence[Conversation]) -> None:
        """Store some conversations and note them in the same transaction."""
        results = import_batch(
            batch,
            owner=self._job.owner,
            model=self._job.model,
            problems=self.problems,
            note=self._note,
        )
        self._job.conversations_done += len(results)
        if self._keeps_results:
            self.imported += [one for one in results if one is not None]

    def _note(self, results: Results, problems: ProblemList) -> None:
        before = self._job.conversations_done
        made = [(number, one) for number, one in enumerate(results, before) if one is not None]
        self._update(
            conversations_done=before + len(results),
            sessions_made=F("sessions_made") + len(made),
            messages_added=F("messages_added") + sum(one.messages_added for _, one in made),
            attempts=0,
            **self._told(problems),
        )
        ImportedSession.objects.bulk_create(
            ImportedSession(
                job=self._job,
                number=number,
                session=one.session,
                messages_added=one.messages_added,
                created=one.created,
            )
            for number, one in made
        )

    def _told(self, more: Sequence[Problem] = ()) -> dict[str, Any]:
        known = ProblemList(self.problems)
        known += more
        told = [asdict(problem) for problem in known]
        return {"problems": told, "problems_left_out": known.left_out}

    def _spent(self) -> Any:
        return F("seconds") + (time.monotonic() - self._begun)

    def _end(self, status: str, code: str = "", sentence: str = "") -> None:
        with transaction.atomic():
            self._update(
                status=status,
                error_code=code,
                error=sentence,
                worker=None,
                lease_expires_at=None,
                finished_at=timezone.now(),
                seconds=self._spent(),
                **self._told(),
            )
            ImportPiece.objects.filter(job=self._job).delete()

    def _update(self, **columns: Any) -> None:
        renewed: dict[str, Any] = {"lease_expires_at": lease_end()}
        if not held_by(self._job).update(**(renewed | columns)):
            raise ImportEndedError


def keeping_lease(job: ImportJob) -> AbstractContextManager[None]:
    """Renew the job's lease until the block ends: reading a large file outlasts it."""
    return beating(
        lambda: bool(held_by(job).update(lease_expires_at=lease_end())),
        seconds=BEAT_SECONDS,
        who=f"Import {job.pk}",
    )
