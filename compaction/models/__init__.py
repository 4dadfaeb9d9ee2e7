"""Stored compaction: profiles, runs, their steps, recoveries, summaries, their links, what they
know and where it comes from, branch state, memories of owners, and what watches over many
processes: heartbeats, breakers, totals, marks.
"""

from compaction.models.bulk import BulkItem, BulkJob
from compaction.models.fidelity import SummaryLine, SummaryQuality, SummaryUnits
from compaction.models.memory import Memory, MemoryKey, MemoryRun, MemoryVersion
from compaction.models.operations import (
    DailyFigures,
    LookMark,
    ModelBreaker,
    RunTotals,
    SessionFigures,
    WorkerHeartbeat,
)
from compaction.models.runs import CompactionRun, CompactionStep, RecoveryStep
from compaction.models.state import CompactionProfile, CompactionState
from compaction.models.summaries import SessionSummary, SessionSummaryMessage

__all__ = [
    "BulkItem",
    "BulkJob",
    "CompactionProfile",
    "CompactionRun",
    "CompactionState",
    "CompactionStep",
    "DailyFigures",
    "LookMark",
    "Memory",
    "MemoryKey",
    "MemoryRun",
    "MemoryVersion",
    "ModelBreaker",
    "RecoveryStep",
    "RunTotals",
    "SessionFigures",
    "SessionSummary",
    "SessionSummaryMessage",
    "SummaryLine",
    "SummaryQuality",
    "SummaryUnits",
    "WorkerHeartbeat",
]
