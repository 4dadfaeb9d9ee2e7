"""A strategy at work inside a run: what it is given, and which outcome of it can be stored.

Whatever it does wrong ends as SummaryFailed with a sentence; what the summariser or the database
raise goes through as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from chatapp.llm.registry import ModelConfig
from chatapp.models import Message
from chatapp.selectors import path_messages, without_pinned_system
from compaction.branches.planning import kept_after, needs_summary
from compaction.branches.snapshot import BranchSnapshot
from compaction.convert import with_thoughts
from compaction.engine.extractive.material import read_of
from compaction.engine.fidelity.measure import LostFact
from compaction.engine.fidelity.redaction import Redacted, redact, redact_items, redact_units
from compaction.engine.parameters import Profile
from compaction.engine.policy.head import DROP, count_dropped, within_limit
from compaction.engine.policy.reasons import RunCode
from compaction.engine.protocols import Strategy
from compaction.engine.provenance import SourcePiece, Unit
from compaction.engine.registry import STRATEGIES
from compaction.engine.strategies.acceptance import fault_of_outcome
from compaction.engine.strategies.actions import joined_files
from compaction.engine.strategies.branch_summary import BranchSummary, without_files
from compaction.engine.strategies.checkpoint_text import CHECKPOINT
from compaction.engine.strategies.finishing import with_fidelity
from compaction.engine.tool_results import limited_results, limits_of, named_results
from compaction.engine.types import (
    Files,
    Item,
    Outcome,
    Summarizer,
    SummarizerError,
    SummarizerOverflow,
    SummaryFailed,
    SummaryJob,
)
from compaction.models import CompactionRun, SessionSummary
from compaction.models.summaries import DROPPED_MESSAGES
from compaction.runs.steps import RunSummarizer, StepWriter, Work
from compaction.summaries.columns import STRATEGY_VERSION
from compaction.summaries.conversation_input import CONVERSATION, ConversationInput
from compaction.summaries.fidelity import KEPT_MESSAGES, kept_before
from compaction.summaries.summarising_models import models_of, tokens_of_calls
from compaction.summaries.summarizer import (
    ModelSequence,
    NoSummarizer,
    admitted,
    storable,
    summarizer_for,
)

logger = logging.getLogger(__name__)
# What has a place in a message.
_Placed = TypeVar("_Placed", SourcePiece, Unit, LostFact)
CALLS_AT_ONCE = 8
"""An automatic run reads about as many messages as so many calls of its summariser take."""
CALLS_MARGIN = 2
FILE_COLUMNS = ("files_read", "files_modified", "files_created", "files_deleted")
STRATEGY_ERROR = RunCode.STRATEGY_ERROR


def summarise(
    work: Work,
    snapshot: BranchSnapshot,
    items: Sequence[Item],
    *,
    continued: ContinuedTexts,
    strategy: str,
) -> Outcome:
    """Return what the strategy of that name makes of the items, which go on from `continued`."""
    run, profile = work.run, snapshot.summary_profile
    own = strategy_of(strategy, run)
    uses_summarizer = own.uses_summarizer
    inner, limit = _asked(work, snapshot, items) if uses_summarizer else (NoSummarizer(), None)
    summarizer = admitted(run, inner)
    drops = uses_summarizer and _is_of_history(run)
    read = items[count_dropped(items, profile) if drops else 0 :]
    job, changed = _job(
        snapshot, read, limit=limit, instructions=run.instructions, texts=continued, drops=drops
    )
    # Held until the summary is measured: what is chosen, traced and measured is read once.
    _held = read_of(job.items)
    told = {"result_chars": limit} if uses_summarizer else {}
    writer = StepWriter(
        work,
        inner if uses_summarizer else None,
        hides_secrets=profile.redact_secrets,
        reads_beginnings=profile.result_chars_in_summary > 0,
        run_columns=told,
    )
    try:
        needed = partial(needs_summary, snapshot, run)
        asking = RunSummarizer(summarizer, work, writer, is_needed=needed)
        outcome = _run_strategy(strategy, own, job, profile, asking, writer)
    finally:
        if isinstance(summarizer, ModelSequence):
            summarizer.leave()
            work.tried.add(summarizer)
    checked = _checked(strategy, own, outcome, read, whole=run.replaces_id is not None)
    if isinstance(summarizer, ModelSequence) and summarizer.answered:
        checked = replace(checked, model=checked.model or summarizer.answered[-1].name)
    if work.bound is not None:
        work.bound.messages_left = len(read) - len(checked.items)
    job = replace(job, items=job.items[: len(checked.items)])
    found = _measured(checked, job, changed, profile)
    return with_dropped(_as_stored(found, read), items[: -len(read)]) if drops else found


def most_tokens_at_once(work: Work, snapshot: BranchSnapshot) -> int | None:
    """Return the stored tokens of messages that a run reads at most; None for any.

    What is left of an automatic run is due at once, so that a long history goes in slices, each of
    them stored. Of one that may make few calls as much again is read: so it is seen what is left.
    """
    calls = [CALLS_AT_ONCE] if work.run.trigger == CompactionRun.Trigger.PROACTIVE else []
    if work.bound is not None:
        calls.append(CALLS_MARGIN * work.bound.calls)
    if not calls or not STRATEGIES.get(snapshot.profile.strategy).uses_summarizer:
        return None
    return tokens_of_calls(snapshot, min(calls))


def _asked(
    work: Work, snapshot: BranchSnapshot, items: Sequence[Item]
) -> tuple[Summarizer, int | None]:
    """Return who is asked for summaries, and how many characters of a tool result it reads."""
    profile = snapshot.summary_profile
    models = models_of(snapshot)
    summarizer = summarizer_for(
        snapshot.session,
        profile,
        models=models,
        deadline=work.deadline,
        cancelled=work.must_stop,
        conversation=_conversation(work.run, snapshot, items),
    )
    return summarizer, _result_chars(snapshot, models[0])


def _as_stored(outcome: Outcome, read: Sequence[Item]) -> Outcome:
    """Return an outcome of the items as they are stored, which says whether any were cut for it.

    What is saved, and the entries of the abridged history, are those of whole messages.
    """
    stored = tuple(read[: len(outcome.items)])
    was_cut = any(one.chars < whole.chars for one, whole in zip(outcome.items, stored, strict=True))
    return replace(outcome, items=stored, truncated=outcome.truncated or was_cut)


def _measured(
    outcome: Outcome, job: SummaryJob, changed: Mapping[Any, OffsetMap], profile: Profile
) -> Outcome:
    """Return an outcome with its units, its lines' sources and quality, by stored messages."""
    found = with_fidelity(outcome, job, profile)
    return found if not changed else replace(found, **_in_messages(found, changed))


