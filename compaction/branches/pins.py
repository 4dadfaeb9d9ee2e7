"""The share of the window that pinned messages are meant to take (pinned_share).

It hides nothing: what is pinned goes out all the same, and somebody is told. What counts is what
is sent for its pin alone; a pinned message that nothing summarises yet would be sent anyway.
"""

from __future__ import annotations

import math

from django.db.models import Q, Sum

from chatapp.models import Message
from chatapp.selectors import pinned_messages
from compaction.branches.snapshot import BranchSnapshot

# The code of the incident.
PINS_OVER_SHARE = "pins_over_share"


def share_of_pins(snapshot: BranchSnapshot) -> int | None:
    """Return the tokens that pins may take, as we count; None where no window is known."""
    window = snapshot.model.context_window
    if window <= 0:
        return None
    return math.floor(snapshot.profile.pinned_share * window / snapshot.model.scale)


def excess_now(snapshot: BranchSnapshot, tokens: int) -> str:
    """Return a sentence where a request's pins take more than their share; or an empty text."""
    if not _is_over(snapshot, tokens):
        return ""
    return f"Pinned messages take {tokens:,} tokens of each request{_than_share(snapshot, tokens)}"


def warning_of(snapshot: BranchSnapshot) -> str:
    """Return the same for the pins as they stand, or for the day when all of them are summarised.

    One query, whatever they are and say.
    """
    cursor = snapshot.state.cursor
    pins = pinned_messages(snapshot.branch).exclude(role=Message.Role.SYSTEM).order_by()
    found = pins.aggregate(
        now=Sum("tokens", filter=Q(position__lte=cursor)), all=Sum("tokens", default=0)
    )
    now, later = found["now"] or 0, found["all"]
    if _is_over(snapshot, now) or not _is_over(snapshot, later):
        return excess_now(snapshot, now)
    return (
        f"Pinned messages will take {later:,} tokens of each request when they are summarised"
        f"{_than_share(snapshot, later)}"
    )


def _is_over(snapshot: BranchSnapshot, tokens: int) -> bool:
    share = share_of_pins(snapshot)
    return share is not None and tokens > share


def _than_share(snapshot: BranchSnapshot, tokens: int) -> str:
    share = share_of_pins(snapshot) or 0
    return (
        f", {tokens - share:,} more than their share of the window ({share:,}: pinned_share is "
        f"{snapshot.profile.pinned_share:g}). They are sent all the same; unpinning some makes "
        "room."
    )
