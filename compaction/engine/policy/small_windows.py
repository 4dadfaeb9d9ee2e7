"""How large summaries may be where the model's window is small; profiles suit large ones.

A summary is sent with every request from then on, in its frame and beside prompt and question. One
of 700 tokens fills a window of 1,024, and no question has room behind it, however often it is
compacted (docs/compaction.md#how-a-summary-is-made).
"""

from __future__ import annotations

import math
from dataclasses import replace

from compaction.engine.parameters import Profile

SUMMARY_SHARE = 0.25
"""Of the usable window, what a summary is asked to have at most."""
ANSWER_SHARE = 1 / 3
"""Of the usable window, how long the longest answer of a summarising call may be."""
PREFIX_SHARE = 1 / 6
"""The same for the beginning of a turn, which stands behind the history's text."""
SMALLEST_TARGET_TOKENS = 16
"""No text that says anything is shorter; also the least that a profile may ask for."""


def within_window(profile: Profile, usable: int | None) -> Profile:
    """Return the profile with summaries of a size that leaves room for the conversation.

    `usable` is what the window has beside the reserve, in our tokens; None where nobody knows the
    window. Where a turn may be split, the two texts share what one may have. Numbers that have
    room as they are stay, so that a large window changes nothing.
    """
    if usable is None:
        return profile
    share = SUMMARY_SHARE / 2 if profile.split_turns else SUMMARY_SHARE
    target = _at_most(profile.target_summary_tokens, share * usable)
    return replace(
        profile,
        target_summary_tokens=target,
        merge_target_tokens=min(profile.merge_target_tokens, target),
        digest_tokens=_at_most(profile.digest_tokens, SUMMARY_SHARE * usable),
        summary_output_share=_share_within(
            profile, profile.summary_output_share, ANSWER_SHARE * usable
        ),
        prefix_output_share=_share_within(
            profile, profile.prefix_output_share, PREFIX_SHARE * usable
        ),
        branch_output_tokens=min(
            profile.branch_output_tokens, max(SMALLEST_TARGET_TOKENS, int(ANSWER_SHARE * usable))
        ),
    )


def _at_most(tokens: int, most: float) -> int:
    return min(tokens, max(SMALLEST_TARGET_TOKENS, math.floor(most)))


def _share_within(profile: Profile, share: float, most: float) -> float:
    """Return a share of the reserve that comes to no more than some tokens."""
    if not share or not profile.reserve_tokens:
        return share
    return min(share, max(SMALLEST_TARGET_TOKENS, most) / profile.reserve_tokens)
