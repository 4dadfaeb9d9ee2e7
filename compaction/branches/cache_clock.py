"""The clock of a branch: when the server forgets the prompt of its last request.

One column says it (`cache_expires_at`), so that there is one timer a branch: a newer request moves
it, and it goes with its branch. It is noted when a turn has ended, in the UPDATE that says when the
sweep looks again; compaction.runs.scheduling writes it, compaction.runs.sweep looks.
"""

from __future__ import annotations

import math
import time
from datetime import datetime, timedelta
from typing import Any

from chatapp.database import database_now
from chatapp.models import Session
from compaction.engine.parameters import Profile
from compaction.engine.policy.cache_clock import has_clock, lead_ms
from compaction.models import CompactionState

_MILLISECOND = timedelta(milliseconds=1)


def note_request(state: CompactionState, profile: Profile, sent: float | None) -> None:
    """Have the state say when the prompt expires of a request that was sent just now.

    `sent` is when, by time.monotonic(). Nothing is stored here, and nothing read without a clock.
    """
    if sent is None or not has_clock(profile):
        return
    ago = timedelta(seconds=max(0.0, time.monotonic() - sent))
    state.cache_expires_at = database_now() - ago + profile.cache_ttl_ms * _MILLISECOND


def without_clock(state: CompactionState) -> CompactionState:
    """Return the state as a request sees it that is about to go out: it starts the time anew."""
    state.cache_expires_at = None
    return state


def age_ms(state: CompactionState, profile: Profile, session: Session) -> int | None:
    """Return how long ago the request was sent whose prompt is kept; None where none is known.

    While a turn of the session is under way none is: its own request starts the time anew.
    """
    expires = state.cache_expires_at
    if expires is None or not has_clock(profile):
        return None
    now = database_now()
    if session.turn_expires_at is not None and session.turn_expires_at > now:
        return None
    return profile.cache_ttl_ms - (expires - now) // _MILLISECOND


def fires_at(state: CompactionState, profile: Profile) -> datetime | None:
    """Return when a run is due before the cache expires; None where no clock runs.

    A clock that was set back would have it run at some time that means nothing.
    """
    expires = state.cache_expires_at
    if expires is None or not has_clock(profile):
        return None
    if expires - database_now() > profile.cache_ttl_ms * _MILLISECOND:
        return None
    return expires - lead_ms(profile) * _MILLISECOND


def clock_facts(state: CompactionState, profile: Profile) -> dict[str, Any] | None:
    """Return in seconds how far away both moments are, 0 for what has come; None without a clock.

    `fires_in_seconds` is when a run is due over enough characters, `expires_in_seconds` when the
    server forgets the prompt.
    """
    fires, expires = fires_at(state, profile), state.cache_expires_at
    if fires is None or expires is None:
        return None
    now = database_now()
    return {
        "expires_at": expires,
        "fires_in_seconds": _seconds(fires - now),
        "expires_in_seconds": _seconds(expires - now),
    }


def _seconds(left: timedelta) -> int:
    return max(0, math.ceil(left.total_seconds()))
