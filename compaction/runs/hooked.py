"""What hooks say to a compaction, and which of it can be stored.

A replacement that breaks a rule is passed over with a sentence, and the default goes on: it may not
part a call from its results, keep nothing of what it was not shown, or grow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import Error

from chatapp.incidents import Kind, note
from chatapp.llm.tokens import plausible
from chatapp.messages.wire import Cleaner
from chatapp.models import Message
from compaction.branches.planning import PlanFailed, cut_for_run
from compaction.branches.snapshot import BranchSnapshot
from compaction.engine.fidelity.redaction import redact
from compaction.engine.policy.groups import legal_cuts
from compaction.engine.strategies.acceptance import does_not_shrink
from compaction.engine.strategies.iterative import turn_start
from compaction.engine.types import Item, Outcome, SummaryFailed, TokenCounter
from compaction.hooks import (
    BEFORE_COMPACT,
    Asked,
    Cancel,
    CompactPayload,
    HookMessage,
    Replacement,
    ask,
    has_hooks,
)
from compaction.models import CompactionRun, CompactionStep, SessionSummary
from compaction.runs.steps import Work
from compaction.runs.strategy import ContinuedTexts, with_sources
from compaction.summaries.columns import Sizes
from compaction.summaries.sizes import must_shrink, request_before, sizes_of, sizes_of_version

# The kind of a step that says what came of a hook, and who wrote a hook's summary.
HOOK = "hook"
HOOK_FAILED = "hook_failed"
MAX_DETAILS_CHARS = 256_000


class HookCancelled(Exception):  # noqa: N818 - it is an answer, not a fault
    """A hook does not want the compaction; the text is its reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSummary:
    """A hook's summary as it can be stored; `tokens_before` is None where the hook named none."""

    outcome: Outcome
    tokens_before: int | None = None

    def told(self, sizes: Sizes) -> Sizes:
        """Return the sizes that are stored: what the hook says that was there before counts."""
        return sizes if self.tokens_before is None else replace(sizes, before=self.tokens_before)


def ask_before_compaction(
    work: Work,
    snapshot: BranchSnapshot,
    items: Sequence[Item],
    continued: ContinuedTexts,
    *,
    old: SessionSummary | None = None,
) -> HookSummary | None:
    """Return the summary that a hook wrote of the items, or of those up to where it cuts.

    None where the default goes on; `continued` is what the summary goes on from. `old` is the
    summary that is made again: then the cut stays. What goes wrong is a step of the run and a
    warning of the session. Raises HookCancelled.
    """
    if not has_hooks(BEFORE_COMPACT):
        return None
    shown = _ShownToHook.of(snapshot, items, may_move=old is None)
    payload = _payload(work.run, snapshot, shown, continued)
    asked = ask(BEFORE_COMPACT, payload, answers=(Replacement,))
    faults = list(asked.faults)
    found = None
    if isinstance(asked.answer, Replacement):
        try:
            found = _checked(asked, work.run, snapshot, shown, old)
        except Error:
            # The database's fault is nobody's answer.
            raise
        # What a hook made up may fail at anything that is done with it.
        except Exception as refusal:
            faults.append(
                f"The summary of the hook {asked.hook} was not stored: {refusal} The default went "
                "on."
            )
    if faults:
        record_faults(work, snapshot, faults)
    if isinstance(asked.answer, Cancel):
        raise HookCancelled(f"The hook {asked.hook} stopped this compaction: {reason_of(asked)}")
    if found is None:
        return None
    return replace(found, outcome=with_sources(snapshot, found.outcome, texts=continued))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShownToHook:
    """What a hook is shown: the messages to summarise, and those that follow at once."""

    items: tuple[Item, ...]
    kept: tuple[Item, ...]
    may_move: bool

    @classmethod
    def of(cls, snapshot: BranchSnapshot, items: Sequence[Item], *, may_move: bool) -> _ShownToHook:
        """Return the items with the kept ones, where no others stand between."""
        kept: tuple[Item, ...] = ()
        if may_move:
            try:
                cut = cut_for_run(snapshot, keep_last_n=None)
                kept = cut.keep if cut.through == items[-1].position else ()
            except PlanFailed:
                kept = ()
        return cls(items=tuple(items), kept=kept, may_move=may_move)

    def through(self, first_kept: str | None) -> tuple[Item, ...]:
        """Return the items before the one that a hook wants to keep first. Raises ValueError."""
        if first_kept is None:
            return self.items
        if not isinstance(first_kept, str):
            raise ValueError("first_kept is no id.")
        everything = (*self.items, *self.kept)
        at = next((i for i, item in enumerate(everything) if _id_of(item) == first_kept), None)
        if at == len(self.items):
            return self.items
        if not self.may_move:
            raise ValueError("first_kept cannot be moved where an older summary is made again.")
        if at is None:
            raise ValueError(
                f"first_kept ({first_kept}) is none of the messages that it was shown."
            )
        if at not in legal_cuts(everything):
            raise ValueError(
                f"first_kept ({first_kept}) is the first message, or would part a tool call from "
                "its results."
            )
        if at > len(self.items) and at > _answered(everything):
            raise ValueError(
                f"first_kept ({first_kept}) would leave out what the model has not answered yet."
            )
        return everything[:at]


def _answered(items: Sequence[Item]) -> int:
    """Return where the part begins that nobody has answered: open questions, unseen results."""
    start = len(items)
    while start and items[start - 1].role == "user":
        start -= 1
    if start and (items[start - 1].role == "tool" or items[start - 1].tool_calls):
        start = max((cut for cut in legal_cuts(items) if cut < start), default=0)
        while start and items[start - 1].role == "user":
            start -= 1
    return start


