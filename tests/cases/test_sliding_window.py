"""Cases with preset `sliding_window`; test_background.py uses it, too."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.utils import timezone

from chatapp.context.backend import context_backend
from compaction import tasks
from compaction.models import CompactionRun, SessionSummary
from compaction.runs.scheduling import check_branch
from compaction.runs.worker import execute_run
from tests.cases.support import (
    add,
    ask,
    check,
    fresh,
    linked,
    next_request,
    originals,
    state,
    stored,
    summarised_as,
)
from tests.cases.test_background import Beside, post, queued_run, warns

threaded = pytest.mark.django_db(transaction=True)


def work_off(session) -> list[CompactionRun]:
    """Do every run that is due, as a worker would; return them."""
    done = []
    queued = check_branch(fresh(session))
    while queued is not None and queued.status == "queued":
        done.append(execute_run(queued.pk))
        queued = CompactionRun.objects.filter(session=session, status="queued").first()
    return done


# --- a stale usage report ------------------------------------------------------------------------


@pytest.mark.django_db
def test_b13_a_check_right_after_a_compaction_does_not_fire_again(cases, play, owner):
    """The stale report of 3 500 tokens describes a request that is no longer sent."""
    case = cases("B13")
    server = play(case.script, CONTEXT_WINDOW=case.settings["context_window"])
    case.window(tail_keep_size=10)
    session = stored(owner, case.transcript)
    assert [run.status for run in work_off(session)] == ["succeeded"]
    assert len(linked(SessionSummary.objects.get())) == 20
    assert check_branch(fresh(session)) is None
    assert context_backend.preview(fresh(session)).facts["reported_tokens"] is None
    ask(session, case.next_user)
    assert check_branch(fresh(session)) is None
    check(case, server, session)


@pytest.mark.django_db
def test_b13_ahead_of_need_nothing_is_summarised_twice_either(cases, play, owner):
    case = cases("B13")
    server = play(case.script, CONTEXT_WINDOW=case.settings["context_window"])
    case.window(
        tail_keep_size=10, compression_window_size=0, compression_hard_limit=0, context_size=0,
        prepare_ratio=0.7,
    )  # fmt: skip
    session = stored(owner, case.transcript)
    assert [(run.reason, run.status) for run in work_off(session)] == [("ahead", "succeeded")]
    assert check_branch(fresh(session)) is None
    ask(session, case.next_user)
    assert check_branch(fresh(session)) is None
    check(case, server, session)


# --- messages kept by one round are summarised by the next ---------------------------------------


@pytest.mark.django_db
def test_b34_what_round_one_kept_is_summarised_in_round_two(cases, play, owner):
    case = cases("B34")
    server = play(case.script, CONTEXT_WINDOW=case.settings["context_window"])
    case.window(compression_window_size=10)
    entry = next(m for m in case.transcript if m.get("meta", {}).get("kind") == "compaction")
    at = case.transcript.index(entry)
    assert entry["meta"]["covers"] == list(range(10))
    session = stored(owner, case.transcript[:10])
    summarised_as(server, session, entry["content"], keep_last_n=0)
    assert len(linked(SessionSummary.objects.get())) == 10
    add(session, [*case.transcript[10:at], *case.transcript[at + 1 :]])

    assert [run.status for run in work_off(session)] == ["succeeded"]
    ask(session, case.next_user)
    check(case, server, session)
    _, second = SessionSummary.objects.order_by("covers_through")
    big = next(row for row in originals(session) if row.content.startswith("MK-3450"))
    assert linked(second)[0] == big
    assert big.summary_links.filter(summary__status="active").count() == 1
    assert not any("big paste" in str(m["content"]) for m in next_request(server).messages)
    assert "MK-3451" in second.summary_text


# --- a message that arrives during a compaction --------------------------------------------------


@threaded
def test_b42_a_message_that_arrives_while_a_window_is_summarised_is_answered(
    cases, play, api, owner
):
    case = cases("B42")
    server = play(case.script)
    case.window(tail_keep_size=2)
    session = stored(owner, case.transcript)
    run = check_branch(fresh(session))
    assert run.status == "queued"
    words = next(step["post_user"] for step in case.raw["steps"] if "post_user" in step)
    with server.holding("summary"):
        worker = Beside(execute_run, run.pk)
        server.wait_for("summary")
        # The document of the case asks for it: posting returns within a second.
        started = time.thread_time()
        post(api, session, [{"role": "user", "content": words}])
        assert time.thread_time() - started < 1
        assert state(session).recheck_requested is True
    assert worker.result().status == "succeeded"
    assert state(session).recheck_requested is False
    ask(session, None)
    check(case, server, session)
    summary = SessionSummary.objects.get()
    assert linked(summary) == originals(session)[:18]
    assert next_request(server).messages[-1] == {"role": "user", "content": words}


@threaded
def test_b42_a_turn_sees_the_old_state_whole_while_a_window_is_summarised(cases, play, owner):
    case = cases("B42")
    server = play(case.script)
    # At the hard limit and beyond, but nothing falls out: the turn does not wait.
    case.window(tail_keep_size=2)
    session = stored(owner, case.transcript)
    with server.holding("summary"):
        worker = Beside(execute_run, check_branch(fresh(session)).pk)
        server.wait_for("summary")
        ask(session, "MK-4298 meanwhile")
        request = next_request(server).messages
        assert len(request) == 21
        assert not SessionSummary.objects.exists()
    assert worker.result().status == "succeeded"
    ask(session, "MK-4297 afterwards")
    request = next_request(server)
    assert case.markers | {"MK-4298", "MK-4297"} <= case.lib.markers(request.messages)
    assert sum("SUMMARY" in str(m["content"]) for m in request.messages) == 1


# --- a queue that delivers twice, early, or loses a failure --------------------------------------


@threaded
@pytest.mark.parametrize("gap", [0.5, 0.0])
def test_b45_two_deliveries_of_a_windows_run_make_one_call(cases, play, owner, gap):
    case = cases("B45")
    server = play(case.script)
    case.window()
    session = stored(owner, case.transcript)
    run = check_branch(fresh(session))
    first = Beside(tasks.run_compaction, str(run.pk))
    time.sleep(gap)
    second = Beside(tasks.run_compaction, str(run.pk))
    assert {first.result(), second.result()} <= {"succeeded", "running"}
    assert tasks.run_compaction(str(run.pk)) == "succeeded"
    check(case, server, session, warns=warns)
    assert len(server.of("summary")) == 1


@pytest.mark.django_db
def test_b45_a_run_that_has_to_wait_is_not_begun_by_an_early_delivery(cases, play, owner):
    case = cases("B45")
    server = play(case.script)
    case.window()
    session = stored(owner, case.transcript)
    run = queued_run(session)
    later = timezone.now() + timedelta(seconds=60)
    CompactionRun.objects.filter(pk=run.pk).update(waits_until=later)
    assert tasks.run_compaction(str(run.pk)) == "queued"
    assert server.calls == []
    CompactionRun.objects.filter(pk=run.pk).update(waits_until=timezone.now())
    assert tasks.run_compaction(str(run.pk)) == "succeeded"
