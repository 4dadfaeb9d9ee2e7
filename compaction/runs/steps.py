"""A run in the hands of its worker: every call becomes a row before the next one starts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import transaction
from django.db.models import F, Q

from chatapp.database import release_connection
from compaction.branches.leases import Lease
from compaction.engine.fidelity.redaction import redact
from compaction.engine.policy.reasons import RunCode
from compaction.engine.strategies.checkpoint_text import CHECKPOINT
from compaction.engine.strategies.finishing import chooses_sentences
from compaction.engine.strategies.prompts import BETWEEN_BLOCKS, blocks
from compaction.engine.types import (
    NoMoreCallsError,
    Step,
    Summarizer,
    SummarizerError,
    SummarizerOverflow,
    SummaryAnswer,
    SummaryRequest,
)
from compaction.errors import LostRaceError, OutOfTimeError, RunCancelledError, StoppingError
from compaction.models import CompactionRun, CompactionStep
from compaction.runs import queue
from compaction.selectors import running_row
from compaction.summaries.model_summarizer import NotSentError
from compaction.summaries.summarizer import ModelSequence, prompt_of, storable

# How often a run that waits for a call that was begun looks whether it is to go on.
LOOK_SECONDS = 0.5
LONGEST_KIND = LONGEST_CODE = 40  # as the columns are


@dataclass(slots=True, kw_only=True)
class InlineBound:
    """What a request that waits for a run waits for: so many calls, and until the run's deadline.

    `messages_left` tells, after it was reached, how many of the run's messages are not summarised.
    """

    calls: int
    made: int = 0
    was_reached: bool = False
    messages_left: int = 0

    @property
    def left(self) -> int:
        """How many calls may still be made."""
        return max(0, self.calls - self.made)

    def reached(self) -> NoMoreCallsError:
        """Return what is to be raised because whoever waits has waited long enough."""
        self.was_reached = True
        return NoMoreCallsError(
            f"A request waits for {self.calls:,} model calls at most (COMPACTION_INLINE_CALLS), "
            "and not beyond its time (COMPACTION_INLINE_SECONDS)."
        )


@dataclass(slots=True, kw_only=True)
class ModelsTried:
    """The aliases of a run's models: which answered, the last of them, which could not and why.

    `noted` are those whose compactions were noted as failing when they were asked.
    """

    answered: set[str] = field(default_factory=set)
    noted: set[str] = field(default_factory=set)
    last: str = ""
    failures: dict[str, str] = field(default_factory=dict)

    def add(self, models: ModelSequence) -> None:
        """Take over what came of a sequence's calls."""
        self.answered |= {choice.alias for choice in models.answered}
        self.last = models.answered[-1].alias if models.answered else self.last
        self.failures |= models.failures
        self.noted |= models.noted_failing


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One run in the hands of one worker; `bound` where a request waits for it."""

    run: CompactionRun
    lease: Lease
    deadline: float
    bound: InlineBound | None = None
    tried: ModelsTried = field(default_factory=ModelsTried)

    def must_stop(self) -> bool:
        """Renew the lease while a model call waits to be repeated; whether it is better left."""
        try:
            self.lease.renew()
        except LostRaceError:
            return True
        return queue.is_stopping() or not running_row(self.run).exists()

    def go_on(self, *, looked_at: float = 0.0) -> None:
        """Raise where the next call must not be made; otherwise it counts as made.

        That is when the run was cancelled, is out of time, or when the worker is to stop. A run
        that was looked at just before (`looked_at`, monotonic seconds) is not asked for again.
        """
        self.look(is_known_to_run=time.monotonic() - looked_at < LOOK_SECONDS)
        if self.bound is not None:
            if not self.bound.left:
                raise self.bound.reached()
            self.bound.made += 1

    def take_back(self) -> None:
        """Count the last call as none: nothing was sent, and nobody waited for it."""
        if self.bound is not None:
            self.bound.made -= 1

    def look(self, *, is_known_to_run: bool = False) -> None:
        """Raise where the run is not to go on; no call is made."""
        if not is_known_to_run and not running_row(self.run).exists():
            raise RunCancelledError("The run was cancelled.")
        if queue.is_stopping():
            raise StoppingError(
                "The worker was asked to stop; nothing of this run was stored. Another run does "
                "its work."
            )
        if time.monotonic() > self.deadline:
            if self.bound is not None:
                raise self.bound.reached()
            raise OutOfTimeError(
                "The run used up its time (COMPACTION_RUN_SECONDS); nothing was stored. "
                "A faster summariser or a larger window needs fewer calls."
            )


class RunSummarizer:
    """A summariser that asks before every call whether the run may go on.

    Not after one: a finished summary is not thrown away because time is up now. `writer` stores a
    call that the strategy does not report. `is_needed` says whether no request can go out before a
    summary was stored; it is asked when the models' answers were of no use.
    """

    def __init__(
        self, inner: Summarizer, work: Work, writer: StepWriter, *, is_needed: Callable[[], bool]
    ) -> None:
        self._inner = inner
        self._work = work
        self._writer = writer
        self._is_needed = is_needed
        # A call that goes on already, as long as nobody took its answer.
        self._begun: SummaryRequest | None = None

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        """Return the inner summariser's answer; raise what Work.go_on raises."""
        answer: SummaryAnswer | None = None
        while answer is None:
            self._writer.write_unreported()
            with self._writer.not_the_strategys_fault():
                if not self._has_come(request):
                    self._go_on()
                started = time.monotonic()
                answer = self._asked(request, started)
        if self._writer.hides_secrets:
            # A model may know one from somewhere else, or put two halves together.
            answer = replace(answer, text=redact(answer.text).text)
        self._heard(request, started, answer=answer)
        return answer

    def begin(self, request: SummaryRequest, *, beside: int) -> None:
        """Have a call go on beside the next ones; `summarize` of the same request takes its answer.

        Where the summariser cannot, or no more calls are left than the `beside` that are expected
        of the next ones, it is made when it is asked for. Raises what Work.go_on raises.
        """
        bound = self._work.bound
        if not isinstance(self._inner, ModelSequence) or (
            bound is not None and bound.left <= beside
        ):
            return
        with self._writer.not_the_strategys_fault():
            self._go_on()
            if self._inner.begin(request):
                self._begun = request
            else:
                self._work.take_back()

    def goes_on_without_model(self, *, if_known: bool = False) -> bool:
        """Whether clauses are chosen: no model is of use (`if_known`: nor was before). Noted."""
        models = self._inner if isinstance(self._inner, ModelSequence) else None
        if (if_known and not (models and models.is_known_to_fail)) or not self._is_needed():
            return False
        if models is not None:
            models.note_of_no_use()
        return True

    def _go_on(self) -> None:
        inner = self._inner
        looked_at = inner.take_look() if isinstance(inner, ModelSequence) else 0.0
        self._work.go_on(looked_at=looked_at)

    def _has_come(self, request: SummaryRequest) -> bool:
        """Whether the request's call was begun before; wait for its answer, if the run may."""
        inner = self._inner
        call = inner.begun_call(request) if isinstance(inner, ModelSequence) else None
        if call is None:
            return False
        release_connection()
        while not call.is_done(LOOK_SECONDS):
            self._work.look()
            release_connection()
        self._begun = None
        return True

    def leave_begun(self) -> None:
        """Tell of a call that was begun and whose answer nobody takes any more: it costs, too."""
        request, self._begun = self._begun, None
        inner = self._inner
        call = inner.leave_begun() if isinstance(inner, ModelSequence) else None
        if request is None or call is None:
            return
        self._writer.write_unreported()
        left = SummarizerError("The run ended before anybody asked for the answer to this call.")
        self._heard(request, call.began, outcome="error", error=left)
        if self._writer.unreported is not None:
            read = sum(item.read_tokens for item in request.items)
            self._writer.unreported = replace(self._writer.unreported, input_tokens=read)

    def _asked(self, request: SummaryRequest, started: float) -> SummaryAnswer | None:
        """Return an answer; None where a model could not give one and another can be asked."""
        try:
            return self._inner.summarize(request)
        except SummarizerOverflow as error:
            if isinstance(error, NotSentError):
                self._work.take_back()
            self._heard(request, started, outcome="overflow", error=error)
            raise
        except SummarizerError as error:
            self._heard(request, started, outcome="error", error=error)
            if error.was_cut_off and self._work.bound is not None:
                raise self._work.bound.reached() from error
            if not isinstance(self._inner, ModelSequence):
                raise
            if self._inner.has_another(request.passed_over):
                return None
            if request.passed_over:
                # The first models are still there; for them the input stays too large.
                raise SummarizerOverflow(str(error)) from error
            raise

    def _heard(
        self,
        request: SummaryRequest,
        started: float,
        *,
        answer: SummaryAnswer | None = None,
        outcome: str = "ok",
        error: SummarizerError | SummarizerOverflow | None = None,
    ) -> None:
        """Remember a call until the strategy reports it."""
        items = request.items
        self._writer.unreported = Step(
            key=0,
            parent=None,
            kind=request.kind,
            depth=0,
            order=0,
            first=items[0].id if items else None,
            last=items[-1].id if items else None,
            message_count=len(items) or len(request.texts),
            input_tokens=answer.input_tokens if answer else 0,
            output_tokens=answer.output_tokens if answer else 0,
            outcome=outcome,
            duration_ms=answer.duration_ms
            if answer and answer.duration_ms
            else round((time.monotonic() - started) * 1000),
            error=str(error or ""),
            output=answer.text if answer else "",
            model=answer.model if answer else getattr(error, "model", ""),
            cost=answer.cost if answer else 0.0,
            cached_tokens=answer.cached_tokens if answer else 0,
            request=request,
        )

    @property
    def chooses_sentences(self) -> bool:
        """Whether no model writes (compaction.engine.strategies.finishing)."""
        return chooses_sentences(self._inner)

    @property
    def models_left(self) -> int:
        """How many models the inner summariser can still ask."""
        return self._inner.models_left if isinstance(self._inner, ModelSequence) else 1

    def use_another(self, passed_over: int) -> bool:
        """Have another model asked from now on; whether there is one."""
        if not isinstance(self._inner, ModelSequence):
            return False
        return self._inner.use_another(passed_over)

    def input_limit(self, target_tokens: int) -> int | None:
        """Return what the inner summariser can take."""
        return self._inner.input_limit(target_tokens)


