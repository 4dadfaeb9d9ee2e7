"""The right to run a session's turn: taken by a conditional UPDATE, kept by beats, or expiring.

A process that dies stops beating, so its sessions are free again within a lease's time, however
long its turns might have taken. Times are the database's: machines' clocks may differ.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from contextlib import nullcontext, suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import DatabaseError, Error, connection, transaction
from django.db.models import Case, Count, F, Q, QuerySet, Subquery, Value, When
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Coalesce, Now
from django.db.models.lookups import LessThan

from chatapp.compiled import compiled_read, compiled_update
from chatapp.conf import chatapp_settings
from chatapp.database import again_if_cut, close_connection
from chatapp.formatting import plural
from chatapp.models import Session
from chatapp.round_trips import Statement, together
from chatapp.titles import told_columns
from chatapp.transcript.placing import SessionMark

LEASE_SECONDS = 60
BEAT_SECONDS = 15
SLACK_SECONDS = 30
"""A turn that goes on for longer than it may, and this, is not kept alive any more."""
# A lease that was renewed this short ago outlives the next beats anyway.
FRESH_LEASE_SECONDS = 10

logger = logging.getLogger(__name__)


class TurnInProgressError(Exception):
    """Another turn of this session is running; `retry_after` are seconds after which to ask."""

    def __init__(self, sentence: str, *, retry_after: int = 2) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class TooManyTurnsError(Exception):
    """The owner has as many turns under way as may be; `retry_after` are seconds."""

    retry_after = 5


class TurnLease:
    """The lease of one session's turn."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.owner = uuid.uuid4()
        # Whether an UPDATE took it that nothing gave back.
        self.is_held = False
        # Whether one was sent of which nobody has heard yet whether it was committed.
        self._is_asked_for = False
        # When the UPDATE was sent: behind a lock, that is the time which the database goes by.
        self._renewed = 0.0

    def take(self) -> None:
        """Take the lease; raise TurnInProgressError when another turn holds it.

        Raises TooManyTurnsError while the owner has TURNS_PER_OWNER turns under way.
        """
        waits = connection.features.has_select_for_update
        self.asks(True)
        with transaction.atomic() if waits else nullcontext():
            taking = _take.asked(
                session=self.session.pk,
                user=self.session.owner_id,
                owner=self.owner,
                most=chatapp_settings.turns_per_owner,
            )
            *_, taken = together(*_waiting_for_others_of(self.session.owner_id), taking, ends=True)
        self.asks(False)
        if not taken:
            raise self.refusal()
        self.is_held = True
        _beats.add(self.owner)

    def taking(self) -> SessionMark:
        """Return what takes the lease with the messages that come in: one commit for both.

        `begin` follows the commit. The mark raises as `take` does; then nothing is stored.
        """
        return _Taking(self)

    def forget(self) -> None:
        """Renew it no more: it is given back."""
        _beats.remove(self.owner)
        self.is_held = self._is_asked_for = False

    def begin(self) -> None:
        """Keep the lease alive that a transaction took which is over; take it where none did."""
        if self.is_held:
            _beats.add(self.owner)
        else:
            self.take()

    def asks(self, is_open: bool) -> None:
        """Note that the UPDATE that takes it goes out, or that its outcome is known."""
        self._is_asked_for = is_open
        if is_open:
            self._renewed = time.monotonic()

    def refusal(self) -> Exception:
        """Return why the lease could not be taken, to be raised."""
        held = Session.objects.filter(pk=self.session.pk, turn_expires_at__gte=Now())
        if held.exists() or not Session.objects.filter(pk=self.session.pk).exists():
            return TurnInProgressError(
                "A turn of this session is running. Wait for its answer, then send the next one."
            )
        limit = chatapp_settings.turns_per_owner
        return TooManyTurnsError(
            f"{plural(limit, 'turn')} of yours {'is' if limit == 1 else 'are'} under way, which is "
            "as many as may be at once. Wait for an answer, then send this again."
        )

    def renew(self) -> None:
        """Start the lease's time again; raise TurnInProgressError when another turn has it now."""
        sent = time.monotonic()
        if not _renew(session=self.session.pk, owner=self.owner):
            raise TurnInProgressError("Another turn of this session was started meanwhile.")
        self._renewed = sent

    def keep(self) -> None:
        """Renew the lease unless that was done just now; raise as `renew` does."""
        if time.monotonic() - self._renewed > FRESH_LEASE_SECONDS:
            self.renew()

    def give_back(self) -> None:
        """Free the session, if this lease still holds it, or may hold it for all that is known."""
        if self.is_held or self._is_asked_for:
            self.forget()
            again_if_cut(lambda: _give_back(session=self.session.pk, owner=self.owner))

    def give_back_if_possible(self) -> None:
        """Free the session where the database lets us; else the lease runs out by itself."""
        self.forget()
        with suppress(Error):
            _give_back(session=self.session.pk, owner=self.owner)


class _Taking(SessionMark):
    """Takes a lease in the UPDATE that tells of the messages which came in."""

    def __init__(self, lease: TurnLease) -> None:
        self._lease = lease

    def active(self, *, session: UUID, branch: UUID, **told: Any) -> list[Statement[Any]]:
        """Return what marks the session and takes the lease."""
        lease = self._lease
        lease.asks(True)
        user, most = lease.session.owner_id, chatapp_settings.turns_per_owner
        taking = _take_with.asked(
            session=session, branch=branch, user=user, owner=lease.owner, most=most, **told
        )
        return [*_waiting_for_others_of(user), taking]

    def elsewhere(self, *, session: UUID, now: datetime) -> None:
        """Take the lease of a session that went on in another branch, or whose turn runs."""
        self._lease.take()
        super().elsewhere(session=session, now=now)

    def stored(self, *, is_active: bool) -> None:
        """Have the lease know that it is held, where the transaction that took it is over."""
        self._lease.asks(False)
        self._lease.is_held |= is_active


