"""What is stored in a summary's place when no summariser answers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compaction.engine.strategies.digest import make_digest
from compaction.engine.types import Item, ToolCall
from tests.fakes.summarizers import WordCounter

COUNTER = WordCounter()


def items(*texts: str, **more) -> list[Item]:
    return [
        Item(id=n, position=n, role="user", text=text, tokens=len(text.split()) + 3, **more)
        for n, text in enumerate(texts)
    ]


def digested(found, **changes):
    steps = []
    arguments = {"counter": COUNTER, "max_tokens": 4000, "on_step": steps.append} | changes
    outcome = make_digest(found, **arguments)
    assert steps == list(outcome.steps)
    return outcome


def test_it_says_what_it_is_and_holds_what_was_said():
    outcome = digested(items(*(f"word{n} " * 40 for n in range(10))))
    assert outcome.text.startswith("[Archive: these messages could not be summarised")
    assert all(f"user: word{n} word{n}" in outcome.text for n in range(10))
    assert (outcome.is_digest, outcome.truncated, outcome.model_calls) == (True, True, 0)


def test_it_is_always_smaller_than_what_it_was_made_of():
    outcome = digested(items(*("a few words of text " * 5 for _ in range(8))))
    assert outcome.output_tokens < outcome.input_tokens


def test_it_never_has_more_tokens_than_it_may():
    outcome = digested(items(*("word " * 5000 for _ in range(20))), max_tokens=500)
    assert outcome.output_tokens <= 500


def test_short_messages_stay_whole_and_long_ones_are_cut():
    outcome = digested(items("a short one", "word " * 1000, "another short one"), max_tokens=200)
    assert "user: a short one\n" in outcome.text
    assert "user: another short one" in outcome.text
    assert "word…" in outcome.text


def test_calls_and_results_are_told():
    call = Item(
        id=1, role="assistant", tokens=40,
        tool_calls=(ToolCall(id="c", name="look", arguments='{"at": "it"}'),),
    )  # fmt: skip
    result = Item(id=2, role="tool", tool_name="look", text="seen " * 30, tokens=40)
    text = digested([call, result]).text
    assert 'calls look {"at": "it"}' in text
    assert "look: seen" in text


def again(texts, earlier, **changes):
    return digested(items(*texts), earlier=earlier, **changes)


def test_the_archive_before_lives_on_in_it_whole_while_there_is_room():
    text = ""
    for batch in range(5):
        said = [f"word{4 * batch + n} of a message that is not so short at all" for n in range(4)]
        text = again(said, text).text
    assert all(f"user: word{n} " in text for n in range(20))
    assert text.count("[Archive") == 1


def test_without_room_for_all_of_it_messages_of_both_have_the_same_room():
    earlier = digested(items(*(f"old{n} " * 100 for n in range(4))), max_tokens=200).text
    text = again([f"new{n} " * 100 for n in range(4)], earlier, max_tokens=200).text
    counts = [text.count(f"{age}{n}") for age in ("old", "new") for n in range(4)]
    assert max(counts) - min(counts) <= 1
    assert min(counts) > 10


def test_it_is_smaller_than_the_messages_and_the_archive_before_together():
    earlier = digested(items(*("a few words " * 9 for _ in range(4)))).text
    outcome = again(["other words " * 9 for _ in range(4)], earlier)
    assert outcome.input_tokens == COUNTER.count(earlier) + 4 * 21
    assert COUNTER.count(earlier) < outcome.output_tokens < outcome.input_tokens


def test_where_not_even_beginnings_have_room_the_oldest_are_left_out_and_it_says_so():
    text = digested(items(*(f"word{n} " * 9 for n in range(400))), max_tokens=300).text
    assert "there is no room for the oldest" in text
    assert "user: word399" in text
    assert "user: word0 " not in text
    # The next one takes that sentence for no message.
    assert again(["more words"], text, max_tokens=300).text.count("no room for the oldest") == 1


def test_an_empty_line_in_a_message_makes_it_no_two_messages():
    text = digested(items("one part\n\nanother part", *["words " * 9] * 3)).text
    assert "user: one part\nanother part" in text


def test_what_is_sent_all_the_same_is_not_told_and_frees_nothing():
    said = items(*(f"word{n} " * 40 for n in range(4)))
    outcome = digested(said, sent_again=frozenset({0, 2}))
    assert "word0" not in outcome.text
    assert "user: word1" in outcome.text
    assert outcome.input_tokens == 2 * 43
    assert outcome.output_tokens < outcome.input_tokens


def test_where_everything_is_sent_all_the_same_only_the_name_is_left():
    said = items("word " * 40, "word " * 40)
    assert digested(said, sent_again=frozenset({0, 1})).text == "[Archive.]"


@given(
    st.lists(st.text(max_size=300), min_size=1, max_size=30),
    st.text(max_size=500),
    st.integers(100, 5000),
)
def test_whatever_was_said_the_cap_holds_and_the_first_words_say_what_it_is(texts, earlier, cap):
    outcome = digested(items(*texts), earlier=earlier, max_tokens=cap)
    assert outcome.text.startswith("[Archive")
    assert outcome.output_tokens <= cap


def test_a_message_of_nearly_nothing_leaves_only_its_name():
    assert digested(items("2")).text == "[Archive.]"
