"""When a compaction is due."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compaction.engine.parameters import Profile
from compaction.engine.policy.triggers import decide, distances
from compaction.engine.types import Facts

QUIET = Facts(messages=0, tokens=0, request_tokens=0, usable=None)
PROFILE = Profile(message_limit=40, max_context_tokens=6000)


def reason(profile=PROFILE, **facts) -> str | None:
    decision = decide(profile, replace(QUIET, **facts))
    return decision.reason if decision else None


@pytest.mark.parametrize(("messages", "due"), [(39, None), (40, "message_limit")])
def test_the_count_fires_at_its_limit(messages, due):
    assert reason(messages=messages) == due


@pytest.mark.parametrize(("tokens", "due"), [(5999, None), (6000, "token_limit")])
def test_the_tokens_fire_at_their_limit(tokens, due):
    assert reason(tokens=tokens) == due


def test_the_count_is_looked_at_first():
    assert reason(messages=40, tokens=6000) == "message_limit"


def test_zero_switches_the_count_off():
    assert reason(replace(PROFILE, message_limit=0), messages=1000) is None


def test_zero_switches_the_tokens_off():
    assert reason(replace(PROFILE, max_context_tokens=0), tokens=10**6) is None


@pytest.mark.parametrize(("request_tokens", "due"), [(1000, None), (1001, "window")])
def test_the_window_fires_above_what_is_usable(request_tokens, due):
    profile = Profile(message_limit=0, max_context_tokens=0, window_trigger=True)
    assert reason(profile, request_tokens=request_tokens, usable=1000) == due


def test_the_window_needs_a_known_window():
    profile = Profile(message_limit=0, max_context_tokens=0, window_trigger=True)
    assert reason(profile, request_tokens=10**9, usable=None) is None


def test_the_preset_does_not_look_at_the_window():
    assert reason(request_tokens=10**9, usable=10) is None


def test_nothing_fires_while_compaction_is_switched_off():
    assert reason(replace(PROFILE, enabled=False), messages=1000, tokens=10**6) is None


def test_within_the_cooldown_a_tail_over_the_limit_does_not_fire_again():
    assert reason(tokens=9000, seconds_since=59) is None
    assert reason(tokens=9000, seconds_since=60) == "token_limit"


def test_the_window_does_not_wait_for_the_cooldown():
    profile = replace(PROFILE, window_trigger=True)
    assert reason(profile, request_tokens=11, usable=10, seconds_since=0) == "window"


def test_the_distances_say_how_far_each_rule_is():
    facts = Facts(messages=30, tokens=6500, request_tokens=900, usable=1000)
    assert distances(replace(PROFILE, window_trigger=True), facts) == [
        {"reason": "window", "limit": 1001, "now": 900, "left": 101},
        {"reason": "message_limit", "limit": 40, "now": 30, "left": 10},
        {"reason": "token_limit", "limit": 6000, "now": 6500, "left": 0},
    ]


def test_a_rule_that_is_switched_off_has_no_distance():
    assert distances(Profile(message_limit=0, max_context_tokens=0), QUIET) == []
