"""How a parameter is declared; and those of work in the background.

That is work ahead of need, by a window of messages, and after failures. Names of the window's are
the established ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def parameter(
    default: Any,
    text: str,
    *,
    unit: str = "",
    group: str = "",
    variable: str = "",
    preset: str = "bisect",
    **limits: Any,
) -> Any:
    """Return a dataclass field that says all about a parameter of a profile.

    `limits` are minimum and maximum, choices, the registry whose names are the choices, or the
    `longest` that a text may be; with `multiline` it may have several lines.
    `variable` names the environment variable that overrides the parameter in `preset`, in every
    preset where that is empty.
    """
    facts = {"help": text, "unit": unit, "group": group, "variable": variable, "preset": preset}
    return field(default=default, metadata=facts | limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowParameters:
    """What every profile may use; only the first of them is on by default."""

    prepare_ratio: float = parameter(
        0.7,
        "Summarise in the background when the next request passes this part of the window, or "
        "comes near the size at which a turn would have to wait; 0 switches the rule off.",
        group="ahead",
        minimum=0.0,
        maximum=1.0,
    )
    publish_when_needed: bool = parameter(
        False,
        "Keep a summary that was made ahead as a draft until a rule asks for it: requests begin "
        "the same for longer, which keeps a server's prompt cache warm. Off: it counts at once.",
        group="ahead",
    )
    minimum_batch: int = parameter(
        # A single message that grew old is not worth a call.
        4,
        "Fewer messages are not summarised because of their age, nor ahead of need.",
        unit="messages",
        group="ahead",
        minimum=1,
        maximum=1000,
    )
    compression_window_size: int = parameter(
        0,
        "Summarise in the background when this many messages have left the tail; 0 switches the "
        "rule off.",
        unit="messages",
        group="window",
        minimum=0,
        maximum=100_000,
        variable="COMPRESSION_WINDOW_SIZE",
        preset="sliding_window",
    )
    tail_keep_size: int = parameter(
        40,
        "Messages that stay verbatim where the cut is the tail of the sliding window.",
        unit="messages",
        group="window",
        minimum=1,
        maximum=10_000,
        variable="TAIL_KEEP_SIZE",
        preset="sliding_window",
    )
    compression_cooldown_sec: int = parameter(
        # Its established name says cooldown; it fires, and never holds back.
        0,
        "Maximum age: summarise when the oldest message that left the tail has waited for so long; "
        "0 switches the rule off.",
        unit="seconds",
        group="window",
        minimum=0,
        maximum=31_536_000,
        variable="COMPRESSION_COOLDOWN_SEC",
        preset="sliding_window",
    )
    compression_hard_limit: int = parameter(
        0,
        "Summarise before the next request when this many messages have left the tail, also while "
        "automatic runs wait after failures; 0 switches the rule off.",
        unit="messages",
        group="window",
        minimum=0,
        maximum=100_000,
        variable="COMPRESSION_HARD_LIMIT",
        preset="sliding_window",
    )
    context_size: int = parameter(
        0,
        "Most messages sent behind the summaries; pinned ones and the question of a turn that is "
        "summarised in part come on top. Before any would be left out that no summary has read, "
        "they are summarised; 0 sends all.",
        unit="messages",
        group="window",
        minimum=0,
        maximum=100_000,
        variable="CONTEXT_SIZE",
        preset="sliding_window",
    )
    batch_messages: int = parameter(
        0,
        "Most messages of one automatic run, the oldest first; the next run goes on. 0: all.",
        unit="messages",
        group="window",
        minimum=0,
        maximum=100_000,
    )
    smaller_after_failures: int = parameter(
        0,
        "After so many failed runs in a row, batches get smaller with each one; 0: never.",
        unit="failures",
        group="failing",
        minimum=0,
        maximum=100,
    )
    digest_after_failures: int = parameter(
        0,
        "After so many failed runs in a row the messages themselves, shortened, are stored as a "
        "fallback digest, so that nothing waits for ever; 0: never.",
        unit="failures",
        group="failing",
        minimum=0,
        maximum=100,
    )
    digest_tokens: int = parameter(
        # Without a limit, an outage would put a megabyte into every prompt.
        4000,
        "Most tokens of a fallback digest.",
        unit="tokens",
        group="failing",
        minimum=100,
        maximum=1_000_000,
    )
