"""One branch at one moment: what triggers look at, read from the cursor on.

The numbers are subtractions of stored sums; hardly a message is read for them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any

from chatapp import selectors
from chatapp.context.assembly import text_tokens
from chatapp.database import database_now
from chatapp.ids import short_id
from chatapp.llm.learned_limits import with_learned_limits
from chatapp.llm.registry import ModelConfig, get_model
from chatapp.models import Branch, Message, Session
from chatapp.selectors import PinnedPlace
from compaction.branches.carriers import (
    carried_tokens,
    front_messages,
    sent_form,
    summaries_to_send,
)
from compaction.branches.facts import (
    PINS_THEN,
    facts_of,
    pins_covered,
    prompt_tokens,
    waiting_since,
    whole_facts_of,
)
from compaction.branches.holds import end_of, in_force
from compaction.branches.leases import state_of
from compaction.branches.memory_block import MemoryBlock, memory_block
from compaction.branches.reported_size import ReportedSize, reported_size
from compaction.conf import compaction_settings
from compaction.engine.carrying import merges_system
from compaction.engine.parameters import Profile
from compaction.engine.policy.gates import gate_of
from compaction.engine.policy.holds import reserve_under
from compaction.engine.policy.small_windows import within_window
from compaction.engine.policy.window import falls_out, waiting_messages
from compaction.engine.protocols import SentSummary
from compaction.engine.registry import REGISTRIES
from compaction.engine.types import Facts
from compaction.models import CompactionProfile, CompactionState, SessionSummary
from compaction.profiles import UsableProfile, profile_of, usable_profile
from compaction.selectors import bare_placeholders, from_last_that_continues


@lru_cache(maxsize=64)
def _parsed(
    name: str,
    version: int,
    base: str,
    parameters: str,
    environment: tuple[tuple[str, str], ...],
    plugins: int,
) -> UsableProfile:
    """Return a profile's parameters, worked out once; all that they depend on is an argument."""
    row = CompactionProfile(
        name=name, version=version, base=base, parameters=json.loads(parameters)
    )
    return usable_profile(row)


