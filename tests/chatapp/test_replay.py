"""A replayed branch: nothing is changed in place."""

from __future__ import annotations

import threading

import pytest
from django.db import connections

from chatapp import transcript
from chatapp.models import Branch, Message, Session
from chatapp.selectors import active_branch, path_messages
from chatapp.transcript.writing import NewMessage, TranscriptError
from tests.chatapp.test_transcript import check_all_sums
from tests.factories import SessionFactory, call, result, store, talk, user

LONG = "line of text\n" * 400
SHORT = "line of text\n"


@pytest.fixture
def session(owner) -> Session:
    wires = [*talk(1), user("read it"), call("read", "c1"), result("c1", LONG), *talk(1)]
    return SessionFactory(owner=owner, wires=wires)


def texts(branch: Branch) -> list[str | None]:
    return [row.content for row in path_messages(branch)]


def long_row(session: Session) -> Message:
    return Message.objects.get(session=session, content=LONG, branch=session.branch)


def replay(session: Session, content=SHORT):
    return transcript.replay(session, contents={long_row(session).pk: content})


def test_the_new_branch_forks_before_the_first_changed_message_and_goes_on_with_the_rest(session):
    old = session.branch
    before = texts(old)
    done = replay(session)
    assert done.new.kind == "replay"
    assert done.new.parent == old
    assert done.new.replaces == old
    assert texts(done.new) == [SHORT if text == LONG else text for text in before]
    # Shared up to the call; the result and what follows are stored again.
    assert Message.objects.filter(branch=done.new).count() == 3


def test_the_old_branch_stays_as_it_was(session):
    old = session.branch
    before = list(Message.objects.order_by("position").values())
    replay(session)
    assert list(Message.objects.filter(branch=old).order_by("position").values()) == before
    assert texts(old).count(LONG) == 1


def test_the_session_goes_on_in_the_new_branch(session):
    new = replay(session).new
    assert session.active_branch == new
    store(session, [user("and now?")])
    assert Session.objects.get().active_branch == new
    assert texts(new)[-1] == "and now?"


def test_positions_and_order_stay_and_sums_are_right(session):
    old_places = [row.position for row in path_messages(session.branch)]
    new = replay(session).new
    assert [row.position for row in path_messages(new)] == old_places
    check_all_sums(session)
    assert new.token_total < Branch.objects.get(pk=new.replaces_id).token_total


def test_every_repeated_row_names_the_row_it_repeats(session):
    done = replay(session)
    for row in Message.objects.filter(branch=done.new):
        assert done.ids[Message.objects.get(pk=row.metadata["replay_of"]).pk] == row.pk
    cut = Message.objects.get(branch=done.new, content=SHORT)
    assert cut.metadata["cut_from"] == len(LONG)


def test_a_changed_message_at_the_very_start_gets_a_branch_without_a_parent(owner):
    session = SessionFactory(owner=owner, wires=[result("orphan", LONG), *talk(1)])
    new = replay(session).new
    assert (new.parent, new.fork_position) == (None, None)
    assert len(texts(new)) == 3
    check_all_sums(session)


def test_pins_images_and_times_are_repeated_and_keys_are_not(session):
    row = long_row(session)
    transcript.set_pinned(row, True)
    parts = [
        {"type": "text", "text": "seen"},
        {"type": "image_url", "image_url": {"url": "data:,"}},
    ]
    store(session, [call("look", "c2")])
    transcript.append(
        session.branch,
        [NewMessage(wire=result("c2", "seen") | {"content": parts})],
        client_key="sent once",
    )
    new = replay(session).new
    rows = {row.metadata["replay_of"]: row for row in Message.objects.filter(branch=new)}
    for old_id, copy in rows.items():
        original = Message.objects.get(pk=old_id)
        assert (copy.pinned, copy.parts) == (original.pinned, original.parts)
        assert copy.created_at == original.created_at
        assert copy.client_key is None


def test_placeholders_are_repeated_at_their_places(session):
    at = long_row(session).position
    draft = NewMessage(
        wire={"role": "assistant", "content": "earlier"}, kind="placeholder", summary="s"
    )
    mark = transcript.insert_between(session.branch, after=at, draft=draft)
    new = replay(session).new
    assert Message.objects.get(branch=new, kind="placeholder").position == mark.position


def test_a_replay_can_be_replayed(session):
    first = replay(session).new
    row = Message.objects.get(branch=first, content=SHORT)
    second = transcript.replay(session, contents={row.pk: "line"}).new
    assert second.replaces == first
    assert "line" in texts(second)
    check_all_sums(session)


def test_a_message_of_another_branch_is_refused_and_nothing_is_written(session):
    row = long_row(session)
    fork = transcript.fork(session, at=path_messages(session.branch)[0])
    transcript.activate(session, fork)
    with pytest.raises(TranscriptError):
        transcript.replay(session, contents={row.pk: SHORT})
    assert Branch.objects.count() == 2


def test_what_is_appended_to_the_replaced_branch_goes_on_in_the_new_one(session):
    stale = Session.objects.select_related("active_branch").get(pk=session.pk)
    new = replay(session).new
    (row,) = transcript.append(active_branch(stale), [NewMessage(wire=user("meanwhile"))])
    assert row.branch == new
    assert texts(new)[-1] == "meanwhile"
    check_all_sums(session)


def test_the_old_branch_can_be_gone_on_with_on_purpose(session):
    old = session.branch
    replay(session)
    transcript.activate(session, old)
    (row,) = transcript.append(session.branch, [NewMessage(wire=user("here"))])
    assert row.branch == old


@pytest.mark.django_db(transaction=True)
def test_writers_and_a_replay_at_once_lose_nothing(session):
    stop = threading.Event()
    stored: list[str] = []

    def write() -> None:
        number = 0
        while not stop.is_set() or number < 5:
            mine = Session.objects.select_related("active_branch").get(pk=session.pk)
            transcript.append(mine.branch, [NewMessage(wire=user(f"message {number}"))])
            stored.append(f"message {number}")
            number += 1
        connections.close_all()

    writer = threading.Thread(target=write)
    writer.start()
    new = replay(Session.objects.select_related("active_branch").get(pk=session.pk)).new
    stop.set()
    writer.join()
    assert [text for text in texts(new) if text and text.startswith("message")] == stored
    check_all_sums(session)
