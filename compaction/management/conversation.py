"""A stored conversation as lines for a terminal: header, messages, summaries where they stand.

The rows are read in batches and not held, so a conversation may be of any length. What was stored
is printed through `printable`: it is read, never obeyed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import click
import wcwidth

from chatapp.formatting import percent, plural, short_id
from chatapp.management.console import one_line, printable, shortened, wrapped
from chatapp.messages.verbosity import (
    MAX_LINE,
    Mark,
    TurnState,
    Verbosity,
    call_names,
    lines_of,
    marks_of,
    without_words,
)
from chatapp.messages.wire import content_of
from chatapp.models import Branch, Message, Session
from chatapp.selectors import GROUP_REACH, TURN_MARKS, next_turn_mark, rows_from
from compaction.branches.leases import state_of
from compaction.engine.policy.reasons import reason_label
from compaction.errors import CompactionError
from compaction.models import CompactionState, SessionSummary, SessionSummaryMessage
from compaction.profiles import profile_of
from compaction.runs.holding import held_words
from compaction.selectors import newest_summaries

BATCH = 200
LABEL_CELLS = 11
INDENT = "  "
NO_BREAK = "\u00a0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ink:
    """How parts are set off: with colours of the terminal, or not at all."""

    colour: bool = False

    def title(self, line: str) -> str:
        """Return a heading."""
        return self._set(line, bold=True)

    def dim(self, line: str) -> str:
        """Return what is no longer sent."""
        return self._set(line, dim=True)

    def summary(self, line: str) -> str:
        """Return a summary's part."""
        return self._set(line, fg="cyan")

    def _set(self, line: str, **style: Any) -> str:
        # Line by line: a pager forgets colours at a line's end.
        return click.style(line, **style) if self.colour and line else line


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationText:
    """One branch of a session; `lines` reads and sets it, as briefly as `verbosity` says."""

    session: Session
    branch: Branch
    width: int
    ink: Ink
    verbosity: Verbosity = Verbosity.DEFAULT
    is_followed: bool = False
    # Of the newest calls, by their ids: results name them.
    _names: dict[str, str] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Return everything, line by line."""
        state = state_of(self.branch)
        yield from self._header(state)
        chain = self._chain(state)
        for rows in self.batches():
            yield from self.told(rows, chain)

    def batches(self, *, start: int = 0) -> Iterator[list[Message]]:
        """Return the rows of the path that may be told, from a position on, some at a time."""
        return _batches(self.branch, start, is_quiet=self.verbosity is Verbosity.QUIET)

    def told(self, rows: list[Message], chain: Collection[UUID] = ()) -> Iterator[str]:
        """Return the lines of some rows; `chain` are the summaries that may cover them."""
        sources, summaries = _sources(rows, chain), _summaries(rows)
        self._remember_calls(rows)
        is_compact, is_paragraph = self.verbosity is Verbosity.COMPACT, True
        for row, mark in zip(rows, self._marks(rows), strict=True):
            covering = sources.get(row.pk)
            if is_compact and is_paragraph and not mark.is_whole:
                yield ""
            is_paragraph = mark.is_whole
            if row.kind == Message.Kind.PLACEHOLDER:
                yield from self._placeholder(row, summaries.get(_summary_id(row)))
            elif mark.is_whole:
                yield ""
                yield from self._message(row, covering)
                yield from self._state(mark)
            elif is_compact:
                yield from self._steps(row, covering)

    def _marks(self, rows: list[Message]) -> list[Mark]:
        if self.verbosity is Verbosity.DEFAULT:
            return [Mark(True)] * len(rows)
        # Where the rows are all that there is, nothing follows.
        is_full = len(rows) >= BATCH
        after = next_turn_mark(self.branch, after=rows[-1].position) if is_full else None
        return marks_of(rows, next_role=after)

    def _remember_calls(self, rows: list[Message]) -> None:
        if self.verbosity is Verbosity.COMPACT:
            self._names.update(call_names(rows))
            for old in list(self._names)[: -2 * GROUP_REACH]:
                del self._names[old]

    def _chain(self, state: CompactionState) -> set[UUID]:
        """Return the ids of the summaries that the branch's history rests on."""
        most = SessionSummary.objects.filter(session=self.session).count()
        rows = newest_summaries(self.branch, most, through=state.cursor)
        return {row.pk for row in rows}

    # --- parts ------------------------------------------------------------------------------------

    def _header(self, state: CompactionState) -> Iterator[str]:
        session, branch = self.session, self.branch
        yield self.ink.title(shortened(one_line(str(session)), self.width))
        hold = (("Hold", held_words(state)),) if state.is_held else ()
        for label, value in (
            ("Session", str(session.pk)),
            ("Owner", session.owner.get_username()),
            ("Model", session.model),
            ("Branch", f"{branch.pk} ({branch.get_kind_display().lower()})"),
            ("Messages", f"{branch.message_count:,}"),
            ("Tokens", f"{branch.token_total:,}"),
            ("Profile", _profile(state)),
            ("Cursor", _cursor(state)),
            *hold,
        ):
            lines = wrapped(one_line(value), self.width - LABEL_CELLS)
            yield f"{label:<{LABEL_CELLS}}{lines[0]}"
            yield from (" " * LABEL_CELLS + line for line in lines[1:])

    def _message(self, row: Message, covering: UUID | None) -> Iterator[str]:
        facts = [
            row.place,
            "note" if row.is_note else row.role,
            _utc(row.created_at),
            plural(row.tokens, "token"),
        ]
        if row.pinned:
            facts.append("pinned")
        if without := without_words(row.metadata):
            facts.append(without)
        if covering is not None:
            facts.append(f"covered by summary {short_id(covering)}")
        for line in _joined(facts, self.width):
            yield self.ink.dim(line) if covering else self.ink.title(line)
        for line in self._indented(_text(row)):
            yield self.ink.dim(line) if covering else line

    def _steps(self, row: Message, covering: UUID | None) -> Iterator[str]:
        """Return a line for each thing that was done on the way."""
        head, most = f"{row.place} · ", min(self.width, MAX_LINE)
        for line in lines_of(row, self._names, most=most - len(head)):
            text = shortened(one_line(f"{head}{line}"), most)
            yield self.ink.dim(text) if covering else text

    def _state(self, mark: Mark) -> Iterator[str]:
        """Return what became of a question, where no answer is told."""
        is_open = mark.state is TurnState.CONTINUES and not self.is_followed
        if self.verbosity is Verbosity.QUIET and (is_open or mark.state is TurnState.INTERRUPTED):
            yield ""
            yield self.ink.title(f"[{mark.state}]")

    def _placeholder(self, row: Message, summary: SessionSummary | None) -> Iterator[str]:
        facts = [row.place, *_summary_facts(summary)]
        active = summary is None or summary.status == SessionSummary.Status.ACTIVE
        ink = self.ink.summary if active else self.ink.dim
        if self.verbosity is Verbosity.COMPACT:
            yield ink(shortened(" · ".join(facts), self.width))
            return
        yield ""
        first, *rest = _joined(facts, self.width - 6)
        yield ink(wcwidth.ljust(f"── {first} ", self.width, "─"))
        yield from (ink(f"   {line}") for line in rest)
        text = summary.summary_text if summary else row.summary
        yield from (ink(line) for line in self._indented(printable(text) or "(no text)"))
        yield ink("─" * self.width)

    def _indented(self, text: str) -> Iterator[str]:
        for line in wrapped(text, self.width - len(INDENT)):
            yield f"{INDENT}{line}" if line else ""


