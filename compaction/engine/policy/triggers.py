"""When a compaction is due: rules over numbers that are stored, never over the messages.

Each rule is a class, registered by its reason; `decide` asks them in the registry's order. The hard
limit comes first: it alone goes on until nothing is left out, and waits for no back-off. What is
due in the background makes no request wait, so it comes last: it would hide what cannot wait.

A rule whose limit the kept messages alone can reach asks, once it is reached, for the gain of a
compaction (minimum_gain): otherwise it would fire at every turn for a message or two. Hard limit
and window go on without, and so do the rules that count only what has left the tail. After a run
that gained nothing all but the hard limit wait until more has come.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeVar

from compaction.engine.parameters import Profile
from compaction.engine.policy.cache_clock import has_clock, run_delay_ms, waiting_words
from compaction.engine.policy.reasons import Reason
from compaction.engine.policy.window import ages, is_at_hard_limit, waiting_messages
from compaction.engine.protocols import Trigger
from compaction.engine.registry import TRIGGERS
from compaction.engine.types import Decision, Facts, Gain

logger = logging.getLogger(__name__)
MODES = ("inline", "background")


class _GainUnknown(Exception):  # noqa: N818 - it carries a failure that is no rule's
    """The cut could not be looked for; `cause` says why."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def decide(
    profile: Profile,
    facts: Facts,
    on_failure: Callable[[str], None] = logger.error,
    *,
    modes: Sequence[str] = MODES,
    only: Collection[str] | None = None,
) -> Decision | None:
    """Return why a compaction is due, or None; inline rules first, and only those of the modes.

    With `only`, no other rules are asked than those with these reasons.

    A rule that fails is not due; `on_failure` is told so in a sentence. What the gain raises is
    raised.
    """
    if not profile.enabled:
        return None
    waits = waits_for_more(profile, facts)
    for mode in modes:
        for trigger in TRIGGERS.all():
            if trigger.mode != mode or (only is not None and trigger.reason not in only):
                continue
            if waits and trigger.reason != Reason.HARD_LIMIT:
                continue
            if _ask(trigger, trigger.is_due, profile, facts, on_failure):
                return Decision(reason=trigger.reason, mode=trigger.mode)
    return None


def waits_for_more(profile: Profile, facts: Facts) -> int:
    """Return how many tokens must have come since the last summary before another run, or 0.

    A run that gained nothing would gain as little at the next turn, and cost as much.
    """
    if not facts.gainless_tokens:
        return 0
    grown = math.ceil((1 + profile.minimum_gain) * facts.gainless_tokens)
    least = max(facts.gainless_tokens + 1, grown)
    return least if facts.tokens < least else 0


def distances(profile: Profile, facts: Facts) -> list[dict[str, Any]]:
    """Return, for every rule in force, its limit and how far away it is.

    0 is due, unless `waits_for` says what a rule that has reached its limit waits for.
    """
    rules = []
    for trigger in TRIGGERS.all():
        found = _ask(trigger, partial(_rule_of, trigger), profile, facts, logger.error)
        if found is not None:
            rules.append(found)
    return rules


def _rule_of(trigger: Trigger, profile: Profile, facts: Facts) -> dict[str, Any] | None:
    found = trigger.distance(profile, facts)
    if found is None:
        return None
    limit, now = found
    waits_for = ""
    if limit <= now and isinstance(trigger, _GainRule):
        waits_for = trigger.waits_for(profile, facts)
    least = waits_for_more(profile, facts)
    if limit <= now and least and trigger.reason != Reason.HARD_LIMIT:
        waits_for = (
            f"The last run would have made the next request no smaller; it waits until "
            f"{least:,} tokens have come since the last summary ({facts.tokens:,} have)."
        )
    return {
        "reason": trigger.reason,
        "limit": limit,
        "now": now,
        "left": max(0, limit - now),
        "waits_for": waits_for,
    }


Answer = TypeVar("Answer")


def _ask(
    trigger: Trigger,
    question: Callable[[Profile, Facts], Answer],
    profile: Profile,
    facts: Facts,
    on_failure: Callable[[str], None],
) -> Answer | None:
    """Return a rule's answer; None, and a sentence, where it fails: no turn fails for it."""
    try:
        return question(profile, facts)
    except _GainUnknown as unknown:
        raise unknown.cause from None
    except Exception as error:
        on_failure(
            f"The trigger {str(trigger.reason)!r} failed and was left out "
            f"({type(error).__name__}: {error})."
        )
        return None


def _is_soon(profile: Profile, facts: Facts) -> bool:
    """Whether the last compaction was so short ago that a limit of the tail alone means nothing."""
    return facts.seconds_since is not None and facts.seconds_since < profile.cooldown_seconds


