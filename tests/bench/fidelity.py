"""What a compacted conversation still knows: chosen sentences beside other texts of equal size.

    python -m tests.bench fidelity            everything, with seeds that are printed
    python -m tests.bench.fidelity --check    against the committed baseline; fails where it falls
    python -m tests.bench.fidelity --write    write that baseline anew

The check fails where known facts fall by more than three points, a rule is dropped, a value that
was taken back stands alone, or 27 passes keep less than 0.8 of what one keeps.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

from compaction.engine.extractive.summarizer import ExtractiveSummarizer
from compaction.engine.parameters import Profile
from compaction.engine.policy.groups import legal_cuts
from compaction.engine.provenance import Unit
from compaction.engine.strategies.bisect import BisectStrategy
from compaction.engine.types import Item, SummaryAnswer, SummaryJob, SummaryRequest
from tests.bench.agreement import agreements
from tests.bench.baselines import BASELINES
from tests.bench.measure import Row
from tests.bench.remembering import Known, Planted, known_of, of_one_shape, planted
from tests.bench.sizes import Sizes
from tests.facts import SHAPES

BASELINE = Path(__file__).resolve().parent / "fidelity_baseline.json"
SEEDS = (11, 23, 47)
PASSES = (1, 3, 5, 27)
PASSES_OF_LEDGER = (1, 5)
TARGETS = {"700 tokens": 0.0, "10 % of the input": 0.1}
SMALL_TARGET = 700
FALL = 0.03
LEAST_AFTER_MANY = 0.8


class _Estimate:
    """Counts tokens as four characters: the comparison needs one measure for all, and no file."""

    def count(self, text: str) -> int:
        return max(1, len(text.encode()) // 4) if text else 0


COUNTER = _Estimate()


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield what is known of planted facts, and of memory questions where their data is there."""
    seeds = [random.SystemRandom().randrange(1_000_000) for _ in range(min(3, sizes.repeats))]
    print(f"Seeds of the planted facts: {', '.join(map(str, seeds))}", flush=True)
    for label, share in TARGETS.items():
        for passes in PASSES:
            found = [_summary_known(seed, share, passes) for seed in seeds]
            yield from _rows(f"extractive, {label}", passes, found)
        for name, baseline in BASELINES.items():
            found = []
            for seed in seeds:
                made = _made(seed)
                budget = _target(made.items, share)
                text = baseline(made.items, budget, COUNTER.count)
                found.append(known_of(text, made))
            yield _row(f"{name}, {label}: facts", 1, _mean(one.facts for one in found))
        yield from _shape_rows(label, seeds[0], share)
    yield from _memory_questions(seeds[0])


def _shape_rows(label: str, seed: int, share: float) -> Iterator[Row]:
    """Yield how the ways of writing a fact differ, each in a conversation of its own."""
    found = {}
    for shape in SHAPES:
        made = of_one_shape(seed, shape, COUNTER.count)
        text = summarised(made.items, target=_target(made.items, share), passes=1)
        found[shape] = known_of(text, made).facts
    worst, best = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    yield _row(f"worst of {len(SHAPES)} shapes ({worst}), {label}", 1, found[worst])
    yield _row(f"best of {len(SHAPES)} shapes ({best}), {label}", 1, found[best])


@cache
def _made(seed: int) -> Planted:
    return planted(seed, COUNTER.count)


def _target(items: Sequence[Item], share: float) -> int:
    return int(share * sum(item.tokens for item in items)) if share else SMALL_TARGET


def _summary_known(seed: int, share: float, passes: int) -> Known:
    made = _made(seed)
    text = summarised(made.items, target=_target(made.items, share), passes=passes)
    return known_of(text, made)


def summarised(items: Sequence[Item], *, target: int, passes: int) -> str:
    """Return the summary after so many passes, each of which takes in as many messages."""
    summarizer = ExtractiveSummarizer(counter=COUNTER)
    text, units = "", tuple[Unit, ...]()
    for part in _parts(items, passes):
        answer = summarizer.summarize(
            SummaryRequest(
                kind="chunk",
                items=tuple(part),
                previous=text,
                units=units,
                target_tokens=target,
            )
        )
        text, units = answer.text, answer.units
    return text


class _Terse:
    """A model that writes one sentence, whatever it is asked: the rest is up to the ledger."""

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        text = "## State\nThe conversation goes on."
        return SummaryAnswer(text=text, output_tokens=COUNTER.count(text))

    def input_limit(self, target_tokens: int) -> int | None:
        return None


def with_terse_model(items: Sequence[Item], *, target: int, passes: int) -> str:
    """Return the same of a model that says next to nothing, with its ledger."""
    profile = Profile(target_summary_tokens=target, quality_gate=False)
    text, units = "", tuple[Unit, ...]()
    for part in _parts(items, passes):
        job = SummaryJob(items=tuple(part), counter=COUNTER, previous=text, units=units)
        made = BisectStrategy().run(job, profile, _Terse(), lambda step: None)
        text, units = made.text, made.units
    return text


