"""The lease of a branch: one worker at a time, by conditional UPDATE, expiring.

Why: docs/decisions/0005-leases-by-the-databases-clock.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Coalesce, Now
from django.dispatch import Signal

from chatapp.compiled import CompiledInsert, compiled_read
from chatapp.database import again_if_cut, database_now
from chatapp.models import Branch, Message
from chatapp.round_trips import Statement
from chatapp.selectors import PinnedSums, has_ancestors, own_pinned_sums, placeholders
from chatapp.transcript import lock_some_branches
from compaction.branches.coverage import Coverage, coverage_of
from compaction.branches.holds import inherited
from compaction.conf import compaction_settings
from compaction.errors import BranchBusyError, LostRaceError
from compaction.events import event
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.models.state import KnownToRun
from compaction.models.summaries import INSTRUCTED, NEWEST_VERSION
from compaction.profiles import in_force_of
from compaction.selectors import bare, passed_over_behind, summaries_of, waiting_for


def _of_later_program(session: str) -> Exists:
    """Return whether a later program wrote a summary of the session that a column names."""
    return Exists(
        SessionSummary.objects.filter(
            session=OuterRef(session),
            status=SessionSummary.Status.ACTIVE,
            format_version__gt=NEWEST_VERSION,
        )
    )


def state_of(branch: Branch, found: Sequence[Any] | None = None) -> CompactionState:
    """Return the branch's state with the branch's newest sums; one never stored is worked out.

    A new branch starts where the summaries of its path reach, with its parent's profile and hold.
    This only reads; `ensure_state` stores. A cursor behind the last message (a restored backup)
    would hide everything: it counts as standing where the summaries reach. So does one that rests
    on summaries of a later program (after a rollback), which nobody here can read. `found` is what
    asked_state has just found.
    """
    rows = asked_state(branch).run() if found is None else found
    return _as_found(rows) or _worked_out(branch)


def asked_state(branch: Branch, *, for_run: bool = False) -> Statement[list[Any]]:
    """Return the read that state_of begins with, for ensure_state.

    `for_run` asks in the same statement for what a run would ask one by one (KnownToRun). Whoever
    holds the lease may rely on it. Where the lease is taken only afterwards (acquire_as_read), a
    draft may have come between: it does not continue the summary that is stored then, and is
    discarded where it would be published.
    """
    is_own = not has_ancestors(branch)
    return _stored.asked(branch=branch.pk, is_own=is_own, for_run=for_run, most=1)


def _as_found(rows: Sequence[Any]) -> CompactionState | None:
    for found in rows:
        if hasattr(found, "own_pins"):
            found.pinned_sums = PinnedSums(found.own_pins, found.own_pinned_tokens)
            found.has_pins_behind = found.pins_wait
        found.has_waiting_run = found.run_waits
        if hasattr(found, "draft_waits"):
            found.known_to_run = _known_to_run(found)
        state = found if _is_in_range(found) else _put_in_range(found)
        return _without_later(state) if found.is_ahead else state
    return None


def _known_to_run(found: Any) -> KnownToRun:
    return KnownToRun(
        has_draft=found.draft_waits,
        has_instructions=found.is_instructed,
        others_wait=found.others_wait,
        profile_in_force=found.counting_profile,
        has_bare_placeholder=getattr(found, "is_marked", None),
    )


def _worked_out(branch: Branch) -> CompactionState:
    """Return the state of a branch that has none stored."""
    parent = None
    if branch.parent_id is not None:
        parent = CompactionState.objects.filter(pk=branch.parent_id).first()
    name, is_own = parent.profile if parent else "", not has_ancestors(branch)
    asked = _asked_by_run(is_own=is_own, session="session", profile=Value(name))
    if is_own:
        asked |= {"pins_wait": _pins_wait(branch="pk", cursor=0)}
    row: Any = Branch.objects.annotate(
        is_ahead=_of_later_program("session"),
        reach=Subquery(summaries_of(branch).values("covers_through")[:1]),
        **asked | {"is_marked": Exists(bare(placeholders(branch)))},
    ).get(pk=branch.pk)
    reach = coverage_of(branch) if row.reach or row.is_marked else Coverage()
    state = CompactionState(
        branch=row,
        **reach.as_columns(),
        **inherited(parent, row, cursor=reach.cursor),
        profile=name,
    )
    state.stored_cursor, state.known_to_run = state.cursor, _known_to_run(row)
    state.has_pins_behind = getattr(row, "pins_wait", None)
    if not state.cursor:
        state.pinned_sums = PinnedSums(0, 0)
    return _without_later(state) if row.is_ahead else state


@compiled_read
def _stored(*, branch: UUID, is_own: bool, for_run: bool) -> QuerySet[Any]:
    """Return a branch's state; with the sums of its pins, too, where all of them are its own."""
    states = CompactionState.objects.select_related("branch").filter(pk=branch)
    return states.annotate(**_told_of_state(is_own=is_own, for_run=for_run))


