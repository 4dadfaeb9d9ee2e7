"""One test a fault: made with a raw UPDATE, found, left alone, repaired, and gone."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.apps import apps
from django.db.models import F
from django.utils import timezone

from chatapp import transcript
from chatapp.context.backend import context_backend
from chatapp.models import Branch, Message, Session
from chatapp.selectors import path_messages, rebuild_sums
from chatapp.transcript.writing import NewMessage
from compaction.branches.leases import Lease
from compaction.branches.snapshot import snapshot_of
from compaction.doctor.examine import examine, repair_findings
from compaction.doctor.findings import Finding
from compaction.models import CompactionRun, CompactionState, SessionSummary, SessionSummaryMessage
from compaction.runs.lifecycle import RunRequest, claim, request_run
from tests.compaction.screened import screened  # noqa: F401
from tests.compaction.support import NEVER, compact, say, sent, state, texts
from tests.factories import SessionFactory, profile, store, talk
from tests.facts import code
from tests.made_once import made_once

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def codes(session: Session) -> list[str]:
    """What is found, notes included, each code once."""
    return list(dict.fromkeys(finding.code for finding in examine(session.pk)))


def everything() -> dict[str, list[dict]]:
    """All rows of both apps."""
    models = [*apps.get_app_config("chatapp").get_models()]
    models += apps.get_app_config("compaction").get_models()
    return {model.__name__: list(model.objects.order_by("pk").values()) for model in models}


def countable() -> dict:
    """What every message says; no repair may change it."""
    columns = ("pk", "position", "role", "content", "parts", "tool_calls", "summary")
    return {row["pk"]: row for row in Message.objects.values(*columns)}


def fixed(session: Session, *, recount: bool = False) -> list[str]:
    """Repair, and return the codes of what was repaired; nothing may be left after it."""
    before = countable()
    outcomes = repair_findings(session.pk, examine(session.pk, recount=recount), recount=recount)
    assert countable() == before
    assert [one for one in outcomes if one.is_left] == []
    assert [one for one in examine(session.pk, recount=recount) if one.is_error] == []
    return [one.finding.code for one in outcomes if one.done]


def found(session: Session) -> list[str]:
    """What is found, after which everything is as before."""
    before = everything()
    result = codes(session)
    assert everything() == before
    return result


@pytest.fixture
@made_once
def session(owner, model_server, queued) -> Session:
    """Two summaries over a root of 34 messages, and a fork behind them; all well."""
    profile(**NEVER, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(8, marker=1))
    compact(session)
    store(session, talk(6, marker=20))
    compact(session)
    store(session, talk(3, marker=40))
    fork = transcript.fork(session, at=path_messages(session.branch)[29])
    transcript.append(fork, [NewMessage(wire=wire) for wire in talk(2, marker=60)])
    assert codes(session) == []
    return session


@pytest.fixture
def fork(session) -> Branch:
    return Branch.objects.get(session=session, kind="fork")


def message(session: Session, number: int) -> Message:
    return path_messages(session.branch)[number]


def summaries() -> list[SessionSummary]:
    return list(SessionSummary.objects.order_by("covers_through"))


def change(row, **columns) -> None:
    """Change a row behind everybody's back."""
    assert type(row).objects.filter(pk=row.pk).update(**columns) == 1


# --- places and sums ------------------------------------------------------------------------------


def test_sums_of_a_fork(session, fork):
    change(fork, message_count=F("message_count") + 1, token_total=F("token_total") + 5)
    row = Message.objects.filter(branch=fork).order_by("position")[1]
    change(row, tokens_through=1)
    assert found(session) == ["sums_off"]
    assert fixed(session) == ["sums_off"]
    fork.refresh_from_db()
    count, total, through = rebuild_sums(fork)
    assert (fork.message_count, fork.token_total) == (count, total) == (34, total)
    assert dict(path_messages(fork).values_list("pk", "tokens_through")) == {
        pk: through[pk] for pk in path_messages(fork).values_list("pk", flat=True)
    }


