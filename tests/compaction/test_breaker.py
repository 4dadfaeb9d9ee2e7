"""The breaker of a model: it opens, lets one probe through, closes.

Time is moved by moving the row's times back, all by the same span, so that nothing is awaited.
"""

from __future__ import annotations

import threading
import uuid
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from compaction.errors import CompactionError
from compaction.limits import circuit_breaker
from compaction.limits.circuit_breaker import (
    admit,
    close,
    give_back,
    record_failure,
    record_success,
)
from compaction.models import ModelBreaker

pytestmark = pytest.mark.django_db

MODEL = "gpt"
ME, OTHER, THIRD = (uuid.UUID(int=number) for number in (1, 2, 3))


@pytest.fixture(autouse=True)
def three_failures_open_it_for_a_minute(settings):
    settings.COMPACTION = settings.COMPACTION | {
        "BREAKER_FAILURES": 3, "BREAKER_SECONDS": 60, "LEASE_SECONDS": 300,
    }  # fmt: skip


def fail(times: int = 1, *, worker: uuid.UUID = ME, text: str = "503", model: str = MODEL) -> None:
    for _ in range(times):
        record_failure(model, worker, text)


def row(model: str = MODEL) -> ModelBreaker:
    return ModelBreaker.objects.get(pk=model)


def pass_time(seconds: float) -> None:
    """Make everything stored so much older."""
    stored = row()
    for name in ("opened_at", "retry_at", "changed_at"):
        if (moment := getattr(stored, name)) is not None:
            setattr(stored, name, moment - timedelta(seconds=seconds))
    stored.save()


def seconds_left() -> int:
    """Return in how many seconds the breaker tries again, to the nearest five."""
    left = (row().retry_at - timezone.now()).total_seconds()
    return 5 * round(left / 5)


def open_breaker() -> None:
    fail(3)


def begin_probe(worker: uuid.UUID = ME) -> None:
    """Let the breaker's time pass, whatever it is, and claim the probe."""
    pass_time(max(0, (row().retry_at - timezone.now()).total_seconds()) + 1)
    assert admit(MODEL, worker) is None


# --- closed ---------------------------------------------------------------------------------------


def test_a_model_that_never_failed_is_called_and_gets_no_row():
    assert admit(MODEL, ME) is None
    record_success(MODEL, ME)
    assert not ModelBreaker.objects.exists()


def test_fewer_failures_than_the_limit_change_nothing():
    fail(2)
    assert admit(MODEL, ME) is None
    assert (row().state, row().failures) == ("closed", 2)


def test_a_success_begins_the_count_again():
    fail(2)
    record_success(MODEL, OTHER)
    fail(2)
    assert (row().state, row().failures) == ("closed", 2)


def test_admitting_costs_one_query(django_assert_num_queries):
    fail(2)
    with django_assert_num_queries(1):
        admit(MODEL, ME)


@pytest.mark.parametrize("failed_before", [False, True])
def test_a_success_writes_nothing_where_nothing_had_failed(
    django_assert_num_queries, failed_before
):
    if failed_before:
        fail()
        record_success(MODEL, ME)
    with django_assert_num_queries(1) as queries:
        record_success(MODEL, ME)
    assert queries.captured_queries[0]["sql"].startswith("SELECT")
    assert ModelBreaker.objects.filter(failures=0).exists() == failed_before


def test_a_success_without_failures_does_not_touch_the_row():
    fail()
    record_success(MODEL, ME)
    before = row().changed_at
    record_success(MODEL, ME)
    assert row().changed_at == before


# --- open -----------------------------------------------------------------------------------------


def test_as_many_failures_as_the_limit_open_it():
    fail(3)
    assert (row().state, row().failures) == ("open", 3)
    assert seconds_left() == 60


def test_failures_of_many_workers_count_together():
    for worker in (ME, OTHER, THIRD):
        fail(worker=worker)
    assert row().state == "open"


def test_an_open_breaker_refuses_until_its_time_has_come():
    open_breaker()
    refusal = admit(MODEL, OTHER)
    assert refusal.until == row().retry_at
    assert refusal.sentence == (
        "The model gpt is left alone: its last 3 calls of summarising failed. "
        f"From {row().retry_at:%-d %b %Y, %H:%M:%S} UTC on, one call tries whether it answers "
        "again. Look at its last error under Model breakers in the admin, or close its breaker "
        "there."
    )


def test_the_breaker_of_one_model_holds_no_other():
    open_breaker()
    assert admit("another", ME) is None


def test_late_failures_count_and_do_not_prolong_it():
    open_breaker()
    before = row()
    fail(5, worker=OTHER)
    after = row()
    assert after.failures == 8
    assert (after.opened_at, after.retry_at, after.changed_at) == (
        before.opened_at, before.retry_at, before.changed_at,
    )  # fmt: skip


def test_a_late_success_closes_it():
    open_breaker()
    record_success(MODEL, OTHER)
    assert admit(MODEL, ME) is None


# --- the probe ------------------------------------------------------------------------------------


