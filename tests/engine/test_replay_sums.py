"""Sizes of a replayed conversation, its named things and its curves: right, and in flat memory."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine.profile import PRESETS
from compaction.engine.replay import conversation
from compaction.engine.replay.conversation import ConversationSums, MessageSize
from compaction.engine.replay.figures import MOST_POINTS, ReplayFigures, SentCurve
from compaction.engine.replay.replaying import ProfileReplay, ReplayOptions
from compaction.engine.replay.state import ReplayModel
from compaction.engine.replay.survival import MARKERS, Named
from compaction.engine.types import Item, SummaryAnswer, SummaryRequest
from tests.engine.extractive_support import QuarterCounter

ROLES = ("user", "assistant", "tool", "system")
STEP = 1_000_000
DIFFERENT = 150


def made(number: int, chance: random.Random) -> MessageSize:
    role = chance.choice(ROLES)
    return MessageSize(
        position=number * STEP,
        role=role,
        tokens=chance.randrange(1, 900),
        chars=chance.randrange(300, 90_000),
        text_chars=chance.randrange(300, 90_000),
        seconds=1.7e9 + 30 * number,
        has_calls=role == "assistant" and chance.random() < 0.5,
        is_note=role == "user" and chance.random() < 0.3,
        pinned=chance.random() < 0.1,
    )


def reader(sizes: Sequence[MessageSize]) -> Callable[[int, int | None], Iterator[MessageSize]]:
    def read(after: int, through: int | None) -> Iterator[MessageSize]:
        for one in sizes:
            if one.position > after and (through is None or one.position <= through):
                yield one

    return read


def last(numbers: Sequence[int]) -> int | None:
    return numbers[-1] if numbers else None


@pytest.fixture(params=[(4, 1), (7, 2)], ids=["pages of 4", "pages of 7"])
def small_pages(request, monkeypatch):
    monkeypatch.setattr(conversation, "PAGE", request.param[0])
    monkeypatch.setattr(conversation, "PAGES_KEPT", request.param[1])


@pytest.mark.parametrize("seed", range(40))
def test_sums_in_pages_are_those_of_all_messages(small_pages, seed):
    chance = random.Random(seed)
    stored = [made(number, chance) for number in range(1, chance.randint(2, 60))]
    sums = ConversationSums(reader(stored))
    rules = [one for one in stored if one.is_rule]
    spoken = [one for one in stored if not one.is_rule]
    count = len(spoken)
    assert len(sums) == count
    for start in range(count + 1):
        assert [sums.message(number) for number in range(start, count)] == spoken[start:]
        assert sums.seconds(start) == (spoken[start - 1].seconds if start else 0.0)
        for end in range(start, count + 1):
            part = list(enumerate(spoken))[start:end]
            assert sums.tokens(start, end) == sum(one.tokens for _, one in part)
            assert sums.chars(start, end) == sum(one.chars for _, one in part)
            pinned = [number for number, one in part if one.pinned]
            assert list(sums.pinned_in(start, end)) == pinned
            assert sums.pinned_tokens(start, end) == sum(spoken[one].tokens for one in pinned)
            assert sums.pinned_chars(start, end) == sum(spoken[one].chars for one in pinned)
            asked = [number for number, one in part if one.role == "user" and not one.is_note]
            assert sums.question_from(start, end) == (asked[0] if asked else None)
            if not start:
                assert sums.question_before(end) == last(asked)
            results = [number for number, one in part if one.role == "tool"]
            assert list(sums.results_in(start, end)) == results
    for number in range(count):
        before = [one for one in rules if one.position < spoken[number].position]
        assert sums.rules_stored(number) == len(before)
        assert sums.rules_covered(number + 1) == len(before)
        assert sums.rule_tokens(0, len(before)) == sum(one.tokens for one in before)
    assert sums.rules_stored(count) == len(rules)


def test_the_question_of_a_split_turn_is_found_pages_before(small_pages):
    roles = ["user", *("assistant", "tool") * 20]
    stored = [
        MessageSize(position=number * STEP, role=role, tokens=1, has_calls=role == "assistant")
        for number, role in enumerate(roles, start=1)
    ]
    ended = MessageSize(position=99 * STEP, role="assistant", tokens=1)
    sums = ConversationSums(reader([*stored, ended]))
    assert sums.split_question(31, 41) == 0
    assert sums.split_question(31, 42) is None
    assert sums.split_question(0, 41) is None
    pinned = [replace(stored[0], pinned=True), *stored[1:]]
    assert ConversationSums(reader(pinned)).split_question(31, 41) is None


def test_what_is_pinned_meanwhile_leaves_every_number_where_it_was(small_pages):
    stored = [
        MessageSize(position=number * STEP, role=ROLES[number % 4], tokens=number)
        for number in range(1, 40)
    ]
    current = list(stored)
    sums = ConversationSums(lambda after, through: reader(current)(after, through))
    current[:] = [replace(one, pinned=True) for one in stored]
    current.append(MessageSize(position=40 * STEP, role="user", tokens=1))
    assert [sums.message(number).position for number in range(39)] == [
        one.position for one in stored
    ]
    assert sums.tokens(0, len(sums)) == sum(range(40))


def test_times_that_cannot_be_true_are_taken_for_a_minute_a_message():
    stored = [MessageSize(position=n * STEP, role="user", tokens=1, seconds=5.0) for n in (1, 2, 3)]
    sums = ConversationSums(reader(stored))
    assert [sums.seconds(count) for count in (0, 1, 2, 3, 9)] == [0.0, 0.0, 60.0, 120.0, 120.0]
    assert ConversationSums(reader([])).seconds(3) == 0.0


# --- in flat memory -------------------------------------------------------------------------------


def peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def walk(count: int) -> None:
    """Go through a conversation with a cursor 900 messages behind, as a replay does."""

    def read(after: int, through: int | None) -> Iterator[MessageSize]:
        newest = count if through is None else through // STEP
        for number in range(after // STEP + 1, newest + 1):
            size = 300 + number * 7 % 90_000
            yield MessageSize(position=number * STEP, role="user", tokens=size, chars=size)

    sums = ConversationSums(read)
    for number in range(0, count, 100):
        sums.tokens(max(0, number - 900), number)


def test_sizes_of_eight_times_as_many_messages_take_no_more_memory(monkeypatch):
    monkeypatch.setattr(conversation, "PAGES_KEPT", 2)
    short, long = peak(lambda: walk(2_000)), peak(lambda: walk(16_000))
    assert long < 1.15 * short


class LongConversation:
    """A conversation that is written when it is read: nothing of it is in memory before.

    It says few things again and again: what the process remembers of texts does not grow.
    """

    prompt_tokens, has_prompt = 0, False

    def __init__(self, count: int) -> None:
        self._count = count
        self.sums = ConversationSums(self._sizes)

    def _item(self, number: int) -> Item:
        said = number % DIFFERENT
        text = f"The order MK-{said:05d} of {said} parts goes to another store; nobody minds. " * 2
        return Item(
            id=number,
            role="user" if number % 2 else "assistant",
            text=text,
            position=number * STEP,
            tokens=len(text) // 4,
            chars=len(text),
        )

    def _sizes(self, after: int, through: int | None) -> Iterator[MessageSize]:
        newest = self._count if through is None else through // STEP
        for item in map(self._item, range(after // STEP + 1, newest + 1)):
            yield MessageSize(
                position=item.position,
                role=item.role,
                tokens=item.tokens,
                chars=item.chars,
                text_chars=item.chars,
                seconds=60.0 * item.position / STEP,
            )

    def items(self, start: int, end: int) -> Sequence[Item]:
        return [self._item(number + 1) for number in range(start, end)]

    def with_thoughts(self, items: Sequence[Item]) -> Sequence[Item]:
        return items

    def fixed_texts(self) -> Sequence[str]:
        return ()


class Terse:
    """A summariser that says one sentence of as many words each time."""

    chooses_sentences = True

    def input_limit(self, target_tokens: int) -> None:
        return None

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        last = request.items[-1].position // STEP % DIFFERENT if request.items else 0
        return SummaryAnswer(text=f"## Facts\nThe last order is MK-{last:05d}.")


def replayed(name: str, *, count: int) -> ReplayFigures:
    long, named, figures = LongConversation(count), Named(), ReplayFigures(profile=name)
    for start in range(0, count, 100):
        named.add(long.items(start, start + 100))
    counter = QuarterCounter()
    model = ReplayModel(window=8_000, max_output=1_000, scale=1.0, counter=counter)
    ProfileReplay(
        long,
        PRESETS[name],
        figures=figures,
        model=model,
        summarizer=Terse(),
        options=ReplayOptions(),
    ).run(named)
    return figures


@pytest.mark.parametrize("name", PRESETS)
def test_a_replay_of_four_times_as_many_messages_takes_no_more_memory(name, monkeypatch):
    monkeypatch.setattr(conversation, "PAGE", 64)
    monkeypatch.setattr(conversation, "PAGES_KEPT", 2)
    monkeypatch.setattr("compaction.engine.replay.survival.SLOTS", 1 << 13)
    monkeypatch.setattr("compaction.engine.abridging.MOST_STORED_CHARS", 10_000)
    tracemalloc.start()
    try:
        # What the process remembers of texts, whoever asks, is there before.
        replayed(name, count=2 * DIFFERENT)
        found = []
        for count in (500, 2_000):
            gc.collect()
            tracemalloc.reset_peak()
            figures = replayed(name, count=count)
            assert figures.sent.count == count // 2
            assert figures.compactions > 0
            assert figures.survival[MARKERS].named == DIFFERENT
            found.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    assert found[1] < 1.25 * found[0]


def named_items(count: int) -> Iterator[Item]:
    # Texts of this length are not remembered by what looks for entities.
    for start in range(0, count, 500):
        codes = " ".join(f"MK-{number:06d}" for number in range(start, start + 500))
        yield Item(id=str(start), role="user", text=codes, tokens=1, position=start)


def test_eight_times_as_many_named_things_take_no_more_memory():
    short, long = (peak(partial(Named().add, named_items(count))) for count in (2_000, 16_000))
    assert long < 1.05 * short


def test_each_thing_counts_once_however_often_it_is_named():
    named = Named()
    for _ in range(2):
        named.add(named_items(3_000))
    held = named.survival(["MK-000000 and MK-002999 and MK-003000", "MK-000000"])
    assert (held[MARKERS].named, held[MARKERS].held) == (3_000, 2)


def test_things_beyond_the_table_are_not_looked_for(monkeypatch):
    monkeypatch.setattr("compaction.engine.replay.survival.MOST_NAMED", 700)
    named = Named()
    named.add(named_items(1_000))
    held = named.survival([item.text for item in named_items(1_000)])
    assert (held[MARKERS].named, held[MARKERS].held) == (700, 700)


@given(st.lists(st.integers(min_value=0, max_value=10**6), max_size=2_000))
def test_a_curve_keeps_the_largest_of_each_stretch_and_exact_sums(values):
    curve = SentCurve()
    for value in values:
        curve.add(value)
    stretches = [
        values[start : start + curve.width] for start in range(0, len(values), curve.width)
    ]
    assert list(curve.points) == [max(stretch) for stretch in stretches]
    assert (curve.count, curve.total) == (len(values), sum(values))
    assert curve.largest == max(values, default=0)
    assert len(curve.points) <= MOST_POINTS
    assert len(values) <= MOST_POINTS or len(curve.points) > MOST_POINTS // 2