# --- words ----------------------------------------------------------------------------------------


def _joined(facts: list[str], width: int) -> list[str]:
    """Return facts in lines that break between two of them."""
    whole = [fact.replace(" ", NO_BREAK) for fact in facts]
    lines = wrapped(" · ".join(whole), width)
    return [line.removesuffix(" ·").replace(NO_BREAK, " ") for line in lines]


def _profile(state: CompactionState) -> str:
    try:
        return str(profile_of(state))
    except CompactionError as error:
        return str(error)


def _cursor(state: CompactionState) -> str:
    if not state.cursor:
        return "at the start: nothing is summarised"
    place = Message(position=state.cursor).place
    return f"{place}: {plural(state.covered_messages, 'message')} up to there"


def _summary_facts(summary: SessionSummary | None) -> list[str]:
    if summary is None:
        return ["placeholder without a summary row"]
    return [
        f"summary {short_id(summary.pk)}",
        summary.get_status_display().lower(),
        percent(summary.compression_ratio),
        f"of {plural(summary.message_count, 'message')}",
        one_line(reason_label(summary.reason)),
    ]


def _text(row: Message) -> str:
    """Return what a message says, calls, or answers, printable."""
    paragraphs = []
    if row.role == Message.Role.TOOL:
        names = [one_line(name) for name in (row.tool_name, row.tool_call_id) if name]
        paragraphs.append(f"← result of {' '.join(names) or 'an unnamed call'}")
    paragraphs.append(printable(_content(content_of(row))))
    if refusal := row.metadata.get("refusal"):
        paragraphs.append(f"refusal: {printable(str(refusal))}")
    paragraphs += [_call(call) for call in row.tool_calls or ()]
    return "\n".join(filter(None, paragraphs)) or "(no text)"


