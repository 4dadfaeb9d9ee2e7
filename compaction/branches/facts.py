"""The numbers that triggers look at, from stored sums; hardly a message is read for them."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from django.db.models import QuerySet, Sum

from chatapp import selectors
from chatapp.compiled import compiled_read
from chatapp.context.assembly import text_tokens, tools_tokens
from chatapp.database import database_now
from chatapp.models import Message
from chatapp.selectors import PinnedSums, path_messages, without_pinned_system
from compaction.branches.cache_clock import age_ms
from compaction.branches.carriers import history_chars
from compaction.engine.carrying import counts_characters
from compaction.engine.parameters import Profile
from compaction.engine.policy.triggers import ahead_limit
from compaction.engine.policy.window import ages, waiting_messages
from compaction.engine.registry import TRIGGERS
from compaction.engine.types import Facts

if TYPE_CHECKING:
    from compaction.branches.snapshot import BranchSnapshot

# Below this the fixed parts of a request may be most of it.
SMALL_LIMIT_TOKENS = 12_000
# In `derived`: the tokens of the pins that the request of this turn had.
PINS_THEN = "pins_then"


def facts_of(snapshot: BranchSnapshot) -> Facts:
    """Return a branch's numbers since its last summary, and those of its next request."""
    state, profile, model = snapshot.state, snapshot.profile, snapshot.model
    branch, window = snapshot.branch, snapshot.model.context_window
    tokens = max(0, branch.token_total - state.covered_tokens)
    messages = max(0, branch.message_count - state.covered_messages)
    pinned_system = _pinned_system(snapshot) if messages > profile.tail > 0 else 0
    ages_alone = _may_age(profile, messages - pinned_system)
    known = tokens + model.message_frame_tokens * messages
    looks = _looks_at_request(snapshot, known)
    return Facts(
        messages=messages,
        pinned_system=pinned_system,
        tokens=tokens,
        request_tokens=snapshot.request_tokens if looks else math.ceil(model.scale * known),
        chars=history_chars(state, profile, lambda: snapshot.sent_forms) + _pinned_chars(snapshot),
        passes_over=state.passes_over,
        gainless_tokens=max(0, state.gainless_total - state.covered_tokens),
        usable=_usable(snapshot),
        window=window,
        seconds_since=_seconds_since(state.last_consolidated_at),
        waiting_seconds=_seconds_since(snapshot.waiting_since if ages_alone else None),
        cache_age_ms=age_ms(state, profile, snapshot.session),
    )


def whole_facts_of(snapshot: BranchSnapshot) -> Facts:
    """Return the same with the whole request's tokens and the age, whatever the rules need."""
    facts = snapshot.facts
    tokens = snapshot.request_tokens
    waits = ages(snapshot.profile, facts.countable)
    since = snapshot.waiting_since if waits else None
    return replace(facts, request_tokens=tokens, waiting_seconds=_seconds_since(since))


def _pinned_system(snapshot: BranchSnapshot) -> int:
    """Return how many of the messages so far are rules of the conversation.

    They open it, so behind a cursor there are hardly any; they are not looked for there.
    """
    if snapshot.state.cursor or not snapshot.profile.counts_window:
        return 0
    return len(snapshot.rules_behind)


def _may_age(profile: Profile, messages: int) -> bool:
    """Whether only the age can make a run due; when it came is not read for another rule's sake."""
    window = profile.compression_window_size
    is_full = 0 < window <= waiting_messages(profile, messages)
    return ages(profile, messages) and not is_full


def _usable(snapshot: BranchSnapshot) -> int | None:
    """Return the tokens that a request may have beside its answer; None for an unknown window."""
    window = snapshot.model.context_window
    return window - snapshot.reserve if window > 0 else None


def _looks_at_request(snapshot: BranchSnapshot, tokens: int) -> bool:
    """Whether a rule needs the whole request's size; otherwise summaries and pins are not read.

    Ahead of need, a request is looked at when messages, prompt and tools, whose tokens are known,
    come to half of the rule's limit, and the pinned messages that this turn's request had.
    Summaries, and pins that nobody has read, are taken to be less than that; in a small window
    they may not be, so it is always looked at.
    """
    profile, model = snapshot.profile, snapshot.model
    limit = ahead_limit(profile, model.context_window, _usable(snapshot))
    if profile.window_trigger or TRIGGERS.has_plugins or 0 < limit <= SMALL_LIMIT_TOKENS:
        return True
    if limit > 0 and profile.context_size_by == "usage":
        return True
    pins: int = snapshot.derived.get(PINS_THEN, 0)
    known = tokens + prompt_tokens(snapshot) + pins
    return 0 < limit <= 2 * model.scale * known


def prompt_tokens(snapshot: BranchSnapshot) -> int:
    """Return the tokens of prompt and tools, which are counted once for each distinct text."""
    session, model = snapshot.session, snapshot.model
    return tools_tokens(model, session.tools) + text_tokens(model, session.system_prompt)


def pins_covered(snapshot: BranchSnapshot) -> PinnedSums:
    """Return the sums of the pinned messages before the cursor; no text is read for it."""
    if snapshot.knows("pinned") or not snapshot.state.cursor:
        return PinnedSums(len(snapshot.pinned), sum(row.tokens for row in snapshot.pinned))
    return snapshot.state.known_pins or selectors.pinned_sums(
        snapshot.branch, through=snapshot.state.cursor
    )


def _pinned_chars(snapshot: BranchSnapshot) -> int:
    """Return the characters of what is sent for its pin alone, where a rule counts characters.

    It is part of the history as it is sent. Rules of the conversation are part of the prompt.
    """
    state = snapshot.state
    counts = counts_characters(snapshot.profile)
    if not counts or not state.cursor or state.has_no_pins:
        return 0
    if snapshot.knows("pinned"):
        return sum(row.chars for row in snapshot.pinned if not row.is_pinned_system)
    pins = selectors.pinned_messages(snapshot.branch, through=state.cursor).order_by()
    found = pins.exclude(role=Message.Role.SYSTEM).aggregate(total=Sum("chars", default=0))
    return int(found["total"])


def waiting_since(snapshot: BranchSnapshot) -> datetime | None:
    """Return when the first waiting message left the tail: when the one came that pushed it out.

    Not before the last compaction: what a restored summary gave back waits anew.
    """
    branch, cursor, tail = snapshot.branch, snapshot.state.cursor, snapshot.profile.tail
    if selectors.is_own(branch, cursor):
        times = _own_times(branch=branch.pk, after=cursor, most=1, skip=tail)
    else:
        times = list(_times(path_messages(branch, after=cursor))[tail : tail + 1])
    pushed = next(iter(times), None)
    if pushed is None:
        return None
    return max(pushed, snapshot.state.last_consolidated_at or pushed)


def _times(rows: QuerySet[Message]) -> QuerySet[Message, datetime]:
    rows = without_pinned_system(rows).order_by("position")
    return rows.values_list("created_at", flat=True)


@compiled_read
def _own_times(*, branch: UUID, after: int) -> QuerySet[Message, datetime]:
    """Return when a branch's own countable messages behind a position came."""
    rows = Message.objects.filter(branch=branch, position__gt=after, kind__in=Message.SPOKEN)
    return _times(rows)


def _seconds_since(moment: datetime | None) -> float | None:
    return (database_now() - moment).total_seconds() if moment else None
