"""Stored lineage: any tree of forks gives the paths that a naive walk gives."""

from __future__ import annotations

import random
from base64 import b64encode
from functools import partial
from itertools import count, permutations

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatapp import selectors, transcript
from chatapp.models import POSITION_STEP, Branch, Message, Session
from chatapp.selectors import (
    Segment,
    path_messages,
    path_q,
    pinned_messages,
    placeholders,
    rows_before,
    rows_from,
    segments,
    shared_position,
)
from chatapp.transcript.writing import NewMessage, TranscriptError
from tests.deep_forks import deep_session, fill_lineage
from tests.factories import SessionFactory, store, talk

pytestmark = pytest.mark.django_db

_NAMES = count()
MOVES = ("say", "fork", "fork", "fork", "go", "mark", "pin", "replay")


def naive_path(branch: Branch) -> list[tuple[Branch, int | None]]:
    """Walk from parent to parent: every branch of the path and where the path leaves it."""
    path, end = [(branch, None)], None
    while branch.parent is not None and branch.fork_position is not None:
        end = branch.fork_position if end is None else min(end, branch.fork_position)
        branch = branch.parent
        path.append((branch, end))
    return path


def naive_rows(branch: Branch, after: int = 0, through: int | None = None) -> list[Message]:
    rows = []
    for owner, end in naive_path(branch):
        own = Message.objects.filter(branch=owner, position__gt=after)
        for limit in (end, through):
            own = own if limit is None else own.filter(position__lte=limit)
        rows += own
    return sorted(rows, key=lambda row: row.position)


def grow_tree(session: Session, chance: random.Random, moves: list[str]) -> None:
    """Do what a session lives through, one move after the other, through the transcript."""
    store(session, talk(2, words=1))
    for move in moves:
        branch = session.branch
        branch.refresh_from_db()
        path = [row for row in naive_rows(branch) if row.kind == "message"]
        at = chance.choice(path)
        if move == "say":
            store(session, talk(1, words=1))
        elif move == "fork":
            transcript.activate(session, transcript.fork(session, at=at))
            if chance.random() < 0.8:
                store(session, talk(1, words=1)[: chance.choice((1, 2))])
        elif move == "go":
            branches = list(Branch.objects.filter(session=session).order_by("created_at", "pk"))
            transcript.activate(session, chance.choice(branches))
        elif move == "mark":
            draft = NewMessage(wire={"role": "assistant", "content": "mark"}, kind="placeholder")
            transcript.insert_between(branch, after=at.position, draft=draft)
        elif move == "pin":
            transcript.set_pinned(at, True)
        elif move == "replay":
            transcript.replay(session, contents={at.pk: "shorter"})


