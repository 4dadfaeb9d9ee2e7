"""Random trees: whatever a session lives through, sums, contexts, groups and the outline hold."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth import get_user_model
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from chatapp import transcript
from chatapp.context.backend import FullHistoryBackend
from chatapp.models import Branch, Message, Session
from chatapp.outline import Outline, OutlineNode, facts_of, outline_of, with_ends
from chatapp.outline_pages import START, NodePage, node_page
from chatapp.transcript.writing import NewMessage, TranscriptError
from compaction.models import SessionSummary
from tests.chatapp.test_lineage import naive_rows
from tests.chatapp.test_transcript import check_all_sums
from tests.factories import SessionFactory, call, result, store, talk, user

pytestmark = pytest.mark.django_db

MOVES = ("say", "call", "answer", "fork", "fork", "before", "replay", "switch", "mark")
_NAMES = count()


class Life:
    """A session that lives through moves; after each, only what it touched may be another."""

    def __init__(self, session: Session, chance: random.Random) -> None:
        self.session, self.chance = session, chance
        self.calls = count()
        self.open: dict[Any, list[str]] = {}
        store(session, talk(1, words=1))

    def messages(self, branch: Branch) -> list[Message]:
        return [row for row in naive_rows(branch) if row.kind == "message"]

    def contexts(self) -> dict[Any, list[Any]]:
        """What every branch would send: from the rows alone, none of them read in another way."""
        return {
            branch.pk: [row.wire() for row in self.messages(branch)]
            for branch in Branch.objects.filter(session=self.session)
        }

    def make(self, move: str) -> set[Any]:
        """Make a move; return the branches whose contexts it may change."""
        branch = self.session.branch
        branch.refresh_from_db()
        return getattr(self, f"_{move}")(branch) or set()

    def _say(self, branch: Branch) -> set[Any]:
        store(self.session, talk(1, words=1)[: self.chance.choice((1, 2))])
        return {branch.pk}

    def _call(self, branch: Branch) -> set[Any]:
        """A call of two tools, and none, one or both of their results."""
        keys = [f"c{next(self.calls)}", f"c{next(self.calls)}"]
        both = call("f", keys[0])
        both["tool_calls"] += call("g", keys[1])["tool_calls"]
        answered = self.chance.choice((0, 1, 2))
        store(self.session, [both, *(result(key) for key in keys[:answered])])
        self.open[branch.pk] = keys[answered:]
        return {branch.pk}

    def _answer(self, branch: Branch) -> set[Any]:
        store(self.session, [result(key) for key in self.open.pop(branch.pk, [])])
        return {branch.pk}

    def _fork(self, branch: Branch, *, before: bool = False) -> None:
        path = self.messages(branch)
        if not path:
            return
        at = self.chance.choice(path)
        end = path.index(at) + (not before)
        start = transcript.fork_before if before else transcript.fork
        # The branch of the message may have got results that this path has not.
        own = self.messages(at.branch)
        is_inside = parts_a_group(own, own.index(at) + (not before))
        try:
            made = start(self.session, at=at)
        except TranscriptError:
            assert is_inside
            return
        assert not is_inside
        assert [row.pk for row in self.messages(made)] == [row.pk for row in path[:end]]
        if self.chance.random() < 0.7:
            transcript.switch(self.session, made)

    def _before(self, branch: Branch) -> None:
        self._fork(branch, before=True)

    def _replay(self, branch: Branch) -> None:
        path = self.messages(branch)
        chosen = [row for row in path if row.role == "tool"] or path
        if not chosen:
            return
        at = self.chance.choice(chosen)
        found = transcript.replay(self.session, contents={at.pk: "short"})
        sent = [row.wire() for row in path]
        sent[path.index(at)]["content"] = "short"
        assert [row.wire() for row in self.messages(found.new)] == sent
        if branch.pk in self.open:
            self.open[found.new.pk] = [*self.open[branch.pk]]

    def _switch(self, branch: Branch) -> None:
        every = list(Branch.objects.filter(session=self.session).order_by("created_at", "pk"))
        transcript.switch(self.session, self.chance.choice(every))

    def _mark(self, branch: Branch) -> None:
        path = self.messages(branch)
        draft = NewMessage(wire={"role": "assistant", "content": "mark"}, kind="placeholder")
        with contextlib.suppress(IndexError):
            at = self.chance.choice(path)
            transcript.insert_between(branch, after=at.position, draft=draft)


def parts_a_group(path: list[Message], end: int) -> bool:
    """Whether a cut before the `end`th message stands inside a call and its results."""
    made: dict[str, int] = {}
    for number, row in enumerate(path):
        for one in row.tool_calls or ():
            made[one["id"]] = number
        if row.role == "tool" and made[row.tool_call_id] < end <= number:
            return True
    return False


def lived(seed: int, moves: list[str]) -> Session:
    """Return a session that has lived through the moves, each of which was looked at."""
    owner = get_user_model().objects.create(username=f"liver {next(_NAMES)}")
    session = SessionFactory(owner=owner)
    life = Life(session, random.Random(seed))
    before = life.contexts()
    for move in moves:
        touched = life.make(move)
        after = life.contexts()
        for branch, sent in before.items():
            if branch not in touched:
                assert after[branch] == sent, move
        before = after
    return session


each_life = given(seed=st.integers(0, 2**32), moves=st.lists(st.sampled_from(MOVES), max_size=16))
# Shrinking a failure in a database takes minutes; the moves are printed anyway.
few = settings(
    max_examples=25,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@each_life
@example(2597, ["answer", "answer", "mark", "call", "say", "answer", "fork", "call", "call"])
@few
def test_sums_are_right_and_contexts_are_the_paths_after_any_life(queued, seed, moves):
    session = lived(seed, moves)
    check_all_sums(session)
    for branch in Branch.objects.filter(session=session):
        session.active_branch = branch
        rows = [row for row in naive_rows(branch) if row.kind == "message"]
        sent = FullHistoryBackend().preview(session).messages
        asked = [one for one in sent if one["role"] != "tool"]
        assert [one.get("content") for one in asked] == [
            row.content for row in rows if row.role != "tool"
        ]
        results = [row.content for row in rows if row.role == "tool"]
        said = [one["content"] for one in sent if one["role"] == "tool"]
        # A call that has no result yet is sent with a word that says so.
        assert [text for text in said if text in ("done", "short")] == results


@each_life
@settings(few, max_examples=12)
def test_the_outline_and_its_pages_are_those_of_a_naive_walk(queued, seed, moves):
    session = lived(seed, moves)
    check_outline(session)
    whole = outline_of(session)
    for branch in whole.branches.values():
        expected = [told(node) for node in whole.nodes if node.branch_id == branch.id]
        for size in (1, 2, 200):
            assert list(map(told, pages_of(session, branch.id, size))) == expected
    mark_at_random(session, random.Random(seed))
    expected = list(map(told_whole, outline_of(session).nodes))
    for size in (1, 4, 200):
        assert list(map(told_whole, pages_of(session, None, size))) == expected


def check_outline(session: Session) -> None:
    """The outline of a session is what walking all its rows gives."""
    outline = outline_of(session)
    paths = {
        branch.pk: [row for row in naive_rows(branch) if row.kind == "message"]
        for branch in Branch.objects.filter(session=session)
    }
    check_nodes(outline, paths)
    active = {row.pk for row in paths[session.active_branch_id]}
    rows = {(row.position, row.branch_id): row.pk for row in Message.objects.all()}
    for node in outline.nodes:
        if node.position:
            assert node.is_active == (rows[node.place] in active)
    branches = list(with_ends(Branch.objects.filter(session=session)))
    for key, facts in facts_of(session, branches).items():
        last = paths[key][-1].pk if paths[key] else None
        assert (facts.last_message.pk if facts.last_message else None) == last


def pages_of(session: Session, branch: Any, size: int) -> list[OutlineNode]:
    """Read a session's nodes, or a branch's, page by page to the end, and back to the beginning."""
    after, end = START, (2**62, UUID(int=2**128 - 1))
    pages: list[NodePage] = []
    while not pages or pages[-1].has_behind:
        pages.append(node_page(session, branch, size=size, after=after))
        assert pages[-1].has_before == (after != START and bool(pages[-1].nodes))
        after = pages[-1].nodes[-1].place if pages[-1].nodes else after
    back: list[NodePage] = []
    while not back or back[0].has_before:
        back.insert(0, node_page(session, branch, size=size, before=end))
        assert back[0].has_behind == (len(back) > 1)
        end = back[0].nodes[0].place if back[0].nodes else (0, UUID(int=0))
    there, again = ([node for page in found for node in page.nodes] for found in (pages, back))
    assert list(map(told, again)) == list(map(told, there))
    return there


def mark_at_random(session: Session, chance: random.Random) -> None:
    """Store summaries of all branches, at places of theirs, before and behind them."""
    for branch in Branch.objects.filter(session=session):
        rows = {row.position for row in naive_rows(branch)}
        places = sorted({1, *rows, branch.head_position + 1})
        chosen = chance.sample(places, min(3, len(places)))
        for kind, place in zip(("compaction", "compaction", "branch"), chosen, strict=False):
            SessionSummary.objects.create(
                session=session,
                branch=branch,
                kind=kind,
                summary_text="What was said.",
                trigger="manual",
                reason="manual",
                covers_from=1,
                covers_through=place,
            )


def told(node: OutlineNode) -> tuple[Any, ...]:
    """Return what is compared of a node; what it stands below is told by its place."""
    heads, forks = ([one.id for one in found] for found in (node.heads, node.forks))
    marks = Counter(mark.pk for mark in node.marks if mark.branch_id == node.branch_id)
    above = node.parent and node.parent.place
    counts = (node.head_count, node.fork_count)
    return (node.place, above, node.is_active, sorted(heads), sorted(forks), counts, marks)


def told_whole(node: OutlineNode) -> tuple[Any, ...]:
    """Return the same with the marks of branches that end at the node without own messages."""
    return (*told(node), Counter(mark.pk for mark in node.marks))


def check_nodes(outline: Outline, paths: dict[Any, list[Message]]) -> None:
    """Nodes are the ends of paths, the places of forks and the first messages, and no others."""
    forks = {
        (branch.fork_position, branch.parent_id)
        for branch in Branch.objects.filter(pk__in=paths, parent__isnull=False)
    }
    ends = {key: (path[-1].position, path[-1].branch_id) for key, path in paths.items() if path}
    firsts = {(path[0].position, path[0].branch_id) for path in paths.values() if path}
    empty = {(0, key) for key, path in paths.items() if not path}
    places = {node.place for node in outline.nodes}
    assert places == forks | set(ends.values()) | firsts | empty
    for node in outline.nodes:
        assert {head.id for head in node.heads} == {
            key for key in paths if ends.get(key, (0, key)) == node.place
        }
        for head in node.heads:
            walked, at = [], node
            while at is not None:
                walked.append(at.place)
                at = at.parent
            path = [(row.position, row.branch_id) for row in paths[head.id]]
            assert walked[::-1] == [place for place in path if place in places] or not path


def test_a_call_may_be_answered_in_each_branch_of_its_own(owner, queued):
    session = SessionFactory(owner=owner, wires=[user("go")])
    (asked,) = store(session, [call("f", "1")])
    fork = transcript.fork(session, at=asked)
    store(session, [result("1", "in the root")])
    transcript.switch(session, fork)
    store(session, [result("1", "in the fork")])
    texts = {
        branch.kind: naive_rows(branch)[-1].content
        for branch in Branch.objects.filter(session=session)
    }
    assert texts == {"root": "in the root", "fork": "in the fork"}
    check_all_sums(session)