class _GainRule:
    """A rule that fires only if a compaction would gain enough of what it counts."""

    unit = ""

    def counted(self, facts: Facts, gain: Gain) -> tuple[int, int]:
        """Return what the rule counts, less what is never summarised, and what would go of it."""
        raise NotImplementedError

    def is_reached(self, profile: Profile, counted: int) -> bool:
        """Whether the rule is in force and its limit reached, by what is counted."""
        raise NotImplementedError

    def gains_enough(self, profile: Profile, facts: Facts) -> bool:
        """Whether the limit is reached by what may be summarised, and enough of that would be."""
        gain = _gain_of(facts)
        if gain is None:
            return True
        counted, gained = self.counted(facts, gain)
        is_enough = gained >= profile.minimum_gain * counted and gain.tokens >= gain.least_tokens
        return is_enough and self.is_reached(profile, counted)

    def waits_for(self, profile: Profile, facts: Facts) -> str:
        """Return what the rule waits for at its limit, as a sentence; empty where nothing is."""
        gain = _gain_of(facts)
        if gain is None or self.gains_enough(profile, facts):
            return ""
        counted, gained = self.counted(facts, gain)
        least = math.ceil(profile.minimum_gain * counted)
        unit = self.unit.removesuffix("s") if counted == 1 else self.unit
        if not self.is_reached(profile, counted):
            return f"Only {counted:,} {unit} of these can ever be summarised; it waits for more."
        if gained >= least:
            return (
                f"What can be summarised ({gain.tokens:,} tokens) is less than twice the frame of "
                f"a summary ({gain.least_tokens:,} tokens); it waits for more."
            )
        return (
            f"A compaction would summarise {gained:,} of {counted:,} {unit}; it waits until "
            f"that is at least {least:,} (minimum_gain {profile.minimum_gain:g})."
        )


def _gain_of(facts: Facts) -> Gain | None:
    try:
        return facts.gain() if facts.gain is not None else None
    except Exception as error:
        raise _GainUnknown(error) from error


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


class MessageLimit(_GainRule):
    """So many messages came since the last summary."""

    reason = Reason.MESSAGE_LIMIT
    mode = "inline"
    unit = "messages"

    def is_due(self, profile: Profile, facts: Facts) -> bool:
        """Whether the limit is reached, inclusive, the cooldown over, and the gain large enough."""
        if not self.is_reached(profile, facts.messages) or _is_soon(profile, facts):
            return False
        return self.gains_enough(profile, facts)

    def is_reached(self, profile: Profile, counted: int) -> bool:
        """Whether so many messages reach the limit."""
        return 0 < profile.message_limit <= counted

    def counted(self, facts: Facts, gain: Gain) -> tuple[int, int]:
        """Return the messages since the last summary, and those that would be summarised."""
        return facts.messages - gain.fixed_messages, gain.messages

    def distance(self, profile: Profile, facts: Facts) -> tuple[int, int] | None:
        """Return the limit and how many came."""
        return (profile.message_limit, facts.messages) if profile.message_limit > 0 else None


class TokenLimit(_GainRule):
    """So many tokens came since the last summary."""

    reason = Reason.TOKEN_LIMIT
    mode = "inline"
    unit = "tokens"

    def is_due(self, profile: Profile, facts: Facts) -> bool:
        """Whether the limit is reached, inclusive, the cooldown over, and the gain large enough."""
        if not self.is_reached(profile, facts.tokens) or _is_soon(profile, facts):
            return False
        return self.gains_enough(profile, facts)

    def is_reached(self, profile: Profile, counted: int) -> bool:
        """Whether so many tokens reach the limit."""
        return 0 < profile.max_context_tokens <= counted

    def counted(self, facts: Facts, gain: Gain) -> tuple[int, int]:
        """Return the tokens since the last summary, and those that would be summarised."""
        return facts.tokens - gain.fixed_tokens, gain.tokens

    def distance(self, profile: Profile, facts: Facts) -> tuple[int, int] | None:
        """Return the limit and how many came."""
        limit = profile.max_context_tokens
        return (limit, facts.tokens) if limit > 0 else None


class HistorySize(_GainRule):
    """The history, with the summary that it begins with, has so many characters."""

    reason = Reason.HISTORY_SIZE
    mode = "inline"
    unit = "characters"

    def is_due(self, profile: Profile, facts: Facts) -> bool:
        """Whether the limit is reached, inclusive, the cooldown over, and the gain large enough."""
        if not self.is_reached(profile, facts.chars) or _is_soon(profile, facts):
            return False
        return self.gains_enough(profile, facts)

    def is_reached(self, profile: Profile, counted: int) -> bool:
        """Whether so many characters reach the limit."""
        return 0 < profile.trigger_on_history_size_chars <= counted

    def counted(self, facts: Facts, gain: Gain) -> tuple[int, int]:
        """Return the characters of the history, and those that would be summarised."""
        return facts.chars - gain.fixed_chars, gain.chars

    def distance(self, profile: Profile, facts: Facts) -> tuple[int, int] | None:
        """Return the limit and how many characters the history has."""
        limit = profile.trigger_on_history_size_chars
        return (limit, facts.chars) if limit > 0 else None


