"""The numbers that triggers look at: subtractions of stored sums; hardly a message is read."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from django.db.models import Sum
from django.utils import timezone

from chatapp.context.assembly import text_tokens, tools_tokens
from chatapp.models import Message
from chatapp.selectors import path_messages, pinned_messages, without_rules
from compaction.engine.parameters import Profile
from compaction.engine.policy.triggers import Facts
from compaction.engine.policy.window import ages, waiting_messages

# Below this the fixed parts of a request may be most of it.
SMALL_LIMIT_TOKENS = 12_000

if TYPE_CHECKING:
    from compaction.services.situation import Situation


def facts_of(situation: Situation) -> Facts:
    """Return a branch's numbers since its last summary, and those of its next request."""
    state, profile, model = situation.state, situation.profile, situation.model
    branch, window = situation.branch, situation.model.context_window
    tokens = max(0, branch.token_total - state.covered_tokens)
    messages = max(0, branch.message_count - state.covered_messages)
    rules = _rules(situation) if messages > profile.tail > 0 else 0
    ages_alone = _may_age(profile, messages - rules)
    fixed = situation.fixed_tokens if _looks_at_request(situation, tokens) else 0
    return Facts(
        messages=messages,
        rules=rules,
        tokens=tokens,
        request_tokens=math.ceil(model.scale * (fixed + tokens)),
        usable=window - situation.reserve if window > 0 else None,
        window=window,
        seconds_since=_seconds_since(state.last_consolidated_at),
        waiting_seconds=_seconds_since(situation.waiting_since if ages_alone else None),
    )


def whole_facts_of(situation: Situation) -> Facts:
    """Return the same with the whole request's tokens and the age, whatever the rules need."""
    facts = situation.facts
    tokens = math.ceil(situation.model.scale * (situation.fixed_tokens + facts.tokens))
    waits = ages(situation.profile, facts.spoken)
    since = situation.waiting_since if waits else None
    return replace(facts, request_tokens=tokens, waiting_seconds=_seconds_since(since))


def _rules(situation: Situation) -> int:
    """Return how many of the messages so far are rules of the conversation.

    They open it, so behind a cursor there are hardly any; they are not looked for there.
    """
    if situation.state.cursor or not situation.profile.counts_window:
        return 0
    rules = path_messages(situation.branch).filter(pinned=True, role=Message.Role.SYSTEM)
    return rules.count()


def _may_age(profile: Profile, messages: int) -> bool:
    """Whether only the age can make a run due; when it came is not read for another rule's sake."""
    window = profile.compression_window_size
    is_full = 0 < window <= waiting_messages(profile, messages)
    return ages(profile, messages) and not is_full


def _looks_at_request(situation: Situation, tokens: int) -> bool:
    """Whether a rule needs the whole request's size; otherwise summaries and pins are not read.

    Ahead of need, a request is looked at when messages, prompt and tools, whose tokens are known,
    come to half of the rule's limit. Summaries and pinned messages are taken to be less than that;
    in a small window they may not be, so it is always looked at.
    """
    profile, model = situation.profile, situation.model
    limit = profile.prepare_ratio * model.context_window
    if profile.window_trigger or 0 < limit <= SMALL_LIMIT_TOKENS:
        return True
    known = tokens + prompt_tokens(situation)
    return 0 < limit <= 2 * model.scale * known


def prompt_tokens(situation: Situation) -> int:
    """Return the tokens of prompt and tools, which are counted once for each distinct text."""
    session, model = situation.session, situation.model
    return tools_tokens(model, session.tools) + text_tokens(model, session.system_prompt)


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
    spoken = without_rules(path_messages(situation.branch, after=situation.state.cursor))
    rows = spoken[tail : tail + 1]
    pushed = next(iter(rows.values_list("created_at", flat=True)), None)
    if pushed is None:
        return None
    return max(pushed, situation.state.last_consolidated_at or pushed)


def _seconds_since(moment: datetime | None) -> float | None:
    return (timezone.now() - moment).total_seconds() if moment else None