def _told_of_state(
    *, is_own: bool, for_run: bool, branch: str = "pk", state: str = ""
) -> dict[str, Any]:
    """Return what is told with a state, as columns of a query of states, or of one that names the
    column of the branch and the way to the state.
    """
    waiting = CompactionRun.objects.filter(
        branch=OuterRef(branch),
        status=CompactionRun.Status.QUEUED,
        trigger=CompactionRun.Trigger.PROACTIVE,
    )
    told: dict[str, Any] = {
        "is_ahead": _of_later_program("branch__session"),
        "run_waits": Exists(waiting),
    }
    cursor = OuterRef(f"{state}cursor")
    if for_run:
        profile = OuterRef(f"{state}profile")
        told |= _asked_by_run(is_own=is_own, branch=branch, profile=profile)
    if is_own:
        pins = own_pinned_sums(OuterRef(branch), through=cursor)
        told["own_pins"] = Coalesce(Subquery(pins.values("count")), 0)
        told["own_pinned_tokens"] = Coalesce(Subquery(pins.values("total")), 0)
        told["pins_wait"] = _pins_wait(branch=branch, cursor=cursor)
    return told


# What is only told where all pins of a path are the branch's own.
_OF_OWN_PINS = ("own_pins", "own_pinned_tokens", "pins_wait", "is_marked")
_TOLD = ("is_ahead", "run_waits", "draft_waits", "is_instructed", "others_wait", "counting_profile")


def with_states(runs: QuerySet[CompactionRun]) -> QuerySet[Any]:
    """Return runs with what state_of_run takes, for who reads a run anyway."""
    told = _told_of_state(
        is_own=True, for_run=True, branch="branch_id", state="branch__compaction_state__"
    )
    return runs.select_related("branch__compaction_state").annotate(**told)


def state_of_run(run: Any) -> CompactionState | None:
    """Return the state of a run's branch as with_states read it; None where none is stored.

    Take the lease by acquire_as_read before anything is built on it.
    """
    state = getattr(run.branch, "compaction_state", None)
    if state is None:
        return None
    names = _TOLD if has_ancestors(run.branch) else (*_TOLD, *_OF_OWN_PINS)
    for name in names:
        setattr(state, name, getattr(run, name))
    return _as_found([state])


def _asked_by_run(
    *,
    is_own: bool,
    session: str = "branch__session",
    branch: str = "pk",
    profile: Any,
) -> dict[str, Exists | Subquery]:
    """Return what KnownToRun says, as columns of the query of a state, or of a branch without."""
    summaries = SessionSummary.objects.all()
    drafts = summaries.filter(branch=OuterRef(branch), status=SessionSummary.Status.DRAFT)
    asked = {
        "draft_waits": Exists(drafts),
        "is_instructed": Exists(summaries.filter(INSTRUCTED, session=OuterRef(session))),
        "others_wait": Exists(waiting_for(OuterRef(branch))),
        "counting_profile": Subquery(in_force_of(profile).values("pk")[:1]),
    }
    if not is_own:
        return asked
    marks = bare(Message.objects.filter(branch=OuterRef(branch), kind=Message.Kind.PLACEHOLDER))
    return asked | {"is_marked": Exists(marks)}


