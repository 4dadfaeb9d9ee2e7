"""From a text to a finished summary: the ledger, the gate, the measure, and where lines come from.

No answer of a model leaves a run without a summary: one that fails the gate is asked for once more
with what is missing, then gets a ledger that has it, then gives way to chosen sentences. Each
refusal is a step with its reason (docs/decisions/0028-a-gate-that-never-blocks.md).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from compaction.engine.extractive.composition import POOL_TARGETS, keep_best
from compaction.engine.extractive.material import Material
from compaction.engine.extractive.selection import weigh
from compaction.engine.extractive.summarizer import ExtractiveSummarizer, language_of_request
from compaction.engine.extractive.units import speakers_of
from compaction.engine.fidelity.alignment import Cited, take_citations, trace
from compaction.engine.fidelity.covered import Covered
from compaction.engine.fidelity.gate import (
    BELOW_YARDSTICK,
    CARRIED_LOST,
    IDENTIFIERS_LOST,
    NOT_A_SUMMARY,
    TOO_LONG,
    GateLimits,
    Rejection,
    rejections,
    takes_in,
)
from compaction.engine.fidelity.measure import Findings, Quality, measure_against
from compaction.engine.fidelity.replies import reply_instead
from compaction.engine.parameters import Profile
from compaction.engine.provenance import Origin, SourcedLine
from compaction.engine.strategies.attribution import attributed, without_old_values
from compaction.engine.strategies.ledger import PROSE_SHARE, RULES_SHARE, asked_for, with_ledger
from compaction.engine.strategies.measuring import covered_by, material_of, yardstick_text
from compaction.engine.strategies.prompts import message_number
from compaction.engine.strategies.shortening import newest_within
from compaction.engine.strategies.sizing import Engine, longest_stored, too_long, within_size
from compaction.engine.types import (
    Outcome,
    Summarizer,
    SummaryFailed,
    SummaryJob,
    SummaryRequest,
)

logger = logging.getLogger(__name__)

NEW_SHARE = 0.6
"""Of what is new, at most, what a summary grows by; more than chosen sentences alone, because prose
and ledger share it."""
MENDED_BY_LEDGER = frozenset({IDENTIFIERS_LOST, BELOW_YARDSTICK, CARRIED_LOST})
"""Refusals of a prose that is right and leaves out too much: a ledger names what is missing."""
LARGEST_SHARE = 0.8
"""Of its input, at most, what a summary with its ledger takes."""


def chooses_sentences(summarizer: Summarizer) -> bool:
    """Whether a summariser is no model: it needs no ledger, and nothing it says is invented."""
    return bool(getattr(summarizer, "chooses_sentences", False))


def prose_size(profile: Profile, summarizer: Summarizer) -> int:
    """Return the tokens of prose to ask for beside a ledger; 0 where there is none."""
    if not profile.ledger or chooses_sentences(summarizer):
        return 0
    return max(1, int(PROSE_SHARE * profile.target_summary_tokens))


def finished(
    outcome: Outcome,
    engine: Engine,
    job: SummaryJob,
    profile: Profile,
    summarizer: Summarizer,
    *,
    longest: int = 0,
) -> Outcome:
    """Return a strategy's outcome with the text that is to be stored.

    `longest` are the tokens that a model's text may have; 0 for twice the size asked for. Chosen
    sentences stay as they are. The outcome of a model gets its ledger and passes the gate.
    """
    if chooses_sentences(summarizer):
        return replace(outcome, holds_earlier=True)
    limit = longest or longest_stored(profile)
    if not (profile.ledger or profile.quality_gate or _is_chosen(engine, profile)):
        found, was_refused = within_size(outcome, engine, job, limit=limit)
        return _counted(found, engine, job, (TOO_LONG,)) if was_refused else found
    finishing = _Finishing(
        outcome=outcome,
        engine=engine,
        job=job,
        profile=profile,
        material=material_of(job),
        longest=limit,
    )
    return finishing.run()


def _is_chosen(engine: Engine, profile: Profile) -> bool:
    """Whether no answer of the model is in a text: none was asked for, or none counted.

    Then clauses are chosen once from everything, also from the summary before: those that stand in
    for each half would lose its facts, and it would have to be sent beside them.
    """
    asked = any(step.is_call and step.outcome == "ok" for step in engine.steps)
    return not asked and profile.fallback == "extractive"


def with_fidelity(outcome: Outcome, job: SummaryJob, profile: Profile) -> Outcome:
    """Return an outcome, of whatever strategy, with its units, its lines' sources and its quality.

    What cannot be told stays empty: nothing here fails a run.
    """
    try:
        material = material_of(job)
        lines = outcome.lines or _traced(outcome, material)
        kept = POOL_TARGETS * profile.target_summary_tokens
        units = outcome.units or keep_best(material.candidates, kept)
        quality = outcome.quality or _measured_alone(outcome, material, job)
    except Exception:
        logger.exception("The quality of a summary could not be measured")
        return outcome
    return replace(
        outcome,
        units=units,
        lines=lines,
        quality=quality,
        holds_earlier=outcome.holds_earlier or _takes_in(outcome, quality, job, profile),
    )


def _takes_in(outcome: Outcome, quality: Quality | None, job: SummaryJob, profile: Profile) -> bool:
    """Whether an outcome says what the summary before it says; of a hook's nobody knows."""
    if outcome.is_digest or outcome.from_hook:
        return False
    lost = profile.max_carried_lost
    return takes_in(outcome.text, job.previous, quality, most_lost=lost)


