"""Stored compaction: profiles, runs and their steps, summaries and their links, branch state."""

from compaction.models.figures import DailyFigures
from compaction.models.link import SessionSummaryMessage
from compaction.models.profile import CompactionProfile
from compaction.models.run import CompactionRun, CompactionStep
from compaction.models.state import CompactionState
from compaction.models.summary import SessionSummary

__all__ = [
    "CompactionProfile",
    "CompactionRun",
    "CompactionState",
    "CompactionStep",
    "DailyFigures",
    "SessionSummary",
    "SessionSummaryMessage",
]
