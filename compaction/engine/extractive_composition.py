"""One extractive summary, put together: what must be in it, what fits, and how it is trimmed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from compaction.engine.extractive_candidates import Candidate, Material
from compaction.engine.extractive_headings import (
    NOTE,
    NOTE_CHINESE,
    Heading,
    Line,
    render_summary,
    title,
)
from compaction.engine.extractive_selection import Basket, Rank, fill, gain
from compaction.engine.extractive_terms import extract_terms

CARRIED_SHARE = 0.5
"""Of the budget, at most, for an older summary, while newer lines are waiting."""
FRESH_SHARE = 0.2
"""Of the budget, first of all, for new sentences when an older summary wants its place, too."""
ACTIONS_SHARE = 0.25
IDENTIFIERS_SHARE = 0.4
ESSENTIAL_SHARE = 0.3
"""Of the budget, at most, for the first request, and as much for the last state."""
CONTEXT_CHARACTERS = 28
"""On each side of an identifier that is listed without its sentence."""
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

    def count_part(part: Line | Heading) -> int:
        line = (
            part.render(chinese=chinese) if isinstance(part, Line) else title(part, chinese=chinese)
        )
        return count(line + "\n")

    basket = Basket(budget=budget, count=count_part)
    candidates = material.candidates
    if any(one.line.carried for one in candidates):
        basket.spent = count((NOTE_CHINESE if chinese else NOTE) + "\n")
    _prefer(candidates, instructions)
    _add_essentials(basket, candidates)
    _add_fresh(basket, candidates)
    _add_actions(basket, material.actions)
    reserve = _identifier_reserve(basket, candidates)
    carried_limit = int(CARRIED_SHARE * budget)
    basket.budget -= reserve
    fill(basket, candidates, carried_limit=carried_limit)
    basket.budget += reserve
    _add_identifiers(basket, candidates)
    fill(basket, candidates, carried_limit=carried_limit)
    return _trimmed(basket, count=count, chinese=chinese)


def _prefer(candidates: Iterable[Candidate], instructions: str) -> None:
    """What the operator asked to look after counts for more."""
    wanted = set(extract_terms(instructions[:2000]).weights)
    if wanted:
        for candidate in candidates:
            if not wanted.isdisjoint(candidate.terms.weights):
                candidate.worth *= INSTRUCTED_WORTH


def _add_essentials(basket: Basket, candidates: Iterable[Candidate]) -> None:
    """The first request and the last state: without them a reader does not know where they are."""
    limit = int(ESSENTIAL_SHARE * basket.budget)
    groups: dict[str, list[Candidate]] = {"last": [], "first": []}
    for candidate in candidates:
        if candidate.group in groups:
            groups[candidate.group].append(candidate)
    for group, members in groups.items():
        for candidate in sorted(members, key=lambda one: (-gain(one, basket.covered), -one.order)):
            line = candidate.line
            if group == "last":
                line = replace(line, heading=Heading.STATE)
            if basket.add(candidate, line=line, limit=limit, rank=Rank.ESSENTIAL):
                break


def _add_fresh(basket: Basket, candidates: tuple[Candidate, ...]) -> None:
    fresh = [one for one in candidates if not one.line.carried]
    if len(fresh) == len(candidates):
        return
    whole = basket.budget
    basket.budget = min(whole, basket.spent + int(FRESH_SHARE * whole))
    fill(basket, fresh, carried_limit=0)
    basket.budget = whole


def _add_actions(basket: Basket, actions: tuple[Line, ...]) -> None:
    limit = basket.spent + int(ACTIONS_SHARE * basket.budget)
    # The latest matter most when not all fit.
    for order, line in reversed(tuple(enumerate(actions))):
        if basket.spent + basket.price(line) > min(limit, basket.budget):
            break
        basket.add_line(line, order=order, rank=Rank.ACTION)


def _identifier_reserve(basket: Basket, candidates: tuple[Candidate, ...]) -> int:
    lines = _identifier_lines(basket, candidates)
    if not lines:
        return 0
    wanted = sum(basket.cost(full) for _, full, _ in lines)
    wanted += basket.cost(Heading.IDENTIFIERS)
    return max(0, min(wanted, int(IDENTIFIERS_SHARE * basket.budget), basket.left))


def _add_identifiers(basket: Basket, candidates: tuple[Candidate, ...]) -> None:
    """List the identifiers no chosen sentence has: with context if all fit so, else bare."""
    lines = _identifier_lines(basket, candidates)
    room = min(int(IDENTIFIERS_SHARE * basket.budget), basket.left)
    room -= basket.cost(Heading.IDENTIFIERS)
    in_context = sum(basket.cost(full) for _, full, _ in lines) <= room
    for order, (identifier, full, bare) in enumerate(lines):
        if identifier.casefold() in basket.covered:
            continue  # an earlier line's context has it
        line = full if in_context else bare
        if basket.cost(line) > room:
            break
        room -= basket.cost(line)
        basket.add_line(line, order=order, rank=Rank.IDENTIFIER)
        basket.covered.update(extract_terms(line.text).weights)


def _identifier_lines(
    basket: Basket, candidates: tuple[Candidate, ...]
) -> list[tuple[str, Line, Line]]:
    """(identifier, line in context, line alone) of each that is not covered, codes first."""
    codes: dict[str, Candidate] = {}
    others: dict[str, Candidate] = {}
    for candidate in reversed(candidates):
        for identifier in candidate.terms.codes:
            codes.setdefault(identifier, candidate)
        if candidate.spoken:
            for identifier in candidate.terms.identifiers:
                others.setdefault(identifier, candidate)
    found = []
    for identifier, candidate in (*codes.items(), *others.items()):
        if identifier.casefold() not in basket.covered:
            line = replace(candidate.line, heading=Heading.IDENTIFIERS)
            context = _context(line.text, identifier)
            found.append(
                (identifier, replace(line, text=context), replace(line, text=identifier, label=""))
            )
    return found[: max(1, basket.budget // 3)]


def _context(text: str, identifier: str) -> str:
    at = text.find(identifier)
    start, end = at - CONTEXT_CHARACTERS, at + len(identifier) + CONTEXT_CHARACTERS
    if start > 0:
        space = text.rfind(" ", start, at)
        start = text.find(" ", start, at) + 1 if space >= 0 else start
    if end < len(text):
        space = text.rfind(" ", at + len(identifier), end)
        end = space if space >= 0 else end
    return text[max(0, start) : end].strip()


def _trimmed(basket: Basket, *, count: Callable[[str], int], chinese: bool) -> str:
    """The text of the basket, less its last choices where the sum of parts fell short."""
    choices = sorted(basket.choices, key=lambda one: one.rank)
    while choices:
        in_order = sorted(choices, key=lambda one: one.order)
        text = render_summary((one.line for one in in_order), chinese=chinese)
        excess = count(text) - basket.budget
        if excess <= 0:
            return text
        while choices and excess > 0:
            excess -= basket.cost(choices.pop().line)
    return ""
