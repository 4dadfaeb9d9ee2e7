"""What stays by characters: whole exchanges, fewer than the number, and at least the newest one."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compaction.engine.policy.cuts import cut_tail_chars, keep_exchanges, legal_plan
from compaction.engine.policy.exchanges import exchange_starts, exchanges, size_of
from compaction.engine.policy.groups import MoreItemsNeeded, legal_cuts
from compaction.engine.policy.triggers import decide, distances
from compaction.engine.profile import Profile, ProfileError, build
from compaction.engine.protocols import PlanFacts
from compaction.engine.types import Facts, Gain, Item, Plan
from tests.engine.strategies import conversations
from tests.fakes.summarizers import shaped

SPLITS = [
    # Sizes from the oldest on, the tail's limit, the trigger's, and how many are summarised.
    ([1300, 1300, *[1250] * 4, *[800] * 4], 3_000, 10_000, 7),
    ([800] * 10, 3_000, 10_000, 0),
    ([100, 100, 9000, 500, 500], 3_000, 10_000, 3),
    ([500, 1000, 1000, 1000], 3_000, 3_500, 2),
    ([500, 1000, 1000, 1000], 3_000, 3_501, 0),
    ([5000], 3_000, 5_000, 0),
    ([100, 200], 0, 300, 1),
    ([100, 200], 0, 301, 0),
    ([100, 9000], 50, 100, 1),
    ([1] * 5, 3, 5, 3),
]
QUIET = Facts(messages=0, tokens=0, request_tokens=0, usable=None)


def profile(tail: int = 0, trigger: int = 0, **others) -> Profile:
    """Return a profile with the cut and the trigger by characters alone."""
    values = {"message_limit": 0, "max_context_tokens": 0, "cut": "tail_chars"} | others
    return build(
        Profile(),
        values
        | {"history_tail_size_chars_to_exclude": tail, "trigger_on_history_size_chars": trigger},
    )


def facts(**changes) -> PlanFacts:
    return PlanFacts(room=lambda: 10**9, **changes)


def exchanged(sizes: list[int], *, seed: int = 0) -> list[Item]:
    """Return exchanges of these sizes in shapes that a seed draws, each dealt out anywhere."""
    chance, items = random.Random(seed), []
    for size in sizes:
        shape = chance.choice(("ua", "uua", "u1t", "u2tt", "sua", "1t", "a"))
        own = shaped(shape)
        cuts = sorted(chance.randint(0, size) for _ in own[1:])
        parts = [after - before for before, after in zip([0, *cuts], [*cuts, size], strict=True)]
        items += [replace(one, chars=part) for one, part in zip(own, parts, strict=True)]
    return [replace(item, id=n, position=n) for n, item in enumerate(items, 1)]


def gain_of(plan: Plan) -> Gain:
    """Return what a plan would summarise, as branches tell it."""
    return Gain(
        messages=len(plan.summarise), tokens=10**6, request_tokens=0, chars=size_of(plan.summarise)
    )


def split(items: list[Item], rules: Profile) -> int:
    """Return how many exchanges are summarised: the trigger is asked, then the cut."""
    plan = cut_tail_chars(items, rules, facts())
    found = replace(QUIET, chars=size_of(items), gain=lambda: gain_of(plan))
    if decide(rules, found, modes=("inline",)) is None:
        return 0
    return len(exchanges(plan.summarise))


# --- the cut --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("sizes", "tail", "trigger", "head"), SPLITS)
def test_a_history_is_split_where_it_should_be(sizes, tail, trigger, head, seed):
    items = exchanged(sizes, seed=seed)
    assert [one.chars for one in exchanges(items)] == sizes
    # The share that a compaction has to gain is another rule's: it is tested below.
    rules = replace(profile(), minimum_gain=0.0)
    rules = replace(
        rules, history_tail_size_chars_to_exclude=tail, trigger_on_history_size_chars=trigger
    )
    assert split(items, rules) == head


@pytest.mark.parametrize(
    ("sizes", "tail", "trigger", "share"),
    [([100, 9000], 50, 100, 100 / 9100), ([100, 200], 0, 300, 100 / 300)],
)
def test_a_small_head_waits_until_it_is_worth_a_call(sizes, tail, trigger, share):
    """The split is where it should be; whether it is made, the gain decides (minimum_gain)."""
    items, rules = exchanged(sizes), profile()
    rules = replace(
        rules, history_tail_size_chars_to_exclude=tail, trigger_on_history_size_chars=trigger
    )
    assert split(items, replace(rules, minimum_gain=share - 0.001)) == 1
    assert split(items, replace(rules, minimum_gain=share + 0.001)) == 0
    # By default a quarter: 100 of 300 characters are enough, 100 of 9,100 are not.
    assert split(items, rules) == (share >= 0.25)


def test_a_kept_part_has_no_gaps_behind_an_exchange_that_is_too_long():
    plan = cut_tail_chars(exchanged([100, 100, 9000, 500, 500]), profile(3_000), facts())
    assert [one.chars for one in exchanges(plan.keep)] == [500, 500]


def test_one_exchange_of_two_megabytes_is_never_summarised():
    items = exchanged([2_000_000])
    assert cut_tail_chars(items, profile(5_000), facts()).summarise == ()
    assert split(items, profile(5_000, 50_000)) == 0


def test_the_newest_exchange_stays_however_long_it_is():
    plan = cut_tail_chars(exchanged([10, 10, 2_000_000]), profile(5_000), facts())
    assert [one.chars for one in exchanges(plan.keep)] == [2_000_000]


def test_an_open_question_is_kept_and_is_no_exchange():
    items = [*exchanged([100, 200, 300]), Item(id=99, role="user", chars=4_000)]
    plan = cut_tail_chars(items, profile(301), facts())
    assert [item.chars for item in plan.keep[-1:]] == [4_000]
    assert [one.chars for one in exchanges(plan.keep[:-1])] == [300]
    assert size_of(plan.summarise) == 300


def test_results_that_the_model_has_not_seen_stay_with_their_call_and_question():
    items = [replace(item, chars=1_000) for item in shaped("uaua" + "u2tt")]
    plan = cut_tail_chars(items, profile(0), facts())
    assert [item.id for item in plan.keep] == [5, 6, 7, 8]


def test_the_profile_is_refused_whose_tail_is_no_shorter_than_what_triggers():
    with pytest.raises(ProfileError) as refused:
        profile(9_000, 8_000)
    assert (
        "trigger_on_history_size_chars (8,000)"
        in (refused.value.errors["history_tail_size_chars_to_exclude"])
    )


def naively_kept(items: list[Item], limit: int) -> list[Item]:
    """Walk as the rule has it, with a running total of all sizes."""
    tail: list[Item] = []
    total = 0
    for one in reversed(exchanges(items)):
        if total + one.chars < limit or not tail:
            tail = [*one.items, *tail]
        total += one.chars
    return tail


@settings(max_examples=150, deadline=None)
@given(conversations(max_size=30), st.integers(0, 300))
def test_any_conversation_is_split_as_the_plain_walk_splits_it(items, limit):
    plan = keep_exchanges(items, limit)
    kept = naively_kept(items, limit)
    assert [*plan.summarise, *plan.keep] == items
    # A call at the end that waits for results is kept, too; here that is the newest exchange.
    assert list(plan.keep) == kept
    assert legal_plan(items, plan, facts(whole=True)).keep[-len(kept) :] == plan.keep


@settings(max_examples=150, deadline=None)
@given(conversations(max_size=30), st.integers(0, 300), st.data())
def test_the_newest_items_give_the_same_cut_or_ask_for_more(items, limit, data):
    earlier = data.draw(st.integers(0, len(items)))
    try:
        found = keep_exchanges(items[earlier:], limit, earlier=earlier)
    except MoreItemsNeeded:
        assert earlier
        return
    assert found.keep == keep_exchanges(items, limit).keep


def test_a_page_that_is_too_short_tells_how_much_more_it_takes():
    items = exchanged([10] * 20, seed=4)
    with pytest.raises(MoreItemsNeeded) as asked:
        keep_exchanges(items, 5_000, earlier=100_000)
    assert 300 < asked.value.more < 3_000


def test_a_plain_conversation_is_cut_by_little_more_than_what_is_kept():
    items = exchanged([1_000] * 12, seed=5)
    assert size_of(keep_exchanges(items, 5_000, earlier=100_000).keep) == 4_000


# --- exchanges ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "lengths"),
    [
        ("", []),
        ("u", [1]),
        ("ua", [2]),
        ("uaua", [2, 2]),
        # Each answer of a tool loop with its results.
        ("u1t1ta", [3, 2, 1]),
        ("uua", [3]),
        # What nobody has answered yet belongs to the last one.
        ("uauu", [4]),
        ("su", [2]),
        ("sua", [3]),
        # A result that no call asked for stands with what is before it.
        ("uaoua", [3, 2]),
        # A call without a result is not parted from what follows it at once.
        ("u1ua", [3, 1]),
    ],
)
def test_an_exchange_goes_from_one_answer_to_the_next(shape, lengths):
    assert [len(one.items) for one in exchanges(shaped(shape))] == lengths


@pytest.mark.parametrize(
    ("shape", "starts"),
    [
        # The first answer's exchange may have begun before it.
        ("ua", []),
        ("aua", [1]),
        ("uaua", [2]),
        # A call that was not read may hold everything together up to its result.
        ("uatua", [3]),
        ("uaota", [4]),
    ],
)
def test_where_an_exchange_begins_is_told_as_far_as_it_is_certain(shape, starts):
    found = []
    with pytest.raises(MoreItemsNeeded):
        for start in exchange_starts(shaped(shape), earlier=True):
            found.append(start)
    assert found == starts


@given(conversations(max_size=30))
def test_exchanges_part_no_group_and_all_but_the_last_hold_an_answer(items):
    found = exchanges(items)
    assert [item for one in found for item in one.items] == items
    starts, place = [], 0
    for one in found[:-1]:
        place += len(one.items)
        starts.append(place)
        assert one.is_answered
    assert set(starts) <= set(legal_cuts(items))


# --- the trigger ----------------------------------------------------------------------------------


def reason(rules: Profile, **changes) -> str | None:
    decision = decide(rules, replace(QUIET, **changes))
    return decision.reason if decision else None


@pytest.mark.parametrize(("chars", "due"), [(49_999, None), (50_000, "history_size")])
def test_characters_fire_at_their_limit(chars, due):
    assert reason(profile(5_000, 50_000), chars=chars) == due


def test_no_limit_never_fires():
    assert reason(profile(5_000), chars=10**9) is None


def test_a_request_waits_for_it():
    decision = decide(profile(0, 10), replace(QUIET, chars=10))
    assert decision is not None
    assert decision.mode == "inline"


def test_the_cooldown_holds_for_characters():
    rules = profile(0, 10, cooldown_seconds=60)
    assert reason(rules, chars=10, seconds_since=59) is None
    assert reason(rules, chars=10, seconds_since=60) == "history_size"


@pytest.mark.parametrize(
    ("changes", "due"),
    [
        ({"chars": 2_500}, "history_size"),
        ({"chars": 2_499}, None),
        # Rules of the conversation are never summarised: 10,000 less those.
        ({"chars": 2_500, "fixed_chars": 1}, None),
    ],
)
def test_it_waits_until_a_quarter_of_it_would_go(changes, due):
    gain = Gain(messages=1, tokens=10**6, request_tokens=0, **changes)
    assert reason(profile(0, 10_000), chars=10_000, gain=lambda: gain) == due


def test_the_distance_is_told_in_characters_with_what_it_waits_for():
    gain = Gain(messages=1, tokens=10**6, request_tokens=0, chars=100)
    found = replace(QUIET, chars=12_000, gain=lambda: gain)
    (rule,) = distances(profile(0, 10_000), found)
    assert (rule["reason"], rule["limit"], rule["now"], rule["left"]) == (
        "history_size", 10_000, 12_000, 0,
    )  # fmt: skip
    assert "100 of 12,000 characters" in rule["waits_for"]
    assert distances(profile(0), found) == []


# --- what fits each other -------------------------------------------------------------------------


def errors_of(**values) -> dict[str, str]:
    try:
        build(Profile(), values)
    except ProfileError as error:
        return error.errors
    return {}


@pytest.mark.parametrize(
    ("values", "name", "sentence"),
    [
        (
            {"trigger_on_history_size_chars": 5_000, "cut": "tail_chars"},
            "history_tail_size_chars_to_exclude",
            "trigger_on_history_size_chars (5,000)",
        ),
        (
            {
                "trigger_on_history_size_chars": 50_000,
                "trigger_on_history_size_chars_when_cache_expiring": 4_000,
                "cut": "tail_chars",
            },
            "history_tail_size_chars_to_exclude",
            "trigger_on_history_size_chars_when_cache_expiring (4,000)",
        ),
        (
            {"cache_ttl_ms": 300_000, "buffer_time_before_cache_expiration_ms": 300_000},
            "buffer_time_before_cache_expiration_ms",
            "cache_ttl_ms (300,000)",
        ),
        ({"abridged_total_chars_limit": 199}, "abridged_total_chars_limit", "200"),
    ],
)
def test_numbers_that_do_not_fit_name_the_one_to_change(values, name, sentence):
    assert sentence in errors_of(**values)[name]


@pytest.mark.parametrize(
    "values",
    [
        {"trigger_on_history_size_chars": 5_001, "cut": "tail_chars"},
        # Another cut does not look at the tail's characters.
        {"trigger_on_history_size_chars": 100},
        {"history_tail_size_chars_to_exclude": 10**6, "cut": "tail_chars"},
        {"buffer_time_before_cache_expiration_ms": 30_000},
        {"cache_ttl_ms": 300_000, "buffer_time_before_cache_expiration_ms": 299_999},
        {"abridged_total_chars_limit": 200},
        {"abridged_total_chars_limit": 0},
    ],
)
def test_numbers_that_fit_are_taken(values):
    assert errors_of(**values) == {}
