"""The cases once more with the preset `checkpoint`: no loop, nothing lost, every request taken."""

from __future__ import annotations

from typing import Any

import pytest

from chatapp.context.backend import context_backend
from chatapp.models import Session
from compaction.models import CompactionProfile, CompactionRun, SessionSummary
from compaction.profiles import save_profile
from compaction.runs.scheduling import check_branch
from tests.cases.support import (
    CASES,
    CHARS4,
    PREFIX,
    Case,
    ask,
    check,
    ends_well,
    fresh,
    next_request,
    stored,
)

pytestmark = pytest.mark.django_db
# What a case may set of the preset; everything else is as it is installed.
NAMES = ("reserve_tokens", "keep_recent_tokens", "max_overflow_compaction_attempts")


def checkpoint(case: Case, **changes: Any) -> CompactionProfile:
    """Store the preset with the case's own numbers as the default profile."""
    named = {name: case.settings[name] for name in NAMES if name in case.settings}
    small = {"reserve_tokens": 1000, "keep_recent_tokens": 300}
    return save_profile(
        name="case", base="checkpoint", parameters=small | named | changes, make_default=True
    )


def played(case: Case, play, owner) -> tuple[Any, Session]:
    """Return the case's server, and its conversation stored under the preset."""
    window = case.settings.get("context_window", 8000)
    server = play([PREFIX, *case.script], **CHARS4, CONTEXT_WINDOW=window, MAX_OUTPUT=500)
    checkpoint(case)
    return server, stored(owner, case.transcript)


def test_b11_a_kept_part_that_is_too_large_alone_makes_no_loop(cases, play, owner):
    case = cases("B11")
    server, session = played(case, play, owner)
    ask(session, case.next_user)
    assert len(server.of("summary")) <= 3
    assert case.lib.est(next_request(server).messages) <= 3000
    calls = len(server.calls)

    def idle(entry: dict[str, Any]) -> None:
        for _ in range(entry["times"]):
            assert check_branch(fresh(session)) is None
            context_backend.prepare(fresh(session))
        assert len(server.calls) == calls

    check(case, server, session, idle_checks_no_calls=idle)


def test_b13_a_stale_usage_report_does_not_fire_the_trigger_again(cases, play, owner):
    case = cases("B13")
    server, session = played(case, play, owner)
    context_backend.prepare(fresh(session))
    run = CompactionRun.objects.get()
    assert (run.status, run.reason) == ("succeeded", "window")
    context_backend.prepare(fresh(session))
    assert SessionSummary.objects.count() == 1
    ask(session, case.next_user)
    check(case, server, session)


@pytest.mark.parametrize("case_id", CASES)
def test_a_case_ends_with_a_request_that_is_taken_or_with_a_sentence(cases, play, owner, case_id):
    case = cases(case_id)
    ends_well(case, *played(case, play, owner))
