"""What earlier turns tried for the same question, read from the rows of their recovery steps.

A turn's recovery counts its own steps. A turn without a message goes on with the question of the
one before, so what that one tried counts, too: nobody gets another set of compactions by asking
for the same answer again.
"""

from __future__ import annotations

from uuid import UUID

from chatapp.llm.answer_ends import AnswerEnd, end_of
from chatapp.models import Branch, Message
from chatapp.selectors import rows_before
from compaction.engine.recovery import RecoveryAction
from compaction.models import RecoveryStep

# Broken-off answers that stand between a question and its next try, at most.
MOST_BROKEN_OFF = 20


def compactions_since_question(branch: Branch) -> int:
    """Return how many compactions helped since the branch's newest question or finished answer.

    With an answer the count begins anew, that of a tool call included: the request of the next step
    is another one. A branch that was replayed with shorter results goes on with the count of the
    one that it repeats.
    """
    last = _last_said(branch)
    if last is None:
        return 0
    steps = RecoveryStep.objects.filter(
        session_id=branch.session_id,
        branch_id__in=_replayed(branch),
        action=RecoveryAction.COMPACT.value,
        outcome=RecoveryStep.Outcome.SMALLER,
        created_at__gt=last.created_at,
    )
    return steps.count()


def _last_said(branch: Branch) -> Message | None:
    """Return the newest message of a person or of a model that came to its end."""
    spoken = (Message.Role.USER, Message.Role.ASSISTANT)
    messages = Message.objects.filter(role__in=spoken, kind=Message.Kind.MESSAGE)
    columns = messages.only("role", "finish_reason", "created_at")
    for row in reversed(rows_before(branch, columns, most=MOST_BROKEN_OFF)):
        if end_of(row.finish_reason) is not AnswerEnd.BROKEN:
            return row
    return None


def _replayed(branch: Branch) -> list[UUID]:
    """Return the branch's id and those of the branches that it repeats."""
    found, current = [branch.pk], branch
    while current.kind == Branch.Kind.REPLAY and current.replaces is not None:
        current = current.replaces
        found.append(current.pk)
    return found
