"""A text that a person wrote: a version with an author, which no program replaces unasked."""

from __future__ import annotations

import io
import uuid

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chatapp import transcript
from chatapp.audit import AuditEntry
from chatapp.erasure import erase_user
from chatapp.formatting import short_id
from chatapp.models import Message
from compaction.branches.leases import Lease
from compaction.branches.snapshot import snapshot_of
from compaction.doctor.examine import examine
from compaction.errors import BranchBusyError, CompactionError, UnfitTextError
from compaction.models import (
    CompactionRun,
    SessionSummary,
    SessionSummaryMessage,
    SummaryLine,
    SummaryQuality,
    SummaryUnits,
)
from compaction.runs import queue
from compaction.runs.redo import Redo
from compaction.runs.resummarize import resummarize, summaries_to_redo
from compaction.runs.worker import compact_branch
from compaction.summaries.activating import activate_version
from compaction.summaries.editing import edit_summary
from compaction.summaries.restore import restore_summary
from compaction.summaries.transfer import SummariesPart
from compaction.tasks import measure_own_text
from tests.compaction.support import NEVER, compact, sent, state, texts
from tests.factories import SessionFactory, UserFactory, profile, store, talk
from tests.facts import code

pytestmark = pytest.mark.django_db
OWN = "The tent has three poles, not two."


@pytest.fixture
def session(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2, target_summary_tokens=300)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


@pytest.fixture
def one(session) -> SessionSummary:
    compact(session, instructions="Keep the dates.")
    return SessionSummary.objects.get()


@pytest.fixture
def person(db):
    return UserFactory(username="editor")


@pytest.fixture
def own(one, person) -> SessionSummary:
    return edit_summary(one, text=OWN, author=person).summary


def test_the_next_request_holds_the_persons_text(session, one, own):
    held = texts(sent(session), "system")
    assert any(OWN in text for text in held)
    assert not any(one.summary_text in text for text in held)


def test_it_is_a_version_over_the_same_messages_with_its_author(session, one, own, person):
    one.refresh_from_db()
    assert (one.status, own.status) == ("superseded", "active")
    assert (own.author, own.supersedes, own.is_edited, own.reason) == (person, one, True, "edited")
    assert (one.author, one.is_edited) == (None, False)
    assert (own.covers_from, own.covers_through) == (one.covers_from, one.covers_through)
    linked = [set(row.links.values_list("message", flat=True)) for row in (one, own)]
    assert linked[0] == linked[1]
    assert len(linked[0]) == 10
    assert Message.objects.filter(
        kind="placeholder", metadata__summary_id=str(own.pk), summary=OWN
    ).exists()
    assert state(session).cursor == own.covers_through
    # The frame is that of the version before: what it costs as it is sent, like every ratio.
    frame = round(one.compression_ratio * one.approx_tokens) - one.summary_tokens
    assert frame > 0
    assert own.summary_tokens == snapshot_of(session).model.counter.count(OWN)
    assert own.compression_ratio == (frame + own.summary_tokens) / one.approx_tokens
    assert own.tokens_after == one.tokens_after - one.summary_tokens + own.summary_tokens
    assert examine(session.pk) == []


def test_both_versions_can_be_activated_in_turn(session, one, own):
    after = sent(session)
    activate_version(one)
    assert any(one.summary_text in text for text in texts(sent(session), "system"))
    activate_version(own)
    assert sent(session) == after


def test_it_can_be_restored(session, own):
    restore_summary(own)
    assert state(session).cursor == 0


def test_no_model_is_asked_and_no_run_made(session, one, person, model_server):
    calls, runs = len(model_server.calls), CompactionRun.objects.count()
    edit_summary(one, text=OWN, author=person)
    assert (len(model_server.calls), CompactionRun.objects.count()) == (calls, runs)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        (" \n\u200b\t", "empty"),
        ("a\x00b", "cannot be stored"),
        ("a\ud800b", "cannot be stored"),
    ],
)
def test_what_is_no_text_is_refused(one, person, text, words):
    with pytest.raises(UnfitTextError, match=words):
        edit_summary(one, text=text, author=person)
    assert SessionSummary.objects.count() == 1


