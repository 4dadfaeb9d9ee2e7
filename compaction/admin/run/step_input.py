"""What a step was given, put together again from what is stored: instruction, texts, messages.

It is what engine/prompts.messages_for sent, without the numbers in the tags of its fences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from django.db.models import Q, QuerySet

from chatapp.models import Message
from chatapp.selectors import path_messages
from compaction.convert import to_item
from compaction.engine.strategies.prompts import BETWEEN_BLOCKS, blocks, escape_tags
from compaction.engine.tool_results import limited_results
from compaction.engine.types import Item
from compaction.models import CompactionStep
from compaction.vocabulary import MERGE

READ_AT_ONCE = 200
ATTENTION = "The operator asks to pay attention to this:\n"
LAST_LINE = "Write the summary now."
_COLUMNS = (
    "role",
    "content",
    "parts",
    "position",
    "tokens",
    "tool_calls",
    "tool_call_id",
    "tool_name",
)
_RULES = Q(pinned=True, role=Message.Role.SYSTEM)


@dataclass(frozen=True)
class StepInput:
    """The input of one step, read in batches: it may be larger than memory should hold."""

    step: CompactionStep

    @property
    def is_merge(self) -> bool:
        """Whether two texts were joined, and no message was read."""
        return self.step.kind == MERGE

    @cached_property
    def _rows(self) -> QuerySet[Message] | None:
        step = self.step
        first, last = step.first_message, step.last_message
        if self.is_merge or first is None or last is None:
            return None
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
        return (escape_tags(block) for block in blocks(self._items()))

    def _items(self) -> Iterator[Item]:
        rows, after = self._rows, -1
        while rows is not None:
            batch = list(rows.filter(position__gt=after).only(*_COLUMNS)[:READ_AT_ONCE])
            if not batch:
                return
            yield from limited_results(map(to_item, batch), self.step.run.result_chars)
            after = batch[-1].position

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
        if asked := step.run.instructions:
            yield f"{ATTENTION}<instructions>\n{escape_tags(asked)}\n</instructions>"
            yield BETWEEN_BLOCKS
        if step.prompt:
            yield LAST_LINE