def test_sums_of_a_root_and_of_what_is_forked_off_it(session):
    Message.objects.update(tokens_through=F("tokens_through") + 1000)
    Branch.objects.update(token_total=F("token_total") + 1000)
    assert found(session) == ["sums_off"]
    assert fixed(session) == ["sums_off", "sums_off"]
    assert message(session, 0).tokens_through == message(session, 0).tokens


def test_the_running_sum_of_a_placeholder_before_the_fork(session, fork):
    change(CompactionState.objects.get(pk=session.branch.pk), cursor=0)
    SessionSummary.objects.update(status="restored")
    CompactionState.objects.update(cursor=0, covered_messages=0, covered_tokens=0, covered_chars=0)
    transcript.activate(session, fork)
    compact(session, keep_last_n=20)
    mark = Message.objects.get(branch=fork, kind="placeholder")
    assert mark.position < fork.fork_position
    right = mark.tokens_through
    change(mark, tokens_through=right + 7)
    assert found(session) == ["sums_off"]
    assert fixed(session) == ["sums_off"]
    mark.refresh_from_db()
    assert mark.tokens_through == right


def test_sums_of_characters_of_a_fork_its_rows_and_its_mark(session, fork):
    right = {row.pk: row.chars_through for row in path_messages(fork)}
    total = fork.char_total
    change(fork, char_total=F("char_total") - 3)
    assert found(session) == ["sums_off"]
    assert fixed(session) == ["sums_off"]
    change(Message.objects.filter(branch=fork).order_by("position")[1], chars_through=1)
    assert found(session) == ["sums_off"]
    assert fixed(session) == ["sums_off"]
    fork.refresh_from_db()
    assert (fork.char_total, dict(path_messages(fork).values_list("pk", "chars_through"))) == (
        total, right,
    )  # fmt: skip


def test_characters_before_a_cursor(session):
    right = CompactionState.objects.get(pk=session.branch.pk).covered_chars
    assert right > 0
    CompactionState.objects.update(covered_chars=F("covered_chars") + 1)
    assert found(session) == ["covered_sums_off"]
    assert fixed(session) == ["covered_sums_off"]
    assert CompactionState.objects.get(pk=session.branch.pk).covered_chars == right


def test_characters_that_no_text_has(session):
    row = message(session, 30)
    change(row, chars=row.chars + 7)
    for branch in Branch.objects.all():
        transcript.repair_sums(branch)
    assert found(session) == []
    assert [one.code for one in examine(session.pk, recount=True)] == ["tokens_off"]
    fixed(session, recount=True)
    assert Message.objects.get(pk=row.pk).chars == row.chars


def test_a_size_in_lists_that_was_counted_without_frames(session):
    """As of sessions that had no answer since frames are counted."""
    right = context_backend.preview(session).account.used
    Session.objects.update(request_tokens=right + 1_000)
    assert [one.code for one in examine(session.pk, recount=True)] == []
    Session.objects.update(request_tokens=right + 2_000)
    assert found(session) == []
    (note,) = examine(session.pk, recount=True)
    assert (note.code, note.is_error) == ("listed_size_off", False)
    assert f"show {right + 2_000:,} tokens" in note.text
    assert f"takes {right:,}" in note.text
    assert fixed(session, recount=True) == ["listed_size_off"]
    assert Session.objects.get(pk=session.pk).request_tokens == right


def test_a_size_in_lists_that_is_right_because_of_what_is_left_out(session, model_server):
    """A limit leaves out the older messages, as each answer's request did."""
    profile(**NEVER, history_limit=6)
    store(session, talk(60, marker=70))
    say(session, "And now?")
    as_answered = Session.objects.get(pk=session.pk).request_tokens
    assert as_answered == context_backend.preview(session).account.used
    assert as_answered < snapshot_of(session).counted_tokens - 2_000
    assert examine(session.pk, recount=True) == []
    Session.objects.update(request_tokens=as_answered + 2_000)
    assert fixed(session, recount=True) == ["listed_size_off"]
    assert Session.objects.get(pk=session.pk).request_tokens == as_answered


