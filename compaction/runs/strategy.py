"""A strategy at work inside a run: what it is given, and which outcome of it can be stored.

Whatever it does wrong ends as SummaryFailed with a sentence; what the summariser or the database
raise goes through as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from chatapp.selectors import pinned_messages
from compaction.branches.context_builder import limits_of
from compaction.branches.snapshot import BranchSnapshot
from compaction.engine.parameters import Profile
from compaction.engine.policy.reasons import RunCode
from compaction.engine.registry import STRATEGIES
from compaction.engine.strategies.acceptance import fault_of_outcome
from compaction.engine.tool_results import limited_results
from compaction.engine.types import (
    Item,
    Outcome,
    Summarizer,
    SummarizerError,
    SummarizerOverflow,
    SummaryFailed,
    SummaryJob,
)
from compaction.runs.steps import NoSummarizer, RunSummarizer, StepWriter, Work
from compaction.selectors import running_row
from compaction.summaries.storing import STRATEGY_VERSION
from compaction.summaries.summarizer import (
    WatchedSummarizer,
    admitted,
    storable,
    summarising_model,
    summarizer_for,
)

logger = logging.getLogger(__name__)
STRATEGY_ERROR = RunCode.STRATEGY_ERROR


def summarise(
    work: Work,
    snapshot: BranchSnapshot,
    items: Sequence[Item],
    *,
    previous: str,
    digest: str = "",
    strategy: str,
) -> Outcome:
    """Return what the strategy of that name makes of the items."""
    run, profile = work.run, snapshot.profile
    uses_summarizer = STRATEGIES.get(strategy).uses_summarizer
    inner: Summarizer = NoSummarizer()
    limit = None
    if uses_summarizer:
        inner = summarizer_for(
            snapshot.session, profile, deadline=work.deadline, cancelled=work.must_stop
        )
        limit = _result_chars(snapshot)
    summarizer = admitted(run, profile, inner)
    if uses_summarizer:
        running_row(run).update(result_chars=limit)
    job = SummaryJob(
        items=tuple(limited_results(items, limit)),
        counter=snapshot.model.counter,
        previous=previous,
        digest=digest,
        instructions=run.instructions,
        sent_again=_sent_again(snapshot, items),
    )
    writer = StepWriter(work, inner if uses_summarizer else None)
    try:
        asking = RunSummarizer(summarizer, work, writer)
        outcome = _run_strategy(strategy, job, profile, asking, writer)
    finally:
        if isinstance(summarizer, WatchedSummarizer):
            summarizer.leave()
    return _checked(strategy, outcome, items, whole=run.replaces_id is not None)


def _run_strategy(
    name: str, job: SummaryJob, profile: Profile, summarizer: Summarizer, writer: StepWriter
) -> Outcome:
    """Return the strategy's outcome; its own errors are told from those of calls and storing."""
    try:
        return STRATEGIES.get(name).run(job, profile, summarizer, writer.write)
    except SummaryFailed:
        raise
    except (SummarizerError, SummarizerOverflow) as error:
        raise SummaryFailed(RunCode.SUMMARISER_ERROR, str(error)) from error
    except Exception as error:
        if error is writer.raised:
            raise
        logger.exception("The strategy %r failed", name)
        raise SummaryFailed(
            STRATEGY_ERROR, f"The strategy {name!r} failed ({type(error).__name__}: {error})."
        ) from error
    finally:
        writer.write_unreported()


def _checked(name: str, outcome: Outcome, items: Sequence[Item], *, whole: bool) -> Outcome:
    """Return an outcome that can be stored, with what is stored of its strategy."""
    if fault := fault_of_outcome(outcome, items, whole=whole):
        raise SummaryFailed(STRATEGY_ERROR, f"The strategy {name!r} {fault}.")
    text = storable(outcome.text)
    if not text.strip():
        raise SummaryFailed(RunCode.BAD_ANSWER, f"The strategy {name!r} returned an empty text.")
    strategy = STRATEGIES.get(name)
    writer = outcome.writer or ("" if strategy.uses_summarizer else name)
    metadata = {"strategy": name, STRATEGY_VERSION: strategy.version} | dict(outcome.metadata)
    return replace(
        outcome,
        text=text,
        algorithm=outcome.algorithm or name,
        writer=writer,
        metadata=metadata,
    )


def _sent_again(snapshot: BranchSnapshot, items: Sequence[Item]) -> frozenset[int]:
    """Return the positions of pinned messages among the items: they are sent verbatim, too."""
    pinned = pinned_messages(snapshot.branch, through=items[-1].position)
    after = pinned.filter(position__gt=snapshot.state.cursor)
    return frozenset(after.values_list("position", flat=True))


def _result_chars(snapshot: BranchSnapshot) -> int | None:
    """Return how many characters of a tool result the summariser reads; None for all."""
    profile = snapshot.profile
    model = summarising_model(snapshot.session, profile)
    if not profile.limit_tool_results or model.context_window <= 0:
        return None
    return limits_of(profile).max_chars(model.context_window)
