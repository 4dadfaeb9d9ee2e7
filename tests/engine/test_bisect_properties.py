"""What holds for halving whatever the conversation and the summariser's limits are."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from compaction.engine.parameters import Profile
from compaction.engine.policy.groups import answered_calls
from compaction.engine.strategies.bisect import BisectSummary
from compaction.engine.strategies.halving import estimate_calls
from compaction.engine.types import Item, SummaryFailed, ToolCall
from tests.engine.strategies import conversations
from tests.fakes.summarizers import Refusing, Sized, WordCounter, shaped


def summarise(items, summarizer, **changes):
    profile = Profile(**({"fallback": "truncate"} | changes))
    machine = BisectSummary(profile=profile, summarizer=summarizer, counter=WordCounter())
    return machine.run(items)


def leaves(requests) -> list[list[int]]:
    """The ids of the parts that were answered: those that no later part lies within."""
    spans = [[item.id for item in r.items] for r in requests if r.kind == "chunk"]
    return [
        span
        for at, span in enumerate(spans)
        if not any(set(later) < set(span) for later in spans[at + 1 :])
    ]


@given(conversations(), st.integers(1, 8), st.integers(2, 6))
@settings(deadline=None)
def test_every_item_reaches_exactly_one_part_in_order(items, most, smallest):
    if not items:
        return
    summarizer = Refusing(most=most)
    outcome = summarise(items, summarizer, bisect_min_messages=smallest)
    assert [one for leaf in leaves(summarizer.requests) for one in leaf] == [i.id for i in items]
    assert outcome.items == tuple(items)


@given(conversations(), st.integers(1, 8))
@settings(deadline=None)
def test_no_part_holds_a_result_without_its_call(items, most):
    if not items:
        return
    summarizer = Refusing(most=most)
    summarise(items, summarizer, bisect_min_messages=2)
    pairs = [(items[r].id, items[c].id) for r, c in answered_calls(items).items()]
    for request in summarizer.requests:
        ids = {item.id for item in request.items}
        assert all((result in ids) == (call in ids) for result, call in pairs)


@given(conversations(), st.integers(1, 4), st.integers(1, 30))
@settings(deadline=None)
def test_there_are_never_more_calls_than_the_cap(items, most, cap):
    if not items:
        return
    summarizer = Refusing(most=most)
    try:
        summarise(items, summarizer, bisect_min_messages=2, max_model_calls=cap)
    except SummaryFailed as failure:
        assert failure.code == "too_many_calls"
    assert len(summarizer.requests) <= cap


@given(
    conversations(),
    st.integers(1, 300),
    st.booleans(),
    st.integers(0, 6),
    st.integers(2, 6),
    st.integers(0, 40),
)
@settings(deadline=None)
def test_the_estimate_is_the_number_of_calls(items, limit, planned, depth, smallest, words):
    if not items:
        return
    profile = Profile(
        planned_split=planned,
        bisect_max_depth=depth,
        bisect_min_messages=smallest,
        max_model_calls=1000,
        fallback="truncate",
    )
    summarizer = Sized(limit=limit)
    machine = BisectSummary(profile=profile, summarizer=summarizer, counter=WordCounter())
    machine.run(items, previous="w " * words)
    expected = estimate_calls(items, limit, profile, previous_tokens=words)
    assert len(summarizer.requests) == expected


def test_a_call_that_nobody_answered_is_not_parted_from_what_follows():
    call = Item(id=1, role="assistant", tool_calls=(ToolCall(id="x", name="run"),))
    summarizer = Refusing(most=2)
    summarise([call, *shaped("uuuuu")[1:]], summarizer, bisect_min_messages=2)
    assert [1] not in leaves(summarizer.requests)
