"""Threads of a web process share PostgreSQL connections; other processes keep their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

ROOT = Path(__file__).resolve().parent.parent.parent
# What a web process does when it starts, and something that several of its threads do then.
BEGIN = """
import json, os, sys, threading
sys.path.insert(0, os.getcwd())
import chatapp.asgi
from django.db import OperationalError, connection, connections

def asked(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]

def in_threads(work, count=1):
    found = []
    def run():
        try:
            found.append(work())
        finally:
            connection.close()
    threads = [threading.Thread(target=run) for _ in range(count)]
    [one.start() for one in threads]
    [one.join() for one in threads]
    return found

PID = "SELECT pg_backend_pid()"
"""
on_postgresql = pytest.mark.skipif(
    settings.DATABASES["default"]["ENGINE"] != "django.db.backends.postgresql",
    reason="SQLite has no connections to share.",
)


def told(code: str, **variables: str) -> object:
    """Run code in a web process of its own and return what it prints at the end, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code], cwd=ROOT, timeout=120, check=False,
        capture_output=True, text=True,
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "chatapp.settings"} | variables,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


@on_postgresql
def test_threads_one_after_the_other_use_the_same_connections_again():
    code = "print(json.dumps([in_threads(lambda: asked(PID))[0] for _ in range(12)]))"
    # The next thread may come before the connection of the last one is back.
    assert len(set(told(code))) <= 3
    assert len(set(told(code, DATABASE_POOL_SIZE="0"))) == 12


@on_postgresql
def test_a_connection_that_the_server_cut_is_never_handed_on():
    # What is asked to end is cut when its process is gone; that is waited for, 5,000 ms at most.
    code = """
first = in_threads(lambda: asked(PID))[0]
import psycopg
with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as other:
    other.execute("SELECT pg_terminate_backend(%s, 5000)", [first])
print(json.dumps([first, in_threads(lambda: asked(PID))[0], in_threads(lambda: asked("SELECT 1"))]))
"""
    first, then, more = told(code)
    assert then != first
    assert more == [1]


@on_postgresql
def test_a_connection_that_answered_a_moment_ago_is_lent_without_a_round_trip():
    code = """
from tests.bench.proxy import proxy
from chatapp import database
config = connection.settings_dict
real = config["HOST"] or "127.0.0.1", int(config["PORT"] or 5432)
with proxy(*real) as found:
    config["HOST"], config["PORT"] = "127.0.0.1", found.listens_on
    in_threads(lambda: asked(PID))
    def trips():
        before = found.round_trips
        in_threads(lambda: asked(PID))
        return found.round_trips - before
    soon = trips()
    database.ANSWER_HOLDS_SECONDS = 0.0
    print(json.dumps([soon, trips()]))
    connection.close_pool()
"""
    assert told(code, DATABASE_POOL_SIZE="1") == [1, 2]


@on_postgresql
def test_after_a_restart_of_the_server_the_next_request_waits_for_one_connection_alone():
    code = """
import psycopg, time
all_there = threading.Barrier(8)
def held():
    pid = asked(PID)
    all_there.wait()
    return pid
cut = in_threads(held, 8)
with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as other:
    for pid in cut:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
found = in_threads(lambda: asked(PID))
print(json.dumps([len(set(cut)), len(found), found[0] in cut]))
"""
    assert told(code) == [8, 1, False]


@on_postgresql
def test_once_the_server_is_back_nobody_waits_for_it():
    """Each failure to connect had doubled the time until the next one was tried, up to minutes."""
    code = """
import psycopg, time
connect, is_away = psycopg.Connection.connect.__func__, threading.Event()
def connect_or_not(cls, *args, **kwargs):
    if is_away.is_set():
        raise psycopg.OperationalError("refused")
    return connect(cls, *args, **kwargs)
cut = in_threads(lambda: asked(PID))[0]
with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as other:
    psycopg.Connection.connect = classmethod(connect_or_not)
    is_away.set()
    other.execute("SELECT pg_terminate_backend(%s, 5000)", [cut])
def wait():
    began = time.monotonic()
    try:
        asked(PID)
    except OperationalError:
        return "away"
    return time.monotonic() - began
away = in_threads(wait)
is_away.clear()
print(json.dumps([away, *in_threads(wait)]))
"""
    # One alone: another would have been there all the time.
    away, waited = told(code, DATABASE_POOL_SIZE="1")
    assert away == ["away"]
    assert waited < 3


@on_postgresql
def test_there_are_never_more_than_the_setting_says_and_who_waits_too_long_is_told():
    code = """
from chatapp import database
connections.settings["default"]["OPTIONS"]["pool"]["timeout"] = 0.5
started, go_on = threading.Barrier(4), threading.Event()
def hold():
    pid = asked(PID)
    started.wait()
    go_on.wait()
    return pid
holders = []
def held():
    holders.extend(in_threads(hold, 3))
beside = threading.Thread(target=held)
beside.start()
started.wait()
def wait():
    try:
        return asked(PID)
    except OperationalError as error:
        return type(error).__name__
late = in_threads(wait)
go_on.set()
beside.join()
print(json.dumps([len(set(holders)), late, in_threads(wait)[0] in holders]))
"""
    assert told(code, DATABASE_POOL_SIZE="3") == [3, ["OperationalError"], True]


def test_the_size_is_a_setting_and_sqlite_goes_on_as_before(tmp_path):
    code = """
options = connections.settings["default"]
print(json.dumps(["pool" in options.get("OPTIONS", {}), options["CONN_MAX_AGE"]]))
"""
    database = f"sqlite:///{tmp_path / 'of_its_own.sqlite3'}"
    assert told(code, DATABASE_URL=database) == [False, 60]
    if connection.vendor == "postgresql":
        assert told(code) == [True, 0]
        assert told(code, DATABASE_POOL_SIZE="0", CONN_MAX_AGE="7") == [False, 7]


@on_postgresql
def test_behind_pgbouncer_no_cursor_stays_open_at_the_server():
    code = 'print(json.dumps(connections.settings["default"]["DISABLE_SERVER_SIDE_CURSORS"]))'
    assert told(code, DATABASE_BEHIND_PGBOUNCER="true") is True
    assert told(code) is False
