"""Legal cuts and the splitter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine.policy.groups import answered_calls, groups, legal_cuts, split_point
from compaction.engine.types import Item, ToolCall
from tests.engine.strategies import conversations
from tests.fakes.summarizers import plain, shaped


@pytest.mark.parametrize(("count", "cut"), [(2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (7, 3)])
def test_it_splits_plain_messages_in_the_middle(count, cut):
    assert split_point(plain(count), 4) == cut


def test_it_does_not_split_fewer_than_two_messages():
    assert split_point([], 4) is None
    assert split_point(plain(1), 4) is None


def test_it_never_splits_between_a_call_and_its_result():
    items = shaped("u1tau")
    assert legal_cuts(items) == [1, 3, 4]
    assert split_point(items, 2) == 3


def test_parallel_results_leave_one_place():
    assert split_point(shaped("u2tt"), 2) == 1


def test_a_call_with_nothing_but_results_cannot_be_split():
    assert split_point(shaped("1ttttt"), 2) is None


def test_a_place_that_leaves_both_sides_large_enough_wins():
    # Valid places are 1, 5 and 6; only 5 leaves two messages on both sides.
    assert split_point(shaped("u3ttta"), 2) == 1
    assert split_point(shaped("u3tttaa"), 2) == 5


def test_ties_go_to_the_lower_place():
    # 2 and 4 are equally far from the middle of six; 3 stands between a call and its result.
    assert split_point(shaped("ua1tua"), 1) == 2


def test_a_result_that_comes_late_is_kept_with_its_call():
    call = Item(id=1, role="assistant", tool_calls=(ToolCall(id="a", name="run"),))
    user = Item(id=2, role="user", text="meanwhile")
    late = Item(id=3, role="tool", tool_call_id="a")
    end = Item(id=4, role="user", text="next")
    assert legal_cuts([call, user, late, end]) == [3]


def test_a_repeated_id_belongs_to_the_nearest_earlier_open_call():
    def call(n):
        return Item(id=n, role="assistant", tool_calls=(ToolCall(id="a", name="run"),))

    def result(n):
        return Item(id=n, role="tool", tool_call_id="a")

    assert answered_calls([call(0), result(1), call(2), result(3)]) == {1: 0, 3: 2}
    assert answered_calls([call(0), call(1), result(2), result(3)]) == {2: 1, 3: 0}


def test_a_result_of_no_call_answers_nothing():
    assert answered_calls(shaped("uoa")) == {}


def test_groups_hold_a_call_and_all_its_results():
    ids = [[item.id for item in group.items] for group in groups(shaped("u2tta1t"))]
    assert ids == [[1], [2, 3, 4], [5], [6, 7]]


def test_no_items_have_no_groups():
    assert groups([]) == []


@given(conversations())
def test_groups_are_the_items_in_order(items):
    assert [item for group in groups(items) for item in group.items] == items


@given(conversations())
def test_no_cut_parts_a_call_from_its_result(items):
    for cut in legal_cuts(items):
        for result, caller in answered_calls(items).items():
            assert (result < cut) == (caller < cut)


@given(conversations(), st.integers(2, 8))
def test_a_split_leaves_both_sides_something(items, smallest):
    cut = split_point(items, smallest)
    assert cut is None or 0 < cut < len(items)
    assert (cut is None) == (not legal_cuts(items))
