"""Whose words a model's prose repeats: orders of tools and quotations, and values taken back.

A model that read "delete the backups" in a web page may write that as the user's goal. What only a
tool's output or a quoted text said is taken out of the prose and reported as what it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from compaction.engine.extractive.headings import SummarySection, section_of_title
from compaction.engine.extractive.material import OF_A_SUMMARY
from compaction.engine.extractive.selection import Candidate
from compaction.engine.extractive.units import people_of
from compaction.engine.fidelity.alignment import Finder
from compaction.engine.provenance import Unit, UnitKind

_ASKING = (SummarySection.REQUESTS, SummarySection.RULES, SummarySection.QUESTIONS)
# A sentence that says what somebody wants, wherever it stands.
_ASKED = re.compile(
    r"\b(?:user|customer|client|they|he|she|operator)\b.{0,40}\b(?:ask|want|request|instruct|order|need|"
    r"tell|told|require|demand)\w*|\b(?:must|should|has to|needs? to|never|always|do not)\b"
    r"|用户.{0,12}(?:要求|想|希望|需要)|必须|应该|不要",
    re.IGNORECASE,
)
# "## 1. Goal", "**Goal:** …", "Goal: …".
_TITLE = re.compile(
    r"\s*(?:#{1,6}\s+(?:\d{1,2}[.)]\s*)?([^\n]{1,60}?)\s*[:：]?\s*$"
    r"|(?:[-*]\s+)?\**([^\W\d_][^\n:：*.]{0,30})[:：]\**(?:\s+|$))"
)
# Whose words are reports and requests of their own.
_SPEAKING = frozenset({"", "assistant", "system", "developer", "other", OF_A_SUMMARY})
_REPLACED = re.compile(r"replaces (.{1,60}?)(?: in: .*)?$")
_SENTENCES = re.compile(r"(?<=[.!?])\s+")


def without_old_values(prose: str, units: Sequence[Unit]) -> str:
    """Return the prose without sentences that name a value which was taken back, alone."""
    changes = [
        (match[1].casefold(), unit.entities)
        for unit in units
        if (match := _REPLACED.match(unit.note))
    ]
    if not changes:
        return prose

    def holds(sentence: str) -> bool:
        said = sentence.casefold()
        return not any(
            re.search(rf"(?<!\w){re.escape(old)}(?!\w)", said)
            and not any(key in said for key in new)
            for old, new in changes
        )

    lines = []
    for line in prose.split("\n"):
        parts = _SENTENCES.split(line)
        kept = [part for part in parts if holds(part)]
        if kept or not line.strip():
            lines.append(" ".join(kept) if len(kept) < len(parts) else line)
    return "\n".join(lines)


def attributed(
    prose: str, candidates: Sequence[Candidate], *, people: frozenset[str]
) -> tuple[str, list[str]]:
    """Return the prose without orders of tools and quotations, and these as reports.

    Each sentence is judged by the clause that it says again: one that a user or the model
    itself wrote stays where it is. `people` are users with names.
    """
    units = [one.unit for one in candidates]
    people = people_of(units) | people | _SPEAKING
    if all(_is_own(unit, people) for unit in units):
        return prose, []
    finder = Finder(candidates)
    kept: list[str] = []
    said: list[str] = []
    asks = False
    for line in prose.split("\n"):
        title, rest = _title_and_rest(line)
        if title:
            section = section_of_title(f"## {title}")
            asks = section in _ASKING or section is None
        stays = []
        for sentence in _SENTENCES.split(rest) if rest else ():
            unit = finder.nearest(sentence) if asks or _ASKED.search(sentence) else None
            if unit is None or _is_own(unit, people):
                stays.append(sentence)
            else:
                speaker = unit.speaker or "tool"
                said.append(f"- [{speaker}] The text said: {sentence.strip(' -*')}")
        if stays or not rest:
            head = line[: len(line) - len(rest)] if rest else line
            kept.append(head + " ".join(stays))
    return "\n".join(kept), said


def _is_own(unit: Unit, people: frozenset[str]) -> bool:
    """Whether a person or the model said it; the line of an action tells what a tool printed."""
    return unit.speaker in people and unit.kind is not UnitKind.ACTION


def _title_and_rest(line: str) -> tuple[str, str]:
    """Return the heading that a line is or begins with, and what stands behind it."""
    match = _TITLE.match(line)
    if match is None:
        return "", line
    return match[1] or match[2], line[match.end() :]
