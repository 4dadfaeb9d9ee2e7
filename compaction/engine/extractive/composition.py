"""One extractive summary, put together: what must be in it, what fits, and how it is trimmed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest

from compaction.engine.extractive.candidates import Candidate, CandidateGroup, Material
from compaction.engine.extractive.headings import (
    NOTE,
    NOTE_CHINESE,
    SEPARATOR,
    Heading,
    SummaryLine,
    render_summary,
    title,
)
from compaction.engine.extractive.selection import Choice, Rank, Selection, fill, new_worth
from compaction.engine.extractive.terms import extract_terms, is_reference_number

SHARES = {
    Heading.REQUESTS: 0.16,
    Heading.CONSTRAINTS: 0.12,
    Heading.DECISIONS: 0.18,
    Heading.RESULTS: 0.24,
    Heading.QUESTIONS: 0.08,
}
"""Of the budget, for each heading before any of them takes more."""
SHARED_WORTH = 0.7
"""A line of less worth competes with all others: it is a scrap, or a tool's output."""
CARRIED_SHARE = 0.5
"""Of the budget and of each share, at most, for older lines, while newer ones are waiting."""
ACTIONS_SHARE = 0.18
MAX_COMMANDS_LISTED = 5
IDENTIFIERS_SHARE = 0.15
"""Of the budget, at most, for identifiers that no chosen sentence has."""
OTHER_CODES_SHARE = 0.08
"""Of the budget, when they are no reference numbers: `F-01` alone means little."""
SHORTEST_DIGITS = 7
"""Fewer digits are a piece of something, such as of a telephone number."""
SMALLEST_RESERVE_TOKENS = 14
"""So that even a tiny summary keeps one code."""
REFERENCE_TIER, LAST_NEEDED_TIER, LAST_TIER = 2, 4, 5
"""Reference numbers first: those of the user, of others, of tools. Then other codes, identifiers,
and, if anything is left over, codes that only a tool printed."""
ESSENTIAL_SHARE = 0.3
"""Of the budget, at most, for one line that a summary needs."""
GROUP_SHARE = 0.1
"""Of the budget, what a group of lines may take beyond its first line."""
GROUP_LINES = {
    CandidateGroup.FIRST: 1,
    CandidateGroup.ASKED: 2,
    CandidateGroup.SAID: 2,
    CandidateGroup.REPLIED: 1,
}
LAST_CHOICES = 4
"""So many of the lines chosen last may be given up for each other's sake."""
MOST_WORTH = 12.0
"""Of the worth of a line that a summary needs: its cues should count, not its length."""
INSTRUCTED_WORTH = 1.5


def compose(
    material: Material,
    *,
    budget: int,
    count: Callable[[str], int],
    instructions: str = "",
    chinese: bool = False,
) -> str:
    """The summary with the most worth inside `budget` tokens; empty when not one line fits."""

    def count_part(part: SummaryLine | Heading) -> int:
        line = (
            part.render(chinese=chinese)
            if isinstance(part, SummaryLine)
            else title(part, chinese=chinese)
        )
        return count(line + "\n")

    selection = Selection(budget=budget, count=count_part)
    candidates = material.candidates
    if any(one.line.from_previous for one in (*candidates, *material.identifiers)):
        selection.spent = count((NOTE_CHINESE if chinese else NOTE) + "\n")
    _prefer(candidates, instructions)
    _add_essentials(selection, candidates)
    _add_actions(selection, material.actions)
    selection.budget = budget - _identifier_reserve(selection, material)
    _add_shares(selection, candidates)
    fill(selection, candidates, carried_limit=int(CARRIED_SHARE * budget))
    selection.budget = budget
    selection.budget -= _identifier_reserve(
        selection, material
    )  # the sentences now say some of them
    fill(selection, candidates, carried_limit=budget)
    selection.budget = budget
    _add_identifiers(selection, material)
    return trimmed(selection, count=count, chinese=chinese)


