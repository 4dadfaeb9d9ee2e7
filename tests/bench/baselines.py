"""Other ways to say a conversation in so many tokens, to hold summaries against."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence

from compaction.engine.extractive.sentences import split_sentences
from compaction.engine.types import Item

_WORD = re.compile(r"\w+")
DIVERSITY = 0.5
CANDIDATES = 400
"""Of TF-IDF, so many of the best are compared with each other: MMR is quadratic."""

Baseline = Callable[[Sequence[Item], int, Callable[[str], int]], str]


def last_tokens(items: Sequence[Item], budget: int, count: Callable[[str], int]) -> str:
    """The newest messages."""
    return _upto(reversed([item.text for item in items]), budget, count, newest_first=True)


def heads(items: Sequence[Item], budget: int, count: Callable[[str], int]) -> str:
    """The beginning of every message, all equally long."""
    characters = max(8, 4 * budget // max(1, len(items)))
    while characters > 8:
        text = "\n".join(item.text[:characters] for item in items)
        if count(text) <= budget:
            return text
        characters = characters * 9 // 10
    return _upto([item.text[:8] for item in items], budget, count)


def random_sentences(items: Sequence[Item], budget: int, count: Callable[[str], int]) -> str:
    """Sentences drawn without looking."""
    sentences = [one for item in items for one in split_sentences(item.text)]
    random.Random(len(sentences)).shuffle(sentences)
    return _upto(sentences, budget, count)


def tfidf_mmr(items: Sequence[Item], budget: int, count: Callable[[str], int]) -> str:
    """Sentences by TF-IDF, less what they have in common with those chosen before."""
    sentences = list(dict.fromkeys(one for item in items for one in split_sentences(item.text)))
    words = [Counter(word.casefold() for word in _WORD.findall(one)) for one in sentences]
    seen = Counter(word for one in words for word in one)
    whole = len(sentences) + 1
    vectors = [{w: n * math.log(whole / seen[w]) for w, n in one.items()} for one in words]
    norms = [math.sqrt(sum(v * v for v in one.values())) or 1.0 for one in vectors]
    best = sorted(range(len(sentences)), key=lambda n: -norms[n])[:CANDIDATES]
    nearest = dict.fromkeys(best, 0.0)
    top = max((norms[n] for n in best), default=1.0)
    chosen: list[str] = []
    spent = 0
    while nearest:
        pick = max(nearest, key=lambda n: norms[n] / top - DIVERSITY * nearest[n])
        nearest.pop(pick)
        cost = count(sentences[pick] + "\n")
        if spent + cost > budget:
            continue
        chosen.append(sentences[pick])
        spent += cost
        for other in nearest:
            shared = vectors[pick].keys() & vectors[other].keys()
            dot = sum(vectors[pick][w] * vectors[other][w] for w in shared)
            nearest[other] = max(nearest[other], dot / (norms[pick] * norms[other]))
    return "\n".join(chosen)


def _upto(
    texts: Sequence[str] | object,
    budget: int,
    count: Callable[[str], int],
    *,
    newest_first: bool = False,
) -> str:
    chosen: list[str] = []
    spent = 0
    for text in texts:  # type: ignore[attr-defined]
        cost = count(text + "\n")
        if spent + cost > budget:
            break
        spent += cost
        chosen.append(text)
    return "\n".join(reversed(chosen) if newest_first else chosen)


BASELINES: dict[str, Baseline] = {
    "last tokens": last_tokens,
    "random sentences": random_sentences,
    "TF-IDF + MMR": tfidf_mmr,
    "heads of messages": heads,
}
