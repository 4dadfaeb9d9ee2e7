"""A switch with a summary, stored: the summary's row, its note, its links, and the branch in use.

All in one transaction, held against what was read: where the conversation went on meanwhile,
nothing is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from chatapp.models import Branch, Message, Session
from chatapp.transcript import append, set_label
from chatapp.transcript.writing import NewMessage
from compaction.branches.leases import Lease
from compaction.branches.left_branch import LeftBranch
from compaction.branches.snapshot import snapshot_of
from compaction.engine.strategies.branch_summary import note_text
from compaction.engine.types import Files, Outcome
from compaction.errors import LostRaceError
from compaction.models import CompactionRun, SessionSummary, SessionSummaryMessage
from compaction.models.summaries import status_columns
from compaction.selectors import NOTE
from compaction.summaries.columns import Sizes, asked_columns, metadata_of
from compaction.summaries.fidelity import store_fidelity
from compaction.summaries.sizes import note_request_size
from compaction.summaries.storing import EndRun, Ends, claim_state, hold_positions

LINK_BATCH = 1000
# The type of a branch summary's note, in its metadata (chatapp.models.Message.carries_summary).
NOTE_TYPE = "branch_summary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A switch whose summary is made: between which branches, and as which run of whose lease."""

    left: LeftBranch
    run: CompactionRun
    lease: Lease

    @property
    def old(self) -> Branch:
        """The branch that is left, as it was read."""
        return self.left.snapshot.branch


def store_branch_summary(
    switch: Switch, *, outcome: Outcome, files: Files, end_run: EndRun
) -> SessionSummary:
    """Store the summary of the branch that is left, tell it in the new one, and go on there.

    Raises LostRaceError where either branch went on, another one became active, or lease or run
    changed meanwhile; then nothing is written.
    """
    sizes = _sizes(switch, outcome, files)
    with transaction.atomic():
        ends = hold_positions(switch.run, outcome)
        _still_holds(switch)
        _activate(switch)
        summary = _write(switch, outcome, files, sizes, ends)
        # It tells what was not told before: no request gets smaller by it.
        end_run(outcome, sizes, saved=0)
    return summary


def _sizes(switch: Switch, outcome: Outcome, files: Files) -> Sizes:
    """Return the sizes of the new branch's next request, without and with the note."""
    new = snapshot_of(switch.run.session, switch.left.new)
    before, count = new.counted_tokens, new.model.counter.count
    note = count(note_text(outcome.text, files))
    after = before + note + new.model.message_frame_tokens
    return Sizes(before=before, after=after, summary=count(outcome.text), sent=note)


def switch_plainly(switch: Switch) -> None:
    """Go on in the new branch without a summary: nothing was said on the old one that it lacks.

    Call it in a transaction. Raises LostRaceError as store_branch_summary does.
    """
    _activate(switch)


def _still_holds(switch: Switch) -> None:
    """Raise LostRaceError where one of the branches is not as it was read, or the lease is lost."""
    claim_state(
        switch.lease,
        cursor=switch.left.snapshot.state.cursor,
        changes={"recheck_requested": F("recheck_requested")},
    )
    for read in (switch.old, switch.left.new):
        now = Branch.objects.get(pk=read.pk)
        if _head(now) != _head(read):
            raise LostRaceError(
                "The conversation went on while the branch was being summarised; the session "
                "stayed where it was. Switch again."
            )


def _head(branch: Branch) -> tuple[int, int, int]:
    return branch.head_position, branch.message_count, branch.token_total


def _activate(switch: Switch) -> None:
    rows = Session.objects.filter(pk=switch.run.session_id, active_branch=switch.old)
    if not rows.update(active_branch=switch.left.new, updated_at=timezone.now()):
        raise LostRaceError(
            "The conversation goes on in another branch by now; nothing was switched."
        )
    transaction.on_commit(partial(_note_size, switch.run.session_id), robust=True)
    if switch.run.switch_label is not None:
        set_label(switch.left.new, switch.run.switch_label)


def _note_size(session_id: UUID) -> None:
    for session in Session.objects.select_related("active_branch").filter(pk=session_id):
        note_request_size(session)


def _write(
    switch: Switch,
    outcome: Outcome,
    files: Files,
    sizes: Sizes,
    ends: Ends,
) -> SessionSummary:
    run, left = switch.run, switch.left
    summary = SessionSummary.objects.create(
        session_id=run.session_id,
        branch=left.new,
        kind=SessionSummary.Kind.BRANCH,
        **status_columns(SessionSummary.Status.ACTIVE),
        from_branch=switch.old,
        from_message=left.leaf,
        summary_text=outcome.text,
        message_count=len(outcome.items),
        approx_tokens=outcome.input_tokens,
        metadata=metadata_of(run, outcome, sizes),
        trigger=run.trigger,
        reason=run.reason,
        truncated=outcome.truncated,
        compression_ratio=sizes.ratio(outcome),
        summary_tokens=sizes.summary,
        tokens_before=sizes.before,
        tokens_after=sizes.after,
        cost=outcome.cost,
        from_hook=outcome.from_hook,
        details=dict(outcome.details),
        instructions=run.instructions,
        run=run,
        profile=run.profile,
        first_message=ends.first,
        last_message=ends.last,
        first_message_created_at=ends.first.created_at,
        last_message_created_at=ends.last.created_at,
        covers_from=ends.first.position,
        covers_through=ends.last.position,
        files_read=list(files.read),
        files_modified=list(files.modified),
        files_created=list(files.created),
        files_deleted=list(files.deleted),
        **asked_columns(left.snapshot, run, outcome) | {"keep_last_n": 0},
    )
    links = [SessionSummaryMessage(summary=summary, message_id=key) for key in _ids(outcome)]
    SessionSummaryMessage.objects.bulk_create(links, batch_size=LINK_BATCH)
    store_fidelity(summary, outcome)
    note = _tell(switch, summary, files)
    summary.metadata |= {NOTE: str(note.pk)}
    summary.save(update_fields=["metadata"])
    return summary


def _ids(outcome: Outcome) -> list[Any]:
    """Return the ids of what was read; all of them are still there (hold_positions)."""
    return [Message._meta.pk.to_python(item.id) for item in outcome.items]


def _tell(switch: Switch, summary: SessionSummary, files: Files) -> Message:
    """Store the note that tells the summary at the end of the new branch."""
    text = note_text(summary.summary_text, files)
    leaf: UUID | None = summary.from_message_id
    draft = NewMessage(
        wire={"role": "user", "content": text},
        kind=Message.Kind.NOTE,
        metadata={
            "type": NOTE_TYPE,
            "summary_id": str(summary.pk),
            "from_branch": str(switch.old.pk),
            "from_id": str(leaf) if leaf else "",
        },
    )
    [note] = append(switch.left.new, [draft])
    return note
