"""Making summaries again."""

from __future__ import annotations

import pytest

from chatapp.models import Message
from compaction.branches.snapshot import snapshot_of
from compaction.errors import CompactionError
from compaction.models import SessionSummary
from compaction.runs import lifecycle
from compaction.runs.redo_estimates import estimate_redos
from compaction.runs.resummarize import resummarize, summaries_to_redo
from compaction.runs.worker import execute_run
from compaction.summaries.restore import restore_summary
from tests.compaction.support import NEVER, compact, sent, state, texts
from tests.factories import SessionFactory, profile, store, talk
from tests.facts import CODE_PATTERN, code
from tests.made_once import made_once

pytestmark = pytest.mark.django_db
VERSION_2 = [{"when": {}, "reply": {"echo_markers": CODE_PATTERN, "prefix": "V2 "}}]


@pytest.fixture
@made_once
def session(owner, model_server, queued):
    """Two active summaries, of code(1)… and of code(6), code(20)…"""
    profile(**NEVER, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    compact(session)
    store(session, talk(4, marker=20))
    compact(session)
    return session


@pytest.fixture
def two(session) -> list[SessionSummary]:
    return list(SessionSummary.objects.order_by("covers_through"))


def test_a_new_version_covers_the_same_messages(two, model_server):
    model_server.script = VERSION_2
    run = resummarize(two[1])
    assert (run.status, run.error) == ("succeeded", "")
    new = SessionSummary.objects.get(run=run)
    assert new.supersedes == two[1]
    assert (new.covers_from, new.covers_through) == (two[1].covers_from, two[1].covers_through)
    sources = [set(s.links.values_list("message", flat=True)) for s in (new, two[1])]
    assert sources[0] == sources[1]


def test_the_old_version_stays_readable_and_is_not_sent(session, two, model_server):
    model_server.script = VERSION_2
    resummarize(two[1])
    two[1].refresh_from_db()
    assert two[1].status == "superseded"
    assert two[1].summary_text.startswith("SUMMARY ")
    assert two[1].links.exists()
    # It says what the one before it said, and is sent alone.
    (only,) = texts(sent(session), "system")
    assert f"V2 {code(1)}" in only


def test_the_cursor_stays(session, two):
    before = state(session).cursor
    resummarize(two[0])
    assert state(session).cursor == before


def test_no_message_is_changed(session, two):
    before = list(Message.objects.filter(kind="message").order_by("pk").values())
    resummarize(two[0])
    assert list(Message.objects.filter(kind="message").order_by("pk").values()) == before


def test_it_continues_the_newest_version_of_the_summary_before(two, model_server):
    model_server.script = VERSION_2
    first = SessionSummary.objects.get(run=resummarize(two[0]))
    second = SessionSummary.objects.get(run=resummarize(two[1]))
    assert second.previous == first
    assert f"V2 {code(1)}" in model_server.of("summary")[-1].text
    assert f"SUMMARY {code(1)}" not in model_server.of("summary")[-1].text


def test_the_first_summary_continues_nothing(two, model_server):
    resummarize(two[0])
    assert "previous-summary" not in model_server.of("summary")[-1].text
    assert SessionSummary.objects.latest("created_at").previous is None


def test_a_failure_keeps_the_old_version(two, model_server):
    model_server.script = [{"when": {}, "reply": {"text": ""}}]
    assert resummarize(two[1]).status == "failed"
    two[1].refresh_from_db()
    assert two[1].status == "active"


def test_only_an_active_summary_can_be_made_again(two):
    resummarize(two[1])
    two[1].refresh_from_db()
    with pytest.raises(CompactionError, match="superseded"):
        resummarize(two[1])


def test_a_queued_one_whose_summary_was_replaced_meanwhile_is_skipped(two, model_server):
    waiting = resummarize(two[1], background=True)
    resummarize(two[1])
    calls = len(model_server.calls)
    run = execute_run(waiting.pk)
    assert (run.status, run.error_code) == ("skipped", "not_active")
    assert len(model_server.calls) == calls


def test_two_queued_ones_of_one_branch_are_both_done(two):
    waiting = [resummarize(row, background=True) for row in two]
    assert [execute_run(run.pk).status for run in waiting] == ["succeeded", "succeeded"]


def test_the_summaries_of_a_session_are_redone_oldest_first(session, two):
    assert summaries_to_redo(session) == two


def test_what_was_made_again_is_not_made_a_third_time(session, two):
    resummarize(two[0])
    assert summaries_to_redo(session) == [two[1]]
    resummarize(two[1])
    assert summaries_to_redo(session) == []


def test_force_makes_everything_again(session, two):
    resummarize(two[0])
    assert len(summaries_to_redo(session, force=True)) == 2


def test_a_new_profile_version_is_a_reason(session, two):
    for row in two:
        resummarize(row)
    profile(**NEVER, keep_last_n=2, target_summary_tokens=300)
    assert len(summaries_to_redo(session)) == 2


def test_another_profile_can_be_used(two, model_server):
    other = profile("short", **NEVER, target_summary_tokens=99)
    run = resummarize(two[0], profile=other)
    assert run.profile == other
    assert "about 99 tokens" in model_server.of("summary")[-1].text


def test_the_estimate_calls_nobody_and_writes_nothing(session, two, model_server):
    calls = len(model_server.calls)
    (estimate,) = estimate_redos([two[1]], snapshot_of(session))
    assert (estimate.messages, estimate.calls) == (two[1].message_count, 1)
    assert estimate.tokens == sum(link.message.tokens for link in two[1].links.all())
    assert len(model_server.calls) == calls
    assert SessionSummary.objects.count() == 2


def test_a_new_version_can_be_restored(session, two):
    new = SessionSummary.objects.get(run=resummarize(two[1]))
    restore_summary(new)
    assert state(session).cursor == two[0].covers_through


def test_many_versions_of_one_summary_find_room_for_their_placeholders(session, two):
    for _ in range(24):
        newest = SessionSummary.objects.get(status="active", covers_from=two[1].covers_from)
        before = SessionSummary.objects.get(pk=newest.pk)
        run = lifecycle.request_run(lifecycle.RunRequest(
            session=session, branch=session.branch, trigger="resummarize", reason="resummarize",
            profile=snapshot_of(session).profile_row, background=False, replaces=before,
        ))  # fmt: skip
        assert execute_run(run.pk).status == "succeeded"
        two[1].refresh_from_db()
    assert texts(sent(session), "user")[-1].startswith(code(23))
    assert SessionSummary.objects.filter(status="active").count() == 2
