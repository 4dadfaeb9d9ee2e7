"""When a compaction is due."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compaction.engine.parameters import Profile
from compaction.engine.policy.triggers import AheadOfNeed, decide, distances
from compaction.engine.profile import PRESETS
from compaction.engine.types import Facts, Gain

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
        {"reason": "window", "limit": 1001, "now": 900, "left": 101, "waits_for": ""},
        {"reason": "message_limit", "limit": 40, "now": 30, "left": 10, "waits_for": ""},
        {"reason": "token_limit", "limit": 6000, "now": 6500, "left": 0, "waits_for": ""},
    ]


def test_a_rule_that_is_switched_off_has_no_distance():
    assert distances(Profile(message_limit=0, max_context_tokens=0), QUIET) == []


# --- no run without gain --------------------------------------------------------------------------


def gain(messages: int = 0, tokens: int = 1, **others) -> dict:
    """Return the fact that a compaction would summarise so much."""
    found = Gain(messages=messages, tokens=tokens, request_tokens=tokens, **others)
    return {"gain": lambda: found}


AHEAD = Profile(message_limit=0, max_context_tokens=0, prepare_ratio=0.5)


@pytest.mark.parametrize(
    ("profile", "counted", "gained", "due"),
    [
        (PROFILE, {"messages": 40}, {"messages": 10}, "message_limit"),
        (PROFILE, {"messages": 40}, {"messages": 9}, None),
        (PROFILE, {"tokens": 6000}, {"tokens": 1500}, "token_limit"),
        (PROFILE, {"tokens": 6000}, {"tokens": 1499}, None),
        # The document's example: each question has 1,200 tokens, and the fifth reaches the limit.
        (PROFILE, {"tokens": 6000}, {"tokens": 1200}, None),
        (PROFILE, {"tokens": 7200}, {"tokens": 2400}, "token_limit"),
        (AHEAD, {"request_tokens": 600, "window": 1000}, {"tokens": 150}, "ahead"),
        (AHEAD, {"request_tokens": 600, "window": 1000}, {"tokens": 149}, None),
    ],
)
def test_a_rule_fires_only_if_a_quarter_of_what_it_counts_would_go(profile, counted, gained, due):
    assert reason(profile, **counted, **gain(**gained)) == due


def test_zero_gain_is_enough_where_the_profile_asks_for_none():
    greedy = replace(PROFILE, minimum_gain=0.0)
    assert reason(greedy, messages=40, **gain(messages=1)) == "message_limit"


@pytest.mark.parametrize(
    ("facts", "due"),
    [
        ({"messages": 45, **gain(messages=30, fixed_messages=5)}, "message_limit"),
        ({"messages": 44, **gain(messages=30, fixed_messages=5)}, None),
        ({"tokens": 8000, **gain(tokens=5000, fixed_tokens=2000)}, "token_limit"),
        ({"tokens": 7999, **gain(tokens=5000, fixed_tokens=2000)}, None),
    ],
)
def test_what_is_never_summarised_is_not_counted(facts, due):
    assert reason(**facts) == due


def test_hard_limit_and_window_ask_for_no_gain():
    window = Profile(message_limit=0, max_context_tokens=0, window_trigger=True)
    assert reason(window, request_tokens=11, usable=10, **gain()) == "window"
    hard = Profile(message_limit=0, max_context_tokens=0, cut="tail_size", compression_hard_limit=5)
    assert reason(hard, messages=100, **gain()) == "hard_limit"


def test_what_only_counts_what_left_the_tail_asks_for_no_gain():
    sliding = replace(PRESETS["sliding_window"], compression_hard_limit=0, context_size=0)
    assert reason(sliding, messages=52, **gain()) == "message_window"
    assert reason(sliding, messages=44, waiting_seconds=900, **gain()) == "maximum_age"


def test_the_gain_is_looked_for_only_where_a_limit_is_reached():
    def fail() -> Gain:
        raise AssertionError("Nobody asked for the cut.")

    assert reason(messages=39, tokens=5999, gain=fail) is None
    assert reason(messages=99, tokens=9999, seconds_since=1, gain=fail) is None


def test_a_cut_that_cannot_be_looked_for_is_no_failure_of_a_rule():
    def fail() -> Gain:
        raise OSError("The database is gone.")

    with pytest.raises(OSError, match="is gone"):
        reason(messages=40, gain=fail)


def test_a_rule_that_is_held_back_does_not_hide_another_one():
    both = replace(PROFILE, prepare_ratio=0.5)
    facts = {"tokens": 6000, "request_tokens": 600, "window": 1000}
    assert reason(both, **facts, **gain(tokens=200)) == "ahead"


def test_only_rules_of_the_modes_are_asked():
    facts = replace(QUIET, messages=40, request_tokens=600, window=1000)
    both = replace(PROFILE, prepare_ratio=0.5)
    assert decide(both, facts, modes=("background",)).reason == "ahead"
    assert decide(AHEAD, facts, modes=("inline",)) is None


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (
            {"tokens": 6000, **gain(tokens=1200)},
            "A compaction would summarise 1,200 of 6,000 tokens; it waits until that is at least "
            "1,500 (minimum_gain 0.25).",
        ),
        (
            {"tokens": 6500, **gain(tokens=5000, fixed_tokens=1000)},
            "Only 5,500 tokens of these can ever be summarised; it waits for more.",
        ),
        (
            {"tokens": 6000, **gain(tokens=1500, least_tokens=1501)},
            "What can be summarised (1,500 tokens) is less than twice the frame of a summary "
            "(1,501 tokens); it waits for more.",
        ),
        ({"tokens": 6000, **gain(tokens=1500)}, ""),
        ({"tokens": 5999, **gain()}, ""),
    ],
)
def test_a_rule_that_is_held_back_says_what_it_waits_for(facts, words):
    only = replace(PROFILE, message_limit=0)
    (rule,) = distances(only, replace(QUIET, **facts))
    assert rule["waits_for"] == words


# --- after a run that gained nothing --------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "due"), [(7000, None), (8749, None), (8750, "token_limit")])
def test_rules_wait_until_a_quarter_more_has_come(tokens, due):
    assert reason(tokens=tokens, gainless_tokens=7000) == due


def test_without_a_least_gain_one_token_more_is_enough():
    profile = replace(PROFILE, minimum_gain=0.0)
    assert reason(profile, tokens=7000, gainless_tokens=7000) is None
    assert reason(profile, tokens=7001, gainless_tokens=7000) == "token_limit"


def test_the_hard_limit_waits_for_nothing():
    sliding = PRESETS["sliding_window"]
    assert reason(sliding, messages=200, tokens=10, gainless_tokens=10) == "hard_limit"
    assert reason(sliding, messages=60, tokens=10, gainless_tokens=10) is None


def test_the_window_waits_too():
    profile = Profile(message_limit=0, max_context_tokens=0, window_trigger=True)
    full = {"request_tokens": 1001, "usable": 1000, "gainless_tokens": 900}
    assert reason(profile, tokens=950, **full) is None
    assert reason(profile, tokens=1125, **full) == "window"


def test_a_rule_at_its_limit_says_that_it_waits_for_more():
    (rule,) = distances(
        replace(PROFILE, message_limit=0), replace(QUIET, tokens=7000, gainless_tokens=7000)
    )
    assert rule["waits_for"] == (
        "The last run would have made the next request no smaller; it waits until 8,750 tokens "
        "have come since the last summary (7,000 have)."
    )


def test_work_ahead_of_need_does_not_wait_for_the_cooldown():
    profile = Profile(
        message_limit=0, max_context_tokens=0, prepare_ratio=0.7, cooldown_seconds=3600
    )
    assert reason(profile, request_tokens=701, window=1000, seconds_since=1.0) == "ahead"


@pytest.mark.parametrize(
    ("window", "usable", "changes", "limit"),
    [
        # Beside answers of 4,096 tokens 70 % of the window come first.
        (128_000, 123_904, {"window_trigger": True, "precheck_margin": 1.2}, 89_600),
        # 0.875 × 4,096 ÷ 1.2, 0.875 × 4,096: before the size at which a turn would wait.
        (8_192, 4_096, {"window_trigger": True, "precheck_margin": 1.2}, 2_986),
        (8_192, 4_096, {"precheck_margin": 1.2}, 2_986),
        (8_192, 4_096, {"window_trigger": True}, 3_584),
        # No rule looks at the window: no turn would wait for it.
        (8_192, 4_096, {}, 5_734),
        (8_192, None, {"window_trigger": True}, 5_734),
    ],
)
def test_work_ahead_of_need_is_due_before_a_turn_would_wait(window, usable, changes, limit):
    profile = Profile(prepare_ratio=0.7, minimum_gain=0.0, message_limit=0, **changes)
    rule = AheadOfNeed()

    def facts(tokens):
        return Facts(messages=9, tokens=9, request_tokens=tokens, usable=usable, window=window)

    assert [rule.is_due(profile, facts(limit + more)) for more in (0, 1)] == [False, True]
    assert rule.distance(profile, facts(5)) == (limit + 1, 5)
