"""Many conversations of one file: stored together, equal to what each alone would become."""

from __future__ import annotations

import json

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from chatapp import import_batches, transfer
from chatapp.formats import parse
from chatapp.import_batches import batches
from chatapp.models import Branch, Message, Session
from chatapp.selectors import counter_of
from chatapp.transfer import import_file
from compaction.models import CompactionState
from tests.chatapp.test_transcript import check_all_sums
from tests.factories import call, result, talk, user

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_queue(queued):
    """Imports may queue work; it is not done here."""


def lines(count: int, *, start: int = 0) -> bytes:
    made = (
        {"title": f"Talk {number}", "messages": talk(1, words=2, marker=number)}
        for number in range(start, start + count)
    )
    return b"\n".join(json.dumps(one).encode() for one in made)


def shape(session: Session) -> list:
    branch = session.branch
    rows = Message.objects.filter(session=session).order_by("position")
    return [
        (branch.message_count, branch.token_total, branch.head_position, branch.kind, branch.depth),
        [
            (row.position, row.role, row.content, row.tokens, row.tokens_through, row.pinned)
            for row in rows
        ],
        rows.values_list("branch", flat=True).distinct().get() == branch.pk,
    ]


WIRES = [
    {"role": "system", "content": "Be brief."},
    {"role": "system", "content": "Be kind."},
    *talk(2),
    call("f", "1", '{"a":1}'),
    result("1", "42"),
    {"role": "assistant", "content": "done 🙂"},
]


def test_a_conversation_is_stored_the_same_alone_and_among_others(owner, monkeypatch):
    content = json.dumps({"title": "Trip", "messages": WIRES}).encode()
    monkeypatch.setattr(import_batches, "is_one_line", lambda messages, leaf: False)
    alone = import_file(owner=owner, content=content).imported[0].session
    monkeypatch.undo()
    Session.objects.update(import_key=None)
    together = import_file(owner=owner, content=content + b"\n" + lines(3)).imported[0].session
    assert alone.pk != together.pk
    assert shape(Session.objects.get(pk=together.pk)) == shape(Session.objects.get(pk=alone.pk))
    assert shape(together)[0][0] == len(WIRES)


def test_a_long_tool_result_among_others_is_kept_whole(owner, settings):
    settings.COMPACTION = settings.COMPACTION | {"STORED_RESULT_CHARS": 5_000}
    long = {"messages": [user("Read it."), call("f", "1"), result("1", "word " * 10_000)]}
    content = json.dumps(long).encode() + b"\n" + lines(1)
    session = import_file(owner=owner, content=content).imported[0].session
    row = Message.objects.get(session=session, role="tool")
    assert len(row.content) < 6_000
    assert row.original.content == "word " * 10_000


def test_many_conversations_take_few_queries_each(owner):
    content = lines(200)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        report = import_file(owner=owner, content=content)
    assert len(report.imported) == Session.objects.count() == 200
    assert Message.objects.count() == 400
    # Two batches; one by one it were three thousand.
    assert len(queries) < 60


def test_importing_many_again_adds_nothing_and_asks_little(owner):
    import_file(owner=owner, content=lines(200))
    with CaptureQueriesContext(connection) as queries:
        report = import_file(owner=owner, content=lines(200))
    assert {(one.created, one.messages_added) for one in report.imported} == {(False, 0)}
    assert (Session.objects.count(), Message.objects.count()) == (200, 400)
    assert len(queries) < 20


def test_what_was_imported_before_and_what_is_new_keep_the_order_of_the_file(owner):
    import_file(owner=owner, content=lines(2, start=1))
    report = import_file(owner=owner, content=lines(4))
    told = [(one.session.title, one.created) for one in report.imported]
    assert told == [("Talk 0", True), ("Talk 1", False), ("Talk 2", False), ("Talk 3", True)]


def test_another_import_that_was_a_moment_faster_is_no_error(owner, monkeypatch):
    known = transfer._Batch._known
    rivals = [lambda: import_file(owner=owner, content=lines(3))]

    def before_the_rival(batch):
        found = known(batch)
        if rivals:
            rivals.pop()()
        return found

    monkeypatch.setattr(transfer._Batch, "_known", before_the_rival)
    report = import_file(owner=owner, content=lines(3))
    assert [(one.created, one.messages_added) for one in report.imported] == [(False, 0)] * 3
    assert (Session.objects.count(), Message.objects.count()) == (3, 6)


def test_a_long_conversation_is_a_batch_of_its_own():
    file = [{"messages": talk(count, words=1)} for count in (2, 600, 3, 4)]
    parsed = parse("\n".join(map(json.dumps, file)))
    sizes = [[len(one.messages) for one in batch] for batch in batches(parsed.conversations)]
    assert sizes == [[4], [1200], [6, 8]]


def test_no_batch_has_more_than_a_hundred_conversations():
    file = "\n".join(json.dumps({"messages": [user(f"Question {n}?")]}) for n in range(250))
    assert [len(batch) for batch in batches(parse(file).conversations)] == [100, 100, 50]


def test_the_sweep_looks_at_many_imported_sessions_a_part_each_minute(owner):
    import_file(owner=owner, content=lines(300))
    times = CompactionState.objects.values_list("next_check_at", flat=True)
    minutes = sorted(round((time - timezone.now()).total_seconds() / 60) for time in times)
    assert len(minutes) == Branch.objects.count() == 300
    assert minutes == [0] * 100 + [1] * 100 + [2] * 100


def test_a_few_imported_sessions_are_looked_at_at_once(owner):
    import_file(owner=owner, content=lines(3))
    assert set(CompactionState.objects.values_list("next_check_at", flat=True)) == {None}


@pytest.mark.django_db(transaction=True)
def test_long_texts_of_a_large_conversation_are_counted_before_its_transaction(owner, monkeypatch):
    """Nobody else writes to SQLite while it lasts."""
    monkeypatch.setattr("chatapp.spooled_files.IN_MEMORY_BYTES", 10_000)
    monkeypatch.setattr(import_batches, "BATCH_BYTES", 10_000)
    wires = [{"role": "user", "content": f"{number} " + "word " * 600} for number in range(6)]
    wires.append(call("f", "1", json.dumps({"text": "argument " * 300})))
    wires.append(result("1", "nul \0 " + "value " * 500))
    counted: list[tuple[int, bool]] = []
    kind = type(counter_of(Session(model="default")))
    real = kind.count

    def counting(self, text):
        counted.append((len(text), connection.in_atomic_block))
        return real(self, text)

    monkeypatch.setattr(kind, "count", counting)
    report = import_file(owner=owner, content=json.dumps({"messages": wires}).encode())
    before = [size for size, is_inside in counted if not is_inside and size > 1_000]
    inside = [size for size, is_inside in counted if is_inside and size > 1_000]
    assert len(before) >= len(wires)
    # The one with a NUL is stored otherwise than it was counted.
    assert len(inside) == 1
    check_all_sums(report.imported[0].session)
