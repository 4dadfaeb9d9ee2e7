"""What is asked of the database most often: each kind of work done once, its statements kept.

A kind is a name and a piece of work over a filled database (tests/bench/million.py). What it asks
for is whatever the product sends: nothing here is written down twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import StringIO
from itertools import islice
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.urls import reverse

from chatapp import transcript
from chatapp.keys import create_key
from chatapp.models import Message, Session
from chatapp.round_trips import BETWEEN
from compaction.models import CompactionRun, SessionSummary
from compaction.monitoring.metrics import exposition
from compaction.runs.scheduling import assign_profile
from compaction.runs.sweep import look_at_clocks, sweep_runs
from compaction.runs.worker import execute_run
from compaction.statistics.daily import refresh_figures
from tests.bench.conversations import fresh
from tests.bench.listing import addresses
from tests.bench.million import Filled
from tests.bench.states import take_turn

API = "/api/v1"
Work = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement as it was sent, and the kind of work that sent it."""

    work: str
    sql: str
    parameters: Any


def sent_by(works: Iterator[tuple[str, Work]]) -> list[Statement]:
    """Do each piece of work and return its statements, each text once a kind of work."""
    found: dict[tuple[str, str], Statement] = {}
    for name, work in works:

        def note(
            execute: Any, sql: str, parameters: Any, many: bool, context: Any, name: str = name
        ) -> Any:
            for text, values in () if many else _one_by_one(sql, parameters):
                made = Statement(work=name, sql=text, parameters=values)
                found.setdefault((name, text), made)
            return execute(sql, parameters, many, context)

        with connection.execute_wrapper(note):
            work()
    return list(found.values())


def _one_by_one(sql: str, parameters: Any) -> Iterator[tuple[str, Any]]:
    """Yield the statements of a message with the values of each."""
    texts = sql.split(BETWEEN)
    if len(texts) == 1:
        yield sql, parameters
        return
    values = iter(parameters)
    for text in texts:
        yield text, tuple(islice(values, text.count("%s")))


def works_of(filled: Filled) -> Iterator[tuple[str, Work]]:
    """Yield every kind of work with its name, the one that deletes last."""
    owner: Any = filled.owners[0]
    Session.objects.filter(pk__in=_sessions(filled).values()).update(owner=owner)
    yield from _api(filled, owner)
    yield from _operators(filled)
    yield from _queue(filled)
    yield "delete a session", Session.objects.get(pk=filled.ordinary).delete


def _sessions(filled: Filled) -> dict[str, Any]:
    return {
        "a backlog": filled.backlog,
        "summarised": filled.summarised,
        "a fork": filled.forked,
        "ordinary": filled.ordinary,
    }


def _api(filled: Filled, owner: Any) -> Iterator[tuple[str, Work]]:
    """Yield what frontends do; a session with a backlog waits for the queue."""
    token = create_key(owner=owner, name="explain").secret
    client = Client(SERVER_NAME="localhost", headers={"Authorization": f"Token {token}"})
    ask = partial(_ask, client)
    assign_profile(fresh(Session.objects.get(pk=filled.backlog)), "sliding_window")
    for kind, key in _sessions(filled).items():
        session = Session.objects.get(pk=key)
        address = f"{API}/sessions/{key}"
        message = {"role": "user", "content": "Where is the harbour?"}
        yield f"turn, {kind}", partial(take_turn, session)
        yield f"POST, {kind}", partial(_post, client, f"{address}/messages/", message)
        keyed = partial(_post, client, f"{address}/messages/", message, {"Idempotency-Key": kind})
        yield f"POST with a key, {kind}", keyed
        for name, rest in {
            "GET newest": "messages/?order=newest&page_size=100",
            "GET oldest": "messages/?page_size=100",
            "GET briefly": "messages/?verbosity=compact",
            "context/": "context/",
            "compaction/": "compaction/",
            "summaries/": "summaries/",
            "tree/": "tree/",
            "branches/": "branches/",
        }.items():
            yield f"{name}, {kind}", partial(ask, f"{address}/{rest}")
        yield f"GET next page, {kind}", partial(_next_page, client, f"{address}/messages/")
    last = Message.objects.filter(session=filled.ordinary).latest("position")
    yield "message/", partial(ask, f"{API}/messages/{last.pk}/")
    yield "sessions/", partial(ask, f"{API}/sessions/")
    summary = SessionSummary.objects.filter(session=filled.ordinary)[0]
    yield "summary/", partial(ask, f"{API}/summaries/{summary.pk}/")
    yield "fork", partial(transcript.fork, Session.objects.get(pk=filled.ordinary), at=last)


def _ask(client: Client, address: str) -> Any:
    answer = client.get(address)
    # What has no such address, or not for this session, sent its statements all the same.
    assert answer.status_code < 500, address
    return answer


def _post(
    client: Client, address: str, body: object, headers: dict[str, str] | None = None
) -> None:
    answer = client.post(address, body, content_type="application/json", headers=headers)
    assert answer.status_code == 201, answer.content[:500]


def _next_page(client: Client, address: str) -> None:
    following = _ask(client, f"{address}?page_size=100").json().get("next")
    if following:
        _ask(client, following)


def _operators(filled: Filled) -> Iterator[tuple[str, Work]]:
    """Yield the lists and pages of the admin."""
    client = Client(SERVER_NAME="localhost")
    people = get_user_model()._default_manager
    client.force_login(
        people.create_superuser(username="explainer"), backend=settings.AUTHENTICATION_BACKENDS[-1]
    )
    ask = partial(_ask, client)
    for name, address in addresses().items():
        yield f"list: {name}", partial(ask, address)
        if "?" not in address and name != "chatapp.Session":
            yield f"list: {name}, page 3", partial(ask, f"{address}?p=3")
    for kind, key in _sessions(filled).items():
        page = reverse("admin:chatapp_session_change", args=[key])
        yield f"session page, {kind}", partial(ask, page)
    yield "front page", partial(ask, reverse("admin:index"))
    yield "needs a look", partial(ask, reverse("admin:compaction_needs_look"))


def _queue(filled: Filled) -> Iterator[tuple[str, Work]]:
    """Yield what workers, schedules and commands do."""
    yield "sweep", sweep_runs
    yield "clocks", look_at_clocks
    yield "claim and run", _run_one
    yield "roll_up", refresh_figures
    yield "metrics", partial(exposition, "text/plain")
    for kind, key in _sessions(filled).items():
        yield f"doctor, {kind}", partial(_doctor, str(key))
    named = [str(filled.ordinary)]
    dry_run = partial(call_command, "resummarize", session=named, dry_run=True, stdout=StringIO())
    yield "resummarize --dry-run", dry_run


def _run_one() -> None:
    queued = CompactionRun.objects.filter(status="queued").order_by("-created_at")
    execute_run(queued[0].pk)


def _doctor(session: str) -> None:
    # It ends with a status of its own where it finds something.
    with suppress(SystemExit):
        call_command("doctor", session=[session], stdout=StringIO(), stderr=StringIO())
