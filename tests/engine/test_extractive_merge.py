"""Summaries of summaries: merged by heading, carried on and marked, their codes on one line."""

from __future__ import annotations

import pytest

from compaction.engine.types import ToolCall
from tests.engine.extractive_support import CHATTER, QuarterCounter, item, section, summarize


def test_a_merge_joins_two_summaries_by_heading():
    answer = summarize(
        kind="merge",
        texts=(
            "## Requests\n- Fix the tax.\n## Results and facts\n- Owner is Ann.\n"
            "## Last state\n- Ann waits.",
            "## Results and facts\n- Owner is Bob.\n- Ok.\n## Last state\n- Bob left.",
        ),
        ratio=2.0,
    )
    assert answer.text == (
        "Newer lines win over (earlier) ones.\n"
        "## Requests\n- (earlier) Fix the tax.\n"
        "## Results and facts\n- (earlier) Owner is Ann.\n- (earlier) Ann waits.\n"
        "- Owner is Bob.\n"
        "## Last state\n- Bob left."
    )


def test_a_merge_keeps_what_both_say_once():
    same = "## Decisions\n- We chose Postgres."
    answer = summarize(kind="merge", texts=(same, same), ratio=2.0)
    assert answer.text == "## Decisions\n- We chose Postgres."


def test_a_merge_of_free_texts_chooses_their_sentences():
    texts = ("Ann lives in Rome. The budget must not exceed 900 euros.", "Bob moved to Oslo.")
    answer = summarize(kind="merge", texts=texts, ratio=3.0)
    assert section(answer.text, "Constraints") == [
        "- (earlier) The budget must not exceed 900 euros."
    ]
    assert section(answer.text, "Results and facts")[-1] == "- Bob moved to Oslo."


def summary_of(topic: str) -> str:
    """A summary with twelve sentences under each of five headings."""
    headings = ("Requests", "Constraints", "Decisions", "Results and facts", "Open questions")
    return "\n".join(
        f"## {heading}\n"
        + "\n".join(
            f"- The {topic} for {heading[0]}{topic}{n} went to {heading[:4]}{n} Street by hand."
            for n in range(12)
        )
        for heading in headings
    )


@pytest.fixture(scope="module")
def merged() -> str:
    codes = "\n## Identifiers and numbers\n- " + ", ".join(f"MK-{n}" for n in range(2000, 2040))
    texts = (summary_of("parcel") + codes, summary_of("letter"))
    return summarize(kind="merge", texts=texts).text


@pytest.mark.parametrize(
    "heading", ["Requests", "Constraints", "Decisions", "Results and facts", "Open questions"]
)
def test_in_a_merge_every_heading_has_its_share(merged, heading):
    assert len(section(merged, heading)) >= 2


def test_a_merge_uses_its_target(merged):
    assert 0.85 * 700 <= QuarterCounter().count(merged) <= 700


def test_a_merge_lists_the_codes_on_one_line_and_marks_them(merged):
    (listed,) = section(merged, "Identifiers and numbers")
    assert listed.startswith("- (earlier) MK-2000, MK-2001, ")
    assert QuarterCounter().count(listed) <= 0.15 * 700


def test_a_merge_of_two_full_summaries_may_keep_most_of_them():
    texts = (summary_of("parcel")[:2800], summary_of("letter")[:2800])
    answer = summarize(kind="merge", texts=texts, target_tokens=700, ratio=0.4)
    assert 0.85 * 700 <= answer.output_tokens <= 700


def test_a_carried_code_is_not_listed_when_a_sentence_has_it():
    answer = summarize(
        item(f"The parcel MK-2417 belongs to Jacob. {CHATTER * 4}"),
        previous="## Identifiers and numbers\n- MK-2417, MK-2418",
        ratio=0.9,
    )
    assert section(answer.text, "Identifiers and numbers") == ["- (earlier) MK-2418"]


def test_a_merge_fits_its_target():
    lines = "\n".join(f"- Fact {n}: place{n} has thing{n}." for n in range(200))
    answer = summarize(kind="merge", texts=(lines, lines.replace("thing", "item")))
    assert 600 < answer.output_tokens <= 700


def test_a_previous_summary_is_carried_on_under_its_headings():
    previous = "## Constraints\n- Never call before noon.\n## Last state\n- Jacob waits."
    answer = summarize(item(CHATTER * 4), previous=previous, ratio=0.9)
    assert section(answer.text, "Constraints") == ["- (earlier) Never call before noon."]
    assert "- (earlier) Jacob waits." in section(answer.text, "Results and facts")


def test_a_carried_line_is_marked_once():
    previous = "## Constraints\n- (earlier) Never call before noon."
    answer = summarize(item(CHATTER * 4), previous=previous, ratio=0.9)
    assert section(answer.text, "Constraints") == ["- (earlier) Never call before noon."]


def test_a_carried_line_that_is_said_again_is_new():
    previous = "## Constraints\n- Never call before noon."
    answer = summarize(item(f"Never call before noon. {CHATTER * 3}"), previous=previous, ratio=0.9)
    assert "- Never call before noon." in answer.text
    assert "(earlier)" not in answer.text


def test_a_file_once_modified_stays_modified():
    call = ToolCall(id="1", name="read", arguments='{"path": "a.py"}')
    previous = "## Files and commands\n- [modified] a.py\n- [read] b.py"
    answer = summarize(item(CHATTER * 4, tool_calls=(call,)), previous=previous, ratio=0.9)
    assert section(answer.text, "Files and commands") == [
        "- (earlier) [read] b.py",
        "- [modified] a.py",
    ]


def test_five_rounds_keep_the_first_code_and_their_size():
    summary = ""
    for turn in range(5):
        news = [
            item(f"Visitor {turn}{n} met Person{turn} at gate {n}. {CHATTER}") for n in range(12)
        ]
        if turn == 0:
            news[4] = item(f"{CHATTER}The parcel MK-2417 belongs to Jacob.")
        answer = summarize(*news, previous=summary, target_tokens=150)
        summary = answer.text
        assert answer.output_tokens <= 150
        assert "MK-2417" in summary
        assert summary.count("## Results and facts") == 1
        assert summary.count("(earlier) (earlier)") == 0
    assert "Person4" in summary


def test_a_full_old_summary_leaves_room_for_what_is_new():
    rules = "\n".join(f"- Never ship order MK-{n} to Jacob." for n in range(1000, 1030))
    news = (item(f"We agreed that Person4 owns seven disks. {CHATTER}"), item("Nothing else."))
    more = item("See you.", role="assistant")
    answer = summarize(*news, more, previous=f"## Constraints\n{rules}", target_tokens=120)
    assert section(answer.text, "Decisions") == ["- We agreed that Person4 owns seven disks."]
