"""The desk's other pages for the pictures and the accessibility run: owners, imports, keys, bulk
jobs, what an answer was given, forms, and a page that asks before something is done.

Each list of the admin is among the pages by itself (tests.screenshots.lists).
"""

from __future__ import annotations

import json
from typing import Any

from django.urls import reverse

from chatapp.imports import accept_file
from chatapp.keys import create_key
from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage
from chatapp.turns.service import Turn, run_turn
from compaction.models import BulkJob, DailyFigures, RecoveryStep, RunTotals, SessionSummary
from compaction.runs.bulk import make_bulk, start_bulk
from compaction.runs.bulk_work import work_at_bulk
from compaction.statistics.daily import refresh_figures

FILE = {
    "messages": [
        {"role": "user", "content": "When does the museum open?"},
        {"role": "assistant", "content": "At ten."},
    ]
}


def desk_addresses(session: Session, user: Any) -> dict[str, str]:
    """Store what the pages show, and return their addresses by a name."""
    job = accept_file(owner=user, content=json.dumps(FILE).encode(), name="museum.json").job
    key = create_key(owner=user, name="the shop's frontend").key
    answer = Message.objects.filter(session=session, role="assistant").latest("position")
    question = NewMessage(wire={"role": "user", "content": "What is still open?"})
    fresh = (
        Session.objects.exclude(pk=session.pk).filter(owner=session.owner).earliest("created_at")
    )
    given = run_turn(Turn(session=fresh, drafts=[question])).answer
    found = {
        "owner": reverse("admin:chatapp_session_owner", args=[session.owner_id]),
        "import": page(job),
        "key": page(key),
        "key-add": reverse("admin:chatapp_apikey_add"),
        "profile-add": reverse("admin:compaction_compactionprofile_add"),
        "answer": reverse("admin:chatapp_message_request", args=[answer.pk]),
        "answer-given": reverse("admin:chatapp_message_request", args=[given.pk]),
        "password": reverse("admin:password_change"),
        "bulk-new": reverse("admin:compaction_bulk_new"),
        "sessions-filtered": f"{reverse('admin:chatapp_session_changelist')}?state=summarised&o=-5",
        "sessions-none": f"{reverse('admin:chatapp_session_changelist')}?q=nothingofthatname",
    }
    found |= {f"bulk-{name}": page(one) for name, one in bulk_jobs().items()}
    refresh_figures()
    return found | rows_of_sums()


def bulk_jobs() -> dict[str, BulkJob]:
    """Return a job that is priced and one that has been done, of all sessions with summaries."""
    jobs = {"priced": make_bulk(Session.objects.all()), "done": make_bulk(Session.objects.all())}
    for name, job in jobs.items():
        work_at_bulk(job.pk)
        if name == "done":
            start_bulk(BulkJob.objects.get(pk=job.pk))
            work_at_bulk(job.pk)
    return jobs


def asking(session: Session) -> dict[str, tuple[str, str]]:
    """Return pages, each with what is pressed there, that say what an act would do and ask."""
    summary = SessionSummary.objects.filter(session=session, status="active").latest("created_at")
    button = "form[action$='/do/restore/'] [type=submit]"
    return {"ask-restore": (page(summary), button)}


def rows_of_sums() -> dict[str, str]:
    """Return the pages of rows that are sums or steps, where there are any."""
    rows = (RunTotals.objects.first(), DailyFigures.objects.first(), RecoveryStep.objects.first())
    return {f"row-{row._meta.model_name}": page(row) for row in rows if row is not None}


def page(row: Any) -> str:
    """Return the address of a row's page."""
    meta = row._meta
    return reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[row.pk])
