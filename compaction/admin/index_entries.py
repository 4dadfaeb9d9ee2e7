"""What compaction adds to the admin's index, and the tables that it leaves out there."""

from __future__ import annotations

from django.db.models import Model
from django.http import HttpRequest

from chatapp.admin.toolkit.extension import IndexEntry
from chatapp.admin.toolkit.permissions import holds, may_see_texts
from compaction.admin.comparison import COMPARE
from compaction.admin.needs_look import LOOK, TITLE, kinds_for
from compaction.models import (
    BulkItem,
    BulkJob,
    CompactionProfile,
    CompactionRun,
    CompactionState,
    CompactionStep,
    DailyFigures,
    Memory,
    MemoryRun,
    MemoryVersion,
    ModelBreaker,
    RecoveryStep,
    RunTotals,
    SessionSummary,
    SessionSummaryMessage,
    WorkerHeartbeat,
)
from compaction.runs import queue

COMPACTION, MEMORIES = "Compaction", "Memories"
MODELS, SETTINGS, WORKERS = "Models", "Settings", "Workers and queue"
QUEUE_TABLES = {
    "success": "What workers did.",
    "failure": "What ended with an error.",
    "schedule": "What is done again and again.",
    "ormq": "What waits for a worker.",
}


def may_compare(request: HttpRequest) -> bool:
    """Whether the operator may compare profiles: texts and sessions are shown there."""
    return may_see_texts(request) and holds(request, "chatapp.view_session")


ENTRIES = (
    IndexEntry(
        group=COMPACTION,
        label=TITLE,
        does="What went wrong and waits for somebody; what was set aside.",
        name=LOOK,
        may=lambda request: bool(kinds_for(request)),
    ),
    IndexEntry(
        group=COMPACTION,
        label="Runs",
        does="Every attempt, why it was made and how it ended; run again, cancel.",
        model=CompactionRun,
    ),
    IndexEntry(
        group=COMPACTION,
        label="Summaries",
        does="What is sent in the place of messages; make again, take back, judge.",
        model=SessionSummary,
    ),
    IndexEntry(
        group=COMPACTION,
        label="Bulk jobs",
        does="Re-summarise all sessions of a filter; start, pause, cancel, roll back.",
        model=BulkJob,
    ),
    IndexEntry(
        group=MEMORIES,
        label="Memories",
        does="What requests hold about their owners; accept, change, take away.",
        model=Memory,
    ),
    IndexEntry(
        group=MEMORIES,
        label="Rewritings and proposals",
        does="Attempts at rewriting memories and finding new ones.",
        model=MemoryRun,
    ),
    IndexEntry(
        group=MODELS,
        label="Summarising models",
        does="Which are left alone or fail, since when and why; close a breaker.",
        model=ModelBreaker,
    ),
    IndexEntry(
        group=SETTINGS,
        label="Profiles",
        does="When, what and how is summarised; new versions.",
        model=CompactionProfile,
    ),
    IndexEntry(
        group=SETTINGS,
        label="Compare profiles",
        does="What several profiles would have made of stored conversations.",
        name=COMPARE,
        may=may_compare,
    ),
    IndexEntry(
        group=WORKERS,
        label="Workers",
        does="Which processes compact, on which machine; which fell silent.",
        model=WorkerHeartbeat,
    ),
    *(
        IndexEntry(
            group=WORKERS,
            label=str(model._meta.verbose_name_plural).capitalize(),
            does=QUEUE_TABLES.get(str(model._meta.model_name), "A table of the queue."),
            model=model,
        )
        for model in queue.tables_with_pages()
    ),
)
LINKED_TABLES: tuple[type[Model], ...] = (
    CompactionState,
    CompactionStep,
    SessionSummaryMessage,
    MemoryVersion,
    BulkItem,
    RecoveryStep,
    DailyFigures,
    RunTotals,
)
"""Linked from sessions, runs and branches; runs; summaries; memories and their runs; bulk jobs;
timelines; the front page's figures."""
