"""The operators' pages of compaction; the session's page of chatapp gains what belongs here."""

from compaction.admin.breaker import ModelBreakerAdmin
from compaction.admin.front.panel import front_panel
from compaction.admin.profile.profile import CompactionProfileAdmin
from compaction.admin.run.run import CompactionRunAdmin
from compaction.admin.run.step import CompactionStepAdmin
from compaction.admin.session.session import CompactedSessionAdmin
from compaction.admin.state import CompactionStateAdmin
from compaction.admin.summary.link import SummarySourceAdmin
from compaction.admin.summary.summary import SessionSummaryAdmin
from compaction.admin.worker import WorkerHeartbeatAdmin

__all__ = [
    "CompactedSessionAdmin",
    "CompactionProfileAdmin",
    "CompactionRunAdmin",
    "CompactionStateAdmin",
    "CompactionStepAdmin",
    "ModelBreakerAdmin",
    "SessionSummaryAdmin",
    "SummarySourceAdmin",
    "WorkerHeartbeatAdmin",
    "front_panel",
]
