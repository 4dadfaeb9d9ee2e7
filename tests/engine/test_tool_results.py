"""Cutting tool results."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from compaction.engine.tool_results import (
    ResultLimits,
    ResultRoom,
    Route,
    allot,
    cut_blocks,
    cut_text,
    effective_reserve,
    is_oversized,
    precheck,
    room_of,
    sent_marker,
    store_blocks,
    stored_marker,
)

LINE = "a line of words\n"


@pytest.mark.parametrize(
    ("window", "characters"),
    [
        (0, 0),
        (100, 120),
        (1_000, 1_200),
        (8_000, 9_600),
        (16_000, 19_200),
        (128_000, 153_600),
        (200_000, 240_000),
        (333_333, 399_996),
        (333_334, 400_000),
        (1_000_000, 400_000),
        (2_000_000, 400_000),
    ],
)
def test_a_result_may_take_three_tenths_of_the_window_up_to_a_cap(window, characters):
    assert ResultLimits().max_chars(window) == characters


def test_the_values_are_settings():
    limits = ResultLimits(share=0.5, hard_max_chars=16_000)
    assert limits.max_chars(4_000) == 8_000
    assert limits.max_chars(128_000) == 16_000


@pytest.mark.parametrize(
    ("window", "kept"), [(1_000, 0), (1_600, 0), (2_000, 2_000), (128_000, 2_000)]
)
def test_a_floor_holds_only_where_the_limit_is_above_it(window, kept):
    assert ResultLimits().min_keep(window) == kept


# --- cut_text ------------------------------------------------------------------------------------


def test_a_text_within_the_limit_is_the_same_object():
    text = "x" * 500
    assert cut_text(text, 500) is text


def test_a_cut_text_is_as_long_as_allowed_and_says_how_much_is_gone():
    cut = cut_text("x" * 10_000, 5_000, min_keep=2_000)
    assert len(cut) <= 5_000
    kept = cut.count("x" * 100) * 100
    assert 4_500 < kept < 5_000
    assert "truncated" in cut
    assert "10,000" in cut


def test_the_number_in_the_notice_is_what_is_gone():
    cut = cut_text("y" * 10_000, 4_000)
    head = cut[: cut.index("\n\n[")]
    assert f"{10_000 - len(head):,} of its 10,000 characters" in cut


def test_the_minimum_wins_over_the_limit():
    cut = cut_text("x" * 50_000, 100, min_keep=2_000)
    assert cut.startswith("x" * 2_000)
    assert len(cut) < 2_400


def test_a_cut_never_makes_a_text_longer():
    # The original returns 2 217 characters for these 2 050.
    text = "x" * 2_050
    assert cut_text(text, 2_040, min_keep=2_000) == text


def test_the_cut_falls_on_a_line_end_in_the_last_fifth():
    text = "x" * 900 + "\n" + "y" * 2_000
    room = len("\n\n" + sent_marker(len(text), len(text)))
    head = cut_text(text, 1_000 + room).split("\n\n[")[0]
    assert head == "x" * 900


def test_a_line_end_before_the_last_fifth_is_passed_by():
    text = "x" * 500 + "\n" + "y" * 3_000
    room = len("\n\n" + sent_marker(len(text), len(text)))
    head = cut_text(text, 1_000 + room).split("\n\n[")[0]
    assert len(head) == 1_000


def test_a_line_end_right_at_the_budget_counts():
    text = "x" * 1_000 + "\n" + "y" * 2_000
    room = len("\n\n" + sent_marker(len(text), len(text)))
    assert cut_text(text, 1_000 + room).split("\n\n[")[0] == "x" * 1_000


def test_the_minimum_is_kept_up_to_the_next_line_end():
    cut = cut_text(LINE * 600, 2_000, min_keep=2_000)
    head = cut.split("\n\n[")[0]
    assert head.endswith("a line of words")
    assert 2_000 <= len(head) <= 2_000 + len(LINE)


def test_a_windows_line_end_is_not_parted():
    for limit in range(300, 330):
        head = cut_text("ab\r\n" * 400, limit).split("\n\n[")[0]
        assert not head.endswith("\r")


@pytest.mark.parametrize(
    "end",
    [
        "Traceback (most recent call last):\nValueError: no",
        "process ended with exit code 3",
        '{"a": 1}',
        "12 passed, total 14 s",
        "all done",
    ],
)
def test_an_end_that_tells_how_things_went_is_kept(end):
    cut = cut_text(LINE * 2_000 + end, 6_000, min_keep=2_000)
    assert cut.endswith(end)
    assert cut.startswith(LINE * 100)
    assert "truncated" in cut
    assert len(cut) <= 6_000


def test_an_end_that_tells_nothing_is_not_kept():
    cut = cut_text(LINE * 2_000, 6_000, min_keep=2_000)
    assert cut.endswith("]")


def test_an_end_is_not_kept_where_little_may_stay():
    cut = cut_text(LINE * 2_000 + "fatal", 4_000, min_keep=2_000)
    assert not cut.endswith("fatal")


def test_a_limit_below_the_notice_still_says_that_something_is_gone():
    cut = cut_text("x" * 5_000, 60)
    assert cut == "x" * 49 + "[truncated]"


def test_chinese_text_is_cut_between_characters():
    cut = cut_text("你好世界" * 2_000, 3_000)
    assert cut.startswith("你好世界" * 500)
    assert len(cut) <= 3_000


# --- blocks ---------------------------------------------------------------------------------------


def test_blocks_share_the_limit_in_proportion():
    first, second = cut_blocks(["x" * 6_000, "y" * 2_000], 4_000)
    assert 2_700 < len(first) <= 3_000
    assert 700 < len(second) <= 1_000


def test_many_middling_blocks_really_shrink():
    # The original leaves all ten as they are and reports them as cut.
    cut = cut_blocks(["x" * 1_900] * 10, 4_000, min_keep=2_000)
    assert sum(map(len, cut)) < 6_000


def test_blocks_within_the_limit_and_empty_ones_stay():
    assert cut_blocks(["", "x" * 10, ""], 10) == ("", "x" * 10, "")
    assert cut_blocks([], 10) == ()
    assert cut_blocks(["", "x" * 1_000], 300)[0] == ""


def test_the_guard_at_storing_has_a_notice_of_its_own_and_keeps_no_end():
    (cut,) = store_blocks([LINE * 2_000 + "fatal"], 6_000, min_keep=2_000)
    assert cut.endswith(stored_marker(0, 0)[-40:])
    assert "stored" in cut
    assert sent_marker(1, 2) != stored_marker(1, 2)
    assert len(cut) <= 6_000


# --- which results --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "oversized"),
    [
        ([], False),
        ([40_000], False),
        ([40_001], True),
        ([18_600] * 3, True),
        ([20_000, 20_000], False),
        ([20_000, 20_001], True),
    ],
)
def test_results_are_too_large_alone_or_together(sizes, oversized):
    assert is_oversized(sizes, single=40_000, together=40_000) is oversized


def test_the_newest_is_reduced_first():
    assert allot([24_000, 18_200], single=40_000, together=40_000) == {1: 16_000}


def test_one_huge_and_two_middling_results_are_cut_in_one_go():
    found = allot([500_000, 18_600, 18_600], single=40_000, together=40_000, min_keep=2_000)
    assert found == {0: 35_200, 1: 2_400, 2: 2_400}


def test_three_results_of_one_turn_each_keep_their_beginning():
    found = allot([8_990] * 3, single=9_600, together=9_600, min_keep=2_000)
    assert found == {0: 4_800, 1: 2_400, 2: 2_400}


def test_every_result_keeps_its_beginning_while_there_is_room_for_all():
    limits = {"single": 19_200, "together": 19_200, "min_keep": 2_000}
    found = allot([6_000] * 12, **limits, room=ResultRoom(whole=28_800, shared=24_000))
    assert min(found.values()) == 2_400
    assert len(found) == 12


@pytest.mark.parametrize(
    ("room", "together", "share"),
    [
        # Evenly, in steps of 300 characters: an eighth of the floor and its notice.
        (ResultRoom(whole=28_799, shared=28_000), 19_200, 2_100),
        (ResultRoom(whole=28_799, shared=24_000), 19_200, 1_800),
        (ResultRoom(whole=28_799, shared=22_000), 9_600, 1_800),
        # What results may have together is more, and has no steps: no message changes it.
        (ResultRoom(whole=24_000, shared=20_000), 19_200, 1_600),
        (ResultRoom(whole=100, shared=0), 19_200, 1_600),
        (ResultRoom(), 1_200, 100),
        (ResultRoom(), 0, 0),
    ],
)
def test_results_whose_floors_do_not_fit_share_the_room_evenly(room, together, share):
    limits = {"single": 19_200, "min_keep": 2_000}
    found = allot([6_000] * 12, **limits, together=together, room=room)
    assert found == dict.fromkeys(range(12), share)


def test_a_sixth_of_a_request_whose_results_share_the_room_stays_free():
    """Four characters a token: 12 000 tokens may be sent, 2 000 are the rest."""
    room = room_of(usable=12_000, rest=2_000, characters=72_000, tokens=18_000)
    assert room == ResultRoom(whole=40_000, shared=32_000)
    full = room_of(usable=12_000, rest=11_000, characters=72_000, tokens=18_000)
    assert full == ResultRoom(whole=4_000, shared=0)
    assert room_of(usable=12_000, rest=0, characters=0, tokens=0) == ResultRoom()


def test_short_results_leave_their_part_of_the_share_to_the_others():
    limits = {"single": 19_200, "together": 10_000, "min_keep": 2_000}
    found = allot([100] * 10 + [6_000] * 6, **limits, room=ResultRoom(whole=11_000, shared=9_000))
    # 1 000 characters are short; 9 000 of 10 000 are left for six, and more than of the room.
    assert found == dict.fromkeys(range(10, 16), 1_500)


@given(
    sizes=st.lists(st.integers(0, 9_000), min_size=1, max_size=40),
    shared=st.integers(0, 60_000),
    together=st.integers(0, 60_000),
)
def test_shares_never_exceed_what_is_shared(sizes, shared, together):
    room = ResultRoom(whole=shared, shared=shared)
    single = max(together, 1)
    found = allot(sizes, single=single, together=together, min_keep=2_000, room=room)
    kept = sum(min(size, found.get(index, size)) for index, size in enumerate(sizes))
    if len(sizes) > 1:
        assert kept <= max(shared, together)


def test_short_results_take_no_more_of_the_room_than_they_have():
    limits = {"single": 9_600, "together": 9_600, "min_keep": 2_000}
    found = allot([100] * 30 + [9_000] * 5, **limits, room=ResultRoom(whole=20_000))
    # 3 000 characters are short, the others keep 12 000.
    assert found == dict.fromkeys(range(30, 35), 2_400)


def test_a_single_result_is_measured_alone():
    assert allot([30_000], single=40_000, together=10_000) == {}


def test_nothing_is_cut_where_all_fits():
    assert allot([100, 200, 300], single=1_000, together=600) == {}


def test_a_tiny_window_gets_small():
    limits = ResultLimits()
    single = limits.max_chars(100)
    found = allot([500_000], single=single, together=single, min_keep=limits.min_keep(100))
    cut = cut_text("x" * 500_000, found[0], min_keep=limits.min_keep(100))
    assert len(cut) < 2_000


def test_a_second_look_at_a_small_window_finds_nothing():
    # Otherwise its own 2 217 characters would be too long again, without end.
    limits = ResultLimits()
    single = limits.max_chars(1_000)
    cut = cut_text("x" * 5_000, single, min_keep=limits.min_keep(1_000))
    assert not is_oversized([len(cut)], single=single, together=single)


def test_results_that_were_cut_together_are_not_cut_again():
    texts = [LINE * 560] * 3
    found = allot([len(t) for t in texts], single=9_600, together=9_600, min_keep=2_000)
    cut = [cut_text(t, found[n], min_keep=2_000) for n, t in enumerate(texts)]
    assert not is_oversized([len(t) for t in cut], single=9_600, together=9_600)
    assert all(t.startswith(LINE * 120) for t in cut)


@pytest.mark.parametrize("window", range(1_600, 2_100, 7))
def test_no_window_leaves_a_cut_result_too_long(window):
    limits = ResultLimits()
    single = limits.max_chars(window)
    cut = cut_text("x" * 50_000, single, min_keep=limits.min_keep(window))
    assert len(cut) <= single


def test_a_text_that_was_cut_before_still_says_how_much_is_gone_in_all():
    once = cut_text("x" * 50_000, 10_000)
    twice = cut_text(once, 4_000)
    head = twice.split("\n\n[")[0]
    assert f"{50_000 - len(head):,} of its 50,000 characters" in twice
    assert twice.count("truncated") == 1


def test_a_notice_that_a_tool_wrote_itself_is_not_believed():
    text = sent_marker(7, 9).join(["x" * 3_000, "y" * 3_000])
    assert f"of its {len(text):,} characters" in cut_text(f"a\n\n{text}"[3:], 2_000)


@pytest.mark.parametrize(
    "text",
    [
        "\n\n[This tool result was truncated by me: , of its , characters ok]",
        "\n\n[This tool result was truncated by me: " + "9" * 5_000 + " of its 9 characters ok]",
        "\n\n[This tool result was truncated " * 20_000,
    ],
    ids=["no digits", "too many digits", "over and over"],
)
def test_what_only_looks_like_a_notice_does_no_harm(text):
    whole = text + "x" * 6_000
    assert len(cut_text(whole, 2_000)) <= 2_000


@pytest.mark.parametrize("cluster", ["e\u0301", "👨\u200d👩\u200d👧", "❤\ufe0f"])
def test_what_belongs_to_a_character_stays_with_it(cluster):
    for limit in range(400, 440):
        head = cut_text(cluster * 1_000, limit).split("\n\n[")[0]
        assert head == cluster * (len(head) // len(cluster))


def test_very_many_blocks_keep_their_first_ones():
    cut = cut_blocks(["x" * 1_900] * 400, 4_000, min_keep=2_000)
    assert sum(map(len, cut)) <= 4_000
    assert cut[0] == "x" * 1_900
    assert "truncated" in cut[1]
    assert set(cut[2:]) == {"…"}
    assert cut_blocks(["x"] * 9_000, 10_000) == ("x",) * 9_000


def test_a_share_that_no_float_holds_exactly_is_still_right():
    assert ResultLimits(share=0.29).max_chars(100) == 116


# --- before sending -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "reserve", "effective"),
    [(16_000, 20_000, 8_000), (32_000, 20_000, 20_000), (128_000, 4_096, 4_096), (1, 5, 0)],
)
def test_a_small_window_keeps_room_for_the_request(window, reserve, effective):
    assert effective_reserve(window, reserve) == effective


@pytest.mark.parametrize(
    ("tokens", "reducible", "route"),
    [
        # 10 000 tokens with a margin of 1.2 are exactly what a window of 32 000 leaves.
        (10_000, 0, Route.FITS),
        (10_001, 0, Route.COMPACT),
        # 2 000 too many: 8 000 characters and half as many again.
        (11_666, 12_000, Route.TRUNCATE),
        (11_666, 11_999, Route.COMPACT_THEN_TRUNCATE),
        # 2 too many: 8 characters and a reserve.
        (10_001, 2_055, Route.COMPACT_THEN_TRUNCATE),
        (10_001, 2_056, Route.TRUNCATE),
    ],
)
def test_the_way_to_a_request_that_fits(tokens, reducible, route):
    found = precheck(tokens=tokens, window=32_000, reserve=20_000, reducible_chars=reducible)
    assert found is route


# --- properties -----------------------------------------------------------------------------------

texts = st.text(alphabet="ab \r\n你😀}", max_size=400).flatmap(
    lambda part: st.integers(1, 40).map(lambda times: part * times)
)


@given(text=texts, limit=st.integers(0, 6_000), keep=st.integers(0, 1_000), end=st.booleans())
def test_a_cut_is_shorter_or_nothing_changed(text, limit, keep, end):
    cut = cut_text(text, limit, min_keep=keep, keep_end=end)
    assert (cut == text) or len(cut) < len(text)
    if keep == 0:
        assert len(cut) <= max(limit, 0) or cut == text
        assert len(cut) <= limit or len(text) <= limit


# A line's end before the least that stays, and one just behind it, at which it is cut.
@example(text=f"{'x' * 95}\n{'y' * 12}\n{'z' * 420}", limit=291, keep=104)
@given(text=texts, limit=st.integers(300, 6_000), keep=st.integers(0, 1_500))
def test_a_cut_text_is_not_cut_again(text, limit, keep):
    cut = cut_text(text, limit, min_keep=keep)
    assert cut_text(cut, limit, min_keep=keep) == cut


@given(text=texts, limit=st.integers(0, 6_000), keep=st.integers(0, 1_000))
def test_what_stays_is_the_beginning(text, limit, keep):
    cut = cut_text(text, limit, min_keep=keep, keep_end=False)
    head = cut.split("\n\n[This tool result")[0].removesuffix("[truncated]")
    assert text.startswith(head)
    if cut != text:
        assert len(head) >= min(keep, len(text)) - 16


@given(
    sizes=st.lists(st.integers(0, 50_000), max_size=8),
    single=st.integers(1, 40_000),
    together=st.integers(1, 40_000),
    keep=st.integers(0, 3_000),
)
def test_together_they_have_what_they_may_where_the_minimum_allows_it(
    sizes, single, together, keep
):
    found = allot(sizes, single=single, together=together, min_keep=keep)
    after = [found.get(index, size) for index, size in enumerate(sizes)]
    assert all(target < sizes[index] for index, target in found.items())
    assert all(size <= single for size in after)
    if len(sizes) > 1:
        least = sum(min(size, keep and keep + 400, single) for size in sizes)
        assert sum(after) <= max(together, least)
