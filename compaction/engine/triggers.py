"""When a compaction is due: rules over numbers that are stored, never over the messages."""

from __future__ import annotations

from dataclasses import dataclass

from compaction.engine.parameters import Profile
from compaction.engine.types import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the rules look at: since the last summary, and of the whole next request.

    `usable` is window - max(reserve, answer's maximum): room for the answer is taken off (B33);
    None when the window is not known. `seconds_since` is None before the first summary.
    """

    messages: int
    tokens: int
    request_tokens: int
    usable: int | None
    seconds_since: float | None = None


def decide(profile: Profile, facts: Facts) -> Decision | None:
    """Return why a compaction is due, or None.

    Order and strictness as in document 002 (count first, both inclusive; spec 1.5-1) and 000
    (tokens > window - reserve, strict; spec/pi_openclaw.md A5).
    """
    if not profile.enabled:
        return None
    if profile.window_trigger and facts.usable is not None and facts.request_tokens > facts.usable:
        return Decision(reason="window")
    if facts.seconds_since is not None and facts.seconds_since < profile.cooldown_seconds:
        # A tail that alone is over the limit would be compacted with every message (1.12 D14).
        return None
    if 0 < profile.message_limit <= facts.messages:
        return Decision(reason="message_limit")
    if 0 < profile.max_context_tokens <= facts.tokens:
        return Decision(reason="token_limit")
    return None


def distances(profile: Profile, facts: Facts) -> list[dict[str, int | str]]:
    """Return, for every rule in force, its limit and how far away it is (0: due)."""
    rules: list[tuple[str, int, int]] = []
    if profile.message_limit > 0:
        rules.append(("message_limit", profile.message_limit, facts.messages))
    if profile.max_context_tokens > 0:
        rules.append(("token_limit", profile.max_context_tokens, facts.tokens))
    if profile.window_trigger and facts.usable is not None:
        rules.append(("window", facts.usable + 1, facts.request_tokens))
    return [
        {"reason": name, "limit": limit, "now": now, "left": max(0, limit - now)}
        for name, limit, now in rules
    ]
