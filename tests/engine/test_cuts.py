"""What is summarised and what stays: keep_last_n, recent tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine.parameters import Profile
from compaction.engine.policy.cuts import (
    cut_last_n,
    cut_recent_tokens,
    cut_tail_size,
    keep_last,
    keep_recent_tokens,
    legal_plan,
)
from compaction.engine.policy.groups import MoreItemsNeeded, answered_calls, groups
from compaction.engine.protocols import PlanFacts
from compaction.engine.types import Item, Plan
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


@pytest.mark.parametrize(("budget", "expected"), [(30, [8, 9, 10]), (29, [9, 10])])
def test_the_budget_itself_may_be_used_up(budget, expected):
    assert kept(keep_recent_tokens(plain(10, tokens=10), budget)) == expected


# --- what the model has not answered --------------------------------------------------------------


def facts(**changes) -> PlanFacts:
    return PlanFacts(room=lambda: 1000, **changes)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        # The open question is kept on top of the none that was asked for: the newest one alone.
        ("uau", [3]),
        ("uauu", [4]),
        ("uuu", [3]),
        # Results that nobody answered are kept with their call and its question …
        ("ua1t", [3, 4]),
        ("u1t", [1, 2, 3]),
        ("uau1t", [3, 4, 5]),
        # … but not where a question behind them is open.
        ("ua1tu", [5]),
        ("uaua", []),
    ],
)
def test_what_the_model_has_not_answered_is_kept_though_nothing_else_is(shape, expected):
    assert kept(cut_last_n(shaped(shape), Profile(keep_last_n=0), facts())) == expected


def test_results_are_summarised_where_the_whole_is_asked_for():
    items = shaped("uau1t")
    assert kept(cut_last_n(items, Profile(keep_last_n=0), facts(whole=True))) == []
    assert kept(cut_tail_size(items, Profile(tail_keep_size=1), facts(whole=True))) == [4, 5]


def test_the_sliding_windows_tail_grows_by_what_the_model_has_not_seen():
    assert kept(cut_tail_size(shaped("uau1t"), Profile(tail_keep_size=1), facts())) == [3, 4, 5]


def test_the_number_that_was_asked_for_overrides_the_profiles():
    profile = Profile(keep_last_n=2)
    assert kept(cut_last_n(shaped("uauaua"), profile, facts())) == [5, 6]
    assert kept(cut_last_n(shaped("uauaua"), profile, facts(keep_last_n=4))) == [3, 4, 5, 6]


def test_the_question_takes_part_of_the_budget():
    # 30 tokens: the question's 10 and the two newest messages before it.
    profile = Profile(keep_recent_tokens=30)
    assert kept(cut_recent_tokens(shaped("uauau"), profile, facts())) == [3, 4, 5]


# --- plans that are legal already -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "start"),
    [("uaua", 0), ("uaua", 2), ("uaua", 4), ("u1taua", 3), ("u1ta", 4)],
    ids=["nothing", "some", "everything", "behind a result", "everything with a result in it"],
)
def test_a_plan_that_is_plainly_legal_is_returned_as_it_is(shape, start):
    items = shaped(shape)
    plan = Plan(summarise=tuple(items[:start]), keep=tuple(items[start:]))
    assert legal_plan(items, plan, facts(whole=True)) is plan


def test_a_call_that_nobody_answered_is_not_parted_from_what_follows():
    items = shaped("ua1ua")
    plan = Plan(summarise=tuple(items[:3]), keep=tuple(items[3:]))
    assert kept(legal_plan(items, plan, facts())) == [3, 4, 5]


# --- the newest items alone -----------------------------------------------------------------------

# Nobody can tell from these whether the first result's call stands before the first of them.
RESULT_OF_AN_EARLIER_CALL = shaped("uuuouuu")


@pytest.mark.parametrize(
    "plan",
    [
        # All of them are kept, and perhaps what stands before them.
        lambda one: keep_recent_tokens(shaped("uau"), 30, earlier=one.earlier),
        # The question of what nobody answered may stand right before.
        lambda one: cut_tail_size(shaped("1t"), Profile(tail_keep_size=1), one),
        lambda one: cut_last_n(shaped("1t"), Profile(keep_last_n=0), one),
        # These may be some of the results of a call that waits for others.
        lambda one: keep_last(shaped("oo"), 0, earlier=one.earlier),
        # The cut may part that result from its call.
        lambda one: keep_last(RESULT_OF_AN_EARLIER_CALL, 5, earlier=one.earlier),
        lambda one: keep_recent_tokens(RESULT_OF_AN_EARLIER_CALL, 50, earlier=one.earlier),
        lambda one: legal_plan(RESULT_OF_AN_EARLIER_CALL, parted(2), one),
        lambda one: legal_plan(RESULT_OF_AN_EARLIER_CALL, parted(0), one),
    ],
)
def test_more_items_are_needed_where_one_that_was_not_given_may_decide(plan):
    with pytest.raises(MoreItemsNeeded):
        plan(facts(earlier=1))
    # Where nothing stands before them, nothing more is needed.
    assert isinstance(plan(facts()), Plan)


def parted(start: int) -> Plan:
    items = RESULT_OF_AN_EARLIER_CALL
    return Plan(summarise=tuple(items[:start]), keep=tuple(items[start:]))


# --- whatever the conversation --------------------------------------------------------------------


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
