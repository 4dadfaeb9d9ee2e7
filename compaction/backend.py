"""CompactionBackend: what chatapp calls. It decides when, and leaves the how to the services."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.core.checks import CheckMessage
from django.db import Error

from chatapp.context.assembly import Context
from chatapp.context.backend import BaseContextBackend, Emit, Recovery, TurnOutcome, silent
from chatapp.llm.errors import ModelError
from chatapp.models import Message, Session
from compaction.branches.context_builder import context_of, foreseen, sendable
from compaction.branches.leases import soon
from compaction.branches.snapshot import situation_of
from compaction.models import CompactionState
from compaction.recovery.overflow import recover_overflow
from compaction.recovery.stored_results import cut_for_sending, guarded
from compaction.runs.before_request import Preparation
from compaction.runs.scheduling import check_branch
from compaction.runs.status import context_facts


class CompactionBackend(BaseContextBackend):
    """Keeps what is sent inside the window; what is stored stays whole."""

    def prepare(
        self, session: Session, pending: Sequence[dict[str, Any]], *, emit: Emit = silent
    ) -> Context:
        """Return the next request; compact first where a trigger is due that cannot wait.

        A compaction that fails, or a branch that another worker holds, costs the user nothing: the
        request goes out as it is (rule 6).
        """
        return Preparation(session=session, emit=emit).context()

    def preview(self, session: Session) -> Context:
        """Return what a request would send now; `facts` says whether it would compact first."""
        situation = situation_of(session)
        facts = context_facts(situation)
        if facts["compacts_first"] is None and (decision := foreseen(situation)):
            facts["compacts_first"] = decision.reason
        return replace(sendable(situation), facts=facts)

    def recover(
        self,
        session: Session,
        error: ModelError,
        previous: Recovery | None,
        *,
        refused: Context,
        emit: Emit = silent,
    ) -> Recovery:
        """Answer an overflow with the next rung of the ladder."""
        return recover_overflow(session, error, previous, refused=refused, emit=emit)

    def to_store(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return a tool's message with the text that the guard at storing leaves of it."""
        return guarded(message)

    def shorten(self, message: dict[str, Any], limit: int) -> dict[str, Any]:
        """Return a tool's message cut for sending, with a word about what is gone."""
        return cut_for_sending(message, limit)

    def message_stored(self, session: Session, message: Message) -> None:
        """Queue a run where a trigger is due; should that not work, the sweep looks again."""
        try:
            check_branch(session, message.branch)
        except Error:
            CompactionState.objects.filter(pk=message.branch_id).update(look_again_at=soon())
            raise

    def turn_finished(self, session: Session, outcome: TurnOutcome) -> None:
        """Look for a trigger where no answer came, which would be the message that is heard of."""
        if outcome.error:
            check_branch(session)

    def branch_switched(self, session: Session, old: Any, new: Any) -> None:
        """Look at the branch that is active now: the sweep leaves the others alone."""
        check_branch(session, new)

    def describe(self, session: Session) -> dict[str, Any]:
        """Return the state of the context for API and pages."""
        situation = situation_of(session)
        return context_facts(situation) | {"account": context_of(situation).account.as_dict()}

    def check(self) -> list[CheckMessage]:
        """Return nothing: the backend takes no options; profiles have checks of their own."""
        return []
