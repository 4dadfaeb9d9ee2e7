"""The right to run a session's turn: taken by a conditional UPDATE, kept by beats, or expiring.

A process that dies stops beating, so its sessions are free again within a lease's time, however
long its turns might have taken. Times are the database's: machines' clocks may differ.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.db import DatabaseError, connection, transaction
from django.db.models import Count, Q, Subquery, Value
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Coalesce, Now
from django.db.models.lookups import LessThan

from chatapp.conf import chatapp_settings
from chatapp.database import again_if_cut, release_connection
from chatapp.formatting import plural
from chatapp.models import Session

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
        self._session = session
        self._owner = uuid.uuid4()
        self._renewed = 0.0

    def take(self) -> None:
        """Take the lease; raise TurnInProgressError when another turn holds it.

        Raises TooManyTurnsError while the owner has TURNS_PER_OWNER turns under way.
        """
        with _one_at_a_time(self._session.owner_id):
            taken = Session.objects.filter(
                Q(turn_expires_at__isnull=True) | Q(turn_expires_at__lt=Now()),
                Q(LessThan(_under_way(self._session), chatapp_settings.turns_per_owner)),
                pk=self._session.pk,
            ).update(turn_owner=self._owner, turn_expires_at=_lease_end())
        if not taken:
            raise self._refusal()
        self._renewed = time.monotonic()
        _beats.add(self._owner)

    def _refusal(self) -> Exception:
        """Return why the lease could not be taken."""
        held = Session.objects.filter(pk=self._session.pk, turn_expires_at__gte=Now())
        if held.exists() or not Session.objects.filter(pk=self._session.pk).exists():
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
        held = Session.objects.filter(pk=self._session.pk, turn_owner=self._owner).update(
            turn_expires_at=_lease_end()
        )
        if not held:
            raise TurnInProgressError("Another turn of this session was started meanwhile.")
        self._renewed = time.monotonic()

    def keep(self) -> None:
        """Renew the lease unless that was done just now; raise as `renew` does."""
        if time.monotonic() - self._renewed > FRESH_LEASE_SECONDS:
            self.renew()

    def give_back(self) -> None:
        """Free the session, if this lease still holds it."""
        _beats.remove(self._owner)
        held = Session.objects.filter(pk=self._session.pk, turn_owner=self._owner)
        again_if_cut(lambda: held.update(turn_owner=None, turn_expires_at=None))


@contextmanager
def _one_at_a_time(owner_id: Any) -> Iterator[None]:
    """Let an owner's turns take their leases one by one where writers do not wait by themselves.

    Each statement sees what was committed before it: several would count the same turns.
    """
    if not connection.features.has_select_for_update:
        yield
        return
    with transaction.atomic():
        owners = get_user_model()._default_manager.select_for_update(no_key=True)
        owners.filter(pk=owner_id).values_list("pk").first()
        yield


def _under_way(session: Session) -> Coalesce:
    """Return how many turns of the session's owner are under way, by the database."""
    running = Session.objects.filter(owner=session.owner_id, turn_expires_at__gte=Now())
    counted = running.order_by().values("owner").annotate(count=Count("pk")).values("count")
    return Coalesce(Subquery(counted), Value(0))


def _lease_end() -> CombinedExpression:
    return Now() + timedelta(seconds=LEASE_SECONDS)


class _Beats:
    """One thread a process that renews all of its turns' leases, while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Until when the lease of each owner is renewed, by time.monotonic().
        self._owners: dict[uuid.UUID, float] = {}
        self._thread: threading.Thread | None = None
        self._never = threading.Event()

    def add(self, owner: uuid.UUID) -> None:
        """Renew the lease of that owner from now on."""
        with self._lock:
            longest = chatapp_settings.turn_seconds + SLACK_SECONDS
            self._owners[owner] = time.monotonic() + longest
            # A fork has the set, but not the thread.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="turn-beats", daemon=True)
                self._thread.start()

    def remove(self, owner: uuid.UUID) -> None:
        """Renew it no more."""
        with self._lock:
            self._owners.pop(owner, None)

    def _run(self) -> None:
        while True:
            self._never.wait(BEAT_SECONDS)
            with self._lock:
                now = time.monotonic()
                owners = [owner for owner, end in self._owners.items() if end > now]
                self._owners = {owner: self._owners[owner] for owner in owners}
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
        release_connection()


_beats = _Beats()
