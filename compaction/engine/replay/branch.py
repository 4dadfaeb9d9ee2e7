"""A branch of a replay at one moment: what rules look at, where the cut falls, what it gains.

The numbers are those that the application takes from stored sums, here subtractions of the
conversation's; a cut is found in the newest messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

from compaction.engine.carrying import counts_characters, front_messages, least_stretch
from compaction.engine.parameters import Profile
from compaction.engine.policy.cache_clock import has_clock
from compaction.engine.policy.cuts import legal_plan
from compaction.engine.policy.groups import MoreItemsNeeded
from compaction.engine.policy.reasons import Reason
from compaction.engine.policy.triggers import MODES, decide
from compaction.engine.policy.window import ages
from compaction.engine.protocols import PlanFacts, SentSummary, Strategy
from compaction.engine.registry import STRATEGIES
from compaction.engine.replay.conversation import ConversationSums, ReplayedConversation
from compaction.engine.replay.state import ReplayedCut, ReplayModel, ReplayState
from compaction.engine.strategies.base import plans_from_tail
from compaction.engine.types import Decision, Facts, Gain, Item, Plan

# Messages that a cut is first looked for in; each further look takes in four times as many.
FIRST_LOOK, GROWTH = 64, 4
# Part of the window that a run ahead of need has to work on.
AHEAD_LEAST_SHARE = 0.1


class CutFailed(Exception):  # noqa: N818 - it is an outcome of a plug-in, not a fault of ours
    """A strategy or a cut gave no plan; the text says which and why."""


class ReplayedBranch:
    """The first `end` messages of a conversation, with what a replay has summarised of them."""

    def __init__(
        self,
        conversation: ReplayedConversation,
        state: ReplayState,
        model: ReplayModel,
        *,
        end: int,
        seconds: float,
        note: Callable[[str], None],
    ) -> None:
        self.conversation, self.state, self.model = conversation, state, model
        self.end, self.seconds, self._note = end, seconds, note

    @property
    def profile(self) -> Profile:
        """All parameters in force."""
        return self.state.profile

    @property
    def sums(self) -> ConversationSums:
        """The sizes of the conversation's messages."""
        return self.conversation.sums

    @property
    def countable(self) -> int:
        """How many messages stand behind the cursor, rules not counted."""
        return self.end - self.state.cursor

    @property
    def rules_behind(self) -> tuple[int, int]:
        """How many rules stand behind the cursor, and their tokens."""
        covered = self.sums.rules_covered(self.state.cursor)
        stored = self.sums.rules_stored(self.end)
        return stored - covered, self.sums.rule_tokens(covered, stored)

    @property
    def tokens(self) -> int:
        """Tokens behind the cursor, those of rules included."""
        return self.sums.tokens(self.state.cursor, self.end) + self.rules_behind[1]

    @property
    def covered_tokens(self) -> int:
        """Tokens up to the cursor, those of rules included."""
        rules = self.sums.rules_covered(self.state.cursor)
        return self.sums.tokens(0, self.state.cursor) + self.sums.rule_tokens(0, rules)

    @property
    def chars(self) -> int:
        """Characters of the history as it is sent: behind the cursor, pins before it, summaries."""
        covered = self.sums.rules_covered(self.state.cursor)
        rules = self.sums.rule_chars(covered, self.sums.rules_stored(self.end))
        carried = self.state.summary_chars
        if counts_characters(self.profile):
            carried += self.sums.pinned_chars(0, self.state.cursor)
        return self.sums.chars(self.state.cursor, self.end) + rules + carried

    @property
    def pinned_tokens(self) -> int:
        """Tokens of the rules and pinned messages before the cursor, which are sent again."""
        covered = self.sums.rules_covered(self.state.cursor)
        rules = self.sums.rule_tokens(0, covered)
        return rules + self.sums.pinned_tokens(0, self.state.cursor)

    @property
    def front_tokens(self) -> int:
        """Tokens of the next request before its messages: prompt, tools and summaries, framed.

        The frames of the prompt and of rules count apart: what is merged takes them back.
        """
        carriers = self.front_with(self.state.sent_forms) - self._prompts
        framed = self.model.frame_tokens * carriers
        return self.conversation.prompt_tokens + self.state.summary_tokens + framed

    @property
    def _prompts(self) -> int:
        """How many system messages open the next request: prompt and rules."""
        return self.conversation.has_prompt + self.sums.rules_stored(self.end)

    def front_with(self, summaries: Sequence[SentSummary]) -> int:
        """Return how many messages stand before the conversation, with these summaries."""
        prompts, count, known = self._prompts, len(summaries), self.state.fronts
        if (prompts, count) not in known:
            known[prompts, count] = front_messages(
                self.profile, prompts=prompts, summaries=count, is_single=self.model.is_single
            )
        return known[prompts, count]

    @property
    def fixed_tokens(self) -> int:
        """Tokens of the next request besides the messages behind the cursor."""
        cursor = self.state.cursor
        pins = self.sums.rules_covered(cursor) + len(self.sums.pinned_in(0, cursor))
        return self.front_tokens + self.pinned_tokens + self.model.frame_tokens * pins

    @property
    def request_tokens(self) -> int:
        """Tokens of the next request by our own count, with the frames of its messages."""
        messages = self.countable + self.rules_behind[0]
        return self.fixed_tokens + self.tokens + self.model.frame_tokens * messages

    @property
    def cache_age_ms(self) -> int | None:
        """How long ago the request was sent whose prompt a server keeps; None where none is."""
        asked = self.state.asked_seconds
        if asked is None or not has_clock(self.profile):
            return None
        return round(1000 * (self.seconds - asked))

    @cached_property
    def facts(self) -> Facts:
        """The numbers that rules look at, without the gain."""
        state, profile, model = self.state, self.profile, self.model
        rules = self.rules_behind[0]
        counts_rules = not state.cursor and profile.counts_window
        counts_rules = counts_rules and self.countable + rules > profile.tail > 0
        size = math.ceil(model.scale * self.request_tokens)
        since = None if state.last_seconds is None else self.seconds - state.last_seconds
        return Facts(
            messages=self.countable + rules,
            pinned_system=rules if counts_rules else 0,
            tokens=self.tokens,
            request_tokens=size,
            usable=model.usable(profile),
            seconds_since=since,
            waiting_seconds=self._waiting_seconds(),
            window=model.window,
            chars=self.chars,
            cache_age_ms=self.cache_age_ms,
            gainless_tokens=max(0, state.gainless_total - self.covered_tokens),
        )

    def _waiting_seconds(self) -> float | None:
        if not ages(self.profile, self.countable) or self.profile.tail >= self.countable:
            return None
        pushed = self.sums.seconds(self.state.cursor + self.profile.tail + 1)
        return self.seconds - max(pushed, self.state.last_seconds or pushed)

    @property
    def backs_off(self) -> bool:
        """Whether automatic runs wait after failures."""
        until = self.state.backoff_until
        return until is not None and until > self.seconds

    def decision(
        self, *, modes: Sequence[str] = MODES, by_limits_alone: bool = False
    ) -> Decision | None:
        """Return why a compaction is due, or None; a rule that fails is told once."""
        facts = self.facts if by_limits_alone else replace(self.facts, gain=self.gain)
        return decide(self.profile, facts, self._note, modes=modes)

    def gain(self) -> Gain:
        """Return what a compaction would summarise now."""
        cut, cursor = self.cut(), self.state.cursor
        again = self.sums.pinned_in(cursor, cursor + cut.messages)
        tokens = max(0, cut.tokens - self.sums.pinned_tokens(cursor, cursor + cut.messages))
        chars = cut.chars - self.sums.pinned_chars(cursor, cursor + cut.messages)
        rules, rule_tokens = self.rules_behind
        covered = self.sums.rules_covered(cursor)
        messages = cut.messages - len(again)
        framed = tokens + self.model.frame_tokens * messages
        return Gain(
            messages=messages,
            tokens=tokens,
            request_tokens=math.floor(self.model.scale * framed),
            chars=max(0, chars),
            fixed_messages=rules,
            fixed_tokens=rule_tokens,
            fixed_chars=self.sums.rule_chars(covered, covered + rules),
            least_tokens=self.least_tokens(),
        )

    def least_tokens(self, reason: str = "") -> int:
        """Return the fewest tokens of messages that a run of that reason, or of any, summarises."""
        state = self.state
        return least_stretch(reason, frame=state.frame_tokens, is_first=not state.cursor)

    def is_worth_a_run(self, decision: Decision, *, least: int) -> bool:
        """Whether there is something to summarise in the background, and enough of it."""
        is_ahead = decision.reason == Reason.AHEAD
        if is_ahead and self.profile.publish_when_needed and self.state.draft:
            return False
        cut = self.cut()
        if cut.messages < least or cut.tokens < self.least_tokens(decision.reason):
            return False
        return not is_ahead or cut.tokens >= AHEAD_LEAST_SHARE * self.model.window

    def cut(self) -> ReplayedCut:
        """Return where the cut falls, looked for once. Raises CutFailed."""
        state = self.state
        key = state.cursor, self.end, state.summary_tokens
        if state.cut is None or state.cut[0] != key:
            state.cut = key, self._found()
        return state.cut[1]

    def items(self, start: int, end: int) -> Sequence[Item]:
        """Return messages behind the cursor, by their numbers from there."""
        cursor = self.state.cursor
        return self.conversation.items(cursor + start, cursor + end)

    def _found(self) -> ReplayedCut:
        strategy = STRATEGIES.get(self.profile.strategy)
        look = FIRST_LOOK if plans_from_tail(strategy) else self.countable
        while True:
            earlier = max(0, self.countable - look)
            items = self.items(earlier, self.countable)
            try:
                plan = self._plan(strategy, items, earlier)
            except MoreItemsNeeded as need:
                look = self.countable if need.all_of_them else max(look + need.more, GROWTH * look)
                continue
            messages = self.countable - len(plan.keep)
            cursor = self.state.cursor
            tokens = self.sums.tokens(cursor, cursor + messages)
            chars = self.sums.chars(cursor, cursor + messages)
            return ReplayedCut(messages=messages, tokens=tokens, chars=chars, newest=tuple(items))

    def _plan(self, strategy: Strategy, items: Sequence[Item], earlier: int) -> Plan:
        window = math.floor(max(0, self.model.window) / self.model.scale)
        facts = PlanFacts(
            room=self._room,
            window=window,
            earlier=earlier,
            frame_tokens=self.model.frame_tokens,
        )
        try:
            return legal_plan(items, strategy.plan(items, self.profile, facts), facts)
        except MoreItemsNeeded as need:
            if earlier:
                raise
            error: Exception = need
        except Exception as failure:
            error = failure
        raise CutFailed(
            f"The strategy {self.profile.strategy!r} with the cut {self.profile.cut!r} gave no "
            f"plan ({type(error).__name__}: {error})."
        ) from error

    def _room(self) -> int:
        """Tokens a tail may have at all: what the window leaves beside the fixed parts."""
        usable = self.model.usable(self.profile)
        if usable is None:
            return self.profile.keep_recent_tokens
        summary = self.profile.target_summary_tokens + self.state.frame_tokens
        counted = math.floor(usable / self.model.scale)
        return max(0, counted - self.fixed_tokens - min(summary, counted // 4))
