"""Faults of rows beside the conversation: planted, found, left alone, repaired, and gone."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from chatapp.models import AnswerRequest, AuditEntry, Message, Session
from compaction.branches.leases import ensure_state
from compaction.doctor.examine import examine, repair_findings, to_examine
from compaction.doctor.records import FAULTS
from compaction.models import BulkItem, BulkJob, CompactionState, LookMark
from tests.compaction.support import NEVER, compact
from tests.factories import SessionFactory, profile, talk

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.fixture
def session(owner, model_server, queued) -> Session:
    """A session with a summary, and nothing wrong."""
    profile(**NEVER, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    compact(session)
    ensure_state(session.branch)
    return session


def state_of(session: Session):
    return CompactionState.objects.filter(branch=session.branch)


def leave_a_hold(session: Session) -> None:
    state_of(session).update(held_at=timezone.now(), hold_end="until_lifted")


def name_a_holder(session: Session) -> None:
    state_of(session).update(held_by=session.owner)


def hold_without_an_end(session: Session) -> None:
    state_of(session).update(hold_through=99_000_000, held_at=timezone.now(), hold_end="")


def hold_since_nobody_knows(session: Session) -> None:
    state_of(session).update(hold_through=99_000_000, held_at=None, hold_end="window")


def hold_for_minutes_without_end(session: Session) -> None:
    state_of(session).update(
        hold_through=99_000_000, held_at=timezone.now(), hold_end="minutes", held_until=None
    )


def request_of(session: Session, role: str, **columns) -> AnswerRequest:
    message = Message.objects.filter(branch=session.branch, role=role).first()
    return AnswerRequest.objects.create(
        session=session, message=message, digest="d", made_of={"v": 1}, **columns
    )


def record_a_question(session: Session) -> None:
    request_of(session, "user")


def record_for_another_session(session: Session) -> None:
    other = SessionFactory(owner=session.owner, wires=talk(2, marker=90))
    message = Message.objects.filter(session=other, role="assistant").first()
    AnswerRequest.objects.create(session=session, message=message, digest="d", made_of={"v": 1})


def lose_a_text(session: Session) -> None:
    AnswerRequest.objects.create(session=session, digest="lost", packed=None)


def name_a_branch_that_is_gone(session: Session) -> None:
    request_of(session, "assistant", left_out=3, left_out_branch=uuid.uuid4())


def audit_another_branch(session: Session) -> None:
    other = SessionFactory(owner=session.owner)
    AuditEntry.objects.create(session=session, branch=other.branch, action="pinned", text="x")


def leave_an_item(session: Session) -> None:
    job = BulkJob.objects.create(status=BulkJob.Status.DONE, finished_at=timezone.now())
    BulkItem.objects.create(job=job, session=session, status=BulkItem.Status.PLANNED)


def mark_as_done_and_put_off(session: Session) -> None:
    LookMark.objects.create(
        kind="over_window",
        branch=session.branch,
        done_at=timezone.now(),
        hidden_until=timezone.now() + HOUR,
    )


PLANTED: list[tuple[Callable[[Session], None], str]] = [
    (leave_a_hold, "hold_remains"),
    (name_a_holder, "hold_remains"),
    (hold_without_an_end, "hold_unclear"),
    (hold_since_nobody_knows, "hold_unclear"),
    (hold_for_minutes_without_end, "hold_unclear"),
    (record_a_question, "request_of_no_answer"),
    (record_for_another_session, "request_of_no_answer"),
    (lose_a_text, "request_text_lost"),
    (name_a_branch_that_is_gone, "left_out_dangling"),
    (audit_another_branch, "audit_elsewhere"),
    (leave_an_item, "bulk_item_open"),
    (mark_as_done_and_put_off, "look_mark_twofold"),
]


def errors(session: Session) -> list[str]:
    return [one.code for one in examine(session.pk) if one.is_error]


def test_every_fault_is_planted():
    assert {code for _, code in PLANTED} == {fault.code for fault in FAULTS}


@pytest.mark.parametrize(("plant", "code"), PLANTED)
def test_it_is_found_by_either_look_and_repaired(session, plant, code):
    assert errors(session) == []
    assert not to_examine([session.pk])
    plant(session)
    assert errors(session) == [code]
    assert to_examine([session.pk]).keys() == {session.pk}
    (outcome,) = repair_findings(session.pk, examine(session.pk))
    assert outcome.done
    assert errors(session) == []
    assert not to_examine([session.pk])


def test_a_repaired_hold_goes_on_until_somebody_lifts_it(session):
    hold_for_minutes_without_end(session)
    repair_findings(session.pk, examine(session.pk))
    state = state_of(session).get()
    assert state.is_held
    assert (state.hold_through, state.hold_end) == (99_000_000, "until_lifted")


def test_what_is_as_it_should_be_is_no_fault(session):
    state_of(session).update(
        hold_through=99_000_000,
        held_at=timezone.now(),
        hold_end="minutes",
        held_until=timezone.now() + HOUR,
        held_by=session.owner,
    )
    request_of(session, "assistant", left_out=3, left_out_branch=session.branch.pk)
    AnswerRequest.objects.create(session=session, digest="text", packed=b"x")
    AuditEntry.objects.create(session=session, branch=session.branch, action="pinned", text="x")
    job = BulkJob.objects.create(status=BulkJob.Status.CANCELLED)
    BulkItem.objects.create(job=job, session=session, status=BulkItem.Status.PLANNED)
    LookMark.objects.create(kind="over_window", branch=session.branch, done_at=timezone.now())
    assert errors(session) == []
    assert not to_examine([session.pk])


def test_a_fault_of_another_session_is_not_this_ones(session, owner):
    other = SessionFactory(owner=owner, wires=talk(4, marker=60))
    for plant, _ in PLANTED:
        if plant in (leave_a_hold, lose_a_text, leave_an_item):
            ensure_state(other.branch)
            plant(other)
    assert errors(session) == []
    assert to_examine([session.pk, other.pk]).keys() == {other.pk}
