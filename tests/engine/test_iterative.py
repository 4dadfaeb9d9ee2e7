"""One summary that is brought up to date, and the beginning of a turn that the cut parts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine.parameters import Profile
from compaction.engine.policy.cuts import keep_no_fewer_tokens
from compaction.engine.policy.groups import legal_cuts
from compaction.engine.profile import PRESETS
from compaction.engine.strategies.iterative import IterativeStrategy, IterativeSummary, turn_start
from compaction.engine.types import (
    Item,
    NoMoreCallsError,
    Outcome,
    Step,
    SummarizerError,
    SummarizerOverflow,
    SummaryAnswer,
    SummaryFailed,
    SummaryJob,
    SummaryRequest,
)
from tests.engine.strategies import conversations
from tests.engine.test_checkpoint_cut import LONG, items_of
from tests.fakes.summarizers import Scripted, WordCounter

CHECKPOINT = replace(PRESETS["checkpoint"], quality_gate=False, ledger=False)
HEADINGS = replace(CHECKPOINT, summary_style="headings")


@dataclass
class Writer:
    """Answers each kind of call with a text that says which it was, and keeps the requests."""

    most: int = 10_000
    fails_at: str = ""
    error: Exception | None = None
    requests: list[SummaryRequest] = field(default_factory=list)

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        self.requests.append(request)
        if request.kind == self.fails_at and self.error is not None:
            raise self.error
        if len(request.items) > self.most:
            raise SummarizerOverflow("context_length_exceeded")
        named = " ".join((*request.texts, *(item.text for item in request.items)))
        return SummaryAnswer(text=f"{request.kind.upper()} {request.previous} {named}".strip())

    def input_limit(self, target_tokens: int) -> int | None:
        return None

    @property
    def kinds(self) -> list[str]:
        return [request.kind for request in self.requests]


def item(number: int, role: str, text: str = "", **fields: Any) -> Item:
    said = text or f"{role[0]}{number}"
    return Item(id=number, role=role, text=said, position=number, tokens=40, **fields)


TALK = (
    item(1, "user"), item(2, "assistant"), item(3, "user"), item(4, "assistant"),
    item(5, "user"), item(6, "assistant"), item(7, "assistant"),
)  # fmt: skip


def job_of(items: tuple[Item, ...] = TALK, **fields: Any) -> SummaryJob:
    return SummaryJob(items=items, counter=WordCounter(), **({"parts_turn": True} | fields))


def made(
    summarizer: Any, job: SummaryJob, profile: Profile = CHECKPOINT
) -> tuple[Outcome, list[Step]]:
    steps: list[Step] = []
    outcome = IterativeStrategy().run(job, profile, summarizer, steps.append)
    return outcome, steps


# --- where a turn begins --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "tokens", "kept_from", "start"),
    [
        (LONG, 20_000, 3, 2),
        (LONG, 19_000, 4, None),
        (LONG, 19_001, 3, 2),
        ("u500 a800 u1200 a10 t3000 u5000 a8000 u4000 a2000", 20_000, 5, None),
        ("u500 a800 a1200 t3000 u5000 a8000 u4000 a2000", 20_000, 4, None),
        ("u10 a10 t30000", 20_000, 1, 0),
        ("u10 a10 t30000 a10", 20_000, 3, 0),
        ("u10 a10 t100 t100 a10 u50", 120, 4, 0),
        ("u10 a10 u10 a10", 20, 2, None),
        ("u5 a5 u21000", 20_000, 2, None),
        ("u10 a30 t10 a25000", 20_000, 3, 0),
    ],
)
def test_a_turn_is_parted_where_the_first_kept_message_is_no_question(
    shape, tokens, kept_from, start
):
    plan = keep_no_fewer_tokens(items_of(shape), tokens)
    assert len(plan.summarise) == kept_from
    parts_turn = plan.keep[0].role != "user"
    found = turn_start(plan.summarise, parts_turn=parts_turn)
    assert found == (kept_from if start is None else start)


def test_a_turn_that_began_before_the_messages_is_not_parted_again():
    assert turn_start((item(1, "assistant"), item(2, "assistant")), parts_turn=True) == 2


def test_a_question_between_a_call_and_its_result_begins_no_turn():
    items = items_of("u1 a1 t1 a1")
    late = (*items[:2], item(9, "user"), *items[2:])
    assert turn_start(late, parts_turn=True) == 0


@given(items=conversations(), parts=st.booleans())
def test_the_place_parts_no_call_from_its_result(items, parts):
    start = turn_start(items, parts_turn=parts)
    assert start in {0, len(items), *legal_cuts(items)}
    if start < len(items):
        assert parts
        assert items[start].role == "user"


# --- the two texts --------------------------------------------------------------------------------


def test_the_beginning_of_a_split_turn_stands_behind_the_history():
    writer = Writer()
    outcome, steps = made(writer, job_of())
    assert writer.kinds == ["chunk", "prefix"]
    assert [one.text for one in writer.requests[0].items] == ["u1", "a2", "u3", "a4"]
    assert [one.text for one in writer.requests[1].items] == ["u5", "a6", "a7"]
    assert outcome.text == (
        "CHUNK  u1 a2 u3 a4\n\n---\n\n**Turn Context (split turn):**\n\nPREFIX  u5 a6 a7"
    )
    assert outcome.items == TALK
    assert [(step.kind, step.key, step.parent, step.depth) for step in steps] == [
        ("chunk", 1, None, 0),
        ("prefix", 2, None, 0),
    ]
    assert (outcome.model_calls, outcome.chunk_count, outcome.steps) == (2, 2, tuple(steps))


def test_a_whole_turn_gets_one_text():
    for job, profile in (
        (job_of(parts_turn=False), CHECKPOINT),
        (job_of(), replace(CHECKPOINT, split_turns=False)),
    ):
        writer = Writer()
        outcome, _ = made(writer, job, profile)
        assert (writer.kinds, outcome.items) == (["chunk"], TALK)
        assert "Turn Context" not in outcome.text


def test_a_summary_before_is_brought_up_to_date_and_is_no_matter_of_the_turn():
    writer = Writer()
    made(writer, job_of(previous="OLD"))
    history, prefix = writer.requests
    assert (history.kind, history.previous) == ("update", "OLD")
    assert (prefix.kind, prefix.previous) == ("prefix", "")


def test_an_empty_history_carries_the_summary_before():
    writer = Writer()
    outcome, _ = made(writer, job_of(TALK[4:], previous="OLD words"))
    assert writer.kinds == ["prefix"]
    assert outcome.text == (
        "OLD words\n\n---\n\n**Turn Context (split turn):**\n\nPREFIX  u5 a6 a7"
    )
    assert outcome.items == TALK[4:]
    assert outcome.input_tokens == 2 + 3 * 40


def test_without_anything_before_the_turn_stands_alone():
    outcome, _ = made(Writer(), job_of(TALK[4:]))
    assert outcome.text == "**Turn Context (split turn):**\n\nPREFIX  u5 a6 a7"


def test_the_wishes_of_a_person_reach_both_calls():
    writer = Writer()
    made(writer, job_of(instructions="Keep the ports."))
    assert [request.instructions for request in writer.requests] == ["Keep the ports."] * 2


def test_each_text_is_halved_on_its_own():
    items = tuple(item(n, "user" if n in (1, 7) else "assistant") for n in range(1, 13))
    writer = Writer(most=5)
    outcome, steps = made(writer, job_of(items, previous="OLD"))
    assert writer.kinds == [
        "update", "update", "chunk", "merge", "prefix", "prefix", "prefix", "merge",
    ]  # fmt: skip
    assert [request.merges for request in writer.requests if request.kind == "merge"] == [
        "chunk",
        "prefix",
    ]
    assert outcome.items == items
    assert [step.key for step in steps] == list(range(1, 9))
    assert [step.parent for step in steps] == [None, 1, 1, 1, None, 5, 5, 5]


def test_the_longest_answers_are_those_of_the_profile():
    writer = Writer()
    made(writer, job_of())
    assert [request.answer_tokens for request in writer.requests] == [13_107, 8_192]
    without = replace(CHECKPOINT, summary_output_share=0.0, prefix_output_share=0.0)
    writer = Writer()
    made(writer, job_of(), without)
    assert [request.answer_tokens for request in writer.requests] == [0, 0]


# --- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["chunk", "prefix"])
def test_one_text_that_fails_fails_both(kind):
    with pytest.raises(SummaryFailed):
        made(Writer(fails_at=kind, error=SummarizerError("down")), job_of())


def test_where_no_call_is_left_for_the_turn_the_history_is_what_is_made():
    outcome, _ = made(Writer(fails_at="prefix", error=NoMoreCallsError()), job_of())
    assert outcome.items == TALK[:4]
    assert outcome.text == "CHUNK  u1 a2 u3 a4"


def test_where_no_call_is_left_for_the_history_nothing_is_made():
    with pytest.raises(NoMoreCallsError):
        made(Writer(fails_at="chunk", error=NoMoreCallsError()), job_of())


@dataclass
class Bounded(Writer):
    """Answers so many calls, then no more."""

    calls: int = 0

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        if len(self.requests) >= self.calls:
            raise NoMoreCallsError
        return super().summarize(request)


@given(calls=st.integers(0, 16), most=st.integers(2, 12), cut=st.integers(1, 12))
def test_what_is_linked_was_received_wherever_the_calls_end(calls, most, cut):
    items = tuple(item(n, "user" if n in (1, cut) else "assistant") for n in range(1, 13))
    writer = Bounded(calls=calls, most=most)
    profile = replace(CHECKPOINT, bisect_min_messages=2)
    try:
        outcome, _ = made(writer, job_of(items, previous="OLD"), profile)
    except NoMoreCallsError:
        return
    assert outcome.items == items[: len(outcome.items)]
    answered = [r for r in writer.requests if len(r.items) <= most]
    received = {one.id for request in answered for one in request.items}
    assert {one.id for one in outcome.items} <= received
    assert "OLD" in outcome.text


@given(count=st.integers(1, 12), start=st.integers(1, 12), parts=st.booleans())
def test_a_second_compaction_never_loses_the_first_summary(count, start, parts):
    items = tuple(item(n, "user" if n == start else "assistant") for n in range(1, count + 1))
    outcome, _ = made(Writer(), job_of(items, previous="FIRST", parts_turn=parts))
    assert "FIRST" in outcome.text
    assert outcome.items == items


def test_an_answer_that_is_cut_off_is_asked_for_with_all_the_room_first():
    cut = SummaryAnswer(text="half of a", finish_reason="length")
    whole = SummaryAnswer(text="all of a summary", had_whole_room=True)
    scripted = Scripted(script=[cut, whole])
    outcome, steps = made(scripted, job_of(parts_turn=False))
    assert [request.whole_room for request in scripted.requests] == [False, True]
    assert [step.outcome for step in steps] == ["truncated", "ok"]
    assert outcome.text == "all of a summary"


def test_what_is_cut_off_with_all_the_room_is_halved():
    cut = SummaryAnswer(text="half of a", finish_reason="length", had_whole_room=True)
    whole = SummaryAnswer(text="a part", had_whole_room=True)
    scripted = Scripted(script=[replace(cut, had_whole_room=False), cut, whole])
    made(scripted, job_of(parts_turn=False))
    sizes = [len(request.items) for request in scripted.requests]
    assert sizes == [7, 7, 3, 4, 0]


# --- after the gate -------------------------------------------------------------------------------


def test_what_a_text_lacked_is_asked_of_the_part_that_could_know_it():
    engine = IterativeSummary(
        job=job_of(), profile=CHECKPOINT, summarizer=(writer := Writer()), on_step=lambda _: None
    )
    engine.run()
    writer.requests.clear()
    again = engine.ask_again(("a6",))
    assert [(request.kind, request.missing) for request in writer.requests] == [("prefix", ("a6",))]
    assert again.startswith("CHUNK ")
    writer.requests.clear()
    engine.ask_again(("nobody said this",))
    assert writer.kinds == ["chunk", "prefix"]


def test_headings_are_asked_for_as_ever_and_the_turn_s_beginning_has_its_own_form():
    writer = Writer()
    outcome, _ = made(writer, job_of(previous="OLD"), HEADINGS)
    assert [request.style for request in writer.requests] == ["headings"] * 2
    assert "Requests, Constraints, Decisions" in outcome.prompt


def test_a_checkpoint_is_stored_as_one_that_holds_those_before_it():
    outcome, _ = made(Writer(), job_of(previous="OLD"))
    assert outcome.holds_earlier
    assert outcome.prompt_version.startswith("checkpoint-")
    assert outcome.algorithm == "iterative_v1"


def test_the_calls_of_both_texts_are_foreseen():
    strategy = IterativeStrategy()
    assert strategy.estimate(job_of(), CHECKPOINT, None).calls == 2
    assert strategy.estimate(job_of(parts_turn=False), CHECKPOINT, None).calls == 1


@dataclass
class Mute(Writer):
    """Says nothing of a turn's beginning, so many times."""

    times: int = 1

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        answer = super().summarize(request)
        if request.kind == "prefix" and self.kinds.count("prefix") <= self.times:
            return replace(answer, text="## Original Request\nNone.\n\n## Early Progress\n- None")
        return answer


