"""What an exchange is worth to those who go on: a score, and a word for each of its reasons.

Five signals count: the user corrects something, something is decided, an error came up and was
mended, what the exchange was the first to name is named again later, a message of it is pinned.
Names, numbers, paths, exit statuses and pins are the same in every language; the words for
corrections and decisions are those of the languages that summaries know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from compaction.engine.extractive.corrections import is_correction
from compaction.engine.extractive.cues import classify
from compaction.engine.extractive.outcomes import failure_of, only_looks
from compaction.engine.extractive.sentences import split_sentences
from compaction.engine.fidelity.entities import (
    DATE,
    IDENTIFIER,
    MAIL,
    NUMBER,
    PATH,
    URL,
    find_entities,
)
from compaction.engine.fidelity.spellings import is_small_count
from compaction.engine.provenance import UnitKind
from compaction.engine.strategies.actions import command_of
from compaction.engine.tool_actions import BUILT_IN, COMMAND, VIEWED, Tools, use_of
from compaction.engine.types import Item, ToolCall

CORRECTION = "the user corrects"
DECISION = "a decision"
MENDING = "an error and its mending"
PIN = "pinned"
NAMED = "named again later"
WEIGHTS: Mapping[str, float] = {CORRECTION: 1.0, DECISION: 0.5, MENDING: 1.0, PIN: 4.0}
"""What a signal adds to a score: a word counts as much as one name, agents' answers hold words for
decisions too often for that, and a pin is somebody's word that it counts.

Measured by what the rest of a conversation names again (tests/bench/abridging.py): on half of the
real conversations, drawn by a hash, words of up to twice a name changed nothing and a lower
MOST_NAMED lost much; the other half was only looked at with what came of it."""

NAMED_WEIGHT = 1.0
"""Of each thing that was named first here and is named again later."""
MOST_NAMED = 8
"""So many of them count: a list of files is worth no more than what it is used for."""
NAMES_SHOWN = 3
KINDS = frozenset({IDENTIFIER, NUMBER, PATH, URL, MAIL, DATE})
"""Names of people and places come back in every answer and say little."""
FEWEST_CHARACTERS = 3
"""Of what counts as named again: shorter numbers meet by chance."""

CHARS_READ = 2_000
"""Of a text, from each end: an exchange of a megabyte is weighed as quickly as any other."""


def signals_of(
    places: Sequence[tuple[int, Item]],
    results: Mapping[tuple[int, int], Item],
    *,
    pinned: frozenset[int] = frozenset(),
    tools: Tools = BUILT_IN,
) -> tuple[str, ...]:
    """Return the words for what counts in the items of one exchange, without what is named again.

    Each comes with its place among the items that `results` speaks of (results_of); `pinned` are
    positions of messages.
    """
    found: dict[str, None] = {}
    for _, item in places:
        if item.position in pinned:
            found[PIN] = None
        if item.role in ("user", "assistant") and not item.is_note and item.text:
            found |= dict.fromkeys(_said(item))
    if _was_mended(places, results, tools):
        found[MENDING] = None
    return tuple(word for word in WEIGHTS if word in found)


def _said(item: Item) -> Iterator[str]:
    """Yield what the words of a message count as."""
    for sentence in split_sentences(_ends(item.text)):
        kind = classify(sentence, role=item.role)
        if kind is UnitKind.DECISION or kind is UnitKind.RULE:
            yield DECISION
        if item.is_question and is_correction(sentence):
            yield CORRECTION


def _was_mended(
    places: Sequence[tuple[int, Item]], results: Mapping[tuple[int, int], Item], tools: Tools
) -> bool:
    """Whether a tool that failed worked later: a command, or what changes files."""
    failed: set[str] = set()
    for index, item in places:
        for number, call in enumerate(item.tool_calls):
            result = results.get((index, number))
            if result is None or not _tells(call, tools):
                continue
            if failure_of(_ends(result.text)):
                failed.add(call.name)
            elif call.name in failed:
                return True
    return False


def _tells(call: ToolCall, tools: Tools) -> bool:
    """Whether what comes of a call says if it went well: text that is only shown does not."""
    use = use_of(call.name, tools)
    if use is None or use.does == VIEWED:
        return False
    return use.does != COMMAND or not only_looks(command_of(call))


def things_named(texts: Iterable[str]) -> frozenset[str]:
    """Return the identifiers, numbers, paths and addresses of texts, in the form to compare by."""
    return frozenset(
        one.key
        for text in texts
        for one in find_entities(_ends(text))
        if one.kind in KINDS and len(one.key) >= FEWEST_CHARACTERS and not is_small_count(one.key)
    )


def named_again(named: Sequence[Iterable[str]]) -> list[list[str]]:
    """Return of each exchange, oldest first, what it was the first to name and a later one named.

    Who names it first brought it in: those that repeat it say nothing new by that.
    """
    first: dict[str, int] = {}
    found: list[dict[str, None]] = [{} for _ in named]
    for index, keys in enumerate(named):
        for key in sorted(keys):
            origin = first.setdefault(key, index)
            if origin != index:
                found[origin][key] = None
    return [list(keys) for keys in found]


def weighed(words: Iterable[str], again: Sequence[str]) -> tuple[float, tuple[str, ...]]:
    """Return a score and its reasons: the words of signals_of, and what is named again later."""
    known = tuple(word for word in words if word in WEIGHTS)
    score = sum(WEIGHTS[word] for word in known) + NAMED_WEIGHT * min(len(again), MOST_NAMED)
    if again:
        known += (f"{NAMED}: {', '.join(again[:NAMES_SHOWN])}",)
    return score, known


def _ends(text: str) -> str:
    if len(text) <= 2 * CHARS_READ:
        return text
    return f"{text[:CHARS_READ]}\n{text[-CHARS_READ:]}"
