"""The numbers that triggers look at: subtractions of stored sums; hardly a message is read."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING

from django.db.models import Sum
from django.utils import timezone

from chatapp.selectors import path_messages, pinned_messages
from compaction.engine.parameters import Profile
from compaction.engine.sliding import ages, waiting_messages
from compaction.engine.triggers import Facts

if TYPE_CHECKING:
    from compaction.services.situation import Situation


def facts_of(situation: Situation) -> Facts:
    """Return a branch's numbers since its last summary, and those of its next request."""
    state, profile, model = situation.state, situation.profile, situation.model
    branch, window = situation.branch, situation.model.context_window
    tokens = max(0, branch.token_total - state.covered_tokens)
    messages = max(0, branch.message_count - state.covered_messages)
    fixed = situation.fixed_tokens if _looks_at_request(situation, tokens) else 0
    return Facts(
        messages=messages,
        tokens=tokens,
        request_tokens=math.ceil(model.scale * (fixed + tokens)),
        usable=window - situation.reserve if window > 0 else None,
        window=window,
        seconds_since=_seconds_since(state.last_consolidated_at),
        waiting_seconds=_seconds_since(
            situation.waiting_since if _may_age(profile, messages) else None
        ),
    )


def _may_age(profile: Profile, messages: int) -> bool:
    """Whether only the age can make a run due; when it came is not read for another rule's sake."""
    window = profile.compression_window_size
    is_full = 0 < window <= waiting_messages(profile, messages)
    return ages(profile, messages) and not is_full


def _looks_at_request(situation: Situation, tokens: int) -> bool:
    """Whether a rule needs the whole request's size; otherwise nothing is read for it.

    A request whose messages fill less than half of what the rule ahead of need allows is not
    looked at: its fixed parts would have to be larger than they are.
    """
    profile, model = situation.profile, situation.model
    if profile.window_trigger:
        return True
    return 0 < profile.prepare_ratio * model.context_window <= 2 * model.scale * tokens


def pinned_tokens(situation: Situation) -> int:
    """Return the tokens of the pinned messages before the cursor; no text is read for it."""
    if "pinned" in situation.__dict__ or not situation.state.cursor:
        return sum(row.tokens for row in situation.pinned)
    rows = pinned_messages(situation.branch, through=situation.state.cursor)
    return rows.aggregate(total=Sum("tokens"))["total"] or 0


def waiting_since(situation: Situation) -> datetime | None:
    """Return when the first waiting message left the tail: when the one came that pushed it out.

    Not before the last compaction: what a restored summary gave back waits anew.
    """
    tail = situation.profile.tail
    rows = path_messages(situation.branch, after=situation.state.cursor)[tail : tail + 1]
    pushed = next(iter(rows.values_list("created_at", flat=True)), None)
    if pushed is None:
        return None
    return max(pushed, situation.state.last_consolidated_at or pushed)


def _seconds_since(moment: datetime | None) -> float | None:
    return (timezone.now() - moment).total_seconds() if moment else None
