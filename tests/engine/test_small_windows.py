"""What summaries may have in small windows: numbers worked out by hand, and what always holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine.parameters import Profile
from compaction.engine.policy.small_windows import within_window
from compaction.engine.profile import PRESETS

CHECKPOINT = PRESETS["checkpoint"]


@pytest.mark.parametrize(
    ("preset", "usable", "target"),
    [
        # A quarter of what is usable; where a turn may be split, that for both texts together.
        ("bisect", 256, 64),
        ("balanced", 512, 128),
        ("sliding_window", 1024, 256),
        ("checkpoint", 256, 32),
        ("checkpoint", 1024, 128),
        # There is room: the profile's own sizes.
        ("bisect", 2800, 700),
        ("bisect", 2796, 699),
        ("checkpoint", 16_000, 2000),
        # No fewer than say something.
        ("bisect", 40, 16),
        ("bisect", 0, 16),
    ],
)
def test_the_target_is_the_smaller_of_the_profile_s_and_a_share_of_the_window(
    preset, usable, target
):
    assert within_window(PRESETS[preset], usable).target_summary_tokens == target


def test_a_window_that_nobody_knows_and_a_large_one_change_nothing():
    for profile in PRESETS.values():
        assert within_window(profile, None) == profile
        assert within_window(profile, 128_000 - 16_384) == profile


def test_the_longest_answers_have_half_of_what_is_usable_together():
    found = within_window(CHECKPOINT, 3000)
    assert (found.summary_output_tokens, found.prefix_output_tokens) == (1000, 500)
    assert found.branch_output_tokens == 1000
    whole = within_window(CHECKPOINT, 111_616)
    assert (whole.summary_output_tokens, whole.prefix_output_tokens) == (13_107, 8192)


def test_merges_and_fallback_digests_have_no_more():
    profile = replace(PRESETS["sliding_window"], merge_target_tokens=900, digest_tokens=1500)
    found = within_window(profile, 1000)
    assert (found.merge_target, found.digest_tokens) == (250, 250)
    assert within_window(replace(profile, merge_target_tokens=0), 1000).merge_target == 250


@given(
    usable=st.integers(0, 200_000),
    target=st.integers(16, 100_000),
    parts=st.booleans(),
    reserve=st.integers(0, 50_000),
    share=st.floats(0, 1),
)
def test_nothing_ever_grows_and_twice_is_as_once(usable, target, parts, reserve, share):
    profile = Profile(
        target_summary_tokens=target,
        split_turns=parts,
        reserve_tokens=reserve,
        summary_output_share=share,
    )
    found = within_window(profile, usable)
    assert 16 <= found.target_summary_tokens <= target
    assert found.target_summary_tokens <= max(16, usable / 4)
    assert found.summary_output_tokens <= min(profile.summary_output_tokens, max(16, usable / 3))
    assert within_window(found, usable) == found
