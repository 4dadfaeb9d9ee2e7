"""What hooks say to a switch to another branch: with a summary inside its run, without one before.

An edit of an earlier question asks nobody: it is stored in one transaction, and a hook may take
seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from chatapp.incidents import Kind, note
from chatapp.messages.wire import Cleaner
from chatapp.models import MAX_LABEL_CHARS, Branch, Message, Session
from chatapp.selectors import rows_before
from compaction.branches.left_branch import LeftBranch
from compaction.branches.snapshot import snapshot_of
from compaction.engine.types import Outcome
from compaction.errors import CompactionError
from compaction.hooks import (
    BEFORE_BRANCH,
    Asked,
    BranchAnswer,
    BranchPayload,
    Cancel,
    ask,
    has_hooks,
)
from compaction.models import CompactionRun
from compaction.runs.hooked import (
    HOOK_FAILED,
    HookCancelled,
    hook_message,
    outcome_of,
    reason_of,
    record_faults,
)
from compaction.runs.steps import Work

logger = logging.getLogger(__name__)
MOST_INSTRUCTION_CHARS = 4_000


class SwitchStoppedError(CompactionError):
    """A hook does not want the switch; the text is its reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPlan:
    """How a switch is made after the hooks were asked; `outcome` where one wrote the summary."""

    instructions: str = ""
    replaces_instructions: bool = False
    label: str | None = None
    outcome: Outcome | None = None
    faults: tuple[str, ...] = field(default=())


def ask_in_run(work: Work, left: LeftBranch) -> Outcome | None:
    """Return the summary that a hook wrote of the branch that is left; None for the default.

    Instructions and label that it changes are the run's from now on. Raises HookCancelled.
    """
    if not has_hooks(BEFORE_BRANCH):
        return None
    run = work.run
    asked = ask(BEFORE_BRANCH, _payload(left, run=run), answers=(BranchAnswer,))
    _stop_if_asked(asked, HookCancelled)
    plan = _plan(
        asked,
        left,
        SwitchPlan(
            instructions=run.instructions,
            replaces_instructions=run.replaces_instructions,
            label=run.switch_label,
        ),
    )
    if plan.faults:
        record_faults(work, left.snapshot, plan.faults)
    changed = {
        "instructions": plan.instructions,
        "replaces_instructions": plan.replaces_instructions,
        "switch_label": plan.label,
    }
    for name, value in changed.items():
        setattr(run, name, value)
    CompactionRun.objects.filter(pk=run.pk).update(**changed)
    return plan.outcome


def ask_before_plain_switch(session: Session, new: Branch, *, label: str | None) -> str | None:
    """Return the label that the branch gets, as the hooks want it; None leaves it as it is.

    Raises SwitchStoppedError. What goes wrong with a hook is a warning of the session.
    """
    if not has_hooks(BEFORE_BRANCH) or new.pk == session.branch.pk:
        return label
    left = LeftBranch(snapshot=snapshot_of(session, session.branch), new=new)
    asked = ask(BEFORE_BRANCH, _payload(left, label=label), answers=(BranchAnswer,))
    _stop_if_asked(asked, SwitchStoppedError)
    plan = _plan(asked, left, SwitchPlan(label=label), with_summary=False)
    if plan.faults:
        sentence = Cleaner().text(" ".join(plan.faults))
        logger.warning("Session %s: %s", session.pk, sentence)
        note(session, Kind.WARNING, HOOK_FAILED, sentence)
    return plan.label


def _payload(
    left: LeftBranch, *, run: CompactionRun | None = None, label: str | None = None
) -> BranchPayload:
    old = left.snapshot.branch
    return BranchPayload(
        session=str(old.session_id),
        from_branch=str(old.pk),
        to_branch=str(left.new.pk),
        messages=tuple(hook_message(entry.item) for entry in left.entries),
        common=_common(left),
        run=str(run.pk) if run else None,
        wants_summary=run is not None,
        instructions=run.instructions if run else "",
        replaces_instructions=bool(run and run.replaces_instructions),
        label=run.switch_label if run else label,
    )


def _common(left: LeftBranch) -> str | None:
    """Return the id of the last message that both branches have."""
    spoken = Message.objects.filter(kind__in=Message.SPOKEN).only("position")
    end = left.shared_through + 1
    rows: Sequence[Message] = rows_before(left.snapshot.branch, spoken, end=end, most=1)
    found: UUID | None = rows[0].pk if rows else None
    return None if found is None else str(found)


def _stop_if_asked(asked: Asked, stop: type[Exception]) -> None:
    if isinstance(asked.answer, Cancel):
        raise stop(f"The hook {asked.hook} stopped this switch: {reason_of(asked)}")


def _plan(
    asked: Asked, left: LeftBranch, wanted: SwitchPlan, *, with_summary: bool = True
) -> SwitchPlan:
    """Return what is done: what the person wanted, and of the answer what can be used."""
    answer = asked.answer
    if not isinstance(answer, BranchAnswer):
        return SwitchPlan(
            instructions=wanted.instructions,
            replaces_instructions=wanted.replaces_instructions,
            label=wanted.label,
            faults=asked.faults,
        )
    try:
        instructions = _text(answer.instructions, "instructions", MOST_INSTRUCTION_CHARS)
        label = _text(answer.label, "label", MAX_LABEL_CHARS)
        replaces = answer.replaces_instructions
        if not isinstance(replaces, bool | None):
            raise ValueError("its replaces_instructions is neither True nor False.")
        outcome = None
        if with_summary and answer.summary is not None:
            outcome = outcome_of(asked, [entry.item for entry in left.entries], left.snapshot)
    # What a hook made up may fail at anything that is done with it.
    except Exception as refusal:
        fault = f"The answer of the hook {asked.hook} was not used: {refusal}"
        return SwitchPlan(
            instructions=wanted.instructions,
            replaces_instructions=wanted.replaces_instructions,
            label=wanted.label,
            faults=(*asked.faults, fault),
        )
    return SwitchPlan(
        instructions=wanted.instructions if instructions is None else instructions,
        replaces_instructions=wanted.replaces_instructions if replaces is None else replaces,
        label=wanted.label if label is None else label,
        outcome=outcome,
        faults=asked.faults,
    )


def _text(value: Any, name: str, most: int) -> str | None:
    """Return a text of an answer as it is stored. Raises ValueError."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"its {name} are no text.")
    text = Cleaner().text(value).strip()
    if len(text) > most:
        raise ValueError(f"its {name} have {len(text):,} characters; {most:,} are the most.")
    return text
