"""Profile: every parameter of a compaction, with its default, its limits and what it is about.

Names are the established ones. Where an established default is a fault, the comment says what is
right instead.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from compaction.engine.history_parameters import HistoryParameters
from compaction.engine.window_parameters import parameter

# What the groups of the parameters are about, in the order in which they are shown.
GROUPS = {
    "when": "When to compact",
    "ahead": "Ahead of need",
    "window": "Sliding window of messages",
    "history": "History by characters, and the cache's clock",
    "failing": "When summaries keep failing",
    "cut": "What stays verbatim",
    "summariser": "Who summarises, and how long",
    "quality": "What a summary must still know",
    "bisect": "Inputs that are too large",
    "recovery": "After a refused request",
    "results": "Tool results",
    "branches": "Switching branches",
    "sending": "What is sent",
    "abridged": "Abridged history",
    "memories": "Memories",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(HistoryParameters):
    """All parameters with the defaults of preset `bisect`."""

    enabled: bool = parameter(
        True,
        "Compaction as a whole; off means that everything is sent.",
        group="when",
        variable="DYNAMIC_SUMMARY_ENABLED",
    )
    message_limit: int = parameter(
        40,
        "Compact when this many messages came since the last summary; 0 switches the rule off.",
        unit="messages",
        group="when",
        minimum=0,
        maximum=100_000,
        variable="SUMMARY_MESSAGE_LIMIT",
    )
    max_context_tokens: int = parameter(
        6000,
        "Compact when this many tokens came since the last summary; 0 switches the rule off.",
        unit="tokens",
        group="when",
        minimum=0,
        maximum=100_000_000,
        variable="SUMMARY_MAX_CONTEXT_TOKENS",
    )
    window_trigger: bool = parameter(
        False, "Compact when the next request would not leave the reserve free.", group="when"
    )
    reserve_tokens: int = parameter(
        0,
        "Part of the window kept free for the answer; the model's own maximum counts if larger.",
        unit="tokens",
        group="when",
        minimum=0,
        maximum=100_000_000,
    )
    cooldown_seconds: int = parameter(
        60,
        "Shortest time between two compactions by count, tokens or characters; overflow, window "
        "and what is done ahead of need ignore it.",
        unit="seconds",
        group="when",
        minimum=0,
        maximum=86_400,
        variable="SUMMARY_COOLDOWN_SECONDS",
    )
    restore_hold: str = parameter(
        "until_lifted",
        "How long no rule compacts what a person took back from a summary: until_lifted, a number "
        "of minutes (0: not at all), or window, until the window's rule is due. A request that "
        "would not fit ends it in any case.",
        group="when",
        longest=20,
    )
    cut: str = parameter(
        "last_n",
        "What stays verbatim: the last N messages, the most recent tokens at least (checkpoint) or "
        "at most (recent_tokens), the tail of the sliding window, or the newest exchanges by their "
        "characters (tail_chars).",
        group="cut",
        registry="CUTS",
    )
    keep_last_n: int = parameter(
        6,
        "Messages that stay verbatim; more where a tool call would lose its results.",
        unit="messages",
        group="cut",
        minimum=0,
        maximum=10_000,
        variable="SUMMARY_KEEP_LAST_N",
    )
    keep_recent_tokens: int = parameter(
        20_000,
        "Tokens that stay verbatim, counted from the newest message.",
        unit="tokens",
        group="cut",
        minimum=1,
        maximum=100_000_000,
    )
    strategy: str = parameter(
        "bisect",
        "How a summary is made: one call for everything, halves where that is too large (bisect); "
        "the same, with one of its own for the beginning of a split turn (iterative); or the "
        "messages themselves, shortened (digest).",
        group="summariser",
        registry="STRATEGIES",
    )
    summariser: str = parameter(
        "model",
        "Who summarises: a language model, or chosen sentences without one.",
        group="summariser",
        choices=("model", "extractive"),
    )
    summary_model: str | tuple[str, ...] = parameter(
        "",
        "Alias of the summarising model, or several in the order in which they are asked: the next "
        "one where a model is left alone, refuses, or is too small. Empty is the session's own.",
        group="summariser",
        variable="SUMMARY_MODEL",
        preset="",
    )
    target_summary_tokens: int = parameter(
        700,
        "Size asked of a summary.",
        unit="tokens",
        group="summariser",
        minimum=16,
        maximum=100_000,
        variable="SUMMARY_TARGET_TOKENS",
    )
    merge_target_tokens: int = parameter(
        0,
        "Size asked of a merged summary; 0 means the same as a summary's.",
        unit="tokens",
        group="summariser",
        minimum=0,
        maximum=100_000,
        variable="SUMMARY_MERGE_TARGET_TOKENS",
    )
    temperature: float | None = parameter(
        0.2,
        "Temperature of the summarising calls; none sends no temperature.",
        group="summariser",
        minimum=0.0,
        maximum=2.0,
        variable="SUMMARY_TEMPERATURE",
    )
    bisect_enabled: bool = parameter(
        True,
        "Halve an input that is too large and merge the two summaries; off: what is too large is "
        "shortened at once, as `fallback` says, and marked, instead of failing.",
        group="bisect",
        variable="SUMMARY_BISECT_ENABLED",
    )
    bisect_max_depth: int = parameter(
        6,
        "How often an input may be halved.",
        unit="levels",
        group="bisect",
        minimum=0,
        maximum=20,
        variable="SUMMARY_BISECT_MAX_DEPTH",
    )
    bisect_min_messages: int = parameter(
        # With 1, a merge would halve itself without end.
        4,
        "Inputs of this many messages or fewer are not halved.",
        unit="messages",
        group="bisect",
        minimum=2,
        maximum=1000,
        variable="SUMMARY_BISECT_MIN_MESSAGES",
    )
    planned_split: bool = parameter(
        False, "Halve at once what clearly exceeds the summariser's known window.", group="bisect"
    )
    max_model_calls: int = parameter(
        200, "Most model calls of one run.", unit="calls", group="bisect", minimum=1, maximum=1000
    )
    fallback: str = parameter(
        "extractive",
        "When no halving is left: chosen sentences first, or the plain head of the text.",
        group="bisect",
        choices=("extractive", "truncate"),
    )
    retry_on_context_overflow: bool = parameter(
        True,
        "After a request that was refused as too large, recover step by step: compact everything "
        "but the question, cut tool results, send fewer messages.",
        group="recovery",
        variable="SUMMARY_RETRY_ON_CONTEXT_OVERFLOW",
    )
    max_overflow_compaction_attempts: int = parameter(
        3,
        "Compactions of one turn after refusals; only those that free tokens count.",
        unit="compactions",
        group="recovery",
        minimum=0,
        maximum=10,
    )
    truncate_tool_results: bool = parameter(
        True,
        "Then cut oversized tool results, once a turn, in a new branch; the old one stays.",
        group="recovery",
    )
    halve_history: bool = parameter(
        True,
        "Then send only the newest 20, 10, 5, 2 groups of messages, or 1; off: only while a run is "
        "to summarise more.",
        group="recovery",
    )
    max_tool_result_context_share: float = parameter(
        0.3,
        "Part of the window that one tool result, or all together after a refusal, may take.",
        group="results",
        minimum=0.01,
        maximum=1.0,
    )
    hard_max_tool_result_chars: int = parameter(
        400_000,
        "Most characters of a tool result, however large the window is.",
        unit="characters",
        group="results",
        minimum=100,
        maximum=100_000_000,
    )
    min_keep_chars: int = parameter(
        2000,
        "Characters that stay of a tool result in any case, unless the window is smaller.",
        unit="characters",
        group="results",
        minimum=0,
        maximum=1_000_000,
    )
    limit_tool_results: bool = parameter(
        True,
        "In every request, cut a tool result that alone exceeds its share; what is stored stays.",
        group="results",
    )
    precheck_margin: float = parameter(
        0.0,
        "Before sending, shorten a request whose counted tokens times this leave no room for the "
        "answer; 0 sends it and waits for the refusal.",
        group="recovery",
        minimum=0.0,
        maximum=3.0,
    )
    rendering: str = parameter(
        "system",
        "How a summary is sent: a system message of its own, merged into the system prompt, a user "
        "message with tags, or a node of two messages.",
        group="sending",
        registry="RENDERINGS",
    )
    summary_limit: int = parameter(
        2,
        "How many of the newest summaries are sent, oldest first; one that holds those before it "
        "(with a ledger, or of chosen clauses) is sent alone.",
        unit="summaries",
        group="sending",
        minimum=1,
        maximum=20,
    )
    history_limit: int = parameter(
        # A limit of 20, as is usual, would hide messages that no summary covers yet.
        0,
        "Most messages sent behind the summaries, the newest; 0 sends all. Older ones that no "
        "summary covers yet are then not sent.",
        unit="messages",
        group="sending",
        minimum=0,
        maximum=100_000,
        variable="HISTORY_LIMIT",
    )

    @property
    def _tails(self) -> dict[str, int]:
        return {"tail_size": self.tail_keep_size, "last_n": self.keep_last_n}

    @property
    def counts_tail(self) -> bool:
        """Whether the cut keeps a number of messages; other cuts count something else."""
        return self.cut in self._tails

    @property
    def tail(self) -> int:
        """Messages that stay verbatim by count; 0 where the cut counts something else."""
        return self._tails.get(self.cut, 0)

    @property
    def counts_window(self) -> bool:
        """Whether a rule of the sliding window is in force."""
        return any(
            (
                self.compression_window_size,
                self.compression_hard_limit,
                self.compression_cooldown_sec,
                self.context_size,
            )
        )

    @property
    def sent_limit(self) -> int:
        """Most messages sent behind the summaries; 0 for all, as where nothing is compacted."""
        if not self.enabled:
            return 0
        return min(filter(None, (self.history_limit, self.context_size)), default=0)

    @property
    def summary_models(self) -> tuple[str, ...]:
        """The aliases of the summarising models in order; an empty one is the session's own."""
        named = self.summary_model
        return (named,) if isinstance(named, str) else named

    @property
    def summary_output_tokens(self) -> int:
        """The longest answer of a summarising call; 0 allows twice the size asked for."""
        return _share_of(self.reserve_tokens, self.summary_output_share)

    @property
    def prefix_output_tokens(self) -> int:
        """The same for the beginning of a turn."""
        return _share_of(self.reserve_tokens, self.prefix_output_share)

    @property
    def merge_target(self) -> int:
        """Tokens asked of a merge."""
        return self.merge_target_tokens or self.target_summary_tokens

    def as_dict(self) -> dict[str, Any]:
        """Return every parameter."""
        return asdict(self)


def _share_of(tokens: int, share: float) -> int:
    # Rounded first: 0.29 of 100 is 28.999999999999996 as floats have it.
    return math.floor(round(share * tokens, 6))
