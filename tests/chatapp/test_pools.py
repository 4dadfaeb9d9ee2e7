"""Slow requests have threads of their own, and one user has only so many of them."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from django.db import connection
from django.http import Http404, HttpResponse

from chatapp.pools import Pool, SlowWork, TooMuchAtOnceError, answered_in, pool_of
from tests.chatapp.conftest import AsgiServer
from tests.chatapp.test_stream import until
from tests.factories import SessionFactory, UserFactory, api_key

ROOT = Path(__file__).resolve().parents[2]
IDENTIFIER = "0b5f3a1e-5a5e-4b0e-9d0a-3a8f3c1d2e4f"


@pytest.mark.parametrize(
    ("path", "pool"),
    [
        (f"/api/v1/sessions/{IDENTIFIER}/turns/", Pool.SLOW),
        (f"/api/v1/sessions/{IDENTIFIER}/compact/", Pool.SLOW),
        ("/api/v1/sessions/import/", Pool.SLOW),
        (f"/api/v1/sessions/{IDENTIFIER}/export/", Pool.SLOW),
        ("/healthz", Pool.HEALTH),
        ("/health/", Pool.HEALTH),
        ("/readyz", Pool.HEALTH),
        (f"/api/v1/sessions/{IDENTIFIER}/messages/", Pool.QUICK),
        ("/api/v1/sessions/", Pool.QUICK),
        ("/admin/", Pool.QUICK),
        ("/api/v1/sessions/not-an-id/turns/", Pool.QUICK),
        ("/there/is/no/such/page", Pool.QUICK),
        ("", Pool.QUICK),
        ("/%00\x00/\ud800", Pool.QUICK),
    ],
)
def test_an_address_has_a_pool(path, pool):
    assert pool_of(path) is pool


def test_a_function_is_marked_as_classes_are():
    @answered_in(Pool.SLOW)
    def view(request):
        return HttpResponse()

    assert view.thread_pool is Pool.SLOW


class Someone:
    def __init__(self, pk: int) -> None:
        self.pk = pk


def test_a_user_has_only_so_much_slow_work_under_way(settings):
    settings.CHATAPP = settings.CHATAPP | {"TURNS_PER_OWNER": 2}
    work = SlowWork()
    one, other = Someone(1), Someone(2)
    with work.of(one), work.of(one):
        with pytest.raises(TooMuchAtOnceError, match="2 compactions of yours"), work.of(one):
            pass
        with work.of(other):
            pass
    with work.of(one), pytest.raises(RuntimeError), work.of(one):
        raise RuntimeError
    with work.of(one), work.of(one):
        pass
    assert not work._under_way


@pytest.mark.django_db
def test_waiting_for_one_more_compaction_is_refused(api, owner, settings, monkeypatch):
    session = SessionFactory(owner=owner)
    settings.CHATAPP = settings.CHATAPP | {"TURNS_PER_OWNER": 1}
    inner = []

    def compact(**arguments):
        inner.append(
            api.post(f"/api/v1/sessions/{session.pk}/compact/", {"wait": True}, format="json")
        )
        raise Http404

    monkeypatch.setattr("compaction.api.views.compact_branch", compact)
    assert (
        api.post(
            f"/api/v1/sessions/{session.pk}/compact/", {"wait": True}, format="json"
        ).status_code
        == 404
    )
    (refused,) = inner
    assert refused.status_code == 429
    assert refused.json()["code"] == "too_much_at_once"
    assert int(refused["Retry-After"]) > 0


@pytest.mark.django_db(transaction=True)
def test_silent_turns_of_one_user_stop_nobody_else(settings, model_server, owner):
    """With a single quick thread, which one silent turn would hold."""
    settings.CHATAPP = settings.CHATAPP | {
        "REQUEST_THREADS": 1,
        "SLOW_THREADS": 4,
        "TURNS_PER_OWNER": 2,
        "CONTEXT": {"BACKEND": "chatapp.context.backend.FullHistoryBackend", "OPTIONS": {}},
    }
    held = ExitStack()
    held.enter_context(model_server.holding("chat"))
    server = AsgiServer()
    server.start()
    answers: list[httpx2.Response] = []
    key = api_key(owner)

    def ask(session) -> None:
        answers.append(
            httpx2.post(
                f"{server.url}/api/v1/sessions/{session.pk}/turns/",
                json={"content": "hello"},
                headers={"Authorization": f"Bearer {key}"},
                timeout=30,
            )
        )

    try:
        sessions = [SessionFactory(owner=owner) for _ in range(12)]
        threads = [threading.Thread(target=ask, args=(session,)) for session in sessions]
        for thread in threads:
            thread.start()
        quick = UserFactory()
        theirs = SessionFactory(owner=quick)
        headers = {"Authorization": f"Bearer {api_key(quick)}"}
        wanted = [
            httpx2.get(f"{server.url}/healthz", timeout=10),
            httpx2.get(f"{server.url}/api/v1/sessions/{theirs.pk}/", headers=headers, timeout=10),
        ]
        # All of this came back while the turns were still silent.
        assert [response.status_code for response in wanted] == [200, 200]
        assert 200 not in [answer.status_code for answer in answers]
        assert until(lambda: len(answers) == 10)
        held.close()
        for thread in threads:
            thread.join(30)
    finally:
        held.close()
        server.stop()
        connection.close()
    assert sorted(answer.status_code for answer in answers) == [200] * 2 + [429] * 10
    late = [answer for answer in answers if answer.status_code == 429]
    assert all(answer.json()["code"] == "too_many_turns" for answer in late)
    assert all(int(answer.headers["Retry-After"]) > 0 for answer in late)


STARTED = """
import gc, sys, threading
import chatapp.asgi
for thread in threading.enumerate():
    if thread.name == "load-openai":
        thread.join()
kept = gc.get_freeze_count()
looked_at = len(gc.get_objects())
print(kept, looked_at, "chatapp.api.turns" in sys.modules)
"""


def test_what_a_server_has_loaded_is_not_looked_through_for_garbage_again():
    """One look takes 0.15 seconds, and no thread answers meanwhile, the event loop's included."""
    done = subprocess.run(
        [sys.executable, "-c", STARTED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    kept, looked_at, has_addresses = done.stdout.split()
    assert has_addresses == "True"
    assert int(kept) > 20 * int(looked_at)
