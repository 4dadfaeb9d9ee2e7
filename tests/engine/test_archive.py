"""What is stored in a summary's place when no summariser answers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compaction.engine.archive import archive
from compaction.engine.types import Item, ToolCall
from tests.fakes.summarizers import WordCounter

COUNTER = WordCounter()


def items(*texts: str, **more) -> list[Item]:
    return [
        Item(id=n, role="user", text=text, tokens=len(text.split()) + 3, **more)
        for n, text in enumerate(texts)
    ]


def archived(found, **changes):
    steps = []
    arguments = {"counter": COUNTER, "max_tokens": 4000, "on_step": steps.append} | changes
    outcome = archive(found, **arguments)
    assert steps == list(outcome.steps)
    return outcome


def test_it_says_what_it_is_and_holds_what_was_said():
    outcome = archived(items(*(f"word{n} " * 40 for n in range(10))))
    assert outcome.text.startswith("[Archive of 10 messages: they could not be summarised")
    assert all(f"user: word{n} word{n}" in outcome.text for n in range(10))
    assert (outcome.is_archive, outcome.truncated, outcome.model_calls) == (True, True, 0)


def test_it_is_always_smaller_than_what_it_was_made_of():
    outcome = archived(items(*("a few words of text " * 5 for _ in range(8))))
    assert outcome.output_tokens < outcome.input_tokens


def test_it_never_has_more_tokens_than_it_may():
    outcome = archived(items(*("word " * 5000 for _ in range(20))), max_tokens=500)
    assert outcome.output_tokens <= 500


def test_short_messages_stay_whole_and_long_ones_are_cut():
    outcome = archived(items("a short one", "word " * 1000, "another short one"), max_tokens=200)
    assert "user: a short one\n" in outcome.text
    assert "user: another short one" in outcome.text
    assert "[…]" in outcome.text


def test_calls_and_results_are_told():
    call = Item(
        id=1, role="assistant", tokens=40,
        tool_calls=(ToolCall(id="c", name="look", arguments='{"at": "it"}'),),
    )  # fmt: skip
    result = Item(id=2, role="tool", tool_name="look", text="seen " * 30, tokens=40)
    text = archived([call, result]).text
    assert 'calls look {"at": "it"}' in text
    assert "look: seen" in text


def test_the_summary_before_lives_on_in_a_part_of_the_room():
    earlier = "earlier " * 2000
    outcome = archived(items(*("word " * 100 for _ in range(4))), previous=earlier)
    assert "earlier earlier" in outcome.text
    # Both are sent: the archive alone must free something.
    assert outcome.output_tokens < 400
    assert outcome.text.count("word") > 150


def test_where_it_takes_the_summarys_place_both_count():
    earlier = "earlier " * 100
    alone = archived(items("word " * 20), previous=earlier)
    instead = archived(items("word " * 20), previous=earlier, replaces_previous=True)
    assert instead.output_tokens > alone.output_tokens
    assert instead.output_tokens < instead.input_tokens


@given(
    st.lists(st.text(max_size=300), min_size=1, max_size=30),
    st.text(max_size=500),
    st.integers(100, 5000),
)
def test_whatever_was_said_the_cap_holds_and_the_first_words_say_what_it_is(texts, earlier, cap):
    outcome = archived(items(*texts), previous=earlier, max_tokens=cap)
    assert outcome.text.startswith(f"[Archive of {len(texts)} message")
    assert outcome.output_tokens <= max(cap, 5)


def test_a_message_of_nearly_nothing_leaves_only_its_name():
    assert archived(items("2")).text == "[Archive of 1 message.]"
