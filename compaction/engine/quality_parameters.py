"""The parameters of what a summary must still know."""

from __future__ import annotations

from dataclasses import dataclass

from compaction.engine.window_parameters import WindowParameters, parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityParameters(WindowParameters):
    """What is appended to a model's prose, what is refused, and what never leaves the messages."""

    ledger: bool = parameter(
        True,
        "Beside a model's prose, append rules, facts, changes and actions from the messages "
        "themselves; the model is asked for 40 % of the size. Off: its answer is the summary.",
        group="quality",
        variable="SUMMARY_LEDGER",
        preset="",
    )
    quality_gate: bool = parameter(
        True,
        "Measure a model's summary before it is stored: one that fails is asked for once more with "
        "what is missing, then gets the ledger, then gives way to chosen sentences.",
        group="quality",
        variable="SUMMARY_QUALITY_GATE",
        preset="",
    )
    min_user_identifiers: float = parameter(
        0.3,
        "Share of the user's identifiers that a summary must name, where there are three or more.",
        group="quality",
        minimum=0.0,
        maximum=1.0,
    )
    min_score_share: float = parameter(
        0.6,
        "Score that a summary must reach, as a share of what chosen sentences of equal size score.",
        group="quality",
        minimum=0.0,
        maximum=1.0,
    )
    max_carried_lost: float = parameter(
        0.3,
        "Share of what the summary before named that a new one may lose.",
        group="quality",
        minimum=0.0,
        maximum=1.0,
    )
    hindsight_turns: int = parameter(
        10,
        "After so many turns, what they named of older facts tells how much the summary knew.",
        unit="turns",
        group="quality",
        minimum=1,
        maximum=1000,
    )
    redact_secrets: bool = parameter(
        True,
        "Passwords, keys and card numbers become [REDACTED:kind] in what summarisers read and in "
        "what is stored as a summary. Messages stay as they are.",
        group="quality",
        variable="SUMMARY_REDACT_SECRETS",
        preset="",
    )
