"""Texts that a summariser may send to cost time or to be stored as nothing: told by what they hold.

Each kind comes in several shapes. What is judged is an answer as a run judges it, by its steps.
"""

from __future__ import annotations

import base64
import random
import string
import time

import pytest

from compaction.engine.parameters import Profile
from compaction.engine.strategies.acceptance import (
    LONGEST_TEXT_CHARS,
    MOST_TEXT_CHARS,
    capped,
    implausible,
    most_chars,
    problem_of,
    refusal_of,
)
from compaction.engine.strategies.calls import SummarizerCalls
from compaction.engine.types import Item, SummaryAnswer, SummaryFailed, SummaryRequest
from tests.fakes.summarizers import Scripted, WordCounter
from tests.growth import takes_longer

SEED = 20_261_129
QUICK_SECONDS = 0.05
WORDS = "the ledger of shop {n} was closed on day {n} after item {n} came back from Ghent. "
LONG = tuple(
    Item(id=number, role="user", text=WORDS.format(n=number) * 12, tokens=200)
    for number in range(40)
)
REQUEST = SummaryRequest(kind="chunk", items=LONG)


def noise(size: int) -> bytes:
    return random.Random(SEED).randbytes(size)


SIGNS = {
    "dots": "." * 10_000,
    "many dots": "." * 40_000,
    "dots apart": ". " * 20_000,
    "dashes": "- - -\n" * 3_000,
    "four dots": "....",
    "rules of tables": "|---|---|---|\n" * 1_000,
    "boxes": "\u2588\u2591" * 5_000,
    "zero-width": "\u200b\u200d\ufeff" * 4_000,
    "emoji": "\U0001f600\U0001f680\u2764\ufe0f" * 3_000,
    "brackets": "[]{}()" * 2_000,
    "signs with a word": "!?" * 3_000 + " summary",
}
ROUND = {
    "one word": "word " * 10_000,
    "one word, short": "okay " * 200,
    "one letter": "a" * 12_000,
    "one letter a line": "x\n" * 9_000,
    "a phrase": "as discussed before we will see " * 300,
    "a phrase with other signs": "as discussed, before! we will see? " * 100,
    "no spaces": "\u597d\u7684\u6ca1\u95ee\u9898" * 900,
    "what nobody sees": "\u3164" * 9_000,
    "two words in turn": "yes no " * 1_500,
}
NO_WORDS = {
    "base64": base64.b64encode(noise(9_000)).decode(),
    "base64 in lines": base64.encodebytes(noise(9_000)).decode().replace("\n", "AB\nCDEFGH"),
    "safe base64": base64.urlsafe_b64encode(noise(9_000)).decode().rstrip("="),
    "hex": noise(7_000).hex(),
    "letters": "".join(random.Random(SEED).choices(string.ascii_letters, k=15_000)),
}
ENDLESS = {
    "base64 of a megabyte": base64.b64encode(noise(750_000)).decode(),
    "prose": "".join(WORDS.format(n=number) for number in range(10_000)),
    "lines": "\n".join(f"- order {number} went out" for number in range(40_000)),
    "spaces": "Summary." + " " * 1_000_000 + "End.",
    "numbers": " ".join(map(str, range(100_000))),
}
EVERY = SIGNS | ROUND | NO_WORDS | ENDLESS


def named(shapes: dict[str, str]):
    return pytest.mark.parametrize("text", shapes.values(), ids=shapes.keys())


@named(SIGNS)
def test_a_text_of_signs_is_refused_for_its_letters_and_digits(text):
    assert "hardly a letter or a digit" in problem_of(SummaryAnswer(text=text))
    assert "hardly a letter or a digit" in implausible(text, REQUEST)


@named(ROUND)
def test_the_same_few_words_all_along_are_refused_without_a_sentence_to_count(text):
    assert "repeated itself" in implausible(text[:LONGEST_TEXT_CHARS], REQUEST)


@named(NO_WORDS)
def test_letters_and_digits_that_are_no_words_are_refused(text):
    assert implausible(text[:LONGEST_TEXT_CHARS], REQUEST)


