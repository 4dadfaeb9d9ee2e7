"""The ledger beside a model's prose: rules, facts, changes and actions, chosen by program.

A model writes what needs understanding: goal, state, decisions with their reasons, open points.
What must be right to the letter is appended here from the messages themselves, chosen anew at each
pass from the units of all covered messages (compaction.engine.provenance), so that nothing is
summarised twice and nothing wears away (docs/decisions/0027-a-ledger-beside-the-prose.md).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.composition import ACTIONS_SHARE, fill_users_first
from compaction.engine.extractive.headings import (
    SECTION_OF,
    SummarySection,
    render_sections,
    render_unit,
    title,
    title_of,
)
from compaction.engine.extractive.pieces import lines_of
from compaction.engine.extractive.selection import Candidate, Selection
from compaction.engine.extractive.terms import terms_of
from compaction.engine.fidelity.entities import LONG_NUMBER, find_entities
from compaction.engine.provenance import Unit, UnitKind
from compaction.engine.strategies.prompts import message_number

PROSE_SHARE = 0.4
"""Of a summary's target, what the model is asked for."""
RULES_SHARE = 0.15
"""Of the target, what the user's rules may take beside everything else."""

LEDGER_CHANGES_SHARE = 0.5
"""Of the ledger: what was taken back must not stand as it was."""

DIVIDER = "---"
"""Where there are no words for headings: else the lines would stand under the last one of the
prose, what a tool's result orders under Open points."""
INSTRUCTIONS_READ = 8_000
_QUOTED = lazy_pattern(r"[“„«\"](?P<text>[^“”„«»\"\n]{1,200})[”“»\"]")

FEWEST_MENTIONS = 3
"""Of a code in different statements, for it to be what the conversation is about."""

_SECTIONS = {
    UnitKind.RULE: SummarySection.RULES,
    UnitKind.CHANGE: SummarySection.CHANGED,
    UnitKind.ACTION: SummarySection.ACTIONS,
}


def with_ledger(
    prose: str,
    candidates: Sequence[Candidate],
    *,
    room: int,
    rules_room: int,
    count: Callable[[str], int],
    language: str,
    always: Sequence[str] = (),
    asked: Sequence[str] = (),
) -> str:
    """Return the prose with the ledger behind it.

    `room` is what facts, changes and actions may take in tokens, `rules_room` what the rules may
    take beside that. `always` are lines that stand among the facts in any case. What is `asked`
    for comes before all other facts. The prose comes back alone where nothing fits.
    """
    room = max(0, room - _headings(count, language))
    rules = Selection(budget=max(0, rules_room) + room, cost=_cost(count, language))
    rules.fill(one for one in candidates if _is_rule(one))
    # What the rules take beyond their own room, the rest goes without.
    left = room - max(0, rules.spent - max(0, rules_room))
    facts = Selection(budget=max(0, left), cost=_cost(count, language))
    facts.cover(_terms_of_prose(prose))
    _add_asked(facts, candidates, prose, asked)
    _add_subject(facts, candidates)
    for kind, share in ((UnitKind.CHANGE, LEDGER_CHANGES_SHARE), (UnitKind.ACTION, ACTIONS_SHARE)):
        of_kind = [one for one in candidates if one.unit.kind is kind]
        facts.fill(of_kind, upto=facts.spent + int(share * facts.budget))
    said = [one for one in candidates if one.unit.kind not in (UnitKind.RULE, UnitKind.ACTION)]
    fill_users_first(facts, said, upto=facts.budget)
    facts.fill(one for one in candidates if not _is_rule(one))
    chosen = sorted((*rules.chosen, *facts.chosen), key=lambda one: one.order)
    units: dict[SummarySection, list[Unit]] = {}
    for candidate in chosen:
        section = _SECTIONS.get(candidate.unit.kind, SummarySection.FACTS)
        units.setdefault(section, []).append(candidate.unit)
    sections = {
        section: [ledger_line(unit, language) for unit in lines_of(of_section)]
        for section, of_section in units.items()
    }
    if always:
        sections.setdefault(SummarySection.FACTS, []).extend(always)
    ledger = render_sections(sections, language)
    if ledger and prose.strip() and not title(SummarySection.FACTS, language):
        ledger = f"{DIVIDER}\n{ledger}"
    return "\n\n".join(part for part in (prose.strip(), ledger) if part)


