"""The only code that writes messages: positions and sums are right after whatever happened."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import TestCase
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase as HypothesisTestCase

from chatapp import selectors, transcript
from chatapp.groups import group_of
from chatapp.messages.wire import InvalidMessageError, text_of
from chatapp.models import POSITION_STEP, Branch, Message, Session
from chatapp.selectors import path_q
from chatapp.transcript import positions_changed
from chatapp.transcript.writing import KeyReusedError, NewMessage, TranscriptError
from tests.factories import SessionFactory, UserFactory, call, result, store, talk

PLACEHOLDER = NewMessage(
    wire={"role": "assistant", "content": None},
    kind=Message.Kind.PLACEHOLDER,
    summary="earlier",
    metadata={"type": "session_summary"},
)


def user(text: str) -> NewMessage:
    return NewMessage(wire={"role": "user", "content": text})


def path(branch: Branch) -> list[Message]:
    """Return every row on a branch's path, placeholders included, by position."""
    return list(Message.objects.filter(path_q(branch)).order_by("position", "id"))


def texts(branch: Branch) -> list[str | None]:
    return [row.content for row in path(branch)]


def check_chars(branch: Branch, rows: list[Message]) -> None:
    """The characters of a path are those of its texts and calls, and nothing else."""
    total = 0
    for row in rows:
        wire = row.stored_wire() if row.is_spoken else {}
        calls = [one["function"] for one in wire.get("tool_calls", ())]
        texts = [text_of(wire.get("content")), *(one["name"] + one["arguments"] for one in calls)]
        assert row.chars == sum(map(len, texts))
        total += row.chars
        assert row.chars_through == total
    assert branch.char_total == total


def check_all_sums(session: Session) -> None:
    """Every branch's stored numbers equal those counted from scratch; positions are unique."""
    for branch in Branch.objects.filter(session=session):
        count, total, through = selectors.rebuild_sums(branch)
        rows = path(branch)
        assert (branch.message_count, branch.token_total) == (count, total)
        assert {row.pk: row.tokens_through for row in rows} == through
        check_chars(branch, rows)
        positions = [row.position for row in rows]
        assert len(set(positions)) == len(positions)
        assert all(position > 0 for position in positions)
        assert branch.head_position >= max(positions, default=0)


@pytest.fixture
def session(owner) -> Session:
    return SessionFactory(owner=owner)


# Shrinking a failure in a database takes minutes; the steps are printed anyway.
NO_SHRINK = (Phase.explicit, Phase.reuse, Phase.generate)

# What a random history does: (what, which branch, which row, how much text)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "between", "mark", "fork", "append"]),
        st.integers(0, 5),
        st.integers(0, 30),
        st.integers(0, 40),
    ),
    max_size=14,
)


class RandomHistories(HypothesisTestCase):
    @given(STEPS)
    @settings(max_examples=25, deadline=None, phases=NO_SHRINK)
    def test_sums_and_positions_are_right_after_any_history(self, steps):
        session = SessionFactory(owner=UserFactory(), wires=talk(1, words=2))
        for what, which, row_number, length in steps:
            branches = list(Branch.objects.filter(session=session).order_by("created_at", "id"))
            branch = branches[which % len(branches)]
            rows = path(branch)
            row = rows[row_number % len(rows)]
            draft = user("word " * length or "w")
            if what == "append":
                transcript.append(branch, [draft] * (1 + length % 3))
            elif what == "mark":
                transcript.insert_between(branch, after=row.position, draft=PLACEHOLDER)
            elif what == "fork" and row.kind == Message.Kind.MESSAGE:
                transcript.fork(session, at=row)
            elif what == "between" and row.position >= (branch.fork_position or 0):
                transcript.insert_between(branch, after=row.position, draft=draft)
        check_all_sums(session)

    @given(st.lists(st.integers(0, 3), min_size=25, max_size=30))
    @settings(max_examples=5, deadline=None, phases=NO_SHRINK)
    def test_putting_rows_into_one_gap_again_and_again_keeps_their_order(self, kinds):
        session = SessionFactory(owner=UserFactory(), wires=talk(1, words=2))
        first, last = path(session.branch)
        fork = transcript.fork(session, at=last)
        for number, kind in enumerate(kinds):
            first.refresh_from_db()
            draft = PLACEHOLDER if kind == 0 else user(f"n{number}")
            transcript.insert_between(session.branch, after=first.position, draft=draft)
        fork.refresh_from_db()
        transcript.append(fork, [user("end")])
        inserted = [f"n{number}" for number, kind in enumerate(kinds) if kind]
        found = [text for text in texts(fork) if text is not None]
        assert found == [first.content, *reversed(inserted), last.content, "end"]
        check_all_sums(session)


