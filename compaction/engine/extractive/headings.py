"""The sections of a summary: how they are written in the conversation's language, and read back.

Reading a summary back is what lets the next one choose from its lines, instead of nesting summaries
for ever. Where we have no words for a language, a summary has no headings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from compaction.engine.extractive.changes import with_note, without_note
from compaction.engine.extractive.sentences import (
    fold,
    split_lines,
    split_sentences,
    without_bullet,
)
from compaction.engine.provenance import Unit, UnitKind


class SummarySection(Enum):
    """What lines are about; the order is the order in a summary."""

    REQUESTS = "Requests"
    RULES = "Rules"
    DECISIONS = "Decisions"
    FACTS = "Facts"
    CHANGED = "Changed"
    IDENTIFIERS = "Identifiers"
    ACTIONS = "Actions"
    QUESTIONS = "Open questions"
    STATE = "Last state"


SECTION_OF = {
    UnitKind.REQUEST: SummarySection.REQUESTS,
    UnitKind.RULE: SummarySection.RULES,
    UnitKind.DECISION: SummarySection.DECISIONS,
    UnitKind.FACT: SummarySection.FACTS,
    UnitKind.CHANGE: SummarySection.CHANGED,
    UnitKind.ACTION: SummarySection.ACTIONS,
    UnitKind.QUESTION: SummarySection.QUESTIONS,
}
_KIND_OF = {section: kind for kind, section in SECTION_OF.items()} | {
    SummarySection.IDENTIFIERS: UnitKind.FACT,
    SummarySection.STATE: UnitKind.FACT,
}

# In the order of SummarySection.
_NAMES = {
    "en": [section.value for section in SummarySection],
    "zh": ["请求", "规则", "决定", "事实", "变更", "标识符", "操作", "待解决问题", "最新状态"],
    "ja": [
        "依頼", "ルール", "決定事項", "事実", "変更", "識別子", "操作",
        "未解決の質問", "最新の状態",
    ],
    "ko": ["요청", "규칙", "결정", "사실", "변경", "식별자", "작업", "미해결 질문", "마지막 상태"],
    "ru": [
        "Запросы", "Правила", "Решения", "Факты", "Изменения", "Идентификаторы", "Действия",
        "Открытые вопросы", "Последнее состояние",
    ],
    "es": [
        "Peticiones", "Reglas", "Decisiones", "Hechos", "Cambios", "Identificadores", "Acciones",
        "Preguntas abiertas", "Último estado",
    ],
    "de": [
        "Anfragen", "Regeln", "Entscheidungen", "Fakten", "Geändert", "Kennungen", "Aktionen",
        "Offene Fragen", "Letzter Stand",
    ],
    "fr": [
        "Demandes", "Règles", "Décisions", "Faits", "Changements", "Identifiants", "Actions",
        "Questions ouvertes", "Dernier état",
    ],
    "ar": [
        "الطلبات", "القواعد", "القرارات", "الحقائق", "التغييرات", "المعرفات", "الإجراءات",
        "أسئلة مفتوحة", "آخر حالة",
    ],
}  # fmt: skip
LANGUAGES = frozenset(_NAMES)

# Headings of older versions, of other presets, and those that language models write.
_ALIASES = {
    "goal": SummarySection.REQUESTS,
    "goals": SummarySection.REQUESTS,
    "user requests": SummarySection.REQUESTS,
    "pending user asks": SummarySection.REQUESTS,
    "constraints": SummarySection.RULES,
    "constraints & preferences": SummarySection.RULES,
    "constraints and preferences": SummarySection.RULES,
    "constraints/rules": SummarySection.RULES,
    "key decisions": SummarySection.DECISIONS,
    "decisions with reasons": SummarySection.DECISIONS,
    "results and facts": SummarySection.FACTS,
    "progress": SummarySection.FACTS,
    "results": SummarySection.FACTS,
    "done": SummarySection.FACTS,
    "critical context": SummarySection.FACTS,
    "exact identifiers": SummarySection.IDENTIFIERS,
    "identifiers and numbers": SummarySection.IDENTIFIERS,
    "files and commands": SummarySection.ACTIONS,
    "state": SummarySection.STATE,
    "in progress": SummarySection.STATE,
    "current state": SummarySection.STATE,
    "next steps": SummarySection.QUESTIONS,
    "next step": SummarySection.QUESTIONS,
    "to do": SummarySection.QUESTIONS,
    "todo": SummarySection.QUESTIONS,
    "todos": SummarySection.QUESTIONS,
    "tasks": SummarySection.REQUESTS,
    "objective": SummarySection.REQUESTS,
    "open points": SummarySection.QUESTIONS,
    "blocked": SummarySection.QUESTIONS,
    "open todos": SummarySection.QUESTIONS,
    "目标": SummarySection.REQUESTS,
    "约束": SummarySection.RULES,
    "限制": SummarySection.RULES,
    "结果": SummarySection.FACTS,
    "结果与事实": SummarySection.FACTS,
    "标识符与数字": SummarySection.IDENTIFIERS,
    "文件与命令": SummarySection.ACTIONS,
    "文件和命令": SummarySection.ACTIONS,
    "未解决问题": SummarySection.QUESTIONS,
    "当前状态": SummarySection.STATE,
}
_KNOWN = {
    name.casefold(): section
    for names in _NAMES.values()
    for section, name in zip(SummarySection, names, strict=True)
} | _ALIASES
SEPARATOR = "; "
"""Between the identifiers that share a line."""
_NOTHING = frozenset({"(none)", "none", "none.", "n/a", "-", "无", "(无)", "（无）", "无。"})
_TITLE = re.compile(r"(?:#{1,6}\s+|\*\*)(.{1,60}?)(?:\*\*)?[:：]?(?:\*\*)?$")
_LABEL = re.compile(r"\[([^\W\d_][\w .'’-]{0,40})\] (?=\S)")
_OLD_MARKS = re.compile(r"^\((?:earlier|较早)\) ")
_OLD_NOTES = frozenset({"Newer lines win over (earlier) ones.", "(较早)的行以较新的行为准。"})
_REFERENCE = re.compile(r" \[#[\d.]+\]$")
MAX_ACTION_CHARACTERS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedLine:
    """One line of a summary: its text without marks, who said it, and its section where known."""

    text: str
    label: str = ""
    section: SummarySection | None = None
    note: str = ""

    @property
    def kind(self) -> UnitKind:
        """What the line is about; a fact where nobody knows."""
        return _KIND_OF[self.section] if self.section else UnitKind.FACT


def title(section: SummarySection, language: str) -> str:
    """The line that starts a section; empty where we have no words for the language."""
    names = _NAMES.get(language)
    return f"## {names[list(SummarySection).index(section)]}" if names else ""


def render_unit(unit: Unit, language: str = "") -> str:
    """A unit as it stands in a summary: a bullet, who said it if not the user, the text."""
    label = f"[{unit.speaker}] " if unit.speaker else ""
    return f"- {label}{with_note(unit, language)}"


def render_sections(sections: dict[SummarySection, list[str]], language: str) -> str:
    """The lines of each section under its heading."""
    rendered: list[str] = []
    for section in SummarySection:
        lines = sections.get(section)
        if lines:
            if heading := title(section, language):
                rendered.append(heading)
            rendered += lines
    return "\n".join(rendered)


def section_of_title(line: str) -> SummarySection | None:
    """Which section a line starts; None for a line that is no heading or one that nobody knows."""
    return _KNOWN.get(title_of(line))


def parse_summary(summary: str) -> Iterator[ParsedLine]:
    """Each line of a summary. Free text comes sentence by sentence, without a section."""
    lines = [*split_lines(summary)]
    if not any(section_of_title(line) for line in lines) and not _is_list(lines):
        for sentence in split_sentences(summary):
            yield ParsedLine(text=sentence)
        return
    section: SummarySection | None = None
    for line in lines:
        if found := title_of(line):
            section = _KNOWN.get(found)
        elif line not in _OLD_NOTES and (text := without_bullet(line)).casefold() not in _NOTHING:
            yield from _parsed(text, section)


def _is_list(lines: Iterable[str]) -> bool:
    return all(line.startswith("- ") for line in lines)


def _parsed(text: str, section: SummarySection | None) -> Iterator[ParsedLine]:
    text = _REFERENCE.sub("", _OLD_MARKS.sub("", text, count=1))
    label = ""
    if match := _LABEL.match(text):
        text, label = text[match.end() :], match[1]
    if section is SummarySection.IDENTIFIERS:
        for part in re.split(r"[;,] ", text):
            yield ParsedLine(text=part, label=label, section=section)
        return
    if section is SummarySection.ACTIONS:
        if label in ("read", "run", "modified"):
            text, label = f"{label}: {text}", ""
        yield ParsedLine(text=text[:MAX_ACTION_CHARACTERS], label=label, section=section)
        return
    text, note = without_note(text)
    pieces = [text] if len(text) <= MAX_ACTION_CHARACTERS else split_sentences(text)
    for piece in pieces:
        if piece := fold(piece):
            yield ParsedLine(text=piece, label=label, section=section, note=note)


def title_of(line: str) -> str:
    """The words of a line that is a heading, casefolded; empty for any other line."""
    match = _TITLE.match(line) if len(line) < 80 else None
    return match[1].strip().casefold() if match else ""
