"""What may be wrong with a branch: its cursor, its lease, its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial

from django.db.models import Count, Max, Q, Sum
from django.db.models.functions import Now
from django.utils import timezone

from chatapp.formatting import plural
from chatapp.llm.registry import UnknownModelError
from chatapp.models import Branch, Message, Session
from chatapp.selectors import path_messages
from chatapp.transcript import set_request_tokens
from compaction.branches.context_builder import sendable
from compaction.branches.coverage import hidden_messages
from compaction.branches.past_window import bounded
from compaction.branches.snapshot import BranchSnapshot, snapshot_of
from compaction.conf import compaction_settings
from compaction.doctor.findings import NOTHING, BranchPath, Finding, Severity
from compaction.doctor.repair import (
    MOST_PINNED,
    end_run,
    free_lease,
    free_turn,
    put_covered_sums_right,
    put_cursor_right,
    show_hidden,
)
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.runs.queue import enqueue_run
from compaction.summaries.sizes import request_before

LISTED_SHARE = 0.01
"""Lists of sessions show their next request as so many whole per cent of the window, where that is
known."""
_BACK = "The cursor is put to where the branch's summaries reach; what is behind it is sent."


def check_cursor(line: BranchPath) -> Iterator[Finding]:
    """Yield what is wrong with how far a branch says that it is summarised."""
    if line.state is None:
        return
    yield from _behind(line, line.state)
    wrong = (_outside(line.branch, line.state) or _hidden(line.branch, line.state)) or (
        _covered_sums(line.branch, line.state)
    )
    if wrong is not None:
        yield wrong


def _outside(branch: Branch, state: CompactionState) -> Finding | None:
    """Return the finding of a cursor that stands at no message of the branch's path."""
    if state.cursor == 0:
        return None
    path = path_messages(branch)
    places = path.aggregate(
        last=Max("position"), there=Count("pk", filter=Q(position=state.cursor))
    )
    if places["there"]:
        return None
    last = Message(position=places["last"] or 0).place
    return Finding(
        code="cursor_outside",
        text=f"The cursor stands at {Message(position=state.cursor).place}, where the branch has "
        f"no message; the last one is {last}. What stands before it may never be sent.",
        remedy=_BACK,
        repair=partial(put_cursor_right, branch),
        session=branch.session_id,
        branch=branch.pk,
    )


def _hidden(branch: Branch, state: CompactionState) -> Finding | None:
    hidden = hidden_messages(branch, state.cursor)
    first = hidden.only("pk", "position").first()
    if first is None:
        return None
    return Finding(
        code="messages_hidden",
        text=f"Before the cursor, from {first.place} on, {plural(hidden.count(), 'message')} in "
        "no summary that is sent: the model never sees what is said there.",
        remedy="The cursor is put back before them; summaries that were built behind a gap are "
        f"taken back; at most {MOST_PINNED} that came in late are pinned.",
        message=first.pk,
        repair=partial(show_hidden, branch),
        session=branch.session_id,
        branch=branch.pk,
    )


def _covered_sums(branch: Branch, state: CompactionState) -> Finding | None:
    sums = path_messages(branch, through=state.cursor).aggregate(
        count=Count("pk"), tokens=Sum("tokens"), chars=Sum("chars")
    )
    count, tokens, chars = sums["count"], sums["tokens"] or 0, sums["chars"] or 0
    stored = (state.covered_messages, state.covered_tokens, state.covered_chars)
    if (count, tokens, chars) == stored:
        return None
    return Finding(
        code="covered_sums_off",
        text=f"The state says that {plural(state.covered_messages, 'message')} with "
        f"{plural(state.covered_tokens, 'token')} and "
        f"{plural(state.covered_chars, 'character')} stand before the cursor; there are {count:,} "
        f"with {tokens:,} and {chars:,}. Triggers fire too early or too late.",
        remedy="They are counted again.",
        repair=partial(put_covered_sums_right, branch),
        session=branch.session_id,
        branch=branch.pk,
    )


def _behind(line: BranchPath, state: CompactionState) -> Iterator[Finding]:
    """Yield a branch whose own newest summary ends behind the cursor, so that it is not sent.

    A summary of a parent may: the fork has not taken it over.
    """
    branch = line.branch
    own = SessionSummary.objects.filter(
        branch=branch,
        status=SessionSummary.Status.ACTIVE,
        kind=SessionSummary.Kind.COMPACTION,
        covers_through__gt=state.cursor,
    )
    newest = own.order_by("-covers_through").values_list("pk", flat=True).first()
    if newest is None:
        return
    yield Finding(
        code="cursor_behind",
        text="The cursor stands before the end of the branch's own newest summary: the summary is "
        "not sent, and its messages are summarised twice.",
        remedy="The cursor is put to where the summaries reach.",
        repair=partial(put_cursor_right, branch),
        session=branch.session_id,
        branch=branch.pk,
        summary=newest,
    )


