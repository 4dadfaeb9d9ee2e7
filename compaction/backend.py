"""CompactionBackend: what chatapp calls. It decides when, and leaves the how to the services.

Every command makes one, to check its options; so what compacts is imported where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from django.core.checks import CheckMessage
from django.db import Error

from chatapp.context.assembly import Context
from chatapp.context.backend import (
    BaseContextBackend,
    Emit,
    Recovery,
    Switched,
    TurnOutcome,
    notify,
    silent,
)
from chatapp.context.preview import PREVIEW_MESSAGES
from chatapp.incidents import Kind, note
from chatapp.llm.errors import ModelError
from chatapp.messages.inline_files import without_inline_files
from chatapp.messages.wire import WireMessage, texts_of, with_texts
from chatapp.models import Branch, Message, Session
from chatapp.transcript import SwitchRefusedError, set_label
from compaction.branches.cache_clock import note_request
from compaction.branches.context_builder import foreseen, sendable
from compaction.branches.leases import after_lease, ensure_state
from compaction.branches.pins import warning_of
from compaction.branches.reading import current_snapshot
from compaction.branches.request_hooks import before_hooks, with_hooks
from compaction.branches.snapshot import BranchSnapshot, refreshed, snapshot_of
from compaction.branches.tail import show_part
from compaction.conf import compaction_settings
from compaction.engine.policy.cache_clock import has_clock
from compaction.engine.tool_results import ResultLimits, cut_blocks, sent_marker, store_blocks
from compaction.errors import CompactionError
from compaction.models import CompactionState
from compaction.runs.scheduling import check, check_branch, check_later, schedule_next_check
from compaction.runs.status import context_facts, switched_by
from compaction.signals import branch_switched, send_after_commit
from compaction.statistics.prompt_caches import note_next_turn
from compaction.summaries.sizes import note_request_size

# A look takes a dozen queries; nobody waits for one at the ten thousandth session of a file.
IMPORTED_AT_ONCE = 20
LEAST_KEPT_CHARS = ResultLimits().min_keep_chars


class CompactionBackend(BaseContextBackend):
    """Keeps what is sent inside the window; what is stored stays whole."""

    def offers_branch_summary(self, session: Session) -> bool:
        """Whether the session's profile has people asked (branch_summary)."""
        return snapshot_of(session).profile.branch_summary == "ask"

    def prepare(self, session: Session, *, emit: Emit = silent) -> Context:
        """Return the next request; compact first where a trigger is due that cannot wait.

        A compaction that fails, or a branch that another worker holds, costs the user nothing: the
        request goes out as it is (docs/architecture.md#a-failing-summariser-fails-no-turn).
        """
        from compaction.runs.before_request import Preparation

        context = Preparation(session=session, emit=emit).context()
        return with_hooks(session, context, on_fault=partial(note, session, Kind.WARNING))

    def preview(self, session: Session) -> Context:
        """Return what a request would send now; `facts` says whether it would compact first."""
        return _previewed(session, snapshot_of(session))

    def preview_part(
        self, session: Session, *, most: int = PREVIEW_MESSAGES, oldest: int = 0
    ) -> Context:
        """Return the same of a long history without its older messages; stored sums count them."""
        snapshot = snapshot_of(session)
        show_part(snapshot, most=most, oldest=oldest)
        return _previewed(session, snapshot)

    def recover(
        self,
        session: Session,
        error: ModelError,
        previous: Recovery | None,
        *,
        refused: Context,
        emit: Emit = silent,
    ) -> Recovery:
        """Answer an overflow with the next step of the recovery."""
        from compaction.recovery.overflow import recover_overflow

        plain = before_hooks(refused)
        recovery = recover_overflow(session, error, previous, refused=plain, emit=emit)
        if recovery.context is None:
            return recovery
        on_fault = partial(note, session, Kind.WARNING)
        context = with_hooks(session, recovery.context, on_fault=on_fault)
        return replace(recovery, context=context)

    def to_store(self, message: WireMessage) -> WireMessage:
        """Return a tool's message with the text that the guard at storing leaves of it."""
        return guarded(message)

    def shorten(self, message: WireMessage, limit: int) -> WireMessage:
        """Return a tool's message cut for sending, with a word about what is gone."""
        return cut_for_sending(message, limit)

    def message_stored(self, session: Session, message: Message) -> None:
        """Queue a run where a trigger is due; should that not work, the sweep looks again."""
        with check_again_if_it_fails(message.branch_id):
            check(current_snapshot(session, message.branch))

    def sessions_imported(self, sessions: Sequence[Session]) -> None:
        """Look at a few sessions at once; where they are many, the sweep does, in its time."""
        if len(sessions) <= IMPORTED_AT_ONCE:
            super().sessions_imported(sessions)
        else:
            check_later([session.branch for session in sessions])

    def pin_warning(self, session: Session) -> str:
        """Return a sentence where pins take, or will take, more than the profile's share."""
        return warning_of(snapshot_of(session))

    def turn_finished(self, session: Session, outcome: TurnOutcome) -> None:
        """Look for a trigger: the answer may make a run due, and so may a turn without one.

        What the turn read of its branch is not read again, but for the state. A person who stopped
        an answer goes on by himself: the next prompt looks. His request, too, starts the time of
        the server's prompt cache anew; one that was refused does not.
        """
        known = outcome.context.origin
        if outcome.is_stopped and not (
            isinstance(known, BranchSnapshot) and has_clock(known.profile)
        ):
            return
        branch = outcome.answer.branch if outcome.answer is not None else session.branch
        with check_again_if_it_fails(branch.pk):
            state = ensure_state(branch)
            if isinstance(known, BranchSnapshot):
                snapshot = refreshed(known, state)
                note_next_turn(known.summaries, outcome.answer)
            else:
                snapshot = snapshot_of(session, state=state)
            if outcome.answer is not None or outcome.is_stopped:
                note_request(state, snapshot.profile, outcome.sent)
            if outcome.is_stopped:
                schedule_next_check(snapshot)
            else:
                check(snapshot)

    def switch(
        self,
        session: Session,
        branch: Branch,
        wishes: Mapping[str, Any],
        *,
        activate: Callable[[], Branch],
    ) -> Switched:
        """Switch, and where `wishes` ask for it have a run summarise the branch that is left."""
        from compaction.runs.switching import SwitchWishes, request_switch

        try:
            asked = SwitchWishes.of(wishes)
            run = request_switch(session, branch, asked) if asked.summarize else None
        except CompactionError as error:
            raise SwitchRefusedError(str(error)) from error
        if run is not None:
            return switched_by(run, session, branch)
        label = None if asked.is_edit else _asked_label(session, branch, asked.label)
        old = activate()
        if label is not None and label != branch.label:
            set_label(branch, label)
        if old.pk != branch.pk:
            send_after_commit(
                branch_switched,
                sender=Session,
                session=session.pk,
                branch=branch.pk,
                from_branch=old.pk,
                summary=None,
            )
            # The sweep leaves the branches alone that are not active.
            notify(check_branch, session, branch)
            notify(note_request_size, session)
        return Switched(branch=branch)

    def check(self) -> list[CheckMessage]:
        """Return nothing: the backend takes no options; profiles have checks of their own."""
        return []


