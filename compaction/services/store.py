"""Three layers in one transaction: summary, links, placeholder; with them cursor, state and run.

Everything is checked again inside it by compare and set: who holds the lease, where the cursor
stands, whether the run still runs. A lost race writes nothing (DESIGN.md, rule 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from chatapp.drafts import Draft
from chatapp.models import Message
from chatapp.selectors import path_messages, without_rules
from chatapp.transcript import insert_between, lock_branches
from compaction.engine.actions import collect_actions
from compaction.engine.prompts import (
    PROMPT_VERSION,
    main_language,
    spoken_text,
    system_prompt,
)
from compaction.engine.types import Outcome, SummaryRequest
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.services.errors import LostRaceError
from compaction.services.leases import Lease
from compaction.services.links import link_sources
from compaction.services.situation import Situation
from compaction.summarizer import summariser_name

ALGORITHM = "bisect_v1"
PLACEHOLDER_NOTICE = "Earlier messages were summarised here to keep the context small."


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Tokens of summaries and history in the next request, before and after; of the new text."""

    before: int
    after: int
    summary: int


def store_summary(
    *, situation: Situation, run: CompactionRun, lease: Lease, outcome: Outcome, sizes: Sizes
) -> SessionSummary:
    """Write a new summary over the outcome's items and move the cursor behind them.

    Raises LostRaceError when lease, cursor or run changed meanwhile; then nothing is written.
    """
    state = situation.state
    with transaction.atomic():
        ends = _hold_positions(run, outcome)
        passed = path_messages(situation.branch, after=state.cursor, through=ends.last.position)
        # Links are checked below: what was passed is what was received, and the rules between.
        rules = passed.filter(pinned=True, role=Message.Role.SYSTEM)
        _claim_state(
            lease,
            cursor=state.cursor,
            changes={
                "cursor": ends.last.position,
                "covered_messages": state.covered_messages + len(outcome.items) + rules.count(),
                "covered_tokens": ends.last.tokens_through,
                "last_consolidated_at": timezone.now(),
                "failures": 0,
                "backoff_until": None,
            },
        )
        summary = _write(
            situation,
            run,
            outcome,
            sizes,
            ends=ends,
            sources=without_rules(passed),
            previous=situation.summaries[-1] if situation.summaries else None,
        )
        _finish_run(run, summary, outcome, sizes)
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
        ends = _hold_positions(run, outcome)
        _claim_state(lease, cursor=situation.state.cursor, changes={"pending": F("pending")})
        replaced = SessionSummary.objects.filter(
            pk=old.pk, status=SessionSummary.Status.ACTIVE
        ).update(status=SessionSummary.Status.SUPERSEDED)
        if not replaced:
            raise LostRaceError("The summary is no longer active; somebody else replaced it.")
        summary = _write(
            situation,
            run,
            outcome,
            sizes,
            ends=ends,
            sources=Message.objects.filter(summary_links__summary=old),
            previous=previous,
            old=old,
        )
        _finish_run(run, summary, outcome, sizes)
    return summary


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """The rows of the first and the last message that the summariser received."""

    first: Message
    last: Message


def _hold_positions(run: CompactionRun, outcome: Outcome) -> _Ends:
    """Keep the session's positions where they are until the transaction ends.

    Another branch's summary may have renumbered them while this one was being written. Branches are
    locked before states, here and in the transcript, so that two workers never wait for each other.
    """
    lock_branches(run.session_id)
    ends = outcome.items[0].id, outcome.items[-1].id
    first, last = (Message._meta.pk.to_python(end) for end in ends)
    found = Message.objects.only("position", "tokens_through", "created_at")
    rows = found.in_bulk([first, last])
    if not {first, last} <= rows.keys() or rows[last].position != outcome.items[-1].position:
        raise LostRaceError(
            "The session's positions were renumbered while the summary was being written; "
            "nothing was stored."
        )
    return _Ends(first=rows[first], last=rows[last])


