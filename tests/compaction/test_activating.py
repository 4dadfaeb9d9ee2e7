"""A stored version counts again: requests are, byte for byte, what they were while it counted."""

from __future__ import annotations

import json
import uuid

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chatapp import transcript
from chatapp.models import Message
from compaction.branches.leases import Lease
from compaction.branches.snapshot import snapshot_of
from compaction.doctor.examine import examine
from compaction.errors import BranchBusyError, CompactionError, LostRaceError
from compaction.models import CompactionState, SessionSummary
from compaction.profiles import save_profile
from compaction.runs.resummarize import resummarize
from compaction.runs.worker import execute_run
from compaction.summaries import activating
from compaction.summaries.activating import Newer, activate_version
from compaction.summaries.restore import restore_summary
from tests.compaction.support import NEVER, compact, say, sent, state, texts
from tests.factories import SessionFactory, profile, store, talk, user
from tests.facts import CODE_PATTERN, code

pytestmark = pytest.mark.django_db
SECOND = [
    {"when": {"purpose": "summary"}, "reply": {"echo_markers": CODE_PATTERN, "prefix": "V2 "}},
    {"when": {"purpose": "prefix"}, "reply": {"echo_markers": CODE_PATTERN, "prefix": "P2 "}},
    {"when": {"purpose": "merge"}, "reply": {"echo_markers": CODE_PATTERN, "prefix": "M2 "}},
    {"when": {"purpose": "chat"}, "reply": {"text": "ok"}},
]
# No rule fires by itself; by hand, all but the newest few messages are summarised.
PRESETS = {
    "bisect": {"keep_last_n": 2},
    "sliding_window": {"tail_keep_size": 2, "compression_window_size": 30, "context_size": 0},
    "checkpoint": {"keep_recent_tokens": 300, "window_trigger": False},
    "abridged": {"history_tail_size_chars_to_exclude": 900},
    "balanced": {"keep_recent_tokens": 300, "window_trigger": False},
}
RENDERINGS = ("system", "merged_system", "user_tags", "node")


def bytes_of(session) -> bytes:
    """The next request as it would be sent."""
    return json.dumps(sent(session), ensure_ascii=False).encode()


def active(session) -> list[SessionSummary]:
    rows = SessionSummary.objects.filter(session=session, status="active")
    return list(rows.order_by("covers_through"))


def made_again(summary, model_server) -> SessionSummary:
    """Re-summarise with another answer of the summariser; return the new version."""
    model_server.script = SECOND
    run = resummarize(summary)
    assert (run.status, run.error) == ("succeeded", "")
    return SessionSummary.objects.get(run=run)


def is_sound(session) -> None:
    assert [one.code for one in examine(session.pk)] == []


