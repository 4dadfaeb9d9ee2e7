"""What the session's page reads of a branch: cheap keys and sums, and each message's status.

The same rules decide in the services what is sent; here they are worked out without reading texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db.models import BooleanField, Case, Q, QuerySet, When
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.path_pages import KEPT, RULE, MessageStatus
from chatapp.admin.toolkit.permissions import may_see_texts
from chatapp.compiled import compiled_read
from chatapp.context.assembly import text_tokens, tools_tokens
from chatapp.models import Branch, Message, Session
from chatapp.selectors import (
    Segment,
    has_ancestors,
    is_own,
    messages_through,
    pinned_messages,
    placeholders,
    rows_before,
    rows_from,
    segments,
)
from compaction.branches.pins import share_of_pins
from compaction.branches.snapshot import BranchSnapshot, snapshot_of
from compaction.branches.tail import QUESTIONS
from compaction.models import SessionSummary, SessionSummaryMessage
from compaction.selectors import newest_summaries, own_summaries, summaries_of

PINNED = MessageStatus(sign="◆", name="pinned", words="Pinned: sent verbatim")
SUMMARIES_DRAWN = 150
MARKS_DRAWN = 100
CHOICES_SHOWN = 20

_RULE = Q(pinned=True, role=Message.Role.SYSTEM)
_FINAL_ANSWER = Q(role=Message.Role.ASSISTANT, tool_calls__isnull=True)
_TELLING = Q(**QUESTIONS) | _FINAL_ANSWER
_LEAN = ("branch", "position", "role", "kind", "tokens", "tokens_through", "pinned")
_OF_SUMMARY = (
    "covers_from",
    "covers_through",
    "message_count",
    "approx_tokens",
    "summary_tokens",
    "reason",
    "is_digest",
)

# What the forms say of a summary that they choose from.
_OF_CHOICE = (
    *("reason", "instructions", "covers_from", "covers_through", "message_count"),
    *("created_at", "is_digest", "branch", "session"),
)
_COLUMNS = ("status", "covers_through", "created_at", "branch", "is_digest")


@dataclass(frozen=True, kw_only=True)
class BranchView:
    """One branch at one moment; what is not asked for is not read."""

    snapshot: BranchSnapshot
    texts: bool
    """Whether who looks may see texts."""

    @property
    def session(self) -> Session:
        """The session."""
        return self.snapshot.session

    @cached_property
    def page(self) -> str:
        """The address of the session's page."""
        return html.change_url(Session, self.session.pk)

    @property
    def branch(self) -> Branch:
        """The branch, with sums read together with the state."""
        return self.snapshot.branch

    @property
    def cursor(self) -> int:
        """The position up to which it is summarised."""
        return self.snapshot.state.cursor

    @cached_property
    def segments(self) -> list[Segment]:
        """The path: the branch's own segment, then those of its nearest ancestors."""
        return segments(self.branch, most=MARKS_DRAWN)

    @property
    def _rows(self) -> QuerySet[Message]:
        return Message.objects.filter(kind__in=Message.SPOKEN).only(*_LEAN)

    @cached_property
    def pinned(self) -> list[Message]:
        """The newest pinned messages in order, one more than is drawn."""
        if has_ancestors(self.branch):
            return _newest(pinned_messages(self.branch))
        return _own_pins(branch=self.branch.pk, most=MARKS_DRAWN + 1)[::-1]

    @cached_property
    def placeholders(self) -> list[Message]:
        """The newest placeholders in order, one more than is drawn."""
        if has_ancestors(self.branch):
            return _newest(placeholders(self.branch))
        return _own_placeholders(branch=self.branch.pk, most=MARKS_DRAWN + 1)[::-1]

    @cached_property
    def summaries(self) -> list[SessionSummary]:
        """The newest summaries that count, oldest of them first, one more than is drawn."""
        if not self.cursor:
            # A summary covers a message at least.
            return []
        return newest_summaries(
            self.branch, SUMMARIES_DRAWN + 1, through=self.cursor, columns=_OF_SUMMARY
        )

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
            if row.is_question:
                return row.position
        questions = rows.filter(**QUESTIONS)
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
        if not self.cursor or self._ends_earlier():
            return None
        ends = Case(When(_FINAL_ANSWER, then=True), default=False, output_field=BooleanField())
        told = self._rows.annotate(ends_turn=ends)
        told = told.filter(kind=Message.Kind.MESSAGE)
        covered: list[Any] = rows_before(self.branch, told, end=self.cursor + 1, most=1)
        if not covered or covered[0].ends_turn:
            return None
        asked = self._rows.filter(**QUESTIONS)
        found = rows_before(self.branch, asked, end=self.cursor + 1, most=1)
        return found[0] if found else None

    def _ends_earlier(self) -> bool:
        if is_own(self.branch, self.sent_from - 1):
            return bool(_own_telling(branch=self.branch.pk, after=self.sent_from - 1, most=1))
        telling = self._rows.filter(_TELLING)
        return bool(rows_from(self.branch, telling, start=self.sent_from, most=1))

    # --- sums -------------------------------------------------------------------------------------

    @cached_property
    def rule_tokens(self) -> int:
        """Tokens of the system messages that are always sent first."""
        return sum(row.tokens for row in self.pinned if row.is_pinned_system)

    @cached_property
    def _sent_for_pin(self) -> list[Message]:
        """What is sent only because it is pinned: covered, or beyond the profile's window."""
        is_limited = self.snapshot.profile.context_size > 0
        end = self.sent_from if is_limited else self.cursor + 1
        return [row for row in self.pinned if not row.is_pinned_system and row.position < end]

    @property
    def pin_tokens(self) -> int:
        """Tokens of what is sent only because it is pinned."""
        return sum(row.tokens for row in self._sent_for_pin)

    @property
    def question_tokens(self) -> int:
        """Tokens of the open question that is sent although it is covered, if it is not pinned."""
        question = self.question
        return 0 if question is None or question in self._sent_for_pin else question.tokens

    @cached_property
    def left_out_tokens(self) -> int:
        """Tokens of messages that no summary covers and that are not sent either."""
        last = self._last_left_out
        if last is None:
            return 0
        sent = sum(row.tokens for row in self._apart if row.position < self.sent_from)
        return last.tokens_through - self.snapshot.state.covered_tokens - sent

    @cached_property
    def _last_left_out(self) -> Message | None:
        """The last message before those that a limit lets through; None where all are sent."""
        if self.sent_from == self.cursor + 1:
            return None
        return next(iter(rows_before(self.branch, self._rows, end=self.sent_from, most=1)), None)

    @property
    def frame_tokens(self) -> int:
        """Tokens of the roles and marks of all messages that are sent."""
        snapshot, last = self.snapshot, self._last_left_out
        behind = self.branch.message_count - snapshot.state.covered_messages
        if last is not None:
            sent = sum(row.position < self.sent_from for row in self._apart)
            behind -= messages_through(last) - snapshot.state.covered_messages - sent
        messages = snapshot.fixed_messages + behind + bool(self.question_tokens)
        return snapshot.model.request_frames(messages)

    @property
    def _apart(self) -> list[Message]:
        """Rules, and what is sent for its pin, behind the cursor: they are parts of their own."""
        rules = [row for row in self.pinned if row.is_pinned_system]
        return [row for row in (*rules, *self._sent_for_pin) if row.position > self.cursor]

    @property
    def kept_tokens(self) -> int:
        """Tokens of the messages behind the cursor that are sent."""
        sent = sum(row.tokens for row in self._apart)
        return max(0, self.snapshot.facts.tokens - sent - self.left_out_tokens)

    @cached_property
    def parts(self) -> dict[str, int]:
        """Tokens of the next request by part; what is empty is there with 0."""
        snapshot, model = self.snapshot, self.snapshot.model
        share = share_of_pins(snapshot)
        within = self.pin_tokens if share is None else min(share, self.pin_tokens)
        return {
            "system": text_tokens(model, self.session.system_prompt) + self.rule_tokens,
            "tools": tools_tokens(model, self.session.tools),
            "memories": snapshot.memories.tokens,
            "summaries": snapshot.sent_summary_tokens,
            "pinned": within,
            "pinned-over": self.pin_tokens - within,
            "again": self.question_tokens,
            "kept": self.kept_tokens,
            "frames": self.frame_tokens,
        }