def _claim_state(lease: Lease, *, cursor: int, changes: dict[str, Any]) -> None:
    held = CompactionState.objects.filter(
        pk=lease.branch_id,
        lease_owner=lease.owner,
        lease_expires_at__gt=timezone.now(),
        cursor=cursor,
    ).update(**changes)
    if not held:
        raise LostRaceError(
            "The branch changed hands or its cursor moved while the summary was being written; "
            "nothing was stored."
        )


def _write(
    situation: Situation,
    run: CompactionRun,
    outcome: Outcome,
    sizes: Sizes,
    *,
    ends: _Ends,
    sources: QuerySet[Message],
    previous: SessionSummary | None,
    old: SessionSummary | None = None,
) -> SessionSummary:
    """Write summary, links and placeholder; `old` is the version that the new one supersedes.

    `sources` finds the outcome's messages again, so that the database can link them by itself.
    """
    first, last = ends.first, ends.last
    actions = collect_actions(outcome.items)
    metadata = _metadata(run, outcome)
    summary = SessionSummary.objects.create(
        session_id=run.session_id,
        branch_id=run.branch_id,
        summary_text=outcome.text,
        message_count=len(outcome.items),
        approx_tokens=outcome.input_tokens,
        summary_tokens=sizes.summary,
        first_message=first,
        last_message=last,
        first_message_created_at=first.created_at,
        last_message_created_at=last.created_at,
        metadata=metadata,
        trigger=run.trigger,
        reason=run.reason,
        truncated=outcome.truncated,
        compression_ratio=outcome.compression_ratio,
        previous=previous,
        supersedes=old,
        covers_from=old.covers_from if old else first.position,
        covers_through=old.covers_through if old else last.position,
        tokens_before=sizes.before,
        tokens_after=sizes.after,
        cost=outcome.cost,
        files_read=list(actions.files_read),
        files_modified=list(actions.files_modified),
        instructions=run.instructions,
        run=run,
        profile=run.profile,
        **_asked(situation, run, outcome, continues=bool(previous) or _continues(situation, old)),
    )
    link_sources(summary, sources, received=(item.id for item in outcome.items))
    _write_placeholder(situation, summary, metadata)
    return summary


def _continues(situation: Situation, old: SessionSummary | None) -> bool:
    """Whether a first summary row carries an old placeholder's text on."""
    return old is None and bool(situation.previous_text)


def _asked(
    situation: Situation, run: CompactionRun, outcome: Outcome, *, continues: bool
) -> dict[str, Any]:
    """Return the columns that say who was asked for the summary, and how."""
    profile = situation.profile
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
        "keep_last_n": profile.keep_last_n if run.keep_last_n is None else run.keep_last_n,
    }


def _metadata(run: CompactionRun, outcome: Outcome) -> dict[str, Any]:
    """Return the document's metadata (3.1), and the leaves and halvings apart from the merges."""
    return {
        "algorithm": ALGORITHM,
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


def _write_placeholder(
    situation: Situation, summary: SessionSummary, metadata: dict[str, Any]
) -> None:
    insert_between(
        situation.branch,
        after=summary.covers_through,
        draft=Draft(
            wire={"role": "assistant", "content": PLACEHOLDER_NOTICE},
            kind=Message.Kind.PLACEHOLDER,
            summary=summary.summary_text,
            metadata=metadata
            | {
                "type": "session_summary",
                "summary_id": str(summary.pk),
                "keepLastN": summary.keep_last_n,
                "summary_timestamp": round(summary.created_at.timestamp() * 1000),
            },
        ),
    )


def _finish_run(
    run: CompactionRun, summary: SessionSummary, outcome: Outcome, sizes: Sizes
) -> None:
    finished = CompactionRun.objects.filter(
        pk=run.pk, status=CompactionRun.Status.RUNNING, worker=run.worker
    ).update(
        status=CompactionRun.Status.SUCCEEDED,
        finished_at=timezone.now(),
        tokens_before=sizes.before,
        tokens_after=sizes.after,
        input_tokens=outcome.input_tokens,
        output_tokens=outcome.output_tokens,
        chunk_count=outcome.chunk_count,
        max_depth=outcome.max_depth,
        truncated=outcome.truncated,
        cost=outcome.cost,
    )
    if not finished:
        raise LostRaceError("The run was cancelled or taken over; nothing was stored.")