class Renumbering(TestCase):
    """When no integer is left between two rows, all positions of the session move together."""

    def setUp(self):
        self.session = SessionFactory(owner=UserFactory(), wires=talk(2, words=2))
        self.rows = path(self.session.branch)

    def close_the_gap(self) -> int:
        """Put rows behind the first one until its neighbour is one step of 1 away."""
        for number in range(40):
            self.rows[0].refresh_from_db()
            row = transcript.insert_between(
                self.session.branch, after=self.rows[0].position, draft=user(f"n{number}")
            )
            if row.position - self.rows[0].position == 1:
                return number
        raise AssertionError("the gap never closed")

    def test_a_step_of_a_million_takes_nineteen_rows(self):
        assert self.close_the_gap() in (18, 19)

    def test_the_next_row_still_finds_its_place(self):
        self.close_the_gap()
        transcript.insert_between(
            self.session.branch, after=self.rows[0].position, draft=user("one more")
        )
        assert texts(self.session.branch)[:2] == [self.rows[0].content, "one more"]
        check_all_sums(self.session)

    def test_forks_stay_where_they_were(self):
        fork = transcript.fork(self.session, at=self.rows[1])
        transcript.append(fork, [user("on the fork")])
        self.close_the_gap()
        before = texts(fork)
        transcript.insert_between(
            self.session.branch, after=self.rows[0].position, draft=user("one more")
        )
        fork.refresh_from_db()
        assert texts(fork) == [before[0], "one more", *before[1:]]
        check_all_sums(self.session)

    def test_whoever_keeps_positions_hears_of_the_new_ones(self):
        heard = []

        def hear(*, session, moved, **kwargs):
            heard.append((session, moved))

        self.close_the_gap()
        third = self.rows[2].position
        positions_changed.connect(hear)
        try:
            transcript.insert_between(
                self.session.branch, after=self.rows[0].position, draft=user("one more")
            )
        finally:
            positions_changed.disconnect(hear)
        self.rows[2].refresh_from_db()
        ((session, moved),) = heard
        assert session == self.session
        assert moved[third] == self.rows[2].position

    def test_new_positions_are_whole_steps(self):
        self.close_the_gap()
        row = transcript.insert_between(
            self.session.branch, after=self.rows[0].position, draft=user("one more")
        )
        others = [r.position for r in path(self.session.branch) if r.pk != row.pk]
        assert others == [POSITION_STEP * n for n in range(1, len(others) + 1)]

    def test_appending_goes_on_behind_the_last_row(self):
        self.close_the_gap()
        transcript.insert_between(self.session.branch, after=self.rows[0].position, draft=user("x"))
        store(self.session, [{"role": "user", "content": "last"}])
        assert texts(self.session.branch)[-1] == "last"
        check_all_sums(self.session)


def test_the_first_message_stands_at_one_step(session):
    (row,) = store(session, [{"role": "user", "content": "x"}])
    assert row.position == 1_000_000
    assert str(row.sequence_id) == "1.000000"


def test_a_row_between_two_takes_the_middle(session):
    first, _ = store(session, talk(1))
    row = transcript.insert_between(session.branch, after=first.position, draft=PLACEHOLDER)
    assert str(row.sequence_id) == "1.500000"


def test_a_placeholder_at_the_end_is_not_in_the_way_of_the_next_message(session):
    rows = store(session, talk(1))
    mark = transcript.insert_between(session.branch, after=rows[-1].position, draft=PLACEHOLDER)
    (following,) = store(session, [{"role": "user", "content": "next"}])
    assert rows[-1].position < mark.position < following.position
    check_all_sums(session)


