"""How long the desk's pages take on a large database: `python -m tests.bench.pages`.

It reads the configured database (made by `python -m tests.bench.fill`, for example), as its first
superuser, in process: the time is the server's, rendering included. Each page is asked for three
times and the median is shown, with its queries and its size.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator

ROUNDS = 3
LISTS = (
    "chatapp_session", "chatapp_branch", "chatapp_message", "compaction_sessionsummary",
    "compaction_compactionrun", "compaction_compactionstep", "compaction_compactionstate",
    "compaction_compactionprofile", "compaction_sessionsummarymessage",
)  # fmt: skip


def addresses() -> Iterator[tuple[str, str]]:
    """Yield a name and an address for every page worth measuring."""
    from django.urls import reverse

    from chatapp.models import Branch
    from compaction.models import CompactionRun, SessionSummary

    yield "front page", reverse("admin:index")
    yield "needs a look", reverse("admin:compaction_needs_look")
    for name in LISTS:
        address = reverse(f"admin:{name}_changelist")
        yield f"list {name.split('_')[1]}", address
        yield f"list {name.split('_')[1]}, page 50", f"{address}?p=50"
        yield f"list {name.split('_')[1]}, search", f"{address}?q=abcd"
    largest = Branch.objects.order_by("-message_count").select_related("session").first()
    assert largest is not None
    session = largest.session_id
    yield "largest session", reverse("admin:chatapp_session_change", args=[session])
    deep = f"{reverse('admin:chatapp_session_change', args=[session])}?at={1_000_000 * 1000}"
    yield "largest session, message 1000", deep
    yield "its next request", f"/admin/chatapp/session/{session}/request/"
    summary = SessionSummary.objects.filter(session=session).order_by("-created_at").first()
    if summary is not None:
        yield "summary", reverse("admin:compaction_sessionsummary_change", args=[summary.pk])
    run = CompactionRun.objects.order_by("-model_calls").first()
    if run is not None:
        yield "run of most calls", reverse("admin:compaction_compactionrun_change", args=[run.pk])


def main() -> None:
    """Measure every page and print a table."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatapp.settings")
    import django

    django.setup()
    from django.conf import settings
    from django.contrib.auth import get_user_model
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    settings.ALLOWED_HOSTS = ["testserver"]
    client = Client()
    client.force_login(get_user_model().objects.filter(is_superuser=True)[0])
    print(f"{'page':<44}{'status':>7}{'queries':>9}{'ms':>8}{'kB':>7}")
    for name, address in addresses():
        times = []
        for _ in range(ROUNDS):
            with CaptureQueriesContext(connection) as queries:
                started = time.perf_counter()
                response = client.get(address)
                times.append(1000 * (time.perf_counter() - started))
        size = len(response.content) // 1000
        took = statistics.median(times)
        print(f"{name:<44}{response.status_code:>7}{len(queries):>9}{took:>8.0f}{size:>7}")


if __name__ == "__main__":
    main()
