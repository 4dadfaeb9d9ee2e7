"""What an operator should look at now: open breakers, waiting runs, workers that fell silent.

Nothing is shown where all is well. Two queries tell: both tables of the first hold few rows, and
the second goes over the index of unfinished runs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from django.db.models import Value
from django.http import HttpRequest
from django.utils import timezone

from chatapp.admin import cells
from compaction.admin.acting import may_view
from compaction.admin.breaker import OPEN
from compaction.admin.filters import WAITING
from compaction.admin.silence import silent_at_work
from compaction.admin.worker import SILENT
from compaction.models import CompactionRun, ModelBreaker, WorkerHeartbeat
from compaction.statistics.daily import waiting_runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One line: what there is, what it means, and the list of it. `tone`: bad or busy."""

    said: str
    means: str
    url: str
    tone: str


def attentions_of(request: HttpRequest) -> list[Attention]:
    """Return the lines that the operator may see; usually none."""
    counts = _counts()
    found = (
        (counts["breaker"] if may_view(request, ModelBreaker) else 0, _breakers),
        (counts["worker"] if may_view(request, WorkerHeartbeat) else 0, _workers),
        (waiting_runs().filter(waits_until__gt=timezone.now()).count(), _runs),
    )
    return [line(count) for count, line in found if count]


def _counts() -> Counter[str]:
    breakers = ModelBreaker.objects.filter(opened_at__isnull=False)
    workers = WorkerHeartbeat.objects.filter(silent_at_work())
    rows = (
        breakers.order_by()
        .values_list(Value("breaker"))
        .union(workers.order_by().values_list(Value("worker")), all=True)
    )
    return Counter(kind for (kind,) in rows)


def _breakers(count: int) -> Attention:
    return Attention(
        said="1 breaker is open" if count == 1 else f"{count:,} breakers are open",
        means="Calls of a summarising model kept failing, so it is left alone for a while.",
        url=cells.list_url(ModelBreaker, state=OPEN),
        tone="bad",
    )


def _workers(count: int) -> Attention:
    return Attention(
        said="1 worker fell silent" if count == 1 else f"{count:,} workers fell silent",
        means="In the middle of a run, within the last day. The sweep starts such a run again.",
        url=cells.list_url(WorkerHeartbeat, state=SILENT),
        tone="bad",
    )


def _runs(count: int) -> Attention:
    return Attention(
        said="1 run waits" if count == 1 else f"{count:,} runs wait",
        means="Put off until a time; each says for what on its page.",
        url=cells.list_url(CompactionRun, status=WAITING),
        tone="busy",
    )
