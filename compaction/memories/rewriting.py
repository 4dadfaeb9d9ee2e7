"""Too many memories become fewer: the newest stay as they are, a summariser rewrites the others.

Nothing changes unless the answer has fewer lines and fewer characters, and the lines that were read
are still what they were; what was added or accepted meanwhile stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from chatapp.database import database_now
from chatapp.formatting import unit_of
from chatapp.models import Session
from compaction.engine.fidelity.redaction import redact
from compaction.engine.memories import (
    COMPRESSION_PROMPT,
    fault_of_rewriting,
    lines_wanted,
    rewritten_lines,
)
from compaction.engine.parameters import Profile
from compaction.engine.policy.reasons import NO_MODEL, RunCode
from compaction.engine.types import SummarizerOverflow, SummaryFailed, SummaryRequest
from compaction.errors import LostRaceError
from compaction.memories import runs
from compaction.memories.lines import remember_keys, tokens_of_line
from compaction.memories.runs import Status, parameters_in_force
from compaction.memories.versions import stored_lines
from compaction.memories.work import MemoryWork
from compaction.models import Memory, MemoryRun, MemoryVersion
from compaction.summaries.summarising_models import summarising_model

# Room for an answer to a few short lines.
SMALLEST_TARGET_TOKENS = 200
# The instruction and the fences of a call, about.
PROMPT_TOKENS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriting:
    """What a rewriting reads and keeps: `old` lines become at most `wanted`, `kept` ones stay."""

    old: Sequence[Memory]
    kept: Sequence[Memory]
    wanted: int

    @property
    def input_tokens(self) -> int:
        """The tokens of the lines that are read."""
        return sum(row.tokens for row in self.old)


def rewriting_of(owner_id: Any, bot: str, profile: Profile) -> Rewriting:
    """Return what a rewriting of an owner's lines would read; `wanted` is 0 for nothing to do."""
    rows = list(Memory.objects.in_force(owner_id, [bot]))[::-1]
    edge = max(0, len(rows) - profile.num_recent_memories_to_keep)
    wanted = lines_wanted(edge, target=profile.compression_target)
    return Rewriting(old=rows[:edge], kept=rows[edge:], wanted=wanted)


def estimate_rewriting(owner: Any, bot: str) -> Mapping[str, Any]:
    """Return what a rewriting would read, ask for and cost at most; nothing is done.

    Raises UnknownModelError where the profile's model is gone.
    """
    profile = parameters_in_force()
    session = Session(owner=owner)
    found = rewriting_of(owner.pk, bot, profile)
    writes = runs.can_write(session, profile)
    calls = int(writes and found.wanted > 0)
    tokens = calls * (found.input_tokens + PROMPT_TOKENS)
    usage = {"prompt_tokens": tokens, "completion_tokens": calls * found.input_tokens}
    model = summarising_model(session, profile)
    return {
        "bot": bot,
        "lines": len(found.old) + len(found.kept),
        "kept_lines": len(found.kept),
        "rewritten_lines": len(found.old),
        "target_lines": found.wanted,
        "model": model.name if writes else "",
        "calls": calls,
        "input_tokens": tokens,
        "cost": model.cost(usage),
    }


def compress(work: MemoryWork) -> None:
    """Rewrite the older lines of a run's owner. Raises what asking raises, and LostRaceError."""
    run, profile = work.run, parameters_in_force()
    found = rewriting_of(run.owner_id, run.bot, profile)
    lines = len(found.old) + len(found.kept)
    if run.requested_by_id is None and lines <= profile.memories_max_lines:
        sentence = "There are not too many memories any more."
        runs.finish(run, Status.SKIPPED, code=RunCode.NOT_DUE, sentence=sentence)
    elif not found.wanted:
        sentence = (
            f"There is nothing to rewrite: of {lines:,} {unit_of(lines, 'memories')} the newest "
            f"{profile.num_recent_memories_to_keep:,} stay (num_recent_memories_to_keep)."
        )
        runs.finish(run, Status.SKIPPED, code=RunCode.NOTHING_TO_DO, sentence=sentence)
    elif not work.begin(Session(owner=run.owner), profile):
        sentence = "The default profile chooses sentences; memories are rewritten by a model."
        runs.finish(run, Status.SKIPPED, code=NO_MODEL, sentence=sentence)
    else:
        hides = profile.redact_secrets
        texts = [redact(row.text).text if hides else row.text for row in found.old]
        new = _rewritten(work, texts, wanted=found.wanted, hides_secrets=hides)
        if fault := fault_of_rewriting([row.text for row in found.old], new, wanted=found.wanted):
            raise SummaryFailed(RunCode.BAD_ANSWER, fault)
        _store(work, found, new)


def _rewritten(
    work: MemoryWork, texts: Sequence[str], *, wanted: int, hides_secrets: bool
) -> list[str]:
    """Return the lines of an answer; what is too large for one call is asked for in halves."""
    tokens = sum(map(tokens_of_line, texts))
    request = SummaryRequest(
        kind="memories",
        texts=("\n".join(texts),),
        prompt=COMPRESSION_PROMPT.format(target=wanted),
        target_tokens=max(SMALLEST_TARGET_TOKENS, tokens),
    )
    try:
        return rewritten_lines(work.ask(request, hides_secrets=hides_secrets))
    except SummarizerOverflow:
        middle, part = len(texts) // 2, wanted // 2
        if part < 1 or middle < 2:
            raise
    older = _rewritten(work, texts[:middle], wanted=part, hides_secrets=hides_secrets)
    newer = _rewritten(work, texts[middle:], wanted=wanted - part, hides_secrets=hides_secrets)
    return [*older, *newer]


def _store(work: MemoryWork, found: Rewriting, texts: Sequence[str]) -> None:
    """Put the new lines in the old ones' places, all or nothing.

    Raises LostRaceError where a line that was read is another one by now, or is gone.
    """
    run, now = work.run, database_now()
    new = [
        Memory(
            owner_id=run.owner_id,
            bot=run.bot,
            text=text,
            tokens=tokens_of_line(text),
            position=row.position,
            origin=Memory.Origin.REWRITTEN,
            accepted_at=now,
            created_at=now,
        )
        for text, row in zip(texts, found.old, strict=False)
    ]
    with transaction.atomic():
        _refuse_changed(run, found.old)
        Memory.objects.filter(pk__in=[row.pk for row in found.old]).delete()
        Memory.objects.bulk_create(new)
        remember_keys(run.owner_id, run.bot, texts)
        MemoryVersion.objects.create(
            owner_id=run.owner_id,
            bot=run.bot,
            run=run,
            before=stored_lines(found.old),
            after=stored_lines(new),
            lines_before=len(found.old),
            lines_after=len(new),
            kept_lines=len(found.kept),
            model=work.answered_by[:100],
            created_at=now,
        )
        ended = runs.finish(
            run, Status.SUCCEEDED, lines_before=len(found.old), lines_after=len(new)
        )
        if not ended:
            raise LostRaceError("Another worker took the run over; nothing was changed.")


def _refuse_changed(run: MemoryRun, old: Sequence[Memory]) -> None:
    """Lock the lines that were read; raise LostRaceError where one of them changed."""
    rows = Memory.objects.select_for_update().filter(pk__in=[row.pk for row in old])
    known = {row.pk: (row.text, row.bot, row.position) for row in old}
    if {row.pk: (row.text, row.bot, row.position) for row in rows} != known:
        raise LostRaceError("A line was changed or deleted while the others were rewritten.")