def _pins_wait(*, branch: str, cursor: Any) -> Exists:
    """Return whether a branch's own message behind the cursor is pinned."""
    own = Message.objects.filter(branch=OuterRef(branch), kind__in=Message.SPOKEN)
    return Exists(own.filter(position__gt=cursor, pinned=True))


def ensure_state(
    branch: Branch, found: Sequence[Any] | None = None, *, owner: UUID | None = None
) -> CompactionState:
    """Return the branch's state, stored, so that nothing has to be worked out again.

    `found` is what asked_state has just found. Where there was none, `owner` has the lease of what
    is stored then, as acquire_as_read tells.
    """
    state = _as_found(asked_state(branch).run() if found is None else found)
    if state is None:
        return _stored_anew(branch, owner)
    if state.cursor != (stored := state.stored_cursor):
        event(
            "cursor_put_right",
            session=branch.session_id,
            branch=branch,
            stored=stored,
            cursor=state.cursor,
        )
        CompactionState.objects.filter(pk=state.pk, cursor=stored).update(
            cursor=state.cursor,
            covered_messages=state.covered_messages,
            covered_tokens=state.covered_tokens,
            covered_chars=state.covered_chars,
        )
    return state


def _stored_anew(branch: Branch, owner: UUID | None) -> CompactionState:
    """Work out the state of a branch that has none, and store it."""
    try:
        with transaction.atomic():
            # Where a summary is being taken back meanwhile, this waits for how it ends.
            lock_some_branches(branch.session_id)
            state = _worked_out(branch)
            is_ours = _is_inserted(state, owner)
    except IntegrityError:
        is_ours = False
    if not is_ours:
        # Somebody was quicker, and may have changed it since.
        return state_of(branch)
    state.stored_cursor = state.cursor
    return state


_insert_states = CompiledInsert(CompactionState, ignore_conflicts=True)


def _is_inserted(state: CompactionState, owner: UUID | None) -> bool:
    """Store a new state, which `owner` has the lease of; whether nobody had stored one.

    With an owner, IntegrityError says that somebody had.
    """
    if owner is None:
        return bool(_insert_states([state]))
    state.lease_owner, state.lease_expires_at = owner, _expiry()
    state.save(force_insert=True)
    state.lease_expires_at = after_lease()
    return True


def _without_later(state: CompactionState) -> CompactionState:
    """Return the state with the cursor where summaries reach that this program can read."""
    reach = coverage_of(state.branch)
    if reach.cursor < state.cursor:
        for column, value in reach.as_columns().items():
            setattr(state, column, value)
    state.passes_over = passed_over_behind(state.branch, state.cursor)
    return state


def _is_in_range(state: CompactionState) -> bool:
    return 0 <= state.cursor <= state.branch.head_position


def _put_in_range(state: CompactionState) -> CompactionState:
    """Return the state with the cursor where summaries reach, if that is on the branch."""
    reach = coverage_of(state.branch)
    if reach.cursor > state.branch.head_position:
        reach = Coverage()
    for column, value in reach.as_columns().items():
        setattr(state, column, value)
    return state