def test_a_text_may_have_twice_the_tokens_that_were_asked_for(one, person):
    with pytest.raises(UnfitTextError, match=r"at most 600 may be stored, twice the 300 that"):
        edit_summary(one, text="lorem " * 1200, author=person)


def test_who_mends_a_word_of_a_longer_text_need_not_shorten_it(one, person):
    SessionSummary.objects.update(summary_text="lorem " * 1200)
    one.refresh_from_db()
    assert edit_summary(one, text="lorem " * 1190 + "end", author=person).summary.is_edited
    newest = SessionSummary.objects.get(status="active")
    with pytest.raises(UnfitTextError, match="as many as the version that it replaces"):
        edit_summary(newest, text="lorem " * 1300, author=person)


def test_a_text_that_is_not_smaller_says_so(one, person):
    longer = edit_summary(one, text=one.summary_text + " And more.", author=person)
    assert "more than the version that it replaces" in longer.notes[0]
    SessionSummary.objects.update(approx_tokens=5)
    newest = SessionSummary.objects.get(status="active")
    larger = edit_summary(newest, text="Six words are more than five.", author=person)
    assert "the next request is not smaller with it" in larger.notes[0]


def test_a_smaller_text_needs_no_words(one, person):
    assert edit_summary(one, text="Short.", author=person).notes == ()


def test_line_ends_of_forms_are_line_feeds(one, person):
    assert edit_summary(one, text="a\r\nb\r\n", author=person).summary.summary_text == "a\nb"


def test_what_is_as_it_was_is_refused(one, person):
    with pytest.raises(UnfitTextError, match="Nothing was changed"):
        edit_summary(one, text=f"{one.summary_text}\r\n", author=person)


def test_instructions_stay_and_can_be_edited(one, person):
    first = edit_summary(one, text=OWN, author=person).summary
    assert first.instructions == "Keep the dates."
    second = edit_summary(first, text=OWN, instructions=" Keep names. ", author=person).summary
    assert second.instructions == "Keep names."
    third = edit_summary(second, text=OWN, instructions="", author=person).summary
    assert third.instructions == ""


def test_secrets_do_not_enter_it(owner, model_server, queued, person):
    profile(**NEVER, keep_last_n=2, redact_secrets=True)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    compact(session)
    key = "sk-" + "proj4f9Kq2Lm8Zx7Vb1Nc3Dw6Ty5Rr0Pa"
    edited = edit_summary(SessionSummary.objects.get(), text=f"The key is {key}.", author=person)
    assert key not in edited.summary.summary_text
    assert "Secrets" in edited.notes[0]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"status": "superseded"}, "Activate it first, or edit the one that counts"),
        ({"status": "restored"}, "restored"),
        ({"status": "draft"}, "draft"),
        ({"kind": "branch"}, "note tells it"),
        ({"format_version": 9}, "later version of this program"),
    ],
)
def test_what_cannot_be_edited_is_refused(one, person, columns, words):
    SessionSummary.objects.update(**columns)
    one.refresh_from_db()
    with pytest.raises(CompactionError, match=words):
        edit_summary(one, text=OWN, author=person)


def test_of_two_people_the_second_is_told_that_the_version_is_another(one, person):
    stale = SessionSummary.objects.get()
    edit_summary(one, text=OWN, author=person)
    with pytest.raises(CompactionError, match="superseded"):
        edit_summary(stale, text="Another text.", author=person)
    assert SessionSummary.objects.filter(status="active").count() == 1


def test_a_busy_branch_is_left_alone(session, one, person):
    Lease.acquire_or_steal(session.branch.pk, uuid.uuid4())
    with pytest.raises(BranchBusyError, match="A run is working on this branch"):
        edit_summary(one, text=OWN, author=person)
    assert SessionSummary.objects.count() == 1


def test_the_copy_in_a_replayed_branch_is_named(session, own, person):
    first = Message.objects.filter(kind="message").order_by("position").first()
    transcript.replay(session, contents={first.pk: "Shorter."})
    session.refresh_from_db()
    copy = SessionSummary.objects.get(branch=session.branch, status="active")
    assert (copy.author, copy.is_edited, copy.summary_text) == (person, True, OWN)
    with pytest.raises(CompactionError, match=str(copy.pk)):
        edit_summary(own, text="Else.", author=person)
    with pytest.raises(CompactionError, match=str(copy.pk)):
        restore_summary(own)