def _prefer(candidates: Iterable[Candidate], instructions: str) -> None:
    """What the operator asked to look after counts for more."""
    wanted = set(extract_terms(instructions[:2000]).weights)
    if wanted:
        for candidate in candidates:
            if not wanted.isdisjoint(candidate.terms.weights):
                candidate.score *= INSTRUCTED_WORTH


def _add_essentials(selection: Selection, candidates: Iterable[Candidate]) -> None:
    """The first request and the last exchange: they tell a reader where they are."""
    groups: dict[CandidateGroup, list[Candidate]] = {group: [] for group in GROUP_LINES}
    for candidate in candidates:
        if candidate.group in groups:
            groups[candidate.group].append(candidate)
    for group in (
        CandidateGroup.ASKED,
        CandidateGroup.SAID,
        CandidateGroup.REPLIED,
        CandidateGroup.FIRST,
    ):
        _add_group(selection, group, groups[group])


def _add_group(selection: Selection, group: CandidateGroup, members: list[Candidate]) -> None:
    taken, spent = 0, selection.spent
    towards = (
        1 if group is CandidateGroup.FIRST else -1
    )  # of equals the first request, but the last state
    for candidate in sorted(members, key=lambda one: (-_importance(one), towards * one.order)):
        line = candidate.line
        if group in (CandidateGroup.ASKED, CandidateGroup.SAID):
            line = replace(line, heading=Heading.STATE)
        share = GROUP_SHARE * selection.budget - (selection.spent - spent)
        limit = share if taken else ESSENTIAL_SHARE * selection.budget
        if group is CandidateGroup.SAID and candidate.line.heading is Heading.QUESTIONS:
            continue  # it is listed as an open one
        if new_worth(candidate, selection.covered) and selection.add(
            candidate, line=line, limit=int(limit), rank=Rank.ESSENTIAL
        ):
            taken += 1
            if taken == GROUP_LINES[group]:
                return


def _importance(candidate: Candidate) -> float:
    return candidate.score * min(MOST_WORTH, sum(candidate.terms.weights.values()))


def _add_actions(selection: Selection, actions: tuple[SummaryLine, ...]) -> None:
    limit = selection.spent + int(ACTIONS_SHARE * selection.budget)
    commands = 0
    # The latest matter most when not all fit.
    for order, line in reversed(tuple(enumerate(actions))):
        commands += line.label == "run"
        if line.label == "run" and commands > MAX_COMMANDS_LISTED:
            continue
        if selection.spent + selection.price(line) > min(limit, selection.budget):
            break
        selection.add_line(line, order=order, rank=Rank.ACTION)


def _add_shares(selection: Selection, candidates: Iterable[Candidate]) -> None:
    """Fill each heading up to its share, so that none is left out for another's sake."""
    whole = selection.budget
    by_heading: dict[Heading, list[Candidate]] = {heading: [] for heading in SHARES}
    for candidate in candidates:
        if candidate.line.heading in by_heading and candidate.score >= SHARED_WORTH:
            by_heading[candidate.line.heading].append(candidate)
    for heading, members in by_heading.items():
        room = int(SHARES[heading] * whole) - selection.spent_on.get(heading, 0)
        selection.budget = min(whole, selection.spent + room)
        fill(selection, members, carried_limit=selection.carried_spent + int(CARRIED_SHARE * room))
    selection.budget = whole


def _identifier_reserve(selection: Selection, material: Material) -> int:
    packed = _packed_identifiers(selection, material, last_tier=LAST_NEEDED_TIER)
    return sum(selection.price(line) for line in packed)


def _add_identifiers(selection: Selection, material: Material) -> None:
    """List the identifiers that no chosen line has: the carried ones and the new on a line each."""
    packed = _packed_identifiers(selection, material, last_tier=LAST_TIER)
    for order, line in enumerate(packed):
        selection.add_line(line, order=order, rank=Rank.IDENTIFIER)


