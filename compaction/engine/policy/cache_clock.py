"""The clock of a server's prompt cache: how long until a run should begin, before it expires.

A server keeps the prompt of a request for a while (`cache_ttl_ms`). What is summarised shortly
before it forgets costs least: the next request would have paid for the whole history anyway, and
pays for a short one. All times are milliseconds; nobody here reads a clock.
"""

from __future__ import annotations

from compaction.engine.parameters import Profile

# A queue looks at its schedules every 30 seconds: what is due may be seen that much later.
LOOK_MS = 30_000


def delay_ms(*, ttl: int, age: int, buffer: int) -> int | None:
    """Return how long to wait, 0 for at once; None where nothing is to be waited for.

    `age` is how long ago the request was sent. Without a ttl there is no clock. An age below 0
    comes of a clock that was set back: then nobody knows, and nothing is done.
    """
    if ttl <= 0 or age < 0:
        return None
    return max(0, ttl - age - buffer)


def has_clock(profile: Profile) -> bool:
    """Whether a profile has runs made before the cache expires."""
    wants = profile.trigger_on_history_size_chars_when_cache_expiring > 0
    return profile.enabled and wants and profile.cache_ttl_ms > 0


def lead_ms(profile: Profile) -> int:
    """Return how long before the cache expires a run is due.

    That is the profile's buffer, and as much earlier as a look at it may come late. Where the
    cache does not live that long, half of what is left of it.
    """
    ttl, buffer = profile.cache_ttl_ms, profile.buffer_time_before_cache_expiration_ms
    return buffer + min(LOOK_MS, max(0, ttl - buffer) // 2)


def run_delay_ms(profile: Profile, age: int | None) -> int | None:
    """Return how long until a profile's run is due, 0 for now; None where there is no clock.

    `age` is None where no request is known whose prompt a server keeps.
    """
    if age is None or not has_clock(profile):
        return None
    return delay_ms(ttl=profile.cache_ttl_ms, age=age, buffer=lead_ms(profile))


def waiting_words(profile: Profile, age: int | None) -> str:
    """Return what the clock is waited for, as a sentence; empty where its time has come."""
    delay = run_delay_ms(profile, age)
    if delay is None:
        return "It waits for the next request: none is known whose prompt is still kept."
    if delay == 0:
        return ""
    # What is still to come is never 0 seconds away.
    seconds = -(-delay // 1000)
    noun = "second" if seconds == 1 else "seconds"
    return f"It waits until the prompt cache is about to expire: {seconds:,} {noun}."
