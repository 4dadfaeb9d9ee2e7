"""The lease of a session's turn: one turn at a time, by conditional UPDATE, expiring."""

from __future__ import annotations

import time
import uuid
from datetime import timedelta

from django.db.models import Q
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Now

from chatapp.conf import chatapp_settings
from chatapp.connections import again_if_cut
from chatapp.models import Session

LEASE_SLACK_SECONDS = 30
# A lease that was taken this short ago still has more than a turn's whole budget left.
FRESH_LEASE_SECONDS = LEASE_SLACK_SECONDS / 3


class TurnInProgressError(Exception):
    """Another turn of this session is running."""


class TurnLease:
    """The right to run a session's turn: taken by a conditional UPDATE, given back or expiring."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._owner = uuid.uuid4()
        self._renewed = 0.0

    def take(self) -> None:
        """Take the lease; raise TurnInProgressError when another turn holds it."""
        taken = Session.objects.filter(
            Q(turn_expires_at__isnull=True) | Q(turn_expires_at__lt=Now()),
            pk=self._session.pk,
        ).update(turn_owner=self._owner, turn_expires_at=_lease_end())
        if not taken:
            raise TurnInProgressError(
                "A turn of this session is running. Wait for its answer, then send the next one."
            )
        self._renewed = time.monotonic()

    def renew(self) -> None:
        """Start the lease's time again; raise TurnInProgressError when another turn has it now."""
        held = Session.objects.filter(pk=self._session.pk, turn_owner=self._owner).update(
            turn_expires_at=_lease_end()
        )
        if not held:
            raise TurnInProgressError("Another turn of this session was started meanwhile.")
        self._renewed = time.monotonic()

    def keep(self) -> None:
        """Renew the lease unless it is so fresh that it outlasts the turn's time budget anyway."""
        if time.monotonic() - self._renewed > FRESH_LEASE_SECONDS:
            self.renew()

    def give_back(self) -> None:
        """Free the session, if this lease still holds it."""
        held = Session.objects.filter(pk=self._session.pk, turn_owner=self._owner)
        again_if_cut(lambda: held.update(turn_owner=None, turn_expires_at=None))


def _lease_end() -> CombinedExpression:
    """Return when a lease ends that is taken now, by the database's clock: machines' may differ."""
    return Now() + timedelta(seconds=chatapp_settings.turn_seconds + LEASE_SLACK_SECONDS)
