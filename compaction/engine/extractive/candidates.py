"""The sentences a summary may be made of, each with the heading it belongs under and its worth."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from compaction.engine.extractive.cues import (
    ASIDE_WORTH,
    classify,
    cue_worth,
    form_worth,
    is_question,
)
from compaction.engine.extractive.headings import Heading, SummaryLine, parse_summary
from compaction.engine.extractive.sentences import (
    is_json,
    shorten,
    split_fields,
    split_lines,
    split_sentences,
)
from compaction.engine.extractive.terms import Terms, extract_terms, is_bare_identifier, small_words
from compaction.engine.strategies.actions import ACTION_TOOLS, COMMAND_TOOLS, collect_actions
from compaction.engine.types import Item, SummaryRequest

ROLE_WORTH = {"user": 1.0, "assistant": 0.8, "system": 0.5, "developer": 0.5, "tool": 0.3}
SPEAKERS = frozenset({"", "assistant", "system", "developer"})
LOG_END_WORTH = 2.0
LOG_END_LINES = 3
FIRST_MESSAGE_WORTH = 1.3
LAST_MESSAGE_WORTH = 1.3
FILE_WORTH = 0.2
"""What stands in a file that was read or written is no result; it can be read again."""
CALL_WORTH = 0.3
"""The arguments of a call: what came of it is said elsewhere."""
CARRIED_WORTH = {
    Heading.REQUESTS: 1.8,
    Heading.CONSTRAINTS: 1.8,
    Heading.DECISIONS: 1.6,
    Heading.QUESTIONS: 1.0,
}
"""A line of an older summary was already chosen once out of many."""
CARRIED_FACT_WORTH = 1.3
CARRIED_OUTPUT_WORTH = 0.6
MERGED_WORTH = 0.9
"""Of two texts that differ, the later one is right."""

COMMAND_CHARACTERS = 100
_UNFINISHED = re.compile(r"<<-?\s?[\"']?\w+[\"']?$|\bdo$")
"""A command whose first line says next to nothing: what it does stands in the next ones."""
_DIGITS = re.compile(r"\d+")
_TOOL_NAME = re.compile(r"[\w.-]{1,40}")


class CandidateGroup(Enum):
    """Messages of which a summary needs a line whatever they are worth."""

    NONE = "none"
    FIRST = "the first request"
    ASKED = "the user's last message"
    SAID = "what was said after it"
    REPLIED = "what was said before it"
    END = "the end of a tool's output"


@dataclass(slots=True, kw_only=True)
class Candidate:
    """One line that may be chosen. `order` is its place in the input, `worth` a factor."""

    line: SummaryLine
    order: int = 0
    score: float = 1.0
    group: CandidateGroup = CandidateGroup.NONE
    terms: Terms = field(default_factory=lambda: Terms(weights={}))

    countable: bool = True
    """Said by somebody, not printed by a tool."""

    @property
    def key(self) -> str:
        """What two candidates that say the same have in common."""
        return self.line.text.casefold().rstrip(".。!！…")

    @property
    def is_bare(self) -> bool:
        """Whether it is an identifier that an older summary listed without a sentence."""
        return self.line.heading is Heading.IDENTIFIERS and is_bare_identifier(self.line.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """Everything a request offers: sentences in order, bare identifiers, lines about actions."""

    candidates: tuple[Candidate, ...]
    identifiers: tuple[Candidate, ...]
    actions: tuple[SummaryLine, ...]


def gather_material(request: SummaryRequest) -> Material:
    """The candidates and action lines of a request, without duplicates, the newest copy kept."""
    lines: dict[str, Candidate] = {}
    actions: list[SummaryLine] = []
    for candidate in _all_candidates(request):
        if candidate.line.heading is Heading.FILES:
            actions.append(candidate.line)
        elif any(character.isalnum() for character in candidate.line.text):
            lines.pop(candidate.key, None)
            lines[candidate.key] = candidate
    actions.extend(_action_lines(request.items))
    _weigh(lines.values())
    bare = tuple(one for one in lines.values() if one.is_bare)
    return Material(
        candidates=tuple(one for one in lines.values() if not one.is_bare),
        identifiers=bare,
        actions=_latest_actions(actions),
    )


def _weigh(candidates: Iterable[Candidate]) -> None:
    """Give each candidate its terms, and less worth the more often its like has come before."""
    small = small_words(candidate.line.text for candidate in candidates)
    alike: dict[str, int] = {}
    for order, candidate in enumerate(candidates):
        text = candidate.line.text
        candidate.order = order
        candidate.terms = extract_terms(text, small=small)
        if candidate.countable or candidate.group is not CandidateGroup.NONE:
            continue
        shape = _DIGITS.sub("0", text)
        alike[shape] = alike.get(shape, 0) + 1
        candidate.score /= alike[shape]


def _latest_actions(actions: Iterable[SummaryLine]) -> tuple[SummaryLine, ...]:
    """Each file and command once, where it came last; a file once modified stays modified."""
    latest: dict[str, SummaryLine] = {}
    for line in actions:
        known = latest.pop(line.text, None)
        if known is not None and known.label == "modified" and line.label == "read":
            line = replace(known, from_previous=line.from_previous)
        latest[line.text] = line
    return tuple(latest.values())


def _all_candidates(request: SummaryRequest) -> Iterator[Candidate]:
    yield from _from_summary(request.previous, from_previous=True)
    for index, text in enumerate(request.texts):
        last = index == len(request.texts) - 1
        yield from _from_summary(text, from_previous=not last, factor=1.0 if last else MERGED_WORTH)
    yield from _from_items(request.items, continued=bool(request.previous.strip()))


def _from_summary(summary: str, *, from_previous: bool, factor: float = 1.0) -> Iterator[Candidate]:
    for text, label, heading, was_carried in parse_summary(summary):
        printed = label not in SPEAKERS
        group = CandidateGroup.NONE
        if heading is None:
            heading = classify(text, role="user", last=False)
        elif heading is Heading.REQUESTS and (from_previous or was_carried):
            group = CandidateGroup.FIRST
        elif heading is Heading.STATE and from_previous:
            # It was the last state then.
            heading = classify(text, role=label or "user", last=False)
        elif heading is Heading.STATE:
            group = CandidateGroup.SAID if label else CandidateGroup.ASKED
        line = SummaryLine(
            text=text, heading=heading, label=label, from_previous=from_previous or was_carried
        )
        score = factor * CARRIED_WORTH.get(heading, CARRIED_FACT_WORTH) * form_worth(text)
        if heading is Heading.REQUESTS and is_question(text):
            score *= ASIDE_WORTH  # it has had its answer
        elif heading is Heading.QUESTIONS and was_carried:
            score *= ASIDE_WORTH  # it has probably had one, too
        yield Candidate(
            line=line,
            score=score * CARRIED_OUTPUT_WORTH if printed else score,
            group=group,
            countable=not printed,
        )


def _from_items(items: tuple[Item, ...], *, continued: bool) -> Iterator[Candidate]:
    groups = _groups(items, continued=continued)
    for index, item in enumerate(items):
        group = groups.get(index, CandidateGroup.NONE)
        if item.role == "tool":
            yield from _from_output(item, said_last=group is CandidateGroup.SAID)
        else:
            yield from _from_message(item, group=group)
        yield from _from_calls(item)


def _groups(items: tuple[Item, ...], *, continued: bool) -> dict[int, CandidateGroup]:
    """Which items are the first request and the last exchange, by their index."""
    speaking = [index for index, item in enumerate(items) if item.text.strip()]
    asked = [index for index in speaking if items[index].role == "user"]
    last_asked = asked[-1] if asked else -1
    after = [index for index in speaking if index > last_asked]
    said = [index for index in after if items[index].role != "tool"] or after
    before = [
        index for index in speaking if index < last_asked and items[index].role == "assistant"
    ]
    groups: dict[int, CandidateGroup] = {}
    if said:
        groups[said[-1]] = CandidateGroup.SAID
    elif before:
        groups[before[-1]] = CandidateGroup.REPLIED
    if asked:
        groups[last_asked] = CandidateGroup.ASKED
        if not continued:  # else the session's first request is in the previous summary
            groups[asked[0]] = CandidateGroup.FIRST
    return groups


def _from_message(item: Item, *, group: CandidateGroup) -> Iterator[Candidate]:
    score = ROLE_WORTH.get(item.role, 0.8)
    if group is CandidateGroup.FIRST:
        score *= FIRST_MESSAGE_WORTH
    elif group is not CandidateGroup.NONE:
        score *= LAST_MESSAGE_WORTH
    last = group in (CandidateGroup.SAID, CandidateGroup.ASKED)
    label = "" if item.role == "user" or not _TOOL_NAME.fullmatch(item.role) else item.role
    for sentence in split_sentences(item.text):
        heading = classify(sentence, role=item.role, last=last)
        yield Candidate(
            line=SummaryLine(text=sentence, heading=heading, label=label),
            score=score * cue_worth(sentence, role=item.role, last=last) * form_worth(sentence),
            group=group,
        )


def _from_output(item: Item, *, said_last: bool) -> Iterator[Candidate]:
    """The lines of a tool's output: its errors and its end say most of what came of a call."""
    label = item.tool_name if item.tool_name and _TOOL_NAME.fullmatch(item.tool_name) else "tool"
    score = ROLE_WORTH["tool"]
    if item.tool_name.strip().casefold() in ACTION_TOOLS - COMMAND_TOOLS:
        score *= FILE_WORTH
    printed = is_json(item.text)
    sentences = list(split_fields(item.text) if printed else split_sentences(item.text))
    for index, sentence in enumerate(sentences):
        near_end = len(sentences) - index <= LOG_END_LINES and not printed
        group = CandidateGroup.NONE
        if near_end:
            group = CandidateGroup.SAID if said_last else CandidateGroup.END
        yield Candidate(
            line=SummaryLine(text=sentence, heading=Heading.RESULTS, label=label),
            score=score
            * cue_worth(sentence, role="tool", last=False)
            * form_worth(sentence)
            * (LOG_END_WORTH if near_end else 1.0),
            group=group,
            countable=False,
        )


def _from_calls(item: Item) -> Iterator[Candidate]:
    for call in item.tool_calls:
        if call.name.strip().casefold() in ACTION_TOOLS:
            continue  # listed as an action
        label = call.name if _TOOL_NAME.fullmatch(call.name) else "call"
        for sentence in split_sentences(call.arguments):
            line = SummaryLine(text=sentence, heading=Heading.RESULTS, label=label)
            yield Candidate(line=line, score=CALL_WORTH * form_worth(sentence), countable=False)


def _action_lines(items: Iterable[Item]) -> Iterator[SummaryLine]:
    actions = collect_actions(items)
    labelled = (
        ("read", actions.files_read),
        ("run", actions.commands),
        ("modified", actions.files_modified),
    )
    for label, texts in labelled:
        for text in texts:
            folded = next(split_lines(text), "")
            if label == "run":
                folded = "" if _UNFINISHED.search(folded) else shorten(folded, COMMAND_CHARACTERS)
            if folded:
                yield SummaryLine(text=folded, heading=Heading.FILES, label=label)