@pytest.mark.parametrize("shallow", [0, 2, selectors.SHALLOW])
@given(seed=st.integers(0, 2**32), moves=st.lists(st.sampled_from(MOVES), max_size=14))
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_every_path_is_that_of_a_naive_walk(monkeypatch, shallow, seed, moves):
    monkeypatch.setattr(selectors, "SHALLOW", shallow)
    monkeypatch.setattr(selectors, "LEAST_REACH", 1)
    chance = random.Random(seed)
    owner = get_user_model().objects.create(username=f"grower {next(_NAMES)}")
    session = SessionFactory(owner=owner)
    grow_tree(session, chance, moves)
    for branch in Branch.objects.filter(session=session):
        every = naive_rows(branch)
        places = [0, *(row.position for row in every), every[-1].position + POSITION_STEP // 2]
        after, through = sorted(chance.choices(places, k=2))
        rows = Message.objects.order_by("position")
        assert list(rows.filter(path_q(branch))) == every
        part = naive_rows(branch, after, through)
        assert list(rows.filter(path_q(branch, after=after, through=through))) == part
        assert list(rows.filter(path_q(branch, after=after))) == naive_rows(branch, after)
        messages = [row for row in part if row.kind == "message"]
        assert list(path_messages(branch, after=after, through=through)) == messages
        pinned = [row for row in every if row.pinned and row.position <= through]
        assert list(pinned_messages(branch, through=through)) == pinned
        assert list(placeholders(branch)) == [row for row in every if row.kind == "placeholder"]
        others = set(rows.exclude(path_q(branch)).filter(session=session))
        assert others == set(rows.filter(session=session)) - set(every)
        most = chance.randint(1, 5)
        behind = [row for row in every if row.position >= after]
        assert rows_from(branch, Message.objects.all(), start=after, most=most) == behind[:most]
        before = [row for row in every if row.position < through]
        found = rows_before(branch, Message.objects.all(), end=through, most=most)
        assert found == before[-most:]
        questions = [row for row in every if row.role == "user"]
        asked = Message.objects.filter(role="user")
        assert rows_before(branch, asked, most=most) == questions[-most:]
        assert segments(branch) == [
            Segment(branch_id=owner.pk, through=end) for owner, end in naive_path(branch)
        ]


@pytest.mark.parametrize("seed", range(6))
def test_two_paths_part_where_a_naive_walk_parts_them(owner, seed):
    chance = random.Random(seed)
    session = SessionFactory(owner=owner)
    grow_tree(session, chance, chance.choices(MOVES, k=14))
    branches = list(Branch.objects.filter(session=session))
    for one, other in permutations(branches, 2):
        parting = shared_position(one, other)
        rows = [row for row in naive_rows(one) if row.is_spoken]
        both = {row.pk for row in naive_rows(other)}
        assert [row.pk in both for row in rows] == [row.position <= parting for row in rows]


@pytest.mark.parametrize("seed", range(3))
def test_a_jump_leads_to_an_ancestor_and_old_data_get_the_same_ones(session, seed):
    chance = random.Random(seed)
    made = [session.branch]
    for _ in range(60):
        made.append(_child(session, chance.choice(made[-5:])))
    made += [_child(session, chance.choice(made)) for _ in range(20)]
    wanted = {row.pk: (row.depth, row.jump_id) for row in made}
    for row in made[1:]:
        ancestors = {branch.pk for branch, _ in naive_path(row)[1:]}
        assert row.jump_id in ancestors
        assert row.depth == len(ancestors)
    forks = Branch.objects.filter(session=session)
    forks.update(depth=0, jump=None)
    fill_lineage()
    assert {row.pk: (row.depth, row.jump_id) for row in forks} == wanted


def _child(session: Session, parent: Branch) -> Branch:
    place = (parent.fork_position or 0) + POSITION_STEP
    return Branch.objects.create(session=session, parent=parent, fork_position=place, kind="fork")


@pytest.fixture
def session(owner) -> Session:
    return SessionFactory(owner=owner)


def test_any_ancestor_of_5000_is_a_few_jumps_away(owner):
    session = deep_session(owner, depth=5000, messages=5100)
    up = {row.pk: row for row in Branch.objects.filter(session=session)}
    tip = session.branch
    for depth in (4999, 3210, 64, 1, 0):
        steps, current = 0, up[tip.pk]
        while current.depth > depth:
            jump = up[current.jump_id]
            current = jump if jump.depth >= depth else up[current.parent_id]
            steps += 1
        assert steps <= 3 * 13


def test_forks_at_one_place_have_one_parent(session):
    rows = store(session, talk(2, words=1))
    for _ in range(5):
        transcript.activate(session, transcript.fork(session, at=rows[1]))
    forks = Branch.objects.filter(session=session, kind="fork")
    assert {(fork.depth, fork.parent_id) for fork in forks} == {(1, rows[1].branch_id)}


def test_a_fork_of_a_fork_counts_the_messages_of_its_path(session):
    rows = store(session, talk(3, words=1))
    transcript.activate(session, transcript.fork(session, at=rows[3]))
    more = store(session, talk(2, words=1))
    fork = transcript.fork(session, at=more[2])
    assert fork.message_count == 7
    assert (fork.depth, fork.token_total) == (2, more[2].tokens_through)
    with pytest.raises(TranscriptError):
        transcript.fork(SessionFactory(owner=session.owner), at=more[2])


def test_a_path_of_5000_forks_is_read_whole(owner):
    session = deep_session(owner, depth=5000, messages=5100)
    places = path_messages(session.branch).values_list("position", flat=True)
    assert list(places) == [n * POSITION_STEP for n in range(1, 5101)]
    assert Message.objects.filter(path_q(session.branch)).count() == 5100
    assert len(segments(session.branch)) == 5001


def sqlite_steps(read) -> int:
    """Return how many hundred instructions SQLite needs for what is read."""
    steps = 0

    def count_steps() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.ensure_connection()
    connection.connection.set_progress_handler(count_steps, 100)
    try:
        read()
    finally:
        connection.connection.set_progress_handler(None, 0)
    return steps


@pytest.mark.skipif(connection.vendor != "sqlite", reason="SQLite counts its instructions")
def test_the_database_does_not_work_more_for_a_deeper_path(owner):
    rows = Message.objects.filter(kind="message")
    branches = [deep_session(owner, depth=depth, messages=5100).branch for depth in (60, 5000)]
    for branch in branches:
        for row in rows_from(branch, rows, start=50 * POSITION_STEP, most=2):
            transcript.set_pinned(row, True)
    for read in (
        lambda branch: rows_from(branch, rows, start=0, most=50),
        lambda branch: rows_from(branch, rows, start=2500 * POSITION_STEP, most=50),
        lambda branch: rows_before(branch, rows, most=50),
        lambda branch: rows_before(branch, rows, end=2500 * POSITION_STEP, most=50),
        lambda branch: list(path_messages(branch, after=5080 * POSITION_STEP)),
        lambda branch: list(pinned_messages(branch)),
        lambda branch: list(placeholders(branch)),
    ):
        shallow, deep = (sqlite_steps(partial(read, branch)) for branch in branches)
        assert deep <= 3 * shallow + 50


def test_a_cursor_that_is_no_position_is_not_found_on_a_fork_either(api, session):
    rows = store(session, talk(2, words=1))
    transcript.activate(session, transcript.fork(session, at=rows[1]))
    for place in ("9" * 30, "x", "-1", "²"):
        cursor = b64encode(f"p={place}".encode()).decode()
        answer = api.get(f"/api/v1/sessions/{session.pk}/messages/", {"cursor": cursor})
        assert answer.status_code in (200, 404)
