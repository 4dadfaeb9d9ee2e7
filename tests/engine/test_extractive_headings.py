"""A summary that was written can be read back, and so merged instead of nested."""

from __future__ import annotations

import pytest

from compaction.engine.extractive.headings import (
    Heading,
    SummaryLine,
    is_structured,
    parse_summary,
    render_summary,
)

LINES = [
    SummaryLine(text="Fix the tax.", heading=Heading.REQUESTS, from_previous=True),
    SummaryLine(text="All tests pass.", heading=Heading.RESULTS, label="assistant"),
    SummaryLine(text="make test", heading=Heading.FILES, label="run", from_previous=True),
]
WRITTEN = """Newer lines win over (earlier) ones.
## Requests
- (earlier) Fix the tax.
## Results and facts
- [assistant] All tests pass.
## Files and commands
- (earlier) [run] make test"""


def test_lines_stand_under_their_headings():
    assert render_summary(LINES) == WRITTEN


@pytest.mark.parametrize("chinese", [False, True])
def test_what_was_written_is_read_back(chinese):
    read = parse_summary(render_summary(LINES, chinese=chinese))
    assert list(read) == [(one.text, one.label, one.heading, one.from_previous) for one in LINES]


def test_carried_lines_come_first_under_a_heading():
    old = SummaryLine(text="Paris", heading=Heading.RESULTS, from_previous=True)
    new = SummaryLine(text="Rome", heading=Heading.RESULTS)
    assert render_summary([new, old]).endswith("- (earlier) Paris\n- Rome")


def test_without_carried_lines_there_is_no_note():
    assert render_summary(LINES[1:2]) == "## Results and facts\n- [assistant] All tests pass."


def test_headings_of_other_summarisers_are_understood():
    text = "**Goal**\nShip it\n\n## Key Decisions:\n1. Use Postgres\n## Next Steps\n(none)"
    assert list(parse_summary(text)) == [
        ("Ship it", "", Heading.REQUESTS, False),
        ("Use Postgres", "", Heading.DECISIONS, False),
    ]


def test_identifiers_that_share_a_line_come_one_by_one():
    text = "## Identifiers and numbers\n- (earlier) MK-2417, ann@b.org\n- RF-88107"
    assert list(parse_summary(text)) == [
        ("MK-2417", "", Heading.IDENTIFIERS, True),
        ("ann@b.org", "", Heading.IDENTIFIERS, True),
        ("RF-88107", "", Heading.IDENTIFIERS, False),
    ]


def test_a_sentence_among_the_identifiers_stays_whole():
    text = "## Identifiers and numbers\n- Order MK-2417, paid, belongs to Ann"
    assert [text for text, *_ in parse_summary(text)] == ["Order MK-2417, paid, belongs to Ann"]


def test_a_long_command_stays_one_line():
    command = "make " + "x " * 150
    (read,) = parse_summary(f"## Files and commands\n- [run] {command}")
    assert read[0] == command[:200].rstrip()


def test_lines_under_an_unknown_heading_are_kept_without_one():
    text = "## Requests\n- a\n## Weather\n- b"
    assert list(parse_summary(text))[1] == ("b", "", None, False)


def test_free_text_comes_sentence_by_sentence():
    assert not is_structured("She lives in Rome. He does not.")
    read = parse_summary("She lives in Rome. He does not.")
    assert [text for text, *_ in read] == ["She lives in Rome.", "He does not."]


def test_a_bullet_that_looks_like_a_heading_is_a_line():
    text = "## Requests\n- ## Decisions\n- b"
    assert [heading for _, _, heading, _ in parse_summary(text)] == [Heading.REQUESTS] * 2
