"""Leases that outlived their holder, of a session's turn and of its branches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from django.utils import timezone

from chatapp.models import Session
from compaction.doctor.findings import Finding
from compaction.doctor.lines import Line
from compaction.services.repair import free_lease, free_turn


def check_leases(session: Session, lines: Sequence[Line]) -> Iterator[Finding]:
    """Yield the leases whose time is over. Nobody waits for them, but their holders are gone."""
    now = timezone.now()
    if session.turn_expires_at is not None and session.turn_expires_at < now:
        yield Finding(
            code="turn_lease_expired",
            text=f"A turn that had time until {session.turn_expires_at:%Y-%m-%d %H:%M:%S} UTC "
            "never gave its lease back: its process died.",
            remedy="The lease is freed; the next turn would take it, too.",
            session=session.pk,
            repair=partial(free_turn, session),
        )
    for line in lines:
        state = line.state
        if state is None or state.lease_owner is None:
            continue
        if state.lease_expires_at is None:
            text = "The branch's lease has an owner and no end: nobody could ever compact it again."
        elif state.lease_expires_at < now:
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
            branch=line.branch.pk,
            repair=partial(free_lease, state),
        )