def test_a_size_in_lists_of_a_model_whose_window_is_not_known(session, use_models, model_server):
    use_models(model_server.models(CONTEXT_WINDOW=0))
    right = context_backend.preview(session).account.used
    Session.objects.update(request_tokens=right + 1)
    assert examine(session.pk, recount=True) == []
    Session.objects.update(request_tokens=2 * right)
    assert fixed(session, recount=True) == ["listed_size_off"]


def test_a_session_on_no_branch_is_counted_again_and_repaired(session):
    Session.objects.update(active_branch=None)
    assert [one.code for one in examine(session.pk, recount=True)] == codes(session) != []
    assert "listed_size_off" not in fixed(session, recount=True)
    assert Session.objects.get(pk=session.pk).active_branch is not None


def test_a_row_that_is_gone_is_noticed_by_the_count(session):
    message(session, 33).delete()
    assert found(session) == ["sums_off"]
    assert fixed(session) == ["sums_off"]
    assert Branch.objects.get(pk=session.branch.pk).message_count == 33


def test_tokens_that_are_counted_otherwise_now(session):
    rows = [message(session, 2), message(session, 30)]
    right = [row.tokens for row in rows]
    for row in rows:
        change(row, tokens=row.tokens + 100)
    for branch in Branch.objects.all():
        transcript.repair_sums(branch)
    CompactionState.objects.update(covered_tokens=F("covered_tokens") + 100)
    assert found(session) == []
    before = everything()
    assert [one.code for one in examine(session.pk, recount=True)] == ["tokens_off"]
    assert everything() == before
    done = fixed(session, recount=True)
    assert done[0] == "tokens_off"
    assert set(done) == {"tokens_off", "sums_off", "covered_sums_off"}
    assert [Message.objects.get(pk=row.pk).tokens for row in rows] == right


@pytest.mark.parametrize("columns", [{"position": 5}, {"position": -1}])
def test_a_message_before_its_forks_beginning_is_nothing_for_a_program(session, fork, columns):
    change(Message.objects.filter(branch=fork).order_by("position")[0], **columns)
    (finding,) = [one for one in examine(session.pk) if one.code == "place_before_fork"]
    assert finding.is_error
    assert finding.repair is None
    (outcome,) = [one for one in repair_findings(session.pk, [finding]) if one.finding == finding]
    assert outcome.is_left


def test_a_message_of_another_session(session, owner):
    other = SessionFactory(owner=owner)
    change(message(session, 31), session=other)
    assert found(session) == ["message_of_other_session"]


@pytest.mark.parametrize("columns", [{"fork_position": F("fork_position") + 5}, {"parent": None}])
def test_a_fork_that_starts_nowhere(session, fork, columns):
    change(fork, **columns)
    assert found(session)[0] == "fork_misplaced"


# --- the active branch ----------------------------------------------------------------------------


def test_without_an_active_branch_the_root_is_activated(session, fork):
    root = session.branch
    change(session, active_branch=None)
    assert found(session) == ["no_active_branch"]
    assert fixed(session) == ["no_active_branch"]
    assert Session.objects.get().active_branch == root


def test_a_root_that_was_replayed_is_not_activated_but_its_newest_replay(session):
    for text in ("shorter", "short"):
        contents = {message(session, 31).pk: text}
        new = transcript.replay(session, contents=contents).new
    change(session, active_branch=None)
    assert fixed(session) == ["no_active_branch"]
    assert Session.objects.get().active_branch == new


def test_a_branch_of_another_session_is_none_of_its_own(session, owner):
    root = session.branch
    change(session, active_branch=SessionFactory(owner=owner).branch)
    assert found(session) == ["no_active_branch"]
    fixed(session)
    assert Session.objects.get(pk=session.pk).active_branch == root


