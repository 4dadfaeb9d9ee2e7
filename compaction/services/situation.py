"""Where a branch stands: what triggers look at, what would be cut, what would be sent.

Everything is read from the cursor on (DESIGN.md, rule 8).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, lru_cache

from django.utils import timezone

from chatapp.context.assembly import Context, text_tokens
from chatapp.llm.learned_limits import taught
from chatapp.llm.registry import ModelConfig, get_model
from chatapp.models import Branch, Message, Session
from chatapp.selectors import path_messages, pinned_messages, without_rules
from compaction.conf import compaction_settings
from compaction.convert import read_items
from compaction.engine.parameters import Profile
from compaction.engine.policy.triggers import Facts, decide
from compaction.engine.policy.window import HARD_LIMIT, falls_out, waiting_messages
from compaction.engine.rendering import as_sent_text
from compaction.engine.types import Decision, Item, Plan
from compaction.models import CompactionProfile, CompactionState, SessionSummary
from compaction.selectors import (
    bare_placeholders,
    sent_summaries,
)
from compaction.services.leases import state_of
from compaction.services.measuring import (
    facts_of,
    pinned_tokens,
    prompt_tokens,
    waiting_since,
    whole_facts_of,
)
from compaction.services.planning import plan_of
from compaction.services.profiles import parameters_of, profile_of
from compaction.services.sending import PLAIN, Cut, context_of, kept_of


@lru_cache(maxsize=64)
def _parsed(
    name: str, version: int, base: str, parameters: str, environment: tuple[tuple[str, str], ...]
) -> Profile:
    """Return a profile's parameters, worked out once; all that they depend on is an argument."""
    row = CompactionProfile(
        name=name, version=version, base=base, parameters=json.loads(parameters)
    )
    return parameters_of(row)


