"""Who summarises for a session: the models of its profile, or chosen sentences without one.

A run may call a model as long as the hour's budget and the model's circuit breaker allow it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from chatapp.compiled import compiled_read
from chatapp.incidents import Kind, note
from chatapp.llm.adaptations import Adaptation
from chatapp.llm.asking import OnChange
from chatapp.llm.encodings import EstimateCounter
from chatapp.llm.errors import ModelError
from chatapp.llm.registry import ModelConfig
from chatapp.models import Session
from chatapp.selectors import counter_of
from compaction.engine.extractive.summarizer import ExtractiveSummarizer
from compaction.engine.parameters import Profile
from compaction.engine.policy.reasons import RunCode
from compaction.engine.types import Summarizer, SummaryAnswer, SummaryFailed, SummaryRequest
from compaction.errors import MustWaitError, RunCancelledError
from compaction.limits.budget import (
    column_of_spent,
    may_be_overspent,
    overspent,
    whose_limits,
)
from compaction.limits.circuit_breaker import BREAKER_OPEN, MODEL_CHARS, has_notes
from compaction.models import CompactionRun
from compaction.selectors import running_row
from compaction.summaries.conversation_input import ConversationInput
from compaction.summaries.model_summarizer import ModelSummarizer, storable
from compaction.summaries.sequence import Choice, ModelSequence
from compaction.summaries.summarising_models import summarising_models

__all__ = ["ModelSequence", "ModelSummarizer", "storable", "summarising_models"]
OVER_BUDGET = RunCode.OVER_BUDGET
NO_MODEL = (OVER_BUDGET, BREAKER_OPEN)


def prompt_of(summarizer: Summarizer, request: SummaryRequest) -> str:
    """Return the instruction that a call sends to a language model; empty where none is asked."""
    if not isinstance(summarizer, ModelSummarizer | ModelSequence):
        return ""
    return summarizer.instruction_for(request)


def summarizer_for(
    session: Session,
    profile: Profile,
    *,
    models: Sequence[ModelConfig] = (),
    deadline: float | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    conversation: ConversationInput | None = None,
    on_change: OnChange | None = None,
) -> Summarizer:
    """Return the Summarizer a profile asks for; `on_change` hears what a server wants otherwise.

    Without it, the session's page tells of it. `models` are the summarising models where the caller
    has read them.

    With `conversation` the session's own model reads that instead of a transcript; another model
    has not cached it.

    The embedded model cannot write: it chooses sentences, within its window, so that halving can be
    seen without a server.
    """
    models = models or summarising_models(session, profile)
    if profile.summariser == "extractive":
        return ExtractiveSummarizer(counter=models[0].counter)
    if models[0].is_embedded:
        return _embedded(models[0])
    counted_by = counter_of(session).name
    choices = [
        Choice(
            summarizer=_embedded(model)
            if model.is_embedded
            else ModelSummarizer(
                model=model,
                temperature=profile.temperature,
                deadline=deadline,
                cancelled=cancelled,
                # Another model than the session's own may be offered on the common wire only.
                api=session.api if model.alias == session.model else Session.Api.CHAT,
                on_change=on_change or partial(_note_change, session),
                conversation=conversation if model.alias == session.model else None,
                counted_by=counted_by,
            ),
            alias=model.alias,
            name=model.name,
        )
        for model in models
    ]
    return ModelSequence(choices)


def input_limit(session: Session, profile: Profile, model: ModelConfig) -> int | None:
    """Return how many tokens of transcript one call of the model takes; None without a limit.

    What summarizer_for says of it, without the table of an encoding, which takes long to load.
    """
    if profile.summariser == "extractive":
        return None
    if model.is_embedded:
        asked: Summarizer = ExtractiveSummarizer(
            counter=EstimateCounter(), window=model.context_window
        )
    else:
        api = session.api if model.alias == session.model else Session.Api.CHAT
        asked = ModelSummarizer(model=model, temperature=profile.temperature, api=api)
    return asked.input_limit(profile.target_summary_tokens)


def _embedded(model: ModelConfig) -> ExtractiveSummarizer:
    return ExtractiveSummarizer(counter=model.counter, window=model.context_window, name=model.name)


def _note_change(session: Session, change: Adaptation, error: ModelError) -> None:
    """Have the session's page say what was changed about a summarising call."""
    note(
        session,
        Kind.CHANGE,
        change.code.partition(":")[0],
        f"A summary was asked for. {change.text}",
        error=error.kind.value,
        said=error.detail[:500],
        status=error.status,
    )


class NoSummarizer:
    """What a strategy is given that says that it asks nobody: no budget was looked at for it."""

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        """Refuse the call."""
        raise SummaryFailed(
            RunCode.STRATEGY_ERROR,
            "The strategy asked the summariser although it says that it does not "
            "(uses_summarizer); nothing was sent.",
        )

    def input_limit(self, target_tokens: int) -> int | None:
        """Return None: nobody is asked."""
        return None


def admitted(run: CompactionRun, summarizer: Summarizer) -> Summarizer:
    """Return the summariser to use for a run: its calls are told to the models' breakers.

    Choosing sentences needs no leave. One statement tells whether the run still runs, what was
    spent and whether anything stands in the first model's breaker; only what is not well is looked
    at by itself. Raises MustWaitError while the budget of the last hour is used up, unless an
    operator asked for the run, or while the breakers of all models are open, and RunCancelledError
    where somebody cancelled the run.
    """
    if not isinstance(summarizer, ModelSequence) or run.worker is None:
        return summarizer
    started = time.monotonic()
    model, limits = summarizer.first.alias[:MODEL_CHARS], whose_limits(run.session)
    if limits is None:
        # Nobody counts what is spent.
        rows = running_row(run).annotate(has_notes=has_notes(model))
        noted = rows.values_list("has_notes", flat=True).first()
        look = None if noted is None else (None, noted)
    else:
        look = _look.first(run=run.pk, worker=run.worker, model=model, **limits)
    if look is None:
        raise RunCancelledError("The run was cancelled.")
    spent, has_failed = look
    asked_by_operator = run.requested_by is not None and run.requested_by.is_staff
    if not asked_by_operator and may_be_overspent(spent):
        over = overspent(run.session)
        if over is not None:
            raise MustWaitError(over.sentence, code=OVER_BUDGET, until=over.frees_at)
    summarizer.looked_at = started
    summarizer.admit(run.worker, first_is_clear=not has_failed)
    return summarizer


@compiled_read
def _look(
    *, run: UUID, worker: UUID, model: str, session: UUID, owner: int | None, since: datetime
) -> QuerySet[Any, Any]:
    """Return whether a run still runs, what the hour came to, and whether a breaker has notes."""
    spent = column_of_spent(session=session, owner=owner, since=since)
    row = CompactionRun.objects.filter(
        pk=run, status=CompactionRun.Status.RUNNING, worker=worker
    ).annotate(spent=spent, has_notes=has_notes(model))
    return row.values_list("spent", "has_notes")