def _newest(rows: QuerySet[Message]) -> list[Message]:
    """Return the newest of the rows in order, one more than is drawn."""
    return list(_from_the_end(rows)[: MARKS_DRAWN + 1])[::-1]


def _from_the_end(rows: QuerySet[Message]) -> QuerySet[Message]:
    return rows.only(*_LEAN).order_by("-position")


@compiled_read
def _own_telling(*, branch: UUID, after: int) -> QuerySet[Message, tuple[int]]:
    rows = Message.objects.filter(_TELLING, branch=branch, position__gt=after)
    return rows.filter(kind__in=Message.SPOKEN).order_by("position").values_list("position")


@compiled_read
def _own_pins(*, branch: UUID) -> QuerySet[Message]:
    rows = Message.objects.filter(branch=branch, pinned=True, kind__in=Message.SPOKEN)
    return _from_the_end(rows)


@compiled_read
def _own_placeholders(*, branch: UUID) -> QuerySet[Message]:
    rows = Message.objects.filter(branch=branch, kind=Message.Kind.PLACEHOLDER)
    return _from_the_end(rows)


def view_for(request: HttpRequest, session: Session) -> BranchView:
    """Return the active branch, read once a request: panels, messages and forms ask for it.

    Raises one of actions.REFUSALS.
    """
    found: dict[Any, BranchView] = getattr(request, "_branch_views", {})
    if session.pk not in found:
        found[session.pk] = BranchView(snapshot=snapshot_of(session), texts=may_see_texts(request))
        request._branch_views = found  # type: ignore[attr-defined]
    return found[session.pk]


