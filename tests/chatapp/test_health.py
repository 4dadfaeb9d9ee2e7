"""`/healthz`: the process lives. `/readyz`: what it needs can be reached."""

from __future__ import annotations

import logging
from datetime import timedelta
from types import SimpleNamespace
from uuid import uuid4

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from chatapp import checks, extensions
from chatapp.extensions import Extension, ReadinessPart
from chatapp.health import counting_parts, readiness_checks
from chatapp.models import LearnedLimits
from compaction.models import WorkerHeartbeat
from compaction.runs import queue
from tests.fakes.silent_server import SilentServer

SECRET = "postgres://palimpsest:hunter2@db.internal/palimpsest"


def failing() -> ReadinessPart:
    """A part whose look fails with an error that strangers must not read."""
    raise OperationalError(SECRET)


def missing() -> ReadinessPart:
    """A part whose module is not there."""
    from chatapp.nowhere import look

    return look()


def never_asked() -> ReadinessPart:
    """A part that nobody chose."""
    raise AssertionError("a part that does not count was looked at")


@pytest.fixture
def parts(settings):
    """Choose the parts that count; `failing` and `never_asked` can be chosen too."""
    found = {"failing": failing, "missing": missing, "never": never_asked}
    extensions.register(Extension(name="tests", readiness=found))

    def choose(*names: str) -> None:
        settings.READYZ_PARTS = list(names)

    yield choose
    del extensions._registered["tests"]


@pytest.fixture
def beat(db):
    """Store a sign of life of a process, so many seconds ago."""

    def store(seconds: float, kind: str = "queue") -> WorkerHeartbeat:
        at = timezone.now() - timedelta(seconds=seconds)
        return WorkerHeartbeat.objects.create(id=uuid4(), kind=kind, host="h", pid=7, beat_at=at)

    return store


@pytest.fixture
def broker_answers(monkeypatch):
    monkeypatch.setattr("compaction.runs.queue.ping", lambda: None)


def text_of(name: str) -> str:
    return Client().get("/readyz").json()["parts"][name]["text"]


# --- /healthz: without the fixture `db` a query would fail the test ---


def test_healthz_asks_no_database():
    response = Client().get("/healthz")
    assert (response.status_code, response.content) == (200, b"ok\n")
    assert response.headers["Content-Type"].startswith("text/plain")


def test_the_older_address_of_healthz_still_answers():
    assert Client().get("/health/").content == b"ok\n"


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_answers_to_load_balancers_are_not_kept(path, parts):
    parts()
    assert Client().get(path).headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_load_balancers_may_ask_for_the_head_only(path, parts):
    parts()
    response = Client().head(path)
    assert (response.status_code, response.content) == (200, b"")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
@pytest.mark.parametrize("method", ["post", "put", "patch", "delete", "options"])
def test_nothing_else_may_be_done_with_them(path, method, parts):
    parts()
    assert getattr(Client(), method)(path).status_code == 405


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/health/"])
def test_load_balancers_are_not_sent_to_https(path, parts, settings):
    settings.SECURE_SSL_REDIRECT = True
    parts()
    assert Client().get(path).status_code == 200
    assert Client().get("/admin/").status_code == 301


# --- /readyz ---


@pytest.mark.django_db
def test_readyz_writes_and_leaves_nothing(parts):
    """A statement that changes no row is done on a full disk as well."""

    def full(execute, sql, params, many, context):
        if sql.startswith("INSERT"):
            raise OperationalError("database or disk is full")
        return execute(sql, params, many, context)

    parts("database")
    with CaptureQueriesContext(connection) as asked:
        assert Client().get("/readyz").status_code == 200
    assert any(one["sql"].startswith("INSERT") for one in asked)
    assert not LearnedLimits.objects.exists()
    with connection.execute_wrapper(full):
        assert Client().get("/readyz").status_code == 503


def test_readyz_is_ready_when_every_part_is(beat, broker_answers, parts):
    parts("database", "broker", "queue")
    beat(12)
    response = Client().get("/readyz")
    assert response.status_code == 200
    assert response.json()["ready"] is True
    assert list(response.json()["parts"]) == ["database", "broker", "queue"]
    assert all(part["ok"] for part in response.json()["parts"].values())


def test_database_broker_and_queue_can_be_looked_at():
    assert list(readiness_checks()) == ["database", "broker", "queue"]


def test_everything_counts_where_nothing_is_chosen(settings):
    settings.READYZ_PARTS = None
    assert counting_parts() == ["database", "broker", "queue"]


def test_one_part_that_fails_makes_it_unready(beat, parts, db):
    parts("database", "failing")
    response = Client().get("/readyz")
    assert response.status_code == 503
    assert response["Retry-After"] == "5"
    assert response.json()["ready"] is False
    assert response.json()["parts"]["database"]["ok"] is True
    assert response.json()["parts"]["failing"]["ok"] is False


def test_parts_that_do_not_count_are_not_looked_at(parts):
    parts()
    assert Client().get("/readyz").json() == {"ready": True, "parts": {}}


def test_strangers_do_not_read_the_error(parts, caplog):
    parts("failing")
    response = Client().get("/readyz")
    assert "hunter2" not in response.content.decode()
    assert "the server's log says why" in response.json()["parts"]["failing"]["text"]
    assert "hunter2" in caplog.text


@pytest.mark.parametrize("name", ["missing", "nonsense"])
def test_a_part_that_nobody_can_look_at_is_not_ready(parts, name):
    parts(name)
    assert Client().get("/readyz").status_code == 503