def _parts(items: Sequence[Item], passes: int) -> Iterator[Sequence[Item]]:
    """Yield as many parts of a conversation; as in the product, no call leaves its results."""
    legal = sorted({*legal_cuts(items), len(items)})
    borders = [min(legal, key=lambda n: abs(n - k * len(items) / passes)) for k in range(passes)]
    for start, end in pairwise([0, *borders[1:], len(items)]):
        if start < end:
            yield items[start:end]


def _rows(name: str, passes: int, found: Sequence[Known]) -> Iterator[Row]:
    yield _row(f"{name}: facts", passes, _mean(one.facts for one in found))
    yield _row(f"{name}: rules", passes, _mean(one.rules for one in found))
    yield _row(f"{name}: corrections", passes, _mean(one.changes for one in found))
    yield _row(f"{name}: outcomes of tools", passes, _mean(one.outcomes for one in found))
    forbidden = sum(len(one.forbidden) for one in found)
    yield Row(name=f"{name}: old values alone", n=passes, value=forbidden, unit="values", aim="0")


def _row(name: str, n: int, share: float) -> Row:
    return Row(name=name, n=n, value=100 * share, unit="% known")


def _mean(values: Iterator[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def _memory_questions(seed: int) -> Iterator[Row]:
    """Yield answers known of questions that somebody else wrote, where the data is there."""
    from tests import real_data

    if not real_data.is_there():
        print(real_data.ABSENT)
        return
    for scenario in real_data.SCENARIOS:
        items = real_data.scenario_items(scenario, COUNTER.count)
        questions = real_data.questions(scenario)
        for label, share in TARGETS.items():
            for passes in (1, 5):
                text = summarised(items, target=_target(items, share), passes=passes)
                known = real_data.share_answered(text, questions)
                yield _row(f"questions of {scenario}, {label}", passes, known)
    yield from agreements(
        seed, COUNTER.count, lambda items, size: summarised(items, target=size, passes=1)
    )


# --- the check ------------------------------------------------------------------------------------


def figures() -> dict[str, dict[str, float]]:
    """Return what the check compares, of fixed seeds: shares by size, number of passes and kind."""
    found: dict[str, dict[str, float]] = {}
    for label, share in TARGETS.items():
        for passes in PASSES:
            known = [_summary_known(seed, share, passes) for seed in SEEDS]
            found[f"{label}, {passes} passes"] = _figures(known)
    for passes in PASSES_OF_LEDGER:
        made = [_made(seed) for seed in SEEDS]
        texts = [with_terse_model(one.items, target=SMALL_TARGET, passes=passes) for one in made]
        known = [known_of(text, one) for text, one in zip(texts, made, strict=True)]
        found[f"ledger, {passes} passes"] = _figures(known)
    return found


def _figures(known: Sequence[Known]) -> dict[str, float]:
    return {
        "facts": round(_mean(one.facts for one in known), 4),
        "rules": round(_mean(one.rules for one in known), 4),
        "corrections": round(_mean(one.changes for one in known), 4),
        "outcomes": round(_mean(one.outcomes for one in known), 4),
        "forbidden": sum(len(one.forbidden) for one in known),
    }


def faults(now: dict[str, dict[str, float]], before: dict[str, dict[str, float]]) -> list[str]:
    """Return what is worse than it may be, as sentences."""
    found = []
    for case, values in now.items():
        old = before.get(case, values)
        for kind in ("facts", "corrections", "outcomes"):
            if values[kind] < old[kind] - FALL:
                found.append(f"{case}: {kind} fell from {old[kind]:.2f} to {values[kind]:.2f}.")
        if values["rules"] < 1:
            found.append(f"{case}: a rule was dropped ({values['rules']:.2f} of them are kept).")
        if values["forbidden"]:
            found.append(
                f"{case}: {values['forbidden']:.0f} values that were taken back stand alone."
            )
    for label in TARGETS:
        one, many = now[f"{label}, 1 passes"], now[f"{label}, {PASSES[-1]} passes"]
        if many["facts"] < LEAST_AFTER_MANY * one["facts"]:
            found.append(
                f"{label}: {PASSES[-1]} passes keep {many['facts']:.2f} of the facts, one keeps "
                f"{one['facts']:.2f}."
            )
    return found


def main(arguments: Sequence[str], say: Callable[[str], None] = print) -> int:
    """Check against the baseline, or write it; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fidelity", description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    now = figures()
    for case, values in now.items():
        say(f"{case:<32}" + "  ".join(f"{kind} {value:.2f}" for kind, value in values.items()))
    if options.write:
        BASELINE.write_text(json.dumps(now, indent=1) + "\n")
    if not options.check:
        return 0
    found = faults(now, json.loads(BASELINE.read_text()))
    for sentence in found:
        say(sentence)
    say("Summaries know less than they did." if found else "Summaries know what they should.")
    return 1 if found else 0


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    sys.exit(main(sys.argv[1:]))
