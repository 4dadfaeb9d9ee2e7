"""Halving with a ledger and a gate: what is asked again, what is recorded, what is joined."""

from __future__ import annotations

import pytest

from compaction.engine.fidelity.gate import NOT_A_SUMMARY, UNSUPPORTED
from compaction.engine.parameters import Profile
from compaction.engine.strategies.bisect import GATE, BisectStrategy, BisectSummary
from compaction.engine.strategies.prompts import CHUNK_TITLE
from compaction.engine.types import (
    Item,
    SummarizerOverflow,
    SummaryAnswer,
    SummaryFailed,
    SummaryJob,
    SummaryRequest,
)
from tests.fakes.summarizers import Refusing, Scripted, WordCounter

REPLY = "Sure! You should take the night train; shall I book it for you now?"
GOOD = (
    "## Goal\nOrder PX-4471 goes to Hamburg by Friday.\n## State\nThe user wants order PX-4471 and "
    "invoice IN-2093 kept together; the parcel lies in Rotterdam."
)
ITEMS = tuple(
    Item(
        id=number,
        role="user" if number % 2 else "assistant",
        text="Order PX-4471 goes to Hamburg by Friday. Keep invoice IN-2093 with order PX-4471. "
        f"The parcel lies in Rotterdam since day {number}.",
        tokens=25,
        position=number * 1_000_000,
    )
    for number in range(1, 21)
)
GATED = Profile(target_summary_tokens=200)


def run(*answers, profile=GATED, kept=()):
    """Return the outcome, the steps and the requests of a run with these answers in turn."""
    summarizer = Scripted(script=[SummaryAnswer(text=text, model="m") for text in answers])
    steps = []
    job = SummaryJob(items=ITEMS, counter=WordCounter(), kept=kept)
    outcome = BisectStrategy().run(job, profile, summarizer, steps.append)
    return outcome, steps, summarizer.requests


def test_a_refused_answer_is_asked_for_once_more_and_recorded():
    outcome, steps, requests = run(REPLY, GOOD)
    assert [(step.kind, step.outcome, step.is_call, step.depth) for step in steps][:2] == [
        ("chunk", "ok", True, 0),
        (GATE, "rejected", False, 0),
    ]
    assert NOT_A_SUMMARY in [step.code for step in steps]
    assert [(step.kind, step.depth) for step in steps if step.is_call] == [("chunk", 0)] * 2
    assert steps[1].output == REPLY
    assert (len(requests), requests[1].reinforced) == (2, True)
    assert requests[1].missing
    assert "PX-4471 goes to Hamburg" in outcome.text
    assert "night train" not in outcome.text
    # It is the model's text, and not chosen sentences.
    assert outcome.writer == ""


def test_a_second_answer_that_does_not_count_ends_in_chosen_sentences():
    outcome, steps, requests = run(REPLY, "")
    assert len(requests) == 2
    assert steps[-1].outcome == "rejected"
    assert "night train" not in outcome.text
    assert "PX-4471" in outcome.text
    assert outcome.writer == "extractive"


def test_numbers_that_nobody_wrote_end_in_chosen_sentences_however_many():
    invented = "## Goal\nOrder ZZ-9981 of 98,765 euro goes to KX-2207 by 2031-01-02."
    outcome, steps, requests = run(invented)
    assert UNSUPPORTED in [step.code for step in steps if step.outcome == "rejected"]
    assert (len(requests), outcome.writer) == (2, "extractive")
    assert "ZZ-9981" in requests[1].missing or "ZZ-9981" in str(requests[1])
    assert "ZZ-9981" not in outcome.text
    assert "PX-4471" in outcome.text


def test_a_part_with_invented_numbers_gives_way_to_chosen_sentences():
    class Small(Scripted):
        def summarize(self, request):
            if len(request.items) > 10:
                raise SummarizerOverflow("context_length_exceeded")
            return super().summarize(request)

    text = "Order ZZ-9981 goes to KX-2207 with the invoice QQ-5512."
    job = SummaryJob(items=ITEMS, counter=WordCounter())
    summarizer = Small(script=[SummaryAnswer(text=text, model="m")])
    outcome = BisectStrategy().run(job, GATED, summarizer, lambda step: None)
    assert "ZZ-9981" not in outcome.text
    assert "PX-4471" in outcome.text


@pytest.mark.parametrize("start", ["<!DOCTYPE html><html><body>", '{"error": {"message": "'])
def test_a_page_of_a_gateway_fails_the_run_however_long_it_is(start):
    page = start + " ".join(f"worker {number} could not be reached" for number in range(60))
    with pytest.raises(SummaryFailed, match="text of an error"):
        run(page)


def test_where_no_call_made_the_text_nothing_is_asked_again():
    engine = BisectSummary(profile=GATED, summarizer=Refusing(), counter=WordCounter())
    assert engine.ask_again(("PX-4471",)) == ""
    engine.reject("code", "a sentence", "a text")
    assert engine.steps == ()


@pytest.mark.parametrize(("ledger", "cites", "target"), [(True, True, 80), (False, False, 200)])
def test_prose_that_cites_is_asked_for_beside_a_ledger_only(ledger, cites, target):
    newest = (Item(id=99, role="user", text="And now?", position=99_000_000, tokens=2),)
    profile = Profile(target_summary_tokens=200, ledger=ledger)
    outcome, _, requests = run(GOOD, profile=profile, kept=newest)
    assert (requests[0].cites, requests[0].target_tokens) == (cites, target)
    assert requests[0].kept == (newest if cites else ())
    assert outcome.prompt.startswith(CHUNK_TITLE)
    assert ("Answer with the text alone." in outcome.prompt) == cites


class Halves(Refusing):
    """Answers halves with texts of so many words, and merges with "merged" or not at all."""

    def __init__(self, words: int, *, merges: bool = True) -> None:
        super().__init__(most=10)
        self.words, self.merges = words, merges

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        super().summarize(request)
        if request.texts:
            if not self.merges:
                raise SummarizerOverflow("too long")
            return SummaryAnswer(text="merged")
        return SummaryAnswer(text=" ".join(f"w{n}{len(self.requests)}" for n in range(self.words)))


def halved(words, *, prose_tokens, merges=True):
    summarizer = Halves(words, merges=merges)
    engine = BisectSummary(
        profile=Profile(target_summary_tokens=prose_tokens or 40, bisect_min_messages=2),
        summarizer=summarizer,
        counter=WordCounter(),
        prose_tokens=prose_tokens,
    )
    outcome = engine.run(ITEMS)
    merges_made = [step for step in engine.steps if step.kind == "merge"]
    # Only what a model wrote, or what was joined of its texts, can be asked for again.
    assert bool(engine.ask_again(("w1",))) == merges
    return outcome, merges_made


@pytest.mark.parametrize(
    ("words", "calls"),
    # Two halves of twenty words have room in forty, two of twenty-one have not.
    [(20, False), (21, True)],
)
def test_prose_that_has_room_is_joined_without_a_call(words, calls):
    outcome, merges = halved(words, prose_tokens=40)
    assert [step.is_call for step in merges] == [calls]
    assert (outcome.text == "merged") == calls
    assert not outcome.truncated


def test_without_citations_two_texts_are_merged_by_the_model():
    outcome, merges = halved(3, prose_tokens=0)
    assert (outcome.text, [step.is_call for step in merges]) == ("merged", [True])


def test_a_merge_that_no_model_can_make_is_marked_as_cut():
    outcome, merges = halved(30, prose_tokens=40, merges=False)
    assert outcome.truncated
    assert [step.outcome for step in merges] == ["overflow", "truncated"]
