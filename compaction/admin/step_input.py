"""What a step was given, put together again from what is stored: instruction, texts, messages.

It is what compaction.engine.strategies.prompts.messages_for sent, without the numbers in the tags
of its fences. It may be larger than memory should hold, so it is read in batches and sent piece by
piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from django.db.models import Q, QuerySet

from chatapp.models import Message
from chatapp.selectors import path_messages, path_q
from compaction.convert import summary_item, to_item
from compaction.engine.fidelity.redaction import redact_items
from compaction.engine.strategies.branch_summary import as_told, without_files
from compaction.engine.strategies.checkpoint_text import CHECKPOINT
from compaction.engine.strategies.prompts import (
    ATTENTION,
    BETWEEN_BLOCKS,
    LAST_LINE,
    MISSING,
    blocks,
    escape_tags,
)
from compaction.engine.tool_results import limited_results, named_results
from compaction.engine.types import Item
from compaction.models import CompactionRun, CompactionStep, SessionSummary
from compaction.vocabulary import reads_texts

READ_AT_ONCE = 200
_COLUMNS = (
    "role",
    "content",
    "parts",
    "position",
    "tokens",
    "chars",
    "tool_calls",
    "tool_call_id",
    "tool_name",
    "kind",
    "summary",
    "reasoning",
)
_RULES = Q(pinned=True, role=Message.Role.SYSTEM)


@dataclass(frozen=True)
class StepInput:
    """The input of one step, read in batches: it may be larger than memory should hold."""

    step: CompactionStep

    @property
    def is_merge(self) -> bool:
        """Whether texts were joined, and no message was read."""
        return reads_texts(self.step)

    @cached_property
    def _rows(self) -> QuerySet[Message] | None:
        step = self.step
        first, last = step.first_message, step.last_message
        if self.is_merge or first is None or last is None:
            return None
        if step.run.trigger == CompactionRun.Trigger.BRANCH:
            return self._left_rows(first, last)
        if step.run.replaces_id:
            # A new version reads what the old one was linked to, wherever its path leads by now.
            linked = Message.objects.filter(
                summary_links__summary=step.run.replaces_id,
                position__gte=first.position,
                position__lte=last.position,
            )
            return linked.order_by("position")
        # Nothing but placeholders is ever put between stored messages: the range is what was read.
        rows = path_messages(step.run.branch, after=first.position - 1, through=last.position)
        return rows.exclude(_RULES)

    def _left_rows(self, first: Message, last: Message) -> QuerySet[Message]:
        """Return what was read of a branch that was left: no results of tools, but summaries."""
        run = self.step.run
        rows = Message.objects.filter(
            path_q(run.branch, after=first.position - 1, through=last.position)
        )
        if run.summaries.exists():
            rows = rows.filter(summary_links__summary__run=run)
        else:
            # Nothing tells any more which of the summaries counted then.
            rows = rows.exclude(role=Message.Role.TOOL).exclude(_RULES)
        return rows.order_by("position")

    def _read(self, row: Message) -> Item:
        """Return a row as the summariser of the run got it."""
        if not row.is_spoken:
            return summary_item(row)
        item = to_item(row)
        if self._style == CHECKPOINT and row.role == Message.Role.ASSISTANT:
            item = replace(item, thinking=row.reasoning)
        is_left = self.step.run.trigger == CompactionRun.Trigger.BRANCH
        return as_told(item) if is_left else item

    @cached_property
    def message_count(self) -> int:
        """How many messages are found again."""
        return 0 if self._rows is None else self._rows.count()

    @property
    def is_complete(self) -> bool:
        """Whether as many messages are found as the step was given."""
        return self.is_merge or self.message_count == self.step.message_count

    def message_blocks(self) -> Iterator[str]:
        """Yield the messages one by one, as the summariser got them."""
        by_position, style = bool(self._given.get("by_position")), self._style
        found = blocks(self._items(), by_position=by_position, style=style)
        return (escape_tags(block) for block in found)

    @property
    def _style(self) -> str:
        return str(self._given.get("style") or "")

    def _items(self) -> Iterator[Item]:
        rows, after = self._rows, -1
        before: list[Item] = []
        while rows is not None:
            batch = list(rows.filter(position__gt=after).only(*_COLUMNS)[:READ_AT_ONCE])
            if not batch:
                return
            # A result is named after its call, which may stand in the batch before.
            items = [self._read(row) for row in batch]
            named = named_results([*before, *items])[len(before) :]
            named = [without_files(item) for item in named]
            shown = redact_items(named)[0] if self._given.get("hides_secrets") else named
            yield from limited_results(
                shown,
                self.step.run.result_chars,
                beginning=bool(self._given.get("beginnings")),
            )
            before, after = items, batch[-1].position

    @property
    def _given(self) -> dict[str, Any]:
        """How the input was written, as far as the step's row says it."""
        return self.step.given or {}

    def _beside(self) -> Iterator[str]:
        """Yield what stood behind the messages: those that stay, and what was asked for again."""
        given = self._given
        if kept := given.get("kept"):
            yield f"<recent>\n{escape_tags(kept)}\n</recent>{BETWEEN_BLOCKS}"
        if asked := _asked_of(self.step.run):
            yield f"{ATTENTION}<instructions>\n{escape_tags(asked)}\n</instructions>"
            yield BETWEEN_BLOCKS
        if missing := given.get("missing"):
            lines = escape_tags("\n".join(missing))
            yield f"{MISSING}<missing>\n{lines}\n</missing>{BETWEEN_BLOCKS}"

    def pieces(self) -> Iterator[str]:
        """Yield the whole input as one text: instruction first, then the data in its fences."""
        step = self.step
        if step.prompt:
            yield step.prompt + BETWEEN_BLOCKS
        tag = "part" if self.is_merge else "previous-summary"
        for text in step.texts:
            yield f"<{tag}>\n{escape_tags(text)}\n</{tag}>{BETWEEN_BLOCKS}"
        if not self.is_merge:
            yield "<conversation>\n"
            for number, block in enumerate(self.message_blocks()):
                yield BETWEEN_BLOCKS + block if number else block
            yield "\n</conversation>" + BETWEEN_BLOCKS
        yield from self._beside()
        if step.prompt:
            yield LAST_LINE


def _asked_of(run: CompactionRun) -> str:
    """Return the instructions that stood behind the messages of a run's calls.

    A run that nobody gave any carried on those of earlier summaries; of an older run its own
    summary alone knows them.
    """
    if run.trigger == CompactionRun.Trigger.BRANCH and run.replaces_instructions:
        return ""  # They took the place of ours, and stand first.
    if run.instructions or run.carried_instructions:
        return str(run.instructions or run.carried_instructions)
    carried = SessionSummary.objects.filter(run=run.pk).values_list("instructions", flat=True)
    return str(next(iter(carried[:1]), ""))
