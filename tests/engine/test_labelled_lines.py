"""Lines of real conversations that a person labelled by heading: the references still hold.

`labelled_lines.json` holds no text, only where a line stands and the beginning of its digest. What
the labels mean:

* rule: a standing constraint or preference of the user for how things are done;
* request: the user asks for something to be done or to be known;
* decision: something that is settled between the parties;
* question: asked, and without an answer at the end of the conversation;
* fact: everything else, small talk and rhetorical questions too.

`also` names a second heading under which the line would stand just as rightly.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import real_data

LINES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "labelled_lines.json").read_text(encoding="utf-8")
)
LABELS = {"rule", "request", "decision", "question", "fact"}
KEYS = {"conversation", "message", "start", "end", "sha", "role", "label", "split"}
LEAST_LINES, LEAST_OF_A_LABEL, LEAST_CHINESE = 240, 25, 40
MOST_TOOL_SHARE = 0.15
needs_data = pytest.mark.skipif(not real_data.is_there(), reason=real_data.ABSENT)


@pytest.fixture(scope="module")
def messages() -> dict[str, Any]:
    return {one.name: one.messages for one in real_data.conversations()}


@needs_data
def test_every_reference_leads_to_the_text_that_was_labelled(messages):
    wrong = [
        line
        for line in LINES
        if line["sha"] != digest(messages[line["conversation"]][line["message"]]["content"], line)
    ]
    assert wrong == []


@needs_data
def test_every_line_has_the_role_of_its_message(messages):
    assert [
        line
        for line in LINES
        if messages[line["conversation"]][line["message"]]["role"] != line["role"]
    ] == []


def test_no_line_is_labelled_twice():
    places = Counter((line["conversation"], line["message"], line["start"]) for line in LINES)
    assert [place for place, times in places.items() if times > 1] == []


def test_nothing_but_references_is_stored():
    assert {frozenset(line) - {"also"} for line in LINES} == {frozenset(KEYS)}


def test_every_label_and_second_label_is_a_heading():
    assert {line["label"] for line in LINES} == LABELS
    assert {line["also"] for line in LINES if "also" in line} <= LABELS
    assert [line for line in LINES if line.get("also") == line["label"]] == []


def test_every_line_has_the_split_of_its_conversation():
    assert [line for line in LINES if line["split"] != real_data.split(line["conversation"])] == []


@pytest.mark.parametrize("split", ["tune", "hold"])
def test_both_splits_have_lines_of_every_label(split):
    found = Counter(line["label"] for line in LINES if line["split"] == split)
    assert min(found[label] for label in LABELS) >= LEAST_OF_A_LABEL // 2


def test_there_are_enough_lines_of_every_label():
    assert len(LINES) >= LEAST_LINES
    assert min(Counter(line["label"] for line in LINES).values()) >= LEAST_OF_A_LABEL


def test_users_say_about_half_and_tools_little():
    roles = Counter(line["role"] for line in LINES)
    assert 0.45 <= roles["user"] / len(LINES) <= 0.6
    assert roles["tool"] / len(LINES) <= MOST_TOOL_SHARE


@needs_data
def test_enough_lines_are_chinese():
    chinese = {one.name for one in real_data.conversations() if one.language == "zh"}
    assert sum(line["conversation"] in chinese for line in LINES) >= LEAST_CHINESE


def digest(text: str, line: dict[str, Any]) -> str:
    piece = text[line["start"] : line["end"]]
    return hashlib.sha256(piece.encode()).hexdigest()[:10]
