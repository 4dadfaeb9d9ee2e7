"""System checks: one test an id."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.core.checks import run_checks
from django.db import connection

from chatapp.conf import ServerSettings
from compaction import checks
from compaction.models import CompactionProfile
from compaction.profiles import make_default
from tests.compaction.support import say
from tests.factories import SessionFactory, profile


@pytest.fixture
def found(settings):
    """Change settings, then return the compaction checks that speak up, by id."""

    def check(*, queue=None, compaction=None, chatapp=None):
        settings.Q_CLUSTER = settings.Q_CLUSTER | (queue or {})
        settings.COMPACTION = settings.COMPACTION | (compaction or {})
        settings.CHATAPP = settings.CHATAPP | (chatapp or {})
        return {m.id: m for m in run_checks() if (m.id or "").startswith("compaction.")}

    return check


def test_the_defaults_are_sound(found):
    assert found() == {}


@pytest.mark.parametrize("timeout", [2.5, None, "600", True])
def test_e001_the_queue_needs_a_whole_number_of_seconds(found, timeout):
    assert "QUEUE_TIMEOUT_SECONDS" in found(queue={"timeout": timeout})["compaction.E001"].hint


def test_e002_a_run_must_end_before_the_queue_kills_it(found):
    assert "compaction.E002" in found(compaction={"RUN_SECONDS": 600})


def test_e003_a_lease_must_outlive_two_late_signs_of_life(found):
    messages = found(compaction={"LEASE_SECONDS": 29, "HEARTBEAT_SECONDS": 10})
    assert "COMPACTION_LEASE_SECONDS" in messages["compaction.E003"].hint
    assert "compaction.E003" not in found(compaction={"LEASE_SECONDS": 30, "HEARTBEAT_SECONDS": 10})


@pytest.mark.parametrize(
    "variables",
    [
        {"SUMMARY_MESSAGE_LIMIT": "42px"},
        {"SUMMARY_BISECT_ENABLED": "maybe"},
        {"SUMMARY_BISECT_MAX_DEPTH": "900"},
        {"SUMMARY_MESSAGE_LIMIT": "5"},
    ],
    ids=["no number", "no boolean", "out of range", "below what is kept"],
)
def test_e004_a_variable_that_cannot_work_is_named(found, variables):
    assert "compaction.E004" in found(compaction={"ENVIRONMENT": variables})


@pytest.mark.django_db
def test_e005_a_stored_profile_that_clashes_with_the_environment_is_named(settings):
    profile("mine", keep_last_n=10)
    assert checks.check_profiles(databases=["default"]) == []
    settings.COMPACTION = settings.COMPACTION | {"ENVIRONMENT": {"SUMMARY_MESSAGE_LIMIT": "8"}}
    (message,) = checks.check_profiles(databases=["default"])
    assert (message.id, "mine" in message.msg) == ("compaction.E005", True)


@pytest.mark.django_db
def test_before_the_first_migration_profiles_are_not_asked_for(monkeypatch):
    monkeypatch.setattr(connection.introspection, "table_names", list)
    monkeypatch.setattr(CompactionProfile, "objects", None)
    assert checks.check_profiles(databases=["default"]) == []


@pytest.mark.parametrize("name", ["LEASE_SECONDS", "RUN_SECONDS", "MAX_RUN_ATTEMPTS"])
def test_e006_a_value_that_stops_all_work_is_named(found, name):
    assert name in found(compaction={name: 0})["compaction.E006"].msg


@pytest.mark.parametrize("name", ["LEASE_SECONDS", "BACKOFF_SECONDS", "BREAKER_SECONDS"])
def test_e006_a_time_that_no_clock_holds_is_named(found, name):
    assert "a value from" in found(compaction={name: 99_999_999_999_999})["compaction.E006"].hint


@pytest.mark.django_db
def test_e007_a_default_profile_that_does_not_exist_is_named_and_costs_no_turn(
    settings, owner, model_server, queued
):
    settings.COMPACTION = settings.COMPACTION | {"DEFAULT_PROFILE": "sliding-window"}
    CompactionProfile.objects.update(is_default=False)
    (message,) = checks.check_default_profile(databases=["default"])
    assert message.id == "compaction.E007"
    assert "sliding_window" in message.hint
    session = SessionFactory(owner=owner)
    assert say(session, "hello").answer.content == "ok"


@pytest.mark.django_db
def test_w003_a_marked_default_that_is_another_one_is_named(settings):
    assert checks.check_default_profile(databases=["default"]) == []
    settings.COMPACTION = settings.COMPACTION | {"DEFAULT_PROFILE": "sliding_window"}
    (message,) = checks.check_default_profile(databases=["default"])
    assert (message.id, "'bisect' is marked" in message.msg) == ("compaction.W003", True)
    make_default("sliding_window")
    assert checks.check_default_profile(databases=["default"]) == []


def test_w001_a_short_retry_would_deliver_twice(found):
    # No task is delivered twice while retry > timeout x (1 + ceil((queue_limit + 1) / workers)).
    cluster = {"workers": 2, "timeout": 10, "queue_limit": 4}
    message = found(
        queue=cluster | {"retry": 40},
        compaction={"RUN_SECONDS": 5, "INLINE_SECONDS": 5},
    )["compaction.W001"]
    assert "40" in message.hint
    assert "compaction.W001" not in found(queue=cluster | {"retry": 41})


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_w001_the_default_is_long_enough_for_any_number_of_workers(found, monkeypatch, workers):
    monkeypatch.setenv("QUEUE_WORKERS", str(workers))
    server = ServerSettings.from_environment()
    cluster = settings.Q_CLUSTER | {
        "workers": server.queue_workers,
        "timeout": server.queue_timeout_seconds,
        "retry": server.queue_retry_seconds,
    }
    assert "compaction.W001" not in found(queue=cluster)


@pytest.mark.parametrize("change", [{"max_attempts": 0}, {"ack_failures": False}])
def test_w002_a_failed_task_must_not_be_repeated_for_ever(found, change):
    assert "compaction.W002" in found(queue=change)


def test_e008_a_plug_in_that_cannot_be_loaded_is_named(found):
    error = found(compaction={"CUTS": {"mine": "no.such.module.cut"}})["compaction.E008"]
    assert (
        "COMPACTION['CUTS']: The cut 'mine' cannot be loaded from 'no.such.module.cut'" in error.msg
    )
    assert "dotted path" in error.hint
