"""The clock of a prompt cache: when a run is due before a server forgets the prompt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compaction.engine.parameters import Profile
from compaction.engine.policy.cache_clock import (
    delay_ms,
    has_clock,
    lead_ms,
    run_delay_ms,
    waiting_words,
)
from compaction.engine.policy.triggers import decide, distances
from compaction.engine.types import Decision, Facts, Gain

CLOCKED = Profile(
    message_limit=0,
    max_context_tokens=0,
    trigger_on_history_size_chars_when_cache_expiring=30_000,
    cache_ttl_ms=300_000,
    buffer_time_before_cache_expiration_ms=30_000,
)
# 60 s before the end: the buffer, and as much earlier as the queue may look late.
DUE_MS = 240_000


@pytest.mark.parametrize(
    ("age", "delay"),
    [(0, 270_000), (100_000, 170_000), (269_999, 1), (270_000, 0), (300_000, 0), (10**9, 0)],
)
def test_it_waits_for_what_is_left_less_the_buffer(age, delay):
    assert delay_ms(ttl=300_000, age=age, buffer=30_000) == delay


@pytest.mark.parametrize("age", [-1, -3_600_000])
def test_a_clock_that_was_set_back_fires_never(age):
    assert delay_ms(ttl=300_000, age=age, buffer=30_000) is None
    assert run_delay_ms(CLOCKED, age) is None


def test_without_a_ttl_there_is_no_clock():
    assert delay_ms(ttl=0, age=0, buffer=0) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"cache_ttl_ms": 0},
        {"trigger_on_history_size_chars_when_cache_expiring": 0},
        {"enabled": False},
    ],
)
def test_a_profile_needs_both_numbers_and_to_be_on(changes):
    assert has_clock(CLOCKED)
    assert not has_clock(replace(CLOCKED, **changes))
    assert run_delay_ms(replace(CLOCKED, **changes), 290_000) is None


def test_a_run_is_due_as_much_earlier_as_the_queue_looks_late():
    assert lead_ms(CLOCKED) == 60_000
    assert run_delay_ms(CLOCKED, DUE_MS - 1) == 1
    assert run_delay_ms(CLOCKED, DUE_MS) == 0


@pytest.mark.parametrize(
    ("ttl", "buffer", "lead"),
    [(60_000, 30_000, 45_000), (40_000, 0, 20_000), (10, 9, 9), (3_600_000, 0, 30_000)],
)
def test_where_a_cache_lives_short_half_of_the_time_is_left(ttl, buffer, lead):
    short = replace(CLOCKED, cache_ttl_ms=ttl, buffer_time_before_cache_expiration_ms=buffer)
    assert lead_ms(short) == lead


def facts(**changes) -> Facts:
    given = {"chars": 30_000, "cache_age_ms": DUE_MS} | changes
    return Facts(messages=20, tokens=8_000, request_tokens=9_000, usable=None, **given)


@pytest.mark.parametrize(
    ("changes", "is_due"),
    [
        ({}, True),
        ({"chars": 29_999}, False),
        ({"cache_age_ms": DUE_MS - 1}, False),
        ({"cache_age_ms": 10**9}, True),
        ({"cache_age_ms": None}, False),
        ({"cache_age_ms": -1}, False),
    ],
)
def test_it_fires_over_enough_characters_when_the_time_has_come(changes, is_due):
    due = Decision(reason="cache_expiring", mode="background")
    assert decide(CLOCKED, facts(**changes)) == (due if is_due else None)


@pytest.mark.parametrize(("chars", "is_due"), [(7_499, False), (7_500, True)])
def test_it_fires_only_if_a_quarter_of_the_characters_would_go(chars, is_due):
    gain = Gain(messages=5, tokens=2_000, request_tokens=2_000, chars=chars)
    found = decide(replace(CLOCKED, minimum_gain=0.25), facts(gain=lambda: gain))
    assert (found is not None) is is_due


def test_no_request_waits_for_it():
    assert decide(CLOCKED, facts(), modes=("inline",)) is None


def test_its_distance_counts_characters_and_tells_the_time():
    (far,) = distances(CLOCKED, facts(chars=10_000))
    assert (far["reason"], far["limit"], far["now"], far["left"]) == (
        "cache_expiring", 30_000, 10_000, 20_000,
    )  # fmt: skip
    assert far["waits_for"] == ""
    (waiting,) = distances(CLOCKED, facts(cache_age_ms=DUE_MS - 12_001))
    assert waiting["left"] == 0
    assert "13 seconds" in waiting["waits_for"]
    (unknown,) = distances(CLOCKED, facts(cache_age_ms=None))
    assert "next request" in unknown["waits_for"]
    assert distances(CLOCKED, facts())[0]["waits_for"] == ""
    assert distances(replace(CLOCKED, cache_ttl_ms=0), facts()) == []


@pytest.mark.parametrize(
    ("left", "words"), [(1, ": 1 second."), (1_000, ": 1 second."), (90_001, ": 91 seconds.")]
)
def test_what_is_to_come_is_never_no_seconds_away(left, words):
    assert waiting_words(CLOCKED, DUE_MS - left).endswith(words)
