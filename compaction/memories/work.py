"""A memory run in the hands of its worker: asks the summariser as long as the run may go on.

Model calls run outside transactions; what each one cost is written before the next one goes out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from django.db.models import F

from chatapp.database import release_connection
from chatapp.llm.adaptations import Adaptation
from chatapp.llm.errors import ModelError
from chatapp.models import Session
from compaction.engine.fidelity.redaction import redact
from compaction.engine.parameters import Profile
from compaction.engine.policy.reasons import RunCode
from compaction.engine.strategies.acceptance import refusal_of
from compaction.engine.types import (
    SummarizerError,
    SummaryAnswer,
    SummaryFailed,
    SummaryRequest,
)
from compaction.errors import LostRaceError, MustWaitError, OutOfTimeError, StoppingError
from compaction.limits.budget import overspent
from compaction.memories import runs
from compaction.models import MemoryRun
from compaction.summaries.summarizer import ModelSequence, summarizer_for

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class MemoryWork:
    """One run in the hands of one worker; `deadline` is a time.monotonic() value."""

    run: MemoryRun
    deadline: float
    is_stopping: Callable[[], bool]
    answered_by: str = ""
    _sequence: ModelSequence | None = field(default=None, repr=False)

    def begin(self, session: Session, profile: Profile) -> bool:
        """Get a summariser; False where the profile has no model that writes.

        Raises MustWaitError while the owner's budget is used up, unless an operator asked, or while
        the breakers of all models are open.
        """
        found = summarizer_for(
            session,
            profile,
            deadline=self.deadline,
            cancelled=lambda: self.is_stopping() or not runs.held(self.run).exists(),
            on_change=None if self.run.session_id else _log_change,
        )
        if not isinstance(found, ModelSequence) or self.run.worker is None:
            return False
        asked_by = self.run.requested_by
        over = None if asked_by is not None and asked_by.is_staff else overspent(session)
        if over is not None:
            raise MustWaitError(over.sentence, code=RunCode.OVER_BUDGET, until=over.frees_at)
        found.admit(self.run.worker)
        self._sequence = found
        return True

    def ask(self, request: SummaryRequest, *, hides_secrets: bool) -> str:
        """Return the text of an answer that counts; raise SummaryFailed for one that does not.

        Raises SummarizerOverflow where the input is too large for every model.
        """
        answer = self.answer(request)
        if problem := refusal_of(answer, request):
            raise SummaryFailed(RunCode.BAD_ANSWER, problem)
        return redact(answer.text).text if hides_secrets else answer.text

    def answer(self, request: SummaryRequest) -> SummaryAnswer:
        """Return an answer, unjudged; raises what asking raises."""
        answer = None
        while answer is None:
            self.look()
            answer = self._answer(request)
        return answer

    def look(self) -> None:
        """Raise where the next call must not be made."""
        if not runs.held(self.run).exists():
            raise LostRaceError("Another worker took the run over; nothing was changed.")
        if self.is_stopping():
            raise StoppingError("The worker was asked to stop; nothing was changed.")
        if time.monotonic() > self.deadline:
            raise OutOfTimeError(
                "The run used up its time (COMPACTION_RUN_SECONDS); nothing was changed."
            )

    def leave(self) -> None:
        """Let other workers try what this one has not."""
        if self._sequence is not None:
            self._sequence.leave()

    def _answer(self, request: SummaryRequest) -> SummaryAnswer | None:
        """Return an answer; None where a model could not give one and another can be asked."""
        sequence = self._sequence
        if sequence is None:
            raise ValueError("Nobody was asked for yet: MemoryWork.begin comes first.")
        release_connection()
        try:
            answer = sequence.summarize(request)
        except SummarizerError:
            self._note(calls=1)
            if sequence.has_another(0):
                return None
            raise
        self.answered_by = answer.model or sequence.first.name
        self._note(calls=1, tokens=answer.input_tokens + answer.output_tokens, cost=answer.cost)
        return answer

    def _note(self, *, calls: int, tokens: int = 0, cost: float = 0.0) -> None:
        """Write down what a call cost, whatever becomes of the run."""
        MemoryRun.objects.filter(pk=self.run.pk).update(
            model_calls=F("model_calls") + calls,
            # A call that brought nothing counts as one that cost something.
            spent_tokens=F("spent_tokens") + max(1, tokens),
            cost=F("cost") + cost,
            model=self.answered_by[:100],
        )


def _log_change(change: Adaptation, error: ModelError) -> None:
    """Say what was changed about a call that is no session's."""
    logger.warning("Memories were rewritten with a changed request (%s).", change.code)
