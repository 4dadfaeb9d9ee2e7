"""Tool results cut in a replayed branch, and everything of ours that follows a replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from chatapp.ids import new_id
from chatapp.models import Branch, Message
from chatapp.selectors import rows_before
from chatapp.transcript import Replay, point_placeholder, replay
from compaction.branches.context_builder import (
    RequestCut,
    cut_results,
    kept_of,
    sizes_as_sent,
)
from compaction.branches.holds import copied
from compaction.branches.leases import ensure_state, held
from compaction.branches.snapshot import BranchSnapshot
from compaction.engine.tool_results import is_oversized, limits_of
from compaction.models import CompactionState, SessionSummary, SessionSummaryMessage
from compaction.selectors import NOTE, branch_summaries_of, chain_of
from compaction.summaries.fidelity import copy_fidelity

LINK_BATCH = 1000
# A turn waits for a replay: of a summary so many older versions come along, with their links.
VERSIONS_COPIED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CutResults:
    """How many tool results were cut by how many characters; `branch` holds them, if any."""

    results: int = 0
    characters: int = 0
    branch: Branch | None = None


def is_oversized_now(snapshot: BranchSnapshot, window: int | None) -> bool:
    """Whether the tool results, as they were sent, are too large alone or together."""
    _, kept = kept_of(snapshot)
    single = limits_of(snapshot.profile).max_chars(window or snapshot.model.context_window)
    sizes = list(sizes_as_sent(snapshot, kept).values())
    return is_oversized(sizes, single=single, together=single)


def cut_tool_results(snapshot: BranchSnapshot, window: int | None) -> CutResults:
    """Replay the active branch with its oversized tool results cut, and return what that saved.

    Raises BranchBusyError while a run works on the branch,
    chatapp.transcript.writing.TranscriptError when the conversation went on elsewhere.
    """
    contents, characters = _contents(snapshot, window)
    if not contents:
        return CutResults()
    state = ensure_state(snapshot.branch)
    with held(state.pk):
        done = replay(snapshot.session, contents=contents)
    return CutResults(results=len(contents), characters=characters, branch=done.new)


def _contents(snapshot: BranchSnapshot, window: int | None) -> tuple[dict[UUID, Any], int]:
    """Return the new contents of the results that shrink, and the characters they lose."""
    _, kept = kept_of(snapshot)
    cut = RequestCut(results_together=True, window=window, refused=True)
    cuts = list(cut_results(snapshot, kept, cut))
    lost = sum(one.before - one.after for one in cuts)
    return {one.row.pk: one.content for one in cuts}, lost


def follow_replay(replayed: Replay) -> None:
    """Give the new branch a state, and copies of the summaries that cover replayed messages.

    Positions stay, so cursors and coverage do; a summary that ends before the fork holds for the
    new branch as it is.
    """
    old, new = replayed.old, replayed.new
    old_state = ensure_state(old)
    copies = _copy_summaries(replayed, through=old_state.cursor)
    _point_placeholders(replayed, copies)
    messages = Message.objects.filter(kind__in=Message.SPOKEN).only(
        "tokens_through", "chars_through"
    )
    last = next(iter(rows_before(new, messages, end=old_state.cursor + 1, most=1)), None)
    CompactionState.objects.create(
        branch=new,
        profile=old_state.profile,
        cursor=old_state.cursor,
        covered_messages=old_state.covered_messages,
        covered_tokens=last.tokens_through if last else 0,
        covered_chars=last.chars_through if last else 0,
        last_consolidated_at=old_state.last_consolidated_at,
        failures=old_state.failures,
        backoff_until=old_state.backoff_until,
        **copied(old_state),
    )


def _copy_summaries(replayed: Replay, *, through: int) -> dict[UUID, UUID]:
    """Copy the summaries up to the cursor that the new branch does not share; {old id: new id}.

    A fork and its parent may both have summarised a stretch: only what counts is copied, with the
    versions that it may give way to again. Summaries of branches that were left stand anywhere.
    """
    shared = {summary.pk for summary in chain_of(replayed.new, through=through)}
    shared |= set(branch_summaries_of(replayed.new).values_list("pk", flat=True))
    chain = [one for one in chain_of(replayed.old, through=through) if one.pk not in shared]
    counting = [*_restored(replayed), *(row for one in reversed(chain) for row in _versions(one))]
    copies: dict[UUID, UUID] = {}
    for summary in [*counting, *branch_summaries_of(replayed.old)]:
        if summary.pk in shared:
            continue
        old_id = summary.pk
        summary.pk = copies[old_id] = new_id()
        summary._state.adding = True
        summary.branch = replayed.new
        summary.first_message_id = _mapped(replayed.ids, summary.first_message_id)
        summary.last_message_id = _mapped(replayed.ids, summary.last_message_id)
        summary.previous_id = _mapped(copies, summary.previous_id)
        summary.supersedes_id = _mapped(copies, summary.supersedes_id)
        if NOTE in summary.metadata:
            note = UUID(summary.metadata[NOTE])
            summary.metadata = summary.metadata | {NOTE: str(replayed.ids.get(note, note))}
        summary.save(force_insert=True)
        _copy_links(old_id, summary.pk, replayed.ids)
    copy_fidelity(copies, replayed.ids)
    return copies


def _versions(summary: SessionSummary) -> list[SessionSummary]:
    """Return a summary and the newest versions that it superseded, each behind what it replaced."""
    rows = SessionSummary.objects.filter(
        branch=summary.branch_id,
        kind=SessionSummary.Kind.COMPACTION,
        status=SessionSummary.Status.SUPERSEDED,
        covers_from=summary.covers_from,
        covers_through=summary.covers_through,
    )
    newest = rows.select_related("session", "branch").order_by("-created_at")[:VERSIONS_COPIED]
    return sorted([summary, *newest], key=lambda row: row.created_at)


def _restored(replayed: Replay) -> list[SessionSummary]:
    """Return the restored summaries of replayed messages whose instructions are to be carried on.

    The next summary of those messages looks for them by their first one.
    """
    rows = SessionSummary.objects.filter(
        session=replayed.old.session_id, status=SessionSummary.Status.RESTORED
    )
    told = rows.exclude(instructions="").order_by("created_at")
    return [row for row in told if row.first_message_id in replayed.ids]


def _mapped(ids: Mapping[UUID, UUID], old: UUID | None) -> UUID | None:
    return None if old is None else ids.get(old, old)


def _copy_links(old: UUID, new: UUID, ids: Mapping[UUID, UUID]) -> None:
    linked = SessionSummaryMessage.objects.filter(summary=old).values_list("message", flat=True)
    links = [
        SessionSummaryMessage(summary_id=new, message_id=ids.get(message, message))
        for message in linked
    ]
    SessionSummaryMessage.objects.bulk_create(links, batch_size=LINK_BATCH)


def _point_placeholders(replayed: Replay, copies: Mapping[UUID, UUID]) -> None:
    """Have the replayed placeholders and notes name the summaries of their own branch."""
    rows = Message.objects.filter(branch=replayed.new).exclude(kind=Message.Kind.MESSAGE)
    by_name = {str(old): str(new) for old, new in copies.items()}
    for row in rows:
        new = by_name.get(row.metadata.get("summary_id", ""))
        if new is not None:
            point_placeholder(row, new)
