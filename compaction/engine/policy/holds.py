"""How long what a person took back from a summary is left alone, and what a hold changes of rules.

A person's decision beats a rule: while a branch is held, only the model's window may still force a
compaction, because what does not fit cannot be sent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum

from compaction.engine.parameters import Profile
from compaction.engine.policy.reasons import Reason

MOST_MINUTES = 525_600
# Of the rules, those that a hold leaves in force. A request that is foreseen to be refused, or was,
# is none of the rules: it is made smaller in any case.
RULES_UNDER_HOLD = frozenset({Reason.WINDOW})


class HoldEnd(StrEnum):
    """What ends a hold, besides a person and a request that does not fit any more."""

    PERSON = "until_lifted"
    TIME = "minutes"
    WINDOW = "window"


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldLength:
    """How long a restored stretch is held; `lasts` is None where no time ends it."""

    end: HoldEnd
    lasts: timedelta | None = None


def hold_length(restore_hold: str) -> HoldLength | None:
    """Return what a profile's `restore_hold` says; None for 0 minutes: nothing is held.

    Raises ValueError with a sentence for anything else than it may be.
    """
    text = restore_hold.strip()
    if text in (HoldEnd.PERSON, HoldEnd.WINDOW):
        return HoldLength(end=HoldEnd(text))
    if not (text.isascii() and text.isdigit() and int(text) <= MOST_MINUTES):
        raise ValueError(
            f"Must be until_lifted, window, or a number of minutes from 0 to {MOST_MINUTES:,}."
        )
    minutes = int(text)
    return HoldLength(end=HoldEnd.TIME, lasts=timedelta(minutes=minutes)) if minutes else None


def problem_with_hold(restore_hold: str) -> str:
    """Return what is wrong with a value of `restore_hold`, as a sentence; or an empty text."""
    try:
        hold_length(restore_hold)
    except ValueError as error:
        return str(error)
    return ""


def under_hold(profile: Profile, end: str) -> Profile:
    """Return the parameters that count for a branch that is held.

    Limits that would hide its messages do not: they are sent as the person decided. What is held
    until it is lifted is not compacted for a margin of safety either, only where the request would
    not fit by plain count. A hold that the window may end has the window's rule, also in a profile
    without it, and leaves its margins as they are.
    """
    shown = replace(profile, context_size=0, history_limit=0)
    if end == HoldEnd.WINDOW:
        return replace(shown, window_trigger=True)
    return replace(shown, precheck_margin=min(profile.precheck_margin, 1.0))


def reserve_under(profile: Profile, end: str | None) -> int:
    """Return the tokens that the profile keeps free for an answer.

    Of a branch that is held until it is lifted none beyond the model's own longest answer: a
    reserve is a rule of the profile, and a request that leaves less than it does fit.
    """
    return profile.reserve_tokens if end in (None, HoldEnd.WINDOW) else 0
