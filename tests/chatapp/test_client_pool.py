"""SDK clients wait in one pool for all threads of a process, as many as the setting says."""

from __future__ import annotations

import os
import threading

import pytest

from chatapp.llm import client_pool
from chatapp.llm.client_pool import client_for
from chatapp.llm.openai_client import OpenAIModel
from chatapp.llm.registry import get_model
from chatapp.llm.requests import ModelRequest

SERVER = ("key", "http://127.0.0.1:9/v1")
OTHER = ("key", "http://127.0.0.1:10/v1")


@pytest.fixture(autouse=True)
def pool(monkeypatch):
    fresh = client_pool._ClientPool()
    monkeypatch.setattr(client_pool, "_pool", fresh)
    return fresh


def client_of(server):
    with client_for(*server) as (client, _):
        return client


def in_thread(work):
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join(10)
    return found[0]


def test_the_next_call_has_the_client_of_the_last_one_whichever_thread_makes_it():
    first = client_of(SERVER)
    assert client_of(SERVER) is first
    assert in_thread(lambda: client_of(SERVER)) is first


def test_two_calls_at_once_have_a_client_each():
    with client_for(*SERVER) as (one, line), client_for(*SERVER) as (two, other):
        assert one is not two
        assert line is not other


def test_another_server_and_another_key_have_clients_of_their_own():
    first = client_of(SERVER)
    assert client_of(OTHER) is not first
    assert client_of(("another key", SERVER[1])) is not first
    assert client_of(SERVER) is first


def test_no_more_wait_than_the_setting_says_and_the_oldest_goes(pool, settings):
    settings.CHATAPP = settings.CHATAPP | {"MODEL_CONNECTIONS": 2}
    with client_for(*SERVER) as (oldest, _), client_for(*SERVER), client_for(*OTHER) as (kept, _):
        pass
    assert len(pool._waiting) == 2
    # Given back from the inside out: the first that was asked for came back last.
    assert kept.is_closed()
    assert not oldest.is_closed()
    assert client_of(SERVER) is oldest


def test_a_call_that_fails_gives_its_client_back(pool):
    with pytest.raises(ValueError, match="no"), client_for(*SERVER):
        raise ValueError("no")
    assert len(pool._waiting) == 1


def test_a_forked_process_uses_none_of_its_parents_connections(pool, monkeypatch):
    first = client_of(SERVER)
    pool.forget()
    assert client_of(SERVER) is not first
    assert not first.is_closed()
    assert client_pool._pool is pool


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_the_pool_of_a_process_is_told_of_a_fork(monkeypatch):
    monkeypatch.undo()
    client_of(SERVER)
    assert client_pool._pool._waiting
    child = os.fork()
    if not child:
        os._exit(len(client_pool._pool._waiting))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client_pool._pool._waiting


@pytest.mark.parametrize("stream", [False, True])
def test_calls_of_many_threads_use_one_connection_after_another(model_server, stream, pool):
    model = OpenAIModel(get_model("default"))
    request = ModelRequest(messages=[{"role": "user", "content": "hi"}], stream=stream)
    for _ in range(5):
        assert in_thread(lambda: model.complete(request).text) == "ok"
    assert len(pool._waiting) == 1
    assert len(model_server.calls) == 5