def test_placeholders_behind_placeholders_are_not_in_the_way_either(session):
    after = store(session, talk(1))[-1].position
    for _ in range(30):  # enough to have the session renumbered
        mark = transcript.insert_between(session.branch, after=after, draft=PLACEHOLDER)
        after = mark.position
        store(session, [{"role": "user", "content": "next"}])
    check_all_sums(session)


def test_a_placeholder_counts_in_no_sum(session):
    first, _ = store(session, talk(1))
    before = (session.branch.message_count, session.branch.token_total)
    row = transcript.insert_between(session.branch, after=first.position, draft=PLACEHOLDER)
    session.branch.refresh_from_db()
    assert (session.branch.message_count, session.branch.token_total) == before
    assert (row.tokens, row.tokens_through) == (0, first.tokens_through)


def test_marks_of_a_fork_and_of_its_parent_in_one_gap_do_not_meet(session):
    first, last = store(session, talk(1))
    fork = transcript.fork(session, at=last)
    transcript.insert_between(fork, after=first.position, draft=PLACEHOLDER)
    transcript.insert_between(session.branch, after=first.position, draft=PLACEHOLDER)
    check_all_sums(session)


def test_a_message_cannot_be_put_before_the_fork_where_others_share_the_place(session):
    first, last = store(session, talk(1))
    fork = transcript.fork(session, at=last)
    with pytest.raises(TranscriptError, match="Other branches share this place"):
        transcript.insert_between(fork, after=first.position, draft=user("x"))


def test_a_row_cannot_be_put_behind_a_place_where_no_row_stands(session):
    store(session, talk(1))
    with pytest.raises(TranscriptError, match="No message of the branch stands at position 7"):
        transcript.insert_between(session.branch, after=7, draft=PLACEHOLDER)


def test_a_row_can_be_put_before_the_first(session):
    store(session, talk(1))
    transcript.insert_between(session.branch, after=0, draft=user("zero"))
    assert texts(session.branch)[0] == "zero"
    check_all_sums(session)


def test_what_cannot_be_stored_stores_nothing_of_its_batch(session):
    with pytest.raises(InvalidMessageError):
        transcript.append(session.branch, [user("ok"), NewMessage(wire={"role": "nobody"})])
    assert not Message.objects.exists()


def test_tokens_are_those_of_the_text_that_is_stored(session):
    store(session, [{"role": "tool", "tool_call_id": "c", "content": "\x00" * 400}])
    check_all_sums(session)


def test_characters_replaced_in_reasoning_are_noted_too(session):
    draft = NewMessage(wire={"role": "assistant", "content": "a\x00"}, reasoning="b\x00")
    (row,) = transcript.append(session.branch, [draft])
    assert row.reasoning == "b\ufffd"
    assert row.metadata["replaced_characters"] == 2


def test_a_servers_ids_and_reasons_are_cleaned_and_cut(session):
    draft = NewMessage(
        wire={"role": "assistant", "content": "a"},
        finish_reason="s\x00" + "x" * 100,
        response_id="r\ud800" + "x" * 198,
        usage={"prompt_tokens": 1, "note": "\x00"},
    )
    (row,) = transcript.append(session.branch, [draft])
    row.refresh_from_db()
    assert (len(row.finish_reason), len(row.response_id)) == (40, 200)
    assert row.usage == {"prompt_tokens": 1, "note": "\ufffd"}


def test_a_megabyte_of_text_is_stored_whole(session):
    text = "lorem ipsum " * 90_000
    (row,) = store(session, [{"role": "user", "content": text}])
    row.refresh_from_db()
    assert row.content == text


def test_system_messages_that_open_a_conversation_are_pinned(session):
    rows = store(
        session,
        [
            {"role": "system", "content": "a"},
            {"role": "developer", "content": "b"},
            {"role": "user", "content": "c"},
            {"role": "system", "content": "d"},
        ],
    )
    assert [row.pinned for row in rows] == [True, True, False, False]


def test_appending_one_message_takes_at_most_six_queries(session, django_assert_max_num_queries):
    store(session, talk(3))
    savepoint = 2  # of the test's own transaction
    with django_assert_max_num_queries(6 + savepoint):
        transcript.append(session.branch, [user("x")], client_key="k")