def _is_of_history(run: CompactionRun) -> bool:
    """Whether a run summarises what is behind the last summary of the conversation.

    A new version, and the summary of a branch that was left, read all that they are made of.
    """
    return run.replaces_id is None and run.trigger != CompactionRun.Trigger.BRANCH


def with_dropped(outcome: Outcome, dropped: Sequence[Item]) -> Outcome:
    """Return an outcome that says what its profile had dropped, unread, before its messages.

    The cursor passes over them, or they would be sent verbatim for ever; no summary says that it
    was made from them.
    """
    if not dropped:
        return outcome
    metadata = dict(outcome.metadata) | {DROPPED_MESSAGES: len(dropped)}
    return replace(outcome, dropped=tuple(dropped), truncated=True, metadata=metadata)


def _conversation(
    run: CompactionRun, snapshot: BranchSnapshot, items: Sequence[Item]
) -> ConversationInput | None:
    """Return the chat's own request, where the profile has summarisers read it.

    It holds what is behind the last summary: a new version of an older one, and the summary of a
    branch, are made of transcripts.
    """
    profile = snapshot.profile
    if profile.summariser_input != CONVERSATION or not _is_of_history(run):
        return None
    if profile.head_overflow == DROP:
        # The chat's request has what is to be dropped.
        return None
    return ConversationInput.of(snapshot, items)


def with_sources(snapshot: BranchSnapshot, outcome: Outcome, *, texts: ContinuedTexts) -> Outcome:
    """Return an outcome that no strategy made, with its units, its lines' sources and quality."""
    job, changed = _job(snapshot, outcome.items, limit=None, instructions="", texts=texts)
    return _measured(outcome, job, changed, snapshot.summary_profile)


