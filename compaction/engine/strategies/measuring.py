"""What a finished summary is measured against: its messages, and what chosen clauses make of them.

Both are made of the clauses that are known of what is covered, those of earlier passes included.
What an earlier summary invented is no part of them.
"""

from __future__ import annotations

import re

from compaction.engine.extractive.composition import compose
from compaction.engine.extractive.material import Material
from compaction.engine.extractive.sentences import HAN, HANGUL, KANA
from compaction.engine.extractive.summarizer import language_of_request
from compaction.engine.fidelity.covered import Covered
from compaction.engine.types import SummaryJob, SummaryRequest


def material_of(job: SummaryJob) -> Material:
    """Return all clauses that are known of what is covered, those of earlier passes included.

    The text before is read only where nobody kept its clauses: a model's prose is no source.
    """
    previous = "" if job.units else job.previous
    return Material(
        SummaryRequest(kind="chunk", items=job.items, previous=previous, units=job.units)
    )


def yardstick_text(text: str, material: Material, job: SummaryJob) -> str:
    """Return what chosen clauses make of the same messages in the same size."""
    request = SummaryRequest(kind="chunk", items=job.items, previous=job.previous)
    return compose(
        material.candidates,
        budget=job.counter.count(text),
        count=job.counter.count,
        language=language_of_request(request),
    ).text


def covered_by(job: SummaryJob, material: Material) -> Covered:
    """Return what a summary of the job is measured against."""
    return Covered(
        job.items,
        previous=_as_written(job),
        previous_units=job.units,
        # What the summariser could read is supported, though it is not to be summarised.
        instructions="\n".join(
            [
                job.instructions,
                *(item.text for item in job.kept),
                *(item.thinking for item in job.items if item.thinking),
            ]
        ),
        entities=material.entities,
    )


def _as_written(job: SummaryJob) -> str:
    """Return the summary before without what nobody wrote: to be in a summary makes nothing so."""
    if not job.invented:
        return job.previous
    words = "|".join(map(re.escape, sorted(job.invented, key=len, reverse=True)))
    # No part of a word or of a longer number; scripts without spaces have both side by side.
    letter = rf"[^\W{HAN}{KANA}{HANGUL}]"
    around = rf"(?<!{letter})(?<!\d[.,])(?:{words})(?!{letter}|[.,]\d)"
    return re.sub(around, " ", job.previous)
