"""What one worker does with one run: plan, summarise, check, store.

Model calls run outside transactions; each one's row is written before the next starts.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from django.db.models import F, QuerySet

from chatapp.llm.models import UnknownModelError
from chatapp.models import Message
from chatapp.selectors import pinned_messages, without_rules
from compaction.convert import read_items
from compaction.engine.bisect import BisectSummary, SummaryFailed
from compaction.engine.inputs import limited_results
from compaction.engine.protocols import Summarizer
from compaction.engine.types import Item, Outcome, Step
from compaction.engine.validation import does_not_shrink
from compaction.models import CompactionRun, CompactionStep, SessionSummary
from compaction.selectors import summaries_of
from compaction.services import runs
from compaction.services.errors import LostRaceError, OutOfTimeError, RunCancelledError
from compaction.services.leases import Lease
from compaction.services.precheck import REASON
from compaction.services.runs import OVERFLOW_AGAIN
from compaction.services.sending import limits_of
from compaction.services.situation import Situation, situation_of
from compaction.services.store import Sizes, store_new_version, store_summary
from compaction.summarizer import prompt_of, summarising_model, summarizer_for

logger = logging.getLogger(__name__)
Status, Trigger = CompactionRun.Status, CompactionRun.Trigger


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
        return not _is_running(self.run).exists()


def do_work(work: Work) -> None:
    """Do a claimed run's work; every failure that is not the worker's own end becomes its row."""
    run = work.run
    try:
        situation = situation_of(run.session, run.branch, profile=run.profile)
        if run.replaces is not None:
            _replace(work, situation, run.replaces)
        else:
            _extend(work, situation)
    except RunCancelledError:
        runs.reload(run)
    except LostRaceError as lost:
        runs.finish(run, Status.FAILED, code="lost_race", sentence=str(lost))
    except SummaryFailed as failure:
        fail(run, failure.code, str(failure))
    except OutOfTimeError as late:
        fail(run, "out_of_time", str(late))
    except UnknownModelError as unknown:
        fail(run, "unknown_model", str(unknown))
    except Exception as error:
        # A fault of ours must not fail the user's turn (rule 6), and must be seen (rule 10).
        logger.exception("Run %s failed", run.pk)
        fail(
            run,
            "internal_error",
            f"An unexpected error ended the run ({type(error).__name__}: {error}).",
        )


def fail(run: CompactionRun, code: str, sentence: str) -> None:
    """End a run as failed; automatic runs of the branch then wait for a while."""
    runs.finish(run, Status.FAILED, code=code, sentence=sentence)
    if run.status == Status.FAILED:
        runs.note_failure(run)


def _is_running(run: CompactionRun) -> QuerySet[CompactionRun]:
    return CompactionRun.objects.filter(pk=run.pk, status=Status.RUNNING, worker=run.worker)


def _extend(work: Work, situation: Situation) -> None:
    """Summarise what came since the last summary."""
    run = work.run
    foreseen = run.reason == REASON
    if run.trigger == Trigger.PROACTIVE and situation.decision is None and not foreseen:
        runs.finish(
            run,
            Status.SKIPPED,
            code="not_due",
            sentence="No trigger is due any more: another run has done the work.",
        )
        return
    plan = situation.plan(keep_last_n=run.keep_last_n, whole=run.reason == OVERFLOW_AGAIN)
    if not plan.summarise:
        runs.finish(
            run,
            Status.SKIPPED,
            code="nothing_to_compact",
            sentence="There is nothing to compact: all messages since the last summary are kept "
            "verbatim (keep_last_n, an open question, or a tool call with its results).",
        )
        return
    outcome = _summarise(work, situation, plan.summarise, previous=situation.previous_text)
    sizes = _sizes(situation, outcome)
    _must_shrink(outcome, sizes)
    store_summary(situation=situation, run=run, lease=work.lease, outcome=outcome, sizes=sizes)
    runs.reload(run)


def _replace(work: Work, situation: Situation, old: SessionSummary) -> None:
    """Summarise the messages of an older summary again (services/resummarize.py)."""
    if old.status != SessionSummary.Status.ACTIVE:
        runs.finish(
            work.run,
            Status.SKIPPED,
            code="not_active",
            sentence=f"The summary is {old.status} by now; there is nothing to replace.",
        )
        return
    items = read_items(Message.objects.filter(summary_links__summary=old).order_by("position"))
    if not items:
        runs.finish(
            work.run,
            Status.SKIPPED,
            code="nothing_to_compact",
            sentence="The summary has no source messages any more.",
        )
        return
    before = _continued_by(old)
    outcome = _summarise(
        work,
        situation,
        items,
        previous=before.summary_text if before else "",
    )
    counter = situation.model.counter
    tokens = counter.count(outcome.text)
    sizes = Sizes(
        before=old.tokens_before,
        after=old.tokens_after - old.summary_tokens + tokens,
        summary=tokens,
    )
    if problem := does_not_shrink(outcome.input_tokens, tokens):
        raise SummaryFailed("not_smaller", problem)
    store_new_version(
        situation=situation,
        run=work.run,
        lease=work.lease,
        outcome=outcome,
        sizes=sizes,
        old=old,
        previous=before,
    )
    runs.reload(work.run)


def _continued_by(old: SessionSummary) -> SessionSummary | None:
    """Return the summary that the old one continued, in its newest active version."""
    newest = summaries_of(old.branch).filter(covers_through__lt=old.covers_from).first()
    return newest or old.previous


def _summarise(
    work: Work, situation: Situation, items: tuple[Item, ...] | list[Item], *, previous: str
) -> Outcome:
    summarizer = summarizer_for(
        situation.session,
        situation.profile,
        deadline=work.deadline,
        cancelled=work.must_stop,
    )
    limit = _result_chars(situation)
    CompactionRun.objects.filter(pk=work.run.pk).update(result_chars=limit)
    engine = BisectSummary(
        profile=situation.profile,
        summarizer=summarizer,
        counter=situation.model.counter,
        on_step=_StepWriter(work, summarizer).write,
    )
    read = list(limited_results(items, limit))
    return engine.run(read, previous=previous, instructions=work.run.instructions)


def _result_chars(situation: Situation) -> int | None:
    """Return how many characters of a tool result the summariser reads; None for all."""
    profile = situation.profile
    model = summarising_model(situation.session, profile)
    if not profile.limit_tool_results or model.context_window <= 0:
        return None
    return limits_of(profile).max_chars(model.context_window)


class _StepWriter:
    """Stores every finished call and asks, before the next one, whether to go on."""

    def __init__(self, work: Work, summarizer: Summarizer) -> None:
        self._work = work
        self._summarizer = summarizer
        self._rows: dict[int, int] = {}

    def write(self, step: Step) -> None:
        """Store one step; raise when the run was cancelled, lost its lease or is out of time."""
        run = self._work.run
        row = CompactionStep.objects.create(
            run=run,
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
        if not _is_running(run).update(model_calls=F("model_calls") + int(step.is_call)):
            raise RunCancelledError("The run was cancelled.")
        self._work.lease.renew()
        if time.monotonic() > self._work.deadline:
            raise OutOfTimeError(
                "The run used up its time (COMPACTION_RUN_SECONDS); nothing was stored. "
                "A faster summariser or a larger window needs fewer calls."
            )

    def _prompt(self, step: Step) -> str:
        """Return the instruction that was sent; nobody is instructed to choose sentences."""
        if step.request is None or not step.is_call:
            return ""
        return prompt_of(self._summarizer, step.request)


def _texts(step: Step) -> list[str]:
    """Return the part of a call's input that is no stored message."""
    if step.request is None:
        return []
    previous = [step.request.previous] if step.request.previous else []
    return [*previous, *step.request.texts]


def _sizes(situation: Situation, outcome: Outcome) -> Sizes:
    """Return what the next request holds of summaries and history, before and after."""
    tokens = situation.model.counter.count(outcome.text)
    kept = situation.facts.tokens - sum(item.tokens for item in outcome.items)
    before = situation.summary_tokens + situation.facts.tokens
    others = situation.profile.summary_limit - 1
    staying = situation.summaries[-others:] if others else []
    last = outcome.items[-1].position
    # A pinned message is sent verbatim although it was summarised too.
    again = without_rules(pinned_messages(situation.branch, through=last))
    again = again.filter(position__gt=situation.state.cursor)
    pinned = sum(again.values_list("tokens", flat=True))
    after = sum(row.summary_tokens for row in staying) + tokens + kept + pinned
    return Sizes(before=before, after=after, summary=tokens)


def _must_shrink(outcome: Outcome, sizes: Sizes) -> None:
    """Refuse a text that is not smaller than what it was made of, or saves the request nothing."""
    problem = does_not_shrink(outcome.input_tokens, sizes.summary)
    if problem := problem or does_not_shrink(sizes.before, sizes.after):
        raise SummaryFailed("not_smaller", problem)