@pytest.mark.django_db
def test_a_database_that_does_not_answer_is_said(parts, caplog):
    def refuse(*args) -> None:
        raise OperationalError(SECRET)

    parts("database")
    with connection.execute_wrapper(refuse):
        response = Client().get("/readyz")
    assert response.status_code == 503
    assert response.json()["parts"]["database"]["text"] == (
        "The database does not answer, or stores nothing. Start it, correct DATABASE_URL, or make "
        "it writable; the server's log has the error."
    )
    assert "hunter2" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_a_database_that_can_only_be_read_is_not_ready(parts):
    parts("database")
    assert Client().get("/readyz").status_code == 200
    on, off = (
        ("SET default_transaction_read_only = on", "SET default_transaction_read_only = off")
        if connection.vendor == "postgresql"
        else ("PRAGMA query_only = on", "PRAGMA query_only = off")
    )
    with connection.cursor() as cursor:
        cursor.execute(on)
    try:
        assert Client().get("/readyz").status_code == 503
    finally:
        with connection.cursor() as cursor:
            cursor.execute(off)


def test_a_broker_that_does_not_answer_is_said(parts, monkeypatch, caplog):
    def refuse() -> None:
        raise ConnectionError("redis://:hunter2@cache:6379")

    parts("broker")
    monkeypatch.setattr("compaction.runs.queue.ping", refuse)
    response = Client().get("/readyz")
    assert response.status_code == 503
    assert "The queue's broker does not answer" in response.content.decode()
    assert "hunter2" not in response.content.decode()
    assert "hunter2" in caplog.text


def test_a_broker_in_the_database_answers_with_it(parts, db, monkeypatch):
    monkeypatch.setattr("django_q.conf.Conf.ORM", "default")
    parts("broker")
    assert Client().get("/readyz").json()["parts"]["broker"] == {
        "ok": True,
        "text": "The queue's broker answers.",
    }


def test_without_any_cluster_it_says_to_start_one(parts, db):
    parts("queue")
    assert Client().get("/readyz").status_code == 503
    assert text_of("queue").endswith("Start `manage.py qcluster`.")


@pytest.mark.parametrize(("seconds", "status"), [(0, 200), (170, 200), (181, 503), (86_400, 503)])
def test_a_cluster_lives_for_180_seconds_after_its_last_sign(parts, beat, seconds, status):
    parts("queue")
    beat(seconds)
    assert Client().get("/readyz").status_code == status


def test_a_silent_cluster_is_said_with_its_age_and_what_to_do(parts, beat):
    parts("queue")
    beat(7_200.5)
    assert "is 7,200 seconds old" in text_of("queue")
    assert "`manage.py qcluster`" in text_of("queue")


def test_the_newest_sign_of_life_counts(parts, beat):
    parts("queue")
    beat(900)
    beat(5)
    assert Client().get("/readyz").status_code == 200


@pytest.mark.parametrize("kind", ["web", "command"])
def test_other_processes_are_no_cluster(parts, beat, kind):
    parts("queue")
    beat(1, kind=kind)
    assert Client().get("/readyz").status_code == 503


def test_a_cluster_whose_clock_is_ahead_lives(parts, beat):
    parts("queue")
    beat(-30)
    assert text_of("queue") == "A queue cluster gave a sign of life 0 seconds ago."


# --- the broker is asked with little patience ---


@pytest.fixture
def redis(monkeypatch):
    """Have the queue use Redis; returns its client's package."""
    monkeypatch.setattr("django_q.conf.Conf.ORM", None)
    return pytest.importorskip("redis")


@pytest.mark.parametrize(
    "configured",
    [lambda port: f"redis://127.0.0.1:{port}/0", lambda port: {"host": "127.0.0.1", "port": port}],
    ids=["address", "keywords"],
)
def test_a_broker_that_is_silent_is_asked_once_and_given_up_on(redis, monkeypatch, configured):
    with SilentServer() as server:
        monkeypatch.setattr("django_q.conf.Conf.REDIS", configured(server.port))
        monkeypatch.setattr(queue, "PING_SECONDS", 0.05)
        with pytest.raises(redis.TimeoutError):
            queue.ping()
        assert server.calls() == 1


def test_a_broker_is_waited_for_one_second_to_connect_and_one_to_answer(redis, monkeypatch):
    client = redis.from_url("redis://127.0.0.1:1/0")
    broker = SimpleNamespace(connection=client)
    monkeypatch.setattr("django_q.brokers.get_broker", lambda: broker)
    with pytest.raises(redis.ConnectionError):
        queue.ping()
    waits = client.connection_pool.connection_kwargs
    assert (waits["socket_connect_timeout"], waits["socket_timeout"]) == (1, 1)


# --- the check ---


def test_e010_names_that_stand_for_nothing(parts):
    parts("database", "quue")
    (error,) = checks.check_readiness()
    assert error.id == "chatapp.E010"
    assert error.msg.startswith("READYZ_PARTS has 'quue', which is no part")
    assert "database, broker, queue" in error.msg


def test_e010_is_silent_about_the_defaults():
    assert checks.check_readiness() == []


def test_an_unready_part_is_logged_once_for_each_question(parts, caplog):
    parts("failing")
    with caplog.at_level(logging.ERROR, logger="chatapp.health"):
        Client().get("/readyz")
    assert [record.name for record in caplog.records if record.name == "chatapp.health"] == [
        "chatapp.health"
    ]
