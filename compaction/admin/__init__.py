"""The operators' pages of compaction; the session's page of chatapp gains what belongs here."""

from compaction.admin.link import SummarySourceAdmin
from compaction.admin.profile import CompactionProfileAdmin
from compaction.admin.run import CompactionRunAdmin
from compaction.admin.session import CompactedSessionAdmin
from compaction.admin.state import CompactionStateAdmin
from compaction.admin.step import CompactionStepAdmin
from compaction.admin.summary import SessionSummaryAdmin

__all__ = [
    "CompactedSessionAdmin",
    "CompactionProfileAdmin",
    "CompactionRunAdmin",
    "CompactionStateAdmin",
    "CompactionStepAdmin",
    "SessionSummaryAdmin",
    "SummarySourceAdmin",
]