def newest_summaries_of(request: HttpRequest, session: Session) -> list[SessionSummary]:
    """Return the newest summaries that count on the active branch, newest first.

    They are read once a request: two forms of the page ask for them.
    """
    if session.active_branch is None:
        return []
    found: list[SessionSummary] | None = getattr(request, "_newest_summaries", None)
    if found is None:
        branch = session.active_branch
        if has_ancestors(branch):
            found = list(summaries_of(branch).only(*_OF_CHOICE)[:CHOICES_SHOWN])
        else:
            found = _own_summaries(branch=branch.pk, most=CHOICES_SHOWN)
        request._newest_summaries = found  # type: ignore[attr-defined]
    return found


@compiled_read
def _own_summaries(*, branch: UUID) -> QuerySet[SessionSummary]:
    return own_summaries(branch).only(*_OF_CHOICE)


def statuses_of(view: BranchView, rows: list[Message]) -> dict[Any, MessageStatus]:
    """Return the statuses of some rows of the path by their ids; a fixed number of reads."""
    covering = _covering(view, rows)
    marked = _marked(rows)
    found = {}
    for row in rows:
        if row.kind == Message.Kind.PLACEHOLDER:
            found[row.pk] = _of_placeholder(view, row, marked.get(_marked_id(row)))
        else:
            found[row.pk] = _of_message(view, row, covering.get(row.pk))
    return found


def _covering(view: BranchView, rows: list[Message]) -> dict[Any, SessionSummary]:
    """Return the summary that counts and received each message, the newest where several did."""
    keys = [row.pk for row in rows if row.position <= view.cursor]
    if not keys:
        return {}
    links = SessionSummaryMessage.objects.filter(
        message__in=keys, summary__status=SessionSummary.Status.ACTIVE
    ).values_list("message", "summary")
    pairs = list(links)
    # A fork sees only what was summarised before it, and what it summarised itself.
    counting = summaries_of(view.branch).filter(
        pk__in={summary for _, summary in pairs}, covers_through__lte=view.cursor
    )
    order = {row.pk: (number, row) for number, row in enumerate(counting.only(*_COLUMNS))}
    found: dict[Any, tuple[int, SessionSummary]] = {}
    for message, summary in pairs:
        if summary in order and (message not in found or order[summary][0] < found[message][0]):
            found[message] = order[summary]
    return {message: summary for message, (_, summary) in found.items()}


def _marked(rows: list[Message]) -> Mapping[UUID | None, SessionSummary]:
    """Return the summaries that the placeholders among the rows mark, by id."""
    ids = {found for row in rows if (found := _marked_id(row)) is not None}
    return SessionSummary.objects.only(*_COLUMNS).in_bulk(ids) if ids else {}


def _marked_id(row: Any) -> UUID | None:
    """Return the id that a placeholder names; None for old ones, and for messages."""
    if row.kind != Message.Kind.PLACEHOLDER or not row.marks:
        return None
    try:
        return UUID(str(row.marks))
    except ValueError:
        return None


def _of_placeholder(
    view: BranchView, row: Message, summary: SessionSummary | None
) -> MessageStatus:
    words: SafeString | str
    if summary is not None:
        active = summary.status == SessionSummary.Status.ACTIVE
        status = "" if active else f" ({summary.get_status_display().lower()})"
        words = format_html("Placeholder of {}{}", summary_link(summary), status)
    elif row.pk in {old.pk for old in view.snapshot.old_placeholders}:
        words = "Imported placeholder: its text is sent as a summary"
    else:
        words = "Placeholder without a summary row: not sent"
    return MessageStatus(sign="▣", name="placeholder", words=words)


def _of_message(view: BranchView, row: Message, summary: SessionSummary | None) -> MessageStatus:
    if row.is_pinned_system:
        return RULE
    if row.position > view.cursor:
        if row.position >= view.sent_from:
            return PINNED if row.pinned else KEPT
        if row.pinned and view.snapshot.profile.context_size:
            return PINNED
        return MessageStatus(sign="○", name="left-out", words=f"Not sent ({view.limit_words})")
    by = _covering_link(summary) if summary else "an imported placeholder, without a summary row"
    if row.pinned:
        words = format_html("Pinned: sent verbatim although covered by {}", by)
        return MessageStatus(sign="◆", name="pinned", words=words)
    if view.question is not None and row.pk == view.question.pk:
        words = format_html("Open question: sent verbatim although covered by {}", by)
        return MessageStatus(sign="◆", name="pinned", words=words)
    return MessageStatus(sign="▤", name="covered", words=format_html("Covered by {}", by))


def _covering_link(summary: SessionSummary) -> SafeString:
    link = summary_link(summary)
    return format_html("{} (a fallback digest)", link) if summary.is_digest else link


def summary_link(summary: SessionSummary) -> SafeString:
    """Return a link to a summary by its short name."""
    url = html.change_url(SessionSummary, summary.pk)
    return html.link(f"summary {formatting.short_id(summary.pk)}", url)
