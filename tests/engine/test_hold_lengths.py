"""How long a restore holds, and which rules and limits a hold leaves in force."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from compaction.engine.parameters import Profile
from compaction.engine.policy.holds import (
    RULES_UNDER_HOLD,
    hold_length,
    problem_with_hold,
    reserve_under,
    under_hold,
)
from compaction.engine.policy.triggers import decide
from compaction.engine.profile import PRESETS, ProfileError, build
from compaction.engine.types import Facts

QUIET = Facts(messages=0, pinned_system=0, tokens=0, request_tokens=0, usable=None, window=0)


def test_a_hold_lasts_until_it_is_lifted_unless_a_profile_says_otherwise():
    assert {preset.restore_hold for preset in PRESETS.values()} == {"until_lifted"}


@pytest.mark.parametrize(
    ("text", "end", "lasts"),
    [
        ("until_lifted", "until_lifted", None),
        ("window", "window", None),
        ("1", "minutes", timedelta(minutes=1)),
        (" 525600 ", "minutes", timedelta(days=365)),
    ],
)
def test_what_a_profile_may_say(text, end, lasts):
    found = hold_length(text)
    assert (found.end, found.lasts) == (end, lasts)


def test_minutes_may_come_as_a_number():
    assert build(Profile(), {"restore_hold": 45}).restore_hold == "45"


def test_no_minutes_hold_nothing():
    assert hold_length("0") is None


@pytest.mark.parametrize("text", ["", "forever", "-1", "525601", "1.5", "30 minutes", "٣"])
def test_anything_else_is_refused_in_words(text):
    sentence = "Must be until_lifted, window, or a number of minutes from 0 to 525,600."
    assert problem_with_hold(text) == sentence
    with pytest.raises(ProfileError) as refused:
        build(Profile(), {"restore_hold": text})
    assert refused.value.errors == {"restore_hold": sentence}


def test_the_window_alone_is_asked_under_a_hold():
    profile = replace(Profile(), message_limit=40, window_trigger=True, minimum_gain=0.0)
    facts = replace(QUIET, messages=90, request_tokens=900, usable=1000, window=1200)
    assert decide(profile, facts).reason == "message_limit"
    assert decide(profile, facts, only=RULES_UNDER_HOLD) is None
    full = replace(facts, request_tokens=1001)
    assert decide(profile, full, only=RULES_UNDER_HOLD).reason == "window"


def test_no_limit_of_messages_hides_what_is_held():
    found = under_hold(replace(PRESETS["sliding_window"], history_limit=80), "until_lifted")
    assert (found.context_size, found.history_limit) == (0, 0)


def test_margins_and_reserves_of_a_profile_count_where_the_window_may_end_it():
    profile = replace(PRESETS["balanced"], reserve_tokens=4000)
    assert under_hold(profile, "until_lifted").precheck_margin == 1.0
    assert under_hold(profile, "window").precheck_margin == 1.2
    assert under_hold(PRESETS["bisect"], "minutes").precheck_margin == 0.0
    reserves = [reserve_under(profile, end) for end in (None, "window", "until_lifted", "minutes")]
    assert reserves == [4000, 4000, 0, 0]


def test_a_hold_that_the_window_may_end_has_the_window_rule():
    """Its page said that the next turn breaks it, and the server was sent more than the window."""
    without = replace(PRESETS["bisect"], window_trigger=False)
    assert under_hold(without, "window").window_trigger
    assert not under_hold(without, "until_lifted").window_trigger