@pytest.fixture
def session(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


@pytest.fixture
def one(session) -> SessionSummary:
    compact(session)
    return SessionSummary.objects.get()


@pytest.mark.parametrize("rendering", RENDERINGS)
@pytest.mark.parametrize("preset", PRESETS)
def test_the_old_version_brings_its_request_back_and_so_does_the_new_one(
    owner, model_server, queued, preset, rendering
):
    parameters = {"prepare_ratio": 0.0, "rendering": rendering} | PRESETS[preset]
    quiet = NEVER if preset == "bisect" else {}
    save_profile(name="test", base=preset, parameters=quiet | parameters, make_default=True)
    session = SessionFactory(
        owner=owner, system_prompt="Be brief.", wires=talk(8, marker=1, words=150)
    )
    assert compact(session).status == "succeeded"
    store(session, talk(6, marker=20, words=150))
    assert compact(session).status == "succeeded"
    # The newest one takes in the one before it, whose other version it never sees.
    for old in active(session):
        before = bytes_of(session)
        new = made_again(old, model_server)
        after = bytes_of(session)
        assert (after == before) is (old != new and not activate_version(old).is_sent)
        assert bytes_of(session) == before
        activate_version(new)
        assert bytes_of(session) == after
        activate_version(old)
        assert bytes_of(session) == before
    is_sound(session)


def test_the_server_receives_what_it_received_before_the_re_summarise(session, one, model_server):
    say(session, "And now?")
    [before] = [call.messages for call in model_server.of("chat")]
    new = made_again(one, model_server)
    say(session, "And with the new one?")
    assert any(f"V2 {code(1)}" in text for text in texts(model_server.of("chat")[-1].messages))
    activate_version(one)
    say(session, "And with the old one?")
    told = model_server.of("chat")[-1].messages
    assert json.dumps(told[: len(before)]) == json.dumps(before)
    activate_version(new)
    assert any(f"V2 {code(1)}" in text for text in texts(sent(session)))


def test_status_links_placeholders_and_times_follow(session, one, model_server):
    new = made_again(one, model_server)
    rows = Message.objects.filter(kind="placeholder").count()
    linked = {row.pk: set(row.links.values_list("message", flat=True)) for row in (one, new)}
    done = activate_version(one)
    assert (done.summary, done.replaced, done.restored, done.kept) == (one, new, [], [])
    assert done.is_sent
    one.refresh_from_db()
    new.refresh_from_db()
    assert (one.status, new.status) == ("active", "superseded")
    assert one.activated_at > one.superseded_at > one.created_at
    assert new.superseded_at > new.activated_at
    assert one.updated_at == one.activated_at
    assert {
        row.pk: set(row.links.values_list("message", flat=True)) for row in (one, new)
    } == linked
    assert Message.objects.filter(kind="placeholder").count() == rows
    is_sound(session)


def test_the_cursor_stays_where_both_versions_end(session, one, model_server):
    before = state(session).cursor
    made_again(one, model_server)
    assert activate_version(one).cursor == before == state(session).cursor


def test_a_newer_summary_that_was_there_before_the_new_version_stays(session, one, model_server):
    store(session, talk(3, marker=20))
    compact(session)
    before, second = bytes_of(session), active(session)[1]
    new = made_again(one, model_server)
    assert activate_version(one).kept == []
    assert bytes_of(session) == before
    assert activate_version(new).replaced == one
    second.refresh_from_db()
    assert second.status == "active"
    is_sound(session)


@pytest.fixture
def built_on_the_new_one(session, one, model_server) -> tuple[SessionSummary, bytes]:
    """A summary that took in the second version of the first, and the request before both."""
    store(session, talk(3, marker=20))
    before = bytes_of(session)
    made_again(one, model_server)
    assert compact(session).status == "succeeded"
    return active(session)[1], before


def test_a_newer_summary_that_took_in_the_other_version_is_asked_about(
    session, one, built_on_the_new_one
):
    second, _ = built_on_the_new_one
    before = bytes_of(session)
    with pytest.raises(CompactionError, match=r"“restore” takes it back.*“keep” leaves it") as said:
        activate_version(one)
    assert str(second.pk)[-8:] in str(said.value)
    assert bytes_of(session) == before
    one.refresh_from_db()
    assert one.status == "superseded"
    assert not state(session).is_consolidating


def test_with_restore_the_request_is_the_one_before_both(session, one, built_on_the_new_one):
    second, before = built_on_the_new_one
    done = activate_version(one, newer=Newer.RESTORE)
    assert (done.restored, done.kept, done.is_sent) == ([second], [], True)
    assert done.cursor == one.covers_through == state(session).cursor
    assert bytes_of(session) == before
    second.refresh_from_db()
    assert (second.status, second.restored_at is None) == ("restored", False)
    is_sound(session)


def test_with_keep_newer_ones_stay_and_the_way_back_asks_nothing(
    session, one, built_on_the_new_one
):
    second, _ = built_on_the_new_one
    before = bytes_of(session)
    done = activate_version(one, newer=Newer.KEEP)
    assert (done.kept, done.restored) == ([second], [])
    assert state(session).cursor == second.covers_through
    activate_version(done.replaced)
    assert bytes_of(session) == before
    is_sound(session)


def test_newer_ones_of_a_fork_are_asked_about_too(session, one, model_server):
    made_again(one, model_server)
    transcript.fork(session, at=Message.objects.filter(kind="message").last())
    session.refresh_from_db()
    store(session, talk(4, marker=30))
    assert compact(session).status == "succeeded"
    with pytest.raises(CompactionError, match="A newer summary"):
        activate_version(one)
    done = activate_version(one, newer=Newer.RESTORE)
    assert len(done.restored) == 1
    assert state(session).cursor == one.covers_through
    is_sound(session)


def test_a_restored_summary_counts_again_where_its_messages_still_follow(session, one):
    before = bytes_of(session)
    restore_summary(one)
    assert bytes_of(session) != before
    done = activate_version(one)
    assert (done.replaced, done.cursor) == (None, one.covers_through)
    assert bytes_of(session) == before
    is_sound(session)


def test_a_restored_chain_counts_again_from_the_oldest_on(session, one):
    store(session, talk(3, marker=20))
    compact(session)
    before, second = bytes_of(session), active(session)[1]
    restore_summary(one, cascade=True)
    with pytest.raises(CompactionError, match="Activate or restore those before it first"):
        activate_version(second)
    activate_version(one)
    activate_version(second)
    assert bytes_of(session) == before
    is_sound(session)


def test_a_message_that_came_in_between_keeps_a_restored_one_from_counting(session, one):
    restore_summary(one)
    place = Message.objects.filter(kind="message").order_by("position")[2]
    draft = transcript.writing.NewMessage(wire=user("In between."))
    transcript.insert_between(session.branch, after=place.position, draft=draft)
    with pytest.raises(CompactionError, match="not made of exactly the messages"):
        activate_version(one)


def test_of_two_summaries_of_other_stretches_the_one_that_counts_is_restored_first(session, one):
    restore_summary(one)
    store(session, talk(3, marker=20))
    compact(session)
    other = active(session)[0]
    with pytest.raises(CompactionError, match=f"Summary {str(other.pk)[-8:]} counts.*Restore that"):
        activate_version(one)
    restore_summary(other)
    assert activate_version(one).summary == one
    is_sound(session)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"status": "draft"}, "a draft"),
        ({"kind": "branch"}, "summary of a branch"),
        ({"format_version": 9}, "later version of this program"),
        ({"message_count": 11}, "Links of this version"),
    ],
)
def test_what_cannot_count_is_refused_with_a_sentence(session, one, model_server, columns, words):
    made_again(one, model_server)
    SessionSummary.objects.filter(pk=one.pk).update(**columns)
    one.refresh_from_db()
    with pytest.raises(CompactionError, match=words):
        activate_version(one)


