"""Made-up attempts to compact a branch: runs with all outcomes, and the trees of their calls."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from chatapp.models import Branch, Message, Session
from compaction.engine.strategies.prompts import system_prompt
from compaction.models import CompactionRun, CompactionStep
from tests.bench.texts import Piece

_LANGUAGE = "in the main language of the conversation"
PROMPTS = {
    kind: system_prompt(kind, target_tokens=700, language=_LANGUAGE, previous=kind == "chunk")
    for kind in ("chunk", "merge")
}
FAILURES = (
    ("summariser_error", "The model server could not be reached."),
    ("bad_answer", "The summariser answered with an empty text."),
    ("not_smaller", "The summary (900 tokens) is not smaller than what it replaces (850 tokens)."),
    ("interrupted", "The worker stopped in the middle of the run; nothing of it was stored."),
)


@dataclass(kw_only=True)
class Attempts:
    """Adds runs and steps of one branch to the rows that its maker (rows.Maker) collects."""

    maker: Any
    session: Session
    branch: Branch

    def run(
        self, at: datetime, *, tokens: int = 0, after: int = 0, **columns: Any
    ) -> CompactionRun:
        chance = self.maker.chance
        finished = columns["status"] not in ("queued", "running")
        seconds = chance.lognormvariate(1.0, 0.8)
        reasons = {"proactive": chance.choice(("message_limit", "token_limit", "window"))}
        run = CompactionRun(
            session=self.session,
            branch=self.branch,
            reason=reasons.get(columns["trigger"], columns["trigger"]),
            mode=chance.choice(("inline", "background")),
            profile=self.maker.profile,
            tokens_before=tokens or None,
            tokens_after=after or None,
            input_tokens=tokens,
            output_tokens=after,
            chunk_count=1 if tokens else 0,
            cost=(tokens * 0.15 + after * 0.6) / 1_000_000,
            created_at=at,
            started_at=at + timedelta(seconds=0.2) if columns["status"] != "queued" else None,
            finished_at=at + timedelta(seconds=0.2 + seconds) if finished else None,
            **columns,
        )
        return self.maker.add(run)  # type: ignore[no-any-return]

    def idle_run(self, stretch: list[Message]) -> None:
        """Add a run that stored nothing."""
        chance = self.maker.chance
        status = chance.choice(("skipped", "failed", "failed", "cancelled"))
        code, sentence = "not_due", "No trigger is due any more: another run has done the work."
        if status == "failed":
            code, sentence = chance.choice(FAILURES)
        elif status == "cancelled":
            code, sentence = "cancelled", "Somebody cancelled the run; nothing of it was stored."
        run = self.run(
            min(self.maker.now, stretch[-1].created_at),
            status=status,
            trigger="proactive",
            error_code=code,
            error=sentence,
        )
        if status == "failed" and code == "bad_answer":
            run.model_calls = 2
            for order in (1, 2):
                self._step(run, stretch, order=order, outcome="error", error=sentence)

    def steps(self, run: CompactionRun, stretch: list[Message], piece: Piece, tokens: int) -> None:
        """Add a run's calls: one that was enough, or halves that were merged, up to two levels."""
        levels = self.maker.chance.choice((0, 0, 0, 0, 1, 2)) if len(stretch) >= 8 else 0
        order = self._tree(run, stretch, None, 0, levels, 1, output=piece.text)
        run.model_calls, run.max_depth = order - 1, levels + 1 if levels else 0
        run.chunk_count = 2 ** (levels + 1) - 1
        run.input_tokens = tokens

    def _tree(
        self,
        run: CompactionRun,
        part: list[Message],
        parent: int | None,
        depth: int,
        levels: int,
        order: int,
        *,
        output: str,
    ) -> int:
        """Add the calls for a part of the input and return the next call's number."""
        outcome = "overflow" if levels else "ok"
        step = self._step(
            run, part, order=order, parent=parent, depth=depth, outcome=outcome,
            error="The input is longer than the model's context." if levels else "",
            output="" if levels else output,
        )  # fmt: skip
        order += 1
        if not levels:
            return order
        middle = len(part) // 2
        for half in (part[:middle], part[middle:]):
            order = self._tree(run, half, step, depth + 1, levels - 1, order, output=output)
        self._step(
            run, [], order=order, parent=step, depth=depth + 1, kind="merge",
            texts=[output[:400], output[400:800]], output=output,
        )  # fmt: skip
        return order + 1

    def _step(
        self,
        run: CompactionRun,
        part: list[Message],
        *,
        order: int,
        outcome: str = "ok",
        kind: str = "chunk",
        parent: int | None = None,
        **columns: Any,
    ) -> int:
        number = self.maker.next_step
        self.maker.next_step += 1
        step = CompactionStep(
            id=number,
            run=run,
            parent_id=parent,
            kind=kind,
            order=order,
            first_message=part[0] if part else None,
            last_message=part[-1] if part else None,
            message_count=len(part) or 2,
            input_tokens=sum(row.tokens for row in part) or 400,
            output_tokens=200 if outcome == "ok" else 0,
            outcome=outcome,
            duration_ms=int(1000 * self.maker.chance.lognormvariate(0.5, 0.8)),
            prompt=PROMPTS[kind],
            model="gpt-4o-mini",
            created_at=run.created_at,
            **columns,
        )
        self.maker.add(step)
        return number
