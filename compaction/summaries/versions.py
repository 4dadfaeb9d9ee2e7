"""Versions of a summary: the one that counts gives way to the one that it had superseded.

Both stand for the same messages, so that the cursor stays; their texts and links stay as they are.
"""

from __future__ import annotations

from django.db import transaction
from django.db.models import F

from chatapp.transcript import lock_branches
from compaction.branches.leases import ensure_state, held
from compaction.errors import CompactionError, LostRaceError
from compaction.models import SessionSummary
from compaction.summaries.sizes import note_request_size
from compaction.summaries.storing import claim_state

Status = SessionSummary.Status


def put_version_back(version: SessionSummary) -> SessionSummary:
    """Have the version that `version` superseded count again in its place; return that one.

    Superseded and active change places in one transaction, under the branch's lease. Raises
    CompactionError where `version` does not count any more, or superseded nothing that could,
    BranchBusyError while a run works on the branch, LostRaceError where the branch changed hands.
    """
    old = version.supersedes
    if old is None:
        raise CompactionError(f"{version} superseded no other version.")
    state = ensure_state(version.branch)
    with held(state.pk) as lease, transaction.atomic():
        lock_branches(version.session_id)
        claim_state(
            lease, cursor=state.cursor, changes={"recheck_requested": F("recheck_requested")}
        )
        _swap(version, old)
        drafts = SessionSummary.objects.filter(branch=version.branch_id, status=Status.DRAFT)
        # A draft continues what was in force when it was made.
        drafts.update(status=Status.SUPERSEDED)
    note_request_size(version.session)
    old.status = Status.ACTIVE
    return old


def _swap(version: SessionSummary, old: SessionSummary) -> None:
    """Let two versions change places, if both are still as they were."""
    rows = SessionSummary.objects.filter(session=version.session_id)
    if not rows.filter(pk=version.pk, status=Status.ACTIVE).update(status=Status.SUPERSEDED):
        version.refresh_from_db(fields=["status"])
        raise CompactionError(
            f"Summary {str(version.pk)[:8]} is {version.status} by now, so nothing was put in "
            "its place."
        )
    if not rows.filter(pk=old.pk, status=Status.SUPERSEDED).update(status=Status.ACTIVE):
        raise LostRaceError(
            f"Summary {str(old.pk)[:8]} is superseded no more; nothing was put back."
        )
