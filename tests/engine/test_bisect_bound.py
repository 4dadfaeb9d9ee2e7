"""Halving that may not ask any more, and halving with several models: what is done, and by whom."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatapp.llm.encodings import Chars4Counter
from compaction.engine.extractive.summarizer import ExtractiveSummarizer
from compaction.engine.parameters import Profile
from compaction.engine.policy.groups import legal_cuts
from compaction.engine.strategies.acceptance import fault_of_outcome
from compaction.engine.strategies.bisect import BisectStrategy, BisectSummary
from compaction.engine.types import (
    Item,
    NoMoreCallsError,
    SummarizerOverflow,
    SummaryAnswer,
    SummaryFailed,
    SummaryJob,
    SummaryRequest,
)
from tests.engine.strategies import conversations
from tests.facts import CODE_PATTERN, code
from tests.fakes.summarizers import Refusing, WordCounter

PROFILE = Profile(
    bisect_min_messages=2, target_summary_tokens=400, ledger=False, quality_gate=False
)


def items_of(count):
    return tuple(
        Item(id=n, role="user", text=f"{code(n)} was said", tokens=4, position=n)
        for n in range(1, count + 1)
    )


@dataclass
class Bounded(Refusing):
    """Says which messages it read, in their order, and may be asked so many times."""

    calls: int = 10_000

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        if len(self.requests) >= self.calls:
            raise NoMoreCallsError
        super().summarize(request)
        said = [item.text.partition(" ")[0] for item in request.items]
        return SummaryAnswer(text=f"Summary of {' '.join([*said, *request.texts])}.")


def summary_of(items, summarizer, profile=PROFILE):
    return BisectSummary(profile=profile, summarizer=summarizer, counter=WordCounter()).run(items)


@pytest.mark.parametrize(
    ("calls", "read"),
    # Sixteen, eight and four are refused; two are read, the next two, merged; and so on.
    [(4, 2), (5, 4), (6, 4), (7, 4), (8, 6), (9, 8), (10, 8), (11, 8)],
)
def test_what_was_done_is_a_summary_of_the_oldest_messages(calls, read):
    outcome = summary_of(items_of(16), Bounded(most=2, calls=calls))
    assert [item.id for item in outcome.items] == list(range(1, read + 1))
    for number in range(1, 17):
        assert (code(number) in outcome.text) == (number <= read)
    assert outcome.model_calls == calls


@pytest.mark.parametrize("calls", [0, 1, 2, 3])
def test_where_nothing_is_done_it_says_that_it_may_not_ask(calls):
    with pytest.raises(NoMoreCallsError):
        summary_of(items_of(16), Bounded(most=2, calls=calls))


def test_with_calls_enough_all_is_read():
    outcome = summary_of(items_of(16), Bounded(most=2))
    assert len(outcome.items) == 16


@given(items=conversations(), calls=st.integers(min_value=0, max_value=12))
@settings(deadline=None)
def test_what_is_left_out_is_a_legal_cut_whatever_was_said(items, calls):
    if not items:
        return
    job = SummaryJob(items=tuple(items), counter=WordCounter())
    steps = []
    try:
        outcome = BisectStrategy().run(job, PROFILE, Bounded(most=2, calls=calls), steps.append)
    except (NoMoreCallsError, SummaryFailed):
        return
    assert fault_of_outcome(outcome, items, whole=False) == ""
    left = len(items) - len(outcome.items)
    assert not left or len(outcome.items) in legal_cuts(items)
    assert outcome.metadata.get("messages_left", 0) == left


def test_a_text_that_the_gate_refuses_at_the_bound_gives_way_to_chosen_sentences():
    gated = Profile(ledger=True, quality_gate=True)
    text = "Sure! You should take the night train; shall I book it for you now?"

    @dataclass
    class Once(Refusing):
        def summarize(self, request):
            if self.requests:
                raise NoMoreCallsError
            super().summarize(request)
            return SummaryAnswer(text=text)

    job = SummaryJob(items=items_of(30), counter=WordCounter())
    outcome = BisectStrategy().run(job, gated, Once(), lambda step: None)
    assert "night train" not in outcome.text
    assert len(outcome.items) == 30
    assert re.search(CODE_PATTERN, outcome.text)


# --- several models -------------------------------------------------------------------------------


@dataclass
class Several:
    """Models by name with the most messages that each takes, or the texts that each answers."""

    models: list[tuple[str, int | str]]
    asked: list[str] = field(default_factory=list)

    @property
    def models_left(self) -> int:
        return len(self.models)

    def use_another(self, passed_over: int) -> bool:
        if len(self.models) <= passed_over + 1:
            return False
        del self.models[passed_over]
        return True

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        name, takes = self.models[request.passed_over]
        self.asked.append(f"{name} {len(request.items) or 'merge'}")
        if isinstance(takes, str):
            return SummaryAnswer(text=takes, model=name)
        if len(request.items) > takes:
            raise SummarizerOverflow("too long")
        return SummaryAnswer(text=f"Summary by {name}.", model=name)

    def input_limit(self, target_tokens: int) -> int | None:
        return None


def test_what_cannot_be_halved_is_asked_of_the_next_larger_model_only():
    several = Several([("small", 1), ("middle", 1), ("large", 9)])
    outcome = summary_of(items_of(4), several)
    assert several.asked == [
        "small 4", "small 2", "middle 2", "large 2", "small 2", "middle 2", "large 2",
        "small merge",
    ]  # fmt: skip
    assert not outcome.truncated


def test_where_no_model_is_large_enough_it_is_shortened_here():
    several = Several([("small", 1), ("middle", 1)])
    assert summary_of(items_of(2), several).truncated
    assert several.asked == ["small 2", "middle 2"]


@pytest.mark.parametrize("answer", ["", ". . . .", "Error: bad gateway", "User: a\nUser: b"])
def test_a_model_whose_answers_are_of_no_use_is_asked_twice_and_never_again(answer):
    several = Several([("small", answer), ("large", 9)])
    outcome = summary_of(items_of(8), several)
    assert several.asked == ["small 8", "small 8", "large 8"]
    assert outcome.text == "Summary by large."


def test_the_last_models_useless_answers_fail_the_run():
    several = Several([("small", ""), ("large", "....")])
    with pytest.raises(SummaryFailed) as failed:
        summary_of(items_of(8), several)
    assert failed.value.code == "bad_answer"
    assert several.asked == ["small 8", "small 8", "large 8", "large 8"]


def test_a_larger_model_of_no_use_leaves_the_text_to_be_shortened():
    several = Several([("small", 1), ("large", "")])
    assert summary_of(items_of(2), several).truncated
    assert several.asked == ["small 2", "large 2", "large 2"]


@dataclass
class Thinking(Several):
    """Models whose thoughts never end, but the last one's."""

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        answer = super().summarize(request)
        if len(self.models) > 1:
            return SummaryAnswer(text="", finish_reason="length", has_thoughts=True)
        return answer


def test_a_model_that_never_comes_to_its_text_gives_way_to_the_next():
    thinking = Thinking([("small", 99), ("large", 99)])
    outcome = summary_of(items_of(16), thinking)
    assert outcome.text == "Summary by large."
    assert len(outcome.items) == 16
    assert thinking.asked[-1] == "large 16"
    assert len(thinking.asked) <= 6


def test_merged_sentences_have_at_most_twice_the_size_of_a_summary():
    """Halves that are merged to a size of their own were stored at five times the target."""
    counter = Chars4Counter()
    texts = [
        " ".join(
            f"The {code(20 * row + n)} part {n} of shelf {row} was counted." for n in range(20)
        )
        for row in range(1, 31)
    ]
    items = tuple(
        Item(id=n, role="user", text=text, tokens=counter.count(text), position=n)
        for n, text in enumerate(texts, 1)
    )
    profile = Profile(bisect_min_messages=2, target_summary_tokens=100, merge_target_tokens=1_000)
    outcome = BisectStrategy().run(
        SummaryJob(items=items, counter=counter),
        profile,
        ExtractiveSummarizer(counter=counter, window=3_000),
        lambda step: None,
    )
    assert outcome.leaf_count > 1
    assert 100 < counter.count(outcome.text) <= 200