def test_the_version_that_counts_is_told_to_count(session, one):
    with pytest.raises(CompactionError, match="counts already"):
        activate_version(one)


def test_a_copy_in_a_replayed_branch_is_named(session, one, model_server):
    new = made_again(one, model_server)
    last = Message.objects.filter(kind="message").order_by("position").first()
    transcript.replay(session, contents={last.pk: "Shorter."})
    session.refresh_from_db()
    copy = SessionSummary.objects.get(branch=session.branch, run=new.run)
    with pytest.raises(CompactionError, match=str(copy.pk)):
        activate_version(one)


def test_versions_come_along_with_a_replay_and_can_count_there(session, one, model_server):
    text = one.summary_text
    new = made_again(one, model_server)
    last = Message.objects.filter(kind="message").order_by("position").first()
    transcript.replay(session, contents={last.pk: "Shorter."})
    session.refresh_from_db()
    copies = SessionSummary.objects.filter(branch=session.branch)
    older, newer = copies.get(status="superseded"), copies.get(status="active")
    assert (older.run, newer.run, newer.supersedes) == (one.run, new.run, older)
    assert older.links.count() == one.links.count()
    is_sound(session)
    activate_version(older)
    is_sound(session)
    assert [row.summary_text for row in copies.filter(status="active")] == [text]
    assert text in json.dumps(sent(session), ensure_ascii=False)
    # The branch that was left has its own, as they were.
    one.refresh_from_db()
    new.refresh_from_db()
    assert (one.status, new.status) == ("superseded", "active")


def test_a_busy_branch_is_left_alone_with_a_clear_sentence(session, one, model_server):
    made_again(one, model_server)
    Lease.acquire_or_steal(session.branch.pk, uuid.uuid4())
    with pytest.raises(BranchBusyError, match="A run is working on this branch at the moment"):
        activate_version(one)
    one.refresh_from_db()
    assert one.status == "superseded"


def test_who_lost_the_lease_or_the_race_writes_nothing(session, one, model_server, monkeypatch):
    new = made_again(one, model_server)
    real = activating._in_its_place

    def stolen(summary):
        found = real(summary)
        CompactionState.objects.update(lease_owner=uuid.uuid4())
        return found

    monkeypatch.setattr(activating, "_in_its_place", stolen)
    before = list(SessionSummary.objects.order_by("pk").values())
    with pytest.raises(LostRaceError):
        activate_version(one)
    assert list(SessionSummary.objects.order_by("pk").values()) == before
    assert active(session) == [new]


def test_a_queued_re_summarise_of_what_was_replaced_is_skipped(session, one, model_server):
    new = made_again(one, model_server)
    waiting = resummarize(new, background=True)
    activate_version(one)
    run = execute_run(waiting.pk)
    assert (run.status, run.error_code) == ("skipped", "not_active")
    assert active(session) == [one]


def test_a_draft_that_continues_the_other_version_gives_way(session, one, model_server):
    made_again(one, model_server)
    draft = SessionSummary.objects.create(
        session=session, branch=session.branch, status="draft", summary_text="Ahead.",
        trigger="proactive", reason="ahead", covers_from=1, covers_through=2,
    )  # fmt: skip
    activate_version(one)
    draft.refresh_from_db()
    assert draft.status == "superseded"


def test_rows_from_before_the_times_were_noted_are_told_by_what_superseded_them(
    session, one, built_on_the_new_one
):
    SessionSummary.objects.update(superseded_at=None)
    with pytest.raises(CompactionError, match="“restore”"):
        activate_version(one)


def test_the_statements_do_not_grow_with_the_conversation(session, one, model_server):
    new = made_again(one, model_server)
    counts = []
    for row in (one, new):
        with CaptureQueriesContext(connection) as queries:
            activate_version(SessionSummary.objects.get(pk=row.pk))
        counts.append(len(queries))
        store(session, talk(40, marker=60))
    assert counts[0] == counts[1]
    assert snapshot_of(session).state.cursor == one.covers_through