def check_leases(session: Session, lines: Sequence[BranchPath]) -> Iterator[Finding]:
    """Yield the leases whose time is over. Nobody waits for them, but their holders are gone.

    Leases count by the database's clock.
    """
    turn = Session.objects.filter(pk=session.pk, turn_expires_at__lt=Now())
    if session.turn_expires_at is not None and turn.exists():
        yield Finding(
            code="turn_lease_expired",
            text=f"A turn that had time until {session.turn_expires_at:%Y-%m-%d %H:%M:%S} UTC "
            "never gave its lease back: its process died.",
            remedy="The lease is freed; the next turn would take it, too.",
            session=session.pk,
            repair=partial(free_turn, session),
        )
    held = [line.state for line in lines if line.state and line.state.lease_owner is not None]
    over = set(
        CompactionState.objects.filter(
            pk__in=[state.pk for state in held], lease_expires_at__lt=Now()
        ).values_list("pk", flat=True)
    )
    for state in held:
        if state.lease_expires_at is None:
            text = "The branch's lease has an owner and no end: nobody could ever compact it again."
        elif state.pk in over:
            text = (
                f"The branch's lease ran out at {state.lease_expires_at:%Y-%m-%d %H:%M:%S} UTC: "
                "the worker that held it is gone."
            )
        else:
            continue
        yield Finding(
            code="lease_expired",
            text=text,
            remedy="The lease is freed.",
            session=session.pk,
            branch=state.pk,
            repair=partial(free_lease, state),
        )


Status = CompactionRun.Status


def check_runs(session: Session) -> Iterator[Finding]:
    """Yield a session's unfinished runs; only one that says it works without a worker is wrong."""
    now = timezone.now()
    runs = CompactionRun.objects.filter(session=session)
    rows = list(runs.filter(status__in=[Status.QUEUED, Status.RUNNING]).order_by("created_at"))
    if not rows:
        return
    # The sweep brings with it what it looks after; most sessions have no such run.
    from compaction.runs.sweep import dead_runs
    from compaction.runs.takeover import restart_run

    dead = {run.pk: run for run in dead_runs(now).filter(session=session)}
    for run in rows:
        if run.pk in dead:
            yield _stuck(run, partial(restart_run, dead[run.pk]))
        elif run.status == Status.RUNNING and (run.worker is None or run.started_at is None):
            yield _stuck(run, partial(end_run, run))
        elif run.status == Status.RUNNING:
            yield _note(run, "run_working", "A run works on the branch now.")
        elif run.created_at < now - timedelta(seconds=compaction_settings.queued_run_seconds):
            yield _waits(run, now)


def _stuck(run: CompactionRun, repair: Callable[[], object]) -> Finding:
    return Finding(
        code="run_stuck",
        text="The run says that it works, and no worker holds its branch: its process died.",
        remedy="It is marked as interrupted and, unless its workers keep dying, started again.",
        session=run.session_id,
        branch=run.branch_id,
        run=run.pk,
        repair=repair,
    )


def _waits(run: CompactionRun, now: datetime) -> Finding:
    minutes = int((now - run.created_at).total_seconds() // 60)
    return _note(
        run,
        "run_waits",
        f"The run has waited for {plural(minutes, 'minute')}: the workers are busy, none is there, "
        "or the queue lost it.",
        remedy="It is delivered once more; where it was not lost, that changes nothing.",
        repair=partial(enqueue_run, run.pk),
    )


def _note(
    run: CompactionRun,
    code: str,
    text: str,
    *,
    remedy: str = NOTHING,
    repair: Callable[[], object] | None = None,
) -> Finding:
    return Finding(
        code=code,
        text=text,
        severity=Severity.NOTE,
        remedy=remedy,
        session=run.session_id,
        branch=run.branch_id,
        run=run.pk,
        repair=repair,
    )


def check_listed_size(session: Session) -> Iterator[Finding]:
    """Yield whether lists show another size of the next request than it has, as a note.

    Each answer notes it anew; sessions that had none since frames count, or since what a message
    takes was counted again, show what was counted then.
    """
    if session.active_branch_id is None:
        # Of that check_active_branch tells.
        return
    try:
        snapshot = snapshot_of(session)
        size = request_before(snapshot)
        if not _is_off(session, snapshot, size):
            return
        # A limit may leave messages out of it, and results of tools are cut: only now all is read.
        size = _size_as_sent(snapshot)
    except UnknownModelError:
        # Nobody can tell how that one counts.
        return
    if _is_off(session, snapshot, size):
        yield Finding(
            code="listed_size_off",
            text=f"Lists show {session.request_tokens:,} tokens for the next request, which takes "
            f"{size:,}: it was counted in another way, or something was left out of the last one.",
            severity=Severity.NOTE,
            remedy="They show what it takes; the next answer would see to that, too.",
            session=session.pk,
            branch=snapshot.branch.pk,
            repair=partial(_list_size, session),
        )


def _is_off(session: Session, snapshot: BranchSnapshot, size: int) -> bool:
    whole = snapshot.model.context_window
    return abs(size - session.request_tokens) > LISTED_SHARE * (whole if whole > 0 else size)


def _size_as_sent(snapshot: BranchSnapshot) -> int:
    """Return the tokens of the next request, put together as it would be sent."""
    return sendable(bounded(snapshot)).account.used


def _list_size(session: Session) -> None:
    snapshot = snapshot_of(session)
    set_request_tokens(snapshot.branch.pk, _size_as_sent(snapshot))
