"""A summary that was written can be read back, in every language that has headings."""

from __future__ import annotations

import pytest

from compaction.engine.extractive.headings import (
    LANGUAGES,
    ParsedLine,
    SummarySection,
    parse_summary,
    render_sections,
    render_unit,
    section_of_title,
    title,
    title_of,
)
from compaction.engine.provenance import Unit, UnitKind


def unit(text: str, **more: object) -> Unit:
    return Unit(**{"text": text, "kind": UnitKind.FACT, "speaker": "", "position": 1, **more})


@pytest.mark.parametrize(
    ("written", "line"),
    [
        (unit("Fix the tax."), "- Fix the tax."),
        (unit("All tests pass.", speaker="assistant"), "- [assistant] All tests pass."),
        (unit("It is 7.", speaker="Ann", note="replaces 5"), "- [Ann] It is 7 (replaces 5)"),
    ],
)
def test_a_line_says_who_spoke_unless_it_was_the_user(written, line):
    assert render_unit(written) == line


SECTIONS = {section: [f"- {section.name.lower()} one two"] for section in SummarySection}


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_what_was_written_is_read_back(language):
    read = list(parse_summary(render_sections(SECTIONS, language)))
    assert {line.section for line in read} == set(SummarySection)
    assert read[0] == ParsedLine(text="requests one two", section=SummarySection.REQUESTS)


def test_there_are_headings_in_nine_languages():
    assert frozenset(["en", "zh", "ja", "ko", "ru", "es", "de", "fr", "ar"]) == LANGUAGES
    assert title(SummarySection.RULES, "de") == "## Regeln"
    assert title(SummarySection.RULES, "") == ""


def test_without_headings_lines_are_read_back_as_facts():
    text = render_sections(SECTIONS, "")
    assert text.count("\n") == len(SECTIONS) - 1
    assert {line.kind for line in parse_summary(text)} == {UnitKind.FACT}


@pytest.mark.parametrize(
    ("line", "section"),
    [
        ("## Requests", SummarySection.REQUESTS),
        ("**Goal**", SummarySection.REQUESTS),
        ("## Key Decisions:", SummarySection.DECISIONS),
        ("## Results and facts", SummarySection.FACTS),
        ("## 规则", SummarySection.RULES),
        ("## Weather", None),
        ("Requests", None),
    ],
)
def test_a_heading_is_told_by_its_words(line, section):
    assert section_of_title(line) is section


def test_the_words_of_a_heading_are_returned_without_marks():
    assert title_of("### **Key Facts**") in ("key facts", "**key facts")
    assert title_of("- ## Rules") == ""


def test_headings_of_other_summarisers_are_understood():
    text = "**Goal**\nShip it\n\n## Key Decisions:\n1. Use Postgres\n## Next Steps\n(none)"
    assert [(line.text, line.section) for line in parse_summary(text)] == [
        ("Ship it", SummarySection.REQUESTS),
        ("Use Postgres", SummarySection.DECISIONS),
    ]


def test_marks_of_older_versions_are_left_out():
    text = "Newer lines win over (earlier) ones.\n## Requests\n- (earlier) [Ann] Fix the tax."
    assert list(parse_summary(text)) == [
        ParsedLine(text="Fix the tax.", label="Ann", section=SummarySection.REQUESTS)
    ]


def test_identifiers_that_share_a_line_come_one_by_one():
    text = "## Identifiers\n- the parcel MK-2417; ann@b.org\n- RF-88107"
    assert [line.text for line in parse_summary(text)] == [
        "the parcel MK-2417",
        "ann@b.org",
        "RF-88107",
    ]


def test_what_a_line_replaces_is_read_back():
    (line,) = parse_summary("## Changed\n- It is 7 (replaces 5)")
    assert (line.text, line.note, line.kind) == ("It is 7", "replaces 5", UnitKind.CHANGE)


def test_the_number_of_a_message_is_no_part_of_a_line():
    (line,) = parse_summary("## Facts\n- [Ann] The hall is blue. [#12.3]")
    assert (line.text, line.label) == ("The hall is blue.", "Ann")


def test_a_long_command_stays_one_line():
    command = "run: make " + "x " * 150
    (read,) = parse_summary(f"## Actions\n- {command}")
    assert read.text == command.strip()


def test_actions_of_older_versions_have_the_new_form():
    (read,) = parse_summary("## Files and commands\n- [run] make test")
    assert (read.text, read.label) == ("run: make test", "")


def test_lines_under_an_unknown_heading_are_kept_as_facts():
    lines = list(parse_summary("## Requests\n- a\n## Weather\n- b"))
    assert (lines[1].text, lines[1].section, lines[1].kind) == ("b", None, UnitKind.FACT)


def test_free_text_comes_sentence_by_sentence():
    read = parse_summary("She lives in Rome. He does not.")
    assert [line.text for line in read] == ["She lives in Rome.", "He does not."]


def test_a_bullet_that_looks_like_a_heading_is_a_line():
    text = "## Requests\n- ## Decisions\n- b"
    assert [line.section for line in parse_summary(text)] == [SummarySection.REQUESTS] * 2
