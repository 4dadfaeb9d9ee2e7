"""Which models' compactions fail, since when and why: seen by an operator the first time.

It stands in the row of the model's breaker, which may be closed all the while: a model that refuses
a parameter is up, and no summary is ever made with it. A compaction that succeeds ends it.
"""

from __future__ import annotations

import logging

from chatapp.database import database_now
from chatapp.incidents import Kind, note
from compaction.engine.policy.reasons import RunCode
from compaction.errors import CompactionError
from compaction.events import event
from compaction.limits.circuit_breaker import MODEL_CHARS
from compaction.models import CompactionRun, ModelBreaker
from compaction.profiles import parameters_of
from compaction.runs.steps import ModelsTried

INCIDENT = "summaries_failing"
"""The code of what a session's timeline says of it."""
# Failures that the next compaction by the same model is likely to meet, too. That a summary was not
# smaller is one conversation's matter, and a lost race nobody's; a fault of this program or of a
# strategy stands with its run, for no other model would have done better.
_OF_A_MODEL = frozenset(
    {
        RunCode.SUMMARISER_ERROR,
        RunCode.BAD_ANSWER,
        RunCode.TOO_MANY_CALLS,
        RunCode.OUT_OF_TIME,
        RunCode.UNKNOWN_MODEL,
    }
)
CODE_CHARS = 80
_ANOTHER_WAY = "The summary was made without it."
Status = CompactionRun.Status


def note_models(run: CompactionRun, tried: ModelsTried) -> None:
    """Remember which models failed in a run that ended, and forget it of those that did well."""
    if run.status == Status.SUCCEEDED:
        # What another run notes meanwhile stays noted until the next one succeeds.
        _forget((tried.answered & tried.noted) - tried.failures.keys())
    failures = dict(tried.failures)
    if run.status == Status.FAILED and run.error_code in _OF_A_MODEL and not failures:
        failures = {tried.last or _first_model(run): run.error_code}
    for alias, code in failures.items():
        _remember(alias, code, run)
    if failures:
        names = ", ".join(failures)
        note(
            run.session,
            Kind.WARNING,
            INCIDENT,
            f"Compactions of model {names} fail. {_what_came_of_it(run)}".rstrip(),
            run=str(run.pk),
            error=next(iter(failures.values())),
        )


def _what_came_of_it(run: CompactionRun) -> str:
    """Return the run's sentence, unless it ended by something else than its models."""
    if run.status == Status.SUCCEEDED:
        return run.error or _ANOTHER_WAY
    return run.error if run.error_code in _OF_A_MODEL else ""


def forget_failure(model: str) -> None:
    """Take back by hand that a model's compactions fail; CompactionError where they do not.

    For models that nobody summarises with any more: none of their compactions will succeed.
    """
    if not _forget({model}):
        raise CompactionError(f"Nothing is noted of compactions of {model}.")


def _remember(alias: str, code: str, run: CompactionRun) -> None:
    """Store the first failure's time, and what the last one was."""
    rows = ModelBreaker.objects.filter(pk=alias[:MODEL_CHARS])
    told = {"failing_code": code[:CODE_CHARS], "failing_run": run.pk}
    first = told | {"failing_since": database_now()}
    if not rows.exists():
        # Two workers may have the first failure at once.
        empty = ModelBreaker(model=alias[:MODEL_CHARS])
        ModelBreaker.objects.bulk_create([empty], ignore_conflicts=True)
    if rows.filter(failing_since__isnull=True).update(**first):
        event(
            "model_failing",
            session=run.session_id,
            run=run,
            level=logging.WARNING,
            model=alias,
            code=code,
        )
    else:
        rows.update(**told)


def _forget(aliases: set[str]) -> int:
    """End what is remembered of the models; return of how many something was."""
    if not aliases:
        return 0
    names = [alias[:MODEL_CHARS] for alias in aliases]
    failing = ModelBreaker.objects.filter(pk__in=names, failing_since__isnull=False)
    ended = failing.update(failing_since=None, failing_code="", failing_run=None)
    if ended:
        event("model_works_again", model=",".join(names))
    return ended


def _first_model(run: CompactionRun) -> str:
    """Return the alias that a run would have asked first; it may be the name of none."""
    named = parameters_of(run.profile).summary_models[0] if run.profile is not None else ""
    return named or run.session.model
