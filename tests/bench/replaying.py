"""Comparing profiles: one long conversation replayed under every preset, sentences chosen."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from compaction.comparison.candidates import ComparedSummariser, candidates_of
from compaction.comparison.comparing import ProfileComparison, compare
from compaction.engine.profile import PRESETS
from tests.bench.conversations import fresh, stored
from tests.bench.measure import Row, peak_megabytes, spending
from tests.bench.sizes import Sizes

# A comparison of so many profiles is to take less than a minute of CPU.
PROFILES = 5
AIM_SECONDS = 60
AIM = f"{AIM_SECONDS} for {PROFILES} profiles"


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme."""
    count = sizes.replayed
    session = fresh(stored(count))
    for name in PRESETS:
        with spending() as spent:
            found = compare([session], candidates_of([name]), ComparedSummariser())
        yield Row(name=f"replay, {name}", n=count, value=spent.thread / 1000, unit="CPU s", aim="")
        yield Row(name=f"replay, {name}", n=count, value=_compactions(found), unit="cuts", aim="")
    with spending() as spent:
        compare([session], candidates_of(), ComparedSummariser())
    whole = spent.thread / 1000
    yield Row(name="all presets compared", n=count, value=whole, unit="CPU s", aim=AIM)
    for length in (count // 4, count):
        one = fresh(stored(length))
        peak = peak_megabytes(partial(compare, [one], candidates_of(), ComparedSummariser()))
        yield Row(name="all presets compared, peak", n=length, value=peak, unit="MB", aim="flat")


def _compactions(found: ProfileComparison) -> int:
    return sum(row.compactions for row in found.rows)