class VersionPassedOver(_GainRule):
    """A summary was written by a later program: what it covers is summarised again, at once."""

    reason = Reason.VERSION
    mode = "inline"
    unit = "messages"

    def is_due(self, profile: Profile, facts: Facts) -> bool:
        """Whether there is such a summary, and something that can be summarised."""
        return facts.passes_over and self.gains_enough(profile, facts)

    def is_reached(self, profile: Profile, counted: int) -> bool:
        """Whether the limit is reached: any message will do."""
        return counted > 0

    def counted(self, facts: Facts, gain: Gain) -> tuple[int, int]:
        """Return the messages that would be summarised, which are enough however few."""
        return gain.messages, gain.messages

    def distance(self, profile: Profile, facts: Facts) -> tuple[int, int] | None:
        """Return 1 of 1 where there is one."""
        return (1, 1) if facts.passes_over else None


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


# Of the size at which a turn would wait for a compaction: past it, one is made ahead of need.
AHEAD_SHARE = 0.875


def ahead_limit(profile: Profile, window: int, usable: int | None) -> float:
    """Return the size past which a compaction is made ahead of need, in tokens; 0 for none.

    It is a part of the window, and lies before the sizes at which a turn waits: where the reserve
    is a large part of the window, the first comes behind those, and every turn would wait.
    """
    limit = profile.prepare_ratio * window
    if usable is None or not (profile.window_trigger or profile.precheck_margin):
        return limit
    return max(0.0, min(limit, AHEAD_SHARE * usable / max(1.0, profile.precheck_margin)))


class AheadOfNeed(_GainRule):
    """The next request passes the part of the window that is summarised ahead of need."""

    reason = Reason.AHEAD
    mode = "background"
    unit = "tokens"

    def is_due(self, profile: Profile, facts: Facts) -> bool:
        """Whether that part is passed, and the gain large enough.

        No cooldown holds it back: what is not done in the background, a turn would have to wait
        for.
        """
        is_near = 0 < ahead_limit(profile, facts.window, facts.usable) < facts.request_tokens
        return is_near and self.gains_enough(profile, facts)

    def is_reached(self, profile: Profile, counted: int) -> bool:
        """Whether the limit is reached: it is the whole request's, with what always stays."""
        return True

    def counted(self, facts: Facts, gain: Gain) -> tuple[int, int]:
        """Return the next request's tokens, and those that it would lose."""
        return facts.request_tokens, gain.request_tokens

    def distance(self, profile: Profile, facts: Facts) -> tuple[int, int] | None:
        """Return the first size above that part, and the request's, in tokens."""
        if profile.prepare_ratio <= 0 or facts.window <= 0:
            return None
        limit = ahead_limit(profile, facts.window, facts.usable)
        return math.floor(limit) + 1, facts.request_tokens


class CacheExpiring(_GainRule):
    """The history has so many characters, and the server soon forgets the prompt."""

    reason = Reason.CACHE_EXPIRING
    mode = "background"
    unit = "characters"

    def is_due(self, profile: Profile, facts: Facts) -> bool:
        """Whether the time has come, the limit is reached, inclusive, and the gain large enough."""
        if run_delay_ms(profile, facts.cache_age_ms) != 0:
            return False
        return self.is_reached(profile, facts.chars) and self.gains_enough(profile, facts)

    def is_reached(self, profile: Profile, counted: int) -> bool:
        """Whether so many characters reach the limit."""
        return 0 < profile.trigger_on_history_size_chars_when_cache_expiring <= counted

    def counted(self, facts: Facts, gain: Gain) -> tuple[int, int]:
        """Return the characters of the history, and those that would be summarised."""
        return facts.chars - gain.fixed_chars, gain.chars

    def waits_for(self, profile: Profile, facts: Facts) -> str:
        """Return what the rule waits for at its limit: the clock, or more to gain."""
        clock = waiting_words(profile, facts.cache_age_ms)
        return clock or super().waits_for(profile, facts)

    def distance(self, profile: Profile, facts: Facts) -> tuple[int, int] | None:
        """Return the limit and how many characters the history has."""
        if not has_clock(profile):
            return None
        return profile.trigger_on_history_size_chars_when_cache_expiring, facts.chars
