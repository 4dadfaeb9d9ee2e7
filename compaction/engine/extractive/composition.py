"""One summary put together from units: what must be in it, what fits, and in which order."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from compaction.engine.extractive.cues import asks, is_question
from compaction.engine.extractive.forms import count_words, is_farewell, is_range
from compaction.engine.extractive.headings import (
    SECTION_OF,
    SEPARATOR,
    SummarySection,
    render_sections,
    render_unit,
    title,
)
from compaction.engine.extractive.pieces import is_parted, lines_of
from compaction.engine.extractive.pleasantries import is_pleasantry
from compaction.engine.extractive.quotations import QUOTED
from compaction.engine.extractive.selection import (
    Candidate,
    Selection,
    estimated_tokens,
    preferring,
    telling,
)
from compaction.engine.extractive.terms import words_of
from compaction.engine.extractive.units import OPERATORS, people_of
from compaction.engine.fidelity.entities import (
    IDENTIFIER,
    MAIL,
    URL,
    Entity,
    find_entities,
    key_of,
)
from compaction.engine.provenance import Unit, UnitKind

RULES_SHARE = 0.3
"""Of the budget, at most, for the user's rules, which come before everything else."""
CHANGES_SHARE = 0.3
ACTIONS_SHARE = 0.3
"""Of the budget, what the outcomes of tools get while anything that was said is left out."""
USERS_SHARE = 0.5
"""Of what is left then, what the user's own words and decisions get before anybody else's. In a
session with an agent, tools print most of what is rare. On the half of such conversations that was
not looked at, the score of a summary of 700 tokens rose from 59 to 68 by this."""
COMPLETING_SHARE = 0.15
"""Of the room for what was said, what is left for the rest of sentences that are there in part."""
LONGEST_ANSWER = 6
"""Words; a longer one says what it is about."""
LEAST_TO_COMPLETE = 150
"""Tokens: a smaller summary has room for pieces alone."""
ESSENTIAL_SHARE = 0.25
"""Of the budget, at most, for one line that tells a reader where they are."""
IDENTIFIERS_SHARE = 0.08
"""Of the budget, at most, for identifiers that no chosen line has."""
LEAST_FOR_IDENTIFIERS = 12
"""Tokens, of a fifth of the budget at most: the number of an order with the word before it."""
FEWEST_LINES = 3
INSTRUCTED_WORTH = 2.5
CONTEXT_WORDS = 3
"""An identifier alone means little: so many words before it say what it is."""
MAX_CONTEXT_CHARACTERS = 40
POOL_TARGETS = 8
"""Units are kept for later passes up to so many times the size of a summary: what ranks below that
is not chosen by any of them."""