# Sent with `lease` when a branch is taken from an owner whose time was over.
lease_stolen = Signal()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to compact one branch, held by `owner` until it is released or expires."""

    branch_id: UUID
    owner: UUID
    # Whose time was over when this one took the branch.
    former: UUID | None = None

    @classmethod
    def acquire_or_steal(cls, branch_id: UUID, owner: UUID) -> Lease:
        """Take the lease if it is free or has expired; raise BranchBusyError otherwise.

        The former owner's run can no longer store anything. `lease_stolen` is sent in the same
        transaction, so that the dead run is marked and its successor queued together: nobody would
        find one without the other. A branch that nobody holds is taken by one UPDATE.
        """
        free = CompactionState.objects.filter(pk=branch_id, lease_owner__isnull=True)
        if free.update(lease_owner=owner, lease_expires_at=_expiry()):
            return cls(branch_id=branch_id, owner=owner)
        with transaction.atomic():
            lease = cls._take(branch_id, owner)
            if lease.former is not None:
                lease_stolen.send(sender=cls, lease=lease)
        return lease

    @classmethod
    def acquire_as_read(cls, state: CompactionState, owner: UUID) -> Lease | None:
        """Take the lease of a branch that nobody holds, if its state is still as it was read.

        This saves reading it again; where ensure_state has taken the lease already, nothing is
        asked. None if somebody was quicker, or has changed anything.
        """
        if state.lease_owner == owner:
            return cls(branch_id=state.pk, owner=owner)
        columns = [field.attname for field in CompactionState._meta.concrete_fields]
        read = {name: getattr(state, name) for name in columns}
        unchanged = {
            f"{name}__isnull" if value is None else name: True if value is None else value
            for name, value in read.items()
        }
        rows = CompactionState.objects.filter(**unchanged)
        is_free = state.lease_owner is None
        if not (is_free and rows.update(lease_owner=owner, lease_expires_at=_expiry())):
            return None
        return cls(branch_id=state.pk, owner=owner)

    @classmethod
    def _take(cls, branch_id: UUID, owner: UUID) -> Lease:
        rows = CompactionState.objects.filter(pk=branch_id)
        former = rows.values_list("lease_owner", flat=True).first()
        free = Q(lease_owner__isnull=True) | Q(lease_expires_at__lt=Now())
        same = Q(lease_owner=former) if former else Q(lease_owner__isnull=True)
        taken = rows.filter(free & same).update(lease_owner=owner, lease_expires_at=_expiry())
        if not taken:
            raise BranchBusyError(
                "Another run is compacting this branch; it will look again after."
            )
        return cls(branch_id=branch_id, owner=owner, former=former)

    def renew(self) -> None:
        """Hold the lease for another period; raise LostRaceError when it is no longer ours."""
        kept = CompactionState.objects.filter(pk=self.branch_id, lease_owner=self.owner).update(
            lease_expires_at=_expiry()
        )
        if not kept:
            raise LostRaceError("The lease ran out and another worker took the branch.")

    def is_live(self) -> Exists:
        """Return the condition that the branch is ours, and that our time is not over, for an
        UPDATE of other rows.
        """
        states = CompactionState.objects.filter(pk=self.branch_id, lease_owner=self.owner)
        return Exists(states.filter(lease_expires_at__gt=Now()))

    def release_if(self, condition: Q, changes: dict[str, Any]) -> bool:
        """Free the branch with some changes, if it is still ours and all is as the condition says.

        Return whether that was done.
        """
        held = CompactionState.objects.filter(condition, pk=self.branch_id, lease_owner=self.owner)
        return bool(held.update(**changes, lease_owner=None, lease_expires_at=None))

    def release(self) -> None:
        """Free the branch, if it is still ours."""
        held = CompactionState.objects.filter(pk=self.branch_id, lease_owner=self.owner)
        again_if_cut(lambda: held.update(lease_owner=None, lease_expires_at=None))


@contextmanager
def held(branch_id: UUID) -> Iterator[Lease]:
    """Hold a branch for something else than a run; raise BranchBusyError while one works on it.

    Who had it before and is dead has a run that would not go on otherwise.
    """
    lease = Lease.acquire_or_steal(branch_id, uuid4())
    try:
        yield lease
    finally:
        lease.release()


def lock_state(branch_id: UUID) -> None:
    """Hold a branch's state until the transaction ends.

    Whoever changes a run and its branch's state takes the state first, as those do that store a
    summary: otherwise two of them could wait for each other.
    """
    list(CompactionState.objects.select_for_update().filter(pk=branch_id).values_list("pk"))


def after_lease() -> datetime:
    """Return when the sweep should look at a branch if the worker that has it now dies."""
    return database_now() + timedelta(seconds=compaction_settings.lease_seconds)


def _expiry() -> CombinedExpression:
    """Return when a lease ends that is taken now, by the database's clock: machines' may differ."""
    return Now() + timedelta(seconds=compaction_settings.lease_seconds)
