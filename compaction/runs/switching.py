"""Asking for a switch to another branch, with a summary of the one that is left or without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction

from chatapp.context.backend import EDITS
from chatapp.extensions import SwitchUnderWay
from chatapp.models import Branch, Session
from chatapp.transcript import lock_some_branches
from compaction.branches.left_branch import LeftBranch
from compaction.branches.snapshot import snapshot_of
from compaction.conf import compaction_settings
from compaction.engine.policy.reasons import Reason
from compaction.errors import CompactionError
from compaction.models import CompactionRun
from compaction.runs import lifecycle
from compaction.runs.worker import execute_run

Status, Trigger = CompactionRun.Status, CompactionRun.Trigger
MOST_INSTRUCTION_CHARS = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchWishes:
    """What is asked of a switch.

    `instructions` are added to ours, or with `replace_instructions` take their place. `label` names
    the branch that is switched to (None: as it is). Without `wait` the run is left to the queue.
    `is_edit`: a question is asked anew in a branch that was just made for it.
    """

    summarize: bool = False
    instructions: str = ""
    replace_instructions: bool = False
    label: str | None = None
    wait: bool = True
    requested_by: Any = None
    is_edit: bool = False

    @classmethod
    def of(cls, wishes: Mapping[str, Any]) -> SwitchWishes:
        """Return what a client's wishes say of these; others are nobody's here.

        Raises CompactionError for instructions that are too long.
        """
        found = cls(
            summarize=wishes.get("summarize") is True,
            instructions=str(wishes.get("instructions") or ""),
            replace_instructions=wishes.get("replace_instructions") is True,
            label=wishes.get("label"),
            wait=wishes.get("wait") is not False,
            requested_by=wishes.get("requested_by"),
            is_edit=wishes.get(EDITS) is True,
        )
        if len(found.instructions) > MOST_INSTRUCTION_CHARS:
            raise CompactionError(
                f"The instructions have {len(found.instructions):,} characters; at most "
                f"{MOST_INSTRUCTION_CHARS:,} are taken. Shorten them."
            )
        return found


def request_switch(session: Session, branch: Branch, wishes: SwitchWishes) -> CompactionRun | None:
    """Have the active branch summarised and the session go on in another one; return the run.

    None where the branch is active already, or nothing was said that it lacks: then the caller
    switches without a run. With `wait` the run has ended, however it did; the session has moved
    where it succeeded. Raises SwitchUnderWayError while another switch of the session is.
    """
    old = session.branch
    if branch.pk == old.pk:
        return None
    snapshot = snapshot_of(session, old)
    if not LeftBranch(snapshot=snapshot, new=branch).entries:
        return None
    request = lifecycle.RunRequest(
        session=session,
        branch=old,
        trigger=Trigger.BRANCH,
        reason=Reason.BRANCH,
        profile=snapshot.profile_row,
        background=not wishes.wait,
        instructions=wishes.instructions,
        requested_by=wishes.requested_by,
        switch_to=branch,
        switch_label=wishes.label,
        replaces_instructions=wishes.replace_instructions,
    )
    with transaction.atomic():
        lock_some_branches(session.pk)
        lifecycle.refuse_second_switch(session)
        run = lifecycle.request_run(request)
    if not wishes.wait:
        return run
    return execute_run(run.pk, seconds=compaction_settings.run_seconds)


def switch_of(session_id: UUID) -> SwitchUnderWay | None:
    """Return the switch to another branch that a run is to make in a session, or makes now."""
    run = lifecycle.switch_under_way(session_id)
    if run is None:
        return None
    return SwitchUnderWay(run=run.pk, status=run.status, branch=run.switch_to_id)
