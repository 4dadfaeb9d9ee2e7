"""Whether a run may call a model now: the hour's budget, and the model's breaker."""

from __future__ import annotations

from uuid import UUID

from chatapp.llm.errors import ErrorKind, ModelError
from compaction.engine.parameters import Profile
from compaction.engine.types import (
    Summarizer,
    SummarizerError,
    SummarizerOverflow,
    SummaryAnswer,
    SummaryRequest,
)
from compaction.models import CompactionRun
from compaction.services import breaker
from compaction.services.breaker import BREAKER_OPEN
from compaction.services.budget import overspent
from compaction.services.errors import MustWaitError
from compaction.summarizer import ModelSummarizer, summarising_model

OVER_BUDGET = "over_budget"
NO_MODEL = (OVER_BUDGET, BREAKER_OPEN)
# What says that the server or the account has a problem, and not this one conversation.
_OUTAGES = frozenset(
    {
        ErrorKind.UNAVAILABLE,
        ErrorKind.TIMEOUT,
        ErrorKind.RATE_LIMITED,
        ErrorKind.AUTHENTICATION,
        ErrorKind.QUOTA,
        ErrorKind.NOT_CONFIGURED,
        ErrorKind.BAD_ANSWER,
    }
)


def admitted(run: CompactionRun, profile: Profile, summarizer: Summarizer) -> Summarizer:
    """Return the summariser to use for a run: its calls are told to the model's breaker.

    Choosing sentences needs no leave. Raises MustWaitError while the budget of the last hour is
    used up, unless an operator asked for the run, or while the breaker is open.
    """
    if not isinstance(summarizer, ModelSummarizer) or run.worker is None:
        return summarizer
    asked_by_operator = run.requested_by is not None and run.requested_by.is_staff
    over = None if asked_by_operator else overspent(run.session)
    if over is not None:
        raise MustWaitError(over.sentence, code=OVER_BUDGET, until=over.frees_at)
    model = summarising_model(run.session, profile).alias
    refusal = breaker.admit(model, run.worker)
    if refusal is not None:
        raise MustWaitError(refusal.sentence, code=BREAKER_OPEN, until=refusal.until)
    return WatchedSummarizer(summarizer, model=model, worker=run.worker)


class WatchedSummarizer:
    """A summariser whose calls are told to the breaker of its model."""

    def __init__(self, inner: Summarizer, *, model: str, worker: UUID) -> None:
        self._inner = inner
        self._model = model
        self._worker = worker

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        """Return the inner summariser's answer; tell how the call ended."""
        try:
            answer = self._inner.summarize(request)
        except (SummarizerError, SummarizerOverflow) as error:
            self._tell(error)
            raise
        breaker.record_success(self._model, self._worker)
        return answer

    def _tell(self, error: Exception) -> None:
        cause = error.__cause__
        if not isinstance(cause, ModelError):
            # Nothing was sent: the input was found too large here.
            self.leave()
        elif isinstance(error, SummarizerError) and cause.kind in _OUTAGES:
            breaker.record_failure(self._model, self._worker, str(error))
        elif isinstance(error, SummarizerError):
            self.leave()
        else:
            breaker.record_success(self._model, self._worker)

    def leave(self) -> None:
        """Let another worker try an open breaker, if this one has not."""
        breaker.give_back(self._model, self._worker)

    def input_limit(self, target_tokens: int) -> int | None:
        """Return what the inner summariser can take."""
        return self._inner.input_limit(target_tokens)
