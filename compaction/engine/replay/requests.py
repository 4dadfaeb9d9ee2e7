"""What a request of a replay holds and how large it is: sums where possible, texts where not.

Tool results that are longer than one may be are cut as in the application: each is read once for a
profile, and what it saves is remembered.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compaction.engine.rendering import history_in_node
from compaction.engine.replay.branch import ReplayedBranch
from compaction.engine.replay.conversation import ReplayedConversation
from compaction.engine.tool_results import (
    ResultLimits,
    ResultRoom,
    Route,
    allot,
    cut_text,
    least_of,
    precheck,
    room_of,
    sent_marker,
)
from compaction.engine.types import Item

# Results whose saving is remembered, each at each size that it was cut to.
MOST_SAVED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestParts:
    """The numbers of the messages that a request sends: those apart, and all from `start` on."""

    apart: tuple[int, ...]
    start: int
    end: int


class ReplayedRequests:
    """Works out requests of one profile over one conversation."""

    def __init__(
        self, conversation: ReplayedConversation, limits: ResultLimits, *, window: int
    ) -> None:
        self._conversation, self._limits, self._window = conversation, limits, window
        self._single = limits.max_chars(window)
        # Of the messages behind the cursor the results that are too long, among those looked at.
        self._long = array("l")
        self._cursor = self._looked_at = 0
        self._saved: dict[tuple[int, int], int] = {}

    def tokens(self, branch: ReplayedBranch) -> int:
        """Return the tokens of the next request, its tool results cut where that makes it fit."""
        used = self._used(branch, together=False)
        if self.route(branch, used) in (Route.TRUNCATE, Route.COMPACT_THEN_TRUNCATE):
            return self._used(branch, together=True)
        return used

    def would_be_refused(self, branch: ReplayedBranch) -> bool:
        """Whether the next request cannot fit without a compaction, by the profile's precheck."""
        route = self.route(branch, self._used(branch, together=False))
        return route in (Route.COMPACT, Route.COMPACT_THEN_TRUNCATE)

    def route(self, branch: ReplayedBranch, used: int) -> Route:
        """Return what would make a request of so many tokens fit."""
        profile, model = branch.profile, branch.model
        if not (profile.enabled and profile.precheck_margin) or model.window <= 0:
            return Route.FITS

        def ask(reducible: int) -> Route:
            return precheck(
                tokens=math.ceil(used * model.scale),
                window=model.window,
                reserve=model.reserve(profile),
                reducible_chars=reducible,
                margin=profile.precheck_margin,
            )

        return ask(0) if ask(0) is Route.FITS else ask(self._reducible(branch))

    def texts(self, branch: ReplayedBranch) -> Iterator[str]:
        """Yield what the next request says: prompt, rules, summaries, messages as they are sent."""
        yield from self._conversation.fixed_texts()
        yield from (one.text for one in branch.state.sent_forms)
        if branch.state.is_node:
            yield history_in_node(branch.state.sent_forms)
        parts = self.parts(branch)
        targets = self._targets(branch, parts, together=False)
        for number in (*parts.apart, *range(parts.start, parts.end)):
            item = self._conversation.items(number, number + 1)[0]
            yield self._cut(item, targets[number]) if number in targets else item.text
            yield from (call.arguments for call in item.tool_calls)

    def parts(self, branch: ReplayedBranch) -> RequestParts:
        """Return which messages the next request sends."""
        sums, cursor, end = branch.sums, branch.state.cursor, branch.end
        start = self._start(branch)
        apart = [*sums.pinned_in(0, cursor)]
        if branch.profile.context_size:
            apart += sums.pinned_in(cursor, start)
        question = sums.split_question(cursor, end, start=start) if cursor else None
        if question is not None:
            apart = sorted([*apart, question])
        return RequestParts(apart=tuple(apart), start=start, end=end)

    def _start(self, branch: ReplayedBranch) -> int:
        """Return where the messages begin that a limit of the history lets through."""
        limit, cursor, end = branch.profile.sent_limit, branch.state.cursor, branch.end
        if not 0 < limit < end - cursor:
            return cursor
        first = branch.sums.question_from(end - limit, end)
        if first is not None:
            return first
        # The last turn is longer than the limit.
        last = branch.sums.question_before(end)
        return cursor if last is None or last < cursor else last

    def _used(self, branch: ReplayedBranch, *, together: bool) -> int:
        sums, parts = branch.sums, self.parts(branch)
        stored = sums.rules_stored(branch.end)
        kept = sums.rule_tokens(0, stored) + sums.tokens(parts.start, parts.end)
        kept += sum(sums.message(number).tokens for number in parts.apart)
        messages = stored + parts.end - parts.start + len(parts.apart)
        fixed = branch.front_tokens + branch.model.frame_tokens * messages
        targets = self._targets(branch, parts, together=together)
        return fixed + kept - sum(self._saving(*each) for each in targets.items())

    def _targets(
        self, branch: ReplayedBranch, parts: RequestParts, *, together: bool
    ) -> dict[int, int]:
        """Return the characters that each of the results may have that are too long."""
        if not together:
            if not branch.profile.limit_tool_results:
                return {}
            apart = [number for number in parts.apart if self._is_long(number)]
            return dict.fromkeys((*self._long_behind(branch, parts), *apart), self._single)
        numbers = self._results(branch, parts)
        sizes = [branch.sums.message(number).text_chars for number in numbers]
        keep = self._limits.min_keep(self._window)
        found = allot(
            sizes,
            single=self._single,
            together=self._single,
            min_keep=keep,
            room=self._room_for_results(branch, parts, numbers),
        )
        return {numbers[index]: limit for index, limit in found.items()}

    def _is_long(self, number: int) -> bool:
        size = self._conversation.sums.message(number)
        return size.role == "tool" and size.text_chars > self._single

    def _long_behind(self, branch: ReplayedBranch, parts: RequestParts) -> Sequence[int]:
        """Return the numbers of the results behind the cursor that are sent and too long."""
        cursor = branch.state.cursor
        if cursor > self._cursor:
            self._cursor, self._looked_at = cursor, max(self._looked_at, cursor)
            self._long = self._long[bisect_left(self._long, cursor) :]
            pinned = branch.sums.pinned
            self._saved = {
                known: tokens
                for known, tokens in self._saved.items()
                if known[0] >= cursor or known[0] in pinned
            }
        looked_at = range(self._looked_at, parts.end)
        self._long.extend(number for number in looked_at if self._is_long(number))
        self._looked_at = max(self._looked_at, parts.end)
        return self._long[bisect_left(self._long, parts.start) : bisect_left(self._long, parts.end)]

    def _room_for_results(
        self, branch: ReplayedBranch, parts: RequestParts, numbers: Sequence[int]
    ) -> ResultRoom:
        """Return the room of tool results beside the rest and the answer."""
        sums, model, frame = branch.sums, branch.model, branch.model.frame_tokens
        tokens = sum(sums.message(number).tokens for number in numbers)
        # Pinned messages before the cursor are among the fixed ones.
        apart = [sums.message(one) for one in parts.apart if one >= branch.state.cursor]
        behind = sums.tokens(parts.start, parts.end) + sum(one.tokens for one in apart)
        behind += frame * (len(apart) + parts.end - parts.start)
        rest = branch.fixed_tokens + behind - tokens
        usable = (model.window - model.reserve(branch.profile)) / model.scale
        characters = sum(sums.message(number).text_chars for number in numbers)
        return room_of(usable=usable, rest=rest, characters=characters, tokens=tokens)

    def _results(self, branch: ReplayedBranch, parts: RequestParts) -> Sequence[int]:
        apart = [one for one in parts.apart if branch.sums.message(one).role == "tool"]
        return [*apart, *branch.sums.results_in(parts.start, parts.end)]

    def _reducible(self, branch: ReplayedBranch) -> int:
        """Return the characters that results lose when they share what one may have."""
        parts = self.parts(branch)
        targets = self._targets(branch, parts, together=True)
        most = self._single if branch.profile.limit_tool_results else None
        total = 0
        for number, limit in targets.items():
            size = branch.sums.message(number).text_chars
            total += max(0, (size if most is None else min(size, most)) - limit)
        return total

    def _saving(self, number: int, limit: int) -> int:
        """Return the tokens that a result loses when it is cut to so many characters."""
        found = self._saved.get((number, limit))
        if found is None:
            size = self._conversation.sums.message(number)
            item = self._conversation.items(number, number + 1)[0]
            before, after = len(item.text), len(self._cut(item, limit))
            left = -(-size.tokens * after // before) if after < before else size.tokens
            if len(self._saved) >= MOST_SAVED:
                # Most belong to messages that are summarised by now.
                self._saved.clear()
            found = self._saved[number, limit] = size.tokens - left
        return found

    def _cut(self, item: Item, limit: int) -> str:
        keep = least_of(limit, self._limits.min_keep(self._window))
        return cut_text(item.text, limit, min_keep=keep, marker=sent_marker)