def _job(
    snapshot: BranchSnapshot,
    items: Sequence[Item],
    *,
    limit: int | None,
    instructions: str,
    texts: ContinuedTexts,
    drops: bool = False,
) -> tuple[SummaryJob, Mapping[Any, OffsetMap]]:
    """Return what a strategy is given, and of the messages that it reads changed, how.

    `drops`: what is too long for the profile is dropped here, and not left to be halved.
    """
    profile = snapshot.profile
    again = _sent_again(snapshot, items)
    kept = kept_after(snapshot, items[-1].position)
    named = [without_files(item) for item in named_results(items)]
    if profile.summary_style == CHECKPOINT:
        named = with_thoughts(named)
    hidden: Mapping[Any, Redacted] = {}
    previous, digest = texts.previous, texts.digest
    known = kept_before(texts.before)
    snapshot.derived[KEPT_MESSAGES] = known.messages
    units: Sequence[Unit] = known.units
    if profile.redact_secrets:
        # Before anything is cut: a key that lost its first line would not be known any more.
        named, hidden = redact_items(named)
        kept, _ = redact_items(kept)
        previous, digest, instructions = (
            redact(text).text for text in (previous, digest, instructions)
        )
        # They were kept while the parameter was off, or before a shape was known.
        units = redact_units(units)
    read = tuple(limited_results(named, limit, beginning=profile.result_chars_in_summary > 0))
    read = within_limit(read, profile) if drops else read
    job = SummaryJob(
        items=read,
        counter=snapshot.model.counter,
        previous=previous,
        digest=digest,
        instructions=instructions,
        sent_again=again,
        units=tuple(units),
        named_before=known.named_weight,
        invented=known.invented,
        kept=tuple(kept),
        files=joined_files(_files_before(snapshot, texts.before, items)),
        parts_turn=parts_turn(snapshot, items[-1].position),
    )
    return job, _changed(items, read, hidden)


