"""Characters of old databases are counted and summed, in batches, beside those who write."""

from __future__ import annotations

import importlib
import json
import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, transaction

from chatapp import transcript
from chatapp.models import Branch, Message, Session
from chatapp.transcript.writing import NewMessage
from compaction.branches.coverage import coverage_of
from compaction.models import CompactionState
from tests.chatapp.test_lineage import grow_tree
from tests.chatapp.test_lineage_migration import MOVES, migrate, newest
from tests.chatapp.test_transcript import check_all_sums
from tests.compaction.support import compact
from tests.factories import SessionFactory, UserFactory, call, result, store, talk

pytestmark = pytest.mark.django_db(transaction=True)

BEFORE = [
    ("chatapp", "0014_turn_imported_summaries_into_notes"),
    ("compaction", "0012_keep_the_default_of_old_installations"),
]
TEXTS = (
    "", "plain words", "发票 44-B 已付", "\U0001f469\u200d\U0001f467 and a\nsecond line",
    "\ufb01n e\u0301 \U0001f3f3\ufe0f", '{"a": "\\u00e9"}',
)  # fmt: skip


def messages(chance: random.Random, count: int) -> list[dict[str, Any]]:
    """Return messages of every shape: texts, null, parts, calls of several tools, results."""
    made: list[dict[str, Any]] = []
    for number in range(count):
        text = chance.choice(TEXTS) * chance.randrange(1, 4)
        shape = chance.randrange(4)
        if shape == 0:
            image = {"type": "image_url", "image_url": {"url": "https://pictures.test/1.png"}}
            parts = [{"type": "text", "text": text}, image, {"type": "text", "text": "と"}]
            made.append({"role": "user", "content": parts})
        elif shape == 1:
            made.append({"role": "user", "content": text})
        elif shape == 2:
            made.append({"role": "assistant", "content": text, "reasoning_content": "hm " * 9})
        else:
            name = f"call_{number}"
            made.append(call("read_file", name, json.dumps({"path": text})))
            made.append(result(name, text))
    return made


def a_tree(seed: int) -> Session:
    """Return a session with forks, replays and marks, and messages of every shape in them."""
    chance = random.Random(seed)
    print(f"seed {seed}")
    session = SessionFactory(owner=UserFactory())
    grow_tree(session, chance, MOVES)
    for _ in range(3):
        last = store(session, messages(chance, 12))[-1]
        transcript.activate(session, transcript.fork(session, at=last))
    transcript.replay(session, contents={last.pk: "cut 短"})
    store(session, messages(chance, 12))
    mark = NewMessage(wire={"role": "assistant", "content": "mark"}, kind="placeholder")
    path = Message.objects.filter(branch=session.branch, kind="message").order_by("position")
    transcript.insert_between(session.branch, after=path[1].position, draft=mark)
    return session


def known() -> tuple[dict[Any, Any], dict[Any, Any]]:
    rows = Message.objects.values_list("pk", "chars", "chars_through")
    return {row[0]: row[1:] for row in rows}, dict(Branch.objects.values_list("pk", "char_total"))


def forget() -> None:
    Message.objects.update(chars=0, chars_through=0)
    Branch.objects.update(char_total=0)
    CompactionState.objects.update(covered_chars=0)


def filling() -> Any:
    return importlib.import_module("chatapp.migrations.0016_fill_characters")


def fill() -> None:
    filling().fill_characters(apps, SimpleNamespace(connection=connection))


@pytest.fixture
def back_to_before() -> Iterator[None]:
    """Leave the database with every migration done, whatever becomes of the test."""
    yield
    migrate(newest())


@pytest.mark.parametrize("seed", [3, 8, 21])
@pytest.mark.parametrize("batch", [1, 5, 2_000])
def test_old_rows_get_what_new_ones_have(monkeypatch, seed, batch):
    session = a_tree(seed)
    check_all_sums(session)
    wanted = known()
    assert sum(wanted[1].values()) > 0
    forget()
    monkeypatch.setattr(filling(), "BATCH", batch)
    fill()
    assert known() == wanted
    fill()
    assert known() == wanted


def test_an_old_database_is_filled_with_its_states(back_to_before, model_server):
    session = SessionFactory(owner=UserFactory(), wires=talk(20))
    compact(session, keep_last_n=6)
    a_tree(5)
    wanted = known()
    migrate(BEFORE)
    migrate(newest())
    assert known() == wanted
    state = CompactionState.objects.get(pk=session.branch.pk)
    assert state.covered_chars == coverage_of(session.branch).chars > 0


def test_a_fork_behind_a_summary_gets_its_covered_characters(model_server):
    session = SessionFactory(owner=UserFactory(), wires=talk(20))
    compact(session, keep_last_n=6)
    last = Message.objects.filter(branch=session.branch, kind="message").order_by("position").last()
    fork = transcript.fork(session, at=last)
    of_parent = CompactionState.objects.get(pk=session.branch.pk)
    CompactionState.objects.create(
        branch=fork, cursor=of_parent.cursor, covered_messages=of_parent.covered_messages
    )
    right = of_parent.covered_chars
    CompactionState.objects.update(covered_chars=0)
    states = importlib.import_module("compaction.migrations.0014_fill_covered_characters")
    states.fill_covered_characters(apps, SimpleNamespace(connection=connection))
    assert set(CompactionState.objects.values_list("covered_chars", flat=True)) == {right}


def test_what_is_appended_and_inserted_between_two_batches_is_counted(monkeypatch):
    session = a_tree(13)
    monkeypatch.setattr(filling(), "BATCH", 3)
    forget()
    batches, one = [], filling()._Filling._batch

    def meanwhile(self, branch, *, after):
        done = one(self, branch, after=after)
        batches.append(done)
        if len(batches) in (2, 5):
            transaction.on_commit(lambda: someone_writes(session))
        return done

    monkeypatch.setattr(filling()._Filling, "_batch", meanwhile)
    fill()
    assert len(batches) > 5
    check_all_sums(session)


def someone_writes(session: Session) -> None:
    """Append to the branch in use, and put a message behind one of its own."""
    store(session, talk(1, words=2))
    branch = Branch.objects.select_related("session").get(pk=session.branch.pk)
    own = Message.objects.filter(branch=branch, kind="message").order_by("position")
    draft = NewMessage(wire={"role": "user", "content": "in between, 间"})
    transcript.insert_between(branch, after=own[2].position, draft=draft)


def test_a_migration_that_was_stopped_can_begin_again(monkeypatch):
    session = a_tree(34)
    wanted = known()
    forget()
    monkeypatch.setattr(filling(), "BATCH", 4)
    batches, one = [], filling()._Filling._batch

    def stopping(self, branch, *, after):
        if len(batches) == 4:
            raise KeyboardInterrupt
        batches.append(after)
        return one(self, branch, after=after)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(filling()._Filling, "_batch", stopping)
        fill()
    assert known() != wanted
    fill()
    assert known() == wanted
    check_all_sums(session)