@pytest.mark.parametrize("times", [1, 2])
def test_a_turn_s_beginning_of_which_nothing_is_told_is_asked_for_again(times):
    writer = Mute(times=times)
    engine = IterativeSummary(
        job=job_of(),
        profile=replace(CHECKPOINT, quality_gate=True),
        summarizer=writer,
        on_step=lambda step: None,
    )
    _, turn = engine.run().text.split("**Turn Context (split turn):**")
    assert writer.kinds.count("prefix") == 2
    assert "None" not in turn
    # Told by the model, or after that in chosen sentences.
    assert ("PREFIX" in turn) == (times == 1)
    assert turn.strip()
    assert [step.code for step in engine.steps if step.outcome == "rejected"] == ["not_a_summary"]


@dataclass
class Beginner(Writer):
    """A writer that takes so many tokens, and is told how many calls stand before a begun one."""

    takes: int = 1_000
    before: list[int] = field(default_factory=list)

    def begin(self, request: SummaryRequest, *, beside: int) -> None:
        assert request.kind == "prefix"
        self.before.append(beside)

    def input_limit(self, target_tokens: int) -> int | None:
        return self.takes


@pytest.mark.parametrize(
    ("takes", "before"),
    [
        # The history has 160 tokens. One call; refused, two halves and their merge; sure to be
        # refused, so that the turn's beginning waits until it is asked for.
        (160, [1]),
        (159, [4]),
        (60, []),
    ],
)
def test_a_turn_s_beginning_is_begun_with_a_word_on_the_calls_before_it(takes, before):
    summarizer = Beginner(takes=takes)
    made(summarizer, job_of(), replace(CHECKPOINT, bisect_min_messages=2, planned_split=True))
    assert summarizer.before == before
