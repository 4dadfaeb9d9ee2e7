"""Leases that outlived their holder, of a session's turn and of its branches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from django.db.models.functions import Now

from chatapp.models import Session
from compaction.doctor.findings import Finding
from compaction.doctor.lines import Line
from compaction.models import CompactionState
from compaction.services.repair import free_lease, free_turn


def check_leases(session: Session, lines: Sequence[Line]) -> Iterator[Finding]:
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
