"""The operators' pages of compaction, and what it adds to those of chatapp."""

from chatapp.admin.toolkit.extension import AdminExtension, AdminPage, FrontPanel
from compaction.admin.breakers import ModelBreakerAdmin
from compaction.admin.bulk import NEW, BulkItemAdmin, BulkJobAdmin, new_view
from compaction.admin.comparison import COMPARE, compare_view
from compaction.admin.figures import DailyFiguresAdmin, RecoveryStepAdmin, RunTotalsAdmin
from compaction.admin.front import REFRESH, front_panel, refresh
from compaction.admin.index_entries import ENTRIES, LINKED_TABLES
from compaction.admin.memories import MemoryAdmin
from compaction.admin.memory_runs import MemoryRunAdmin, MemoryVersionAdmin
from compaction.admin.needs_look import LOOK, LOOK_DO, do_view, look_view
from compaction.admin.owner_panels import budget_panel, cost_panel
from compaction.admin.profiles import CompactionProfileAdmin
from compaction.admin.runs import CompactionRunAdmin
from compaction.admin.sessions import SESSION_PART
from compaction.admin.states import CompactionStateAdmin
from compaction.admin.steps import CompactionStepAdmin
from compaction.admin.summaries import SessionSummaryAdmin, SummarySourceAdmin
from compaction.admin.summary_sources import fate_panel
from compaction.admin.timeline import TIMELINE_SOURCES
from compaction.admin.workers import WorkerHeartbeatAdmin

__all__ = [
    "ADMIN",
    "BulkItemAdmin",
    "BulkJobAdmin",
    "CompactionProfileAdmin",
    "CompactionRunAdmin",
    "CompactionStateAdmin",
    "CompactionStepAdmin",
    "DailyFiguresAdmin",
    "MemoryAdmin",
    "MemoryRunAdmin",
    "MemoryVersionAdmin",
    "ModelBreakerAdmin",
    "RecoveryStepAdmin",
    "RunTotalsAdmin",
    "SessionSummaryAdmin",
    "SummarySourceAdmin",
    "WorkerHeartbeatAdmin",
]

ADMIN = AdminExtension(
    run_permission="compaction.add_compactionrun",
    front_panels=(FrontPanel(draw=front_panel, style="compaction/front.css"),),
    pages=(
        AdminPage(route="needs-a-look/", view=look_view, name=LOOK),
        AdminPage(route="needs-a-look/do/", view=do_view, name=LOOK_DO),
        AdminPage(route="figures/refresh/", view=refresh, name=REFRESH),
        AdminPage(route="compaction/bulk/new/", view=new_view, name=NEW),
        AdminPage(route="compaction/compare-profiles/", view=compare_view, name=COMPARE),
    ),
    index_entries=ENTRIES,
    linked_tables=LINKED_TABLES,
    session=SESSION_PART,
    message_panels=(fate_panel,),
    owner_panels=(cost_panel, budget_panel),
    timeline_sources=TIMELINE_SOURCES,
)
