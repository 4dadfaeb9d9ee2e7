"""Plug-ins as a third party writes them: nothing of the product knows their names.

Two strategies (one asks the summariser in steps of its own, one asks nobody), a cut, a trigger and
a rendering; below them, those that break their contract.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from compaction.engine.parameters import Profile
from compaction.engine.policy.groups import groups
from compaction.engine.protocols import PlanFacts
from compaction.engine.strategies.base import plan_by_cut
from compaction.engine.types import (
    CallEstimate,
    Facts,
    Item,
    Outcome,
    Plan,
    Step,
    Summarizer,
    SummaryFailed,
    SummaryJob,
    SummaryRequest,
)

HERE = "tests.compaction.toy_plugins"
SETTING = {
    "STRATEGIES": {"minutes": f"{HERE}.Minutes", "telegram": f"{HERE}.Telegram"},
    "CUTS": {"whole_turns": f"{HERE}.keep_whole_turns"},
    "TRIGGERS": {"wordy": f"{HERE}.Wordy"},
    "RENDERINGS": {"briefing": f"{HERE}.Briefing"},
}
# So many messages of the conversation go into one paragraph of the minutes.
PARAGRAPH_MESSAGES = 8
AGENDA = "agenda"
PARAGRAPH = "paragraph of the minutes"
FAIR_COPY = "fair copy of the minutes"
PARAGRAPH_PROMPT = "You take the minutes of a meeting. Write one paragraph about this part."
FAIR_COPY_PROMPT = "You are the secretary. Write a fair copy of the paragraphs, in their order."


class Minutes:
    """An agenda made here, a paragraph for each of its points, and a fair copy of them all."""

    uses_summarizer = True
    version = "minutes-3"

    def plan(self, items: Sequence[Item], profile: Profile, facts: PlanFacts) -> Plan:
        return plan_by_cut(items, profile, facts)

    def estimate(self, job: SummaryJob, profile: Profile, limit: int | None) -> CallEstimate:
        points = len(_points(job.items))
        return CallEstimate(
            calls=points + 1 if points else 0,
            input_tokens=sum(item.tokens for item in job.items),
            output_tokens=(points + 1) * 100,
        )

    def run(
        self,
        job: SummaryJob,
        profile: Profile,
        summarizer: Summarizer,
        on_step: Callable[[Step], None],
    ) -> Outcome:
        points = _points(job.items)
        steps = [_agenda(job, points)]
        on_step(steps[0])
        for point in points:
            request = SummaryRequest(
                kind=PARAGRAPH, items=point, instructions=job.instructions, prompt=PARAGRAPH_PROMPT
            )
            steps.append(_asked(request, summarizer, key=len(steps) + 1, parent=1))
            on_step(steps[-1])
        texts = tuple(step.output for step in steps[1:])
        request = SummaryRequest(
            kind=FAIR_COPY, texts=texts, previous=job.previous, prompt=FAIR_COPY_PROMPT
        )
        steps.append(_asked(request, summarizer, key=len(steps) + 1, parent=1))
        on_step(steps[-1])
        text = steps[-1].output
        return Outcome(
            text=text,
            items=job.items,
            chunk_count=len(points),
            max_depth=1,
            truncated=False,
            input_tokens=sum(item.tokens for item in job.items),
            output_tokens=job.counter.count(text),
            model_calls=len(points) + 1,
            steps=tuple(steps),
            algorithm="minutes_v3",
            prompt=FAIR_COPY_PROMPT,
            prompt_version=self.version,
            metadata={"points": [len(point) for point in points], "chair": "nobody"},
            files_read=("agenda.txt",),
            files_modified=("minutes/2026-11-28.md",),
        )


class Telegram:
    """The first words of every message, and a stop; nobody is asked."""

    uses_summarizer = False
    version = "telegram-1"

    def plan(self, items: Sequence[Item], profile: Profile, facts: PlanFacts) -> Plan:
        return plan_by_cut(items, profile, facts)

    def estimate(self, job: SummaryJob, profile: Profile, limit: int | None) -> CallEstimate:
        return CallEstimate(calls=0, input_tokens=0, output_tokens=0)

    def run(
        self,
        job: SummaryJob,
        profile: Profile,
        summarizer: Summarizer,
        on_step: Callable[[Step], None],
    ) -> Outcome:
        words = [" ".join(item.text.split()[:3]) for item in job.items]
        text = " STOP ".join([*([job.previous] if job.previous else []), *words])
        return Outcome(
            text=text,
            items=job.items,
            chunk_count=1,
            max_depth=0,
            truncated=False,
            input_tokens=sum(item.tokens for item in job.items),
            output_tokens=job.counter.count(text),
        )


def keep_whole_turns(items: Sequence[Item], profile: Profile, facts: PlanFacts) -> Plan:
    """Keep the last two turns whole, from their question on."""
    starts = [index for index, item in enumerate(items) if item.role == "user"]
    start = starts[-2] if len(starts) > 1 else 0
    return Plan(summarise=tuple(items[:start]), keep=tuple(items[start:]))


class Wordy:
    """More than six messages came, of more than so many tokens on average."""

    reason = "wordy"
    mode = "inline"
    least_messages = 6
    tokens_a_message = 20

    def is_due(self, profile: Profile, facts: Facts) -> bool:
        found = self.distance(profile, facts)
        return found is not None and found[1] >= found[0]

    def distance(self, profile: Profile, facts: Facts) -> tuple[int, int] | None:
        if facts.messages <= self.least_messages:
            return None
        return self.tokens_a_message, facts.tokens // facts.messages


class Briefing:
    """Each summary as a user's message, and the assistant's word that it has read it."""

    merges_system = False
    acknowledgement = "I have read it and go on from there."

    def messages(self, summaries: Sequence[str]) -> list[dict[str, Any]]:
        sent = []
        for text in summaries:
            sent.append({"role": "user", "content": f"For your information:\n{text}"})
            sent.append({"role": "assistant", "content": self.acknowledgement})
        return sent


def _points(items: Sequence[Item]) -> list[tuple[Item, ...]]:
    """Return the items in parts of about the same length; groups stay whole."""
    points: list[tuple[Item, ...]] = []
    for group in groups(items):
        if points and len(points[-1]) < PARAGRAPH_MESSAGES:
            points[-1] += group.items
        else:
            points.append(group.items)
    return points


def _agenda(job: SummaryJob, points: Sequence[tuple[Item, ...]]) -> Step:
    output = "\n".join(f"{number}. {point[0].text[:20]}" for number, point in enumerate(points, 1))
    return Step(
        key=1,
        parent=None,
        kind=AGENDA,
        depth=0,
        order=1,
        first=job.items[0].id,
        last=job.items[-1].id,
        message_count=len(job.items),
        input_tokens=sum(item.tokens for item in job.items),
        output_tokens=job.counter.count(output),
        is_call=False,
        output=output,
    )


def _asked(request: SummaryRequest, summarizer: Summarizer, *, key: int, parent: int) -> Step:
    started = time.monotonic()
    answer = summarizer.summarize(request)
    if not answer.text.strip():
        raise SummaryFailed("bad_answer", "The secretary fell asleep.")
    items = request.items
    return Step(
        key=key,
        parent=parent,
        kind=request.kind,
        depth=1,
        order=key,
        first=items[0].id if items else None,
        last=items[-1].id if items else None,
        message_count=len(items) or len(request.texts),
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
        duration_ms=round((time.monotonic() - started) * 1000),
        output=answer.text,
        model=answer.model,
        cost=answer.cost,
        request=request,
    )


# --- those that break their contract --------------------------------------------------------------


class Raising(Telegram):
    def run(self, *args: Any) -> Outcome:
        raise ZeroDivisionError("no messages to divide by")


class Empty(Telegram):
    def run(self, *args: Any) -> Outcome:
        return replace(super().run(*args), text=" \n")


class Longer(Telegram):
    def run(self, *args: Any) -> Outcome:
        return replace(super().run(*args), text="more and more words " * 2000)


class Nothing(Telegram):
    def run(self, *args: Any) -> Any:
        return None


class WithoutItems(Telegram):
    def run(self, *args: Any) -> Outcome:
        return replace(super().run(*args), items=())


class NewestFirst(Telegram):
    def run(self, *args: Any) -> Outcome:
        outcome = super().run(*args)
        return replace(outcome, items=outcome.items[::-1])


class HalfAGroup(Telegram):
    """Says that it read up to a tool call, and not its result."""

    def run(self, job: SummaryJob, *args: Any) -> Outcome:
        outcome = super().run(job, *args)
        call = next(index for index, item in enumerate(job.items) if item.tool_calls)
        return replace(outcome, items=outcome.items[: call + 1])


class Unstorable(Telegram):
    def run(self, *args: Any) -> Outcome:
        return replace(super().run(*args), metadata={"self": object()})


class AsksAllTheSame(Telegram):
    def run(self, job: SummaryJob, profile: Profile, summarizer: Summarizer, *args: Any) -> Outcome:
        summarizer.summarize(SummaryRequest(kind="chunk", items=job.items))
        raise AssertionError("the summariser answered")


class Silent(Minutes):
    """Reports no step."""

    def run(self, job: SummaryJob, profile: Profile, summarizer: Summarizer, *args: Any) -> Outcome:
        outcome = super().run(job, profile, summarizer, lambda step: None)
        return replace(outcome, steps=())


class PlansNothing(Telegram):
    def plan(self, *args: Any) -> Any:
        raise KeyError("plan")


class PlansOthers(Telegram):
    def plan(self, items: Sequence[Item], *args: Any) -> Plan:
        return Plan(summarise=tuple(items[1:]), keep=())


class CannotEstimate(Telegram):
    def estimate(self, *args: Any) -> Any:
        raise ValueError("no idea")


class WithoutRun:
    uses_summarizer = False
    version = "1"
    plan = estimate = Telegram.plan


def keep_nothing(items: Sequence[Item], profile: Profile, facts: PlanFacts) -> Plan:
    return Plan(summarise=tuple(items), keep=())


def cut_behind_call(items: Sequence[Item], profile: Profile, facts: PlanFacts) -> Plan:
    """Part the last call from its results."""
    calls = [index for index, item in enumerate(items) if item.tool_calls]
    cut = calls[-1] + 1 if calls else len(items) // 2
    return Plan(summarise=tuple(items[:cut]), keep=tuple(items[cut:]))


def cut_nowhere(items: Sequence[Item], profile: Profile, facts: PlanFacts) -> Any:
    return None


class Failing(Wordy):
    def is_due(self, profile: Profile, facts: Facts) -> bool:
        raise RuntimeError("the scales are broken")

    distance = is_due  # type: ignore[assignment]


class Limitless(Wordy):
    def distance(self, profile: Profile, facts: Facts) -> tuple[int, int] | None:
        return 0, 0


class Someday(Wordy):
    mode = "someday"


class Mute(Briefing):
    def messages(self, summaries: Sequence[str]) -> list[dict[str, Any]]:
        return []


class AssistantFirst(Briefing):
    def messages(self, summaries: Sequence[str]) -> list[dict[str, Any]]:
        return super().messages(summaries)[::-1]


class Calling(Briefing):
    def messages(self, summaries: Sequence[str]) -> list[dict[str, Any]]:
        return [{"role": "tool", "tool_call_id": "x", "content": text} for text in summaries]


class Stuttering(Briefing):
    def messages(self, summaries: Sequence[str]) -> list[dict[str, Any]]:
        raise OSError("no paper")
