"""A checkpoint that a coding agent really wrote, beside the conversation that it wrote it of."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compaction.engine.profile import PRESETS
from compaction.engine.strategies.iterative import IterativeStrategy
from compaction.engine.types import Item, SummaryAnswer, SummaryJob, ToolCall
from tests.fakes.summarizers import Scripted


class Quarters:
    """Four characters a token."""

    def count(self, text: str) -> int:
        return -(-len(text) // 4)


def item_of(message: dict[str, Any], number: int) -> Item:
    """Return an entry's message as an item: texts joined, calls with their arguments."""
    content = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    text = "\n".join(part["text"] for part in parts if part["type"] == "text")
    calls = tuple(
        ToolCall(id=part["id"], name=part["name"], arguments=json.dumps(part["arguments"]))
        for part in parts
        if part["type"] == "toolCall"
    )
    is_result = message["role"] == "toolResult"
    return Item(
        id=number,
        role="tool" if is_result else message["role"],
        text=text,
        position=number * 1_000_000,
        tokens=Quarters().count(text) + 5,
        tool_calls=calls,
        tool_call_id=message["toolCallId"] if is_result else "",
    )


@pytest.fixture
def first_compaction(shared: Path) -> tuple[tuple[Item, ...], str]:
    """What the first compaction of a real session summarised, and the text that came of it."""
    lines = (shared / "data" / "pi" / "before-compaction.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    summary = next(entry for entry in entries if entry["type"] == "compaction")
    messages = [
        item_of(entry["message"], number)
        for number, entry in enumerate(entries[: summary["firstKeptEntryIndex"]], 1)
        if entry["type"] == "message"
    ]
    return tuple(messages), summary["summary"]


@pytest.mark.parametrize("ledger", [False, True])
def test_the_gate_takes_a_real_checkpoint(first_compaction, ledger):
    items, text = first_compaction
    assert len(items) > 280
    scripted = Scripted(script=[SummaryAnswer(text=text)])
    job = SummaryJob(items=items, counter=Quarters())
    profile = replace(PRESETS["checkpoint"], ledger=ledger)
    outcome = IterativeStrategy().run(job, profile, scripted, lambda _: None)
    assert outcome.rejections == ()
    assert len(scripted.requests) == 1
    assert outcome.text.startswith(text.strip()[:40])


def test_the_gate_refuses_one_that_forgets_the_summary_before(first_compaction):
    items, text = first_compaction
    scripted = Scripted(script=[SummaryAnswer(text="The tests pass and all is well now.")])
    job = SummaryJob(items=items[-20:], counter=Quarters(), previous=text)
    outcome = IterativeStrategy().run(job, PRESETS["checkpoint"], scripted, lambda _: None)
    assert "carried_lost" in outcome.rejections