def _measured_alone(outcome: Outcome, material: Material, job: SummaryJob) -> Quality:
    """Return the quality of a text that passed no gate."""
    text = outcome.text
    return measure_against(
        text,
        covered_by(job, material),
        named_before=job.named_before,
        counter=job.counter,
        # What was chosen without a model is the yardstick itself.
        yardstick_text=text if outcome.units else yardstick_text(text, material, job),
    )


def _traced(outcome: Outcome, material: Material) -> tuple[SourcedLine, ...]:
    """Return the lines with their sources: of chosen clauses, which are nearly always all known."""
    if not outcome.units:
        return trace(outcome.text, material.candidates)
    lines = trace(outcome.text, weigh(outcome.units))
    if all(line.origin is Origin.EXACT for line in lines):
        return lines
    return trace(outcome.text, weigh([*material.units, *outcome.units]))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """A text on its way: the prose as it was answered, and the whole with its quality."""

    prose: str
    text: str
    cited: dict[int, tuple[int, ...]] = field(default_factory=dict)
    quality: Quality | None = None
    refused: tuple[Rejection, ...] = ()
    has_ledger: bool = False

    @property
    def missing(self) -> tuple[str, ...]:
        """What the refusals say is missing, each thing once."""
        return tuple(dict.fromkeys(text for one in self.refused for text in one.missing))


