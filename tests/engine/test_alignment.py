"""From a line of a summary to its messages: exact, cited, matched, or nothing."""

from __future__ import annotations

import itertools

import pytest

from compaction.engine.extractive.selection import weigh
from compaction.engine.fidelity.alignment import take_citations, trace
from compaction.engine.provenance import Origin, SourcePiece, Unit, UnitKind

STEP = 1_000_000


def unit(text: str, *, message: int, start: int = 0, **changes) -> Unit:
    fields = {"kind": UnitKind.FACT, "speaker": "", "position": message * STEP} | changes
    return Unit(text=text, message=message, start=start, end=start + len(text), **fields)


UNITS = (
    unit("The lift carries 450 kg,", message=1, start=7, entities=("450",)),
    unit("Ms Okafor holds the spare.", message=2, entities=("ms okafor",)),
    unit("The carrier comes to the yard at dawn with padded blankets.", message=3),
    *(unit(f"Nothing else happened on day {n}.", message=10 + n) for n in range(40)),
)


def origins(text: str, **changes):
    lines = trace(text, weigh(UNITS), **changes)
    return [(text[one.start : one.end], one.origin, one.sources) for one in lines]


def test_a_units_own_text_is_exact_with_its_offsets():
    ((line, origin, sources),) = origins("- The lift carries 450 kg,")
    assert (line, origin) == ("- The lift carries 450 kg,", Origin.EXACT)
    assert sources == (SourcePiece(message=1, start=7, end=31),)


@pytest.mark.parametrize(
    "line",
    [
        "- Ms Okafor holds the spare. [#2]",
        "- [assistant] Ms Okafor holds the spare.",
        "- Ms Okafor holds the spare (replaces Mr Duong) [#2]",
    ],
)
def test_marks_around_it_change_nothing(line):
    ((_, origin, sources),) = origins(line)
    assert (origin, sources[0].message) == (Origin.EXACT, 2)


def test_headings_and_empty_lines_are_no_lines():
    assert [line for line, *_ in origins("## Facts\n\n- Ms Okafor holds the spare.\n---")] == [
        "- Ms Okafor holds the spare."
    ]


def test_identifiers_that_share_a_line_lead_to_each_place():
    ((_, origin, sources),) = origins("- carries 450 kg; lift carries 450")
    assert origin == Origin.EXACT
    assert sources == (
        SourcePiece(message=1, start=7 + 9, end=7 + 9 + 14),
        SourcePiece(message=1, start=7 + 4, end=7 + 4 + 16),
    )


def test_a_cited_message_counts_where_it_shares_a_term():
    text = "The spare key is with Okafor."
    ((_, origin, sources),) = origins(text, cited={0: (2 * STEP,)})
    assert (origin, sources[0].message) == (Origin.CITED, 2)


def test_a_citation_of_a_message_about_something_else_is_not_believed():
    text = "Somebody painted a fence."
    ((_, origin, sources),) = origins(text, cited={0: (2 * STEP,)})
    assert (origin, sources) == (Origin.NONE, ())


def test_what_a_line_names_matches_it():
    ((_, origin, sources),) = origins("The spare is in the hands of Ms Okafor.")
    assert (origin, sources[0].message) == (Origin.MATCHED, 2)


def test_rare_words_match_a_line_that_names_nothing():
    ((_, origin, sources),) = origins("Padded blankets come to the yard.")
    assert (origin, sources[0].message) == (Origin.MATCHED, 3)


@pytest.mark.parametrize("cited", [None, {0: (STEP,)}], ids=["matched", "cited"])
def test_of_clauses_with_as_much_in_common_the_first_counts_in_every_process(cited):
    """Sums of the same numbers in another order differ in their last digit: a set's is drawn."""
    syllables = itertools.product("bdfgklmnprst", "aeiou", "bdfgklmnprst")
    words = iter(["zo" + "".join(one) for one in syllables])
    for _ in range(20):
        first, second = ([next(words) for _ in range(6)] for _ in range(2))
        texts = [" ".join(first), " ".join(second)]
        # The n-th word of both stands in n more clauses: what both share weighs the same.
        texts += [
            f"{one} {other}"
            for n, (one, other) in enumerate(zip(first, second, strict=True))
            for _ in range(n)
        ]
        units = [unit(text, message=number, position=STEP) for number, text in enumerate(texts, 1)]
        units += [unit(f"Nothing on day {n}.", message=90 + n) for n in range(200)]
        ((_, sources),) = (
            (one.origin, one.sources)
            for one in trace(" ".join([*second, *first]), weigh(units), cited=cited)
        )
        assert [source.message for source in sources] == [1]


def test_a_line_that_shares_nothing_has_no_source():
    assert origins("Somebody painted a fence.")[0][1:] == (Origin.NONE, ())


@pytest.mark.parametrize(
    ("text", "clean", "numbers"),
    [
        ("A [12].", "A.", {0: ("12",)}),
        ("A [#12, 13].\nB [14]", "A.\nB", {0: ("12", "13"), 1: ("14",)}),
        ("A [12] and [13].", "A and.", {0: ("12", "13")}),
        ("A [99].", "A [99].", {}),
        ("values[12] = 3", "values[12] = 3", {}),
        ("[12]\nB [13]", "B", {0: ("13",)}),
        ("A [12, 99].", "A [12, 99].", {}),
        ("A [x].", "A [x].", {}),
    ],
)
def test_citations_of_known_messages_are_taken_out(text, clean, numbers):
    found = take_citations(text, frozenset({"12", "13", "14"}))
    assert (found.text, dict(found.numbers)) == (clean, numbers)


def test_a_sentence_with_a_semicolon_is_no_list_of_identifiers():
    ((_, origin, _),) = origins("No; the whole move was cancelled by the mayor.")
    assert origin == Origin.NONE
