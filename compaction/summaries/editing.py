"""Editing: a text that a person wrote is a version of its own, with its author.

It covers what the version before it covers and stands in its place; that one stays stored, and can
be activated again. Automatic runs continue it as any other summary, and none replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import F

from chatapp.audit import record
from chatapp.formatting import short_id
from chatapp.messages.wire import Cleaner, is_blank
from chatapp.transcript import lock_branches
from compaction.branches.carriers import carried_tokens
from compaction.branches.leases import Lease, ensure_state, held
from compaction.branches.snapshot import BranchSnapshot, snapshot_of
from compaction.engine.fidelity.redaction import redact
from compaction.engine.policy.reasons import Reason
from compaction.engine.protocols import SentSummary
from compaction.engine.rendering import with_files
from compaction.errors import BranchBusyError, CompactionError, UnfitTextError
from compaction.events import event
from compaction.models import (
    CompactionRun,
    CompactionState,
    SessionSummary,
    SessionSummaryMessage,
    SummaryUnits,
)
from compaction.models.summaries import (
    DROPPED_MESSAGES,
    SENDS_FILES_VERSION,
    status_columns,
)
from compaction.summaries.activating import BUSY, refuse_if_covered
from compaction.summaries.columns import write_placeholder
from compaction.summaries.fidelity import named_before
from compaction.summaries.instructions import instructions_of
from compaction.summaries.restore import copy_in_use
from compaction.summaries.sizes import note_request_size
from compaction.summaries.storing import claim_state, supersede

Status = SessionSummary.Status
# The code of the audit log.
EDITED = "summary_edited"
MOST_TIMES_TARGET = 2
"""A text may have so many times the tokens that were asked for."""
ROWS_AT_ONCE = 1000
# What a version has in common with the one that it replaces.
_TAKEN_OVER = (
    *("session_id", "branch_id", "kind", "format_version", "previous_id", "profile_id"),
    *("message_count", "approx_tokens", "covers_from", "covers_through", "keep_last_n"),
    *("first_message_id", "last_message_id"),
    *("first_message_created_at", "last_message_created_at", "target_summary_tokens"),
    *("files_read", "files_modified", "files_created", "files_deleted"),
    *("is_digest", "from_hook", "details", "abridged", "abridged_entries", "tokens_before"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """The new version; `notes` are sentences about its size and what was changed in it."""

    summary: SessionSummary
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _OwnText:
    """A text that can be stored; `tokens` are those of a request, the files behind it included.

    `sent` is what it costs there, in its frame.
    """

    text: str
    sent: int
    tokens: int
    instructions: str
    notes: tuple[str, ...]


def edit_summary(
    summary: SessionSummary, *, text: str, author: Any, instructions: str | None = None
) -> Edited:
    """Store a person's text as the version of a summary that counts, and return it.

    `instructions` are what runs that make the summary again are told; None leaves them as they are.
    Raises UnfitTextError for a text that cannot be stored, CompactionError for a summary that
    cannot be edited, BranchBusyError while a run works on the branch, LostRaceError where somebody
    was faster. Then nothing is written.
    """
    if summary.kind == SessionSummary.Kind.BRANCH:
        raise CompactionError(
            "The summary of a branch cannot be edited: a note tells it in the conversation, where "
            "nothing stored is changed. Say what is right in a message of your own."
        )
    _refuse_unless_it_counts(summary)
    draft = _checked(summary, text, instructions)
    state = ensure_state(summary.branch)
    try:
        with held(state.pk) as lease, transaction.atomic():
            lock_branches(summary.session_id)
            edited = _store(summary, lease, draft, author)
            text = f"Summary {short_id(edited.pk)} counts with a text of one's own, in the place "
            text += f"of {short_id(summary.pk)}."
            record(summary.session_id, EDITED, text, by=author, branch=summary.branch_id)
    except BranchBusyError as busy:
        raise BranchBusyError(BUSY) from busy
    note_request_size(summary.session)
    event(
        "summary_edited",
        session=summary.session_id,
        branch=summary.branch_id,
        summary=edited.pk,
        replaced=summary.pk,
        tokens=edited.summary_tokens,
    )
    return Edited(summary=edited, notes=draft.notes)


def _refuse_unless_it_counts(summary: SessionSummary) -> None:
    if summary.status == Status.DRAFT:
        raise CompactionError("It is a draft and not sent yet; edit it when it counts.")
    if summary.status != Status.ACTIVE:
        raise CompactionError(
            f"Only the version that counts can be edited; this one is {summary.status}. Activate "
            "it first, or edit the one that counts."
        )
    if summary.is_passed_over:
        raise CompactionError(
            "A later version of this program wrote it, in a form that this one cannot send."
        )
    refuse_if_covered(summary)


# --- what can be stored ---------------------------------------------------------------------------


def _checked(summary: SessionSummary, given: str, instructions: str | None) -> _OwnText:
    """Return a text as it is stored, with what is to be said of it. Raises UnfitTextError."""
    snapshot = snapshot_of(summary.session, summary.branch)
    text = given.replace("\r\n", "\n").strip()
    if is_blank(text):
        raise UnfitTextError("The text is empty. Write one, or restore the messages instead.")
    if Cleaner().text(text) != text:
        raise UnfitTextError(
            "The text holds characters that cannot be stored (NUL, or half of a pair)."
        )
    kept = summary.instructions if instructions is None else instructions.strip()
    if text == summary.summary_text.strip() and kept == summary.instructions:
        raise UnfitTextError("Nothing was changed: text and instructions are as they were.")
    notes = []
    if snapshot.profile.redact_secrets and (found := redact(text)).spans:
        text = found.text
        notes.append("Secrets in the text were replaced by marks, as the profile wants it.")
    size = snapshot.model.counter.count(text)
    _refuse_too_long(snapshot, summary, size)
    tokens = snapshot.model.counter.count(_as_sent(summary, text))
    form = SentSummary(text=_as_sent(summary, text), abridged=summary.abridged)
    sent = tokens + carried_tokens(snapshot.profile, snapshot.model, [form])
    notes += _size_notes(snapshot, summary, size, sent)
    return _OwnText(
        text=text,
        sent=sent,
        tokens=tokens,
        instructions=kept,
        notes=tuple(notes),
    )


def _as_sent(summary: SessionSummary, text: str) -> str:
    if summary.format_version < SENDS_FILES_VERSION:
        return text
    return with_files(
        text,
        read=summary.files_read,
        modified=summary.files_modified,
        deleted=summary.files_deleted,
    )


def _refuse_too_long(snapshot: BranchSnapshot, summary: SessionSummary, size: int) -> None:
    """Raise UnfitTextError above twice the size that was asked for, and above the text before it.

    Who mends a word of a long text need not shorten it.
    """
    target = summary.target_summary_tokens or snapshot.summary_profile.target_summary_tokens
    before = snapshot.model.counter.count(summary.summary_text)
    most = max(MOST_TIMES_TARGET * target, before)
    if size <= most:
        return
    reason = f"twice the {target:,} that are asked for"
    if before > MOST_TIMES_TARGET * target:
        reason = "as many as the version that it replaces"
    raise UnfitTextError(
        f"The text has {size:,} tokens; at most {most:,} may be stored, {reason} "
        "(target_summary_tokens). Shorten it, or give the session a profile with a larger size and "
        "make the summary again."
    )


def _size_notes(
    snapshot: BranchSnapshot, summary: SessionSummary, size: int, sent: int
) -> list[str]:
    """Return what is to be said of a text that is not smaller than what it stands for."""
    frame = snapshot.model.message_frame_tokens
    messages = summary.approx_tokens + frame * summary.message_count
    if summary.approx_tokens and messages <= sent + frame:
        return [
            f"It takes {sent + frame:,} tokens of a request, and its messages {messages:,}: the "
            "next request is not smaller with it. To send the messages themselves, restore them."
        ]
    more = size - snapshot.model.counter.count(summary.summary_text)
    if more > 0:
        return [f"It has {more:,} tokens more than the version that it replaces."]
    return []


# --- storing --------------------------------------------------------------------------------------


def _store(summary: SessionSummary, lease: Lease, draft: _OwnText, author: Any) -> SessionSummary:
    old = SessionSummary.objects.select_related("session", "branch", "run").get(pk=summary.pk)
    _refuse_unless_it_counts(old)
    if (copy := copy_in_use(old)) is not None:
        raise CompactionError(
            "The branch of this summary was replayed with shorter tool results, and the "
            f"conversation goes on with its copy: edit summary {copy.pk} instead."
        )
    cursor = CompactionState.objects.values_list("cursor", flat=True).get(pk=lease.branch_id)
    claim_state(lease, cursor=cursor, changes={"recheck_requested": F("recheck_requested")})
    supersede(old)
    new = SessionSummary.objects.create(
        **{name: getattr(old, name) for name in _TAKEN_OVER},
        **status_columns(Status.ACTIVE),
        summary_text=draft.text,
        summary_tokens=draft.tokens,
        tokens_after=max(0, old.tokens_after - old.summary_tokens + draft.tokens),
        compression_ratio=draft.sent / old.approx_tokens if old.approx_tokens else 0.0,
        metadata=_metadata(old),
        trigger=CompactionRun.Trigger.MANUAL,
        reason=Reason.EDITED,
        supersedes=old,
        author=author,
        instructions=draft.instructions,
        instructions_by_id=_whose_instructions(old, draft, author),
    )
    _copy_links(old, new)
    # The next pass reads the text alone: clauses of the version before may say what was taken out.
    SummaryUnits.objects.create(summary=new, units=[], named_weight=named_before(old))
    write_placeholder(old.branch, new)
    return new


def _whose_instructions(old: SessionSummary, draft: _OwnText, author: Any) -> Any:
    """Return the id of the user whose words the instructions are; they go when that one does."""
    if not draft.instructions:
        return None
    carried = instructions_of(old)
    return carried.by if draft.instructions == carried.text else getattr(author, "pk", None)


def _metadata(old: SessionSummary) -> dict[str, Any]:
    kept = {DROPPED_MESSAGES: old.dropped_messages} if old.dropped_messages else {}
    return {"algorithm": "edited", "trigger": CompactionRun.Trigger.MANUAL.value} | kept


def _copy_links(old: SessionSummary, new: SessionSummary) -> None:
    """Link a version to the messages of the one before it: it stands for the same."""
    linked = SessionSummaryMessage.objects.filter(summary=old).order_by("message_id")
    links = [
        SessionSummaryMessage(summary=new, message_id=message)
        for message in linked.values_list("message", flat=True)
    ]
    SessionSummaryMessage.objects.bulk_create(links, batch_size=ROWS_AT_ONCE)