@dataclass(slots=True, kw_only=True)
class _Finishing:
    """The way of one model's answer through ledger and gate."""

    outcome: Outcome
    engine: Engine
    job: SummaryJob
    profile: Profile
    material: Material
    longest: int = 0
    _rejections: list[str] = field(default_factory=list)
    _cut: bool = False
    _read: Covered | None = None

    def run(self) -> Outcome:
        """Return the outcome with the first text that passes; the last one needs no leave."""
        if _is_chosen(self.engine, self.profile):
            # Nothing of a model is there to stand beside a ledger.
            return self._chosen()
        draft = self._draft(self.outcome.text, ledger=self.profile.ledger)
        if draft.refused:
            self._record(draft)
            draft = self._second(draft)
        is_smaller = self.job.counter.count(draft.prose) < self.outcome.input_tokens
        if is_smaller and [one.code for one in draft.refused] == [TOO_LONG]:
            # No other answer was to be had: its length alone is no reason to do without it.
            draft = self._draft(draft.prose, ledger=self.profile.ledger, last=True)
        only_lacks = MENDED_BY_LEDGER.issuperset(one.code for one in draft.refused)
        if draft.refused and (only_lacks or not self.profile.ledger):
            self._record(draft)
            asked = draft.missing if only_lacks else ()
            draft = self._draft(draft.prose, ledger=True, last=only_lacks, asked=asked)
        if draft.refused:
            self._record(draft)
            return self._chosen()
        return self._outcome(draft)

    def _second(self, first: _Draft) -> _Draft:
        """Return what the model says when it is told what was missing, if anything."""
        try:
            told = first.missing or tuple(one.sentence for one in first.refused)
            prose = self.engine.ask_again(told)
        except SummaryFailed as failure:
            logger.info("A refused summary could not be asked for again: %s", failure)
            prose = ""
        return self._draft(prose, ledger=self.profile.ledger, last=True) if prose else first

    def _draft(
        self, answer: str, *, ledger: bool, last: bool = False, asked: Sequence[str] = ()
    ) -> _Draft:
        job, limit = self.job, self.longest
        is_too_long = job.counter.count(answer) > limit
        said: list[str] = []
        prose = answer
        if is_too_long and last:
            prose, self._cut = self.engine.shortened(answer, limit), True
        if ledger:
            people = speakers_of(job.items)
            prose = without_old_values(prose, self.material.units)
            prose, said = attributed(prose, self.material.candidates, people=people)
        cited = take_citations(prose.strip(), self._numbers())
        prose = cited.text
        text = self._with_ledger(prose, said, asked) if ledger else prose
        draft = _Draft(prose=answer, text=text, cited=self._positions(cited), has_ledger=ledger)
        refused = [too_long(limit)] if is_too_long and not last else []
        if not self.profile.quality_gate:
            return replace(draft, refused=tuple(refused))
        quality = self._quality(text)
        try:
            found = list(self._refusals(prose, text, quality))
            found += self._reply(answer, found)
        except Exception:
            # A measure that fails must fail no run: the text passes unjudged.
            logger.exception("A summary could not be judged")
            found = []
        refused = [*found, *refused]
        return replace(draft, quality=quality, refused=tuple(refused))

    def _quality(self, text: str) -> Quality | None:
        try:
            return self._measured(text, yardstick=yardstick_text(text, self.material, self.job))
        except Exception:
            logger.exception("The quality of a summary could not be measured")
            return None

    def _covered(self) -> Covered:
        self._read = self._read or covered_by(self.job, self.material)
        return self._read

    def _measured(self, text: str, *, yardstick: str) -> Quality:
        return measure_against(
            text,
            self._covered(),
            named_before=self.job.named_before,
            counter=self.job.counter,
            yardstick_text=yardstick,
        )

    def _refusals(self, prose: str, text: str, quality: Quality | None) -> tuple[Rejection, ...]:
        """Return what the gate says of the prose, and of the whole text by its figures."""
        if quality is None:
            return ()
        limits = GateLimits(
            min_user_identifiers=self.profile.min_user_identifiers,
            min_score_share=self.profile.min_score_share,
            max_carried_lost=self.profile.max_carried_lost,
        )
        if text != prose:
            # The ledger is in the conversation's language, whatever the prose is in.
            alone = Findings(prose, self._covered())
            quality = replace(
                quality, language=alone.language, language_matches=alone.language_matches()
            )
        invented = (one for one in quality.unsupported if not self._covered().composes(one))
        return rejections(prose, replace(quality, unsupported=tuple(invented)), limits=limits)

    def _reply(self, answer: str, refused: Sequence[Rejection]) -> list[Rejection]:
        """Return the rejection of an answer that goes on with the conversation, said once.

        The prose alone is looked at: its ledger names whatever it leaves out.
        """
        job = self.job
        request = SummaryRequest(
            kind="chunk", items=job.items, previous=job.previous, kept=job.kept
        )
        known = any(one.code == NOT_A_SUMMARY for one in refused)
        sentence = "" if known else reply_instead(answer, request)
        return [Rejection(code=NOT_A_SUMMARY, sentence=sentence)] if sentence else []

    def _record(self, draft: _Draft) -> None:
        for one in draft.refused:
            self._rejections.append(one.code)
            self.engine.reject(one.code, one.sentence, draft.prose)

    def _with_ledger(self, prose: str, said: Sequence[str], asked: Sequence[str]) -> str:
        job, target = self.job, self.profile.target_summary_tokens
        new = sum(item.tokens for item in job.items)
        whole = new + (job.counter.count(job.previous) if job.previous else 0)
        limit = min(target, whole - new + int(NEW_SHARE * new))
        spent = job.counter.count(prose)
        most = max(0, int(LARGEST_SHARE * whole) - spent)
        room = max(0, min(limit - spent, most))
        rules_room = min(int(RULES_SHARE * target), most - room)
        rules_room = min(rules_room, longest_stored(self.profile) - spent - room)
        return with_ledger(
            prose,
            self.material.candidates,
            room=room,
            rules_room=rules_room,
            count=job.counter.count,
            language=self._language(),
            always=said,
            asked=(*asked_for(job.instructions), *asked),
        )

    def _numbers(self) -> frozenset[str]:
        positions = {item.position for item in self.job.items}
        positions |= {unit.position for unit in self.material.units}
        return frozenset(message_number(position) for position in positions if position > 0)

    def _positions(self, cited: Cited) -> dict[int, tuple[int, ...]]:
        by_number = {message_number(item.position): item.position for item in self.job.items}
        by_number |= {message_number(unit.position): unit.position for unit in self.material.units}
        return {
            index: tuple(by_number[number] for number in numbers if number in by_number)
            for index, numbers in cited.numbers.items()
        }

    def _language(self) -> str:
        return language_of_request(
            SummaryRequest(kind="chunk", items=self.job.items, previous=self.job.previous)
        )

    def _chosen(self) -> Outcome:
        """Return chosen sentences: the last way, which always leads to a summary."""
        summarizer = ExtractiveSummarizer(counter=self.job.counter)
        answer = summarizer.summarize(
            SummaryRequest(
                kind="chunk",
                items=self.job.items,
                previous=self.job.previous,
                units=self.job.units,
                instructions=self.job.instructions,
                target_tokens=self.profile.target_summary_tokens,
            )
        )
        made = replace(
            self.outcome,
            text=answer.text,
            units=answer.units,
            writer=summarizer.name,
            holds_earlier=True,
        )
        return self._counted(made)

    def _outcome(self, draft: _Draft) -> Outcome:
        kept = keep_best(
            self.material.candidates, POOL_TARGETS * self.profile.target_summary_tokens
        )
        text, most = draft.text, longest_stored(self.profile)
        if self.job.counter.count(text) > most:
            # The ledger's headings stand behind a prose that takes all there is.
            text, self._cut = newest_within(text, most, self.job.counter), True
        made = replace(
            self.outcome,
            text=text,
            units=kept,
            lines=trace(text, self.material.candidates, cited=draft.cited),
            quality=draft.quality,
            truncated=self.outcome.truncated or self._cut,
            holds_earlier=draft.has_ledger,
        )
        taken = _takes_in(made, draft.quality, self.job, self.profile)
        return self._counted(replace(made, holds_earlier=made.holds_earlier or taken))

    def _counted(self, outcome: Outcome) -> Outcome:
        return _counted(outcome, self.engine, self.job, self._rejections)


def _counted(
    outcome: Outcome, engine: Engine, job: SummaryJob, rejections: Sequence[str]
) -> Outcome:
    """Return an outcome with all calls so far."""
    steps = engine.steps
    return replace(
        outcome,
        steps=steps,
        model_calls=sum(step.is_call for step in steps),
        cost=sum(step.cost for step in steps),
        output_tokens=job.counter.count(outcome.text),
        rejections=tuple(rejections),
    )
