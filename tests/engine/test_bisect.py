"""Halving and merging: worked vectors."""

from __future__ import annotations

import pytest

from compaction.engine.parameters import Profile
from compaction.engine.strategies.bisect import (
    BisectStrategy,
    BisectSummary,
)
from compaction.engine.strategies.halving import cut_to_tokens, estimate_calls, forced_truncation
from compaction.engine.types import (
    Item,
    SummarizerError,
    SummarizerOverflow,
    SummaryAnswer,
    SummaryFailed,
    SummaryJob,
    SummaryRequest,
)
from tests.fakes.summarizers import Refusing, Scripted, Sized, WordCounter, plain

OK = SummaryAnswer(text="fine")


def engine(summarizer, **changes) -> BisectSummary:
    changes.setdefault("fallback", "truncate")
    return BisectSummary(profile=Profile(**changes), summarizer=summarizer, counter=WordCounter())


def summarise(items, summarizer, *, previous="", instructions="", **changes):
    return engine(summarizer, **changes).run(items, previous=previous, instructions=instructions)


VECTORS = [
    # N, M, min, calls in order, chunk_count, max_depth, truncated
    (10, 3, 2, [10, 5, 2, 3, 2, 5, 2, 3, 2, 2], 7, 3, False),
    (10, 3, 4, [10, 5, 2, 3, 2, 5, 2, 3, 2, 2], 7, 3, False),
    (16, 4, 4, [16, 8, 4, 4, 2, 8, 4, 4, 2, 2], 7, 3, False),
    (40, 10, 4, [40, 20, 10, 10, 2, 20, 10, 10, 2, 2], 7, 3, False),
    (8, 1, 2, [8, 4, 2, 2, 2, 4, 2, 2, 2, 2], 7, 3, True),
    (5, 1, 2, [5, 2, 3, 1, 2, 2, 2], 5, 3, True),
    (2, 1, 2, [2], 1, 0, True),
]


@pytest.mark.parametrize(
    ("count", "most", "smallest", "calls", "chunks", "depth", "truncated"),
    VECTORS,
    ids=[f"{v[0]}-at-most-{v[1]}-min-{v[2]}" for v in VECTORS],
)
def test_the_worked_vectors_hold(count, most, smallest, calls, chunks, depth, truncated):
    summarizer = Refusing(most=most)
    outcome = summarise(plain(count), summarizer, bisect_min_messages=smallest)
    assert summarizer.sizes == calls
    assert outcome.chunk_count == chunks
    assert outcome.max_depth == depth
    assert outcome.truncated is truncated
    assert outcome.model_calls == len(calls)


def test_one_call_is_enough_where_everything_fits():
    outcome = summarise(plain(10), Refusing())
    assert (outcome.chunk_count, outcome.max_depth, outcome.truncated) == (1, 0, False)
    assert outcome.text == "s"


def test_two_messages_at_depth_zero_are_cut_by_force():
    # Reference test (b): no halving allowed, the model takes one message.
    outcome = summarise(plain(2), Refusing(most=1), bisect_max_depth=0)
    assert outcome.truncated
    assert "message 1" in outcome.text


def test_an_error_that_is_no_overflow_ends_the_run_at_once():
    summarizer = Scripted(script=[SummarizerError("The server refused the key.")])
    with pytest.raises(SummaryFailed) as failed:
        summarise(plain(10), summarizer)
    assert failed.value.code == "summariser_error"
    assert "key" in str(failed.value)
    assert len(summarizer.requests) == 1


def test_no_items_are_no_summary():
    with pytest.raises(SummaryFailed) as failed:
        summarise([], Refusing())
    assert failed.value.code == "nothing_to_do"


def test_with_halving_switched_off_an_overflow_is_cut_by_force():
    summarizer = Refusing(most=3)
    assert summarise(plain(10), summarizer, bisect_enabled=False).truncated
    assert summarizer.sizes == [10]


def test_the_target_of_a_merge_is_its_own():
    summarizer = Refusing(most=5)
    summarise(plain(10), summarizer, target_summary_tokens=700, merge_target_tokens=300)
    assert [request.target_tokens for request in summarizer.requests] == [700, 700, 700, 300]


