"""What is summarised and what stays: keep_last_n, recent tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compaction.engine.policy.cuts import keep_last, keep_recent_tokens
from compaction.engine.policy.groups import answered_calls, groups
from compaction.engine.types import Item
from tests.engine.strategies import conversations
from tests.fakes.summarizers import plain, shaped


def kept(plan) -> list[int]:
    return [item.id for item in plan.keep]


def test_it_keeps_the_last_n():
    plan = keep_last(plain(10), 6)
    assert kept(plan) == [5, 6, 7, 8, 9, 10]
    assert [item.id for item in plan.summarise] == [1, 2, 3, 4]


def test_keeping_none_summarises_everything():
    assert kept(keep_last(plain(3), 0)) == []


def test_keeping_more_than_there_is_summarises_nothing():
    assert keep_last(plain(5), 6).summarise == ()


def test_it_keeps_a_call_with_its_results():
    # Three from the end is a result; the cut moves to before the call.
    assert kept(keep_last(shaped("uu2ttau"), 4)) == [3, 4, 5, 6, 7]


def test_parallel_calls_of_one_message_stay_whole():
    assert kept(keep_last(shaped("ua3ttt"), 1)) == [3, 4, 5, 6]


def test_a_call_that_waits_for_results_is_kept_even_when_nothing_is():
    assert kept(keep_last(shaped("uau2t"), 0)) == [4, 5]
    assert kept(keep_last(shaped("uau1"), 0)) == [4]


def test_the_cut_stays_legal_before_a_waiting_call():
    # The message before the waiting call is itself a call that nobody answered.
    assert kept(keep_last(shaped("u11"), 0)) == [2, 3]


def test_it_keeps_the_newest_tokens():
    assert kept(keep_recent_tokens(plain(10, tokens=10), 35)) == [8, 9, 10]


def test_everything_stays_when_it_fits():
    assert keep_recent_tokens(plain(3, tokens=10), 30).summarise == ()


def test_a_group_that_crosses_the_budget_is_summarised_whole():
    # 30 tokens reach to the first result; its call does not fit, so the cut moves behind the group.
    assert kept(keep_recent_tokens(shaped("u2tta"), 30)) == [5]


def test_the_last_group_stays_whole_when_its_newest_item_fits():
    assert kept(keep_recent_tokens(shaped("ua1t"), 10)) == [3, 4]


@given(conversations(), st.integers(0, 50))
def test_nothing_is_lost_or_doubled_or_moved(items, count):
    plan = keep_last(items, count)
    assert [*plan.summarise, *plan.keep] == items


@given(conversations(), st.integers(0, 50))
def test_at_least_n_are_kept(items, count):
    assert len(keep_last(items, count).keep) >= min(count, len(items))


@given(conversations(), st.integers(0, 50), st.integers(0, 500))
def test_groups_are_never_parted(items, count, tokens):
    bounds = {0}
    for group in groups(items):
        bounds.add(max(bounds) + len(group.items))
    for plan in (keep_last(items, count), keep_recent_tokens(items, tokens)):
        assert len(plan.summarise) in bounds
        for result, caller in answered_calls(items).items():
            assert (result < len(plan.summarise)) == (caller < len(plan.summarise))


@given(conversations(), st.integers(1, 500))
def test_more_than_the_budget_is_kept_only_for_one_last_group(items, tokens):
    plan = keep_recent_tokens(items, tokens)
    assert [*plan.summarise, *plan.keep] == items
    if sum(item.tokens for item in plan.keep) > tokens:
        assert len(groups(plan.keep)) == 1 or waits(plan.keep)


def waits(items: tuple[Item, ...]) -> bool:
    """Whether a call in the items still waits for a result."""
    calls = sum(len(item.tool_calls) for item in items)
    return calls > len(answered_calls(items))
