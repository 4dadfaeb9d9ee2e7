"""Usage reports of all servers in one form, without the numbers that cannot be."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from chatapp.llm.registry import ModelConfig, Prices
from chatapp.llm.usage import LARGEST_TOKENS, billed, read_usage
from tests import facts

PLAIN = {"prompt_tokens": 20, "completion_tokens": 3, "total_tokens": 23}


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        (PLAIN, PLAIN),
        ({"input_tokens": 20, "output_tokens": 3}, PLAIN),
        ({"prompt_tokens": 20, "completion_tokens": 3}, PLAIN),
        ({"prompt_tokens": 20.0, "completion_tokens": 3.0, "total_tokens": 23}, PLAIN),
        ({"prompt_tokens": 20}, {"prompt_tokens": 20}),
        ({"prompt_tokens": -5, "completion_tokens": 3}, {"completion_tokens": 3}),
        ({"prompt_tokens": "many", "completion_tokens": None}, None),
        ({"prompt_tokens": True, "completion_tokens": [3]}, None),
        ({"prompt_tokens": 10**15, "completion_tokens": 10**11}, None),
        ({"prompt_tokens": math.nan, "completion_tokens": math.inf}, None),
        ({}, None),
        (None, None),
        ("none", None),
        ([1, 2], None),
    ],
)
def test_only_numbers_that_can_be_are_read(usage, read):
    assert read_usage(usage) == read


@pytest.mark.parametrize(
    ("own", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 15}}, 15),
        ({"input_tokens_details": {"cached_tokens": 15}}, 15),
        ({"prompt_cache_hit_tokens": 15}, 15),
        ({"cached_tokens": 15}, 15),
        ({"cache_read_input_tokens": 15}, 15),
        ({"prompt_tokens_details": {"cached_tokens": 900}}, 20),
        ({"prompt_tokens_details": {"cached_tokens": -1}}, None),
        ({"prompt_tokens_details": "none"}, None),
    ],
)
def test_cached_tokens_are_a_part_of_the_prompt_whatever_they_are_called(own, cached):
    read = read_usage(PLAIN | own)
    assert read["prompt_tokens"] == 20
    assert read.get("prompt_tokens_details", {}).get("cached_tokens") == cached


@pytest.mark.parametrize("value", ["12", "many", "", {"a": 1}, {}, [1], True, None, -1, 10**30])
@pytest.mark.parametrize(
    ("details", "name"),
    [
        ("prompt_tokens_details", "cached_tokens"),
        ("prompt_tokens_details", "audio_tokens"),
        ("input_tokens_details", "cached_tokens"),
        ("completion_tokens_details", "reasoning_tokens"),
        ("output_tokens_details", "reasoning_tokens"),
    ],
)
def test_what_is_no_count_inside_the_details_makes_no_answer_unreadable(details, name, value):
    usage = PLAIN | {details: {name: value, "accepted_prediction_tokens": 2}}
    own = details.replace("input", "prompt").replace("output", "completion")
    for report in (usage, usage | {"iterations": [usage]}):
        read = read_usage(report)
        assert read[own] == {"accepted_prediction_tokens": 2}
        assert read["prompt_tokens"] == 20
        assert billed(report) == {"prompt_tokens": 20, "cached_tokens": 0, "completion_tokens": 3}


@pytest.mark.parametrize("seed", range(20))
def test_no_report_whatever_stands_in_it_fails_or_counts_what_cannot_be(seed):
    chance = random.Random(f"{facts.seed()} {seed}")
    names = ["prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens", "cost",
             "cache_read_input_tokens", "reasoning_tokens", "promptTokenCount"]  # fmt: skip
    worst = [-5, -1e9, 10**30, math.inf, math.nan, "many", "12", None, True, [1], {"a": 1}, 1.5, 0]

    def some(depth: int = 2) -> dict[str, Any]:
        report: dict[str, Any] = {name: chance.choice(worst) for name in chance.sample(names, 5)}
        if depth:
            report |= {
                "prompt_tokens_details": chance.choice([some(0), *worst]),
                "output_tokens_details": chance.choice([some(0), *worst]),
                "iterations": chance.choice([[some(depth - 1), chance.choice(worst)], *worst]),
            }
        return report

    for _ in range(100):
        report = some()
        read_usage(report)
        assert all(0 <= count <= LARGEST_TOKENS for count in billed(report).values())


def test_cached_tokens_that_a_server_counts_beside_the_prompt_are_added():
    usage = {"input_tokens": 5, "output_tokens": 3, "cache_read_input_tokens": 100}
    assert read_usage(usage)["prompt_tokens"] == 105
    assert billed(usage) == {"prompt_tokens": 105, "cached_tokens": 100, "completion_tokens": 3}


def test_reasoning_and_audio_tokens_are_kept():
    details = {"reasoning_tokens": 2, "audio_tokens": 1}
    read = read_usage(PLAIN | {"completion_tokens_details": details})
    assert read["completion_tokens_details"] == details
    assert read_usage(PLAIN | {"reasoning_tokens": 2})["completion_tokens_details"] == {
        "reasoning_tokens": 2
    }


@pytest.mark.parametrize(
    ("usage", "costs"),
    [
        (PLAIN, (20, 3)),
        (PLAIN | {"iterations": []}, (20, 3)),
        (PLAIN | {"iterations": [{"input_tokens": 100, "output_tokens": 9}, PLAIN]}, (120, 12)),
        (PLAIN | {"iterations": [{"input_tokens": 12}, {"input_tokens": 8}]}, (20, 3)),
        (PLAIN | {"iterations": "none"}, (20, 3)),
        (PLAIN | {"iterations": [7, {"input_tokens": -100}]}, (20, 3)),
        (PLAIN | {"iterations": [{"input_tokens": "9"}]}, (20, 3)),
        ({"prompt_tokens": -20, "completion_tokens": "3"}, (0, 0)),
        (None, (0, 0)),
    ],
)
def test_tokens_that_stand_only_in_parts_of_a_report_cost(usage, costs):
    found = billed(usage)
    assert (found["prompt_tokens"], found["completion_tokens"]) == costs


def test_a_report_of_any_size_stays_small():
    read = read_usage(PLAIN | {f"own_{n}": "x" * n for n in range(5000)})
    assert len(str(read)) < 10_000


def test_a_call_costs_what_its_report_says_and_nothing_for_what_cannot_be():
    prices = Prices(input=10, cached=1, output=100)
    model = ModelConfig(alias="a", backend="b", name="m", context_window=1000, prices=prices)
    report = {"prompt_tokens": 1000, "completion_tokens": 10, "cached_tokens": 400}
    assert model.cost(report) == pytest.approx((600 * 10 + 400 * 1 + 10 * 100) / 1_000_000)
    broken = ({"prompt_tokens": -1000}, {"prompt_tokens": "9", "completion_tokens": 10**15}, None)
    assert [model.cost(usage) for usage in broken] == [0, 0, 0]
