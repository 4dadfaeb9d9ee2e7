"""schemathesis finds nothing: the API takes and answers what its schema says, and nothing else.

It asks a real server with real rows and an owner's API key, with all checks, in its four phases:
the schema's examples, the limits of every field one by one, drawn requests (fitting and not), and
chains of requests. By hand it can ask more, with another seed:

    SCHEMATHESIS_EXAMPLES=300 SCHEMATHESIS_SEED=7 python -m pytest -m slow tests/chatapp/contract
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from chatapp.models import Branch, ImportJob, Message, Session
from compaction.models import CompactionRun, SessionSummary
from tests.factories import SessionFactory, api_key, call, result, talk, user

pytest.importorskip("schemathesis", reason="needs the extra dev: pip install -e '.[dev]'")

ROOT = Path(__file__).parents[3]
CONFIG = Path(__file__).with_name("schemathesis.toml")
EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "3")
SEED = os.environ.get("SCHEMATHESIS_SEED", "20261129")
IS_QUICK = "SCHEMATHESIS_EXAMPLES" not in os.environ
MOST_SECONDS = 600 if IS_QUICK else 24 * 3600
# Two of three requests about limits are about the forms of a message. Drawn ones have to do here.
QUICK = """
[[operations]]
include-method = "POST"
include-path-regex = "/(turns|messages)/$"
phases.coverage.enabled = false
generation.max-examples = 12
"""
SESSIONS, DOOMED, IMPORTS = 4, 60, 6


def filled_session(owner: Any, api: Any, number: int) -> Session:
    """Return a session with messages, calls, two branches, a summary, and a run in the queue."""
    wires = [*talk(8), user("go"), call("f", "c1"), result("c1", "12 °C"), user("and?")]
    wire = "responses" if number % 2 else "chat"
    session = SessionFactory(owner=owner, title=f"talk {number}", api=wire, wires=wires)
    address = f"/api/v1/sessions/{session.pk}"
    third = Message.objects.filter(session=session, role="user").order_by("position")[2]
    for path, body in [
        ("compact/", {"wait": True}),
        ("branches/", {"message": str(third.pk), "activate": False}),
        ("turns/", {"content": "hello"}),
        ("compact/", {}),
    ]:
        answer = api.post(f"{address}/{path}", body, format="json")
        assert answer.status_code in (200, 201, 202), answer.content
    assert SessionSummary.objects.filter(session=session).exists()
    return session


def start_import(api: Any, number: int) -> None:
    """Have a file imported at once, or by a worker that never comes."""
    file = json.dumps([user(f"file {number}"), {"role": "assistant", "content": "read"}])
    when = {"HTTP_PREFER": "respond-async"} if number % 2 else {}
    answer = api.post(
        "/api/v1/sessions/import/", file, content_type="application/octet-stream", **when
    )
    assert answer.status_code == (202 if when else 201), answer.content


def keys(rows: Iterable[Any]) -> list[str]:
    return [str(row.pk) for row in rows]


@pytest.fixture
def dictionaries(owner, api, queued, transactional_db) -> dict[str, list[str]]:
    """Keys of rows that are there, by the names that schemathesis.toml gives them."""
    filled = [filled_session(owner, api, number) for number in range(SESSIONS)]
    for number in range(IMPORTS):
        start_import(api, number)
    doomed = [SessionFactory(owner=owner, wires=talk(1)) for _ in range(DOOMED)]
    places = Message.objects.filter(session=filled[0], kind="message")
    return {
        "forked": keys(filled[:1]),
        "places": keys(places.exclude(tool_calls__isnull=False)),
        "sessions": keys(filled),
        "doomed": keys(doomed),
        "messages": keys(Message.objects.filter(session__in=filled)),
        "branches": keys(Branch.objects.filter(session__in=filled)),
        "runs": keys(CompactionRun.objects.filter(session__in=filled)),
        "imports": keys(ImportJob.objects.filter(owner=owner)),
        "summaries": keys(SessionSummary.objects.filter(session__in=filled)),
    }


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_schemathesis_finds_nothing(asgi_server, owner, dictionaries, tmp_path):
    rows = [
        f"[dictionaries.{name}]\nvalues = {json.dumps(dictionaries[name])}\n"
        for name in dictionaries
    ]
    config = tmp_path / "schemathesis.toml"
    config.write_text("\n".join([CONFIG.read_text(), QUICK if IS_QUICK else "", *rows]))
    command = [
        sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run",
        f"{asgi_server.url}/api/v1/schema/", "--header", f"Authorization: Bearer {api_key(owner)}",
        "--checks", "all", "--max-examples", EXAMPLES, "--seed", SEED, "--no-color",
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=MOST_SECONDS, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-20_000:]
    assert int(re.search(r"(\d+) generated", said)[1]) > 1000
