"""A run in the hands of its worker: every call becomes a row before the next one starts."""

from __future__ import annotations

import time
from dataclasses import dataclass

from django.db import transaction
from django.db.models import F

from compaction.branches.leases import Lease
from compaction.engine.types import Step, Summarizer, SummaryAnswer, SummaryRequest
from compaction.errors import LostRaceError, OutOfTimeError, RunCancelledError, StoppingError
from compaction.models import CompactionRun, CompactionStep
from compaction.runs import queue
from compaction.selectors import running_row
from compaction.summaries.summarizer import ModelSummarizer, prompt_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One run in the hands of one worker."""

    run: CompactionRun
    lease: Lease
    deadline: float

    def must_stop(self) -> bool:
        """Renew the lease while a model call waits to be repeated; whether it is better left."""
        try:
            self.lease.renew()
        except LostRaceError:
            return True
        return queue.is_stopping() or not running_row(self.run).exists()

    def go_on(self) -> None:
        """Raise where the next call must not be made.

        That is when the run was cancelled, is out of time, or when the worker is to stop.
        """
        if not running_row(self.run).exists():
            raise RunCancelledError("The run was cancelled.")
        if queue.is_stopping():
            raise StoppingError(
                "The worker was asked to stop; nothing of this run was stored. Another run does "
                "its work."
            )
        if time.monotonic() > self.deadline:
            raise OutOfTimeError(
                "The run used up its time (COMPACTION_RUN_SECONDS); nothing was stored. "
                "A faster summariser or a larger window needs fewer calls."
            )


class AskingFirst:
    """A summariser that asks before every call whether the run may go on.

    Not after one: a finished summary is not thrown away because time is up now.
    """

    def __init__(self, inner: Summarizer, work: Work) -> None:
        self._inner = inner
        self._work = work

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        """Return the inner summariser's answer; raise what Work.go_on raises."""
        self._work.go_on()
        return self._inner.summarize(request)

    def input_limit(self, target_tokens: int) -> int | None:
        """Return what the inner summariser can take."""
        return self._inner.input_limit(target_tokens)


class StepWriter:
    """Stores every finished call and asks, before the next one, whether to go on."""

    def __init__(self, work: Work, summarizer: Summarizer | None) -> None:
        self._work = work
        self._summarizer = summarizer
        self._rows: dict[int, int] = {}

    def write(self, step: Step) -> None:
        """Store one step.

        A worker whose lease was taken over writes nothing and hears LostRaceError; one whose run
        was cancelled still tells what the call cost.
        """
        run = self._work.run
        with transaction.atomic():
            self._work.lease.renew()
            CompactionRun.objects.filter(pk=run.pk, worker=run.worker).update(
                model_calls=F("model_calls") + int(step.is_call),
                spent_tokens=F("spent_tokens") + self._spent(step),
            )
            self._store(step)

    def _store(self, step: Step) -> None:
        row = CompactionStep.objects.create(
            run=self._work.run,
            parent_id=self._rows.get(step.parent or 0),
            kind=step.kind,
            depth=step.depth,
            order=step.order,
            first_message_id=step.first,
            last_message_id=step.last,
            message_count=step.message_count,
            input_tokens=step.input_tokens,
            output_tokens=step.output_tokens,
            outcome=step.outcome,
            duration_ms=step.duration_ms,
            error=step.error,
            output=step.output,
            prompt=self._prompt(step),
            texts=_texts(step),
            model=step.model[:100],
            cost=step.cost,
        )
        self._rows[step.key] = row.pk

    def _spent(self, step: Step) -> int:
        """Return the tokens that a call cost; choosing sentences costs none."""
        if not step.is_call or not isinstance(self._summarizer, ModelSummarizer):
            return 0
        return max(1, step.input_tokens + step.output_tokens)

    def _prompt(self, step: Step) -> str:
        """Return the instruction that was sent; nobody is instructed to choose sentences."""
        if step.request is None or not step.is_call or self._summarizer is None:
            return ""
        return prompt_of(self._summarizer, step.request)


def _texts(step: Step) -> list[str]:
    """Return the part of a call's input that is no stored message."""
    if step.request is None:
        return []
    previous = [step.request.previous] if step.request.previous else []
    return [*previous, *step.request.texts]
