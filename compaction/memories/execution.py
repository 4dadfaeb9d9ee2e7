"""What a worker does with a memory run; every failure that is not its own end becomes the row's."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable

from chatapp.llm.registry import UnknownModelError
from compaction.conf import compaction_settings
from compaction.engine.policy.reasons import RunCode
from compaction.engine.types import SummarizerError, SummarizerOverflow, SummaryFailed
from compaction.errors import LostRaceError, MustWaitError, OutOfTimeError, StoppingError
from compaction.memories import runs
from compaction.memories.extraction import extract
from compaction.memories.rewriting import compress
from compaction.memories.runs import Kind, Status
from compaction.memories.work import MemoryWork
from compaction.models import MemoryRun

logger = logging.getLogger(__name__)
TOO_LARGE = "too_large"
_WORK = {Kind.COMPRESS: compress, Kind.EXTRACT: extract}


def execute_memory_run(
    run_id: uuid.UUID,
    *,
    seconds: float | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> str:
    """Do a waiting run's work; return its status, "gone" where it is not to be had.

    Delivering a run twice, early or late is harmless: only one worker can claim it.
    """
    budget = compaction_settings.run_seconds if seconds is None else seconds
    run = runs.claim(run_id, seconds=budget)
    if run is None:
        return "gone"
    work = MemoryWork(run=run, deadline=time.monotonic() + budget, is_stopping=is_stopping)
    try:
        _do(work)
    except BaseException:
        # Also a queue's time-out, which is no Exception: the row must not say "running" for long.
        _fail(run, RunCode.INTERRUPTED, "The worker was stopped in the middle of it.")
        raise
    finally:
        work.leave()
    _look_again(run)
    status = MemoryRun.objects.filter(pk=run_id).values_list("status", flat=True).first()
    return str(status or "gone")


def _do(work: MemoryWork) -> None:
    """Do the work; what goes wrong becomes the row's."""
    run = work.run
    try:
        _WORK[Kind(run.kind)](work)
    except MustWaitError as wait:
        runs.put_back(run, until=wait.until, code=wait.code, sentence=str(wait))
    except StoppingError as stopping:
        runs.put_back(run, until=None, code=RunCode.STOPPED, sentence=str(stopping))
    except LostRaceError as lost:
        _fail(run, RunCode.LOST_RACE, str(lost), status=Status.SKIPPED)
    except SummaryFailed as failure:
        _fail(run, failure.code, str(failure))
    except SummarizerOverflow as error:
        _fail(run, TOO_LARGE, f"The lines are too large for the summarising model: {error}")
    except SummarizerError as error:
        _fail(run, RunCode.SUMMARISER_ERROR, str(error))
    except OutOfTimeError as late:
        _fail(run, RunCode.OUT_OF_TIME, str(late))
    except UnknownModelError as unknown:
        _fail(run, RunCode.UNKNOWN_MODEL, str(unknown))
    except Exception as error:
        # A fault of ours must stop no worker, and must be seen.
        logger.exception("Memory run %s failed", run.pk)
        told = f"An unexpected error ended the run ({type(error).__name__}: {error})."
        _fail(run, RunCode.INTERNAL_ERROR, told)


def _fail(
    run: MemoryRun, code: str, sentence: str, *, status: MemoryRun.Status = Status.FAILED
) -> None:
    runs.finish(run, status, code=code, sentence=f"{sentence} No memory was changed.")


def _look_again(run: MemoryRun) -> None:
    """Ask for another run where lines came in while this one worked, or made it lose its race."""
    lost = run.status == Status.SKIPPED and run.error_code == RunCode.LOST_RACE
    if run.kind == Kind.COMPRESS and (lost or run.status == Status.SUCCEEDED):
        runs.request_if_too_many(run.owner_id, run.bot)
