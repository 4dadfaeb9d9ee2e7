"""A line under a special heading is what the heading says: checked on lines that a person labelled.

The patterns were fitted to the lines of the split "tune" alone; "hold" was looked at as a number.
"""

from __future__ import annotations

import json
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from compaction.engine.extractive.units import units_of
from compaction.engine.provenance import Unit, UnitKind
from tests import real_data

# By conversation, so that one is held at a time.
LINES: list[dict[str, Any]] = sorted(
    json.loads((Path(__file__).parent / "labelled_lines.json").read_text(encoding="utf-8")),
    key=lambda line: line["conversation"],
)
LEAST_PRECISION = 0.9
LEAST_FOUND = 35
"""Of the lines of a split: a classifier that calls everything a fact is never wrong."""

pytestmark = pytest.mark.skipif(not real_data.is_there(), reason=real_data.ABSENT)


@lru_cache(maxsize=1)
def units_by_message(name: str) -> dict[Any, list[Unit]]:
    found: dict[Any, list[Unit]] = defaultdict(list)
    for unit in units_of(real_data.to_items(real_data.conversation(name).messages)):
        if unit.kind is not UnitKind.ACTION:
            found[unit.message].append(unit)
    return found


def kind_of(line: dict[str, Any]) -> UnitKind:
    """What the summariser takes a labelled line for."""
    units = units_by_message(line["conversation"])[line["message"]]
    inside = [one.kind for one in units if one.start < line["end"] and line["start"] < one.end]
    return next((kind for kind in inside if kind is not UnitKind.FACT), UnitKind.FACT)


@pytest.mark.parametrize("split", ["tune", "hold"])
def test_nine_of_ten_lines_stand_under_the_right_heading(split):
    found = [(kind_of(line), line["label"]) for line in LINES if line["split"] == split]
    special = [(kind, label) for kind, label in found if kind is not UnitKind.FACT]
    right = sum(kind.value == label for kind, label in special)
    assert len(special) >= LEAST_FOUND
    assert right >= LEAST_PRECISION * len(special), f"{right} of {len(special)}"


def test_no_line_of_a_tool_stands_under_a_special_heading():
    assert {kind_of(line) for line in LINES if line["role"] == "tool"} <= {UnitKind.FACT}
