"""Switches in trees of any shape: sums stay right, and contexts change by a note alone."""

from __future__ import annotations

import random

import pytest

from chatapp.context.backend import context_backend
from chatapp.models import Branch, Message, Session
from chatapp.selectors import rebuild_sums
from compaction.branches.left_branch import LeftBranch
from compaction.branches.snapshot import snapshot_of
from compaction.doctor.examine import examine
from compaction.models import SessionSummary
from compaction.runs.switching import SwitchWishes, request_switch
from tests.chatapp.test_lineage import MOVES, grow_tree, naive_rows
from tests.compaction.support import NEVER
from tests.deep_forks import DEEP, deep_session
from tests.factories import SessionFactory, profile

pytestmark = pytest.mark.django_db


def previewed(session: Session, branch: Branch) -> list[dict]:
    """What the next request would send, if the session were on the branch."""
    mine = Session.objects.get(pk=session.pk)
    mine.active_branch = branch
    return list(context_backend.preview(mine).messages)


@pytest.mark.parametrize("seed", range(5))
def test_a_switch_changes_the_context_by_its_note_alone(owner, queued, seed):
    profile(**NEVER, summariser="extractive")
    chance = random.Random(seed)
    session = SessionFactory(owner=owner)
    grow_tree(session, chance, chance.choices(MOVES, k=10))
    for _ in range(4):
        session = Session.objects.get(pk=session.pk)
        old, others = session.branch, Branch.objects.filter(session=session)
        new = chance.choice(list(others.exclude(pk=old.pk)) or [old])
        new.session = session
        before = {branch.pk: previewed(session, branch) for branch in others}
        notes = Message.objects.filter(session=session, kind="note").count()
        run = request_switch(session, new, SwitchWishes(summarize=True))
        said = {row.pk for row in naive_rows(old) if row.is_spoken} - {
            row.pk for row in naive_rows(new)
        }
        assert (run is not None) == bool(said)
        if run is None:
            continue
        assert (run.status, run.error) == ("succeeded", "")
        read = SessionSummary.objects.get(run=run).links.values_list("message", flat=True)
        assert said <= set(read)
        assert Message.objects.filter(session=session, kind="note").count() == notes + 1
        for branch in others.all():
            now = previewed(session, branch)
            if branch.pk != new.pk:
                assert now == before[branch.pk]
            else:
                # An open question and the note may be joined; nothing else is another.
                assert str(now)[: len(str(before[branch.pk])) - 3] == str(before[branch.pk])[:-3]
            count, total, _ = rebuild_sums(branch)
            assert (branch.message_count, branch.token_total) == (count, total)
    assert not [finding for finding in examine(session.pk) if finding.is_error]


def test_what_is_left_is_read_with_as_many_queries_however_deep_it_is(
    owner, queued, django_assert_max_num_queries
):
    """Of five thousand forks, only the rows that a budget lets in are read."""
    profile(**NEVER)
    session = deep_session(owner, depth=DEEP)
    root = Branch.objects.get(session=session, parent=None)
    short = Branch.objects.create(
        session=session, parent=root, fork_position=root.head_position - 1_000_000, kind="fork"
    )
    snapshot = snapshot_of(session, session.branch)
    snapshot.profile, snapshot.model  # noqa: B018  # read before the queries are counted
    left = LeftBranch(snapshot=snapshot, new=short)
    assert left.shared_through == root.head_position - 1_000_000
    with django_assert_max_num_queries(12):
        found = next(iter(left._newest_first()))
    assert found.item.position == session.branch.head_position
