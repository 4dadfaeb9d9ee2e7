"""What a summariser reads of messages: tool results no longer than a request would hold them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from compaction.engine.tool_results import cut_text
from compaction.engine.types import Item


def limited_results(items: Iterable[Item], max_chars: int | None) -> Iterator[Item]:
    """Yield the items with tool results of at most `max_chars` characters; None cuts none.

    One result that alone exceeds the summariser's window could not be summarised at all
    (spec/pi_openclaw.md D3). Tokens stay those of the stored message, which the summary replaces.
    """
    for item in items:
        if max_chars is not None and item.role == "tool" and len(item.text) > max_chars:
            yield replace(item, text=cut_text(item.text, max_chars))
        else:
            yield item
