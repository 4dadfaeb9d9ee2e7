"""Forks of summarised branches: a child takes over what was summarised before the fork."""

from __future__ import annotations

import pytest

from chatapp import selectors, transcript
from compaction.branches.leases import ensure_state
from compaction.branches.snapshot import snapshot_of
from compaction.models import SessionSummary
from compaction.runs.scheduling import assign_profile
from tests.compaction.support import NEVER, compact, sent, stored, texts
from tests.factories import SessionFactory, profile, store, talk
from tests.facts import code

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True, params=[0, selectors.SHALLOW])
def shallow(request, monkeypatch):
    """Read every path as a deep one, too: its summaries are tested one by one then."""
    monkeypatch.setattr(selectors, "SHALLOW", request.param)


@pytest.fixture
def session(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


def fork_at(session, index: int):
    rows = [row for row in stored(session) if row.kind == "message"]
    branch = transcript.fork(session, at=rows[index])
    transcript.activate(session, branch)
    return branch


def test_a_fork_behind_the_cursor_takes_the_summary_over(session):
    compact(session)
    fork_at(session, -1)
    request = sent(session)
    assert code(1) in texts(request, "system")[0]
    assert len(texts(request, "user")) == 1


def test_a_fork_before_the_cursor_uses_no_later_summary(session):
    compact(session)
    fork_at(session, 5)
    request = sent(session)
    assert texts(request, "system") == []
    assert [text.split()[0] for text in texts(request, "user")] == [code(1), code(2), code(3)]


def test_a_fork_between_two_summaries_uses_the_first(session):
    compact(session)
    store(session, talk(4, marker=20))
    compact(session)
    fork_at(session, 11)
    request = sent(session)
    assert len(texts(request, "system")) == 1
    assert [text.split()[0] for text in texts(request, "user")] == [code(6)]


def test_what_the_parent_summarises_later_changes_nothing_for_the_fork(session):
    root = session.branch
    fork = fork_at(session, -1)
    before = sent(session)
    ensure_state(fork)
    compact(session, branch=root)
    assert sent(session) == before


def test_the_forks_summary_takes_the_parents_in_and_its_own_messages(session, model_server):
    compact(session)
    fork = fork_at(session, -1)
    store(session, talk(4, marker=40))
    assert compact(session).status == "succeeded"
    own = SessionSummary.objects.get(branch=fork)
    assert own.previous == SessionSummary.objects.exclude(pk=own.pk).get()
    asked = model_server.of("summary")[-1].text
    assert code(1) in asked
    assert code(40) in asked


def test_compacting_a_fork_changes_nothing_for_its_parent(session):
    root = session.branch
    before = sent(session)
    fork_at(session, -1)
    store(session, talk(4, marker=40))
    compact(session)
    transcript.activate(session, root)
    assert sent(session) == before


def test_a_fork_goes_on_with_its_parents_profile(session):
    profile("other", **NEVER, keep_last_n=1)
    assign_profile(session, "other")
    assert ensure_state(fork_at(session, -1)).profile == "other"


def test_a_fork_since_its_summary_counts_only_what_is_new(session):
    compact(session)
    fork_at(session, -1)
    assert snapshot_of(session).facts.messages == 2


def test_of_two_summaries_over_one_stretch_a_fork_sends_its_own(session):
    root = session.branch
    fork = transcript.fork(session, at=stored(session)[-1])
    ensure_state(fork)
    compact(session)
    transcript.activate(session, fork)
    store(session, talk(4, marker=40))
    compact(session)
    assert SessionSummary.objects.filter(status="active").count() == 2
    assert SessionSummary.objects.filter(branch=root).exists()
    request = sent(session)
    assert len(texts(request, "system")) == 1
    assert code(40) in texts(request, "system")[0]


def test_a_session_s_profile_is_that_of_all_its_branches(session):
    root = session.branch
    fork_at(session, -1)
    profile("other", **NEVER)
    profile("default-again", **NEVER)
    assign_profile(session, "other")
    assert ensure_state(root).profile == ensure_state(session.branch).profile == "other"
