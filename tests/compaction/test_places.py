"""Rows between rows: middles, renumbering, and what keeps its place through both."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from chatapp import transcript
from chatapp.models import Message, Session
from chatapp.selectors import path_messages
from chatapp.transcript import positions_changed
from chatapp.transcript.writing import NewMessage
from compaction.models import CompactionState, SessionSummary
from tests.chatapp.test_transcript import check_all_sums
from tests.compaction.support import compact, state
from tests.factories import SessionFactory, profile, store, talk, user

pytestmark = pytest.mark.django_db
MARK = NewMessage(
    wire={"role": "assistant", "content": "a mark"}, kind="placeholder", summary="said before"
)
# Halving 1,000,000 and rounding down: 500,000 … 15,625, 7,812 … 3, 1. From the other side the
# larger half is left: 500,000 … 15,625, 7,813 … 2, 1.
FIT_BEHIND, FIT_BEFORE = 19, 20


@pytest.fixture
def session(owner, model_server, queued) -> Session:
    return SessionFactory(owner=owner, wires=talk(8))


@contextmanager
def renumberings() -> Iterator[list[dict[int, int]]]:
    heard: list[dict[int, int]] = []

    def hear(*, moved: dict[int, int], **kwargs: Any) -> None:
        heard.append(moved)

    positions_changed.connect(hear)
    try:
        yield heard
    finally:
        positions_changed.disconnect(hear)


def rows_of(session: Session) -> list[Message]:
    return list(Message.objects.filter(session=session).order_by("position", "id"))


def put(session: Session, after: Message) -> Message:
    """Put a mark right behind a row, wherever that stands by now."""
    session.branch.refresh_from_db()
    after.refresh_from_db()
    return transcript.insert_between(session.branch, after=after.position, draft=MARK)


def test_what_stands_between_two_and_three_is_two_and_a_half(session):
    second = rows_of(session)[1]
    assert (second.place, put(session, second).place) == ("2", "2.5")


def test_a_middle_is_rounded_down(session):
    second = rows_of(session)[1]
    made = [put(session, second) for _ in range(8)]
    assert [row.position - 2_000_000 for row in made] == [
        500_000, 250_000, 125_000, 62_500, 31_250, 15_625, 7_812, 3_906,
    ]  # fmt: skip


@pytest.mark.parametrize(("side", "fit"), [("behind", FIT_BEHIND), ("before", FIT_BEFORE)])
def test_so_many_rows_fit_before_positions_are_given_anew(session, side, fit):
    after = rows_of(session)[1]
    with renumberings() as heard:
        for _ in range(fit):
            made = put(session, after)
            after = made if side == "before" else after
        assert heard == []
        put(session, after)
        assert len(heard) == 1


@pytest.mark.parametrize("seed", [2, 7, 19])
def test_forty_five_marks_at_one_place_keep_order_and_cursor(session, seed):
    chance = random.Random(seed)
    print(f"seed {seed}")
    compact(session, keep_last_n=6)
    covered = CompactionState.objects.get(pk=session.branch.pk)
    last = path_messages(session.branch, through=covered.cursor).order_by("-position")[0]
    order = [row.pk for row in rows_of(session)]
    place = order.index(last.pk)
    for _ in range(45):
        # Behind the message, or behind any of the marks that stand there by now.
        at = chance.choice(rows_of(session)[place : place + 1 + 45])
        if at.kind == "message":
            at = last
        made = put(session, at)
        order.insert(order.index(at.pk) + 1, made.pk)
        assert [row.pk for row in rows_of(session)] == order
        now = state(session)
        last.refresh_from_db()
        assert now.cursor == last.position == SessionSummary.objects.get().covers_through
        assert now.covered_messages == covered.covered_messages
        assert (now.covered_tokens, now.covered_chars) == (
            covered.covered_tokens, covered.covered_chars,
        )  # fmt: skip
    check_all_sums(session)


def test_what_is_appended_behind_marks_never_repeats_a_place(session):
    chance, seen = random.Random(11), {row.pk for row in rows_of(session)}
    for number in range(45):
        at = chance.choice(rows_of(session)[-3:])
        seen.add(put(session, at).pk)
        session.branch.refresh_from_db()
        (row,) = store(session, [user(f"question {number}")])
        seen.add(row.pk)
        rows = rows_of(session)
        assert rows[-1].pk == row.pk
        assert len({one.sequence_id for one in rows}) == len(rows) == len(seen)
    check_all_sums(session)


def test_the_entries_of_an_abridged_history_follow_when_positions_are_given_anew(
    owner, model_server, queued
):
    profile(rendering="node", abridged_total_chars_limit=10_000, keep_last_n=2, ledger=False)
    session = SessionFactory(owner=owner, wires=talk(8))
    after = rows_of(session)[1]
    # Rows whose places are no whole numbers by then, before everything that is summarised.
    for _ in range(5):
        put(session, after)
    compact(session)
    summary = SessionSummary.objects.get()
    assert len(summary.abridged_entries) >= 3
    with renumberings() as heard:
        while not heard:
            put(session, after)
    summary.refresh_from_db()
    questions = [row for row in rows_of(session) if row.role == "user"]
    asked = [row.position for row in questions if row.position <= summary.covers_through]
    assert [entry["position"] for entry in summary.abridged_entries] == asked