def _content(content: str | list[dict[str, Any]] | None) -> str:
    if not isinstance(content, list):
        return content or ""
    return "\n".join(part.get("text") or f"[{part.get('type')}]" for part in content)


def _call(call: Mapping[str, Any]) -> str:
    function = call["function"]
    name, call_id = one_line(function["name"]), one_line(str(call.get("id") or ""))
    return f"→ {name}({printable(function['arguments'])}) {call_id}".rstrip()


def _utc(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


# --- reads ----------------------------------------------------------------------------------------


def _batches(branch: Branch, start: int, *, is_quiet: bool) -> Iterator[list[Message]]:
    """Return the rows of the path from a position on in order, some at a time.

    Not QuerySet.iterator(): its cursor would stay open as long as somebody reads in the pager.
    """
    path = Message.objects.defer("usage", "response_id", "reasoning")
    path = path.filter(TURN_MARKS) if is_quiet else path
    rows = rows_from(branch, path, start=start, most=BATCH)
    while rows:
        yield rows
        rows = rows_from(branch, path, start=rows[-1].position + 1, most=BATCH)


def _sources(rows: list[Message], chain: Collection[UUID]) -> dict[UUID, UUID]:
    """Return which summary received each of the messages; those that none received are missing."""
    if not chain:
        return {}
    links = SessionSummaryMessage.objects.filter(
        message__in=[row.pk for row in rows], summary__status=SessionSummary.Status.ACTIVE
    ).values_list("message", "summary")
    return {message: summary for message, summary in links if summary in chain}


def _summaries(rows: list[Message]) -> dict[UUID | None, SessionSummary]:
    """Return the summaries that the placeholders among the rows stand for, by id."""
    ids = [found for row in rows if (found := _summary_id(row)) is not None]
    if not ids:
        return {}
    heavy = (
        *("summary_prompt", "abridged", "metadata", "details"),
        *("files_read", "files_modified", "files_created", "files_deleted"),
    )
    return {row.pk: row for row in SessionSummary.objects.filter(pk__in=ids).defer(*heavy)}


def _summary_id(row: Message) -> UUID | None:
    """Return the id that a placeholder names; None for old ones, and for messages."""
    if row.kind != Message.Kind.PLACEHOLDER:
        return None
    try:
        return UUID(str(row.metadata.get("summary_id")))
    except ValueError:
        return None
