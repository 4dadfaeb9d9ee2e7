"""Usage reports of all servers in one form, without the numbers that cannot be."""

from __future__ import annotations

import math

import pytest

from chatapp.llm.registry import ModelConfig, Prices
from chatapp.llm.usage import billed, read_usage

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