def test_a_session_without_any_branch_gets_an_empty_root(owner):
    session = SessionFactory(owner=owner)
    Branch.objects.all().delete()
    assert found(session) == ["no_active_branch"]
    assert fixed(session) == ["no_active_branch"]
    store(Session.objects.get(), talk(1))
    assert Branch.objects.get().message_count == 2


# --- cursors --------------------------------------------------------------------------------------


def test_a_cursor_behind_the_last_message_goes_back_to_the_summaries(session):
    right = state(session).cursor
    change(state(session), cursor=10**15)
    assert found(session) == ["cursor_outside"]
    assert fixed(session) == ["cursor_outside"]
    assert state(session).cursor == right == summaries()[-1].covers_through


def test_a_cursor_between_two_messages(session):
    right = state(session).cursor
    change(state(session), cursor=right + 7)
    assert found(session) == ["cursor_outside"]
    fixed(session)
    assert state(session).cursor == right


def test_a_cursor_that_passed_messages_nobody_has_read(session):
    before = sent(session)
    right = state(session)
    change(right, cursor=message(session, 32).position)
    assert found(session) == ["messages_hidden"]
    assert fixed(session)[0] == "messages_hidden"
    assert state(session).cursor == right.cursor
    assert state(session).covered_messages == right.covered_messages
    assert sent(session) == before


def test_a_cursor_before_the_newest_summary_uses_it_again(session):
    before, right = sent(session), state(session).cursor
    first = summaries()[0].covers_through
    covered = path_messages(session.branch, through=first)
    change(
        state(session),
        cursor=first,
        covered_messages=covered.count(),
        covered_tokens=covered.last().tokens_through,
        covered_chars=covered.last().chars_through,
    )
    assert found(session) == ["cursor_behind"]
    assert fixed(session) == ["cursor_behind"]
    assert state(session).cursor == right
    assert sent(session) == before


def test_a_cursor_inside_a_summary_hides_what_that_summary_has_read(session):
    # The summary that reaches farther is not sent, so links to it do not count.
    change(state(session), cursor=message(session, 20).position)
    assert "messages_hidden" in found(session)
    fixed(session)
    assert state(session).cursor == summaries()[-1].covers_through


def test_a_summary_missing_from_the_chain_takes_those_behind_it_back(session):
    first, second = summaries()
    change(first, status="restored")
    assert found(session) == ["messages_hidden"]
    assert fixed(session) == ["messages_hidden"]
    second.refresh_from_db()
    assert second.status == "restored"
    assert state(session).cursor == 0
    assert code(1) in "".join(texts(sent(session), "user"))


def test_a_message_that_came_in_late_and_lost_its_pin_is_pinned_again(session):
    late = transcript.insert_between(
        session.branch,
        after=message(session, 3).position,
        draft=NewMessage(wire={"role": "user", "content": "the forgotten question"}),
    )
    assert codes(session) == []
    transcript.set_pinned(late, False)
    assert "the forgotten question" not in texts(sent(session))
    assert found(session) == ["messages_hidden"]
    assert fixed(session) == ["messages_hidden"]
    assert "the forgotten question" in texts(sent(session))
    assert {row.status for row in summaries()} == {"active"}


def test_sums_up_to_the_cursor(session):
    right = state(session)
    change(right, covered_messages=1)
    assert found(session) == ["covered_sums_off"]
    assert fixed(session) == ["covered_sums_off"]
    assert state(session).covered_messages == right.covered_messages == 26


# --- summaries ------------------------------------------------------------------------------------


def test_a_summary_without_links_hides_nothing_any_more(session):
    first, second = summaries()
    second.links.all().delete()
    assert found(session)[0] == "links_missing"
    assert "links_missing" in fixed(session)
    second.refresh_from_db()
    assert second.status == "restored"
    assert state(session).cursor == first.covers_through
    assert code(20) in "".join(texts(sent(session), "user"))


