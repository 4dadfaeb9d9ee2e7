"""Which summarisers are asked again, once an answer of theirs was of no use."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from compaction.engine.parameters import Profile
from compaction.engine.strategies.bisect import BisectSummary
from compaction.engine.strategies.calls import SummarizerCalls
from compaction.engine.types import SummarizerOverflow, SummaryAnswer, SummaryFailed, SummaryRequest
from tests.fakes.summarizers import Scripted, WordCounter, plain

TOO_LARGE = SummarizerOverflow("context_length_exceeded")
OK, EMPTY = SummaryAnswer(text="They spoke of it."), SummaryAnswer(text="")


@dataclass
class Needed(Scripted):
    """A summary has to come of it, whatever this answers; `known` to fail before this run."""

    known: bool = False

    def goes_on_without_model(self, *, if_known: bool = False) -> bool:
        return self.known or not if_known


def asked(summarizer: Scripted, messages: int = 8) -> list[int]:
    """Return the sizes of the calls that one run makes."""
    engine = BisectSummary(profile=Profile(), summarizer=summarizer, counter=WordCounter())
    engine.run(plain(messages))
    return summarizer.sizes


def test_one_that_is_known_to_fail_and_answered_this_run_is_asked_twice_again():
    """One answer of no use behind one that counts is a passing fault."""
    summarizer = Needed(script=[TOO_LARGE, OK, EMPTY, OK], known=True)
    assert asked(summarizer) == [8, 4, 4, 4, 2]


def test_one_that_is_known_to_fail_is_asked_once():
    assert asked(Needed(script=[EMPTY, OK], known=True)) == [8]


def test_one_that_fails_for_the_first_time_is_asked_twice_and_no_more():
    assert asked(Needed(script=[TOO_LARGE, EMPTY, EMPTY, OK])) == [8, 4, 4]
    assert asked(Needed(script=[EMPTY, OK])) == [8, 8]


def test_a_run_that_may_fail_gives_up_no_other_input():
    """A larger model that answers nothing of use is passed over; the others are asked as before."""
    calls = SummarizerCalls(
        profile=Profile(),
        summarizer=Scripted(script=[EMPTY]),
        counter=WordCounter(),
        on_step=lambda step: None,
        clock=lambda: 0.0,
    )
    request = SummaryRequest(kind="chunk", items=tuple(plain(2)), target_tokens=100)
    for _ in range(3):
        with pytest.raises(SummaryFailed):
            calls.ask(request, depth=1, parent=None)
    assert not calls.gave_up