def _payload(
    run: CompactionRun,
    snapshot: BranchSnapshot,
    shown: _ShownToHook,
    continued: ContinuedTexts,
) -> CompactPayload:
    items, kept = shown.items, shown.kept
    # A note starts a turn as a question does.
    starts_turn = bool(kept) and kept[0].role == "user"
    parts_turn = snapshot.profile.split_turns and bool(kept) and not starts_turn
    return CompactPayload(
        session=str(run.session_id),
        branch=str(run.branch_id),
        run=str(run.pk),
        trigger=str(run.trigger),
        reason=run.reason,
        profile=str(snapshot.profile_row.name),
        messages=tuple(map(hook_message, items)),
        first_kept=_id_of(kept[0]) if kept else None,
        tokens_before=request_before(snapshot),
        kept=tuple(map(hook_message, kept)),
        turn_prefix=tuple(map(hook_message, items[turn_start(items, parts_turn=parts_turn) :])),
        previous_summary=continued.previous,
        previous_details=next(
            (row.details for row in reversed(continued.before) if row.from_hook), {}
        ),
        instructions=run.instructions,
        will_retry=run.trigger == CompactionRun.Trigger.OVERFLOW_RETRY,
    )


def reason_of(asked: Asked) -> str:
    """Return why a hook stopped something, as it can be stored."""
    given = asked.answer.reason
    text = Cleaner().text(given).strip() if isinstance(given, str) else ""
    return text or "It gave no reason."


def hook_message(item: Item) -> HookMessage:
    """Return an item as hooks see it."""
    return HookMessage(
        id=_id_of(item),
        role=item.role,
        text=item.text,
        tokens=item.tokens,
        tool_calls=tuple((call.name, call.arguments) for call in item.tool_calls),
        tool_name=item.tool_name,
        is_note=item.is_note,
    )


def _id_of(item: Item) -> str:
    """Return a message's id as the API shows it, however the database gave it."""
    return str(Message._meta.pk.to_python(item.id))


def _checked(
    asked: Asked,
    run: CompactionRun,
    snapshot: BranchSnapshot,
    shown: _ShownToHook,
    old: SessionSummary | None,
) -> HookSummary:
    """Return a replacement that can be stored. Raises ValueError with a sentence."""
    answer: Replacement = asked.answer
    items = shown.through(answer.first_kept)
    before = answer.tokens_before
    if before is not None and plausible(before) is None:
        raise ValueError("tokens_before is no whole number that a request can have.")
    outcome = outcome_of(asked, items, snapshot)
    sizes = (
        sizes_of(snapshot, outcome) if old is None else sizes_of_version(snapshot, outcome, old=old)
    )
    try:
        must_shrink(snapshot, run, outcome, sizes)
    except SummaryFailed as problem:
        raise ValueError(str(problem)) from problem
    return HookSummary(tokens_before=before, outcome=outcome)


def outcome_of(asked: Asked, items: Sequence[Item], snapshot: BranchSnapshot) -> Outcome:
    """Return the summary of a hook's answer as an outcome. Raises ValueError with a sentence."""
    counter, read = snapshot.model.counter, sum(item.tokens for item in items)
    text = checked_text(
        asked.answer.summary,
        counter=counter,
        replaced=read,
        hides_secrets=snapshot.profile.redact_secrets,
    )
    return Outcome(
        text=text,
        items=tuple(items),
        chunk_count=1,
        max_depth=0,
        truncated=False,
        input_tokens=read,
        output_tokens=counter.count(text),
        algorithm=HOOK,
        writer=asked.hook,
        metadata={"hook": asked.hook},
        from_hook=True,
        details=checked_details(asked.answer.details),
    )


def checked_text(text: Any, *, counter: TokenCounter, replaced: int, hides_secrets: bool) -> str:
    """Return a hook's text as it is stored. Raises ValueError where no summary can be that."""
    if not isinstance(text, str) or not text.strip():
        raise ValueError("its text is blank.")
    stored = Cleaner().text(text)
    if hides_secrets:
        stored = redact(stored).text
    if problem := does_not_shrink(replaced, counter.count(stored)):
        raise ValueError(problem)
    return stored


def checked_details(details: Any) -> dict[str, Any]:
    """Return what a hook keeps with its summary as it is stored. Raises ValueError."""
    if not isinstance(details, Mapping):
        raise ValueError("its details are no mapping.")
    try:
        size = len(json.dumps(dict(details), ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"its details cannot be stored as JSON ({error}).") from error
    if size > MAX_DETAILS_CHARS:
        raise ValueError(
            f"its details have {size:,} characters as JSON; {MAX_DETAILS_CHARS:,} are the most."
        )
    stored: dict[str, Any] = json.loads(json.dumps(Cleaner().json(dict(details))))
    return stored


def record_faults(work: Work, snapshot: BranchSnapshot, faults: Sequence[str]) -> None:
    """Store what went wrong with hooks: as a step of the run, and once a session as a warning."""
    sentence = Cleaner().text(" ".join(faults))
    CompactionStep.objects.create(
        run=work.run,
        kind=HOOK,
        order=0,
        outcome=CompactionStep.Outcome.ERROR,
        code=HOOK_FAILED,
        error=sentence,
    )
    note(snapshot.session, Kind.WARNING, HOOK_FAILED, sentence)
