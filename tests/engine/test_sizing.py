"""How large a stored text may be, and when a summary has taken in the one before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatapp.llm.encodings import Chars4Counter
from compaction.engine.carrying import least_stretch
from compaction.engine.fidelity.gate import takes_in
from compaction.engine.parameters import Profile
from compaction.engine.strategies.sizing import (
    longest_stored,
    longest_text,
    shared_out,
    within_size,
)
from compaction.engine.types import Item, Outcome, SummaryJob, SummaryRequest

COUNTER = Chars4Counter()
# 40 characters, and 10 tokens, each.
SENTENCE = "The keeper looked at the hives at noon. "


class Writer:
    """An engine that answers once more with a text of its own, if it has one."""

    steps = ()

    def __init__(self, again: str = "") -> None:
        self.again, self.missing, self.refused = again, (), []

    def ask_again(self, missing):
        self.missing = missing
        return self.again

    def reject(self, code, sentence, text):
        self.refused.append(code)

    def shortened(self, text, tokens):
        return shared_out(["", text], tokens, COUNTER)[1]


def within(text: str, writer: Writer, *, read: int, limit: int) -> Outcome:
    items = (Item(id=1, role="user", text="hives"),)
    outcome = Outcome(
        text=text,
        items=items,
        chunk_count=1,
        max_depth=0,
        truncated=False,
        input_tokens=read,
        output_tokens=COUNTER.count(text),
    )
    return within_size(outcome, writer, SummaryJob(items=items, counter=COUNTER), limit=limit)[0]


def test_a_text_within_its_size_is_left_alone():
    writer = Writer("shorter")
    found = within(SENTENCE * 4, writer, read=1000, limit=40)
    assert (found.text, found.truncated, writer.refused) == (SENTENCE * 4, False, [])


def test_a_longer_one_is_asked_for_once_more():
    writer = Writer(SENTENCE)
    found = within(SENTENCE * 20, writer, read=1000, limit=40)
    assert (found.text, found.truncated) == (SENTENCE, False)
    assert (writer.refused, writer.missing) == (["too_long"], ("At most 20 tokens.",))


@pytest.mark.parametrize("again", ["", SENTENCE * 10])
def test_what_is_still_longer_is_cut_at_a_sentence_and_says_so(again):
    found = within(SENTENCE * 20, Writer(again), read=1000, limit=45)
    assert found.text == (SENTENCE * 4).rstrip()
    assert found.truncated is True


def test_what_is_no_smaller_than_its_source_is_not_made_to_fit():
    found = within(SENTENCE * 20, Writer(), read=200, limit=40)
    assert (found.text, found.truncated) == (SENTENCE * 20, False)


def test_the_texts_of_a_split_turn_have_twice_the_size_together():
    profile = Profile(target_summary_tokens=200)
    both = [SummaryRequest(kind=kind, target_tokens=200) for kind in ("update", "prefix")]
    assert longest_stored(profile) == 400
    assert longest_text(profile, both[0]) == 400
    assert longest_text(profile, *both) == 400
    # Beside a ledger prose is asked for in a smaller size.
    assert longest_text(profile, SummaryRequest(kind="chunk", target_tokens=80)) == 160


@given(st.integers(0, 40), st.integers(0, 40), st.integers(2, 300))
def test_two_texts_share_what_there_is(first, second, tokens):
    found = shared_out([SENTENCE * first, SENTENCE * second], tokens, COUNTER)
    assert sum(map(COUNTER.count, found)) <= tokens
    if COUNTER.count(SENTENCE * first) + COUNTER.count(SENTENCE * second) <= tokens - 2:
        assert found == [(SENTENCE * first).rstrip() or "", (SENTENCE * second).rstrip()] or (
            found == [SENTENCE * first, SENTENCE * second]
        )


@pytest.mark.parametrize(
    ("text", "previous", "expected"),
    [
        ("New. The tram stops at the harbour.", "", False),
        ("New. The tram stops at the harbour.", "The tram stops at the harbour.", True),
        # Two words that both have say nothing.
        ("SUMMARY number 3", "SUMMARY number 2", False),
        (
            "They sold honey, wax and propolis; the queen was marked, the smoker mended twice.",
            "The queen was marked. They sold honey and wax, propolis too. Smoker mended.",
            True,
        ),
        (
            "The tram stops at the harbour.",
            "The queen was marked. They sold honey and wax, propolis too. Smoker mended.",
            False,
        ),
    ],
)
def test_a_summary_has_taken_in_what_it_says_again(text, previous, expected):
    assert takes_in(text, previous, None, most_lost=0.3) is expected


@pytest.mark.parametrize(
    ("reason", "is_first", "expected"),
    [
        ("token_limit", True, 110),
        ("token_limit", False, 110),
        ("ahead", False, 110),
        ("window", True, 110),
        ("window", False, 0),
        ("message_window", True, 56),
        ("maximum_age", False, 0),
        ("hard_limit", True, 0),
        ("overflow_retry", True, 0),
        ("manual", True, 0),
    ],
)
def test_a_stretch_is_worth_a_summary_from_two_frames_on(reason, is_first, expected):
    assert least_stretch(reason, frame=55, is_first=is_first) == expected