@dataclass(frozen=True, kw_only=True)
class BranchSnapshot:
    """One branch at one moment; the costly parts are read when somebody asks."""

    session: Session
    state: CompactionState
    profile_row: CompactionProfile
    # What others derived from it and may ask for again: worked out once.
    derived: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    # What went wrong with this branch's plug-ins and requests, by the code of its incident.
    failed: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    def knows(self, part: str) -> bool:
        """Whether a part that is read when somebody asks has been read, by its property's name."""
        return part in self.__dict__

    def take(self, **parts: Any) -> None:
        """Take parts that were read for it together with others, by their properties' names."""
        self.__dict__.update(parts)

    @property
    def branch(self) -> Branch:
        """The branch, with sums read together with the state."""
        return self.state.branch

    @cached_property
    def profile(self) -> Profile:
        """All parameters in force; switched off for a session that the profile leaves out."""
        parameters = in_force(self._usable_profile.parameters, self.state)
        return replace(parameters, enabled=False) if self.gate else parameters

    @property
    def recovers(self) -> bool:
        """Whether a request that was refused as too large is made smaller.

        It is in a session that the profile leaves out, too: there no rule compacts, and no turn
        fails for it.
        """
        parameters = self._usable_profile.parameters
        return parameters.enabled and parameters.retry_on_context_overflow

    @cached_property
    def gate(self) -> str:
        """Why the profile leaves the session out, as a sentence; empty where it does not."""
        parameters = self._usable_profile.parameters
        if not (parameters.excluded_bot_types or parameters.min_client_version):
            return ""
        return gate_of(parameters, self.session.metadata)

    @cached_property
    def summary_profile(self) -> Profile:
        """The same for whoever makes a summary: with sizes that the model's window has room for."""
        window = self.model.context_window
        usable = math.floor((window - self.reserve) / self.model.scale) if window > 0 else None
        return within_window(self.profile, usable)

    @cached_property
    def _usable_profile(self) -> UsableProfile:
        row, environment = self.profile_row, compaction_settings.environment
        return _parsed(
            row.name,
            row.version,
            row.base,
            json.dumps(row.parameters, sort_keys=True),
            tuple(sorted(environment.items())),
            sum(registry.version for registry in REGISTRIES.values()),
        )

    @property
    def problems(self) -> dict[str, str]:
        """What is wrong with the profile or failed so far: {code of an incident: sentence}."""
        problem = self._usable_profile.problem
        return ({"profile_unusable": problem} if problem else {}) | self.failed

    @cached_property
    def model(self) -> ModelConfig:
        """The session's model, with what its server taught."""
        return with_learned_limits(get_model(self.session.model))

    @cached_property
    def summaries(self) -> list[SessionSummary]:
        """The summaries that are sent, oldest first."""
        return summaries_to_send(self.branch, self.profile, through=self.state.cursor)

    @cached_property
    def old_placeholders(self) -> list[Message]:
        """Placeholders that are sent instead, where no summary row exists."""
        known = self.state.known_to_run
        if self.summaries or (known is not None and known.has_bare_placeholder is False):
            return []
        return bare_placeholders(self.branch, self.profile.summary_limit)

    @cached_property
    def sent_forms(self) -> list[SentSummary]:
        """Either as they are sent, oldest first."""
        if not self.summaries:
            return [SentSummary(text=row.summary) for row in self.old_placeholders]
        return list(map(sent_form, self.summaries))

    @property
    def summary_texts(self) -> list[str]:
        """Their texts alone."""
        return [one.text for one in self.sent_forms]

    @property
    def digest(self) -> SessionSummary | None:
        """The fallback digest that no summary has taken in yet."""
        return next((row for row in self.summaries if row.is_digest), None)

    @property
    def newest(self) -> list[SessionSummary]:
        """The newest summary, which has taken in those before it, and the fallback digest beside
        it; of a hook's summary also those before it.
        """
        return from_last_that_continues(self.summaries)

    @property
    def continued(self) -> list[SessionSummary]:
        """What the next summary continues, the fallback digest last.

        What a summariser could not take in may be what makes it fail: after a failure the fallback
        digest is left out, and goes on being sent beside the summaries.
        """
        return [row for row in self.newest if not (row.is_digest and self.state.failures)]

    @property
    def previous_text(self) -> str:
        """What the next summary has to continue; empty for the first.

        Old placeholders may not have taken in those before them: all that are sent are continued.
        """
        if not self.summaries:
            return "\n\n".join(self.summary_texts)
        return "\n\n".join(row.summary_text for row in self.continued)

    @cached_property
    def summary_tokens(self) -> int:
        """Tokens of the summaries that are sent; counted when they were stored."""
        if self.summaries:
            return sum(row.summary_tokens for row in self.summaries)
        return sum(text_tokens(self.model, text) for text in self.summary_texts)

    @property
    def sent_summary_tokens(self) -> int:
        """Tokens of the summaries with the frames that they are sent in, and what else is there."""
        return self.summary_tokens + carried_tokens(self.profile, self.model, self.sent_forms)

    @cached_property
    def memories(self) -> MemoryBlock:
        """The owner's memories as they are sent; read once for a turn."""
        return memory_block(self.session, self.profile, self.model)

    @cached_property
    def rows(self) -> list[Message]:
        """The messages behind the cursor, rules of the conversation included, in order."""
        return [row for row in self.from_cursor if row.position > self.state.cursor]

    @cached_property
    def from_cursor(self) -> list[Message]:
        """The rows and, before them, the last summarised message: it says whether a turn ended."""
        return selectors.messages_behind(self.branch, self.state.cursor - 1)

    @property
    def last_covered(self) -> Message | None:
        """The last summarised message, where the cursor stands at one."""
        found = self.from_cursor[:1]
        return found[0] if found and found[0].position == self.state.cursor else None

    @cached_property
    def pinned(self) -> list[Message]:
        """The pinned messages before the cursor, rules included: sent although covered."""
        cursor = self.state.cursor
        if not cursor or self.state.has_no_pins:
            return []
        return selectors.pinned_before(self.branch, cursor)

    @cached_property
    def pins_behind(self) -> list[PinnedPlace]:
        """The pinned messages behind the cursor, rules included; no text is read for them."""
        if self.state.has_no_pins_behind:
            return []
        return selectors.pins_behind(self.branch, self.state.cursor)

    @property
    def rules_behind(self) -> list[PinnedPlace]:
        """Those of them that are rules of the conversation (Message.is_pinned_system)."""
        return [pin for pin in self.pins_behind if pin.role == Message.Role.SYSTEM]

    @cached_property
    def facts(self) -> Facts:
        """The numbers that triggers look at (facts_of)."""
        return facts_of(self)

    @property
    def whole_facts(self) -> Facts:
        """The facts with what no rule needed just now, too: for people."""
        return whole_facts_of(self)

    @cached_property
    def fixed_tokens(self) -> int:
        """Tokens of the next request besides the messages behind the cursor."""
        fixed = prompt_tokens(self) + self.memories.tokens
        fixed += pins_covered(self).tokens + self.sent_summary_tokens
        return fixed + self.model.request_frames(self.fixed_messages)

    @cached_property
    def fixed_messages(self) -> int:
        """How many messages the next request has besides those behind the cursor."""
        return self.front_with(self.sent_forms) - self._rules + pins_covered(self).messages

    def front_with(self, summaries: Sequence[SentSummary]) -> int:
        """Return how many messages stand before the next request's conversation.

        That is with these summaries, and with the conversation's rules.
        """
        prompts = bool(self.session.system_prompt) + bool(self.memories.text) + self._rules
        return front_messages(self.profile, self.model, prompts=prompts, summaries=summaries)

    @cached_property
    def _rules(self) -> int:
        """How many rules of the conversation the next request has, where that makes a difference.

        Apart, each is a message like any other; merged, all are one.
        """
        if not self.merges_front:
            return 0
        covered = sum(row.is_pinned_system for row in self.pinned)
        # They open a conversation: behind a cursor there are hardly any.
        return covered if self.state.cursor else len(self.rules_behind)

    @property
    def merges_front(self) -> bool:
        """Whether the next request's system messages are one."""
        return self.model.single_leading_system or merges_system(self.profile)

    @property
    def counted_tokens(self) -> int:
        """Tokens of the whole next request by our own count, with the frames of its messages."""
        state, branch = self.state, self.branch
        tokens = max(0, branch.token_total - state.covered_tokens)
        messages = max(0, branch.message_count - state.covered_messages)
        return self.fixed_tokens + tokens + self.model.message_frame_tokens * messages

    @cached_property
    def reported_size(self) -> ReportedSize | None:
        """The next request's size by the newest report of the model's server that still holds."""
        state = self.state
        since = state.last_consolidated_at
        if since is None and state.cursor and self.summaries:
            # A fork has no time of its own: what it took over was summarised before.
            since = max(row.created_at for row in self.summaries)
        return reported_size(
            self.branch,
            self.model,
            cursor=state.cursor,
            since=since,
            mark=lambda: self.request_mark,
        )

    @property
    def request_mark(self) -> str:
        """What tells requests with these summaries and memories from others; kept with answers."""
        summaries = "-".join(short_id(row.pk) for row in self.summaries) or NO_SUMMARY
        return summaries + self.memories.mark

    @cached_property
    def request_tokens(self) -> int:
        """Tokens of the next request, by the profile's way of counting them (context_size_by)."""
        size = self.reported_size if self.profile.context_size_by == "usage" else None
        if size is not None:
            return size.tokens
        return math.ceil(self.model.scale * self.counted_tokens)

    @cached_property
    def waiting_since(self) -> datetime | None:
        """When the first message that waits left the tail; None where none has."""
        return waiting_since(self)

    @property
    def waiting(self) -> int:
        """How many messages have left the tail and are not summarised yet."""
        return waiting_messages(self.profile, self.facts.countable)

    @property
    def hides_messages(self) -> bool:
        """Whether the next request would leave out messages that no summary has read."""
        return falls_out(self.profile, self.facts.countable)

    @property
    def reserve(self) -> int:
        """Tokens kept free for the answer, never more than half of the window."""
        rule = reserve_under(self.profile, end_of(self.state))
        wanted = max(rule, self.model.max_output)
        return min(wanted, self.model.context_window // 2)

    @property
    def backs_off(self) -> bool:
        """Whether automatic runs wait after failures."""
        until = self.state.backoff_until
        return until is not None and until > database_now()


def snapshot_of(
    session: Session,
    branch: Branch | None = None,
    *,
    profile: CompactionProfile | None = None,
    state: CompactionState | None = None,
) -> BranchSnapshot:
    """Return where a session's branch stands now; `profile` overrides the branch's own.

    `state` is the branch's state where the caller has just read it (ensure_state).
    """
    state = state or state_of(branch or session.branch)
    return BranchSnapshot(
        session=session,
        state=state,
        profile_row=profile or profile_of(state),
    )


# A request's mark without a summary.
NO_SUMMARY = "0"


def refreshed(known: BranchSnapshot, state: CompactionState) -> BranchSnapshot:
    """Return the branch as a state that was just read says it is.

    Profile and model are those of the snapshot that is known; the summaries, too, where the cursor
    has not moved. So a turn reads them once, however often it looks at its branch.
    """
    if state.pk != known.state.pk or state.profile != known.state.profile:
        return snapshot_of(known.session, state=state)
    fresh = replace(known, state=state, derived={}, failed={})
    kept = {"_usable_profile", "model", "memories"}
    since = state.last_consolidated_at == known.state.last_consolidated_at
    if state.cursor == known.state.cursor:
        if known.knows("pinned"):
            fresh.derived[PINS_THEN] = pins_covered(known).tokens
        kept |= {"summaries", "old_placeholders", "sent_forms", "summary_tokens", "pins_behind"}
        # Who waits longest goes on waiting; whether anybody does may be news.
        if since and known.knows("waiting_since") and known.waiting_since is not None:
            kept.add("waiting_since")
    fresh.take(**{name: getattr(known, name) for name in kept if known.knows(name)})
    return fresh
