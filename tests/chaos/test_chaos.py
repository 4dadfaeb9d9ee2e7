"""The chaos test's own pieces: what is made up to be wrong is found."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from random import Random

import pytest
from django.utils import timezone

from chatapp.models import Message
from compaction.models import CompactionRun, CompactionState, SessionSummary, SessionSummaryMessage
from compaction.runs.worker import compact_branch
from tests.chaos.checks import (
    Done,
    Request,
    StoredBranch,
    StoredMessage,
    StoredSummary,
    against_ledger,
    not_whole,
    overlapping,
    too_little,
    uncovered,
    unread,
    violations,
)
from tests.chaos.ledger import Book, Ledger, Sent, mark_of
from tests.chaos.model import UnsteadyModel
from tests.chaos.processes import ROOT
from tests.chaos.stored import read_branches
from tests.chaos.surroundings import NotThereError, Surroundings
from tests.chaos.writers import judged
from tests.factories import SessionFactory, profile, store

MARKS = [f"MK-007-{number:05d}" for number in range(1, 7)]


def sent(*marks: str, acknowledged: bool = True, turn: bool = False) -> Sent:
    messages = [{"role": "user", "content": f"{mark} words"} for mark in marks]
    return Sent(key=marks[0], messages=messages, is_turn=turn, is_acknowledged=acknowledged)


def stored(*marks: str) -> list[StoredMessage]:
    return [
        StoredMessage(id=f"row {number}", position=number, mark=mark)
        for number, mark in enumerate(marks, 1)
    ]


def summary(low: int, high: int, **changes) -> StoredSummary:
    linked = frozenset(f"row {number}" for number in range(low, high + 1))
    whole = StoredSummary(
        id=f"{low}-{high}", covers_from=low, covers_through=high, linked=linked, text=str(MARKS)
    )
    return replace(whole, **changes)


LEDGER = [sent(MARKS[0]), sent(MARKS[1], MARKS[2]), sent(MARKS[3], turn=True)]
ROWS = stored(*MARKS[:4], f"Answer to {MARKS[3]}")


def test_it_finds_nothing_where_all_is_stored_once_and_in_order():
    assert list(against_ledger(LEDGER, ROWS)) == []


def test_it_finds_a_lost_message():
    (found,) = against_ledger(LEDGER, [*ROWS[:1], *ROWS[2:]])
    assert "MK-007-00002 was acknowledged and is not stored" in found


def test_it_finds_a_doubled_message():
    (found,) = against_ledger(LEDGER, [*ROWS, *stored(MARKS[0])])
    assert "MK-007-00001 is stored 2 times" in found


def test_it_finds_messages_in_another_order():
    (found,) = against_ledger(LEDGER, [ROWS[1], ROWS[0], *ROWS[2:]])
    assert found == "MK-007-00002 stands where MK-007-00001 should stand"


def test_it_finds_a_message_that_nobody_sent():
    (found,) = against_ledger(LEDGER, [*ROWS, *stored("MK-008-00001")])
    assert "('MK-008-00001') was never sent" in found


def test_it_finds_a_lost_answer():
    (found,) = against_ledger(LEDGER, ROWS[:4])
    assert "Answer to MK-007-00004 was acknowledged and is not stored" in found


def test_it_finds_a_second_answer():
    (found,) = against_ledger(LEDGER, [*ROWS, ROWS[-1]])
    assert "Answer to MK-007-00004 is stored 2 times" in found


@pytest.mark.parametrize("rows", [ROWS, [*ROWS, *stored(MARKS[4])]], ids=["lost", "stored"])
def test_what_was_not_acknowledged_may_be_stored_or_not(rows):
    assert list(against_ledger([*LEDGER, sent(MARKS[4], acknowledged=False)], rows)) == []


def test_what_was_not_acknowledged_may_not_be_stored_twice():
    rows = [*ROWS, *stored(MARKS[4], MARKS[4])]
    (found,) = against_ledger([*LEDGER, sent(MARKS[4], acknowledged=False)], rows)
    assert "MK-007-00005 is stored 2 times" in found


def test_it_finds_a_message_before_the_cursor_that_no_summary_has():
    branch = StoredBranch(session_id="s", messages=ROWS, summaries=[summary(1, 2)], cursor=3)
    (found,) = uncovered(branch)
    assert "the first is MK-007-00003 at 3" in found


def test_a_pinned_message_before_the_cursor_needs_no_summary():
    rows = [replace(ROWS[0], is_pinned=True), *ROWS[1:]]
    branch = StoredBranch(session_id="s", messages=rows, summaries=[summary(2, 3)], cursor=3)
    assert list(uncovered(branch)) == []


def test_it_finds_overlapping_summaries_also_behind_a_short_one():
    pairs = [summary(1, 9, linked=frozenset()), summary(2, 3), summary(8, 12)]
    found = list(overlapping(pairs))
    assert [text.split(" overlap")[0] for text in found] == [
        "the active summaries 1-9 and 2-3",
        "the active summaries 1-9 and 8-12",
    ]


def test_it_finds_a_message_that_is_in_two_summaries():
    (found,) = overlapping([summary(1, 2), summary(3, 4, linked=frozenset({"row 2", "row 4"}))])
    assert found == "message row 2 is in two summaries, 1-2 and 3-4"


def test_neighbours_do_not_overlap():
    assert list(overlapping([summary(3, 4), summary(1, 2)])) == []


def test_it_finds_a_summary_that_has_not_read_what_it_is_linked_to():
    lacking = summary(1, 2, text=f"SUMMARY {MARKS[0]}")
    (found,) = unread(StoredBranch(session_id="s", messages=ROWS, summaries=[lacking]))
    assert "linked to 1 message(s) that it has not read, for example MK-007-00002" in found


def test_an_archive_need_not_repeat_every_mark():
    shortened = summary(1, 2, text="", is_exact=False)
    assert list(unread(StoredBranch(session_id="s", messages=ROWS, summaries=[shortened]))) == []


def test_it_finds_a_request_that_lacks_a_message():
    asked = Request(question=MARKS[3], said=frozenset({MARKS[0], MARKS[2], MARKS[3]}))
    (found,) = not_whole([asked], {})
    assert found.startswith(
        "The request of MK-007-00004 lacks 1 message(s), the first is MK-007-00002"
    )
    assert list(not_whole([asked], {7: 1})) == []


def test_it_finds_a_request_with_the_words_of_another_session():
    asked = Request(question=MARKS[0], said=frozenset({MARKS[0], "MK-070-00001"}))
    (found,) = not_whole([asked], {7: 1})
    assert found == "The request of MK-007-00001 holds MK-070-00001."


def test_it_finds_what_is_held_and_what_has_not_finished():
    branch = StoredBranch(
        session_id="s", messages=ROWS, lease_owner="somebody", unfinished=["r (running)"]
    )
    found = " ".join(violations(branch, LEDGER))
    assert "run r (running) has not finished" in found
    assert "somebody still holds the lease" in found


def test_a_test_in_which_nothing_happened_does_not_pass():
    busy = Done(
        acknowledged=200, turns=25, succeeded=25, summaries=25, kills=3, interrupted=1,
        restarted=1, twice=1, database_cuts=1, redis_cuts=1, bursts=1,
    )  # fmt: skip
    assert too_little(busy, sessions=50) == []
    (found,) = too_little(replace(busy, restarted=0), sessions=50)
    assert found == "Too little happened: 0 runs were started again, at least 1 must."
    (found,) = too_little(replace(busy, redis_cuts=0), sessions=50)
    assert "0 times all connections to Redis were cut" in found


@pytest.mark.parametrize(
    ("status", "text", "is_streamed", "counts", "is_refused"),
    [
        (201, "{}", False, True, False),
        (200, "event: message\ndata: {}\n\nevent: done\ndata: {}\n\n", True, True, False),
        (200, "event: error\ndata: {}\n\n", True, False, False),
        (200, 'event: delta\ndata: "event: done"\n\n', True, False, False),
        (409, "", False, False, False),
        (500, "", False, False, False),
        (422, "", False, False, True),
    ],
)
def test_only_what_is_acknowledged_counts(status, text, is_streamed, counts, is_refused):
    answer = judged(status, text, is_streamed=is_streamed)
    assert (answer.counts, bool(answer.refusal)) == (counts, is_refused)


def test_a_book_is_taken_by_one_writer_and_its_open_request_is_repeated():
    ledger, chance = Ledger([Book(number=1, session_id="s", token="t")]), Random(1)
    book = ledger.take(chance, only_open=False)
    assert book is not None and ledger.take(chance, only_open=False) is None
    first = book.write(chance)
    ledger.give_back(book)
    assert ledger.take(chance, only_open=True) is book
    assert book.open is first
    first.is_acknowledged = True
    ledger.give_back(book)
    assert ledger.take(chance, only_open=True) is None


def test_every_text_of_a_book_has_a_mark_of_its_own():
    book, chance = Book(number=3, session_id="s", token="t"), Random(2)
    marks = [mark for _ in range(60) for mark in book.write(chance).marks]
    assert "" not in marks
    assert len(set(marks)) == len(marks)


@pytest.fixture
def model(use_models):
    with UnsteadyModel(1) as server:
        server.steady()
        use_models(server.models())
        yield server


@pytest.fixture
def compacted(db, model):
    """A session of which four messages are summarised, as a book and as rows."""
    profile(keep_last_n=2)
    session, chance = SessionFactory(), Random(3)
    book = Book(number=1, session_id=str(session.pk), token="")
    for role in ("user", "assistant") * 3:
        text = book.next_text(chance)
        store(session, [{"role": role, "content": text}])
        book.sent.append(sent(mark_of(text)))
    assert compact_branch(session=session, trigger="manual", reason="manual").status == "succeeded"
    return book


def found_in(book: Book) -> str:
    (branch,) = read_branches(book.session_id)
    return " ".join(violations(branch, book.sent))


def test_a_real_session_has_no_faults(compacted):
    assert SessionSummary.objects.get().message_count == 4
    assert found_in(compacted) == ""


def test_a_deleted_row_is_found(compacted):
    Message.objects.filter(content__startswith="MK-001-00006").delete()
    assert "MK-001-00006 was acknowledged and is not stored" in found_in(compacted)


def test_a_deleted_link_is_found(compacted):
    SessionSummaryMessage.objects.filter(message__content__startswith="MK-001-00002").delete()
    assert "the first is MK-001-00002" in found_in(compacted)


def test_a_summary_without_a_marks_text_is_found(compacted):
    SessionSummary.objects.update(summary_text="SUMMARY MK-001-00001 MK-001-00002 MK-001-00003")
    assert "has not read, for example MK-001-00004" in found_in(compacted)


def test_a_summary_that_no_longer_counts_covers_nothing(compacted):
    SessionSummary.objects.update(status=SessionSummary.Status.SUPERSEDED)
    assert "4 message(s) up to the cursor" in found_in(compacted)


def test_a_held_lease_and_a_waiting_run_are_found(compacted):
    CompactionState.objects.update(
        lease_owner="00000000-0000-0000-0000-000000000001", lease_expires_at=timezone.now()
    )
    CompactionRun.objects.update(status=CompactionRun.Status.QUEUED)
    assert "still holds the lease" in found_in(compacted)
    assert "(queued) has not finished" in found_in(compacted)


@pytest.mark.parametrize("variable", ["DATABASE_URL", "REDIS_URL"])
def test_without_a_server_it_says_what_it_needs(variable):
    both = {"DATABASE_URL": "postgres://u@127.0.0.1:1/d", "REDIS_URL": "redis://127.0.0.1:1/0"}
    with pytest.raises(NotThereError, match="needs PostgreSQL and Redis: set DATABASE_URL"):
        Surroundings.of({name: both[name] for name in both if name != variable}, database="none")


def test_a_server_that_does_not_answer_ends_it_with_a_sentence_and_status_2():
    addresses = {"DATABASE_URL": "postgres://u@127.0.0.1:1/d", "REDIS_URL": "redis://127.0.0.1:1/0"}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.chaos"],
        cwd=ROOT, env=addresses, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stderr.startswith("PostgreSQL does not answer: ")
    assert ended.stdout == ""