# --- what programs do with it ---------------------------------------------------------------------


def test_an_automatic_update_continues_it(session, own, model_server):
    store(session, talk(4, marker=20))
    run = compact_branch(session=session, trigger="overflow_retry", reason="overflow_retry")
    assert run.status == "succeeded"
    assert OWN in model_server.of("summary")[-1].text
    newest = SessionSummary.objects.get(run=run)
    own.refresh_from_db()
    assert (newest.previous, own.status) == (own, "active")


def test_chosen_sentences_continue_the_persons_text_alone(owner, model_server, queued, person):
    profile(**NEVER, keep_last_n=2, summariser="extractive")
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    assert compact(session).status == "succeeded"
    old = SessionSummary.objects.get()
    assert code(1) in old.summary_text
    edit_summary(old, text="We decided that the tent has 3 poles.", author=person)
    store(session, talk(4, marker=20))
    assert compact(session).status == "succeeded"
    newest = SessionSummary.objects.order_by("covers_through", "created_at").last()
    assert "3 poles" in newest.summary_text
    assert code(1) not in newest.summary_text


def test_its_instructions_go_on_with_automatic_updates(session, own, model_server):
    for marker in (20, 30):
        store(session, talk(4, marker=marker))
        run = compact_branch(session=session, trigger="overflow_retry", reason="overflow_retry")
        assert "Keep the dates." in model_server.of("summary")[-1].text
        # The run's row says what somebody asked of it, the summary what it was made by.
        run.refresh_from_db()
        assert run.instructions == ""
        assert SessionSummary.objects.get(run=run).instructions == "Keep the dates."


def test_what_nobody_gave_instructions_for_hands_none_on(session, one, person, model_server):
    edit_summary(one, text=OWN, author=person, instructions="")
    store(session, talk(4, marker=20))
    run = compact_branch(session=session, trigger="overflow_retry", reason="overflow_retry")
    assert SessionSummary.objects.get(run=run).instructions == ""
    assert "Keep the dates." not in model_server.of("summary")[-1].text


def test_instructions_written_with_a_text_go_with_their_author_wherever_they_were_carried(
    session, one, person
):
    own = edit_summary(one, text=OWN, author=person, instructions="Keep my dates.").summary
    assert own.instructions_by == person
    store(session, talk(4, marker=20))
    run = compact_branch(session=session, trigger="overflow_retry", reason="overflow_retry")
    assert SessionSummary.objects.get(run=run).instructions == "Keep my dates."
    erase_user(person)
    assert not SessionSummary.objects.filter(instructions__contains="my dates").exists()


def test_who_edits_the_text_alone_leaves_the_instructions_to_whom_they_are(session, person):
    operator = UserFactory()
    compact(session, instructions="Keep the dates.", requested_by=operator)
    own = edit_summary(SessionSummary.objects.get(), text=OWN, author=person).summary
    assert (own.author, own.instructions_by) == (person, operator)


def test_an_edit_is_an_act_in_the_audit_log(session, one, person):
    own = edit_summary(one, text=OWN, author=person).summary
    act = AuditEntry.objects.get(session=session)
    assert (act.action, act.actor, act.branch) == ("summary_edited", person, one.branch)
    assert short_id(own.pk) in act.text
    assert OWN not in act.text


def test_a_re_summarise_carries_instructions_on_unless_it_has_its_own(one, model_server):
    first = SessionSummary.objects.get(run=resummarize(one))
    assert first.instructions == "Keep the dates."
    assert "Keep the dates." in model_server.of("summary")[-1].text
    second = SessionSummary.objects.get(run=resummarize(first, instructions="Keep names."))
    assert second.instructions == "Keep names."
    assert SessionSummary.objects.get(run=resummarize(second, instructions="")).instructions == ""


