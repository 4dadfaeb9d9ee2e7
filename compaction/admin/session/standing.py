"""Where a session's branch stands, as its page shows it: sums and places, no message's text.

Every read is bounded and goes by an index, whatever the size of the conversation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.db.models import BooleanField, Case, Q, QuerySet, When
from django.http import HttpRequest

from chatapp.admin import cells
from chatapp.context.assembly import text_tokens, tools_tokens
from chatapp.models import Branch, Message, Session
from chatapp.selectors import (
    Segment,
    pinned_messages,
    placeholders,
    rows_before,
    rows_from,
    segments,
)
from compaction.branches.snapshot import BranchSnapshot, snapshot_of
from compaction.models import SessionSummary
from compaction.selectors import newest_summaries

SUMMARIES_DRAWN = 150
MARKS_DRAWN = 100

_RULE = Q(pinned=True, role=Message.Role.SYSTEM)
_FINAL_ANSWER = Q(role=Message.Role.ASSISTANT, tool_calls__isnull=True)
_LEAN = ("branch", "position", "role", "tokens", "tokens_through", "pinned")
_OF_SUMMARY = (
    "covers_from",
    "covers_through",
    "message_count",
    "approx_tokens",
    "summary_tokens",
    "reason",
    "archived",
)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One branch at one moment; what is not asked for is not read."""

    snapshot: BranchSnapshot

    @property
    def session(self) -> Session:
        """The session."""
        return self.snapshot.session

    @cached_property
    def page(self) -> str:
        """The address of the session's page."""
        return cells.change_url(Session, self.session.pk)

    @property
    def branch(self) -> Branch:
        """The branch, with sums read together with the state."""
        return self.snapshot.branch

    @property
    def cursor(self) -> int:
        """The position up to which it is summarised."""
        return self.snapshot.state.cursor

    @cached_property
    def stretches(self) -> list[Segment]:
        """The path: the branch's own stretch, then those of its nearest ancestors."""
        return segments(self.branch, most=MARKS_DRAWN)

    @property
    def _rows(self) -> QuerySet[Message]:
        return Message.objects.filter(kind=Message.Kind.MESSAGE).only(*_LEAN)

    @cached_property
    def pinned(self) -> list[Message]:
        """The newest pinned messages in order, one more than is drawn."""
        return _newest(pinned_messages(self.branch))

    @cached_property
    def placeholders(self) -> list[Message]:
        """The newest placeholders in order, one more than is drawn."""
        return _newest(placeholders(self.branch))

    @cached_property
    def summaries(self) -> list[SessionSummary]:
        """The newest summaries that count, oldest of them first, one more than is drawn."""
        chain = newest_summaries(self.branch, SUMMARIES_DRAWN + 1, through=self.cursor)
        rows = SessionSummary.objects.only(*_OF_SUMMARY).in_bulk([row.pk for row in chain])
        return [rows[row.pk] for row in chain]

    # --- what is sent verbatim --------------------------------------------------------------------

    @cached_property
    def sent_from(self) -> int:
        """The first position behind the cursor that is sent; later where the profile limits that.

        The same rule as BranchSnapshot.kept, worked out from places alone.
        """
        behind, limit = self.cursor + 1, self.snapshot.profile.sent_limit
        state = self.snapshot.state
        if not limit or self.branch.message_count - state.covered_messages <= limit:
            return behind
        rows = self._rows.exclude(_RULE)
        newest = rows_before(self.branch, rows, start=behind, most=limit + 1)
        if len(newest) <= limit:
            return behind
        for row in newest[1:]:
            if row.role == Message.Role.USER:
                return row.position
        questions = rows.filter(role=Message.Role.USER)
        last = rows_before(self.branch, questions, start=behind, most=1)
        return last[0].position if last else behind

    @property
    def limit_words(self) -> str:
        """What limits how many messages are sent; the smaller where two do."""
        profile = self.snapshot.profile
        by_history = profile.history_limit == profile.sent_limit
        return "history limit" if by_history else "context size"

    @cached_property
    def question(self) -> Message | None:
        """The covered question whose turn goes on behind the cursor; it is sent verbatim.

        The same rule as selectors.anchor_before, without reading texts.
        """
        if not self.cursor or self._answers_earlier():
            return None
        ends = Case(When(_FINAL_ANSWER, then=True), default=False, output_field=BooleanField())
        told = self._rows.annotate(ends_turn=ends)
        covered: list[Any] = rows_before(self.branch, told, end=self.cursor + 1, most=1)
        if not covered or covered[0].ends_turn:
            return None
        asked = self._rows.filter(role=Message.Role.USER)
        found = rows_before(self.branch, asked, end=self.cursor + 1, most=1)
        return found[0] if found else None

    def _answers_earlier(self) -> bool:
        telling = self._rows.filter(Q(role=Message.Role.USER) | _FINAL_ANSWER)
        first = rows_from(self.branch, telling, start=self.sent_from, most=1)
        return bool(first) and first[0].role == Message.Role.ASSISTANT

    # --- sums -------------------------------------------------------------------------------------

    @cached_property
    def rule_tokens(self) -> int:
        """Tokens of the system messages that are always sent first."""
        return sum(row.tokens for row in self.pinned if row.is_rule)

    @cached_property
    def again_tokens(self) -> int:
        """Tokens of what is sent verbatim although it is covered: pinned, and the open question."""
        rows = {row.pk: row for row in self.pinned if not row.is_rule}
        if self.question is not None:
            rows[self.question.pk] = self.question
        return sum(row.tokens for row in rows.values() if row.position <= self.cursor)

    @cached_property
    def left_out_tokens(self) -> int:
        """Tokens of messages that no summary covers and that are not sent either."""
        if self.sent_from == self.cursor + 1:
            return 0
        last = rows_before(self.branch, self._rows, end=self.sent_from, most=1)
        through = last[0].tokens_through if last else 0
        rules = sum(row.tokens for row in self._open_rules if row.position < self.sent_from)
        return through - self.snapshot.state.covered_tokens - rules

    @property
    def _open_rules(self) -> list[Message]:
        return [row for row in self.pinned if row.is_rule and row.position > self.cursor]

    @property
    def kept_tokens(self) -> int:
        """Tokens of the messages behind the cursor that are sent."""
        rules = sum(row.tokens for row in self._open_rules)
        return max(0, self.snapshot.facts.tokens - rules - self.left_out_tokens)

    @cached_property
    def parts(self) -> dict[str, int]:
        """Tokens of the next request by part; what is empty is there with 0."""
        snapshot, model = self.snapshot, self.snapshot.model
        return {
            "system": text_tokens(model, self.session.system_prompt) + self.rule_tokens,
            "tools": tools_tokens(model, self.session.tools),
            "summaries": snapshot.sent_summary_tokens,
            "again": self.again_tokens,
            "kept": self.kept_tokens,
        }


def _newest(rows: QuerySet[Message]) -> list[Message]:
    """Return the newest of the rows in order, one more than is drawn."""
    return list(rows.only(*_LEAN).order_by("-position")[: MARKS_DRAWN + 1])[::-1]


def situation_for(request: HttpRequest, session: Session) -> BranchSnapshot:
    """Return where the active branch stands, read once a request: panels and forms ask for it.

    Raises one of acting.REFUSALS.
    """
    found: dict[Any, BranchSnapshot] = getattr(request, "_situations", {})
    if session.pk not in found:
        found[session.pk] = snapshot_of(session)
        request._situations = found  # type: ignore[attr-defined]
    return found[session.pk]
