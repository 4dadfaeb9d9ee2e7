"""How well the score of a summary agrees with answers that somebody else wrote.

For each memory scenario many texts of about one size are made: by other means, and out of our own
summary with lines replaced by sentences drawn at random. Each has a score and a share of questions
whose answer stands in it; the rows are Spearman's rank correlation of the two, in per cent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from statistics import correlation, mean

from compaction.engine.extractive.sentences import split_sentences
from compaction.engine.fidelity.covered import Covered
from compaction.engine.fidelity.measure import measure_against
from compaction.engine.types import Item
from tests.bench.baselines import BASELINES
from tests.bench.measure import Row

SIZES = (500, 1_000)
KEPT_SHARES = (0.0, 0.0, 0.25, 0.5, 0.75) * 3
"""Of the summary's lines, in the texts that are made out of it."""
LEAST_INPUT = 4
"""Times the size: below that, most texts are nearly the whole input and all alike."""

Count = Callable[[str], int]
Summarise = Callable[[Sequence[Item], int], str]


def agreements(seed: int, count: Count, summarise: Summarise) -> Iterator[Row]:
    """Yield the correlation for each scenario and size, and their mean."""
    from tests import real_data

    found = []
    for scenario in real_data.SCENARIOS:
        items = real_data.scenario_items(scenario, count)
        asked = real_data.questions(scenario)
        covered = Covered(items)
        for size in SIZES:
            if sum(item.tokens for item in items) < LEAST_INPUT * size:
                continue
            texts = texts_of_size(items, size, seed, count, summarise)
            scores = [measure_against(text, covered).score for text in texts]
            answered = [real_data.share_answered(text, asked) for text in texts]
            found.append(spearman(scores, answered))
            yield _row(f"score against answers of {scenario}, {size} tokens", len(texts), found[-1])
    yield _row("score against answers, mean", len(found), mean(found))


def texts_of_size(
    items: Sequence[Item], size: int, seed: int, count: Count, summarise: Summarise
) -> list[str]:
    """Return texts of about so many tokens, from what says little to what says most."""
    chance = random.Random(seed)
    sentences = [one for item in items for one in split_sentences(item.text)]
    summary = summarise(items, size)
    texts = [summary, *(make(items, size, count) for make in BASELINES.values())]
    for share in KEPT_SHARES:
        kept = [line for line in summary.splitlines() if chance.random() < share]
        texts.append(_filled(kept, chance.sample(sentences, len(sentences)), size, count))
    return texts


def _filled(lines: list[str], sentences: Sequence[str], size: int, count: Count) -> str:
    spent = sum(count(f"{line}\n") for line in lines)
    for sentence in sentences:
        spent += count(f"{sentence}\n")
        if spent > size:
            break
        lines.append(sentence)
    return "\n".join(lines)


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the rank correlation, equal values sharing a rank; 0 where one never differs."""
    if len(set(first)) == 1 or len(set(second)) == 1:
        return 0.0
    return correlation(_ranks(first), _ranks(second))


def _ranks(values: Sequence[float]) -> list[float]:
    places: dict[float, list[int]] = {}
    for place, value in enumerate(sorted(values)):
        places.setdefault(value, []).append(place)
    return [mean(places[value]) for value in values]


def _row(name: str, n: int, value: float) -> Row:
    return Row(name=name, n=n, value=100 * value, unit="% rank correlation", aim="≥ 75")
