"""Words, form and speaker tell what a line is about and whether it can be read alone."""

from __future__ import annotations

import pytest

from compaction.engine.extractive.cues import (
    classify,
    count_words,
    cue_worth,
    form_worth,
    is_code_line,
)
from compaction.engine.extractive.headings import Heading


@pytest.mark.parametrize(
    ("sentence", "heading"),
    [
        ("Please put the gate back.", Heading.REQUESTS),
        ("And add a test for Lisbon.", Heading.REQUESTS),
        ("Where does the money end up?", Heading.REQUESTS),
        ("帮我看看去年的访谈。", Heading.REQUESTS),
        ("Never call before noon.", Heading.CONSTRAINTS),
        ("Don't change the public API.", Heading.CONSTRAINTS),
        ("人一个不许裁。", Heading.CONSTRAINTS),
        ("Option one, and 10% is decent.", Heading.DECISIONS),
        ("Yes, oldest first.", Heading.DECISIONS),
        ("选①。", Heading.DECISIONS),
        ("No boots collected.", Heading.RESULTS),
        ("I have never seen it fail.", Heading.RESULTS),
        ("If we decided so, it would rain.", Heading.RESULTS),
        ("calls.add(name, limit=3)", Heading.RESULTS),
    ],
)
def test_a_users_sentence_has_its_heading(sentence, heading):
    assert classify(sentence, role="user", last=False) is heading


@pytest.mark.parametrize(
    ("sentence", "last", "heading"),
    [
        ("Which day suits you?", True, Heading.QUESTIONS),
        ("Which day suits you?", False, Heading.RESULTS),
        ("The date of delivery is still open.", False, Heading.QUESTIONS),
        ("返点未达成一致。", False, Heading.QUESTIONS),
        ("**D-014（部分取代D-002）** 续航改为18个月；", False, Heading.DECISIONS),
        ("The order is decided by the seed.", False, Heading.RESULTS),
        ("It always happens with 9 of 40 seeds.", False, Heading.RESULTS),
        ("Please wait.", False, Heading.RESULTS),
    ],
)
def test_an_assistants_sentence_has_its_heading(sentence, last, heading):
    assert classify(sentence, role="assistant", last=last) is heading


def test_what_a_tool_printed_is_a_result():
    assert classify("You must never do that?", role="tool", last=True) is Heading.RESULTS


WHOLE = "The larger boot suits your right foot, so we reserved it."


@pytest.mark.parametrize(
    "scrap",
    [
        "7 | 256 mm | 11 | none |",
        '"address_book_removed": ["AD-1"]}',
        "runner.add(name, Schedule.every(60), partial(calls.append, name))",
        'raise ValueError("a clock cannot go backwards")',
        "x = 5",
        "Ground rules for everything that we do today:",
        "254 to 256?",
        "It passed yesterday at ten and has a new label on it.",
        "番茄 | 壤土 | 22% | 28% |",
    ],
)
def test_a_scrap_is_worth_less_than_a_whole_sentence(scrap):
    assert form_worth(scrap) < form_worth(WHOLE) == 1.0


def test_a_row_with_a_long_cell_is_worth_more_than_one_of_figures():
    wordy = "Q-02 | whether to fix the price and who carries the stock | Ann |"
    assert form_worth("7 | 256 mm | 11 | none |") < form_worth(wordy) < 1.0


@pytest.mark.parametrize(
    "prose", [WHOLE, "If the machine stalls, `len(x) == 1` fails.", "for the tent: a pole", "选①。"]
)
def test_prose_is_no_code(prose):
    assert not is_code_line(prose)


def test_a_failure_counts_in_a_tools_output_but_not_in_its_code():
    failed = cue_worth("ValueError: rate missing", role="tool", last=False)
    quoted = cue_worth("raise ValueError(rate)", role="tool", last=False)
    fine = cue_worth('"error": null, "rate": 3', role="tool", last=False)
    assert failed > quoted == fine == 1.0


def test_a_status_counts_in_a_tools_output():
    assert cue_worth('"status": "picking"', role="tool", last=False) > 1.0


def test_pleasantries_count_for_little():
    assert cue_worth("Thank you, the photos are clear.", role="user", last=False) < 1.0


def test_the_last_question_of_the_user_counts_for_more():
    asked = "Where is it now?"
    assert cue_worth(asked, role="user", last=True) > cue_worth(asked, role="user", last=False)


@pytest.mark.parametrize(("text", "words"), [("one two, 3 x", 2), ("润格项目 ok", 3), ("", 0)])
def test_words_are_counted_in_chinese_too(text, words):
    assert count_words(text) == words
