"""Facts that are drawn: findable, of all shapes, and the same for the same seed."""

from __future__ import annotations

import random
import re

import pytest

from tests import facts
from tests.facts import CODE_PATTERN, SHAPES, SPEAKERS, code, draw_fact, draw_facts


@pytest.fixture
def chance() -> random.Random:
    return random.Random(facts.seed())


@pytest.mark.parametrize("speaker", SPEAKERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_value_and_topic_stand_in_the_sentence(chance, shape, speaker):
    for _ in range(50):
        fact = draw_fact(chance, shape=shape, speaker=speaker)
        assert (fact.shape, fact.value in fact.sentence) == (shape, True)
        assert fact.topic in fact.sentence


def test_there_are_twelve_shapes_and_more():
    assert len(SHAPES) >= 12


def test_no_value_of_many_stands_in_another(chance):
    values = [fact.value for fact in draw_facts(chance, 10 * len(SHAPES))]
    assert not [one for one in values if sum(one in other for other in values) > 1]


def test_many_have_every_shape(chance):
    assert {fact.shape for fact in draw_facts(chance, len(SHAPES))} == set(SHAPES)


def test_one_seed_draws_the_same_again():
    assert draw_facts(random.Random(5), 40) == draw_facts(random.Random(5), 40)


def test_the_seed_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv(facts.SEED_VARIABLE, "815")
    assert facts.seed() == 815


def test_a_seed_by_chance_stays_for_the_run(monkeypatch):
    monkeypatch.setenv(facts.SEED_VARIABLE, "")
    assert facts.seed() == facts.seed()


def test_codes_are_of_many_shapes_and_none_stands_in_another():
    codes = [code(number) for number in range(300)]
    assert codes == [code(number) for number in range(300)]
    assert len({one for one in codes for other in codes if one != other and one in other}) == 0
    # What echoes codes finds each whole, wherever it stands.
    assert re.findall(CODE_PATTERN, " and ".join(codes)) == codes
    assert {shape_of(one) for one in codes} >= {"-", "_", "hex"}


def shape_of(text: str) -> str:
    return next((sign for sign in "-_" if sign in text), "hex" if text.isalnum() else "")


def test_no_sentence_holds_parentheses(chance):
    texts = [
        fact.sentence for speaker in SPEAKERS for fact in draw_facts(chance, 99, speaker=speaker)
    ]
    assert not [text for text in texts if "(" in text or ")" in text]
