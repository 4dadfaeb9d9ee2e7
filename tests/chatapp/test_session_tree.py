"""Whole trees at once: the same rows as append() and fork() make, in a few statements."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from chatapp import transcript
from chatapp.groups import parted_at
from chatapp.models import Branch, Message, Session
from chatapp.transcript.writing import NewMessage, SessionDeletedError
from chatapp.transfer import import_file
from tests.chatapp.formats.test_trees import FLAT, Said, broad, long_line
from tests.chatapp.test_transcript import check_all_sums
from tests.factories import SessionFactory
from tests.facts import seed

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_queue(queued):
    """Imports may queue work; it is not done here."""


Line = tuple[str | None, list[NewMessage]]


def draw_message(chance: random.Random, key: str) -> NewMessage:
    calls = [
        {"id": chance.choice("xyz"), "type": "function", "function": {"name": "f"}}
        for _ in range(chance.randint(1, 2))
    ]
    wires: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": chance.choice("xyz"), "content": f"result {key}"},
        {"role": "system", "content": f"rule {key}"},
        {"role": "user", "content": f"question {key}"},
        {"role": "assistant", "content": f"answer {key}"},
    ]
    kind = chance.choice(["message"] * 9 + ["placeholder"])
    if kind == "placeholder":
        wires = wires[-1:]
    return NewMessage(wire=chance.choice(wires), kind=kind, metadata={"import_key": key})


def draw_lines(chance: random.Random) -> list[Line]:
    """Lines of a tree, each behind a message of an earlier one, or behind nothing."""
    lines: list[Line] = []
    keys: list[str] = []
    for number in range(chance.randint(3, 14)):
        parent = chance.choice([None, *keys[-12:]]) if keys else None
        length = chance.randint(1, 5)
        lines.append(
            (parent, [draw_message(chance, f"{number}.{place}") for place in range(length)])
        )
        keys += [f"{number}.{place}" for place in range(length)]
    return lines


def one_by_one(session: Session, lines: list[Line]) -> None:
    """Store lines with the verbs that everybody else uses."""
    rows: dict[str, Message] = {}
    for parent, drafts in lines:
        for row in transcript.append(branch_behind(session, rows.get(parent or "")), drafts):
            rows[row.metadata["import_key"]] = row


def branch_behind(session: Session, parent: Message | None) -> Branch:
    messages = Message.objects.filter(kind=Message.Kind.MESSAGE)
    root = Branch.objects.filter(session=session, kind=Branch.Kind.ROOT).get()
    if parent is None:
        return root if not root.head_position else _new_root(session)
    if not messages.filter(branch=parent.branch, position__gt=parent.position).exists():
        parent.branch.refresh_from_db()
        return parent.branch
    if parent.kind != Message.Kind.MESSAGE:
        before = messages.filter(branch=parent.branch, position__lt=parent.position)
        found = before.order_by("-position").first()
        if found is None:
            return _new_root(session)
        parent = found
    return transcript.fork(session, at=(parted_at(parent) or [parent])[-1])


def _new_root(session: Session) -> Branch:
    return Branch.objects.create(session=session, kind=Branch.Kind.FORK)


def at_once(session: Session, lines: list[Line], *, parts: int = 1) -> None:
    """Store lines as trees are stored, in so many goes."""
    size = -(-len(lines) // parts)
    for start in range(0, len(lines), size):
        with transaction.atomic():
            tree = (
                transcript.SessionTree.loaded(session) if start else transcript.SessionTree(session)
            )
            places = {place.key: place for place in tree.places()}
            for parent, drafts in lines[start : start + size]:
                for place in tree.add_line(places.get(parent or ""), drafts):
                    places[place.key] = place
            tree.store()


def stored(session: Session) -> list[Any]:
    """Everything that is stored of a session's tree; branches by their first row."""
    branches = list(Branch.objects.filter(session=session))
    rows = {one.pk: list(one.messages.order_by("position")) for one in branches}
    names = {pk: own[0].metadata["import_key"] if own else "" for pk, own in rows.items()}
    return sorted(
        [
            names[one.pk],
            str(names.get(one.parent_id)),
            str(one.fork_position),
            (one.head_position, one.message_count, one.token_total, one.kind),
            (one.depth, str(names.get(one.jump_id))),
            [
                (row.metadata["import_key"], row.position, row.kind, row.tokens_through, row.pinned)
                for row in rows[one.pk]
            ],
        ]
        for one in branches
    )


