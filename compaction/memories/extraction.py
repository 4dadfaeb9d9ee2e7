"""After a compaction a summariser proposes lines to remember; an owner says yes or no to each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from chatapp.models import Message
from compaction.convert import read_items
from compaction.engine.fidelity.redaction import redact, redact_items
from compaction.engine.fidelity.secret_values import MARKER
from compaction.engine.memories import (
    EXTRACTION_PROMPT,
    MOST_PROPOSED,
    ProposedLine,
    proposals_in,
)
from compaction.engine.policy.reasons import NO_MODEL, RunCode
from compaction.engine.types import Item, SummarizerOverflow, SummaryRequest
from compaction.memories import runs
from compaction.memories.lines import propose_memories
from compaction.memories.runs import Status
from compaction.memories.work import MemoryWork
from compaction.profiles import parameters_of

# Five lines, their frame of JSON, and what a model says beside them.
TARGET_TOKENS = 600
# A tool's output tells little of a person; its beginning says what it was.
RESULT_CHARS = 500


def extract(work: MemoryWork) -> None:
    """Store what a summariser proposes of a summary's messages, to wait for a yes.

    Whatever in its answer is no proposal is dropped. Raises what asking raises.
    """
    run = work.run
    if run.summary is None or run.session is None:
        sentence = "The summary that was to be read is gone."
        runs.finish(run, Status.SKIPPED, code=RunCode.NOTHING_TO_DO, sentence=sentence)
        return
    profile = parameters_of(run.summary.profile) if run.summary.profile else None
    items = _read(run.summary.pk)
    if profile is None or not items:
        sentence = "The summary has no messages that could be read."
        runs.finish(run, Status.SKIPPED, code=RunCode.NOTHING_TO_DO, sentence=sentence)
        return
    if not work.begin(run.session, profile):
        sentence = "The profile chooses sentences; memories are proposed by a model."
        runs.finish(run, Status.SKIPPED, code=NO_MODEL, sentence=sentence)
        return
    hides = profile.redact_secrets
    if hides:
        items = redact_items(items)[0]
    read, answer = _asked(work, items)
    proposed = _without_secrets(proposals_in(answer)) if hides else proposals_in(answer)
    stored = propose_memories(
        owner_id=run.owner_id, bot=run.bot, lines=proposed, sources=[item.id for item in read]
    )
    runs.finish(run, Status.SUCCEEDED, lines_before=len(proposed), lines_after=stored)


def _read(summary_id: UUID) -> list[Item]:
    """Return the messages that a summary was made from, of results their beginnings."""
    rows = Message.objects.filter(summary_links__summary=summary_id).order_by("position")
    return [
        replace(item, text=item.text[:RESULT_CHARS]) if item.role == "tool" else item
        for item in read_items(rows)
    ]


def _asked(work: MemoryWork, items: Sequence[Item]) -> tuple[Sequence[Item], str]:
    """Return the messages that were read and the answer; too many, and only the newer half is."""
    while True:
        request = SummaryRequest(
            kind="memories",
            items=tuple(items),
            prompt=EXTRACTION_PROMPT.format(most=MOST_PROPOSED),
            target_tokens=TARGET_TOKENS,
        )
        try:
            return items, work.answer(request).text
        except SummarizerOverflow:
            if len(items) < 2:
                raise
            items = items[len(items) // 2 :]


def _without_secrets(lines: Sequence[ProposedLine]) -> list[ProposedLine]:
    """Return the lines that hold no secret: half of such a line is worth nothing."""
    return [line for line in lines if not redact(line.text).spans and MARKER not in line.text]
