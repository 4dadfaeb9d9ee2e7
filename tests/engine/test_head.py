"""How much of a history one call reads: segments that are dropped, and halves that are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine.parameters import Profile
from compaction.engine.policy.exchanges import size_of
from compaction.engine.policy.head import count_dropped, first_kept, within_limit
from compaction.engine.strategies.bisect import BisectStrategy
from compaction.engine.types import Item, SummaryAnswer, SummaryJob, SummaryRequest

LIMIT = 800_000
DROPS = Profile(head_chars_limit=LIMIT, head_overflow="drop")


def exchange(number: int, chars: int) -> list[Item]:
    """Return a question and its answer of so many characters together."""
    question, answer = f"q{number} ".ljust(min(10, chars)), "a" * max(0, chars - 10)
    return [
        Item(
            id=2 * number + place,
            role=role,
            text=text,
            position=(2 * number + place + 1) * 1_000_000,
            tokens=max(1, len(text) // 4),
            chars=len(text),
        )
        for place, (role, text) in enumerate([("user", question), ("assistant", answer)])
    ]


def history(*sizes: int) -> list[Item]:
    return [item for number, size in enumerate(sizes) for item in exchange(number, size)]


def beginning_dropped(items: list[Item], profile: Profile) -> tuple[int, tuple[Item, ...]]:
    """How many items nobody reads, and the others as one call reads them."""
    dropped = count_dropped(items, profile)
    return dropped, within_limit(items[dropped:], profile)


@pytest.mark.parametrize(
    ("count", "size", "kept"),
    [
        (26, 10_000, 260_000),
        (78, 10_000, 780_000),
        (80, 10_000, 280_000),
        (104, 10_000, 520_000),
        (105, 10_000, 530_000),
        (120, 10_000, 680_000),
        (130, 10_000, 780_000),
        (131, 10_000, 270_000),
        (3, 300_000, 600_000),
        # Of 900,000, 1,000,000 and 2,000,000 that are kept, cut to the limit.
        (4, 300_000, LIMIT),
        (2, 500_000, LIMIT),
        (1, 2_000_000, LIMIT),
    ],
)
def test_the_established_segments_are_kept_and_the_limit_holds(count, size, kept):
    items = history(*[size] * count)
    dropped, read = beginning_dropped(items, DROPS)
    # A cut in the middle shares out in whole characters: a few less than the limit may stay.
    least = kept - len(read) if kept == LIMIT else kept - 1
    assert least < size_of(read) <= kept
    assert [item.id for item in read] == [item.id for item in items[dropped:]]


def test_what_is_kept_before_it_is_cut():
    assert first_kept([300_000] * 4, LIMIT) == 1
    assert first_kept([500_000] * 2, LIMIT) == 0
    assert first_kept([], LIMIT) == 0


@pytest.mark.parametrize("changes", [{"head_overflow": "halve"}, {"head_chars_limit": 0}])
def test_nothing_is_dropped_unless_the_profile_says_so(changes):
    items = history(*[10_000] * 90)
    profile = Profile(**{"head_chars_limit": LIMIT, "head_overflow": "drop"} | changes)
    assert beginning_dropped(items, profile) == (0, tuple(items))


@given(st.lists(st.integers(0, 400), max_size=40), st.integers(1, 900))
def test_whatever_is_dropped_a_newest_part_within_the_limit_stays(sizes, limit):
    items = history(*sizes)
    profile = Profile(head_chars_limit=limit, head_overflow="drop")
    dropped, read = beginning_dropped(items, profile)
    assert dropped + len(read) == len(items)
    assert not items or read
    assert size_of(read) <= limit


class Reading:
    """A summariser that remembers what it was given."""

    def __init__(self) -> None:
        self.requests: list[SummaryRequest] = []

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        self.requests.append(request)
        return SummaryAnswer(text="Tea was agreed upon, at four.", output_tokens=8)

    def input_limit(self, target_tokens: int) -> int | None:
        return None


class Words:
    def count(self, text: str) -> int:
        return len(text.split())


def read(profile: Profile, items: list[Item], previous: str = "") -> list[SummaryRequest]:
    summarizer = Reading()
    job = SummaryJob(items=tuple(items), counter=Words(), previous=previous)
    BisectStrategy().run(job, profile, summarizer, lambda step: None)
    return [request for request in summarizer.requests if request.items]


@pytest.mark.parametrize("sizes", [[10_000] * 40, [30, 90_000, 30, 30], [200_000], [500] * 7])
def test_halved_every_exchange_is_in_some_calls_input(sizes):
    profile = Profile(head_chars_limit=60_000, ledger=False, quality_gate=False)
    items = history(*sizes)
    requests = read(profile, items, previous="before")
    assert [item.id for request in requests for item in request.items] == [
        item.id for item in items
    ]
    assert [request.previous for request in requests].count("before") == 1
    for request in requests:
        # A part of few messages is read whole, however long it is.
        assert size_of(request.items) <= 60_000 or len(request.items) <= 4


def test_without_a_limit_nothing_is_halved():
    profile = Profile(ledger=False, quality_gate=False)
    requests = read(profile, history(*[10_000] * 40))
    assert {len(request.items) for request in requests} == {80}