def _packed_identifiers(
    selection: Selection, material: Material, *, last_tier: int
) -> list[SummaryLine]:
    """At most two lines, carried and new, with as many identifiers as their share has room for."""
    share = max(int(IDENTIFIERS_SHARE * selection.budget), SMALLEST_RESERVE_TOKENS)
    room = min(share, selection.left) - selection.cost(Heading.IDENTIFIERS)
    others = int(OTHER_CODES_SHARE * selection.budget)
    packed: dict[bool, list[str]] = {}
    for tier, line in _identifier_lines(selection, material)[: max(1, selection.budget // 6)]:
        cost = selection.cost(replace(line, from_previous=False))  # the mark stands once a line
        room -= cost if line.from_previous in packed else selection.cost(line)
        others -= cost
        if tier > last_tier or room < 0 or (tier > REFERENCE_TIER and others < 0):
            break
        packed.setdefault(line.from_previous, []).append(line.text)
    return [
        SummaryLine(
            text=SEPARATOR.join(texts), heading=Heading.IDENTIFIERS, from_previous=from_previous
        )
        for from_previous, texts in packed.items()
    ]


def _identifier_lines(selection: Selection, material: Material) -> list[tuple[int, SummaryLine]]:
    """(tier, line) of each identifier that no chosen line has, those to be kept first first.

    Old and new ones take turns, so that neither can push the other out.
    """
    newest: dict[str, SummaryLine] = {}
    tiers: dict[str, int] = {}
    for tier, identifier, from_previous in _identifiers(material):
        key = identifier.casefold()
        if key not in selection.covered:
            line = SummaryLine(
                text=identifier, heading=Heading.IDENTIFIERS, from_previous=from_previous
            )
            if key not in newest or not from_previous:
                newest[key] = line
            tiers[key] = min(tier, tiers.get(key, tier))
    ranked: dict[tuple[int, bool], list[SummaryLine]] = {}
    for key, line in newest.items():
        ranked.setdefault((tiers[key], line.from_previous), []).append(line)
    lines: list[tuple[int, SummaryLine]] = []
    for tier in range(LAST_TIER + 1):
        turns = zip_longest(ranked.get((tier, False), ()), ranked.get((tier, True), ()))
        lines.extend((tier, line) for pair in turns for line in pair if line)
    return lines


def _identifiers(material: Material) -> Iterator[tuple[int, str, bool]]:
    """(tier, identifier, is it carried): those listed before in their order, then the newest."""
    for candidate in (*material.identifiers, *reversed(material.candidates)):
        countable, line = candidate.countable, candidate.line
        for code in candidate.terms.codes:
            if is_reference_number(code):
                yield 0 if not line.label else 1 if countable else 2, code, line.from_previous
            else:
                yield 3 if countable else 5, code, line.from_previous
        for identifier in candidate.terms.identifiers if countable else ():
            if not identifier.isdigit() or len(identifier) >= SHORTEST_DIGITS:
                yield 4, identifier, line.from_previous


def trimmed(selection: Selection, *, count: Callable[[str], int], chinese: bool) -> str:
    """The text of the basket, less its last choices where the sum of parts fell short."""
    choices = sorted(selection.choices, key=lambda one: one.rank)
    while choices:
        in_order = sorted(choices, key=lambda one: one.order)
        text = render_summary((one.line for one in in_order), chinese=chinese)
        excess = count(text) - selection.budget
        if excess <= 0:
            return text
        while choices and excess > 0:
            excess -= selection.cost(choices.pop(_least(choices)).line)
    return ""


def _least(choices: list[Choice]) -> int:
    """Which choice to give up: one of the last, without a reference number if there is one."""
    last = len(choices) - 1
    for index in range(last, max(-1, last - LAST_CHOICES), -1):
        sentence = choices[index].rank is Rank.SENTENCE
        if sentence and not any(
            map(is_reference_number, extract_terms(choices[index].line.text).codes)
        ):
            return index
    return last
