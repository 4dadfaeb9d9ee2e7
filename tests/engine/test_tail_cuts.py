"""A cut that is found in the newest items alone is the cut of the whole list."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compaction.engine.policy.cuts import TailCut, keep_last
from compaction.engine.policy.groups import LegalCuts, MoreItemsNeeded, legal_cuts
from compaction.engine.policy.window import first_batch, keep_tail
from compaction.engine.profile import PRESETS
from compaction.engine.protocols import PlanFacts
from compaction.engine.registry import CUTS, STRATEGIES
from compaction.engine.types import Item, ToolCall
from tests.engine.strategies import conversations
from tests.fakes.summarizers import plain, shaped

PROFILES = list(PRESETS.values())


@st.composite
def profiles(draw: st.DrawFn):
    """Return a preset with any cut, and tails that are small enough to leave something."""
    return replace(
        draw(st.sampled_from(PROFILES)),
        strategy=draw(st.sampled_from(list(STRATEGIES))),
        cut=draw(st.sampled_from(list(CUTS))),
        keep_last_n=draw(st.integers(0, 12)),
        tail_keep_size=draw(st.integers(0, 12)),
        keep_recent_tokens=draw(st.integers(0, 400)),
        history_tail_size_chars_to_exclude=draw(st.integers(0, 400)),
    )


@st.composite
def facts(draw: st.DrawFn) -> PlanFacts:
    """Return what a plan may depend on besides."""
    room = draw(st.integers(0, 400))
    return PlanFacts(
        room=lambda: room,
        keep_last_n=draw(st.none() | st.integers(0, 12)),
        whole=draw(st.booleans()),
        frame_tokens=draw(st.sampled_from([0, 4])),
    )


@settings(max_examples=200, deadline=None)
@given(conversations(max_size=30), profiles(), facts())
def test_every_tail_gives_the_plan_of_the_whole_list_or_asks_for_more(items, profile, facts):
    strategy = STRATEGIES.get(profile.strategy)
    whole = strategy.plan(items, profile, facts)
    for earlier in range(1, len(items)):
        known = replace(facts, earlier=earlier)
        try:
            plan = strategy.plan(items[earlier:], profile, known)
        except MoreItemsNeeded as need:
            assert not need.all_of_them
            continue
        assert plan.keep == whole.keep
        assert earlier + len(plan.summarise) == len(whole.summarise)


@settings(max_examples=200, deadline=None)
@given(conversations(max_size=30), st.integers(1, 12))
def test_every_beginning_gives_the_batch_of_the_whole_list_or_asks_for_more(items, size):
    whole = first_batch(items, size)
    for count in range(len(items)):
        try:
            batch = first_batch(items[:count], size, later=True)
        except MoreItemsNeeded:
            continue
        assert batch == whole


@given(conversations(max_size=30), st.integers(0, 30))
def test_a_settled_cut_of_an_end_is_legal_in_the_whole_list(items, start):
    found = LegalCuts.of(items[start:], earlier=start > 0)
    inside = [start + cut for cut in found.places if cut >= found.lowest]
    assert inside == [cut for cut in legal_cuts(items) if cut >= start + max(1, found.lowest)]


@given(conversations(max_size=30), st.integers(1, 30))
def test_a_settled_cut_of_a_beginning_is_legal_in_the_whole_list(items, end):
    found = LegalCuts.of(items[:end], later=end < len(items))
    inside = [cut for cut in found.places if cut <= found.highest]
    assert inside == [cut for cut in legal_cuts(items) if cut <= found.highest]


@pytest.mark.parametrize("cut", ["last_n", "recent_tokens", "tail_size"])
def test_a_plain_conversation_is_cut_by_little_more_than_what_is_kept(cut):
    profile = replace(
        PROFILES[0], cut=cut, keep_last_n=10, tail_keep_size=10, keep_recent_tokens=100
    )
    known = PlanFacts(room=lambda: 100, earlier=100_000)
    items = [
        replace(item, tokens=10, text="long enough to be no reply") for item in shaped("ua" * 9)
    ]
    assert len(CUTS.get(cut)(items, profile, known).keep) == 10


def test_a_result_whose_call_was_not_read_leaves_the_cuts_before_it_open():
    # Nobody can tell from these whether the first result's call stands before the first of them.
    items = [*plain(3), Item(id=9, role="tool", tool_call_id="late"), *plain(3)]
    with pytest.raises(MoreItemsNeeded):
        keep_last(items, 5, earlier=1)
    assert len(keep_last(items, 2, earlier=1).keep) == 2
    assert len(keep_last(items, 5).keep) == 5


def test_an_open_call_leaves_the_cuts_behind_it_open():
    call = Item(id=9, role="assistant", tool_calls=(ToolCall(id="late", name="run"),))
    items = [*plain(2), call, *plain(4)]
    with pytest.raises(MoreItemsNeeded):
        first_batch(items, 5, later=True)
    assert len(first_batch(items, 2, later=True)) == 2
    assert len(first_batch(items, 5)) == 5


def test_a_batch_reads_on_to_the_end_of_its_group():
    items = shaped("1tttttaa")
    with pytest.raises(MoreItemsNeeded):
        first_batch(items[:5], 3, later=True)


def test_a_tail_knows_how_much_stands_before_a_long_group():
    # Half of four would be left; of a thousand, hardly anything is.
    items = [*plain(2), *shaped("8ttttttttaa")]
    assert len(keep_tail(items, 9).summarise) == 2
    assert len(keep_tail(items, 9, earlier=1000).summarise) == 2
    items = [*plain(1), *shaped("8ttttttttaaaa")]
    assert len(keep_tail(items, 6).summarise) == 10
    assert len(keep_tail(items, 6, earlier=1000).summarise) == 1


def test_a_decorated_cut_says_that_it_plans_from_the_tail():
    @TailCut
    def cut(items, profile, facts):
        """Keep one."""
        return keep_last(items, 1, earlier=facts.earlier)

    assert cut.plans_from_tail
    assert cut.__doc__ == "Keep one."
