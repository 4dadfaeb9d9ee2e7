"""A month of things that are done costs the list nothing, and hides nothing that is not done."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from compaction import tasks
from compaction.attention import marks
from compaction.attention.kinds import KIND_NAMES, KINDS
from compaction.attention.listing import needs_look
from compaction.attention.marks import (
    bring_back,
    find_item,
    floor_of,
    mark_done,
    raise_floors,
    set_aside,
    snooze,
)
from compaction.models import LookMark
from tests.compaction.support import NEVER
from tests.compaction.test_needs_look import failed_run, left_out, overflow
from tests.factories import SessionFactory, profile, talk

pytestmark = pytest.mark.django_db
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
KIND = KIND_NAMES["over_window"]


@pytest.fixture
def sessions(owner, queued):
    profile(**NEVER, keep_last_n=2)
    return [SessionFactory(owner=owner, wires=talk(2)) for _ in range(4)]


def ago(hours: float):
    return timezone.now() - hours * HOUR


def listed() -> list[str]:
    return [item.subject for item in needs_look().items]


def done(session, owner, kind="over_window") -> LookMark:
    return mark_done(find_item(kind, str(session.active_branch_id)), by=owner)


def subjects(*sessions) -> list[str]:
    return [str(session.active_branch_id) for session in sessions]


def test_the_floor_stands_before_the_first_thing_that_is_not_done(sessions, owner):
    for hours, session in zip((9, 7, 5, 3), sessions, strict=True):
        overflow(session, at=ago(hours))
    done(sessions[0], owner)
    done(sessions[2], owner)
    raise_floors()
    assert ago(9) < floor_of(KIND) < ago(6.9)
    assert listed() == subjects(sessions[3], sessions[1])


def test_with_everything_done_it_stands_before_now(sessions, owner):
    for session in sessions:
        overflow(session, at=ago(5))
        done(session, owner)
    raise_floors()
    # Rows may still come in, so a few minutes are left.
    assert ago(0.2) < floor_of(KIND) < timezone.now()
    assert listed() == []


@pytest.mark.parametrize(
    ("kind", "make"), [("left_out", left_out), ("compaction_failed", failed_run)]
)
def test_other_kinds_have_floors_of_their_own(sessions, owner, kind, make):
    make(sessions[0], at=ago(5))
    done(sessions[0], owner, kind)
    overflow(sessions[1], at=ago(5))
    raise_floors()
    assert floor_of(KIND_NAMES[kind]) > ago(1)
    assert floor_of(KIND) < ago(4.9)
    assert listed() == subjects(sessions[1])


def test_what_happens_again_is_back(sessions, owner):
    overflow(sessions[0], at=ago(5))
    done(sessions[0], owner)
    raise_floors()
    overflow(sessions[0])
    assert listed() == subjects(sessions[0])
    raise_floors()
    assert listed() == subjects(sessions[0])


def test_what_is_taken_back_is_in_the_list_again(sessions, owner):
    overflow(sessions[0], at=ago(5))
    mark = done(sessions[0], owner)
    raise_floors()
    bring_back(mark)
    assert listed() == subjects(sessions[0])
    raise_floors()
    assert listed() == subjects(sessions[0])


def test_what_is_taken_back_while_floors_are_put_is_in_the_list(sessions, owner, monkeypatch):
    overflow(sessions[0], at=ago(5))
    mark, put = done(sessions[0], owner), marks._set_floor

    def taken_back(*where):
        bring_back(mark)
        put(*where)

    monkeypatch.setattr(marks, "_set_floor", taken_back)
    raise_floors()
    assert listed() == subjects(sessions[0])


def test_what_is_snoozed_comes_back_when_its_time_is_over(sessions, owner):
    overflow(sessions[0], at=ago(5))
    item = find_item("over_window", str(sessions[0].active_branch_id))
    snooze(item, until=timezone.now() + HOUR, by=owner)
    raise_floors()
    assert listed() == []
    LookMark.objects.filter(branch=sessions[0].branch).update(hidden_until=ago(1))
    assert listed() == subjects(sessions[0])


def test_things_of_one_moment_are_told_apart(sessions, owner, monkeypatch):
    monkeypatch.setattr(marks, "FLOOR_BATCH", 2)
    moment = ago(5)
    for session in sessions:
        overflow(session, at=moment)
    for session in sessions[:3]:
        done(session, owner)
    raise_floors()
    assert listed() == subjects(sessions[3])
    done(sessions[3], owner)
    raise_floors()
    assert listed() == []


def test_in_small_parts_it_gets_as_far(sessions, owner, monkeypatch):
    monkeypatch.setattr(marks, "FLOOR_BATCH", 2)
    for hours, session in zip((9, 7, 5, 3), sessions, strict=True):
        overflow(session, at=ago(hours))
        done(session, owner)
    raise_floors()
    assert floor_of(KIND) > ago(1)


def test_what_is_too_old_for_the_list_keeps_no_floor_down(sessions, owner):
    """Nobody can mark it as done any more, and most failures are never marked at all."""
    overflow(sessions[0], at=ago(35 * 24))
    overflow(sessions[1], at=ago(5))
    done(sessions[1], owner)
    LookMark.objects.create(kind=KIND.name, done_at=ago(36 * 24))
    raise_floors()
    assert floor_of(KIND) > ago(1)


def test_a_floor_is_no_mark_that_somebody_made(sessions, owner):
    overflow(sessions[0], at=ago(5))
    done(sessions[0], owner)
    raise_floors()
    assert [mark.branch for mark in set_aside()] == [sessions[0].branch]


def test_the_list_takes_as_many_statements_with_floors_as_without(sessions, owner):
    overflow(sessions[0], at=ago(5))
    done(sessions[0], owner)
    with CaptureQueriesContext(connection) as without:
        needs_look()
    raise_floors()
    with CaptureQueriesContext(connection) as with_floors:
        needs_look()
    assert len(with_floors) <= len(without) <= 4 * len(KINDS)


def test_the_roll_up_raises_them(sessions, owner):
    overflow(sessions[0], at=ago(5))
    done(sessions[0], owner)
    tasks.roll_up()
    assert floor_of(KIND) is not None


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL plans by its statistics")
@pytest.mark.parametrize("name", ["compaction_failed", "compaction_truncated"])
def test_a_later_run_of_a_branch_is_found_by_an_index(name, db):
    """A branch of a million messages has twenty thousand runs; each failed one asks for later."""
    plan = KIND_NAMES[name].rows().explain()
    assert "run_of_branch (branch_id=? AND created_at>?)" in plan
