"""The best lines are found without comparing every line with every other."""

from __future__ import annotations

from compaction.engine.extractive import selection
from compaction.engine.extractive.candidates import Candidate
from compaction.engine.extractive.composition import trimmed
from compaction.engine.extractive.headings import Heading, SummaryLine, render_summary
from compaction.engine.extractive.selection import MAX_UPDATES, Choice, Rank, Selection, fill, gain
from compaction.engine.extractive.terms import extract_terms


def candidate(text: str, order: int, **line: object) -> Candidate:
    return Candidate(
        line=SummaryLine(text=text, heading=Heading.RESULTS, **line),
        order=order,
        terms=extract_terms(text),
    )


def empty_selection(budget: int) -> Selection:
    return Selection(budget=budget, count=lambda part: 10 if isinstance(part, SummaryLine) else 2)


def texts(chosen: Selection) -> list[str]:
    return [choice.line.text for choice in chosen.choices]


def test_a_line_that_says_nothing_new_gains_nothing():
    one = candidate("the garden gate squeaks", 0)
    assert gain(one, set(one.terms.weights)) == 0


def test_the_line_with_the_code_is_chosen_first():
    chosen = empty_selection(12)
    fill(chosen, [candidate("plain words here", 0), candidate("see MK-2417", 1)], carried_limit=0)
    assert texts(chosen) == ["see MK-2417"]


def test_of_two_lines_that_say_the_same_one_is_chosen():
    chosen = empty_selection(100)
    same = [candidate("the garden gate squeaks", 0), candidate("yes, the garden gate squeaks", 1)]
    fill(chosen, same, carried_limit=0)
    assert len(chosen.choices) == 1


def test_carried_lines_wait_until_newer_ones_had_their_share():
    chosen = empty_selection(22)
    old = candidate("see MK-2417 there", 0, from_previous=True)
    new = [candidate("a green garden", 1), candidate("some blue paint", 2)]
    fill(chosen, [old, *new], carried_limit=0)
    assert texts(chosen) == ["a green garden", "some blue paint"]


def test_carried_lines_take_what_is_left_over():
    chosen = empty_selection(100)
    fill(chosen, [candidate("see MK-2417 there", 0, from_previous=True)], carried_limit=0)
    assert texts(chosen) == ["see MK-2417 there"]


def test_a_candidate_is_judged_a_bounded_number_of_times(monkeypatch):
    calls = 0

    def counted(one, covered):
        nonlocal calls
        calls += 1
        return gain(one, covered)

    monkeypatch.setattr(selection, "gain", counted)
    # Every line shares words with many others, so that every choice lowers many of them.
    lines = [candidate(f"w{n % 7}x w{n % 11}y w{n % 13}z w{n}q", n) for n in range(3000)]
    fill(empty_selection(10**6), lines, carried_limit=0)
    assert calls <= len(lines) * (MAX_UPDATES + 2)


def test_when_a_line_must_go_it_is_one_without_a_reference_number():
    lines = ["a green garden gate", "the parcel MK-2417 waits"]
    choices = [
        Choice(line=candidate(text, n).line, order=n, rank=Rank.SENTENCE)
        for n, text in enumerate(lines)
    ]
    whole = render_summary(choice.line for choice in choices)
    short = Selection(budget=len(whole) - 1, count=lambda part: 10, choices=choices)
    assert trimmed(short, count=len, chinese=False).endswith("- the parcel MK-2417 waits")


def test_a_line_is_counted_once():
    counted: list[object] = []

    def count(part: object) -> int:
        counted.append(part)
        return 10

    lines = [candidate(f"word{n} thing{n}", n) for n in range(200)]
    fill(Selection(budget=500, count=count), lines, carried_limit=0)
    assert len(counted) == len(set(counted))


def test_the_same_words_about_somebody_else_are_news():
    chosen = empty_selection(100)
    lines = ["owner was Ann", "then Bob left", "owner was Bob"]
    fill(chosen, [candidate(text, n) for n, text in enumerate(lines)], carried_limit=0)
    assert set(texts(chosen)) == set(lines)
