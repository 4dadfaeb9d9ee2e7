"""A process that is killed while a person restores or lifts leaves a decision whole, or none.

Either nothing of it is stored, or the summary is taken back, the branch is held, and the act stands
in the audit log; and nobody summarises what is held.
"""

from __future__ import annotations

import pytest

from chatapp.audit import AuditEntry
from chatapp.models import Session
from compaction.models import SessionSummary
from compaction.runs.holding import lift_hold
from compaction.summaries.restore import restore_summary
from tests.compaction.support import state
from tests.compaction.test_killed_anywhere import began as began
from tests.compaction.test_killed_anywhere import every_death, once, summarised

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def acts(session: Session) -> list[str]:
    rows = AuditEntry.objects.filter(session=session).order_by("created_at")
    return list(rows.values_list("action", flat=True))


def test_a_restore_is_whole_or_not_at_all_and_holds(began, owner, queued):
    def work(_, summary):
        restore_summary(summary, by=owner)

    ends = set()
    for session, summary in every_death(queued, lambda: began(12), summarised, work, every=2):
        summary.refresh_from_db()
        ends.add(summary.status)
        if summary.status == "active":
            assert not state(session).is_held
            assert acts(session) == []
            once(session)
        else:
            assert state(session).is_held
            assert (state(session).cursor, acts(session)) == (0, ["restored"])
            assert not SessionSummary.objects.filter(status="active").exists()
    assert ends == {"active", "restored"}


def test_lifting_is_whole_or_not_at_all(began, owner, queued):
    def taken_back(session: Session) -> SessionSummary:
        summary = summarised(session)
        restore_summary(summary, by=owner)
        return summary

    def work(session, _):
        lift_hold(session, by=owner)

    ends = set()
    for session, _ in every_death(queued, lambda: began(12), taken_back, work, every=2):
        is_held = state(session).is_held
        ends.add(is_held)
        if is_held:
            assert (state(session).cursor, acts(session)) == (0, ["restored"])
        else:
            # Who died left it to the sweep, which looks at once.
            assert acts(session) == ["restored", "hold_lifted"]
            once(session)
    assert ends == {True, False}
