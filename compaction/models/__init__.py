"""Stored compaction: profiles, runs, their steps, ladders, summaries, their links, branch state."""

from compaction.models.figures import DailyFigures
from compaction.models.link import SessionSummaryMessage
from compaction.models.profile import CompactionProfile
from compaction.models.run import CompactionRun, CompactionStep
from compaction.models.rung import RecoveryRung
from compaction.models.state import CompactionState
from compaction.models.summary import SessionSummary

__all__ = [
    "CompactionProfile",
    "CompactionRun",
    "CompactionState",
    "CompactionStep",
    "DailyFigures",
    "RecoveryRung",
    "SessionSummary",
    "SessionSummaryMessage",
]
