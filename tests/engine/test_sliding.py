"""The sliding window: its values as literals, its traps, and defects of others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compaction.engine.policy.triggers import decide, distances
from compaction.engine.policy.window import (
    batch_size,
    falls_out,
    first_batch,
    keep_tail,
    uses_digest,
    waiting_messages,
)
from compaction.engine.profile import PRESETS, ProfileError, build
from compaction.engine.types import Facts, Item, ToolCall

PRESET = PRESETS["sliding_window"]
MINUTE = 60


def say(number: int, role: str | None = None, text: str = "words that say something", **more):
    role = role or ("user" if number % 2 == 0 else "assistant")
    return Item(id=number, role=role, text=text, position=number, **more)


def conversation(count: int) -> list[Item]:
    return [say(number) for number in range(count)]


def calls(number: int, *ids: str) -> Item:
    found = tuple(ToolCall(id=one, name="look") for one in ids)
    return say(number, "assistant", tool_calls=found)


def result(number: int, call_id: str) -> Item:
    return say(number, "tool", tool_call_id=call_id)


def due(profile, messages, waited=None):
    facts = Facts(
        messages=messages, tokens=1, request_tokens=1, usable=None, waiting_seconds=waited
    )
    return decide(profile, facts)


class Branch:
    """A branch whose messages come by a clock and whose runs end at once."""

    def __init__(self, profile=PRESET, *, succeeds=lambda second: True) -> None:
        self.profile, self.succeeds = profile, succeeds
        self.times: list[float] = []
        self.covered = 0
        self.fired: list[tuple[int, str, int]] = []

    def add(self, second: float) -> None:
        self.times.append(second)
        messages = len(self.times) - self.covered
        waited = None
        if waiting_messages(self.profile, messages):
            # The message that pushed the first waiting one out of the tail.
            waited = second - self.times[self.covered + self.profile.tail]
        decision = due(self.profile, messages, waited)
        if decision is None:
            return
        batch = waiting_messages(self.profile, messages)
        self.fired.append((len(self.times), decision.reason, batch))
        if self.succeeds(second):
            self.covered += batch

    def totals(self) -> list[int]:
        return [total for total, _, _ in self.fired]


def run(messages: int, every: float, **changes) -> Branch:
    branch = Branch(**changes)
    for number in range(messages):
        branch.add(number * every)
    return branch


def test_the_preset_has_the_documents_values():
    assert (PRESET.context_size, PRESET.tail_keep_size) == (75, 40)
    assert (PRESET.compression_window_size, PRESET.compression_hard_limit) == (12, 30)
    assert (PRESET.compression_cooldown_sec, PRESET.minimum_batch) == (900, 4)


def test_pure_window_triggers_fall_at_52_64_76_88_100():
    branch = run(104, every=0)
    assert branch.fired == [(n, "message_window", 12) for n in (52, 64, 76, 88, 100)]


def test_the_first_message_can_be_summarised_at_41():
    assert waiting_messages(PRESET, 40) == 0
    assert waiting_messages(PRESET, 41) == 1


def test_one_message_a_minute_fires_by_the_window_alone():
    """Counted from the epoch, a single message fired at 41 and everything shifted by one."""
    assert run(90, every=MINUTE).totals() == [52, 64, 76, 88]


def test_one_message_every_900_seconds_waits_for_a_batch_of_four():
    """The document summarises each single message, which is what it set out to avoid."""
    branch = run(60, every=900)
    assert branch.fired == [(n, "maximum_age", 4) for n in (44, 48, 52, 56, 60)]


def test_the_maximum_age_counts_from_when_the_first_message_left_the_tail():
    for seconds, reason in ((899, None), (900, "maximum_age")):
        decision = due(PRESET, 44, seconds)
        assert (decision.reason if decision else None) == reason


@pytest.mark.parametrize(("messages", "fires"), [(41, False), (43, False), (44, True)])
def test_the_maximum_age_needs_a_batch(messages, fires):
    assert (due(PRESET, messages, 1_000_000) is not None) == fires


def test_window_and_age_are_due_in_the_background_and_the_hard_limit_before_the_request():
    def modes(messages):
        found = due(PRESET, messages)
        return (found.reason, found.mode)

    assert modes(52) == ("message_window", "background")
    assert modes(69) == ("message_window", "background")
    assert modes(70) == ("hard_limit", "inline")
    aged = due(PRESET, 45, 900)
    assert (aged.reason, aged.mode) == ("maximum_age", "background")


def test_what_would_fall_out_of_the_context_is_the_hard_limit():
    """The cap on what is sent never hides what nobody has summarised."""
    profile = replace(PRESET, compression_hard_limit=0)
    assert not falls_out(profile, 75)
    assert falls_out(profile, 76)
    assert due(profile, 76).reason == "hard_limit"


def test_a_count_trigger_fires_in_a_window_of_a_million_tokens():
    """A count does not depend on the window."""
    facts = Facts(messages=52, tokens=5000, request_tokens=5000, usable=990_000, window=1_000_000)
    assert decide(PRESET, facts).reason == "message_window"


def test_no_cooldown_holds_the_windows_rules_back():
    """What is named a cooldown is a maximum age."""
    facts = Facts(messages=52, tokens=1, request_tokens=1, usable=None, seconds_since=1)
    assert decide(replace(PRESET, cooldown_seconds=3600), facts).reason == "message_window"


def test_the_distances_name_every_rule_in_force():
    facts = Facts(
        messages=50, tokens=900, request_tokens=900, usable=None, waiting_seconds=250.0, window=4000
    )
    found = {rule["reason"]: (rule["limit"], rule["now"]) for rule in distances(PRESET, facts)}
    assert found == {
        "message_window": (12, 10),
        "hard_limit": (30, 10),
        "maximum_age": (900, 250),
        "ahead": (2801, 900),
    }


# --- numbers that fit each other -------------------------------------------------


@pytest.mark.parametrize(
    ("values", "parameter", "said"),
    [
        ({"compression_window_size": 31}, "compression_window_size", "raise the hard limit to 31"),
        ({"compression_hard_limit": 36}, "compression_hard_limit", "lower it to 35"),
        ({"compression_hard_limit": 36}, "compression_hard_limit", "raise context_size to 76"),
        ({"tail_keep_size": 75}, "tail_keep_size", "raise context_size above 75"),
        ({"context_size": 60}, "compression_hard_limit", "lower it to 20"),
        (
            {"compression_hard_limit": 0, "compression_window_size": 36},
            "compression_window_size",
            "lower it to 35",
        ),
        ({"cut": "recent_tokens"}, "cut", "tail_size or last_n"),
        (
            {
                "cut": "recent_tokens",
                "compression_window_size": 0,
                "compression_hard_limit": 0,
                "compression_cooldown_sec": 0,
            },
            "cut",
            "Or set context_size",
        ),
        ({"history_limit": 74}, "history_limit", "to 75 or more"),
        ({"message_limit": 40}, "tail_keep_size", "below message_limit (40)"),
    ],
)
def test_numbers_that_do_not_fit_say_which_one_to_change(values, parameter, said):
    with pytest.raises(ProfileError) as refused:
        build(PRESET, values)
    assert said in refused.value.errors[parameter]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"compression_window_size": 30},
        {"compression_hard_limit": 35},
        {"context_size": 70},
        {"history_limit": 75},
        {"context_size": 0, "tail_keep_size": 200},
    ],
)
def test_numbers_at_their_limits_fit(values):
    build(PRESET, values)


# --- where a batch ends -----------------------


def summarised(plan) -> list[int]:
    return [item.id for item in plan.summarise]


def test_the_tail_stays_and_the_rest_is_summarised():
    plan = keep_tail(conversation(52), 40)
    assert summarised(plan) == list(range(12))
    assert len(plan.keep) == 40


def test_an_end_inside_a_group_goes_back_to_its_start():
    items = [*conversation(4), calls(4, "a", "b"), result(5, "a"), result(6, "b"), say(7), say(8)]
    assert summarised(keep_tail(items, 3)) == [0, 1, 2, 3]


def test_an_end_that_leaves_nothing_goes_forward():
    items = [calls(0, "a", "b"), result(1, "a"), result(2, "b"), *map(say, range(3, 9))]
    assert summarised(keep_tail(items, 7)) == [0, 1, 2]


def test_an_end_that_leaves_less_than_half_goes_forward_too():
    """Before a long group one message would be left, and would never get smaller."""
    ids = [f"c{n}" for n in range(2, 12)]
    items = [say(0), calls(1, *ids), *(result(n, f"c{n}") for n in range(2, 12)), *conversation(9)]
    assert len(keep_tail(items, 11).summarise) == 12


def test_an_end_goes_forward_no_further_than_what_waits():
    results = [result(n, f"c{n}") for n in range(1, 9)]
    items = [calls(0, *(f"c{n}" for n in range(1, 9))), *results, say(9), say(10)]
    assert summarised(keep_tail(items, 9)) == []
    assert summarised(keep_tail(items, 6)) == list(range(9))


def test_messages_of_users_alone_are_summarised_too():
    """3131: without an answer anywhere upstream found no boundary and stopped for ever."""
    items = [say(n, "user") for n in range(52)]
    assert summarised(keep_tail(items, 40)) == list(range(12))


def test_a_call_that_waits_for_its_results_is_kept():
    items = [*conversation(4), calls(4, "a")]
    assert summarised(keep_tail(items, 1)) == [0, 1, 2, 3]
    items = [*conversation(4), calls(4, "a", "b"), result(5, "a")]
    assert summarised(keep_tail(items, 1)) == [0, 1, 2, 3]


def test_the_last_message_is_always_kept():
    assert summarised(keep_tail(conversation(3), 0)) == [0, 1]


def test_a_short_reply_stays_with_what_it_answers():
    """4627: the options were summarised and "2" was all that was left."""
    items = conversation(12)
    items[7] = say(7, "assistant", "Which one? 1. red 2. blue")
    items[8] = say(8, "user", "2")
    # The turn that it belongs to stays with it.
    assert summarised(keep_tail(items, 4)) == [0, 1, 2, 3, 4, 5]
    items[8] = say(8, "user", "the blue one, because it is what we have always had")
    assert summarised(keep_tail(items, 4)) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_short_replies_everywhere_change_nothing():
    items = [say(n, text="2") for n in range(12)]
    assert summarised(keep_tail(items, 4)) == list(range(8))


def test_what_cannot_wait_is_not_hidden_by_what_can():
    profile = replace(PRESET, max_context_tokens=6000)
    facts = Facts(messages=52, tokens=6000, request_tokens=6000, usable=None)
    assert (decide(profile, facts).reason, decide(profile, facts).mode) == ("token_limit", "inline")


def test_rules_of_the_conversation_are_no_part_of_the_window():
    facts = Facts(messages=80, tokens=1, request_tokens=1, usable=None, pinned_system=29)
    assert decide(PRESET, facts) is None
    facts = replace(facts, pinned_system=28)
    assert decide(PRESET, facts).reason == "message_window"


# --- chunks, smaller pieces, fallback digests
# ----------------------------------------------------------


def test_a_long_backlog_goes_in_chunks_the_oldest_first():
    """1 000 messages, 960 of them behind."""
    items, sizes = conversation(1000), []
    while plan := first_batch(keep_tail(items, 40).summarise, 60):
        assert plan[0] is items[0]
        sizes.append(len(plan))
        items = items[len(plan) :]
    assert sizes == [60] * 16
    assert len(items) == 40


def test_a_group_larger_than_a_chunk_goes_whole():
    ids = [f"c{n}" for n in range(1, 10)]
    items = [calls(0, *ids), *(result(n, f"c{n}") for n in range(1, 10)), *map(say, range(10, 30))]
    assert [item.id for item in first_batch(keep_tail(items, 4).summarise, 5)] == list(range(10))


def test_batches_get_smaller_after_failures_and_then_an_archive_is_stored():
    sizes = [batch_size(PRESET, waiting=12, failures=failures) for failures in range(8)]
    assert sizes == [12, 12, 12, 6, 3, 1, 4, 8]
    sizes = [batch_size(PRESET, waiting=960, failures=failures) for failures in range(6)]
    assert sizes == [60, 60, 60, 30, 15, 7]
    assert [uses_digest(PRESET, failures) for failures in range(8)] == [False] * 6 + [True] * 2


def test_without_the_parameters_a_batch_never_changes():
    bisect = PRESETS["bisect"]
    sizes = [batch_size(bisect, waiting=500, failures=failures) for failures in (0, 5, 50)]
    assert sizes == [500, 500, 500]
    assert not uses_digest(bisect, 50)
