"""The doctor and the lines of a conversation: forks, replays, what they share is no fault."""

from __future__ import annotations

import pytest

from chatapp import transcript
from chatapp.models import Branch, Message, Session
from chatapp.selectors import path_messages
from chatapp.transcript.writing import NewMessage
from compaction.branches.leases import ensure_state
from compaction.doctor.examine import examine
from compaction.models import CompactionState, SessionSummary
from compaction.runs.resummarize import resummarize
from compaction.summaries.restore import restore_summary
from tests.compaction.screened import screened  # noqa: F401
from tests.compaction.support import NEVER, compact
from tests.factories import SessionFactory, call, profile, result, store, talk, user

pytestmark = pytest.mark.django_db


def codes(session: Session) -> list[str]:
    return [finding.code for finding in examine(session.pk)]


@pytest.fixture
def session(owner, model_server, queued) -> Session:
    """A rule, twelve turns and a long result; nothing summarised yet."""
    profile(**NEVER, keep_last_n=2)
    rule = {"role": "system", "content": "Be brief."}
    long = [user("read"), call("read", "c1"), result("c1", "line\n" * 900)]
    return SessionFactory(owner=owner, wires=[rule, *talk(12), *long, *talk(1)])


def fork_at(session: Session, number: int) -> Branch:
    """Fork behind the message of that number and go on there."""
    branch = transcript.fork(session, at=path_messages(session.branch)[number])
    ensure_state(branch)
    transcript.activate(session, branch)
    return branch


def replay_result(session: Session, content: str = "line") -> Branch:
    row = path_messages(session.branch).get(role="tool")
    return transcript.replay(session, contents={row.pk: content}).new


def test_a_summary_whose_placeholder_stands_before_the_fork_is_well(session):
    # The fork summarises only what it shares: the mark is its own row, at a place before the fork.
    fork = fork_at(session, 23)
    compact(session, keep_last_n=10)
    mark = Message.objects.get(kind="placeholder")
    assert mark.branch == fork
    assert mark.position < fork.fork_position
    assert codes(session) == []


def test_a_fork_and_its_parent_may_each_have_summarised_what_they_share(session):
    root = session.branch
    fork = fork_at(session, 24)
    transcript.activate(session, root)
    compact(session, keep_last_n=10)
    transcript.activate(session, fork)
    store(session, talk(3))
    compact(session)
    assert SessionSummary.objects.filter(status="active").count() == 2
    assert codes(session) == []


def test_a_fork_that_stands_before_its_parents_later_summary_is_well(session):
    root = session.branch
    fork = fork_at(session, 24)
    transcript.activate(session, root)
    compact(session, keep_last_n=10)
    assert CompactionState.objects.get(pk=fork.pk).cursor == 0
    assert codes(session) == []


def test_a_replay_of_a_compacted_branch_is_well(session):
    compact(session, keep_last_n=2)
    store(session, talk(3))
    replay_result(session)
    assert session.branch.kind == "replay"
    assert codes(session) == []


def test_a_replay_of_a_replay_goes_on_and_is_compacted_again(session):
    compact(session, keep_last_n=8)
    replay_result(session, "line\n" * 20)
    replay_result(session)
    store(session, talk(3))
    compact(session)
    assert codes(session) == []


def test_a_replay_of_a_fork_that_has_not_taken_over_its_parents_later_summary_is_well(session):
    root = session.branch
    fork = fork_at(session, 29)
    transcript.activate(session, root)
    compact(session, keep_last_n=1)
    transcript.activate(session, fork)
    replay_result(session)
    assert codes(session) == []


def test_a_replay_in_the_root_of_a_fork_that_has_its_own_summary_is_well(session):
    fork_at(session, 28)
    store(session, talk(2))
    compact(session, keep_last_n=12)
    replay_result(session)
    assert codes(session) == []


def test_a_replay_where_fork_and_parent_summarised_the_same_is_well(session):
    root = session.branch
    fork = fork_at(session, 29)
    compact(session, keep_last_n=1)
    transcript.activate(session, root)
    compact(session, keep_last_n=1)
    transcript.activate(session, fork)
    replay_result(session)
    assert codes(session) == []


def test_a_restored_summary_of_a_parent_leaves_its_forks_well(session):
    compact(session, keep_last_n=8)
    fork_at(session, 29)
    store(session, talk(4))
    compact(session)
    oldest = SessionSummary.objects.order_by("covers_through")[0]
    restore_summary(oldest, cascade=True)
    assert codes(session) == []


def test_a_call_of_the_parent_that_its_fork_answers_is_paired_there(session):
    root = session.branch
    store(session, [call("read", "c2")])
    fork_at(session, path_messages(root).count() - 1)
    store(session, [result("c2"), *talk(1)])
    transcript.activate(session, root)
    store(session, talk(1))
    notes = [one for one in examine(session.pk) if one.code == "calls_unpaired"]
    assert [one.branch for one in notes] == [root.pk]


def test_a_message_that_was_put_before_the_cursor_is_well(session):
    compact(session)
    first = path_messages(session.branch)[3]
    draft = NewMessage(wire={"role": "user", "content": "forgotten"})
    transcript.insert_between(session.branch, after=first.position, draft=draft)
    assert codes(session) == []


def test_a_new_version_of_a_summary_is_well(session):
    compact(session)
    store(session, talk(3))
    compact(session)
    assert resummarize(SessionSummary.objects.order_by("covers_through")[0]).status == "succeeded"
    assert codes(session) == []


def test_renumbered_positions_are_well(session):
    fork_at(session, 12)
    store(session, talk(2))
    compact(session)
    transcript.renumber(session)
    assert codes(session) == []