class StepWriter:
    """Stores every finished call and asks, before the next one, whether to go on."""

    def __init__(
        self,
        work: Work,
        summarizer: Summarizer | None,
        *,
        hides_secrets: bool = False,
        reads_beginnings: bool = False,
        run_columns: Mapping[str, Any] | None = None,
    ) -> None:
        self._work = work
        self.hides_secrets = hides_secrets
        # Of tool results that are too long, their first characters and no end.
        self._reads_beginnings = reads_beginnings
        self._summarizer = summarizer
        # What the run's row says of how its steps' inputs were made.
        self._run_columns = run_columns or {}
        self._rows: dict[int, int] = {}
        self._written = 0
        # The last call, as long as the strategy has not reported it as a step.
        self.unreported: Step | None = None
        # What was raised by the summariser or while storing: it is no fault of the strategy.
        self.raised: BaseException | None = None

    @contextmanager
    def not_the_strategys_fault(self) -> Iterator[None]:
        """Remember what is raised inside, to tell it from a strategy's own errors."""
        try:
            yield
        except BaseException as error:
            self.raised = error
            raise

    def write_unreported(self) -> None:
        """Store the last call where the strategy did not."""
        if (step := self.unreported) is not None:
            self.write(step)

    def write(self, step: Step) -> None:
        """Store one step, of a cancelled run, too: it tells what the call cost.

        Raises LostRaceError, and stores nothing, where another worker took the branch over.
        """
        if step.is_call:
            # Strategies report what they know of a call; what its server cached they do not.
            heard, self.unreported = self.unreported, None
            step = replace(step, cached_tokens=heard.cached_tokens if heard else 0)
        run, spent = self._work.run, self._spent(step)
        # As servers reported them: those of what was too large read nothing.
        cached, prompt = (step.cached_tokens, step.input_tokens) if spent > 1 else (0, 0)
        with self.not_the_strategys_fault(), transaction.atomic():
            # An UPDATE that waited for a takeover looks again at its own row, not at the lease.
            is_going_on = ~Q(error_code=RunCode.INTERRUPTED)
            own = CompactionRun.objects.filter(is_going_on, pk=run.pk, worker=run.worker)
            columns = {
                "model_calls": F("model_calls") + int(step.is_call),
                "spent_tokens": F("spent_tokens") + spent,
                "cached_tokens": F("cached_tokens") + cached,
                "uncached_tokens": F("uncached_tokens") + prompt - cached,
                **self._run_columns,
            }
            if not own.filter(self._work.lease.is_live()).update(**columns):
                # It ran out while the machine slept, say: take it up again, or hear why not.
                self._work.lease.renew()
                if not own.update(**columns):
                    raise LostRaceError("The run was taken for dead and ended by another worker.")
            self._store(step)

    def _store(self, step: Step) -> None:
        self._written += 1
        row = CompactionStep.objects.create(
            run=self._work.run,
            parent_id=self._rows.get(step.parent or 0),
            kind=step.kind[:LONGEST_KIND],
            depth=step.depth,
            order=self._written,
            first_message_id=step.first,
            last_message_id=step.last,
            message_count=step.message_count,
            input_tokens=step.input_tokens,
            output_tokens=step.output_tokens,
            cached_tokens=step.cached_tokens,
            outcome=step.outcome if step.outcome in CompactionStep.Outcome else "error",
            duration_ms=step.duration_ms,
            error=step.error,
            output=storable(step.output),
            prompt=self._prompt(step),
            texts=_texts(step),
            given=self._given(step),
            model=step.model[:100],
            cost=step.cost,
            code=step.code[:LONGEST_CODE],
        )
        if step.key:
            self._rows[step.key] = row.pk

    def _spent(self, step: Step) -> int:
        """Return the tokens that a call cost; choosing sentences costs none.

        Nobody is paid for what was too large: it was not sent, or its server refused it unread. One
        stands for the call: budgets sum those of runs that spent something.
        """
        if not step.is_call or not isinstance(self._summarizer, ModelSequence):
            return 0
        if step.outcome == CompactionStep.Outcome.OVERFLOW:
            return 1
        return max(1, step.input_tokens + step.output_tokens)

    def _given(self, step: Step) -> dict[str, Any]:
        """Return what else the input was made with, so that it can be shown as it was sent."""
        request = step.request
        if request is None or not step.is_call:
            return {}
        kept = BETWEEN_BLOCKS.join(
            blocks(request.kept, by_position=request.cites, style=request.style)
        )
        given = {
            "by_position": request.cites,
            "style": request.style if request.style == CHECKPOINT else "",
            "beginnings": self._reads_beginnings,
            "hides_secrets": self.hides_secrets,
            "kept": storable(kept),
            "missing": [storable(text) for text in request.missing],
        }
        return {name: value for name, value in given.items() if value}

    def _prompt(self, step: Step) -> str:
        """Return the instruction that was sent; nobody is instructed to choose sentences."""
        if step.request is None or not step.is_call or self._summarizer is None:
            return ""
        return prompt_of(self._summarizer, step.request)


def _texts(step: Step) -> list[str]:
    """Return the part of a call's input that is no stored message."""
    if step.request is None:
        return []
    return [*filter(None, [step.request.previous]), *step.request.texts]
