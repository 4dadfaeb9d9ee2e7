"""Switches that meet: another one, a message that arrives, a plain switch, a worker at work."""

from __future__ import annotations

import threading

import pytest
from django.db import connections
from django.urls import reverse

from chatapp import transcript
from chatapp.models import Branch, Message, Session
from compaction.errors import SwitchUnderWayError
from compaction.models import CompactionRun, SessionSummary
from compaction.runs import lifecycle
from compaction.runs.switching import SwitchWishes, request_switch
from tests.compaction.support import NEVER, compact, held_worker, say
from tests.factories import SessionFactory, profile, talk

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(owner, model_server, queued) -> Session:
    profile(**NEVER)
    return SessionFactory(owner=owner, wires=talk(3))


@pytest.fixture
def other(session) -> Branch:
    first = Message.objects.filter(session=session).order_by("position").first()
    return transcript.fork(session, at=first)


def asked(session: Session, other: Branch) -> CompactionRun:
    """A switch that waits for a worker."""
    run = request_switch(session, other, SwitchWishes(summarize=True, wait=False))
    assert run is not None
    return run


def active(session: Session) -> Branch:
    return Session.objects.get(pk=session.pk).branch


def ended(run: CompactionRun) -> tuple[str, str]:
    run.refresh_from_db()
    return run.status, run.error_code


def test_a_turn_while_the_model_writes_makes_the_switch_lose(session, other):
    run, old = asked(session, other), session.branch
    with held_worker(run):
        say(session, "Wait, one more thing.")
    assert ended(run) == ("failed", "lost_race")
    assert active(session) == old
    assert not SessionSummary.objects.exists()
    said = Message.objects.filter(branch=old).order_by("position")
    assert [row.content for row in said][-2:] == ["Wait, one more thing.", "ok"]


def test_a_plain_switch_while_the_model_writes_wins(session, other):
    run = asked(session, other)
    third = transcript.fork(session, at=Message.objects.filter(role="assistant").first())
    with held_worker(run):
        transcript.switch(session, third)
    assert ended(run) == ("failed", "lost_race")
    assert active(session) == third
    assert not Message.objects.filter(kind="note").exists()


def test_a_run_that_is_cancelled_while_the_model_writes_stores_nothing(session, other):
    run, old = asked(session, other), session.branch
    with held_worker(run):
        lifecycle.cancel_run(CompactionRun.objects.get(pk=run.pk))
    assert ended(run) == ("cancelled", "cancelled")
    assert active(session) == old
    assert not SessionSummary.objects.exists()


def test_a_compaction_waits_for_the_branch_that_is_being_left(session, other):
    run = asked(session, other)
    with held_worker(run):
        assert compact(session).error_code == "busy"
    assert ended(run) == ("succeeded", "")
    assert active(session) == other


def test_two_that_switch_at_once_are_one_too_many(owner, model_server, queued):
    """Both ask at the same moment; the database lets one in."""
    profile(**NEVER)
    session = SessionFactory(owner=owner, wires=talk(3))
    first = Message.objects.filter(session=session).order_by("position").first()
    other = transcript.fork(session, at=first)
    wishes = SwitchWishes(summarize=True, wait=False)
    came: list[str] = []
    together = threading.Barrier(2)

    def ask() -> None:
        mine = Session.objects.select_related("active_branch").get(pk=session.pk)
        branch = Branch.objects.get(pk=other.pk)
        together.wait(10)
        try:
            request_switch(mine, branch, wishes)
            came.append("asked")
        except SwitchUnderWayError:
            came.append("refused")
        finally:
            connections.close_all()

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(came) == ["asked", "refused"]
    assert CompactionRun.objects.count() == 1


def test_the_page_of_the_tree_says_that_a_switch_is_under_way(session, other, admin_client):
    page = reverse("admin:chatapp_session_tree", args=[session.pk])
    words = "A switch to another branch is under way"
    assert words not in admin_client.get(page).text
    run = asked(session, other)
    text = admin_client.get(page).text
    assert f"{words} (queued)" in text
    assert reverse("admin:compaction_compactionrun_change", args=[run.pk]) in text
    lifecycle.cancel_run(run)
    assert words not in admin_client.get(page).text


def test_the_api_tells_with_the_tree_that_a_switch_is_under_way(session, other, api):
    address = f"/api/v1/sessions/{session.pk}/tree/"
    assert api.get(address).json()["switch_under_way"] is None
    run = asked(session, other)
    told = {"run": str(run.pk), "status": "queued", "branch": str(other.pk)}
    assert api.get(address).json()["switch_under_way"] == told
    assert api.get(address, {"page_size": 1}).json()["switch_under_way"] == told
    lifecycle.cancel_run(run)
    assert api.get(address).json()["switch_under_way"] is None
