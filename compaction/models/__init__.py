"""Stored compaction: profiles, runs, their steps, ladders, summaries, their links, branch state,
and what watches over many processes: heartbeats, breakers, totals.
"""

from compaction.models.breaker import ModelBreaker
from compaction.models.figures import DailyFigures
from compaction.models.link import SessionSummaryMessage
from compaction.models.profile import CompactionProfile
from compaction.models.run import CompactionRun, CompactionStep
from compaction.models.rung import RecoveryRung
from compaction.models.state import CompactionState
from compaction.models.summary import SessionSummary
from compaction.models.totals import RunTotals
from compaction.models.worker import WorkerHeartbeat

__all__ = [
    "CompactionProfile",
    "CompactionRun",
    "CompactionState",
    "CompactionStep",
    "DailyFigures",
    "ModelBreaker",
    "RecoveryRung",
    "RunTotals",
    "SessionSummary",
    "SessionSummaryMessage",
    "WorkerHeartbeat",
]