def test_when_its_time_has_come_one_worker_is_let_through():
    open_breaker()
    pass_time(61)
    assert admit(MODEL, ME) is None
    assert (row().state, row().probe) == ("probing", ME)
    refusal = admit(MODEL, OTHER)
    assert refusal.until == row().retry_at
    assert "One call is trying whether it answers again" in refusal.sentence


def test_the_probes_worker_may_ask_again():
    open_breaker()
    begin_probe()
    before = row().retry_at
    assert admit(MODEL, ME) is None
    assert row().retry_at == before


def test_a_claimed_probe_has_as_long_as_a_lease():
    open_breaker()
    begin_probe()
    assert seconds_left() == 300


def test_a_probe_whose_worker_died_is_tried_by_another():
    open_breaker()
    begin_probe(ME)
    pass_time(299)
    assert admit(MODEL, OTHER) is not None
    pass_time(2)
    assert admit(MODEL, OTHER) is None
    assert row().probe == OTHER


def test_the_probes_worker_claims_it_anew_when_its_time_is_over():
    open_breaker()
    begin_probe(ME)
    pass_time(301)
    assert admit(MODEL, ME) is None
    assert seconds_left() == 300
    assert admit(MODEL, OTHER) is not None


def test_a_successful_probe_closes_it():
    open_breaker()
    begin_probe()
    record_success(MODEL, ME)
    closed = row()
    assert (closed.failures, closed.opened_at, closed.retry_at, closed.probe) == (0,) + 3 * (None,)
    assert admit(MODEL, OTHER) is None


def test_a_failed_probe_opens_it_again():
    open_breaker()
    begin_probe()
    fail(text="still down")
    again = row()
    assert (again.state, again.failures, again.last_error) == ("open", 4, "still down")
    assert admit(MODEL, OTHER) is not None


def test_it_tells_since_when_the_model_failed_however_often_it_was_tried():
    open_breaker()
    begin_probe()
    before = row().opened_at
    fail()
    assert row().opened_at == before


def test_every_failed_probe_doubles_the_wait_up_to_an_hour():
    open_breaker()
    waits = []
    for _ in range(8):
        begin_probe()
        fail()
        waits.append(seconds_left())
    assert waits == [120, 240, 480, 960, 1920, 3600, 3600, 3600]


def test_time_in_which_nobody_asked_does_not_lengthen_the_wait():
    open_breaker()
    pass_time(50_000)
    begin_probe()
    pass_time(200)
    fail()
    assert seconds_left() == 120


def test_the_probe_of_another_worker_after_a_dead_one_doubles_the_wait_once():
    open_breaker()
    begin_probe(ME)
    begin_probe(OTHER)
    fail(worker=OTHER)
    assert seconds_left() == 120


def test_the_failure_of_a_probe_that_was_given_up_only_counts():
    open_breaker()
    begin_probe(ME)
    begin_probe(OTHER)
    fail(worker=ME)
    assert (row().probe, row().failures) == (OTHER, 4)


def test_a_breaker_that_closed_waits_as_short_as_at_first():
    open_breaker()
    begin_probe()
    fail()
    begin_probe()
    record_success(MODEL, ME)
    fail(3)
    assert seconds_left() == 60


def test_a_changed_lease_does_not_shorten_the_wait_below_the_first(settings):
    open_breaker()
    begin_probe()
    settings.COMPACTION = settings.COMPACTION | {"LEASE_SECONDS": 9000}
    fail()
    assert seconds_left() == 120


# --- given back -----------------------------------------------------------------------------------


def test_a_probe_given_back_is_free_at_once():
    open_breaker()
    begin_probe(ME)
    give_back(MODEL, ME)
    assert (row().state, row().probe) == ("open", None)
    assert admit(MODEL, OTHER) is None
    assert row().probe == OTHER


def test_a_probe_given_back_says_nothing_about_the_model():
    open_breaker()
    begin_probe(ME)
    fail()
    begin_probe(ME)
    give_back(MODEL, ME)
    begin_probe(OTHER)
    fail(worker=OTHER)
    assert row().failures == 5
    assert seconds_left() == 240


def test_only_the_probes_worker_gives_it_back():
    open_breaker()
    begin_probe(ME)
    give_back(MODEL, OTHER)
    assert row().probe == ME


@pytest.mark.parametrize("failures", [0, 1])
def test_giving_back_what_one_does_not_have_changes_nothing(failures):
    fail(failures)
    give_back(MODEL, ME)
    assert ModelBreaker.objects.filter(failures=1).count() == failures


# --- closed by hand -------------------------------------------------------------------------------


def test_an_operator_closes_it():
    open_breaker()
    close(MODEL)
    assert (row().state, row().failures) == ("closed", 0)
    assert admit(MODEL, ME) is None


@pytest.mark.parametrize("failures", [0, 2])
def test_a_closed_breaker_is_not_closed_again(failures):
    fail(failures)
    with pytest.raises(CompactionError, match="The breaker of gpt is closed already"):
        close(MODEL)
    assert ModelBreaker.objects.filter(failures=2).exists() == bool(failures)