def test_the_left_half_comes_before_the_right_in_a_merge():
    class Naming(Refusing):
        def summarize(self, request):
            super().summarize(request)
            return SummaryAnswer(text=" ".join(str(i.id) for i in request.items) or "merged")

    summarizer = Naming(most=3)
    summarise(plain(7), summarizer, bisect_min_messages=2)
    merges = [request.texts for request in summarizer.requests if request.kind == "merge"]
    assert merges == [("4 5", "6 7"), ("1 2 3", "merged")]


def test_a_merge_that_is_refused_is_never_halved():
    class NoMerges(Refusing):
        def summarize(self, request):
            super().summarize(request)
            if request.kind == "merge":
                raise SummarizerOverflow("too long")
            return SummaryAnswer(text=f"part {request.items[0].id}")

    summarizer = NoMerges(most=5)
    outcome = summarise(plain(10), summarizer)
    assert [r.kind for r in summarizer.requests] == ["chunk", "chunk", "chunk", "merge"]
    assert outcome.truncated
    assert "part 1" in outcome.text
    assert "part 6" in outcome.text


def test_the_calls_of_a_run_are_capped():
    summarizer = Refusing(most=1)
    with pytest.raises(SummaryFailed) as failed:
        summarise(plain(64), summarizer, bisect_min_messages=2, max_model_calls=5)
    assert failed.value.code == "too_many_calls"
    assert "max_model_calls" in str(failed.value)
    assert len(summarizer.requests) == 5


def test_a_planned_split_saves_the_doomed_call():
    items = plain(10, tokens=40)
    doomed, planned = Sized(limit=250), Sized(limit=250)
    summarise(items, doomed)
    summarise(items, planned, planned_split=True)
    assert doomed.sizes == [10, 5, 5, 2]
    assert planned.sizes == [5, 5, 2]


def test_a_split_is_planned_only_where_the_input_is_clearly_too_large():
    summarizer = Sized(limit=350)
    summarise(plain(10, tokens=40), summarizer, planned_split=True)
    assert summarizer.sizes == [10, 5, 5, 2]


@pytest.mark.parametrize(
    "bad",
    [
        SummaryAnswer(text="   \n"),
        SummaryAnswer(text="", has_tool_calls=True),
        SummaryAnswer(text="Error: upstream connect error"),
        SummaryAnswer(text="half", finish_reason="content_filter"),
    ],
    ids=["empty", "tool call", "error text", "filtered"],
)
def test_a_bad_answer_is_asked_for_once_more_and_then_fails_the_run(bad):
    summarizer = Scripted(script=[bad])
    with pytest.raises(SummaryFailed) as failed:
        summarise(plain(3), summarizer)
    assert failed.value.code == "bad_answer"
    assert [request.reinforced for request in summarizer.requests] == [False, True]


def test_a_second_answer_that_counts_is_taken():
    summarizer = Scripted(script=[SummaryAnswer(text=""), OK])
    outcome = summarise(plain(3), summarizer)
    assert outcome.text == "fine"
    assert [step.outcome for step in outcome.steps] == ["error", "ok"]


def test_an_answer_that_was_cut_off_with_all_its_room_is_halved_like_an_overflow():
    cut = SummaryAnswer(text="half a sen", finish_reason="length", had_whole_room=True)
    outcome = summarise(plain(6), Scripted(script=[cut, OK, OK, OK]))
    assert outcome.text == "fine"
    assert not outcome.truncated
    assert [step.outcome for step in outcome.steps] == ["truncated", "ok", "ok", "ok"]


def test_a_cut_off_answer_never_becomes_the_summary():
    cut = SummaryAnswer(text="half a sen", finish_reason="length")
    outcome = summarise(plain(2), Scripted(script=[cut]))
    assert outcome.text != "half a sen"
    assert outcome.truncated


def test_the_previous_summary_goes_to_the_first_part_only():
    summarizer = Refusing(most=3)
    summarise(plain(6), summarizer, previous="before", bisect_min_messages=2)
    chunks = [request for request in summarizer.requests if request.kind == "chunk"]
    assert [(request.items[0].id, request.previous) for request in chunks] == [
        (1, "before"),
        (1, "before"),
        (4, ""),
    ]


