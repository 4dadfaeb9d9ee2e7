"""The check of what summaries know: it fails for each thing that it promises to find."""

from __future__ import annotations

import json

import pytest

from compaction.engine.types import Item
from tests.bench import fidelity
from tests.bench.agreement import spearman, texts_of_size
from tests.bench.fidelity import BASELINE, COUNTER, faults
from tests.bench.remembering import Change, Planted, known_of, planted
from tests.facts import DrawnFact

GOOD = {"facts": 0.5, "rules": 1.0, "corrections": 1.0, "outcomes": 0.6, "forbidden": 0}


def figures(**changes):
    """Every case as it should be, but for the changes of one, `700 tokens, 5 passes`."""
    cases = [f"{label}, {n} passes" for label in fidelity.TARGETS for n in fidelity.PASSES]
    cases += [f"ledger, {n} passes" for n in fidelity.PASSES_OF_LEDGER]
    return {case: dict(GOOD) for case in cases} | {"700 tokens, 5 passes": GOOD | changes}


def test_nothing_is_said_where_nothing_fell():
    assert faults(figures(), figures()) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"facts": 0.46}, "facts fell from 0.50 to 0.46"),
        ({"corrections": 0.9}, "corrections fell"),
        ({"outcomes": 0.5}, "outcomes fell"),
        ({"rules": 0.94}, "a rule was dropped"),
        ({"forbidden": 1}, "1 values that were taken back stand alone"),
    ],
)
def test_what_fell_is_named(changes, said):
    (found,) = faults(figures(**changes), figures())
    assert said in found


def test_a_fall_of_three_points_is_allowed():
    assert faults(figures(facts=0.47), figures()) == []


def test_a_summary_that_wears_away_is_named():
    worn = figures() | {"700 tokens, 27 passes": GOOD | {"facts": 0.39}}
    found = faults(worn, worn)
    assert found == ["700 tokens: 27 passes keep 0.39 of the facts, one keeps 0.50."]


def test_the_committed_baseline_has_every_case_and_no_fault():
    baseline = json.loads(BASELINE.read_text())
    assert set(baseline) == set(figures())
    assert faults(baseline, baseline) == []


def some(**fields):
    made = {"items": (), "facts": (), "rules": (), "changes": (), "outcomes": ()} | fields
    return Planted(**made)


def test_a_fact_counts_where_value_and_topic_share_a_line():
    fact = DrawnFact(shape="digits", value="41977", topic="pump", sentence="")
    assert known_of("- the pump has 41977", some(facts=(fact,))).facts == 1
    assert known_of("- the pump\n- 41977", some(facts=(fact,))).facts == 0


@pytest.mark.parametrize(
    ("text", "forbidden"),
    [
        ("- the mill runs on Onyx", ("Onyx",)),
        ("- the mill runs on Amber (replaces Onyx)", ()),
        ("- the mill runs on Amber", ()),
        ("- Onyx is a stone", ()),
    ],
)
def test_an_old_value_is_forbidden_where_it_stands_without_the_new_one(text, forbidden):
    made = some(changes=(Change(topic="mill", old="Onyx", new="Amber"),))
    assert known_of(text, made).forbidden == forbidden


def test_the_same_seed_plants_the_same_conversation():
    assert planted(7, COUNTER.count) == planted(7, COUNTER.count)
    assert planted(7, COUNTER.count) != planted(8, COUNTER.count)


def test_all_that_is_planted_stands_in_the_conversation():
    made = planted(7, COUNTER.count)
    whole = "\n".join(item.text for item in made.items if isinstance(item, Item))
    known = known_of(whole.replace(". ", ".\n"), made)
    assert (known.rules, known.changes, known.outcomes) == (1, 1, 1)
    assert all(fact.sentence in whole for fact in made.facts)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((1, 2, 3, 4), (10, 20, 30, 40), 1.0),
        ((1, 2, 3, 4), (9, 7, 5, 3), -1.0),
        ((1, 2, 2, 3), (1, 2, 3, 4), 0.9487),
        ((1, 2, 3), (5, 5, 5), 0.0),
    ],
)
def test_ranks_are_compared(first, second, expected):
    assert spearman(first, second) == pytest.approx(expected, abs=1e-4)


def test_compared_texts_have_about_one_size():
    made = planted(5, COUNTER.count)

    def summarise(items, size):
        return fidelity.summarised(items, target=size, passes=1)

    sizes = [
        COUNTER.count(one) for one in texts_of_size(made.items, 300, 5, COUNTER.count, summarise)
    ]
    assert len(sizes) == 20
    # Each is summed up from its lines' counts, which are rounded.
    assert 250 <= min(sizes) <= max(sizes) <= 310