def test_a_summary_that_lost_one_of_its_links(session):
    summaries()[1].links.first().delete()
    assert found(session)[0] == "links_missing"
    fixed(session)
    assert [row.status for row in summaries()] == ["active", "restored"]


def test_a_summary_that_is_linked_to_other_messages_than_it_covers(session):
    link = summaries()[1].links.order_by("message__position").first()
    change(link, message=message(session, 33))
    assert found(session)[0] == "links_elsewhere"
    fixed(session)
    assert [row.status for row in summaries()] == ["active", "restored"]


def test_a_summary_that_is_linked_to_messages_of_another_line(session, fork):
    link = summaries()[1].links.order_by("message__position")[3]
    stray = Message.objects.filter(branch=fork).first()
    change(stray, position=link.message.position + 1)
    change(link, message=stray)
    assert "links_elsewhere" in found(session)


def test_of_two_summaries_the_one_whose_messages_the_other_has_read_is_superseded(session):
    first, second = summaries()
    rows = first.links.values_list("message", flat=True)
    SessionSummaryMessage.objects.bulk_create(
        [SessionSummaryMessage(summary=second, message_id=pk) for pk in rows]
    )
    change(second, covers_from=first.covers_from, message_count=26)
    assert found(session) == ["summaries_overlap"]
    assert fixed(session) == ["summaries_overlap"]
    assert [row.status for row in summaries()] == ["superseded", "active"]
    assert state(session).cursor == second.covers_through


def test_of_two_summaries_that_share_some_messages_the_later_is_taken_back(session):
    first, second = summaries()
    last = first.links.order_by("-message__position")[0].message
    SessionSummaryMessage.objects.create(summary=second, message=last)
    change(second, covers_from=last.position, message_count=13)
    assert "summaries_overlap" in found(session)
    assert "summaries_overlap" in fixed(session)
    assert [row.status for row in summaries()] == ["active", "restored"]
    assert state(session).cursor == first.covers_through


# --- placeholders: notes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["dc1e5674-b134-4364-9b42-5fab811850a9", "no id at all", 17, {"a": 1}]
)
def test_a_placeholder_that_names_an_unknown_summary_is_a_note(session, name):
    row = Message.objects.filter(kind="placeholder").first()
    change(row, metadata=row.metadata | {"summary_id": name})
    assert found(session) == ["placeholder_alone"]
    assert fixed(session) == []


# --- leases and runs ------------------------------------------------------------------------------


def test_a_lease_that_ran_out(session):
    change(state(session), lease_owner=uuid.uuid4(), lease_expires_at=timezone.now() - HOUR)
    assert found(session) == ["lease_expired"]
    assert fixed(session) == ["lease_expired"]
    assert state(session).lease_owner is None


def test_a_lease_without_an_end_would_block_the_branch_for_ever(session):
    change(state(session), lease_owner=uuid.uuid4(), lease_expires_at=None)
    assert found(session) == ["lease_expired"]
    assert fixed(session) == ["lease_expired"]
    Lease.acquire_or_steal(session.branch.pk, uuid.uuid4())


def test_a_lease_that_holds_is_no_finding_and_stays(session):
    lease = Lease.acquire_or_steal(session.branch.pk, uuid.uuid4())
    assert found(session) == []
    assert fixed(session) == []
    assert state(session).lease_owner == lease.owner


def test_a_turns_lease_that_ran_out(session):
    change(session, turn_owner=uuid.uuid4(), turn_expires_at=timezone.now() - HOUR)
    assert found(session) == ["turn_lease_expired"]
    assert fixed(session) == ["turn_lease_expired"]
    assert Session.objects.get(pk=session.pk).turn_owner is None