def joined_prose(texts: Sequence[str]) -> str:
    """Return several texts as one, what stands under the same heading together, older first."""
    sections: dict[str, list[str]] = {"": []}
    for text in texts:
        heading = ""
        for line in text.strip().split("\n"):
            if title_of(line.strip()):
                heading = line.strip()
                sections.setdefault(heading, [])
            elif line.strip():
                sections[heading].append(line)
    parts = (([heading] if heading else []) + lines for heading, lines in sections.items() if lines)
    return "\n".join(line for part in parts for line in part)


def ledger_line(unit: Unit, language: str = "") -> str:
    """Return a unit as the ledger has it: speaker, clause, and the number of its message."""
    line = render_unit(unit, language)
    return line if unit.message is None else f"{line} [#{message_number(unit.position)}]"


def asked_for(instructions: str) -> list[str]:
    """Return what a person's instructions quote or name: it is to be kept."""
    read = instructions[:INSTRUCTIONS_READ]
    quoted = [found["text"] for found in _QUOTED.finditer(read)]
    return [*quoted, *(entity.text for entity in find_entities(read))]


def _add_asked(
    facts: Selection, candidates: Sequence[Candidate], prose: str, asked: Sequence[str]
) -> None:
    """Add a line for each thing that is to be kept, where nothing has it yet."""
    said = prose.casefold()
    for text in dict.fromkeys(one.casefold() for one in asked):
        if _stands(text, said):
            continue
        having = [one for one in candidates if _stands(text, one.unit.text.casefold())]
        for one in sorted(having, key=lambda one: (-facts.gain(one), one.order)):
            if facts.has(one) or facts.add(one):
                said += f"\n{one.unit.text.casefold()}"
                break


def _stands(words: str, text: str) -> bool:
    """Whether words stand in a text: not inside of others, where words have spaces between."""
    if not words.isascii():
        return words in text
    return words in text and bool(re.search(rf"(?<!\w){re.escape(words)}(?!\w)", text))


def _add_subject(facts: Selection, candidates: Sequence[Candidate]) -> None:
    """Add a line with the code that is named again and again, where nothing names it yet.

    A ledger of a few lines would otherwise hold what is rare, and not what all of it is about.
    """
    said = [one for one in candidates if one.unit.kind is not UnitKind.ACTION]
    times = Counter(key for one in said for key in one.unit.entities if _is_code(key))
    key, mentions = max(times.items(), key=itemgetter(1), default=("", 0))
    if mentions < FEWEST_MENTIONS or facts.is_said(key):
        return
    about = (one for one in said if key in one.unit.entities and not _is_rule(one))
    for one in sorted(about, key=lambda one: (facts.gain(one), -one.order), reverse=True):
        if facts.add(one):
            return


def _is_code(key: str) -> bool:
    """Whether a key has digits and letters, or more digits than a number."""
    digits = sum(map(str.isdigit, key))
    return digits >= LONG_NUMBER or (digits > 0 and any(map(str.isalpha, key)))


def _is_rule(candidate: Candidate) -> bool:
    return candidate.unit.kind is UnitKind.RULE


def _cost(count: Callable[[str], int], language: str) -> Callable[[Unit], int]:
    costs: dict[str, int] = {}

    def cost(unit: Unit) -> int:
        line = ledger_line(unit, language)
        if line not in costs:
            costs[line] = count(line + "\n")
        return costs[line]

    return cost


def _headings(count: Callable[[str], int], language: str) -> int:
    sections = {_SECTIONS.get(kind, SummarySection.FACTS) for kind in SECTION_OF}
    titles = sum(count(title(section, language) + "\n") for section in sections)
    return max(titles, count(DIVIDER + "\n"))


def _terms_of_prose(prose: str) -> Iterable[str]:
    return terms_of(prose, (entity.key for entity in find_entities(prose)))
