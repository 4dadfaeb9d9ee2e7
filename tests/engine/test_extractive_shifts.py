"""A value that was moved, told wrong at first, or said beside the one it had before.

Verbs such as "was pushed back to", sentences that open with "Typo on my side:", and clauses that
say a thing again beside its older value. Each has to be about the same; in doubt both stay.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.extractive_support import talk, units_in

PAIRS = json.loads(Path(__file__).with_name("moved_values.json").read_text())
"""Pairs of statements in twelve languages: `moved` about the same, `apart` about two things."""


@pytest.mark.parametrize(("said", "moved"), PAIRS["moved"])
def test_a_value_that_was_moved_or_told_wrong_stands_alone_no_more(said, moved):
    found = units_in(*talk(said, "assistant: Noted.", moved))
    texts = [unit.text for unit in found if not unit.speaker]
    assert texts == [moved]
    assert any(unit.note for unit in found)


@pytest.mark.parametrize(("said", "other"), PAIRS["apart"])
def test_what_is_about_something_else_or_in_doubt_moves_nothing(said, other):
    found = units_in(*talk(said, "assistant: Noted.", other))
    assert said in [unit.text for unit in found]
    assert not any(unit.note for unit in found)


def test_a_sentence_that_says_what_was_wrong_goes_on_in_the_next():
    """The first names no value, and the second no subject."""
    found = units_in(*talk("The room number is D19.", "I got the room number wrong. It is D07."))
    assert "The room number is D19." not in [unit.text for unit in found]
    assert [unit.note for unit in found if unit.note] == ["replaces D19"]


def test_a_sentence_that_says_what_was_wrong_takes_nothing_else_back():
    said = "The locker number is D19."
    found = units_in(*talk(said, "I got the room number wrong. It is B07."))
    assert said in [unit.text for unit in found]