def test_no_program_replaces_it_unless_that_is_asked_for(session, own):
    with pytest.raises(CompactionError, match="A person wrote this text"):
        resummarize(own)
    with pytest.raises(CompactionError, match="A person wrote this text"):
        resummarize(own, background=True)
    run = resummarize(own, replace_edited=True)
    assert run.status == "succeeded"
    own.refresh_from_db()
    assert (own.status, own.summary_text) == ("superseded", OWN)
    assert activate_version(own).is_sent


def test_many_at_once_leave_it_alone_and_say_so(session, own):
    assert summaries_to_redo(session, force=True) == []
    result = Redo(force=True).take(session.pk)
    assert (result.status, result.edited, result.summaries) == ("nothing_to_do", 1, 0)
    asked = Redo(force=True, replace_edited=True).take(session.pk)
    assert (asked.status, asked.edited, asked.summaries) == ("succeeded", 0, 1)


def test_the_command_says_what_it_left_alone(session, own):
    out = io.StringIO()
    call_command("resummarize", "--session", str(session.pk), "--force", stdout=out)
    assert "1 text that people wrote is left alone (--replace-edited" in out.getvalue()
    own.refresh_from_db()
    assert own.status == "active"
    out = io.StringIO()
    call_command(
        "resummarize", "--session", str(session.pk), "--force", "--replace-edited", stdout=out
    )
    assert "left alone" not in out.getvalue()
    own.refresh_from_db()
    assert own.status == "superseded"


def test_an_export_takes_it_along_as_a_persons_text(owner, session, own):
    ids = list(
        Message.objects.filter(kind="message").order_by("position").values_list("pk", flat=True)
    )
    written = SummariesPart().written(session.branch, ids)
    other = SessionFactory(owner=owner, wires=talk(6, marker=1))
    theirs = Message.objects.filter(branch=other.branch).order_by("position")
    assert not SummariesPart().take_back(
        other.branch, list(theirs.values_list("pk", flat=True)), written
    )
    taken = SessionSummary.objects.get(session=other)
    assert (taken.is_edited, taken.author, taken.summary_text) == (True, None, OWN)


def test_where_its_author_is_gone_it_stays_a_persons_text(own, person):
    erase_user(person)
    own.refresh_from_db()
    assert (own.author, own.is_edited, own.instructions) == (None, True, "")


def test_the_statements_do_not_grow_with_the_conversation(session, one, person):
    counts = []
    for text in ("First.", "Second."):
        newest = SessionSummary.objects.get(status="active")
        with CaptureQueriesContext(connection) as queries:
            edit_summary(newest, text=text, author=person)
        counts.append(len(queries))
        store(session, talk(40, marker=60))
    assert counts[0] == counts[1]


# --- measured as any other text -------------------------------------------------------------------


def test_a_worker_measures_what_a_person_wrote_once(
    api, one, queued, django_capture_on_commit_callbacks
):
    address, text = f"/api/v1/summaries/{one.pk}/edit/", f"{OWN} It began with MK-0001."
    with django_capture_on_commit_callbacks(execute=True):
        answer = api.post(address, {"text": text}, format="json")
    own = SessionSummary.objects.get(pk=answer.json()["summary"]["id"])
    assert not SummaryQuality.objects.filter(summary=own).exists()
    task, key = queued[-1]
    assert (task, key) == (queue.MEASURE_TASK, str(own.pk))

    assert measure_own_text(key) == "measured"
    quality = SummaryQuality.objects.get(summary=own)
    assert 0 <= quality.score < SummaryQuality.objects.get(summary=one).score
    assert quality.lost
    lines = SummaryLine.objects.filter(summary=own)
    assert lines.exists()
    # The next pass still reads the text alone.
    assert SummaryUnits.objects.get(summary=own).units == []
    assert measure_own_text(key) == "nothing to measure"
    assert SummaryLine.objects.filter(summary=own).count() == lines.count()


def test_what_cannot_be_measured_stays_unmeasured(own, use_models, model_server):
    key = str(own.pk)
    use_models({"other": model_server.models()["default"]})
    assert measure_own_text(key) == "not measured"
    SessionSummaryMessage.objects.filter(summary=own).delete()
    assert measure_own_text(key) == "not measured"
    own.delete()
    assert measure_own_text(key) == "nothing to measure"