@named(ENDLESS)
def test_what_goes_on_without_an_end_is_cut_and_never_counts(text):
    answer = capped(SummaryAnswer(text=text), REQUEST.target_tokens)
    assert len(answer.text) == LONGEST_TEXT_CHARS
    assert "20,000 characters were read" in problem_of(answer)
    assert refusal_of(SummaryAnswer(text=text), REQUEST)


@named(EVERY)
def test_each_is_refused_within_a_twentieth_of_a_second(text):
    assert refusal_of(SummaryAnswer(text=text), REQUEST)
    assert not takes_longer(lambda: refusal_of(SummaryAnswer(text=text), REQUEST), QUICK_SECONDS)


@named(EVERY)
@pytest.mark.parametrize("end", ["stop", "length"])
def test_a_run_asks_twice_at_most_and_stores_nothing_of_it(text, end):
    summarizer = Scripted(script=[SummaryAnswer(text=text, finish_reason=end)])
    steps = []
    calls = SummarizerCalls(
        profile=Profile(),
        summarizer=summarizer,
        counter=WordCounter(),
        on_step=steps.append,
        clock=time.monotonic,
    )
    try:
        answer, step = calls.ask(REQUEST, depth=0, parent=None)
    except SummaryFailed as failure:
        assert failure.code == "bad_answer"
    else:
        # Cut off in the middle of what might have been a summary: half of the input is tried.
        assert (answer, step.outcome, end) == (None, "truncated", "length")
    assert len(summarizer.requests) <= 2
    assert all(len(one.output) <= LONGEST_TEXT_CHARS for one in steps)


SOUND = {
    "prose": "".join(WORDS.format(n=number) for number in range(5)),
    "list": "\n".join(f"- shop {number}: closed on day {number}" for number in range(40)),
    "table": "| shop | day |\n|---|---|\n" + "\n".join(f"| {n} | {n + 3} |" for n in range(90)),
    "chinese": "".join(f"\u7b2c{number}\u53f7\u5e97\u5728\u7b2c{number}\u5929\u5173\u95e8\u3002"
                       for number in range(60)),
    "short": "Day 3: shop 3 closed.",
    "thai": "\u0e23\u0e49\u0e32\u0e19\u0e17\u0e35\u0e48 7 "
            "\u0e1b\u0e34\u0e14\u0e41\u0e25\u0e49\u0e27",
    "an address": "See https://shop.test/" + "ledger/" * 14 + " for shop 3; day 3 is booked. "
                  + "".join(WORDS.format(n=number) for number in range(3)),
}  # fmt: skip


@named(SOUND)
def test_what_holds_words_and_numbers_counts_in_every_form(text):
    assert refusal_of(SummaryAnswer(text=text), REQUEST) == ""


def test_what_is_only_far_too_long_is_read_to_the_end_of_a_sentence_and_counts():
    text = "".join(WORDS.format(n=number) for number in range(500))
    answer = capped(SummaryAnswer(text=text), REQUEST.target_tokens)
    assert answer.was_capped and not answer.is_endless
    assert LONGEST_TEXT_CHARS - 100 < len(answer.text) <= LONGEST_TEXT_CHARS
    assert answer.text.rstrip().endswith("from Ghent.")
    assert refusal_of(SummaryAnswer(text=text), REQUEST) == ""


@pytest.mark.parametrize(
    ("target", "characters"),
    [(16, 20_000), (1250, 20_000), (2000, 32_000), (60_000, 960_000), (100_000, 1_000_000)],
)
def test_the_cap_follows_the_size_asked_for_within_two_limits(target, characters):
    assert most_chars(target) == characters
    assert most_chars(target) <= MOST_TEXT_CHARS
    whole = SummaryAnswer(text="a" * characters)
    assert capped(whole, target) is whole
    assert capped(SummaryAnswer(text="a" * (characters + 1)), target).was_capped


def test_what_is_longer_than_its_source_is_left_to_the_rule_of_size():
    request = SummaryRequest(kind="chunk", items=(Item(id=1, role="user", text="Hello."),))
    assert implausible("wordy " * 1_000, request) == ""
