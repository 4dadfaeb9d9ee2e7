"""An answer that is cut off: asked for with all the room first, and halved only then."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine.profile import PRESETS
from compaction.engine.strategies.bisect import BisectStrategy
from compaction.engine.strategies.branch_summary import BranchSummary
from compaction.engine.strategies.iterative import IterativeStrategy
from compaction.engine.types import SummaryAnswer, SummaryJob
from tests.fakes.summarizers import Refusing, WordCounter, plain, size_of

BY_NAME = {"bisect": BisectStrategy(), "iterative": IterativeStrategy()}
PLAIN = {"quality_gate": False, "ledger": False, "fallback": "truncate"}
HALF = SummaryAnswer(text="half of a sen", finish_reason="length")


@dataclass
class Roomy(Refusing):
    """Is cut off above `short` messages, and with all its room above `most`."""

    short: int = 0

    def summarize(self, request):
        self.requests.append(request)
        most = self.most if request.whole_room else self.short
        if size_of(request) > most:
            return replace(HALF, had_whole_room=request.whole_room)
        return SummaryAnswer(text=self.answer, had_whole_room=request.whole_room)

    @property
    def rooms(self) -> list[bool]:
        return [request.whole_room for request in self.requests]


def summarised(summarizer, count, preset, **changes):
    made = replace(PRESETS[preset], **PLAIN | changes)
    steps: list = []
    job = SummaryJob(items=tuple(plain(count)), counter=WordCounter())
    outcome = BY_NAME[made.strategy].run(job, made, summarizer, steps.append)
    assert outcome.model_calls == len(summarizer.requests) == sum(s.is_call for s in steps)
    return outcome, steps


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_one_more_call_is_enough_for_34_messages_in_every_preset(preset):
    summarizer = Roomy()
    outcome, steps = summarised(summarizer, 34, preset)
    assert (summarizer.sizes, summarizer.rooms) == ([34, 34], [False, True])
    assert [(step.outcome, step.parent) for step in steps] == [("truncated", None), ("ok", None)]
    assert (outcome.text, outcome.chunk_count, outcome.truncated) == ("s", 1, False)


def test_one_more_call_is_enough_for_a_branch_that_is_left():
    summarizer = Roomy()
    job = SummaryJob(items=tuple(plain(34)), counter=WordCounter())
    BranchSummary().run(job, PRESETS["bisect"], summarizer, lambda step: None)
    assert (summarizer.sizes, summarizer.rooms) == ([34, 34], [False, True])


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_what_is_cut_off_with_all_the_room_is_halved_and_asked_for_with_it_at_once(preset):
    summarizer = Roomy(most=5)
    outcome, steps = summarised(summarizer, 10, preset, bisect_min_messages=2)
    assert summarizer.sizes == [10, 10, 5, 5, 2]
    assert summarizer.rooms == [False, True, True, True, True]
    assert [step.outcome for step in steps] == ["truncated", "truncated", "ok", "ok", "ok"]
    # The halves hang at the call that was too large for good.
    assert [step.parent for step in steps] == [None, None, 2, 2, 2]
    assert (outcome.chunk_count, outcome.truncated) == (3, False)


def test_a_model_that_had_all_its_room_is_not_asked_the_same_again():
    class Spent(Roomy):
        def summarize(self, request):
            return replace(super().summarize(request), had_whole_room=True)

    summarizer = Spent(short=5)
    summarised(summarizer, 10, "bisect", bisect_min_messages=2)
    assert summarizer.sizes == [10, 5, 5, 2]


def test_a_merge_that_is_cut_off_is_asked_for_with_all_the_room_too():
    class ShortMerges(Refusing):
        def summarize(self, request):
            answer = super().summarize(request)
            is_short = request.kind == "merge" and not request.whole_room
            return HALF if is_short else answer

    summarizer = ShortMerges(most=10)
    outcome, steps = summarised(summarizer, 20, "bisect")
    assert summarizer.sizes == [20, 10, 10, 2, 2]
    assert [r.whole_room for r in summarizer.requests] == [False, False, False, False, True]
    assert [step.outcome for step in steps] == ["overflow", "ok", "ok", "truncated", "ok"]
    assert (outcome.text, outcome.truncated) == ("s", False)


@given(count=st.integers(2, 60), short=st.integers(0, 60), longer=st.integers(0, 60))
def test_room_costs_one_call_more_than_halving_alone(count, short, longer):
    """Whatever a model can write: the calls of halving with all the room, and one."""
    asked, halved = Roomy(short=short, most=short + longer), Refusing(most=short + longer)
    for summarizer in (asked, halved):
        summarised(summarizer, count, "bisect", bisect_min_messages=2)
    assert len(asked.requests) - len(halved.requests) == (count > short)