def _previewed(session: Session, snapshot: BranchSnapshot) -> Context:
    """Return what a request would send of a branch as it was read."""
    facts = context_facts(snapshot)
    if facts["compacts_first"] is None and (decision := foreseen(snapshot)):
        facts["compacts_first"] = decision.reason
    return with_hooks(session, replace(sendable(snapshot), facts=facts, origin=snapshot))


def _asked_label(session: Session, branch: Branch, label: str | None) -> str | None:
    """Return the label that hooks give the branch; raise SwitchRefusedError where one says no."""
    from compaction.runs.hooked_switches import ask_before_plain_switch

    try:
        return ask_before_plain_switch(session, branch, label=label)
    except CompactionError as error:
        raise SwitchRefusedError(str(error)) from error


@contextmanager
def check_again_if_it_fails(branch_id: UUID) -> Iterator[None]:
    """Have the sweep look at a branch whose look failed with the database."""
    try:
        yield
    except Error:
        CompactionState.objects.filter(pk=branch_id).update(next_check_at=after_lease())
        raise


def guarded(message: WireMessage) -> WireMessage:
    """Return a tool's message as it is stored: cut where it is longer than a row should be.

    Files inside its texts go first, for their placeholders. The whole text is kept beside the row
    (chatapp.models.MessageOriginal).
    """
    limit = compaction_settings.stored_result_chars
    before = texts_of(message.get("content"))
    if not limit or sum(map(len, before)) <= limit:
        return message
    told = [without_inline_files(text) for text in before]
    return _replaced(message, before, store_blocks(told, limit, min_keep=LEAST_KEPT_CHARS))


def cut_for_sending(message: WireMessage, limit: int) -> WireMessage:
    """Return a tool's message with at most `limit` characters of text for one request."""
    before = texts_of(message.get("content"))
    return _replaced(message, before, cut_blocks(before, limit, min_keep=0, marker=sent_marker))


def _replaced(message: WireMessage, before: Sequence[str], after: Sequence[str]) -> WireMessage:
    if sum(map(len, after)) >= sum(map(len, before)):
        return message
    return {**message, "content": with_texts(message["content"], after)}
