"""Activating: a stored version of a summary counts again, in the place of the one that does.

Nothing is written anew and nobody is asked: with a version come its links, its abridged history and
its placeholder, so that the next request is, byte for byte, the one that it was while that version
counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.db import transaction
from django.db.models import F, Min

from chatapp.audit import record
from chatapp.formatting import plural, short_id
from chatapp.models import Branch, Message
from chatapp.selectors import path_messages
from chatapp.transcript import lock_branches
from compaction.branches.holds import copied, until_words
from compaction.branches.leases import Lease, ensure_state, held
from compaction.branches.snapshot import snapshot_of
from compaction.errors import BranchBusyError, CompactionError, LostRaceError
from compaction.events import event
from compaction.models import CompactionState, SessionSummary
from compaction.models.summaries import status_columns
from compaction.selectors import summaries_of, without_overlaps
from compaction.summaries.columns import write_placeholder
from compaction.summaries.drafts import end_of_what_was_read
from compaction.summaries.restore import built_on, copy_in_use, mark_restored, move_back
from compaction.summaries.sizes import note_request_size
from compaction.summaries.storing import claim_state, moved_cursor, supersede

Status = SessionSummary.Status
BUSY = (
    "A run is working on this branch at the moment. Nothing was changed; try again when it has "
    "ended."
)

# Of newer summaries in a sentence.
MOST_NAMED = 5
# The code of the audit log.
ACTIVATED = "version_activated"


class Newer(StrEnum):
    """What becomes of newer summaries that took in the version that is replaced."""

    ASK = ""
    KEEP = "keep"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True, kw_only=True)
class Activated:
    """What counts now: `summary`, and not `replaced`, if a version stood in its place.

    `restored` are the newer summaries that were taken back, oldest first; `kept` those that stay
    and say what the replaced version said. `is_sent`: the session's next request holds the text.
    `hold` says until when the branch is held, empty where it is not.
    """

    summary: SessionSummary
    replaced: SessionSummary | None
    restored: list[SessionSummary]
    kept: list[SessionSummary]
    cursor: int
    is_sent: bool
    hold: str = ""


def activate_version(
    summary: SessionSummary,
    *,
    newer: Newer = Newer.ASK,
    replacing: SessionSummary | None = None,
    by: Any = None,
) -> Activated:
    """Let a superseded or restored summary count again, and return what changed.

    A version that covers the same messages is superseded by it. Where nothing covers them, they
    must be what follows the cursor, which then moves. Newer summaries that were made while the
    version did not count took in another one: `newer` says what becomes of them, or CompactionError
    names them. `replacing` says which version must be the one that gives way.
    `by` is the person whose act it is: it stands in the session's audit log, and what is taken back
    is held as after a restore. What was held before, and is not covered now, stays held.
    CompactionError is raised for all that cannot be done, with what can be; BranchBusyError while a
    run works on the branch, LostRaceError where somebody was faster. Then nothing is written.
    """
    if summary.kind == SessionSummary.Kind.BRANCH:
        raise CompactionError(
            "The summary of a branch has no versions: it hides no message. Switch to the branch "
            "that it tells of to go on there."
        )
    state = ensure_state(summary.branch)
    try:
        with held(state.pk) as lease, transaction.atomic():
            lock_branches(summary.session_id)
            done = _activate(summary, lease, newer, replacing, by)
            record(summary.session_id, ACTIVATED, _words(done), by=by, branch=summary.branch_id)
    except BranchBusyError as busy:
        raise BranchBusyError(BUSY) from busy
    note_request_size(summary.session)
    event(
        "version_activated",
        session=summary.session_id,
        branch=summary.branch_id,
        summary=summary.pk,
        replaced=None if done.replaced is None else done.replaced.pk,
        restored=len(done.restored),
    )
    return done


def _activate(
    summary: SessionSummary,
    lease: Lease,
    newer: Newer,
    replacing: SessionSummary | None,
    by: Any,
) -> Activated:
    summary.refresh_from_db(
        fields=["status", "covers_from", "covers_through", "superseded_at", "restored_at"]
    )
    _refuse_what_cannot_count(summary)
    state = CompactionState.objects.get(pk=lease.branch_id)
    replaced = _in_its_place(summary)
    if replacing is not None and replaced != replacing:
        raise CompactionError(
            f"Summary {short_id(replacing.pk)} does not count any more, so nothing was put in its "
            "place."
        )
    if replaced is None:
        _move_cursor_over(summary, lease, state)
        later: list[SessionSummary] = []
    else:
        later = _took_in_another(summary, replaced)
        if later and newer is Newer.ASK:
            raise CompactionError(_question(later))
        unchanged = {"recheck_requested": F("recheck_requested")}
        claim_state(lease, cursor=state.cursor, changes=unchanged)
        supersede(replaced)
    _drafts_give_way(summary)
    _let_count(summary)
    if newer is Newer.RESTORE and later:
        # Behind it: cursors go back to where summaries reach.
        _take_back(summary, later, by=by)
    if replaced is not None:
        replaced.refresh_from_db()
    return _what_counts(summary, replaced, newer, later)


def _what_counts(
    summary: SessionSummary,
    replaced: SessionSummary | None,
    newer: Newer,
    later: list[SessionSummary],
) -> Activated:
    """Return what changed, as it stands now."""
    state = CompactionState.objects.get(pk=summary.branch_id)
    return Activated(
        summary=summary,
        replaced=replaced,
        restored=later if newer is Newer.RESTORE else [],
        kept=later if newer is Newer.KEEP else [],
        cursor=state.cursor,
        is_sent=summary in snapshot_of(summary.session).summaries,
        hold=until_words(state) if state.is_held else "",
    )


def _words(done: Activated) -> str:
    """Return what was done, for the audit log."""
    place = "" if done.replaced is None else f" in the place of {short_id(done.replaced.pk)}"
    said = f"Summary {short_id(done.summary.pk)} counts again{place}."
    if done.restored:
        said += f" {plural(len(done.restored), 'newer one')} taken back."
    return f"{said} What is sent verbatim again is held {done.hold}." if done.hold else said


def _refuse_what_cannot_count(summary: SessionSummary) -> None:
    if summary.status == Status.ACTIVE:
        raise CompactionError("This version counts already.")
    if summary.status == Status.DRAFT:
        raise CompactionError(
            "It is a draft: when a rule asks for it, it counts. Compact the session to have its "
            "messages summarised now."
        )
    if summary.is_passed_over:
        raise CompactionError(
            "A later version of this program wrote it, in a form that this one cannot send. "
            "Its messages can be summarised again."
        )
    if summary.links.count() != summary.message_count:
        raise CompactionError(
            "Links of this version to its messages are missing, so nobody can tell what it would "
            "hide; it cannot count again. Edit the version that counts and take over its text."
        )


def _in_its_place(summary: SessionSummary) -> SessionSummary | None:
    """Return the version that counts for the same messages, or None where no summary does.

    Raises CompactionError where one covers a part of them, or more: both cannot count.
    """
    found = list(
        SessionSummary.objects.filter(
            branch=summary.branch_id,
            status=Status.ACTIVE,
            kind=SessionSummary.Kind.COMPACTION,
            covers_from__lte=summary.covers_through,
            covers_through__gte=summary.covers_from,
        ).select_related("session", "branch")
    )
    if not found:
        return None
    place = summary.covers_from, summary.covers_through
    other = next((row for row in found if (row.covers_from, row.covers_through) != place), None)
    if other is not None or found[0].is_passed_over:
        row = other or found[0]
        raise CompactionError(
            f"Summary {short_id(row.pk)} counts for some of its messages, and not for the same: "
            "both cannot count. Restore that one first; then this one can be activated."
        )
    if (copy := copy_in_use(found[0])) is not None:
        raise CompactionError(
            "The branch of this summary was replayed with shorter tool results, and the "
            f"conversation goes on with the copy of the version that counts, summary {copy.pk}. "
            "Edit that one and take over this text."
        )
    return found[0]


def _move_cursor_over(summary: SessionSummary, lease: Lease, state: CompactionState) -> None:
    """Move the cursor of the branch behind a summary in whose place none counts.

    A person decides for its messages alone: what is held behind them stays held.
    """
    end, cursor = None, state.cursor
    if cursor < summary.covers_from:
        end = end_of_what_was_read(summary.branch, summary, cursor=cursor)
    if end is None:
        raise CompactionError(
            "This summary was not made of exactly the messages that follow what is summarised "
            "now, so it cannot count again. Activate or restore those before it first, or compact "
            "the session: the messages are summarised anew."
        )
    passed = path_messages(summary.branch, after=cursor, through=end.position)
    messages = summary.message_count + summary.dropped_messages
    changes = moved_cursor(passed, end, messages=messages)
    if state.is_held and (state.hold_through or 0) > end.position:
        changes |= copied(state)
    claim_state(lease, cursor=cursor, changes=changes)


def _took_in_another(summary: SessionSummary, replaced: SessionSummary) -> list[SessionSummary]:
    """Return the newer summaries that were made since the version did not count any more.

    Oldest first; with those that are built on them, in the branch and in forks. Where nobody knows
    since when it does not, all newer ones are in doubt.
    """
    branches = list(Branch.objects.filter(session_id=summary.session_id))
    newer = built_on(replaced, branches)
    since = summary.superseded_at
    if summary.status == Status.RESTORED:
        since = summary.restored_at
    elif since is None:
        since = summary.newer_versions.aggregate(at=Min("created_at"))["at"]
    found = {row.pk: row for row in newer if since is None or row.created_at > since}
    for row in list(found.values()):
        found |= {other.pk: other for other in built_on(row, branches)}
    return sorted(found.values(), key=lambda row: (row.covers_through, row.created_at))


def _question(later: list[SessionSummary]) -> str:
    names = ", ".join(short_id(row.pk) for row in later[:MOST_NAMED])
    if len(later) == 1:
        said = f"A newer summary ({names}) was made while this version did not count, and took in "
        them, their, are = "it", "its", "it is"
    else:
        said = (
            f"{len(later):,} newer summaries ({names}) were made while this version did not count, "
            "and took in "
        )
        them, their, are = "them", "their", "they are"
    return (
        f"{said}another one. Say what becomes of {them}: “restore” takes {them} back, so that "
        f"{their} messages are sent verbatim again; “keep” leaves {them} as {are}, and the next "
        "request may go on saying what the other version said."
    )


def _drafts_give_way(summary: SessionSummary) -> None:
    """Supersede drafts of the session: they continue what counted when they were made."""
    drafts = SessionSummary.objects.filter(session=summary.session_id, status=Status.DRAFT)
    drafts.update(**status_columns(Status.SUPERSEDED))


def _take_back(summary: SessionSummary, later: list[SessionSummary], *, by: Any) -> None:
    mark_restored(later)
    for branch in Branch.objects.filter(session_id=summary.session_id):
        move_back(branch, by=by, holds=True)


def _let_count(summary: SessionSummary) -> None:
    columns = status_columns(Status.ACTIVE)
    rows = SessionSummary.objects.filter(pk=summary.pk, status=summary.status)
    if not rows.update(**columns):
        raise LostRaceError("The version changed meanwhile; nothing was activated.")
    for name, value in columns.items():
        setattr(summary, name, value)
    _ensure_placeholder(summary)


def _ensure_placeholder(summary: SessionSummary) -> None:
    """Write the placeholder of a version that never counted: a draft that was put aside."""
    marks = Message.objects.filter(
        branch=summary.branch_id,
        kind=Message.Kind.PLACEHOLDER,
        position__gte=summary.covers_through,
        metadata__summary_id=str(summary.pk),
    )
    if not marks.exists():
        write_placeholder(summary.branch, summary)


def refuse_if_covered(summary: SessionSummary) -> None:
    """Raise CompactionError for an active summary in whose place its branch sends another.

    A new version of it would be newer than that one, and take its place with fewer messages.
    """
    active = list(summaries_of(summary.branch))
    if summary in active and summary not in without_overlaps(active):
        raise CompactionError(
            "Its branch sends another summary in its place, which takes in what this one says. "
            "Change that one, or restore it first."
        )
