"""What halving records of its calls, what it estimates, and what it makes without the model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compaction.engine.parameters import Profile
from compaction.engine.protocols import PlanFacts
from compaction.engine.strategies.base import plans_from_tail
from compaction.engine.strategies.bisect import (
    BisectStrategy,
    BisectSummary,
)
from compaction.engine.strategies.halving import (
    cut_to_tokens,
    estimate_calls,
    forced_truncation,
    is_clearly_too_large,
)
from compaction.engine.types import (
    Item,
    SummarizerOverflow,
    SummaryAnswer,
    SummaryFailed,
    SummaryJob,
    SummaryRequest,
    ToolCall,
)
from tests.fakes.summarizers import Refusing, Scripted, Sized, WordCounter, plain

ANSWER = SummaryAnswer(text="one two", input_tokens=70, output_tokens=2, model="small-1", cost=0.25)


def summarise(items, summarizer, *, clock=None, previous="", **changes):
    changes.setdefault("fallback", "truncate")
    more = {"clock": clock} if clock else {}
    return BisectSummary(
        profile=Profile(**changes), summarizer=summarizer, counter=WordCounter(), **more
    ).run(items, previous=previous)


class NoMerges(Refusing):
    """Takes up to five messages, and no merge; each answer has three words."""

    def summarize(self, request):
        self.requests.append(request)
        if request.kind == "merge" or len(request.items) > 5:
            raise SummarizerOverflow("too long")
        return SummaryAnswer(text=f"part from {request.items[0].id}", cost=0.5)


# --- steps ----------------------------------------------------------------------------------------


def test_a_step_says_what_the_summariser_said():
    (step,) = summarise(plain(7), Scripted(script=[ANSWER])).steps
    assert (step.input_tokens, step.output_tokens) == (70, 2)
    assert (step.output, step.model, step.cost) == ("one two", "small-1", 0.25)
    assert (step.outcome, step.error, step.is_call) == ("ok", "", True)
    assert (step.message_count, step.first, step.last) == (7, 1, 7)


def test_a_refused_call_costs_nothing_and_has_the_size_of_what_was_sent():
    refused, *_ = summarise(plain(10), NoMerges(), previous="a b c").steps
    assert (refused.input_tokens, refused.output_tokens, refused.cost) == (103, 0, 0.0)
    assert (refused.outcome, refused.error) == ("overflow", "too long")
    assert (refused.output, refused.model) == ("", "")


def test_a_merge_has_two_texts_and_their_size():
    *_, merge, _ = summarise(plain(10), NoMerges()).steps
    assert (merge.kind, merge.message_count, merge.input_tokens) == ("merge", 2, 6)
    assert (merge.first, merge.last) == (None, None)


def test_a_step_lasts_from_the_call_to_its_answer_in_milliseconds():
    times = iter([10.0, 12.5])
    (step,) = summarise(plain(3), Refusing(), clock=lambda: next(times)).steps
    assert step.duration_ms == 2500


def test_a_text_made_without_a_call_takes_no_time_and_costs_nothing():
    times = iter([1.0, 2.0])
    _, made = summarise(plain(2), Refusing(most=1), clock=lambda: next(times)).steps
    assert (made.is_call, made.duration_ms, made.cost) == (False, 0, 0.0)
    assert (made.outcome, made.parent, made.depth) == ("truncated", 1, 0)


def test_the_outcome_has_the_cost_of_all_its_calls():
    outcome = summarise(plain(10), NoMerges())
    assert (outcome.cost, outcome.model_calls) == (1.0, 4)


def test_leaves_and_halvings_are_counted_apart_from_merges():
    outcome = summarise(plain(10), Refusing(most=3), bisect_min_messages=2)
    # 10 -> 5, 5 -> 2, 3, 2, 3: four parts, two halvings deep.
    assert (outcome.leaf_count, outcome.split_depth) == (4, 2)
    one = summarise(plain(3), Refusing())
    assert (one.leaf_count, one.split_depth) == (1, 0)


def test_the_cap_itself_may_be_used_up():
    # Three calls for two halves and their merge, one that was refused.
    assert summarise(plain(10), Refusing(most=5), max_model_calls=4).model_calls == 4
    with pytest.raises(SummaryFailed, match="its cap of 3 model calls"):
        summarise(plain(10), Refusing(most=5), max_model_calls=3)


def test_a_cut_off_answer_says_so_in_its_step():
    cut = SummaryAnswer(text="half a sen", finish_reason="length")
    refused, *_ = summarise(plain(2), Scripted(script=[cut])).steps
    assert (refused.outcome, refused.error) == (
        "truncated",
        "The answer was cut off at the output limit.",
    )


def test_an_implausible_answer_does_not_count():
    echo = SummaryAnswer(text="User: where is it?\nAssistant: In Rotterdam.")
    with pytest.raises(SummaryFailed, match="went on with the dialogue") as failed:
        summarise(plain(3), Scripted(script=[echo]))
    assert failed.value.code == "bad_answer"


# --- made without the model -----------------------------------------------------------------------


@pytest.mark.parametrize("target", [6, 700])
def test_two_summaries_that_fit_together_are_joined_whole(target):
    outcome = summarise(
        plain(10), NoMerges(), target_summary_tokens=700, merge_target_tokens=target
    )
    assert outcome.text == "part from 1\n\npart from 6"
    assert outcome.truncated
    made = outcome.steps[-1]
    assert (made.kind, made.outcome, made.is_call) == ("merge", "truncated", False)
    assert (made.output, made.output_tokens) == (outcome.text, 6)


def test_two_summaries_that_do_not_fit_together_are_shortened():
    outcome = summarise(plain(10), NoMerges(), target_summary_tokens=700, merge_target_tokens=5)
    assert "Shortened by force at level 1" in outcome.text


def test_a_fallback_text_is_a_step_with_its_size():
    items = [Item(id=1, role="user", tokens=50, text="We decided to ship version 4.0. " * 8)]
    outcome = summarise(items, Refusing(most=0), fallback="extractive")
    made = outcome.steps[-1]
    assert (made.is_call, made.output) == (False, outcome.text)
    forced = summarise(plain(2, tokens=10), Refusing(most=1)).steps[-1]
    assert forced.input_tokens == 20
    assert forced.output_tokens == WordCounter().count(forced.output)


def test_forced_truncation_uses_its_smallest_budget_up():
    request = SummaryRequest(kind="chunk", items=tuple(plain(200)), target_tokens=16)
    assert WordCounter().count(forced_truncation(request, counter=WordCounter(), depth=0)) == 128


class Letters:
    """One token for so many letters or fewer."""

    def __init__(self, size: int = 1) -> None:
        self.size = size

    def count(self, text: str) -> int:
        return -(-len(text) // self.size)


@pytest.mark.parametrize(
    ("text", "tokens", "counter", "expected"),
    [
        ("abc", 3, Letters(), "abc"),
        ("abcd", 3, Letters(), "abc"),
        ("abcd", 1, Letters(), "a"),
        ("abcd", 0, Letters(), ""),
        ("", 3, Letters(), ""),
        ("x" * 32, 2, Letters(16), "x" * 32),
        ("x" * 33, 2, Letters(16), "x" * 32),
        ("x" * 16, 1, Letters(15), "x" * 15),
    ],
)
def test_the_longest_head_within_the_budget_is_kept(text, tokens, counter, expected):
    assert cut_to_tokens(text, tokens, counter) == expected


# --- estimates ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "expected"), [(125, False), (126, True)])
def test_a_call_is_saved_where_it_is_more_than_a_quarter_too_large(tokens, expected):
    assert is_clearly_too_large(tokens, 100) is expected


def test_what_fits_exactly_takes_one_call():
    assert estimate_calls(plain(10), 100, Profile()) == 1
    assert estimate_calls(plain(10), 99, Profile()) == 4
    assert estimate_calls(plain(10), 100, Profile(), previous_tokens=1) == 4


def test_a_call_that_is_saved_is_not_estimated():
    assert estimate_calls(plain(10), 60, Profile(planned_split=True)) == 3
    # Without halving, no call is saved: it is made, refused, and its text made by force.
    never = Profile(planned_split=True, bisect_enabled=False)
    assert estimate_calls(plain(10), 60, never) == 1


@pytest.mark.parametrize("count", [4, 5])
def test_no_more_is_halved_than_the_profile_lets(count):
    profile = Profile(bisect_min_messages=4)
    summarizer = Sized(limit=25)
    summarise(plain(count), summarizer, bisect_min_messages=4)
    # Four are not halved. Five are, into two and three; three do not fit, and are forced.
    assert len(summarizer.requests) == (1 if count == 4 else 4)
    assert estimate_calls(plain(count), 25, profile) == len(summarizer.requests)


# --- the strategy ---------------------------------------------------------------------------------


def job(items, **more) -> SummaryJob:
    return SummaryJob(items=tuple(items), counter=WordCounter(), **more)


def test_the_plan_is_that_of_the_profiles_cut():
    profile = Profile(cut="last_n", keep_last_n=2)
    plan = BisectStrategy().plan(plain(4)[:1], profile, PlanFacts(room=lambda: 100))
    assert [item.id for item in plan.keep] == [1]


def test_the_estimate_has_calls_and_tokens():
    profile = Profile(target_summary_tokens=700)
    found = BisectStrategy().estimate(job(plain(10), previous="a b c"), profile, None)
    assert (found.calls, found.input_tokens, found.output_tokens) == (1, 103, 700)
    # The summary that comes before makes the first part too large.
    assert BisectStrategy().estimate(job(plain(10), previous="a"), profile, 100).calls == 4
    without = BisectStrategy().estimate(job(plain(10)), profile, 100)
    assert (without.calls, without.input_tokens) == (1, 100)


def test_nothing_takes_no_call():
    found = BisectStrategy().estimate(job([]), Profile(), 100)
    assert (found.calls, found.input_tokens, found.output_tokens) == (0, 0, 0)


def test_the_outcome_says_how_it_was_made():
    read = ToolCall(id="c", name="read", arguments='{"path": "a.py"}')
    items = [*plain(9), Item(id=10, role="assistant", tokens=10, tool_calls=(read,))]
    steps = []
    outcome = BisectStrategy().run(
        job(items, previous="before"),
        Profile(ledger=False, quality_gate=False),
        Refusing(most=5),
        steps.append,
    )
    assert outcome.algorithm == "bisect_v1"
    assert outcome.metadata == {"leaf_count": 2, "split_depth": 1}
    assert outcome.prompt_version == BisectStrategy.version != ""
    assert "700" in outcome.prompt
    assert outcome.files_read == ("a.py",)
    assert tuple(steps) == outcome.steps
    assert len(steps) == 4


def test_its_summariser_is_asked_and_the_newest_items_are_enough_for_its_plan():
    assert BisectStrategy().uses_summarizer is True
    assert plans_from_tail(BisectStrategy())


@pytest.mark.parametrize(("fallback", "holds"), [("extractive", True), ("truncate", False)])
def test_clauses_that_were_chosen_without_an_answer_hold_the_summary_before_them(fallback, holds):
    class Overflowing(Refusing):
        def summarize(self, request):
            raise SummarizerOverflow("too long")

    said = [f"The tent number {n} has pole {n} and stands at lake {n}." for n in range(40)]
    job = SummaryJob(
        items=tuple(replace(item, text=text) for item, text in zip(plain(40), said, strict=True)),
        counter=WordCounter(),
        previous="The car stands in the yard of the mill. Nobody may open the third gate at night.",
    )
    profile = Profile(fallback=fallback, ledger=False, quality_gate=False, target_summary_tokens=60)
    outcome = BisectStrategy().run(job, profile, Overflowing(), lambda step: None)
    assert outcome.holds_earlier is holds
    assert "Nobody may open the third gate at night." in outcome.text