class GivingBack(SessionMark):
    """Gives a lease back in the UPDATE that tells of the answer."""

    def __init__(self, lease: TurnLease) -> None:
        self._lease = lease

    def active(self, *, session: UUID, branch: UUID, **told: Any) -> list[Statement[Any]]:
        """Return what marks the session and frees it, unless its lease ran out: then it is another
        turn's.
        """
        owner = self._lease.owner
        return [_mark_and_free.asked(session=session, branch=branch, owner=owner, **told)]

    def stored(self, *, is_active: bool) -> None:
        """Have the lease know that it is given back, where the UPDATE did that."""
        if is_active:
            self._lease.forget()


def _waiting_for_others_of(owner_id: Any) -> list[Statement[Any]]:
    """Let an owner's turns take their leases one by one where writers do not wait by themselves.

    Each statement sees what was committed before it: several would count the same turns. The lock
    is held until the transaction ends, and taken behind that of a branch: who deletes an owner
    takes them in that order.
    """
    waits = connection.features.has_select_for_update
    return [_lock_owner.asked(owner=owner_id)] if waits else []


@compiled_read
def _lock_owner(*, owner: Any) -> QuerySet[Any, Any]:
    owners = get_user_model()._default_manager.select_for_update(no_key=True)
    return owners.filter(pk=owner).order_by().values_list("pk", flat=True)


@compiled_update
def _take(
    *, session: UUID, user: Any, owner: UUID, most: int
) -> tuple[QuerySet[Session], dict[str, Any]]:
    rows = Session.objects.filter(_is_free(user, most), pk=session)
    return rows, {"turn_owner": owner, "turn_expires_at": _lease_end()}


@compiled_update
def _take_with(
    *, session: UUID, branch: UUID, user: Any, owner: UUID, most: int, **told: Any
) -> tuple[QuerySet[Session], dict[str, Any]]:
    rows = Session.objects.filter(_is_free(user, most), pk=session, active_branch=branch)
    lease = {"turn_owner": owner, "turn_expires_at": _lease_end()}
    return rows, told_columns(**told) | lease


def _is_free(user: Any, most: int) -> Q:
    free = Q(turn_expires_at__isnull=True) | Q(turn_expires_at__lt=Now())
    return free & Q(LessThan(_under_way(user), most))


@compiled_update
def _mark_and_free(
    *, session: UUID, branch: UUID, owner: UUID, **told: Any
) -> tuple[QuerySet[Session], dict[str, Any]]:
    rows = Session.objects.filter(pk=session, active_branch=branch)
    mine = Q(turn_owner=owner)
    lease = {
        "turn_owner": Case(When(mine, then=None), default=F("turn_owner")),
        "turn_expires_at": Case(When(mine, then=None), default=F("turn_expires_at")),
    }
    return rows, told_columns(**told) | lease


@compiled_update
def _renew(*, session: UUID, owner: UUID) -> tuple[QuerySet[Session], dict[str, Any]]:
    rows = Session.objects.filter(pk=session, turn_owner=owner)
    return rows, {"turn_expires_at": _lease_end()}


@compiled_update
def _give_back(*, session: UUID, owner: UUID) -> tuple[QuerySet[Session], dict[str, Any]]:
    rows = Session.objects.filter(pk=session, turn_owner=owner)
    return rows, {"turn_owner": None, "turn_expires_at": None}


def _under_way(user: Any) -> Coalesce:
    """Return how many turns of an owner are under way, by the database."""
    running = Session.objects.filter(owner=user, turn_expires_at__gte=Now())
    counted = running.order_by().values("owner").annotate(count=Count("pk")).values("count")
    return Coalesce(Subquery(counted), Value(0))


def _lease_end() -> CombinedExpression:
    return Now() + timedelta(seconds=LEASE_SECONDS)


class _Beats:
    """One thread a process that renews all of its turns' leases, while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Until when the lease of each owner is renewed, by time.monotonic().
        self.owners: dict[uuid.UUID, float] = {}
        self._thread: threading.Thread | None = None
        self._never = threading.Event()

    def add(self, owner: uuid.UUID) -> None:
        """Renew the lease of that owner from now on."""
        with self._lock:
            longest = chatapp_settings.turn_seconds + SLACK_SECONDS
            self.owners[owner] = time.monotonic() + longest
            # A fork has the set, but not the thread.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="turn-beats", daemon=True)
                self._thread.start()

    def remove(self, owner: uuid.UUID) -> None:
        """Renew it no more."""
        with self._lock:
            self.owners.pop(owner, None)

    def _run(self) -> None:
        while True:
            self._never.wait(BEAT_SECONDS)
            with self._lock:
                now = time.monotonic()
                owners = [owner for owner, end in self.owners.items() if end > now]
                self.owners = {owner: self.owners[owner] for owner in owners}
                if not owners:
                    self._thread = None
                    return
            renew_all(owners)


def renew_all(owners: list[uuid.UUID]) -> None:
    """Renew the leases of these owners; what fails is tried again with the next beat."""
    try:
        Session.objects.filter(turn_owner__in=owners).update(turn_expires_at=_lease_end())
    except DatabaseError:
        logger.warning("The leases of %d turns could not be renewed.", len(owners), exc_info=True)
    finally:
        close_connection()


_beats = _Beats()