@dataclass(frozen=True, kw_only=True)
class Situation:
    """One branch at one moment; the costly parts are read when somebody asks."""

    session: Session
    state: CompactionState
    profile_row: CompactionProfile

    @property
    def branch(self) -> Branch:
        """The branch, with sums read together with the state."""
        return self.state.branch

    @cached_property
    def profile(self) -> Profile:
        """All parameters in force."""
        row, environment = self.profile_row, compaction_settings.environment
        return _parsed(
            row.name,
            row.version,
            row.base,
            json.dumps(row.parameters, sort_keys=True),
            tuple(sorted(environment.items())),
        )

    @cached_property
    def model(self) -> ModelConfig:
        """The session's model, with what its server taught."""
        return taught(get_model(self.session.model))

    @cached_property
    def summaries(self) -> list[SessionSummary]:
        """The summaries that are sent, oldest first."""
        return sent_summaries(self.branch, self.profile.summary_limit, through=self.state.cursor)

    @cached_property
    def old_placeholders(self) -> list[Message]:
        """Placeholders that are sent instead, where no summary row exists (1.10)."""
        return [] if self.summaries else bare_placeholders(self.branch, self.profile.summary_limit)

    @cached_property
    def summary_texts(self) -> list[str]:
        """The texts of either, oldest first."""
        rows = self.summaries or self.old_placeholders
        return [
            row.summary_text if isinstance(row, SessionSummary) else row.summary for row in rows
        ]

    @property
    def archive(self) -> SessionSummary | None:
        """The archive that no summary has taken in yet."""
        return next((row for row in self.summaries if row.archived), None)

    @property
    def newest(self) -> list[SessionSummary]:
        """The newest summary, which has taken in those before it, and the archive beside it."""
        written = [row for row in self.summaries if not row.archived]
        return [*written[-1:], *(row for row in self.summaries if row.archived)]

    @property
    def continued(self) -> list[SessionSummary]:
        """What the next summary continues, the archive last.

        What a summariser could not take in may be what makes it fail: after a failure the archive
        is left out, and goes on being sent beside the summaries.
        """
        return [row for row in self.newest if not (row.archived and self.state.failures)]

    @property
    def previous_text(self) -> str:
        """What the next summary has to continue; empty for the first (rule 7).

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
        """Tokens of the summaries with the frame that each one is sent in."""
        count = len(self.summaries or self.old_placeholders)
        return self.summary_tokens + count * text_tokens(self.model, as_sent_text(""))

    @cached_property
    def rows(self) -> list[Message]:
        """The messages behind the cursor, rules of the conversation included, in order."""
        return [row for row in self._from_cursor if row.position > self.state.cursor]

    @cached_property
    def _from_cursor(self) -> list[Message]:
        """The rows and, before them, the last summarised message: it says whether a turn ended."""
        return list(path_messages(self.branch, after=self.state.cursor - 1))

    @property
    def last_covered(self) -> Message | None:
        """The last summarised message, where the cursor stands at one."""
        found = self._from_cursor[:1]
        return found[0] if found and found[0].position == self.state.cursor else None

    @cached_property
    def items(self) -> list[Item]:
        """What could be summarised: the messages behind the cursor that are no rules."""
        return read_items(without_rules(path_messages(self.branch, after=self.state.cursor)))

    @cached_property
    def pinned(self) -> list[Message]:
        """The pinned messages before the cursor, rules included: sent although covered."""
        cursor = self.state.cursor
        return list(pinned_messages(self.branch, through=cursor)) if cursor else []

    @cached_property
    def facts(self) -> Facts:
        """The numbers that triggers look at (services/measuring.py)."""
        return facts_of(self)

    @property
    def whole_facts(self) -> Facts:
        """The facts with what no rule needed just now, too: for people."""
        return whole_facts_of(self)

    @cached_property
    def fixed_tokens(self) -> int:
        """Tokens of the next request besides the messages behind the cursor."""
        return prompt_tokens(self) + pinned_tokens(self) + self.sent_summary_tokens

    @cached_property
    def waiting_since(self) -> datetime | None:
        """When the first message that waits left the tail; None where none has."""
        return waiting_since(self)

    @property
    def waiting(self) -> int:
        """How many messages have left the tail and are not summarised yet."""
        return waiting_messages(self.profile, self.facts.spoken)

    @property
    def hides_messages(self) -> bool:
        """Whether the next request would leave out messages that no summary has read."""
        return falls_out(self.profile, self.facts.spoken)

    @property
    def reserve(self) -> int:
        """Tokens kept free for the answer (B33), never more than half of the window."""
        wanted = max(self.profile.reserve_tokens, self.model.max_output)
        return min(wanted, self.model.context_window // 2)

    @property
    def decision(self) -> Decision | None:
        """Why a compaction is due, or None."""
        return decide(self.profile, self.facts)

    @property
    def compacts_now(self) -> Decision | None:
        """Why a request would be preceded by a compaction; None where it goes out as it is."""
        return self.unless_prevented(self.decision)

    @property
    def compacts_next(self) -> Decision | None:
        """Why a turn with one more message would compact first, as far as that can be told.

        The message's own tokens are not known yet: a long one may trip a limit that is near.
        """
        facts = replace(self.facts, messages=self.facts.messages + 1)
        return self.unless_prevented(decide(self.profile, facts))

    def unless_prevented(self, decision: Decision | None) -> Decision | None:
        """Return the decision, or None where no request waits for it.

        That is what runs in the background, what another run works on, and what cannot be done. The
        hard limit does not wait for a back-off after failures to end, and where messages would
        fall out, for none.
        """
        if decision is None or decision.mode != "inline" or self.state.is_consolidating:
            return None
        bypasses = decision.reason == HARD_LIMIT and (self.state.failures or self.hides_messages)
        if self.backs_off and not bypasses:
            return None
        return decision if self.plan().summarise else None

    @property
    def backs_off(self) -> bool:
        """Whether automatic runs wait after failures."""
        until = self.state.backoff_until
        return until is not None and until > timezone.now()

    def plan(
        self,
        *,
        keep_last_n: int | None = None,
        whole: bool = False,
        at_most: int | None = None,
    ) -> Plan:
        """Return what to summarise and what to keep (services/planning.py)."""
        return plan_of(self, keep_last_n=keep_last_n, whole=whole, at_most=at_most)

    def kept(self, *, groups: int | None = None) -> tuple[list[Message], list[Message]]:
        """Return what is sent verbatim: (rules at the front, pinned + question + the rest)."""
        return kept_of(self, groups=groups)

    def context(self, *, run_id: str | None = None, cut: Cut = PLAIN) -> Context:
        """Return what the next request sends; `cut` says what more is left out of it."""
        context = self._plain_context if cut == PLAIN else context_of(self, cut=cut)
        return replace(context, run_id=run_id)

    @cached_property
    def _plain_context(self) -> Context:
        return context_of(self)


def situation_of(
    session: Session,
    branch: Branch | None = None,
    *,
    profile: CompactionProfile | None = None,
    state: CompactionState | None = None,
) -> Situation:
    """Return where a session's branch stands now; `profile` overrides the branch's own.

    `state` is the branch's state where the caller has just read it (ensure_state).
    """
    state = state or state_of(branch or session.branch)
    return Situation(
        session=session,
        state=state,
        profile_row=profile or profile_of(state),
    )
