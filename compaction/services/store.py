"""Three layers in one transaction: summary, links, placeholder; with them cursor, state and run.

Everything is checked again inside it by compare and set: who holds the lease, where the cursor
stands, whether the run still runs. A lost race writes nothing (DESIGN.md, rule 3).
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from chatapp.models import Branch, Message
from chatapp.selectors import path_messages, without_rules
from chatapp.transcript import insert_between
from chatapp.transcript.writing import Draft
from compaction.engine.parameters import Profile
from compaction.engine.strategies.actions import collect_actions
from compaction.engine.strategies.prompts import (
    PROMPT_VERSION,
    main_language,
    spoken_text,
    system_prompt,
)
from compaction.engine.types import Outcome, SummaryRequest
from compaction.models import CompactionRun, SessionSummary
from compaction.services.claims import Ends, Sizes, claim_state, finish_run, hold_positions
from compaction.services.errors import LostRaceError
from compaction.services.leases import Lease, soon
from compaction.services.links import link_sources
from compaction.services.situation import Situation
from compaction.summarizer import summariser_name

ALGORITHM, ARCHIVE_ALGORITHM = "bisect_v1", "archive_v1"
# What stands in the place of a model's name where none was asked.
ARCHIVE_WRITER = "archive"
Status = SessionSummary.Status
PLACEHOLDER_NOTICE = "Earlier messages were summarised here to keep the context small."


def store_summary(
    *, situation: Situation, run: CompactionRun, lease: Lease, outcome: Outcome, sizes: Sizes
) -> SessionSummary:
    """Write a new summary over the outcome's items and move the cursor behind them.

    Raises LostRaceError when lease, cursor or run changed meanwhile; then nothing is written.
    """
    state = situation.state
    with transaction.atomic():
        ends = hold_positions(run, outcome)
        passed = path_messages(situation.branch, after=state.cursor, through=ends.last.position)
        # Links are checked below: what was passed is what was received, and the rules between.
        claim_state(
            lease,
            cursor=state.cursor,
            changes=moved_cursor(passed, ends.last, messages=len(outcome.items))
            | _failures_left(situation, outcome),
        )
        summary = write_summary(
            situation,
            run,
            outcome,
            sizes,
            ends=ends,
            sources=without_rules(passed),
            previous=previous_of(situation, outcome),
        )
        finish_run(run, outcome, sizes)
    return summary


def store_new_version(
    *,
    situation: Situation,
    run: CompactionRun,
    lease: Lease,
    outcome: Outcome,
    sizes: Sizes,
    old: SessionSummary,
    previous: SessionSummary | None,
) -> SessionSummary:
    """Write a new summary over the old one's messages and supersede it; the cursor stays."""
    with transaction.atomic():
        ends = hold_positions(run, outcome)
        claim_state(lease, cursor=situation.state.cursor, changes={"pending": F("pending")})
        replaced = SessionSummary.objects.filter(
            pk=old.pk, status=SessionSummary.Status.ACTIVE
        ).update(status=SessionSummary.Status.SUPERSEDED)
        if not replaced:
            raise LostRaceError("The summary is no longer active; somebody else replaced it.")
        # A draft continues what was in force when it was made.
        drafts = SessionSummary.objects.filter(branch=old.branch_id, status=Status.DRAFT)
        drafts.update(status=Status.SUPERSEDED)
        summary = write_summary(
            situation,
            run,
            outcome,
            sizes,
            ends=ends,
            sources=Message.objects.filter(summary_links__summary=old),
            previous=previous,
            old=old,
        )
        finish_run(run, outcome, sizes, saved=max(0, old.summary_tokens - summary.summary_tokens))
    return summary


def write_summary(
    situation: Situation,
    run: CompactionRun,
    outcome: Outcome,
    sizes: Sizes,
    *,
    ends: Ends,
    sources: QuerySet[Message],
    previous: SessionSummary | None,
    old: SessionSummary | None = None,
    is_draft: bool = False,
) -> SessionSummary:
    """Write summary, links and placeholder; `old` is the version that the new one supersedes.

    A draft has no placeholder yet and is not sent.

    `sources` finds the outcome's messages again, so that the database can link them by itself.
    """
    actions = collect_actions(outcome.items)
    summary = SessionSummary.objects.create(
        session_id=run.session_id,
        branch_id=run.branch_id,
        summary_text=outcome.text,
        message_count=len(outcome.items),
        approx_tokens=outcome.input_tokens,
        metadata=_metadata(run, outcome),
        status=Status.DRAFT if is_draft else Status.ACTIVE,
        trigger=run.trigger,
        reason=run.reason,
        truncated=outcome.truncated,
        archived=outcome.is_archive,
        compression_ratio=outcome.compression_ratio,
        previous=previous,
        supersedes=old,
        summary_tokens=sizes.summary,
        tokens_before=sizes.before,
        tokens_after=sizes.after,
        cost=outcome.cost,
        files_read=list(actions.files_read),
        files_modified=list(actions.files_modified),
        instructions=run.instructions,
        run=run,
        profile=run.profile,
        **_covered(ends, old),
        **_asked(situation, run, outcome, continues=bool(previous) or _continues(situation, old)),
    )
    link_sources(summary, sources, received=(item.id for item in outcome.items))
    if not is_draft:
        write_placeholder(situation.branch, summary)
    return summary


