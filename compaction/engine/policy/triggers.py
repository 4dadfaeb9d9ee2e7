"""When a compaction is due: rules over numbers that are stored, never over the messages."""

from __future__ import annotations

import math
from dataclasses import dataclass

from compaction.engine.parameters import Profile
from compaction.engine.policy.window import (
    HARD_LIMIT,
    MAXIMUM_AGE,
    MESSAGE_WINDOW,
    ages,
    is_at_hard_limit,
    waiting_messages,
    window_decision,
)
from compaction.engine.types import Decision

# The reason of a run that summarises before a limit is reached.
AHEAD = "ahead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the rules look at: since the last summary, and of the whole next request.

    `usable` is window - max(reserve, answer's maximum): room for the answer is taken off (B33);
    None when the window is not known. `seconds_since` is None before the first summary.
    `waiting_seconds` is how long the first message that left the tail has waited; None where too
    few did. `window` is the whole window, 0 when it is not known. `rules` are those of the messages
    that are rules of the conversation: always sent, never summarised, no part of the window.
    """

    messages: int
    tokens: int
    request_tokens: int
    usable: int | None
    seconds_since: float | None = None
    waiting_seconds: float | None = None
    window: int = 0
    rules: int = 0

    @property
    def spoken(self) -> int:
        """The messages that the sliding window counts."""
        return self.messages - self.rules


def decide(profile: Profile, facts: Facts) -> Decision | None:
    """Return why a compaction is due, or None.

    Order and strictness as in document 002 (count first, both inclusive; spec 1.5-1) and 000
    (tokens > window - reserve, strict; spec/pi_openclaw.md A5). The hard limit comes first: it
    alone goes on until nothing is left out, and waits for no back-off. What is due in the
    background makes no request wait; so it comes last, or it would hide what cannot wait.
    """
    if not profile.enabled:
        return None
    if is_at_hard_limit(profile, facts.spoken):
        return Decision(reason=HARD_LIMIT)
    if profile.window_trigger and facts.usable is not None and facts.request_tokens > facts.usable:
        return Decision(reason="window")
    # A tail that alone is over the limit would be compacted with every message (1.12 D14).
    is_soon = facts.seconds_since is not None and facts.seconds_since < profile.cooldown_seconds
    if 0 < profile.message_limit <= facts.messages and not is_soon:
        return Decision(reason="message_limit")
    if 0 < profile.max_context_tokens <= facts.tokens and not is_soon:
        return Decision(reason="token_limit")
    sliding = window_decision(profile, messages=facts.spoken, waiting_seconds=facts.waiting_seconds)
    if sliding is None and not is_soon and _is_near(profile, facts):
        return Decision(reason=AHEAD, mode="background")
    return sliding


def _is_near(profile: Profile, facts: Facts) -> bool:
    """Whether the next request passes the part of the window that is summarised ahead of need."""
    return 0 < profile.prepare_ratio * facts.window < facts.request_tokens


def distances(profile: Profile, facts: Facts) -> list[dict[str, int | str]]:
    """Return, for every rule in force, its limit and how far away it is (0: due)."""
    rules: list[tuple[str, int, int]] = []
    if profile.message_limit > 0:
        rules.append(("message_limit", profile.message_limit, facts.messages))
    if profile.max_context_tokens > 0:
        rules.append(("token_limit", profile.max_context_tokens, facts.tokens))
    if profile.window_trigger and facts.usable is not None:
        rules.append(("window", facts.usable + 1, facts.request_tokens))
    if profile.prepare_ratio > 0 and facts.window > 0:
        limit = math.floor(profile.prepare_ratio * facts.window) + 1
        rules.append((AHEAD, limit, facts.request_tokens))
    rules += _window_distances(profile, facts)
    return [
        {"reason": name, "limit": limit, "now": now, "left": max(0, limit - now)}
        for name, limit, now in rules
    ]


def _window_distances(profile: Profile, facts: Facts) -> list[tuple[str, int, int]]:
    """Return the window's rules: limit and where it stands, in messages or seconds."""
    waiting = waiting_messages(profile, facts.spoken)
    rules = [
        (MESSAGE_WINDOW, profile.compression_window_size, waiting),
        (HARD_LIMIT, profile.compression_hard_limit, waiting),
    ]
    if ages(profile, facts.spoken) and facts.waiting_seconds is not None:
        rules.append(
            (MAXIMUM_AGE, profile.compression_cooldown_sec, math.floor(facts.waiting_seconds))
        )
    return [rule for rule in rules if rule[1] > 0]
