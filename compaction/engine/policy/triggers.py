"""When a compaction is due: rules over numbers that are stored, never over the messages.

Each rule is a class, registered by its reason; `decide` asks them in the registry's order. The hard
limit comes first: it alone goes on until nothing is left out, and waits for no back-off. What is
due in the background makes no request wait, so it comes last: it would hide what cannot wait.
"""

from __future__ import annotations

import math
from typing import Any

from compaction.engine.parameters import Profile
from compaction.engine.policy.reasons import Reason
from compaction.engine.policy.window import ages, is_at_hard_limit, waiting_messages
from compaction.engine.registry import TRIGGERS
from compaction.engine.types import Decision, Facts


def decide(profile: Profile, facts: Facts) -> Decision | None:
    """Return why a compaction is due, or None; inline rules first."""
    if not profile.enabled:
        return None
    triggers = sorted(TRIGGERS.all(), key=lambda trigger: trigger.mode != "inline")
    for trigger in triggers:
        if trigger.is_due(profile, facts):
            return Decision(reason=trigger.reason, mode=trigger.mode)
    return None


def distances(profile: Profile, facts: Facts) -> list[dict[str, Any]]:
    """Return, for every rule in force, its limit and how far away it is (0: due)."""
    rules = []
    for trigger in TRIGGERS.all():
        found = trigger.distance(profile, facts)
        if found is not None:
            limit, now = found
            left = max(0, limit - now)
            rules.append({"reason": trigger.reason, "limit": limit, "now": now, "left": left})
    return rules


def _is_soon(profile: Profile, facts: Facts) -> bool:
    """Whether the last compaction was so short ago that a limit of the tail alone means nothing."""
    return facts.seconds_since is not None and facts.seconds_since < profile.cooldown_seconds


class HardLimit:
    """Something would fall out of the request, or too many messages wait beyond the tail."""

    reason = Reason.HARD_LIMIT
    mode = "inline"

    def is_due(self, profile: Profile, facts: Facts) -> bool:
        """Whether the next request has to wait until something is summarised."""
        return is_at_hard_limit(profile, facts.countable)

    def distance(self, profile: Profile, facts: Facts) -> tuple[int, int] | None:
        """Return the most messages that may wait, and how many do."""
        limit = profile.compression_hard_limit
        return (limit, waiting_messages(profile, facts.countable)) if limit > 0 else None


class WindowNearlyFull:
    """The next request would not leave the reserve free."""

    reason = Reason.WINDOW
    mode = "inline"

    def is_due(self, profile: Profile, facts: Facts) -> bool:
        """Whether the request is larger than what is usable: window minus reserve, strictly."""
        if not profile.window_trigger or facts.usable is None:
            return False
        return facts.request_tokens > facts.usable

    def distance(self, profile: Profile, facts: Facts) -> tuple[int, int] | None:
        """Return the first size that is too large, and the request's, in tokens."""
        if not profile.window_trigger or facts.usable is None:
            return None
        return facts.usable + 1, facts.request_tokens


class MessageLimit:
    """So many messages came since the last summary."""

    reason = Reason.MESSAGE_LIMIT
    mode = "inline"

    def is_due(self, profile: Profile, facts: Facts) -> bool:
        """Whether the limit is reached, inclusive, and the cooldown is over."""
        return 0 < profile.message_limit <= facts.messages and not _is_soon(profile, facts)

    def distance(self, profile: Profile, facts: Facts) -> tuple[int, int] | None:
        """Return the limit and how many came."""
        return (profile.message_limit, facts.messages) if profile.message_limit > 0 else None


class TokenLimit:
    """So many tokens came since the last summary."""

    reason = Reason.TOKEN_LIMIT
    mode = "inline"

    def is_due(self, profile: Profile, facts: Facts) -> bool:
        """Whether the limit is reached, inclusive, and the cooldown is over."""
        return 0 < profile.max_context_tokens <= facts.tokens and not _is_soon(profile, facts)

    def distance(self, profile: Profile, facts: Facts) -> tuple[int, int] | None:
        """Return the limit and how many came."""
        limit = profile.max_context_tokens
        return (limit, facts.tokens) if limit > 0 else None


class MessageWindow:
    """A window of messages has left the tail."""

    reason = Reason.MESSAGE_WINDOW
    mode = "background"

    def is_due(self, profile: Profile, facts: Facts) -> bool:
        """Whether as many messages wait as make a window."""
        window = profile.compression_window_size
        return 0 < window <= waiting_messages(profile, facts.countable)

    def distance(self, profile: Profile, facts: Facts) -> tuple[int, int] | None:
        """Return the window's size and how many messages wait."""
        window = profile.compression_window_size
        return (window, waiting_messages(profile, facts.countable)) if window > 0 else None


class MaximumAge:
    """The oldest message beyond the tail has waited long enough."""

    reason = Reason.MAXIMUM_AGE
    mode = "background"

    def is_due(self, profile: Profile, facts: Facts) -> bool:
        """Whether its age is reached, and enough messages wait to be worth a run."""
        if facts.waiting_seconds is None or not ages(profile, facts.countable):
            return False
        return facts.waiting_seconds >= profile.compression_cooldown_sec

    def distance(self, profile: Profile, facts: Facts) -> tuple[int, int] | None:
        """Return the age and how old the oldest is, in seconds."""
        if facts.waiting_seconds is None or not ages(profile, facts.countable):
            return None
        return profile.compression_cooldown_sec, math.floor(facts.waiting_seconds)


class AheadOfNeed:
    """The next request passes the part of the window that is summarised ahead of need."""

    reason = Reason.AHEAD
    mode = "background"

    def is_due(self, profile: Profile, facts: Facts) -> bool:
        """Whether that part is passed and the cooldown is over."""
        is_near = 0 < profile.prepare_ratio * facts.window < facts.request_tokens
        return is_near and not _is_soon(profile, facts)

    def distance(self, profile: Profile, facts: Facts) -> tuple[int, int] | None:
        """Return the first size above that part, and the request's, in tokens."""
        if profile.prepare_ratio <= 0 or facts.window <= 0:
            return None
        return math.floor(profile.prepare_ratio * facts.window) + 1, facts.request_tokens
