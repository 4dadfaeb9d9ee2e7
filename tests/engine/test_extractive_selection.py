"""The best units are found without comparing every unit with every other."""

from __future__ import annotations

import math
import tracemalloc

import pytest

from compaction.engine.extractive.forms import is_range
from compaction.engine.extractive.selection import MAX_UPDATES, Selection, preferring, weigh
from compaction.engine.fidelity.entities import find_entities
from compaction.engine.provenance import Unit, UnitKind
from tests.engine.extractive_support import item, section, summarize


def units(*texts: str, **more: object) -> list[Unit]:
    return [
        Unit(
            **{
                "text": text,
                "kind": UnitKind.FACT,
                "speaker": "",
                "position": n,
                "entities": tuple(one.key for one in find_entities(text)),
                **more,
            }
        )
        for n, text in enumerate(texts)
    ]


def chosen_of(budget: int, found: list[Unit]) -> list[str]:
    selection = Selection(budget=budget, cost=lambda unit: 10)
    selection.fill(weigh(found))
    return [one.unit.text for one in selection.chosen]


def test_a_unit_that_says_nothing_new_gains_nothing():
    (one,) = weigh(units("the garden gate squeaks"))
    selection = Selection(budget=10, cost=lambda unit: 10)
    selection.cover(one.terms)
    assert selection.gain(one) == 0


def test_the_unit_with_the_code_is_chosen_first():
    assert chosen_of(10, units("plain words stand here", "see the gate MK-2417")) == [
        "see the gate MK-2417"
    ]


@pytest.mark.parametrize(
    "code", ["MK-2417", "9f3ac21b", "user_x93", "425.354.35", "ZX81", "#29441"]
)
def test_a_code_weighs_the_same_whatever_its_shape(code):
    plain, one, other = weigh(units("plain words here", f"see {code}", "see AA-1111"))
    # Nine times a word; three clauses have each term once.
    assert other.whole == pytest.approx(9 * math.log(1 + 4))
    assert other.whole <= one.whole <= 1.2 * other.whole
    assert one.whole > 2 * plain.whole


def test_of_two_units_that_say_the_same_one_is_chosen():
    same = units("the garden gate squeaks", "yes, the garden gate squeaks")
    assert len(chosen_of(100, same)) == 1


def test_a_rare_word_weighs_more_than_one_that_everybody_says():
    common, rare, *_ = weigh(units("harbour gate", "garden lamp", *["the harbour gate"] * 5))
    assert rare.whole > common.whole


def test_the_second_unit_of_a_message_is_worth_less():
    first, second, other = weigh(
        [
            *units("the garden gate squeaks", position=1),
            *units("a purple lantern flickers", position=1),
            *units("some marble staircase glitters", position=2),
        ]
    )
    selection = Selection(budget=100, cost=lambda unit: 10)
    before = selection.gain(second)
    selection.add(first)
    assert selection.gain(second) == pytest.approx(0.95 * before)
    assert selection.gain(other) == pytest.approx(selection.gain(other))


def test_what_is_wanted_is_worth_more():
    found = weigh(units("the garden gate", "the harbour lamp"))
    plain, wanted = preferring(found, ["lamp"], 3)
    assert (plain.worth, wanted.worth) == (1.0, 3.0)


def test_a_unit_that_does_not_fit_is_passed_over():
    selection = Selection(budget=25, cost=lambda unit: len(unit.text))
    selection.fill(weigh(units("MK-2417 and MK-2418 and MK-2419", "a garden gate", "a blue lamp")))
    assert [one.unit.text for one in selection.chosen] in (
        ["a garden gate", "a blue lamp"],
        ["a blue lamp", "a garden gate"],
    )


def test_a_limit_holds_for_what_is_added_alone():
    (one,) = weigh(units("the garden gate squeaks"))
    selection = Selection(budget=100, cost=lambda unit: 10)
    assert not selection.add(one, limit=9)
    assert selection.add(one, limit=10)
    assert not selection.add(one)
    assert selection.has(one)


def test_a_part_of_the_budget_can_be_filled():
    selection = Selection(budget=100, cost=lambda unit: 10)
    found = weigh(units("the garden gate", "the harbour lamp", "a marble staircase"))
    selection.fill(found, upto=20)
    assert (len(selection.chosen), selection.spent, selection.budget) == (2, 20, 100)


def test_a_candidate_is_judged_a_bounded_number_of_times(monkeypatch):
    calls = 0
    gain = Selection.gain

    def counted(self: Selection, one: object) -> float:
        nonlocal calls
        calls += 1
        return gain(self, one)

    monkeypatch.setattr(Selection, "gain", counted)
    # Every line shares words with many others, so that every choice lowers many of them.
    texts = [f"w{n % 7}xxx w{n % 11}yyy w{n % 13}zzz w{n}qqq" for n in range(3000)]
    Selection(budget=10**6, cost=lambda unit: 10).fill(weigh(units(*texts)))
    assert calls <= 3000 * (MAX_UPDATES + 2)


def test_many_lines_of_one_message_still_fill_the_budget():
    texts = [f"Captain Jens{n}k sails to Harbour{n}q" for n in range(300)]
    assert len(chosen_of(2000, units(*texts, position=1))) == 200


@pytest.mark.parametrize(
    ("key", "tells_nothing"),
    [("21-48", True), ("96-104", True), ("010-55500007", False), ("48-21", False), ("x-3", False)],
)
def test_a_range_of_lines_says_nothing_without_its_sentence(key, tells_nothing):
    assert is_range(key) is tells_nothing


def test_ranges_of_lines_are_no_identifiers_that_stand_alone():
    messages = []
    for number, wood in enumerate(("oak", "elm", "ash", "yew", "fir", "bay"), start=1):
        said = f"The miller spoke of wheel {wood} and of the barrel beside the old gate."
        edited = f"Edited README.md: 1 replacement, now lines {number}-{number + 27}."
        messages.append(item(said, position=2 * number))
        messages.append(item(edited, role="tool", position=2 * number + 1))
    assert section(summarize(*messages, target_tokens=120).text, "Identifiers") == []


def test_no_long_text_is_remembered():
    """An imported unit may have 20,000 characters; thousands of them would fill a worker."""
    tracemalloc.start()
    try:
        weigh(units("warm up"))
        before, _ = tracemalloc.get_traced_memory()
        for number in range(40):
            weigh(units(" ".join(f"word{number}x{index}" for index in range(1_500))))
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000
