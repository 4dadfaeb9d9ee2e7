"""What this app does when something happens in the transcript, and after every migrate.

Every process imports this module at its start, so what does the work is imported by who needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db.models import F, Q
from django.dispatch import receiver

from chatapp.erasure import user_erased
from chatapp.import_jobs import import_waiting
from chatapp.models import Branch, ImportJob, Message, Session
from chatapp.transcript import (
    Replay,
    branch_replayed,
    message_inserted,
    positions_changed,
    set_pinned,
)
from compaction.branches.leases import Lease, lease_stolen
from compaction.models import (
    BulkItem,
    BulkJob,
    CompactionRun,
    CompactionState,
    ModelBreaker,
    SessionSummary,
    SummaryQuality,
)
from compaction.profiles import install_presets
from compaction.runs import queue
from compaction.signals import memory_run_waiting


def install(*, plan: Sequence[tuple[Any, bool]] = (), **kwargs: Any) -> None:
    """Store presets that are missing, and the schedules as the code has them; safe to repeat.

    After a `plan` of migrations that went backwards, the tables are those of older code, or gone.
    """
    if any(backwards for _, backwards in plan):
        return
    install_presets()
    queue.ensure_schedules()


@receiver(positions_changed, dispatch_uid="compaction.listeners")
def follow_positions(*, session: Session, moved: dict[int, int], **kwargs: Any) -> None:
    """Move cursors and coverage with the positions, in the transaction that moved them."""
    states = list(CompactionState.objects.filter(branch__session=session))
    for state in states:
        state.cursor = moved.get(state.cursor, state.cursor)
        if state.hold_through is not None:
            state.hold_through = moved.get(state.hold_through, state.hold_through)
    CompactionState.objects.bulk_update(states, ["cursor", "hold_through"])
    rows = SessionSummary.objects.filter(session=session)
    summaries = list(rows.only("covers_from", "covers_through"))
    for summary in summaries:
        summary.covers_from = moved.get(summary.covers_from, summary.covers_from)
        # Through the negative numbers, so that no two of a branch ever end at one place on the way.
        summary.covers_through = -moved.get(summary.covers_through, summary.covers_through)
    SessionSummary.objects.bulk_update(summaries, ["covers_from", "covers_through"])
    rows.update(covers_through=-F("covers_through"))
    _move_entries(session, moved)


def _move_entries(session: Session, moved: Mapping[int, int]) -> None:
    """Have the entries of abridged histories say where their questions stand now.

    One summary at a time: the entries of one may be long.
    """
    rows = SessionSummary.objects.filter(session=session).exclude(abridged_entries=[])
    for pk in list(rows.values_list("pk", flat=True)):
        summary = rows.only("abridged_entries").get(pk=pk)
        entries = summary.abridged_entries
        for entry in entries if isinstance(entries, list) else ():
            place = entry.get("position") if isinstance(entry, dict) else None
            if isinstance(place, int) and place in moved:
                entry["position"] = moved[place]
        summary.save(update_fields=["abridged_entries"])


@receiver(message_inserted, dispatch_uid="compaction.listeners")
def keep_inserted(*, message: Message, branches: list[Branch], **kwargs: Any) -> None:
    """Have a message sent that was put before a cursor: no summary has read it.

    It is pinned, and the sums up to the cursor count it, in the transaction that stored it.
    """
    covered = CompactionState.objects.filter(
        branch__in=branches, cursor__gte=message.position
    ).update(
        covered_messages=F("covered_messages") + 1,
        covered_tokens=F("covered_tokens") + message.tokens,
        covered_chars=F("covered_chars") + message.chars,
    )
    if covered:
        set_pinned(message, True)


@receiver(branch_replayed, dispatch_uid="compaction.listeners")
def on_branch_replayed(*, replay: Replay, **kwargs: Any) -> None:
    """Let the state and the summaries follow a branch that was replayed."""
    from compaction.summaries.replays import follow_replay

    follow_replay(replay)


@receiver(lease_stolen, dispatch_uid="compaction.runs.takeover")
def on_lease_stolen(*, lease: Lease, **kwargs: Any) -> None:
    """Go on with the work of a worker that died."""
    from compaction.runs.takeover import follow_stolen

    follow_stolen(lease)


@receiver(import_waiting, dispatch_uid="compaction.listeners")
def on_import_waiting(*, job: ImportJob, **kwargs: Any) -> None:
    """Have a worker of the queue go on with an import."""
    queue.enqueue_import(job.pk)


@receiver(memory_run_waiting, dispatch_uid="compaction.listeners")
def on_memory_run_waiting(*, run_id: UUID, **kwargs: Any) -> None:
    """Have a worker of the queue do a memory run."""
    queue.enqueue_memory_run(run_id)


@receiver(user_erased, dispatch_uid="compaction.listeners")
def forget_words_of(*, user: Any, **kwargs: Any) -> None:
    """Take away the user's words that stand in no row of theirs.

    Those are what they told about other people's summaries and runs, and errors of a server, which
    may quote what it was sent: a breaker and a paused bulk job keep the last one. The filter of a
    bulk job may be what was searched for: a name, or words of a title.
    """
    from compaction.summaries.instructions import forget_instructions_of

    SummaryQuality.objects.filter(verdict_by=user).update(verdict_note="")
    asked = CompactionRun.objects.filter(requested_by=user).exclude(instructions="")
    theirs = Q(run__in=asked) | Q(author=user)
    # Runs that failed carried the words on as well; of those sessions nothing carried is kept.
    told = SessionSummary.objects.filter(theirs | Q(instructions_by=user)).values("session")
    carried = Q(session__in=asked.values("session")) | Q(session__in=told)
    CompactionRun.objects.filter(carried).exclude(carried_instructions="").update(
        carried_instructions=""
    )
    SessionSummary.objects.filter(theirs).update(instructions="")
    asked.update(instructions="")
    forget_instructions_of(user)
    # Nobody can tell whose call it was; the next failed one says what is wrong again.
    ModelBreaker.objects.exclude(last_error="").update(last_error="")
    held = BulkItem.objects.filter(session__owner=user).values("job")
    BulkJob.objects.filter(Q(requested_by=user) | Q(pk__in=held)).update(chosen_by="", note="")