@pytest.mark.parametrize("round_", range(25))
def test_a_drawn_tree_is_stored_as_line_by_line(owner, round_):
    chance = random.Random(f"{seed()} tree {round_}")
    lines = draw_lines(chance)
    first, second, third = (SessionFactory(owner=owner) for _ in range(3))

    one_by_one(first, lines)
    at_once(second, lines)
    at_once(third, lines, parts=3)

    assert stored(second) == stored(first)
    assert stored(third) == stored(first)
    check_all_sums(second)


def test_deep_forks_have_the_lineage_that_forking_gives_them(owner):
    first_one = NewMessage(wire={"role": "user", "content": "q"}, metadata={"import_key": "0"})
    lines: list[Line] = [(None, [first_one])]
    for number in range(1, 40):
        drafts = [
            NewMessage(
                wire={"role": "user", "content": "x"}, metadata={"import_key": f"{number}{sign}"}
            )
            for sign in ("", "+")
        ]
        lines += [(lines[-1][1][0].metadata["import_key"], drafts)]
    first, second = SessionFactory(owner=owner), SessionFactory(owner=owner)

    one_by_one(first, lines)
    at_once(second, lines)

    assert max(one.depth for one in Branch.objects.filter(session=second)) > 30
    assert stored(second) == stored(first)


def comb(size: int) -> list[Said]:
    """A line, each message of which has a second answer beside it."""
    line = long_line(size // 2)
    beside = [
        Said(key=f"x{one.key}", parent=one.key, text=f"beside {one.text}", role=one.role)
        for one in line
    ]
    for one, other in zip(line, beside, strict=True):
        one.children.append(other.key)
    return [*line, *beside]


@pytest.mark.parametrize("shape", [broad, long_line, comb], ids=lambda shape: shape.__name__)
def test_a_message_more_takes_a_fraction_of_a_statement(owner, shape):
    def statements(size: int) -> int:
        content = FLAT["chatgpt"](shape(size)).replace('"c"', f'"c{size}"').encode()
        with CaptureQueriesContext(connection) as caught:
            import_file(owner=owner, content=content)
        return len(caught)

    # SQLite takes some dozens of rows in one; line by line it would be a dozen for each branch.
    assert statements(900) < statements(10) + 900 / 10


def test_a_tree_of_a_deleted_session_is_refused(owner):
    session = SessionFactory(owner=owner)
    transcript.delete_session(Session.objects.get(pk=session.pk))

    with pytest.raises(SessionDeletedError), transaction.atomic():
        transcript.SessionTree.loaded(session)


def test_what_is_added_to_a_stored_tree_goes_on_with_it(owner):
    session = SessionFactory(owner=owner)
    rows = transcript.append(
        session.branch,
        [NewMessage(wire={"role": "user", "content": text}) for text in ("one", "two")],
    )

    with transaction.atomic():
        tree = transcript.SessionTree.loaded(session)
        places = {place.pk: place for place in tree.places()}
        tree.add_line(places[rows[-1].pk], [NewMessage(wire={"role": "user", "content": "three"})])
        tree.add_line(places[rows[0].pk], [NewMessage(wire={"role": "user", "content": "other"})])
        tree.store()

    root = Branch.objects.get(session=session, parent=None)
    assert root.message_count == 3
    assert [row.content for row in root.messages.order_by("position")] == ["one", "two", "three"]
    assert Branch.objects.get(parent=root).message_count == 2
    assert json.dumps(stored_texts(session)) == json.dumps([["one", "two", "three"], ["other"]])
    check_all_sums(session)


def stored_texts(session: Session) -> list[list[str | None]]:
    branches = Branch.objects.filter(session=session).order_by("depth")
    return [[row.content for row in one.messages.order_by("position")] for one in branches]
