"""An archive: what is stored in a summary's place when no summariser could write one.

Upstream writes the plain messages to a log and moves on, so that nothing waits for ever; a megabyte
of them then stood in every prompt (spec/rs_window_augment.md 2.4, 2.5: 3412). This one says what it
is, is always smaller than what it replaces, and each message has the same room in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from compaction.engine.protocols import TokenCounter
from compaction.engine.serialize import BETWEEN_BLOCKS
from compaction.engine.types import Item, Outcome, Step, SummaryRequest

KIND = "archive"
# Part of the input that an archive may fill at most, so that storing it always frees something.
LARGEST_SHARE = 0.9
# The summary that came before has at most this part of the room.
PREVIOUS_SHARE = 0.25
_CUT = " […]"
# Characters that hardly any token exceeds.
LONGEST_TOKEN = 16


def archive(
    items: Sequence[Item],
    *,
    previous: str = "",
    counter: TokenCounter,
    max_tokens: int,
    replaces_previous: bool = False,
    on_step: Callable[[Step], None],
) -> Outcome:
    """Return the messages, shortened and marked as an archive, as an Outcome of no model call.

    It is smaller than the messages alone, or, where it `replaces_previous` in what is sent, than
    both together.
    """
    started = time.monotonic()
    own = sum(item.tokens for item in items)
    earlier = counter.count(previous) if previous else 0
    before = own + earlier
    room = min(max_tokens, int((before if replaces_previous else own) * LARGEST_SHARE))
    text = _text(items, previous, counter, room)
    step = _step(
        SummaryRequest(kind=KIND, items=tuple(items), previous=previous),
        text,
        input_tokens=before,
        output_tokens=counter.count(text),
        duration_ms=round((time.monotonic() - started) * 1000),
    )
    on_step(step)
    return Outcome(
        text=text,
        items=tuple(items),
        chunk_count=1,
        max_depth=0,
        truncated=True,
        input_tokens=before,
        output_tokens=step.output_tokens,
        steps=(step,),
        is_archive=True,
    )


def _step(request: SummaryRequest, text: str, **sizes: Any) -> Step:
    """Return the archive as a run's only step, made without a call."""
    return Step(
        key=1,
        parent=None,
        kind=KIND,
        depth=0,
        order=1,
        first=request.items[0].id,
        last=request.items[-1].id,
        message_count=len(request.items),
        outcome="truncated",
        is_call=False,
        output=text,
        request=request,
        **sizes,
    )


def _text(items: Sequence[Item], previous: str, counter: TokenCounter, room: int) -> str:
    count = "1 message" if len(items) == 1 else f"{len(items)} messages"
    notice = (
        f"[Archive of {count}: they could not be summarised and stand here as they "
        "were, shortened. All of them are stored.]"
    )
    short = f"[Archive of {count}.]"
    head = notice if counter.count(notice) * 2 <= room else short
    kept = _shortened([previous], counter, int(room * PREVIOUS_SHARE)) if previous else []
    left = room - counter.count(BETWEEN_BLOCKS.join([head, *kept]))
    return BETWEEN_BLOCKS.join([head, *kept, *_shortened(list(map(_line, items)), counter, left)])


def _line(item: Item) -> str:
    """Return a message as a line of the archive: who, what, and what was called."""
    calls = [f"{call.name} {call.arguments}" for call in item.tool_calls]
    called = f" (calls {'; '.join(calls)})" if calls else ""
    return f"{item.tool_name or item.role}: {item.text}{called}"


def _shortened(texts: list[str], counter: TokenCounter, tokens: int) -> list[str]:
    """Return the texts cut to the same length, the longest with which all fit; [] if none does."""
    low, high = 0, min(max(map(len, texts)), max(0, tokens) * LONGEST_TOKEN)
    while low < high:
        middle = (low + high + 1) // 2
        joined = BETWEEN_BLOCKS.join(_cut(texts, middle))
        # What is clearly too long is not counted.
        if len(joined) <= tokens * LONGEST_TOKEN and counter.count(joined) < tokens:
            low = middle
        else:
            high = middle - 1
    return _cut(texts, low) if low > len(_CUT) else []


def _cut(texts: list[str], length: int) -> list[str]:
    return [text if len(text) <= length else text[:length].rstrip() + _CUT for text in texts]
