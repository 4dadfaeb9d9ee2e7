"""The parameters of checkpoints: sizes that a server reported, split turns, what is kept of files.

A checkpoint is a summary that another model could take the work over from. Names are the
established ones of coding agents.
"""

from __future__ import annotations

from dataclasses import dataclass

from compaction.engine.quality_parameters import QualityParameters
from compaction.engine.window_parameters import parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointParameters(QualityParameters):
    """What every profile may use; off by default but for the gain that a run must promise."""

    minimum_gain: float = parameter(
        # Without it, a rule whose limit the kept messages alone reach fires at every turn.
        0.25,
        "A rule by count, by tokens, by characters or ahead of need fires only if what can be "
        "summarised is at least this part of what the rule counts; 0 fires for one message.",
        group="when",
        minimum=0.0,
        maximum=1.0,
    )
    context_size_by: str = parameter(
        "count",
        "How large the next request is taken to be: our own count, or what the server reported of "
        "the last answer and our count of what follows it (usage).",
        group="when",
        choices=("count", "usage"),
    )
    keep_recent_share: float = parameter(
        0.0,
        "keep_recent_tokens keeps no more than this part of the window; 0: as much as there is "
        "room for.",
        group="cut",
        minimum=0.0,
        maximum=1.0,
    )
    split_turns: bool = parameter(
        False,
        "Where the cut falls inside a turn, what is summarised of that turn gets a summary of its "
        "own, behind the history's.",
        group="cut",
    )
    summary_style: str = parameter(
        "headings",
        "What a summary looks like: headings, or a checkpoint that another model can go on from "
        "(goal, constraints, progress, decisions, next steps, context).",
        group="summariser",
        choices=("headings", "checkpoint"),
    )
    summary_output_share: float = parameter(
        0.0,
        "Longest answer of a summarising call as a part of reserve_tokens; 0 allows twice the size "
        "that is asked for.",
        group="summariser",
        minimum=0.0,
        maximum=1.0,
    )
    prefix_output_share: float = parameter(
        0.0,
        "The same for the summary of a turn's beginning.",
        group="summariser",
        minimum=0.0,
        maximum=1.0,
    )
    branch_output_tokens: int = parameter(
        0,
        "Longest answer of a branch's summary; 0 allows twice the size that is asked for.",
        unit="tokens",
        group="branches",
        minimum=0,
        maximum=100_000,
    )
    result_chars_in_summary: int = parameter(
        0,
        "Characters of a tool result that a summariser reads; 0: as many as are sent.",
        unit="characters",
        group="summariser",
        minimum=0,
        maximum=1_000_000,
    )
    overflow_keeps: str = parameter(
        "question",
        "What stays verbatim when a request was refused as too large: the question alone, or what "
        "the cut keeps; where that frees nothing, the question alone.",
        group="recovery",
        choices=("question", "cut"),
    )
    branch_summary: str = parameter(
        "never",
        "Whether people who switch to another branch are asked if the one that they leave shall be "
        "summarised.",
        group="branches",
        choices=("never", "ask"),
    )
    branch_reserve_tokens: int = parameter(
        16_384,
        "Part of the window that stays free when a branch is summarised.",
        unit="tokens",
        group="branches",
        minimum=0,
        maximum=100_000_000,
    )
