"""Breakers: after some failed calls in a row a model is left alone, until one probe call succeeds.

Callers ask `admit` before a call and tell how it ended: `record_success`, `record_failure`, or
`give_back` for an end that says nothing about the model. What counts as a failure is theirs to say.
Every change is a conditional UPDATE, so any number of processes may call at once.

How long an open breaker waits doubles with every failed probe. That span is stored in no column of
its own: `changed_at` and `retry_at` are always that far apart (`_wait_of`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Exists, F, Q, QuerySet

from chatapp.compiled import compiled_read, compiled_update
from chatapp.conf import chatapp_settings
from chatapp.database import database_now
from chatapp.formatting import when_utc
from chatapp.messages.wire import Cleaner
from compaction.conf import compaction_settings
from compaction.engine.policy.reasons import Reason, RunCode
from compaction.errors import CompactionError
from compaction.events import event
from compaction.models import CompactionRun, ModelBreaker

LONGEST_WAIT = timedelta(hours=1)
ERROR_CHARS = 500
# What a call may take beyond its own time-out.
CALL_SLACK_SECONDS = 30
# The code of a run that waits for a model.
BREAKER_OPEN = RunCode.BREAKER_OPEN
MODEL_CHARS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """No call may go out before `until`; the sentence is for operators."""

    sentence: str
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Whether a model may be called, and whether its compactions are noted as failing."""

    refusal: Refusal | None = None
    is_failing: bool = False


def admit(model: str, worker: UUID) -> Refusal | None:
    """Return None when the worker may call the model, else when to ask again."""
    return admission(model, worker).refusal


def admission(model: str, worker: UUID) -> Admission:
    """Return whether the worker may call the model, and what is noted of its compactions.

    Closed costs one query. Of many workers that ask when an open breaker's time is over, one is
    let in: its call is the probe. It is let in again until it has told how the call ended.
    """
    row = _row(model)
    if row is not None and not _may_call(row, worker):
        if _claim_probe(row, worker):
            event("breaker_probes", model=row.model, worker=worker)
        else:
            # Somebody was quicker: with the probe, or with its outcome.
            row = _row(model)
            if row is not None and not _may_call(row, worker):
                return Admission(refusal=_refusal(row))
    return Admission(is_failing=row is not None and row.failing_since is not None)


def has_notes(model: str) -> Exists:
    """Return, as a column, whether `admission` would find anything to tell of a model.

    Where it would not, the model's calls go out.
    """
    noted = Q(opened_at__isnull=False) | Q(failing_since__isnull=False)
    return Exists(_rows(model).filter(noted))


def is_failing(model: str) -> bool:
    """Return whether compactions by a model are noted as failing."""
    return _rows(model).filter(failing_since__isnull=False).exists()


def failed_in(run: UUID) -> bool:
    """Return whether a model failed in a run, and in no later one."""
    return ModelBreaker.objects.filter(failing_run=run).exists()


def record_failure(model: str, worker: UUID, error_text: str) -> None:
    """Count a failed call; enough of them in a row open the breaker, a failed probe reopens it.

    Failures of calls that began before it opened are counted and change nothing else.
    """
    error = Cleaner().text(error_text[:ERROR_CHARS])
    if _reopen(model, worker, error):
        return
    told = {"failures": F("failures") + 1, "last_error": error}
    if not _rows(model).update(**told):
        # Two workers may have the first failure at once: both count, whoever stores the row.
        empty = ModelBreaker(model=model[:MODEL_CHARS])
        ModelBreaker.objects.bulk_create([empty], ignore_conflicts=True)
        _rows(model).update(**told)
    _open(model)


def record_success(model: str, worker: UUID) -> None:
    """Close the model's breaker; where nothing had failed, one read tells, and nothing is written.

    It is looked at now: what other workers' calls came to since this one's began counts, too.
    """
    if not _failures_of.first(model=model[:MODEL_CHARS]):
        return
    if _close_where_failed(model=model[:MODEL_CHARS], now=database_now()):
        event("breaker_closed", model=model, worker=worker)
        _end_waiting()


@compiled_update
def _close_where_failed(
    *, model: str, now: datetime
) -> tuple[QuerySet[ModelBreaker], dict[str, object]]:
    return _failed(model), _closed() | {"changed_at": now}


@compiled_read
def _failures_of(*, model: str) -> QuerySet[ModelBreaker, str]:
    return _failed(model).values_list("pk", flat=True)


def _failed(model: str) -> QuerySet[ModelBreaker]:
    return _rows(model).filter(Q(failures__gt=0) | Q(opened_at__isnull=False))


def give_back(model: str, worker: UUID) -> None:
    """Let another worker have the probe at once: this one's call said nothing about the model."""
    row = _rows(model).filter(probe=worker).first()
    if row is None:
        return
    now = database_now()
    _probe_of(row, worker).update(probe=None, retry_at=now, changed_at=now - _wait_of(row))