def test_a_turns_lease_that_holds_stays(session):
    owner = uuid.uuid4()
    change(session, turn_owner=owner, turn_expires_at=timezone.now() + HOUR)
    assert found(session) == []
    fixed(session)
    assert Session.objects.get(pk=session.pk).turn_owner == owner


def running(session: Session) -> CompactionRun:
    run = request_run(
        RunRequest(
            session=session,
            branch=session.branch,
            trigger="manual",
            reason="manual",
            profile=snapshot_of(session).profile_row,
            background=True,
        )
    )
    worker = uuid.uuid4()
    claimed = claim(run.pk, worker)
    Lease.acquire_or_steal(session.branch.pk, worker)
    return claimed


def test_a_run_whose_worker_died_is_started_again_as_the_sweep_does(session):
    run = running(session)
    change(run, started_at=timezone.now() - HOUR)
    change(state(session), lease_expires_at=timezone.now() - HOUR)
    assert found(session) == ["run_stuck", "lease_expired"]
    assert fixed(session) == ["run_stuck", "lease_expired"]
    run.refresh_from_db()
    assert (run.status, run.error_code) == ("failed", "interrupted")
    assert CompactionRun.objects.get(status="queued").restarts == 1


@pytest.mark.parametrize("columns", [{"worker": None}, {"started_at": None}])
def test_a_run_that_works_without_a_worker_or_a_beginning_is_ended(session, columns):
    run = running(session)
    Lease(branch_id=session.branch.pk, owner=run.worker).release()
    change(run, **columns)
    assert found(session) == ["run_stuck"]
    assert fixed(session) == ["run_stuck"]
    run.refresh_from_db()
    assert (run.status, run.error_code) == ("failed", "interrupted")


def test_a_run_that_works_is_a_note_and_nothing_of_it_is_touched(session):
    run = running(session)
    before = everything()
    assert found(session) == ["run_working"]
    assert fixed(session) == []
    assert everything() == before
    assert CompactionRun.objects.get(pk=run.pk).status == "running"


# --- beside live workers --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "columns"),
    [("covered_sums_off", {"covered_messages": 1}), ("cursor_outside", {"cursor": 10**15})],
)
def test_a_branch_that_is_worked_on_is_left_alone_and_said_so(session, code, columns):
    running(session)
    change(state(session), **columns)
    before = everything()
    outcomes = repair_findings(session.pk, examine(session.pk))
    assert everything() == before
    (outcome,) = [one for one in outcomes if one.finding.code == code]
    assert outcome.is_left
    assert outcome.problem.startswith("Another run is compacting this branch")


def test_sums_of_a_branch_that_is_worked_on_are_left_alone(session):
    running(session)
    change(session.branch, message_count=99)
    (outcome,) = [
        one for one in repair_findings(session.pk, examine(session.pk)) if one.finding.is_error
    ]
    assert outcome.is_left
    assert Branch.objects.get(pk=session.branch.pk).message_count == 99


def test_what_shows_only_in_the_first_look_is_no_finding(session, monkeypatch):
    # As when a message is stored between the reading of two tables.
    looks = []

    def torn(line):
        looks.append(line.branch.pk)
        if len(looks) == 1:
            yield Finding(code="sums_off", text="Read too early.", session=session.pk)

    monkeypatch.setattr("compaction.doctor.examine.check_sums", torn)
    assert examine(session.pk) == []
    assert len(looks) == 2 * Branch.objects.count()


def test_one_repair_that_cannot_be_made_keeps_no_other_from_being_made(session, owner):
    other = SessionFactory(owner=owner)
    change(message(session, 31), session=other)
    change(session.branch, message_count=99)
    outcomes = {one.finding.code: one for one in repair_findings(session.pk, examine(session.pk))}
    assert outcomes["sums_off"].done
    assert outcomes["message_of_other_session"].is_left


def test_a_session_that_was_deleted_meanwhile_has_no_findings():
    assert examine(uuid.uuid4(), recount=True) == []
    assert repair_findings(uuid.uuid4(), []) == []