def test_a_probe_that_fails_after_it_was_closed_by_hand_counts_as_the_first():
    open_breaker()
    begin_probe()
    close(MODEL)
    fail()
    assert (row().state, row().failures) == ("closed", 1)


# --- what is logged -------------------------------------------------------------------------------


def test_every_decision_is_logged_once_and_nothing_else(caplog):
    caplog.set_level("INFO", logger="compaction.events")
    fail(5)
    admit(MODEL, OTHER)
    begin_probe()
    fail()
    begin_probe()
    record_success(MODEL, ME)
    record_success(MODEL, ME)
    open_breaker()
    close(MODEL)
    assert [record.getMessage() for record in caplog.records] == [
        "breaker_opened reason=failures model=gpt seconds=60.0",
        f"breaker_probes model=gpt worker={ME}",
        "breaker_opened reason=probe_failed model=gpt seconds=120.0",
        f"breaker_probes model=gpt worker={ME}",
        f"breaker_closed model=gpt worker={ME}",
        "breaker_opened reason=failures model=gpt seconds=60.0",
        "breaker_closed reason=manual model=gpt",
    ]


# --- what is stored of an error -------------------------------------------------------------------


def test_an_error_is_cut_and_free_of_what_no_database_takes():
    fail(text="a\x00b\ud800" + "x" * 10_000)
    stored = row().last_error
    assert len(stored) == 500
    assert stored.startswith("a\ufffdb\ufffdxxx")


def test_a_model_with_a_name_longer_than_the_column_has_a_breaker_too():
    name = "m" * 150
    fail(3, model=name)
    assert admit(name, ME) is not None


# --- many processes -------------------------------------------------------------------------------


def in_threads(*calls) -> list:
    """Do all calls at once, each on a connection of its own; return what they returned."""
    together, ends = threading.Barrier(len(calls)), []

    def do(call) -> None:
        try:
            together.wait()
            ends.append(call())
        finally:
            connection.close()

    threads = [threading.Thread(target=do, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends


@pytest.mark.django_db(transaction=True)
def test_two_workers_that_ask_at_once_do_not_both_have_the_probe():
    for _ in range(5):
        ModelBreaker.objects.all().delete()
        open_breaker()
        pass_time(61)
        ends = in_threads(lambda: admit(MODEL, ME), lambda: admit(MODEL, OTHER))
        assert len(ends) == 2
        assert ends.count(None) == 1


def test_who_read_the_row_before_another_claimed_it_does_not_claim_it_too(monkeypatch):
    open_breaker()
    pass_time(61)
    stale = row()
    assert admit(MODEL, OTHER) is None
    real = circuit_breaker._row
    reads = [lambda model: stale, real]
    monkeypatch.setattr(circuit_breaker, "_row", lambda model: reads.pop(0)(model))
    assert admit(MODEL, ME).until == row().retry_at
    assert row().probe == OTHER


def test_who_read_the_row_before_it_was_closed_is_let_through(monkeypatch):
    open_breaker()
    pass_time(61)
    stale = row()
    record_success(MODEL, OTHER)
    real = circuit_breaker._row
    reads = [lambda model: stale, real]
    monkeypatch.setattr(circuit_breaker, "_row", lambda model: reads.pop(0)(model))
    assert admit(MODEL, ME) is None
    assert row().state == "closed"


@pytest.fixture
def loses_the_probe(monkeypatch):
    """Another worker takes the probe over between what the test's worker reads and writes."""
    real = circuit_breaker._wait_of

    def interrupted(stored: ModelBreaker) -> timedelta:
        monkeypatch.setattr(circuit_breaker, "_wait_of", real)
        begin_probe(OTHER)
        return real(stored)

    open_breaker()
    begin_probe(ME)
    monkeypatch.setattr(circuit_breaker, "_wait_of", interrupted)


@pytest.mark.usefixtures("loses_the_probe")
def test_who_lost_the_probe_meanwhile_does_not_give_it_back():
    give_back(MODEL, ME)
    assert (row().state, row().probe) == ("probing", OTHER)


@pytest.mark.usefixtures("loses_the_probe")
def test_who_lost_the_probe_meanwhile_does_not_open_the_breaker_again():
    fail(worker=ME)
    assert (row().state, row().probe, row().failures) == ("probing", OTHER, 4)
    assert seconds_left() == 300


def test_a_first_failure_counts_when_another_worker_has_just_stored_the_row(monkeypatch):
    fail(worker=OTHER)
    real, calls = circuit_breaker._rows, []

    def not_stored_yet(model: str):
        calls.append(model)
        # It looks for a probe, then counts; only after that the other's row is there.
        return real(model).none() if len(calls) <= 2 else real(model)

    monkeypatch.setattr(circuit_breaker, "_rows", not_stored_yet)
    fail(worker=ME)
    assert row().failures == 2


@pytest.mark.django_db(transaction=True)
def test_first_failures_at_once_are_all_counted():
    assert len(in_threads(*[fail] * 4)) == 4
    assert (row().state, row().failures) == ("open", 4)