def close(model: str) -> None:
    """Close a model's breaker by hand; raise CompactionError when it is closed already."""
    if not _rows(model).filter(opened_at__isnull=False).update(**_closed()):
        raise CompactionError(f"The breaker of {model} is closed already; its calls go out.")
    event("breaker_closed", model=model, reason=Reason.MANUAL)
    _end_waiting()


def _end_waiting() -> None:
    """Let the sweep deliver what waits for a model at once; another model's runs wait again."""
    waiting = CompactionRun.objects.filter(
        status=CompactionRun.Status.QUEUED, error_code=BREAKER_OPEN, waits_until__isnull=False
    )
    waiting.update(waits_until=database_now())


def _rows(model: str) -> QuerySet[ModelBreaker]:
    return ModelBreaker.objects.filter(pk=model[:MODEL_CHARS])


def _row(model: str) -> ModelBreaker | None:
    return _rows(model).first()


def _probe_of(row: ModelBreaker, worker: UUID) -> QuerySet[ModelBreaker]:
    """Return the row while the worker has its probe, as it was when it was read."""
    return _rows(row.model).filter(probe=worker, retry_at=row.retry_at)


def _may_call(row: ModelBreaker, worker: UUID) -> bool:
    """Whether the breaker is closed, or the worker's own probe is under way."""
    if row.opened_at is None or row.retry_at is None:
        return True
    return row.probe == worker and row.retry_at > database_now()


def _claim_probe(row: ModelBreaker, worker: UUID) -> bool:
    """Make the worker's next call the probe, if the time has come and nobody was quicker.

    A probe whose worker died is over when its time is, and then another worker's.
    """
    now = database_now()
    if row.retry_at is None or row.retry_at > now:
        return False
    unchanged = _rows(row.model).filter(
        opened_at__isnull=False, retry_at=row.retry_at, changed_at=row.changed_at
    )
    return bool(
        unchanged.update(probe=worker, retry_at=now + _probe_time(), changed_at=now - _wait_of(row))
    )


def _reopen(model: str, worker: UUID, error: str) -> bool:
    """After a failed probe, wait twice as long as before; return whether it was one."""
    row = _rows(model).filter(probe=worker, opened_at__isnull=False).first()
    if row is None:
        return False
    now = database_now()
    wait = min(2 * _wait_of(row), LONGEST_WAIT)
    reopened = _probe_of(row, worker).update(
        probe=None,
        failures=F("failures") + 1,
        last_error=error,
        retry_at=now + wait,
        changed_at=now,
    )
    if reopened:
        _tell_open(model, reason="probe_failed", wait=wait)
    return bool(reopened)


def _open(model: str) -> None:
    """Open the breaker, if enough calls have failed in a row and nobody has opened it yet."""
    now, wait = database_now(), _first_wait()
    enough = _rows(model).filter(
        opened_at__isnull=True, failures__gte=compaction_settings.breaker_failures
    )
    if enough.update(opened_at=now, retry_at=now + wait, probe=None, changed_at=now):
        _tell_open(model, reason="failures", wait=wait)


def _tell_open(model: str, *, reason: str, wait: timedelta) -> None:
    seconds = wait.total_seconds()
    event("breaker_opened", model=model, reason=reason, seconds=seconds, level=logging.WARNING)


def _closed() -> dict[str, object]:
    """Return the columns of a closed breaker; the last error stays to be read."""
    return {
        "failures": 0,
        "opened_at": None,
        "retry_at": None,
        "probe": None,
        "changed_at": database_now(),
    }


def _first_wait() -> timedelta:
    return min(timedelta(seconds=compaction_settings.breaker_seconds), LONGEST_WAIT)


def _probe_time() -> timedelta:
    """Return how long a probe may be silent: longer than its call, and as long as any worker."""
    longest_call = chatapp_settings.model_timeout_seconds + CALL_SLACK_SECONDS
    return timedelta(seconds=max(compaction_settings.lease_seconds, longest_call))


def _wait_of(row: ModelBreaker) -> timedelta:
    """Return how long the breaker was to wait before its probe.

    Open, it waits from `changed_at` to `retry_at`. A probe moves `retry_at` to its own end and
    `changed_at` to where that span would have begun.
    """
    if row.retry_at is None:
        return _first_wait()
    end = row.retry_at - (_probe_time() if row.probe else timedelta(0))
    # The settings may have changed meanwhile.
    return min(max(end - row.changed_at, _first_wait()), LONGEST_WAIT)


def _refusal(row: ModelBreaker) -> Refusal:
    until = row.retry_at or database_now()
    moment = when_utc(until)
    calls = "its last call" if row.failures == 1 else f"its last {row.failures:,} calls"
    happened = f"The model {row.model} is left alone: {calls} of summarising failed."
    then = (
        f"One call is trying whether it answers again; if nothing comes of it, another does at "
        f"{moment}."
        if row.probe
        else f"From {moment} on, one call tries whether it answers again."
    )
    advice = "Look at its last error under Model breakers in the admin, or close its breaker there."
    return Refusal(sentence=f"{happened} {then} {advice}", until=until)
