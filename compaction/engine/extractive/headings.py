"""The headings of an extractive summary: how they are written and how they are read back.

A summary is a list of lines under headings. Reading it back is what lets the next summary merge
the lines of the previous one into the same headings, instead of nesting summaries for ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from compaction.engine.extractive.sentences import (
    split_lines,
    split_long,
    split_sentences,
    without_bullet,
)
from compaction.engine.extractive.terms import is_bare_identifier


class Heading(Enum):
    """What a line is about; the order is the order in a summary."""

    REQUESTS = "Requests"
    CONSTRAINTS = "Constraints"
    DECISIONS = "Decisions"
    RESULTS = "Results and facts"
    IDENTIFIERS = "Identifiers and numbers"
    FILES = "Files and commands"
    QUESTIONS = "Open questions"
    STATE = "Last state"


CHINESE = {
    Heading.REQUESTS: "请求",
    Heading.CONSTRAINTS: "约束",
    Heading.DECISIONS: "决定",
    Heading.RESULTS: "结果与事实",
    Heading.IDENTIFIERS: "标识符与数字",
    Heading.FILES: "文件与命令",
    Heading.QUESTIONS: "待解决问题",
    Heading.STATE: "最新状态",
}

NOTE = "Newer lines win over (earlier) ones."
NOTE_CHINESE = "(较早)的行以较新的行为准。"
EARLIER = "(earlier)"
EARLIER_CHINESE = "(较早)"

# Headings that language models and other presets write, so that a summary of theirs merges too.
_ALIASES = {
    "goal": Heading.REQUESTS,
    "goals": Heading.REQUESTS,
    "user requests": Heading.REQUESTS,
    "pending user asks": Heading.REQUESTS,
    "constraints & preferences": Heading.CONSTRAINTS,
    "constraints and preferences": Heading.CONSTRAINTS,
    "constraints/rules": Heading.CONSTRAINTS,
    "key decisions": Heading.DECISIONS,
    "progress": Heading.RESULTS,
    "results": Heading.RESULTS,
    "done": Heading.RESULTS,
    "critical context": Heading.RESULTS,
    "exact identifiers": Heading.IDENTIFIERS,
    "identifiers": Heading.IDENTIFIERS,
    "in progress": Heading.STATE,
    "current state": Heading.STATE,
    "next steps": Heading.STATE,
    "blocked": Heading.QUESTIONS,
    "open todos": Heading.QUESTIONS,
    "目标": Heading.REQUESTS,
    "限制": Heading.CONSTRAINTS,
    "结果": Heading.RESULTS,
    "文件和命令": Heading.FILES,
    "未解决问题": Heading.QUESTIONS,
    "当前状态": Heading.STATE,
}
_KNOWN = {
    **{heading.value.casefold(): heading for heading in Heading},
    **{name: heading for heading, name in CHINESE.items()},
    **_ALIASES,
}
SEPARATOR = ", "
"""Between the identifiers that share a line."""
MAX_ACTION_CHARACTERS = 200
_NOTES = frozenset({NOTE, NOTE_CHINESE})
_NOTHING = frozenset({"(none)", "none", "n/a", "无", "(无)", "（无）"})
_TITLE = re.compile(r"(?:#{1,6}\s+|\*\*)(.{1,60}?)(?:\*\*)?[:：]?(?:\*\*)?$")
_LABEL = re.compile(r"\[([\w.-]{1,40})\] (?=\S)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryLine:
    """One line of a summary. `label` says who said it, when that was not the user."""

    text: str
    heading: Heading
    label: str = ""
    from_previous: bool = False

    def render(self, *, chinese: bool = False) -> str:
        """The line as it stands in the summary: a bullet, its marks, the text."""
        mark = f"{EARLIER_CHINESE if chinese else EARLIER} " if self.from_previous else ""
        label = f"[{self.label}] " if self.label else ""
        return f"- {mark}{label}{self.text}"


def title(heading: Heading, *, chinese: bool = False) -> str:
    """The line that starts a section."""
    return f"## {CHINESE[heading] if chinese else heading.value}"


def render_summary(lines: Iterable[SummaryLine], *, chinese: bool = False) -> str:
    """The lines under their headings, carried ones first in each section, so that later wins."""
    sections: dict[Heading, list[SummaryLine]] = {heading: [] for heading in Heading}
    from_previous = False
    for line in lines:
        sections[line.heading].append(line)
        from_previous = from_previous or line.from_previous
    rendered = [NOTE_CHINESE if chinese else NOTE] if from_previous else []
    for heading, section in sections.items():
        if section:
            rendered.append(title(heading, chinese=chinese))
            ordered = sorted(section, key=lambda line: not line.from_previous)
            rendered.extend(line.render(chinese=chinese) for line in ordered)
    return "\n".join(rendered)


def is_structured(summary: str) -> bool:
    """Whether a summary has at least one heading that this module knows."""
    return any(_heading_of(line) for line in split_lines(summary))


def parse_summary(summary: str) -> Iterator[tuple[str, str, Heading | None, bool]]:
    """Each line of a summary as (text, label, heading, was it carried already).

    Identifiers that share a line come one by one. The heading is None under a heading nobody knows
    and in free text, which comes sentence by sentence: the caller decides where that belongs.
    """
    if not is_structured(summary):
        for sentence in split_sentences(summary):
            yield sentence, "", None, False
        return
    heading: Heading | None = None
    for line in split_lines(summary):
        if found := _title_of(line):
            heading = _KNOWN.get(found)
        elif line not in _NOTES and (text := without_bullet(line)).casefold() not in _NOTHING:
            yield from _parsed_line(text, heading)


def _parsed_line(
    text: str, heading: Heading | None
) -> Iterator[tuple[str, str, Heading | None, bool]]:
    from_previous = False
    for mark in (EARLIER, EARLIER_CHINESE):
        if text.startswith(mark + " "):
            text, from_previous = text[len(mark) + 1 :], True
            break
    label = ""
    if match := _LABEL.match(text):
        text, label = text[match.end() :], match[1]
    if heading is Heading.FILES:
        yield text[:MAX_ACTION_CHARACTERS].rstrip(), label, heading, from_previous
        return
    if heading is Heading.IDENTIFIERS and not label:
        parts = text.split(SEPARATOR)
        if all(map(is_bare_identifier, parts)):
            for part in parts:
                yield part, label, heading, from_previous
            return
    for piece in split_long(text):
        yield piece, label, heading, from_previous


def _title_of(line: str) -> str:
    match = _TITLE.match(line) if len(line) < 80 else None
    return match[1].strip().casefold() if match else ""


def _heading_of(line: str) -> Heading | None:
    return _KNOWN.get(_title_of(line))