def test_the_instructions_go_to_every_call():
    summarizer = Refusing(most=3)
    summarise(plain(6), summarizer, instructions="dates", bisect_min_messages=2)
    assert {request.instructions for request in summarizer.requests} == {"dates"}


def test_chosen_sentences_come_before_the_plain_head():
    items = [
        Item(id=n, role="user", tokens=50, text=f"We decided to ship version {n}.0 on Monday. " * 5)
        for n in range(1, 3)
    ]
    outcome = summarise(items, Refusing(most=1), fallback="extractive")
    assert outcome.truncated
    assert "Shortened by force" not in outcome.text
    assert "version" in outcome.text


def test_forced_truncation_keeps_the_head_and_says_so():
    request = SummaryRequest(kind="chunk", items=tuple(plain(200)), target_tokens=16)
    text = forced_truncation(request, counter=WordCounter(), depth=2)
    assert "level 2" in text
    assert "user: message 1\n" in text
    assert "message 200" not in text
    assert WordCounter().count(text) <= 128


def test_forced_truncation_loses_the_previous_summary_last():
    request = SummaryRequest(
        kind="chunk", items=tuple(plain(400)), previous="KEEP-ME", target_tokens=16
    )
    assert "KEEP-ME" in forced_truncation(request, counter=WordCounter(), depth=0)


