"""A person's restore beats the rules: what was taken back is held."""

from __future__ import annotations

import pytest

from compaction.models import CompactionState, SessionSummary
from compaction.runs.holding import lift_hold
from compaction.summaries.restore import restore_summary
from tests.compaction.support import compact, say, state
from tests.factories import SessionFactory, profile, talk

pytestmark = pytest.mark.django_db


def test_smoke(owner, model_server, queued):
    profile(message_limit=10, max_context_tokens=0, keep_last_n=2, cooldown_seconds=0)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    compact(session)
    restore_summary(SessionSummary.objects.get(), by=owner)
    assert state(session).is_held
    for _ in range(10):
        say(session)
    assert state(session).cursor == 0
    assert SessionSummary.objects.count() == 1
    lift_hold(session, by=owner)
    say(session)
    assert state(session).cursor > 0