def _failures_left(situation: Situation, outcome: Outcome) -> dict[str, int]:
    """Return how many failures still count: after an archive one more leads to the next archive.

    So the summariser is tried again once, with a small batch, and its success clears them.
    """
    if not outcome.is_archive or not situation.profile.archive_after_failures:
        return {}
    most = situation.profile.archive_after_failures - 1
    return {"failures": min(most, situation.state.failures)}


def _covered(ends: Ends, old: SessionSummary | None) -> dict[str, Any]:
    """Return the columns that say what is covered: a new version covers what the old one did."""
    first, last = ends.first, ends.last
    return {
        "first_message": first,
        "last_message": last,
        "first_message_created_at": first.created_at,
        "last_message_created_at": last.created_at,
        "covers_from": old.covers_from if old else first.position,
        "covers_through": old.covers_through if old else last.position,
    }


def moved_cursor(passed: QuerySet[Message], last: Message, *, messages: int) -> dict[str, Any]:
    """Return the state's columns when the cursor moves over `messages` and the rules between.

    They are added to what is counted by then: a message may have been put before the cursor while
    the summary was being written.
    """
    rules = passed.filter(pinned=True, role=Message.Role.SYSTEM).count()
    return {
        "cursor": last.position,
        "covered_messages": F("covered_messages") + messages + rules,
        "covered_tokens": last.tokens_through,
        "last_consolidated_at": timezone.now(),
        "failures": 0,
        "backoff_until": None,
        # Should this worker die before it looks for what is left, the sweep does.
        "look_again_at": soon(),
    }


def previous_of(situation: Situation, outcome: Outcome) -> SessionSummary | None:
    """Return the row that a new one continues: what it names is not sent beside it (an archive)."""
    found = situation.newest if outcome.is_archive else situation.continued
    return found[-1] if found else None


def _continues(situation: Situation, old: SessionSummary | None) -> bool:
    """Whether a first summary row carries an old placeholder's text on."""
    return old is None and bool(situation.previous_text)


def _asked(
    situation: Situation, run: CompactionRun, outcome: Outcome, *, continues: bool
) -> dict[str, Any]:
    """Return the columns that say who was asked for the summary, and how."""
    profile = situation.profile
    if outcome.is_archive:
        return {"model": ARCHIVE_WRITER, "keep_last_n": _kept_by_count(profile, run)}
    spoken = spoken_text(SummaryRequest(kind="chunk", items=outcome.items))
    return {
        "summary_prompt": system_prompt(
            "chunk",
            target_tokens=profile.target_summary_tokens,
            language=main_language(spoken),
            previous=continues,
        ),
        "prompt_version": PROMPT_VERSION,
        "model": summariser_name(situation.session, profile),
        "temperature": profile.temperature,
        "target_summary_tokens": profile.target_summary_tokens,
        "keep_last_n": _kept_by_count(profile, run),
    }


def _kept_by_count(profile: Profile, run: CompactionRun) -> int:
    """Return how many messages were to be kept; the setting where the cut counted tokens."""
    return (profile.tail or profile.keep_last_n) if run.keep_last_n is None else run.keep_last_n


def _metadata(run: CompactionRun, outcome: Outcome) -> dict[str, Any]:
    """Return the document's metadata (3.1), and the leaves and halvings apart from the merges."""
    return {
        "algorithm": ARCHIVE_ALGORITHM if outcome.is_archive else ALGORITHM,
        "trigger": run.trigger,
        "chunk_count": outcome.chunk_count,
        "max_depth": outcome.max_depth,
        "truncated": outcome.truncated,
        "compression_ratio": round(outcome.compression_ratio, 4),
        "input_tokens": outcome.input_tokens,
        "output_tokens": outcome.output_tokens,
        "leaf_count": outcome.leaf_count,
        "split_depth": outcome.split_depth,
    }


def write_placeholder(branch: Branch, summary: SessionSummary) -> None:
    """Write the row that marks where the summary stands: behind the last message it covers."""
    insert_between(
        branch,
        after=summary.covers_through,
        draft=Draft(
            wire={"role": "assistant", "content": PLACEHOLDER_NOTICE},
            kind=Message.Kind.PLACEHOLDER,
            summary=summary.summary_text,
            metadata=summary.metadata
            | {
                "type": "session_summary",
                "summary_id": str(summary.pk),
                "keepLastN": summary.keep_last_n,
                "summary_timestamp": round(summary.created_at.timestamp() * 1000),
            },
        ),
    )
