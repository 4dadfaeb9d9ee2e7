"""Since when a summary has its status: noted from now on, filled for old rows as far as known."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.db import connection
from django.utils import timezone

from chatapp.models import Message
from compaction.doctor.examine import examine
from compaction.models import SessionSummary
from compaction.models.summaries import status_columns
from compaction.runs.resummarize import resummarize
from compaction.summaries.restore import restore_summary
from compaction.summaries.transfer import SummariesPart
from tests.compaction.support import NEVER, compact
from tests.factories import SessionFactory, profile, store, talk

pytestmark = pytest.mark.django_db
TIMES = ("updated_at", "activated_at", "superseded_at", "restored_at")


@pytest.fixture
def session(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


@pytest.fixture
def one(session) -> SessionSummary:
    compact(session)
    return SessionSummary.objects.get()


def times(summary: SessionSummary) -> dict:
    summary.refresh_from_db()
    return {name: getattr(summary, name) for name in TIMES}


def noted(summary: SessionSummary) -> set[str]:
    return {name for name, moment in times(summary).items() if moment is not None}


def test_a_new_summary_counts_from_when_it_was_stored(one):
    assert noted(one) == {"updated_at", "activated_at"}
    assert abs(one.activated_at - one.created_at) < timedelta(seconds=1)


def test_superseding_and_restoring_are_noted(session, one):
    new = SessionSummary.objects.get(run=resummarize(one))
    assert noted(one) == {"updated_at", "activated_at", "superseded_at"}
    assert one.updated_at == one.superseded_at > one.activated_at
    # What was made before the version changed is told from what was made behind it.
    assert one.superseded_at < new.created_at
    [taken_back] = restore_summary(new).summaries
    assert taken_back.restored_at is not None
    assert noted(new) == {"updated_at", "activated_at", "restored_at"}
    assert new.restored_at == new.updated_at == taken_back.restored_at


def test_every_status_but_a_draft_has_its_time():
    for status in SessionSummary.Status:
        columns = set(status_columns(status)) - {"status", "updated_at"}
        own = {f"{status.value}_at".replace("active_at", "activated_at")}
        assert columns == (set() if status == "draft" else own)


def test_an_imported_summary_counts_since_its_import(owner, session, one):
    created = timezone.now() - timedelta(days=9)
    SessionSummary.objects.update(created_at=created)
    rows = Message.objects.filter(session=session, kind="message").order_by("position")
    written = SummariesPart().written(session.branch, list(rows.values_list("pk", flat=True)))
    other = SessionFactory(owner=owner, wires=talk(6, marker=1))
    theirs = Message.objects.filter(session=other).order_by("position")
    SummariesPart().take_back(other.branch, list(theirs.values_list("pk", flat=True)), written)
    taken = SessionSummary.objects.get(session=other)
    assert taken.created_at == created
    assert timezone.now() - taken.activated_at < timedelta(minutes=1)


# --- rows from before -----------------------------------------------------------------------------


def fill() -> None:
    """What the migration does, on rows whose times nobody noted."""
    SessionSummary.objects.update(**dict.fromkeys(TIMES))
    name = "compaction.migrations.0021_time_the_statuses_of_summaries"
    import_module(name).fill_times(apps, SimpleNamespace(connection=connection))


def test_old_rows_get_what_is_known_of_them(session, one):
    second = SessionSummary.objects.get(run=resummarize(one))
    third = SessionSummary.objects.get(run=resummarize(second))
    store(session, talk(3, marker=20))
    compact(session)
    last = SessionSummary.objects.order_by("covers_through").last()
    restore_summary(last)
    draft = SessionSummary.objects.create(
        session=session, branch=session.branch, run=last.run, status="draft", summary_text="x",
        trigger="proactive", reason="ahead", covers_from=1, covers_through=2,
    )  # fmt: skip
    fill()
    none = dict.fromkeys(TIMES)
    assert times(one) == none | {
        "activated_at": one.created_at,
        "superseded_at": second.created_at,
        "updated_at": second.created_at,
    }
    assert times(third) == none | {
        "activated_at": third.created_at,
        "updated_at": third.created_at,
    }
    # When it was taken back, nobody knows.
    assert times(last) == none | {"activated_at": last.created_at}
    assert times(draft) == none | {"updated_at": draft.created_at}


@pytest.mark.parametrize("columns", [{"reason": "ahead"}, {"run": None}])
def test_since_when_a_draft_or_an_import_counts_is_unknown(one, columns):
    SessionSummary.objects.update(**columns)
    fill()
    assert noted(one) == set()


# --- what the doctor says -------------------------------------------------------------------------


def found(session) -> list[tuple[str, str]]:
    return [(one.code, one.severity.value) for one in examine(session.pk)]


def test_the_doctor_has_nothing_to_say_of_what_this_program_does(session, one):
    new = SessionSummary.objects.get(run=resummarize(one))
    restore_summary(new)
    assert found(session) == []


def test_the_doctor_notes_a_version_that_lost_its_links(session, one):
    resummarize(one)
    one.links.first().delete()
    [finding] = examine(session.pk)
    assert (finding.code, finding.is_error) == ("version_without_links", False)
    assert finding.text.startswith("1 summary lost links to messages, and cannot be activated")
    assert finding.summary == one.pk


@pytest.mark.parametrize(
    ("status", "later"),
    [("active", "superseded_at"), ("active", "restored_at"), ("superseded", "activated_at")],
)
def test_the_doctor_notes_a_status_that_no_time_explains(session, one, status, later):
    names = dict(zip(("active", "superseded", "restored"), TIMES[1:], strict=True))
    now = timezone.now()
    moments = {names[status]: now - timedelta(hours=1), later: now}
    if status != "active":
        restore_summary(one)
        moments["restored_at"] = None
    SessionSummary.objects.update(status=status, **moments)
    assert found(session) == [("status_times_disagree", "note")]


def test_times_that_nobody_noted_disagree_with_nothing(session, one):
    resummarize(one)
    SessionSummary.objects.update(**dict.fromkeys(TIMES))
    assert found(session) == []
