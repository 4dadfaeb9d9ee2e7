"""Where a branch stands: what triggers look at, what would be cut, what would be sent.

Everything is read from the cursor on (DESIGN.md, rule 8).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from django.utils import timezone

from chatapp.assembling import Context, text_tokens, tools_tokens
from chatapp.lessons import taught
from chatapp.llm.models import ModelConfig, get_model
from chatapp.models import Branch, Message, Session
from chatapp.selectors import path_messages, pinned_messages, without_rules
from compaction.conf import compaction_settings
from compaction.convert import read_items
from compaction.engine.boundaries import groups
from compaction.engine.cuts import keep_last, keep_recent_tokens
from compaction.engine.parameters import Profile
from compaction.engine.rendering import as_sent_text
from compaction.engine.triggers import Facts, decide
from compaction.engine.types import Decision, Item, Plan
from compaction.models import CompactionProfile, CompactionState, SessionSummary
from compaction.selectors import (
    bare_placeholders,
    newest_summaries,
)
from compaction.services.leases import state_of
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
        return newest_summaries(self.branch, self.profile.summary_limit, through=self.state.cursor)

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
    def previous_text(self) -> str:
        """The summary that the next one has to continue; empty for the first (rule 7).

        The newest one has taken in those before it. Old placeholders may not have: all that are
        sent are continued.
        """
        texts = self.summary_texts
        return texts[-1] if self.summaries else "\n\n".join(texts)

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
        """The numbers that triggers look at; two subtractions, hardly a message is read."""
        state = self.state
        tokens = max(0, self.branch.token_total - state.covered_tokens)
        since = state.last_consolidated_at
        window = self.model.context_window
        # Without the window's trigger nothing looks at the whole request: nothing is read for it.
        fixed = self._fixed_tokens if self.profile.window_trigger else 0
        return Facts(
            messages=max(0, self.branch.message_count - state.covered_messages),
            tokens=tokens,
            request_tokens=math.ceil(self.model.scale * (fixed + tokens)),
            usable=window - self.reserve if window > 0 else None,
            seconds_since=(timezone.now() - since).total_seconds() if since else None,
        )

    @cached_property
    def _fixed_tokens(self) -> int:
        """Tokens of the next request besides the messages behind the cursor."""
        fixed = tools_tokens(self.model, self.session.tools)
        fixed += text_tokens(self.model, self.session.system_prompt)
        if self.profile.window_trigger:
            fixed += sum(row.tokens for row in self.pinned)
        return fixed + self.sent_summary_tokens

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
        """Return the decision, or None while another run works or nothing can be summarised."""
        if decision is None or self.backs_off or self.state.is_consolidating:
            return None
        return decision if self.plan().summarise else None

    @property
    def backs_off(self) -> bool:
        """Whether automatic runs wait after failures."""
        until = self.state.backoff_until
        return until is not None and until > timezone.now()

    def plan(self, *, keep_last_n: int | None = None, whole: bool = False) -> Plan:
        """Return what to summarise and what to keep; `keep_last_n` overrides the profile's cut.

        What the model has not answered yet is kept on top of that: the open question, or the tool
        results at the end with their calls. Earlier steps of a long turn may be summarised; its
        question is sent verbatim all the same (see sending.kept_of). With `whole`, unseen results
        are summarised too, because nothing else makes the request smaller.
        """
        items, question = self._before_question()
        if keep_last_n is None and self.profile.cut == "recent_tokens":
            wanted = min(self.profile.keep_recent_tokens, self._largest_tail())
            plan = keep_recent_tokens(items, wanted - sum(item.tokens for item in question))
        else:
            count = self.profile.keep_last_n if keep_last_n is None else keep_last_n
            plan = keep_last(items, count)
        unseen = 0 if whole or question else _unseen_results(items)
        if len(plan.keep) < unseen:
            cut = len(items) - unseen
            plan = Plan(summarise=tuple(items[:cut]), keep=tuple(items[cut:]))
        return Plan(summarise=plan.summarise, keep=(*plan.keep, *question))

    def _largest_tail(self) -> int:
        """Tokens a tail may have at all: what the window leaves beside the fixed parts (B11)."""
        facts = self.facts
        if facts.usable is None:
            return self.profile.keep_recent_tokens
        summary = self.profile.target_summary_tokens + text_tokens(self.model, as_sent_text(""))
        usable = math.floor(facts.usable / self.model.scale)
        return max(0, usable - self._fixed_tokens - min(summary, usable // 4))

    def _before_question(self) -> tuple[list[Item], list[Item]]:
        """Return the items up to the unanswered question, and the question (B08)."""
        items = self.items
        index = len(items)
        while index > 0 and items[index - 1].role == "user":
            index -= 1
        return items[:index], items[index:]

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


def _unseen_results(items: list[Item]) -> int:
    """Return how many items at the end the model has not answered: question, call and results.

    A question further up is sent verbatim in any case; one right before them saves nothing.
    """
    if not items or items[-1].role != "tool":
        return 0
    start = len(items) - len(groups(items)[-1].items)
    while start > 0 and items[start - 1].role == "user":
        start -= 1
    return len(items) - start


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