# "a-z0-9" of a pattern: which characters are meant, not what something is called.
_CHARACTERS = re.compile(r"(?:[a-z]-[a-z]|\d-\d|_)+")
_RUN = f"{{1,{MAX_CONTEXT_CHARACTERS}}}"
_WORDS_BEFORE = re.compile(rf"(?:\S{_RUN}\s{_RUN}){{0,{CONTEXT_WORDS}}}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """A summary's text, and the units to keep for the next one, those of the text among them."""

    text: str
    units: tuple[Unit, ...]


def compose(
    candidates: Sequence[Candidate],
    *,
    budget: int,
    count: Callable[[str], int],
    language: str,
    instructions: str = "",
    pool_tokens: int = 0,
    whole: Collection[str] = (),
) -> Composition:
    """Return the summary with the most worth inside `budget` tokens; an empty text if no line fits.

    `candidates` stand in time order; the last ones are what was said last. The lines whose keys are
    in `whole` go in before all others where they fit together.
    """
    wanted = (*words_of(instructions[:2000]), *_keys_of(instructions[:2000]))
    candidates = preferring(candidates, wanted, INSTRUCTED_WORTH)
    costs: dict[str, int] = {}

    def cost(unit: Unit) -> int:
        line = render_unit(unit, language)
        if line not in costs:
            costs[line] = count(line + "\n")
        return costs[line]

    selection = Selection(budget=_room(budget, candidates, language, count), cost=cost)
    state = _choose_state(selection, candidates)
    limit = selection.spent + int(ESSENTIAL_SHARE * selection.budget)
    state |= _complete(selection, candidates, upto=limit)
    if whole:
        _choose_whole(selection, [one for one in candidates if line_key(one.unit.text) in whole])
    _choose_kind(selection, candidates, UnitKind.RULE, RULES_SHARE)
    _choose_first_request(selection, candidates)
    _choose_kind(selection, candidates, UnitKind.CHANGE, CHANGES_SHARE)
    _choose_kind(selection, candidates, UnitKind.ACTION, ACTIONS_SHARE)
    named = _fill_beside_identifiers(
        selection, candidates, count, title(SummarySection.IDENTIFIERS, language)
    )
    text = _trimmed(selection, state, named, budget=budget, count=count, language=language)
    units = _pool(candidates, selection, pool_tokens) if pool_tokens else ()
    return Composition(text=text, units=units)


def _keys_of(text: str) -> list[str]:
    return [entity.key for entity in find_entities(text)]


def _room(
    budget: int,
    candidates: Sequence[Candidate],
    language: str,
    count: Callable[[str], int],
) -> int:
    """Return what the headings that will stand there leave of the budget."""
    sections = {SECTION_OF[one.unit.kind] for one in candidates} | {SummarySection.STATE}
    headings = sum(count(title(section, language) + "\n") for section in sections)
    return max(0, budget - (headings if headings * 4 <= budget else 0))


def _choose_whole(selection: Selection, candidates: Sequence[Candidate]) -> None:
    """Choose all of the candidates, or none where there is no room for all."""
    missing = [one for one in candidates if not selection.has(one)]
    if selection.spent + sum(selection.cost(one.unit) for one in missing) <= selection.budget:
        for one in missing:
            selection.add(one)


def _choose_kind(
    selection: Selection, candidates: Iterable[Candidate], kind: UnitKind, share: float
) -> None:
    of_kind = [one for one in candidates if one.unit.kind is kind]
    selection.fill(of_kind, upto=selection.spent + int(share * selection.budget))


def _choose_first_request(selection: Selection, candidates: Sequence[Candidate]) -> None:
    """Choose what the conversation began with: the first message's best line."""
    people = people_of(one.unit for one in candidates)
    users = [
        one
        for one in candidates
        if one.unit.speaker in people and one.unit.kind is not UnitKind.ACTION
    ]
    if not users:
        return
    first = users[0].unit.position
    opening = [one for one in users if one.unit.position == first]
    asking = [one for one in opening if one.unit.kind is UnitKind.REQUEST] or opening
    best = max(asking, key=lambda one: (selection.gain(one), -one.order))
    if selection.gain(best):
        selection.add(best, limit=int(ESSENTIAL_SHARE * selection.budget))


def _choose_state(selection: Selection, candidates: Sequence[Candidate]) -> set[int]:
    """Choose a line of what the user said last, and of what was said to it; return their orders.

    Thanks and farewells are no state; what a tool printed is one where nobody said anything behind.
    """
    said = [one for one in candidates if one.unit.kind is not UnitKind.ACTION]
    chosen: set[int] = set()
    people = people_of(one.unit for one in candidates)
    users = [one for one in said if one.unit.speaker in people]
    told = (one for one in reversed(users) if not is_farewell(one.unit.text))
    newest = next(filter(selection.gain, told), users[-1] if users else None)
    last = newest.unit.position if newest else -1
    others = (one for one in said if one.unit.position > last and one.unit.speaker not in people)
    behind = [one for one in others if not is_pleasantry(one.unit.text)]
    for group in (
        [one for one in users if one.unit.position == last],
        [one for one in behind if one.unit.speaker in OPERATORS - {"tool", QUOTED}] or behind,
    ):
        position = group[-1].unit.position if group else -1
        lines = [one for one in group if one.unit.position == position]
        # Of an older summary's lines the last one says what held last.
        read_back = bool(lines) and lines[-1].unit.message is None
        best = max(
            lines[-1:] if read_back else lines,
            key=lambda one: (selection.gain(one), one.order),
            default=None,
        )
        if best is None or best.unit.kind is UnitKind.RULE or not selection.gain(best):
            continue
        if selection.add(best, limit=int(ESSENTIAL_SHARE * selection.budget)):
            chosen.add(best.order)
    return chosen


def _fill_beside_identifiers(
    selection: Selection,
    candidates: Sequence[Candidate],
    count: Callable[[str], int],
    heading: str,
) -> list[str]:
    """Fill the budget with the best units; return the line of identifiers that none of them has."""

    def taken(named: list[str]) -> int:
        return sum(count(f"{line}\n") for line in (heading, *named)) if named else 0

    least = min(LEAST_FOR_IDENTIFIERS, selection.budget // 5)
    room = max(int(IDENTIFIERS_SHARE * selection.budget), least)
    naming = _with_codes(candidates)
    reserve = taken(_named_alone(naming, selection, room, count))
    # Actions have had their share: commands and paths would crowd out what was said.
    told = telling(candidates)
    said = [one for one in told if one.unit.kind is not UnitKind.ACTION]
    upto = selection.budget - reserve
    if upto >= LEAST_TO_COMPLETE:
        left = int(COMPLETING_SHARE * (upto - selection.spent))
        fill_users_first(selection, said, upto=upto - left)
        _complete(selection, candidates, upto=upto)
    fill_users_first(selection, said, upto=upto)
    named = _named_alone(naming, selection, room, count)
    for some in (said, told):
        selection.fill(some, upto=selection.budget - taken(named))
    left = selection.budget - selection.spent - count(f"{heading}\n")
    return _named_alone(naming, selection, min(room, left), count)


def _complete(selection: Selection, candidates: Sequence[Candidate], *, upto: int) -> set[int]:
    """Add the rest of sentences that were parted anywhere, and what short answers answer.

    It ends at so many tokens in all. Returns the orders of what was added.
    """
    added: set[int] = set()
    for chosen in list(selection.chosen):
        before = candidates[chosen.order - 1] if chosen.order else None
        is_answer = before is not None and _answers(chosen.unit, before.unit)
        if before and is_answer and selection.add(before, limit=upto - selection.spent):
            added.add(before.order)
        for other in _rest_of(chosen, candidates):
            if selection.has(other):
                continue
            if not selection.add(other, limit=upto - selection.spent):
                break
            added.add(other.order)
    return added


def _rest_of(chosen: Candidate, candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    """Yield what a piece of a sentence that was parted anywhere lacks: what follows, then before.

    Where a word such as "and" joins two pieces, each of them can stand alone.
    """
    for order in range(chosen.order, len(candidates) - 1):
        if not is_parted(candidates[order].unit, candidates[order + 1].unit):
            break
        yield candidates[order + 1]
    for order in range(chosen.order, 0, -1):
        if not is_parted(candidates[order - 1].unit, candidates[order].unit):
            break
        yield candidates[order - 1]


def _answers(unit: Unit, before: Unit) -> bool:
    """Whether a unit is a short answer, which says little without the question before it."""
    is_reply = before.position < unit.position and before.speaker != unit.speaker
    return (
        is_reply
        and asks(before.text)
        and count_words(unit.text) <= LONGEST_ANSWER
        and not is_question(unit.text)
        and UnitKind.ACTION not in (unit.kind, before.kind)
    )


def fill_users_first(selection: Selection, candidates: Sequence[Candidate], *, upto: int) -> None:
    """Fill up to so many tokens in all; most of what is left is for the user and for decisions."""
    people = people_of(one.unit for one in candidates)
    first = [
        one
        for one in candidates
        if one.unit.speaker in people or one.unit.kind is UnitKind.DECISION
    ]
    share = int(USERS_SHARE * (upto - selection.spent))
    selection.fill(first, upto=upto, until=selection.spent + share)
    selection.fill(candidates, upto=upto)


def _with_codes(candidates: Iterable[Candidate]) -> list[tuple[str, list[str]]]:
    """Return the texts that name more than words, with that: the user's and the newest first."""
    named = [
        (one, [key for key in one.unit.entities if not key.isalpha()])
        for one in candidates
        if one.unit.entities and one.unit.kind is not UnitKind.ACTION
    ]
    named.sort(key=lambda each: (bool(each[0].unit.speaker), -each[0].order))
    return [(one.unit.text, keys) for one, keys in named if keys]


def _named_alone(
    naming: Iterable[tuple[str, Sequence[str]]],
    selection: Selection,
    room: int,
    count: Callable[[str], int],
) -> list[str]:
    """Return the identifiers that no chosen line has, in the order of `naming` (_with_codes).

    They take at most `room` tokens. Each has a few of the words before it, so that a reader knows
    what it is.
    """
    parts: list[str] = []
    seen: set[str] = set()
    for text, keys in naming:
        if room <= 0:
            break
        if all(map(selection.is_said, keys)):
            continue
        missing = [
            entity
            for entity in find_entities(text)
            if entity.kind in (IDENTIFIER, MAIL, URL)
            # A name of a field or a function is of use with its value or its file alone.
            and not entity.key.replace("_", "").isalpha()
            and not (_CHARACTERS.fullmatch(entity.key) or is_range(entity.key))
            and not (entity.key in seen or selection.is_said(entity.key))
        ]
        seen.update(entity.key for entity in missing)
        for start, end in _in_context(text, missing):
            part = text[start:end].strip("*")
            room -= count(part + SEPARATOR)
            if room > 0:
                parts.append(part)
    return [f"- {SEPARATOR.join(reversed(parts))}"] if parts else []


def _in_context(text: str, entities: Iterable[Entity]) -> list[tuple[int, int]]:
    """Return where entities stand with the words before them; those near each other together."""
    spans: list[tuple[int, int]] = []
    for entity in entities:
        limit = max(0, entity.start - MAX_CONTEXT_CHARACTERS)
        before = _WORDS_BEFORE.search(text, limit, entity.start)
        start = before.start() if before else entity.start
        if spans and start <= spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], entity.end)
        else:
            spans.append((start, entity.end))
    return spans


def _trimmed(
    selection: Selection,
    state: set[int],
    named: list[str],
    *,
    budget: int,
    count: Callable[[str], int],
    language: str,
) -> str:
    """The text of the chosen, less the last choices where the sum of the parts fell short."""
    chosen = list(selection.chosen)
    while chosen:
        text = _rendered(chosen, state, named, language)
        excess = count(text) - budget
        if excess <= 0:
            return text
        while excess > 0 and (chosen or named):
            # The last choices say least; identifiers that stand nowhere else go after most of them.
            if named and len(chosen) <= FEWEST_LINES:
                excess -= count(named.pop())
            else:
                excess -= selection.cost(chosen.pop().unit)
    return ""


def _rendered(chosen: Iterable[Candidate], state: set[int], named: list[str], language: str) -> str:
    in_order = sorted(chosen, key=lambda one: one.order)
    placed = _placed(in_order, state)
    units: dict[SummarySection, list[Unit]] = {}
    for section, unit in placed:
        units.setdefault(section, []).append(unit)
    sections = {
        section: [render_unit(unit, language) for unit in lines_of(of_section)]
        for section, of_section in units.items()
    }
    if named:
        sections[SummarySection.IDENTIFIERS] = list(named)
    return render_sections(sections, language)


def _placed(in_order: Sequence[Candidate], state: set[int]) -> list[tuple[SummarySection, Unit]]:
    """Return the lines with their sections, so that of two about one thing the older comes first.

    What stands under a heading above the facts, and is newer than a fact about the same, is a fact.
    """
    oldest: dict[str, int] = {}
    for candidate in in_order:
        unit = candidate.unit
        if SECTION_OF[unit.kind] is SummarySection.FACTS and candidate.order not in state:
            for key in unit.entities:
                oldest.setdefault(key, candidate.order)
    placed = []
    for candidate in in_order:
        unit = candidate.unit
        section = SummarySection.STATE if candidate.order in state else SECTION_OF[unit.kind]
        above = section in (SummarySection.REQUESTS, SummarySection.DECISIONS)
        if above and any(
            oldest.get(key, candidate.order) < candidate.order for key in unit.entities
        ):
            section = SummarySection.FACTS
        placed.append((section, unit))
    return placed


def keep_best(candidates: Sequence[Candidate], tokens: int) -> tuple[Unit, ...]:
    """Return the units to choose from in later passes, in time order, up to so many tokens."""
    return _pool(candidates, Selection(budget=0, cost=_stored_size), tokens)


def _pool(candidates: Sequence[Candidate], selection: Selection, tokens: int) -> tuple[Unit, ...]:
    """Return the units to choose from next time, in time order: the chosen ones, then the best."""
    if sum(_stored_size(one.unit) for one in candidates) <= tokens:
        return tuple(one.unit for one in candidates)
    kept = Selection(budget=max(tokens, selection.spent), cost=_stored_size)
    for candidate in selection.chosen:
        kept.add(candidate)
    kept.fill(candidates)
    chosen = sorted(kept.chosen, key=lambda one: one.order)
    return tuple(one.unit for one in chosen)


def _stored_size(unit: Unit) -> int:
    return int(estimated_tokens(unit.text)) + 1


def line_key(text: str) -> str:
    """What two lines that say the same have in common."""
    return key_of(text).rstrip("。！…!，、；،")