def _changed(
    items: Sequence[Item], read: Sequence[Item], hidden: Mapping[Any, Redacted]
) -> dict[Any, OffsetMap]:
    """Return, of the items whose texts are read changed, how these lead to what is stored."""
    return {
        item.id: OffsetMap(
            told=Redacted.of_files(item), read=given.text, redacted=hidden.get(item.id)
        )
        for item, given in zip(items, read, strict=True)
        if given.text != item.text or item.inline_files
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuedTexts:
    """What a new summary continues: the text, the part of it that is a digest, and their rows."""

    previous: str
    digest: str = ""
    before: Sequence[SessionSummary] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetMap:
    """Leads from a text as it was read (cut, secrets hidden) to the text as it is stored.

    `told` is the stored text with placeholders for the files in it.
    """

    told: Redacted
    read: str
    redacted: Redacted | None

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Return where a piece stands in the stored text; (0, 0), the whole, where it does not."""
        if not end:
            return 0, 0
        piece = self.read[start:end]
        whole = self.told.text if self.redacted is None else self.redacted.text
        if whole[start:end] != piece:
            # Behind the middle that was left out of a long result.
            start = whole.rfind(piece)
            end = start + len(piece)
        if start < 0:
            return 0, 0
        if self.redacted is not None:
            start, end = self.redacted.original(start), self.redacted.original_end(end)
        return self.told.original(start), self.told.original_end(end)


def _in_messages(outcome: Outcome, changed: Mapping[Any, OffsetMap]) -> dict[str, Any]:
    """Return lines, units and lost facts with offsets of the messages as they are stored."""

    def moved(one: _Placed) -> _Placed:
        if one.message not in changed:
            return one
        start, end = changed[one.message].place(one.start, one.end)
        if isinstance(one, Unit):
            return one._replace(start=start, end=end)
        return replace(one, start=start, end=end)

    quality = outcome.quality
    if quality is not None:
        quality = replace(quality, lost=tuple(map(moved, quality.lost)))
    return {
        "lines": tuple(
            replace(line, sources=tuple(map(moved, line.sources))) for line in outcome.lines
        ),
        "units": tuple(map(moved, outcome.units)),
        "quality": quality,
    }


def strategy_of(name: str, run: CompactionRun) -> Strategy:
    """Return the strategy of a name; that of a switch is no profile's, and no plug-in's."""
    if run.trigger == CompactionRun.Trigger.BRANCH:
        return BranchSummary(replaces_instructions=run.replaces_instructions)
    return STRATEGIES.get(name)


def _run_strategy(
    name: str,
    strategy: Strategy,
    job: SummaryJob,
    profile: Profile,
    summarizer: RunSummarizer,
    writer: StepWriter,
) -> Outcome:
    """Return the strategy's outcome; its own errors are told from those of calls and storing."""
    try:
        return strategy.run(job, profile, summarizer, writer.write)
    except SummaryFailed:
        raise
    except (SummarizerError, SummarizerOverflow) as error:
        raise SummaryFailed(RunCode.SUMMARISER_ERROR, str(error)) from error
    except Exception as error:
        if error is writer.raised:
            raise
        logger.exception("The strategy %r failed", name)
        raise SummaryFailed(
            STRATEGY_ERROR, f"The strategy {name!r} failed ({type(error).__name__}: {error})."
        ) from error
    finally:
        summarizer.leave_begun()
        writer.write_unreported()


def _checked(
    name: str, strategy: Strategy, outcome: Outcome, items: Sequence[Item], *, whole: bool
) -> Outcome:
    """Return an outcome that can be stored, with what is stored of its strategy."""
    if fault := fault_of_outcome(outcome, items, whole=whole):
        raise SummaryFailed(STRATEGY_ERROR, f"The strategy {name!r} {fault}.")
    text = storable(outcome.text)
    if not text.strip():
        raise SummaryFailed(RunCode.BAD_ANSWER, f"The strategy {name!r} returned an empty text.")
    writer = outcome.writer or ("" if strategy.uses_summarizer else name)
    metadata = {"strategy": name, STRATEGY_VERSION: strategy.version} | dict(outcome.metadata)
    return replace(
        outcome,
        text=text,
        algorithm=outcome.algorithm or name,
        writer=writer,
        metadata=metadata,
    )


def _sent_again(snapshot: BranchSnapshot, items: Sequence[Item]) -> frozenset[int]:
    """Return the positions of pinned messages among the items: they are sent verbatim, too."""
    last = items[-1].position
    if last <= snapshot.state.cursor:
        return frozenset()
    return frozenset(pin.position for pin in snapshot.pins_behind if pin.position <= last)


def _files_before(
    snapshot: BranchSnapshot, before: Sequence[SessionSummary], items: Sequence[Item]
) -> list[Files]:
    """Return the files of the summaries that are continued and of branches that were left here.

    What a hook wrote ends the chain: nobody knows what its own details mean.
    """
    named: set[str] = set()
    if any(item.is_note for item in items):
        notes = path_messages(
            snapshot.branch, after=items[0].position - 1, through=items[-1].position
        ).filter(kind=Message.Kind.NOTE)
        named = {str(pk) for pk in notes.values_list("metadata__summary_id", flat=True)}
    # Held against rows of the session: what an imported note says may be anything.
    known = SessionSummary.objects.filter(session=snapshot.session, kind=SessionSummary.Kind.BRANCH)
    found = known.only("from_hook", *FILE_COLUMNS).order_by("created_at") if named else ()
    branches = [row for row in found if str(row.pk) in named]
    rows = [*before, *branches]
    return [
        Files(
            read=tuple(row.files_read),
            modified=tuple(row.files_modified),
            created=tuple(row.files_created),
            deleted=tuple(row.files_deleted),
        )
        for row in rows
        if not row.from_hook
    ]


def parts_turn(snapshot: BranchSnapshot, position: int) -> bool:
    """Whether a turn goes on behind a position that gets a summary of its own (`split_turns`).

    It does where a message follows that is no question of a user's.
    """
    if not snapshot.profile.split_turns:
        return False
    behind = without_pinned_system(path_messages(snapshot.branch, after=position))
    role = behind.values_list("role", flat=True).first()
    return role is not None and role != Message.Role.USER


def _result_chars(snapshot: BranchSnapshot, model: ModelConfig) -> int | None:
    """Return how many characters of a tool result the summariser reads; None for all."""
    profile = snapshot.profile
    limits = [profile.result_chars_in_summary] if profile.result_chars_in_summary else []
    if profile.limit_tool_results and model.context_window > 0:
        limits.append(limits_of(profile).max_chars(model.context_window))
    return min(limits, default=None)
