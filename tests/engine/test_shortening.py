"""What stays of a text that is cut: its headings, what it opens with, and its newest part."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatapp.llm.encodings import Chars4Counter
from compaction.engine.strategies.shortening import newest_within
from tests.facts import code

COUNTER = Chars4Counter()


class WordCounter:
    """A counter whose pieces do not add up: joining two texts costs a token more."""

    def count(self, text: str) -> int:
        return len(text.split()) + text.count("\n\n")


def codes(count: int) -> list[str]:
    return [code(number) for number in range(count)]


def test_a_text_that_has_room_stays_as_it_is():
    assert newest_within("One. Two.", 100, COUNTER) == "One. Two."


def test_the_newest_of_many_facts_stays_and_the_oldest_goes():
    named = codes(60)
    text = " ".join(f"The keeper noted {code} at noon." for code in named)
    found = newest_within(text, COUNTER.count(text) // 2, COUNTER)
    assert named[-1] in found
    assert named[-10] in found
    assert named[20] not in found


def test_a_text_without_headings_keeps_what_it_opens_with():
    text = "The goal is a mill in Oslo. " + "Then somebody walked on and on. " * 60
    assert newest_within(text, 80, COUNTER).startswith("The goal is a mill in Oslo.")


def test_every_heading_stays_with_the_end_of_what_stands_under_it():
    named = codes(60)
    lines = "\n".join(f"- The keeper noted {code}." for code in named)
    text = f"# Goal\nBuild a mill in Oslo.\n\n## Facts\n{lines}\n\n## Next steps\n- Call Ana."
    found = newest_within(text, 150, COUNTER)
    assert found.startswith("# Goal\nBuild a mill in Oslo.\n\n## Facts\n- The keeper noted ")
    assert found.endswith(f"- The keeper noted {named[-1]}.\n\n## Next steps\n- Call Ana.")
    assert named[0] not in found


def test_one_long_sentence_is_cut_at_a_clause_and_keeps_its_end():
    named = codes(80)
    found = newest_within(f"The keeper noted {', '.join(named)}.", 120, COUNTER)
    assert found.endswith(f"{named[-1]}.")
    assert found.split(",")[0].strip() in named


@pytest.mark.parametrize("text", ["x" * 4000, "摘要" * 900, "# A\n" * 400])
def test_what_has_no_place_to_cut_it_at_has_its_size_all_the_same(text):
    found = newest_within(text, 16, COUNTER)
    assert found
    assert COUNTER.count(found) <= 16


@given(
    st.lists(st.sampled_from(["# Head\n", "One fact. ", "- a line\n", "长文。", "\n\n", "x" * 90])),
    st.integers(min_value=8, max_value=60),
    st.sampled_from([COUNTER, WordCounter()]),
)
def test_it_never_has_more_tokens_than_allowed(pieces, tokens, counter):
    assert counter.count(newest_within("".join(pieces), tokens, counter)) <= tokens
