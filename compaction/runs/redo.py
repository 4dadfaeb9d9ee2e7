"""Re-summarising many sessions, one after the other: which ones, and what is done with each.

What summarises, or says what that would take, is imported when a session is taken: the sweep and
the doctor want to know of this module what there is to do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.db import Error
from django.db.models import Exists, OuterRef, Q, QuerySet

from chatapp.database import trouble_words
from chatapp.llm.registry import UnknownModelError
from chatapp.models import Session
from compaction.branches.snapshot import snapshot_of
from compaction.engine.policy.reasons import RunCode
from compaction.errors import BranchBusyError, CompactionError
from compaction.models import CompactionProfile, CompactionRun, SessionSummary

logger = logging.getLogger(__name__)
ID_BATCH = 500
UNFINISHED = (CompactionRun.Status.QUEUED, CompactionRun.Status.RUNNING)

SUCCEEDED, QUEUED, PLANNED, NOTHING, BUSY, FAILED = (
    "succeeded",
    "queued",
    "planned",
    RunCode.NOTHING_TO_DO,
    RunCode.BUSY,
    "failed",
)


@dataclass(slots=True, kw_only=True)
class SessionResult:
    """What was done with one session, or would be: sums over its summaries.

    `tokens` are those that the summariser reads. `edited` summaries are texts of people that were
    left alone. `status`: succeeded, queued, planned (a dry run),
    nothing_to_do (done already, or waiting in the queue), busy (another run works on it, which is
    no fault) or failed; of the last two, `error` is a sentence and the sums say what was done
    before it.
    """

    session: str
    status: str = NOTHING
    summaries: int = 0
    edited: int = 0
    messages: int = 0
    tokens: int = 0
    calls: int = 0
    cost: float = 0.0
    error: str = ""

    @property
    def had_work(self) -> bool:
        """Whether there was anything to do, well done or not."""
        return self.status != NOTHING

    def as_dict(self) -> dict[str, Any]:
        """Return the result by name."""
        return asdict(self)


def sessions_with_summaries(since: datetime | None = None) -> QuerySet[Session]:
    """Return the sessions that have an active summary, made at or after `since`."""
    active = SessionSummary.objects.filter(
        session=OuterRef("pk"),
        status=SessionSummary.Status.ACTIVE,
        kind=SessionSummary.Kind.COMPACTION,
    )
    if since is not None:
        active = active.filter(created_at__gte=since)
    return Session.objects.filter(Exists(active))


def ids_of(sessions: QuerySet[Session]) -> Iterator[UUID]:
    """Return the ids of any number of sessions, a batch in memory at a time.

    Not QuerySet.iterator(): its cursor would not survive that summarisers give the database
    connection back while they wait, and on SQLite would hold an old snapshot while runs write.
    """
    ordered = sessions.order_by("pk").values_list("pk", flat=True)
    batch = list(ordered[:ID_BATCH])
    while batch:
        yield from batch
        batch = list(ordered.filter(pk__gt=batch[-1])[:ID_BATCH])


@dataclass(frozen=True, slots=True, kw_only=True)
class Redo:
    """How sessions are done again; `take` does one of them."""

    profile: CompactionProfile | None = None
    force: bool = False
    replace_edited: bool = False
    queue: bool = False
    dry_run: bool = False
    # Only summaries that were made before: what `force` has made itself is not made once more.
    before: datetime | None = None
    requested_by: Any = None
    # Asked before each summary; where it says no, the rest of the session is left as it is.
    may_go_on: Callable[[], bool] = lambda: True

    def take(self, session_id: str | UUID) -> SessionResult:
        """Do one session and return what came of it. Raises only where the database is gone."""
        result = SessionResult(session=str(session_id))
        try:
            self._work(_session(session_id), result)
        except BranchBusyError as busy:
            result.status, result.error = BUSY, str(busy)
        except (CompactionError, UnknownModelError) as error:
            result.status, result.error = FAILED, str(error)
        except Exception as error:
            if isinstance(error, Error) and trouble_words(error):
                raise
            # One session's fault must not end the work on a hundred thousand others.
            logger.exception("Session %s could not be summarised again", session_id)
            result.status, result.error = FAILED, f"{type(error).__name__}: {error}"
        return result

    def _work(self, session: Session, result: SessionResult) -> None:
        from compaction.runs.resummarize import count_edited

        if not self.replace_edited:
            result.edited = count_edited(session)
        if self.dry_run:
            self._plan(session, result)
            return
        for summary in self._chosen(session):
            if not self.may_go_on():
                return
            step = self._queue_one if self.queue else self._redo_one
            step(summary, result)
            if result.status in (BUSY, FAILED):
                # The next summary goes on from this one: made now, it would go on from the old one.
                return

    @property
    def _resummarize(self) -> Callable[..., CompactionRun]:
        from compaction.runs.resummarize import resummarize

        return partial(resummarize, replace_edited=True) if self.replace_edited else resummarize

    def _chosen(self, session: Session) -> list[SessionSummary]:
        from compaction.runs.resummarize import summaries_to_redo

        found = summaries_to_redo(
            session,
            profile=self.profile,
            force=self.force,
            replace_edited=self.replace_edited,
        )
        before = self.before
        return found if before is None else [row for row in found if row.created_at < before]

    def _plan(self, session: Session, result: SessionResult) -> None:
        from compaction.runs.redo_estimates import estimate_redos
        from compaction.runs.redo_sums import RedoSums, sums_of_redos
        from compaction.runs.resummarize import to_redo

        snapshot = snapshot_of(session, profile=self.profile)
        wanted = to_redo(snapshot, force=self.force, replace_edited=self.replace_edited)
        if self.before is not None:
            wanted &= Q(created_at__lt=self.before)
        sums = sums_of_redos(snapshot, wanted)
        if sums is None:
            sums = RedoSums.of(estimate_redos(self._chosen(session), snapshot))
        if sums.summaries:
            result.status = PLANNED
        result.summaries, result.messages = sums.summaries, sums.messages
        result.tokens, result.calls, result.cost = sums.tokens, sums.calls, sums.cost

    def _redo_one(self, summary: SessionSummary, result: SessionResult) -> None:
        asked = {} if self.requested_by is None else {"requested_by": self.requested_by}
        run = self._resummarize(summary, profile=self.profile, **asked)
        result.calls += run.model_calls
        result.cost += run.cost
        if run.status != CompactionRun.Status.SUCCEEDED:
            result.status = BUSY if run.error_code == RunCode.BUSY else FAILED
            result.error = run.error
            return
        result.status = SUCCEEDED
        result.summaries += 1
        result.messages += summary.message_count
        result.tokens += run.input_tokens

    def _queue_one(self, summary: SessionSummary, result: SessionResult) -> None:
        waiting = CompactionRun.objects.filter(replaces=summary, status__in=UNFINISHED)
        if waiting.exists():
            return
        self._resummarize(summary, profile=self.profile, background=True)
        result.status = QUEUED
        result.summaries += 1
        result.messages += summary.message_count
        result.tokens += summary.approx_tokens


def _session(session_id: str | UUID) -> Session:
    try:
        pk = session_id if isinstance(session_id, UUID) else UUID(session_id)
    except ValueError:
        raise CompactionError("This is no session id.") from None
    session = Session.objects.select_related("active_branch").filter(pk=pk).first()
    if session is None:
        raise CompactionError("There is no such session.")
    return session