def test_appending_costs_the_same_however_long_the_branch_is(session, django_assert_num_queries):
    # PostgreSQL gets them in two messages; and the savepoint of the test's own transaction.
    messages = (2 if connection.vendor == "postgresql" else 3) + 2
    with django_assert_num_queries(messages):
        store(session, talk(1))
    store(session, talk(200, words=1))
    with django_assert_num_queries(messages):
        store(session, talk(1))


def test_the_same_key_and_messages_store_once(session):
    first = transcript.append(session.branch, [user("a"), user("b")], client_key="k")
    again = transcript.append(session.branch, [user("a"), user("b")], client_key="k")
    assert [row.pk for row in again] == [row.pk for row in first]
    assert session.branch.message_count == 2


def test_the_same_key_with_other_messages_is_refused(session):
    transcript.append(session.branch, [user("a")], client_key="k")
    with pytest.raises(KeyReusedError):
        transcript.append(session.branch, [user("b")], client_key="k")


def test_a_key_belongs_to_one_session(session, owner):
    other = SessionFactory(owner=owner)
    transcript.append(session.branch, [user("a")], client_key="k")
    transcript.append(other.branch, [user("b")], client_key="k")
    assert Message.objects.count() == 2


def test_a_session_that_was_deleted_meanwhile_is_told_of(session):
    branch = session.branch
    Session.objects.filter(pk=session.pk).delete()
    with pytest.raises(TranscriptError, match="deleted meanwhile"):
        transcript.append(branch, [user("x")])


def test_a_fork_shares_the_path_up_to_its_message(session):
    rows = store(session, talk(2))
    fork = transcript.fork(session, at=rows[1])
    transcript.append(fork, [user("other")])
    assert texts(fork) == [rows[0].content, rows[1].content, "other"]
    assert len(texts(session.branch)) == 4
    check_all_sums(session)


def test_a_fork_of_a_fork_reaches_back_to_the_root(session):
    rows = store(session, talk(2))
    fork = transcript.fork(session, at=rows[2])
    (on_fork,) = transcript.append(fork, [user("b")])
    again = transcript.fork(session, at=on_fork)
    transcript.append(again, [user("c")])
    assert texts(again) == [*(row.content for row in rows[:3]), "b", "c"]
    check_all_sums(session)


def test_a_branch_cannot_start_between_a_call_and_its_results(session):
    rows = store(session, [*talk(1), call("f", "1"), result("1"), *talk(1)])
    with pytest.raises(TranscriptError, match=str(rows[3].pk)):
        transcript.fork(session, at=rows[2])
    assert transcript.fork(session, at=rows[3]).message_count == 4


def test_a_branch_cannot_start_at_a_placeholder_or_in_another_session(session, owner):
    first, _ = store(session, talk(1))
    mark = transcript.insert_between(session.branch, after=first.position, draft=PLACEHOLDER)
    with pytest.raises(TranscriptError):
        transcript.fork(session, at=mark)
    with pytest.raises(TranscriptError):
        transcript.fork(SessionFactory(owner=owner), at=first)


def test_activating_a_branch_of_another_session_is_refused(session, owner):
    with pytest.raises(TranscriptError):
        transcript.activate(session, SessionFactory(owner=owner).branch)


def test_pinning_a_result_pins_its_call_and_the_other_results(session):
    two = call("f", "1")
    two["tool_calls"].append({**two["tool_calls"][0], "id": "2"})
    rows = store(session, [*talk(1), two, result("1"), result("2"), *talk(1)])
    transcript.set_pinned(rows[4], True)
    pinned = Message.objects.filter(pinned=True).order_by("position")
    assert list(pinned) == rows[2:5]


def test_a_placeholder_cannot_be_pinned(session):
    first, _ = store(session, talk(1))
    mark = transcript.insert_between(session.branch, after=first.position, draft=PLACEHOLDER)
    with pytest.raises(TranscriptError):
        transcript.set_pinned(mark, True)


def test_a_group_is_a_call_with_its_own_results_although_ids_repeat(session):
    rows = store(session, [call("f", "1"), result("1", "a"), call("f", "1"), result("1", "b")])
    assert group_of(rows[3]) == rows[2:]
    assert group_of(rows[0]) == rows[:2]


def test_a_result_without_a_call_is_a_group_of_its_own(session):
    (row,) = store(session, [result("1")])
    assert group_of(row) == [row]
