"""The rows of one made-up session: messages with right sums, summaries, runs, steps, states."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from chatapp.llm.tokens import ModelTokenCounter
from chatapp.messages.wire import chars_of
from chatapp.models import POSITION_STEP, Branch, Message, Session
from compaction.engine.strategies.bisect import ALGORITHM
from compaction.engine.strategies.prompts import PROMPT_VERSION
from compaction.models import (
    CompactionProfile,
    CompactionRun,
    CompactionState,
    CompactionStep,
    SessionSummary,
    SessionSummaryMessage,
)
from compaction.summaries.columns import PLACEHOLDER_NOTICE
from tests.bench.attempts import PROMPTS, Attempts
from tests.bench.texts import Phrases, turn_columns

DAYS = 90
KEPT = 6
# Rows that are written in this order, so that every foreign key finds its row.
ORDER = (
    Session, Branch, Message, CompactionRun, CompactionStep, SessionSummary,
    SessionSummaryMessage, CompactionState,
)  # fmt: skip


@dataclass(kw_only=True)
class Maker:
    """Makes sessions one after the other; `rows` collects what has not been written yet."""

    owners: list[Any]
    profile: CompactionProfile
    phrases: Phrases
    counter: ModelTokenCounter
    chance: random.Random
    now: datetime
    next_step: int
    rows: dict[type, list[Any]] = field(default_factory=lambda: {model: [] for model in ORDER})
    made: dict[type, int] = field(default_factory=lambda: dict.fromkeys(ORDER, 0))

    def add(self, row: Any) -> Any:
        self.rows[type(row)].append(row)
        self.made[type(row)] += 1
        return row

    def session(self, *, messages: int, summaries: int, forks: int = 0, title: str = "") -> Session:
        """Make one session with about that many messages and exactly that many summaries."""
        start = self.now - timedelta(days=DAYS) * self.chance.random()
        gap = (self.now - start) / (messages + 1) * self.chance.uniform(0.2, 1.0)
        session = Session(
            owner=self.chance.choice(self.owners), title=title, created_at=start, updated_at=start
        )
        root = Branch(session=session, created_at=start)
        session.active_branch = root
        self.add(session)
        self.add(root)
        path = _Path(maker=self, session=session, branch=root, clock=start, gap=gap)
        path.talk(messages)
        path.compact(summaries)
        branches = [path, *(path.fork() for _ in range(forks))]
        if forks and self.chance.random() < 0.5:
            session.active_branch = branches[-1].branch
        session.updated_at = max(branch.clock for branch in branches)
        session.title = title or path.own[0].content[:60]
        return session


@dataclass(kw_only=True)
class _Path:
    """One branch while it is being made; `own` are its messages, in order."""

    maker: Maker
    session: Session
    branch: Branch
    clock: datetime
    gap: timedelta
    through: int = 0
    chars: int = 0
    own: list[Message] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    covered: list[SessionSummary] = field(default_factory=list)

    @property
    def attempts(self) -> Attempts:
        """Runs and steps of this branch."""
        return Attempts(maker=self.maker, session=self.session, branch=self.branch)

    def talk(self, count: int) -> None:
        """Append whole turns until there are `count` messages."""
        chance = self.maker.chance
        if not self.branch.parent_id and chance.random() < 0.2:
            piece = chance.choice(self.maker.phrases.asked)
            rule = {"role": "system", "content": piece.text, "tokens": piece.tokens}
            self._append(rule | {"pinned": True})
        while len(self.own) < count:
            for columns in turn_columns(self.maker.phrases, self.maker.counter, chance):
                self._append(columns | {"pinned": False})
            if chance.random() < 0.002:
                self.own[-1].pinned = True
            self.ends.append(len(self.own))

    def _append(self, columns: dict[str, Any]) -> None:
        self.clock += self.gap
        self.through += columns["tokens"]
        self.branch.head_position += POSITION_STEP
        self.branch.message_count += 1
        self.branch.token_total = self.through
        row = Message(
            session=self.session,
            branch=self.branch,
            position=self.branch.head_position,
            tokens_through=self.through,
            created_at=self.clock,
            **columns,
        )
        row.chars = chars_of(row)
        self.chars += row.chars
        row.chars_through = self.branch.char_total = self.chars
        self.own.append(self.maker.add(row))

    def compact(self, count: int) -> None:
        """Summarise nearly all of the branch in stretches of turns; `count` summaries in all.

        One in four is a superseded version of another's stretch; now and then the newest one was
        taken back.
        """
        chance = self.maker.chance
        ends = [end for end in self.ends if end <= len(self.own) - KEPT]
        stretches = min(len(ends), max(1, round(count * 0.75))) if count else 0
        chosen = [ends[(n + 1) * len(ends) // stretches - 1] for n in range(stretches)]
        start, first = 0, 0
        for number, end in enumerate(chosen):
            stretch = [row for row in self.own[start:end] if not row.is_pinned_system]
            last = number == stretches - 1
            older = (count - stretches) * (number + 1) // stretches - first
            taken_back = last and stretches > 1 and not older and chance.random() < 0.1
            self._summarise(stretch, older=older, taken_back=taken_back)
            start, first = end, first + older
        self._state()

    def _summarise(self, stretch: list[Message], *, older: int, taken_back: bool) -> None:
        previous = self.covered[-1] if self.covered else None
        old: SessionSummary | None = None
        status = SessionSummary.Status
        for number in range(older + 1):
            newest = number == older
            kept = status.RESTORED if taken_back else status.ACTIVE
            old = self._summary(
                stretch,
                status=kept if newest else status.SUPERSEDED,
                previous=previous,
                supersedes=old,
                place=number + 1,
            )
        if old is not None and not taken_back:
            self.covered.append(old)
        for _ in range(self.maker.chance.choice((0, 0, 1))):
            self.attempts.idle_run(stretch)

    def _summary(
        self,
        stretch: list[Message],
        *,
        status: str,
        previous: SessionSummary | None,
        supersedes: SessionSummary | None,
        place: int,
    ) -> SessionSummary:
        chance, first, last = self.maker.chance, stretch[0], stretch[-1]
        piece = chance.choice(self.maker.phrases.summaries)
        tokens = sum(row.tokens for row in stretch)
        at = min(self.maker.now, last.created_at + self.gap * KEPT + timedelta(hours=place - 1))
        run = self.attempts.run(
            at,
            status=CompactionRun.Status.SUCCEEDED,
            trigger="resummarize"
            if supersedes
            else chance.choice(("proactive",) * 8 + ("manual",)),
            replaces=None,
            tokens=tokens,
            after=piece.tokens,
        )
        self.attempts.steps(run, stretch, piece, tokens)
        ratio = piece.tokens / tokens if tokens else 0.0
        summary = SessionSummary(
            session=self.session,
            branch=self.branch,
            status=status,
            summary_text=piece.text,
            summary_prompt=PROMPTS["chunk"],
            prompt_version=PROMPT_VERSION,
            model=chance.choice(("gpt-4o-mini", "gpt-4o-mini", "qwen2.5-1.5b")),
            temperature=0.2,
            target_summary_tokens=700,
            keep_last_n=KEPT,
            message_count=len(stretch),
            approx_tokens=tokens,
            summary_tokens=piece.tokens,
            first_message=first,
            last_message=last,
            first_message_created_at=first.created_at,
            last_message_created_at=last.created_at,
            metadata=_metadata(run, ratio),
            trigger=run.trigger,
            reason=run.reason,
            compression_ratio=ratio,
            previous=previous,
            supersedes=supersedes,
            covers_from=first.position,
            covers_through=last.position,
            tokens_before=tokens,
            tokens_after=piece.tokens,
            cost=run.cost,
            run=run,
            profile=self.maker.profile,
            created_at=at,
        )
        self.maker.add(summary)
        for row in stretch:
            self.maker.add(SessionSummaryMessage(summary=summary, message=row))
        self._placeholder(summary, place)
        return summary

    def _placeholder(self, summary: SessionSummary, place: int) -> None:
        """Mark the summary: each later version halves the way to the one before, as stored ones."""
        last = summary.last_message
        assert last is not None
        mark = {
            "type": "session_summary",
            "summary_id": str(summary.pk),
            "keepLastN": KEPT,
            "summary_timestamp": round(summary.created_at.timestamp() * 1000),
        }
        row = Message(
            session=self.session,
            branch=self.branch,
            position=last.position + (POSITION_STEP >> place),
            role="assistant",
            kind=Message.Kind.PLACEHOLDER,
            content=PLACEHOLDER_NOTICE,
            summary=summary.summary_text,
            metadata=summary.metadata | mark,
            tokens_through=last.tokens_through,
            chars_through=last.chars_through,
            created_at=summary.created_at,
        )
        self.maker.add(row)

    def fork(self) -> _Path:
        """Make a branch that leaves this one at the end of a turn and goes on for a few turns."""
        chance = self.maker.chance
        end = chance.choice(self.ends)
        at = self.own[end - 1]
        branch = Branch(
            session=self.session,
            parent=self.branch,
            fork_position=at.position,
            kind=Branch.Kind.FORK,
            head_position=at.position,
            message_count=end,
            token_total=at.tokens_through,
            char_total=at.chars_through,
            created_at=self.clock,
        )
        self.maker.add(branch)
        path = _Path(
            maker=self.maker, session=self.session, branch=branch, clock=self.clock,
            gap=self.gap, through=at.tokens_through, chars=at.chars_through,
            covered=[row for row in self.covered if row.covers_through <= at.position],
        )  # fmt: skip
        path.talk(chance.randrange(2, 14))
        path._state()
        return path

    def _state(self) -> None:
        """Store the branch's state; where nothing is summarised, half of them were never stored."""
        newest = self.covered[-1] if self.covered else None
        if newest is None and self.maker.chance.random() < 0.5:
            return
        state = CompactionState(branch=self.branch)
        if newest is not None and newest.last_message is not None:
            last = newest.last_message
            state.cursor = newest.covers_through
            # Root messages stand in whole steps from the first on.
            state.covered_messages = last.position // POSITION_STEP
            state.covered_tokens = last.tokens_through
            state.covered_chars = last.chars_through
            state.last_consolidated_at = newest.created_at
        self.maker.add(state)


def _metadata(run: CompactionRun, ratio: float) -> dict[str, Any]:
    return {
        "algorithm": ALGORITHM,
        "trigger": run.trigger,
        "chunk_count": run.chunk_count,
        "max_depth": run.max_depth,
        "truncated": False,
        "compression_ratio": round(ratio, 4),
        "input_tokens": run.input_tokens,
        "output_tokens": run.output_tokens,
        "leaf_count": max(1, (run.chunk_count + 1) // 2),
        "split_depth": max(0, run.max_depth - 1),
    }