def test_a_cut_never_splits_a_character():
    class Bytes4:
        def count(self, text: str) -> int:
            return -(-len(text.encode()) // 4)

    cut = cut_to_tokens("上下文压缩测试" * 50, 16, Bytes4())
    assert cut == ("上下文压缩测试" * 50)[:21]


def test_every_call_is_a_step_in_a_tree():
    outcome = summarise(plain(10), Refusing(most=3), bisect_min_messages=2)
    steps = outcome.steps
    assert [step.order for step in steps] == list(range(1, 11))
    assert [step.depth for step in steps] == [0, 1, 2, 2, 2, 1, 2, 2, 2, 1]
    assert [step.parent for step in steps] == [None, 1, 2, 2, 2, 1, 6, 6, 6, 1]
    assert [(step.first, step.last) for step in steps[:4]] == [(1, 10), (1, 5), (1, 2), (3, 5)]
    assert [step.kind for step in steps].count("merge") == 3


def test_a_text_made_by_force_is_a_step_that_is_no_call():
    outcome = summarise(plain(2), Refusing(most=1), bisect_min_messages=2)
    assert [(s.outcome, s.is_call) for s in outcome.steps] == [
        ("overflow", True),
        ("truncated", False),
    ]
    assert outcome.model_calls == 1


def test_the_listener_can_end_the_run_between_two_calls():
    class StopError(Exception):
        pass

    def stop(step):
        raise StopError

    summarizer = Refusing(most=3)
    machine = BisectSummary(
        profile=Profile(), summarizer=summarizer, counter=WordCounter(), on_step=stop
    )
    with pytest.raises(StopError):
        machine.run(plain(10))
    assert summarizer.sizes == [10]


def test_the_ratio_is_output_over_input():
    outcome = summarise(plain(5, tokens=10), Refusing(answer="one two three four five"))
    assert (outcome.input_tokens, outcome.output_tokens) == (50, 5)
    assert outcome.compression_ratio == 0.1


def test_the_previous_summary_is_part_of_the_input():
    assert summarise(plain(5, tokens=10), Refusing(), previous="a b c").input_tokens == 53


def test_without_a_known_window_one_call_is_expected():
    assert estimate_calls(plain(100), None, Profile()) == 1


class Bullets(BisectStrategy):
    """Asks for something else in the same way."""

    algorithm = "bullets"
    version = "bullets-1"
    prompts = {"chunk": "Write bullet points.", "merge": "Join the bullet points."}


def test_a_strategy_with_instructions_of_its_own_halves_and_merges_all_the_same():
    summarizer = Refusing(most=3)
    job = SummaryJob(items=tuple(plain(6)), counter=WordCounter())
    profile = Profile(bisect_min_messages=2, fallback="truncate")
    outcome = Bullets().run(job, profile, summarizer, lambda step: None)
    asked = [step.request.prompt for step in outcome.steps]
    assert asked == ["Write bullet points."] * 3 + ["Join the bullet points."]
    assert (outcome.algorithm, outcome.prompt_version) == ("bullets", "bullets-1")
    assert outcome.prompt == "Write bullet points."


THOUGHTS = SummaryAnswer(text="", finish_reason="length", end="cut")
NAMING = [
    Item(id=n, role="user" if n % 2 else "assistant", text=f"PX-{n}", position=n, tokens=10)
    for n in range(4471, 4491)
]
REPLY = SummaryAnswer(text="Sure! You should take the night train; shall I book it for you?")


def test_an_answer_without_a_text_is_asked_for_with_all_the_room_before_anything_is_halved():
    summarizer = Scripted(script=[THOUGHTS, OK])
    outcome = summarise(plain(10), summarizer)
    assert [request.whole_room for request in summarizer.requests] == [False, True]
    assert summarizer.sizes == [10, 10]
    assert [step.outcome for step in outcome.steps] == ["truncated", "ok"]
    assert outcome.text == "fine"


def test_the_room_that_was_needed_once_is_asked_for_in_the_whole_run():
    script = [THOUGHTS, SummarizerOverflow("too large"), OK]
    summarizer = Scripted(script=script)
    summarise(plain(10), summarizer)
    assert [request.whole_room for request in summarizer.requests] == [
        False,
        True,
        True,
        True,
        True,
    ]


def test_a_model_that_had_all_the_room_is_not_asked_the_same_again():
    spent = SummaryAnswer(text="", finish_reason="length", end="cut", had_whole_room=True)
    summarizer = Scripted(script=[spent, OK])
    summarise(plain(10), summarizer)
    assert summarizer.sizes == [10, 5, 5, 2]


def test_a_model_that_never_comes_to_its_text_is_asked_a_few_times():
    summarizer = Scripted(script=[THOUGHTS])
    outcome = summarise(plain(40), summarizer, fallback="extractive")
    assert len(summarizer.requests) == 4
    assert outcome.truncated
    assert outcome.text


def test_an_answer_to_the_last_question_ends_in_chosen_sentences():
    summarizer = Scripted(script=[REPLY])
    outcome = summarise(NAMING, summarizer, fallback="extractive", quality_gate=False)
    assert len(summarizer.requests) == 2
    assert [step.code for step in outcome.steps] == ["not_a_summary", "not_a_summary", ""]
    assert "night train" not in outcome.text
    assert "PX-4" in outcome.text


def test_a_second_try_may_be_a_summary():
    answer = SummaryAnswer(text="PX-4471 and PX-4480 were named by the user.")
    summarizer = Scripted(script=[REPLY, answer])
    outcome = summarise(NAMING, summarizer, quality_gate=False)
    assert [request.reinforced for request in summarizer.requests] == [False, True]
    assert outcome.text == answer.text


def test_an_unknown_end_of_a_whole_text_is_noted_at_its_step():
    answer = SummaryAnswer(text="It is all there.", finish_reason="weird", end="unknown")
    (step,) = summarise(plain(4), Scripted(script=[answer])).steps
    assert (step.outcome, "weird" in step.error) == ("ok", True)


@pytest.mark.parametrize(("ledger", "gate"), [(True, True), (True, False), (False, True)])
def test_the_prose_alone_is_judged_and_not_its_ledger(ledger, gate):
    profile = Profile(ledger=ledger, quality_gate=gate, target_summary_tokens=100)
    job = SummaryJob(items=tuple(NAMING), counter=WordCounter())
    outcome = BisectStrategy().run(job, profile, Scripted(script=[REPLY]), lambda step: None)
    assert "night train" not in outcome.text
    assert "PX-4" in outcome.text
    assert outcome.writer == "extractive"
    assert "not_a_summary" in {step.code for step in outcome.steps}
