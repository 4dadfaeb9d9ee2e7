"""What end-to-end tests share: a browser, the site, a worker, an operator."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.db import connection
from django_q.models import Schedule

from tests.e2e.browser import Watched, chromium

ROOT = Path(__file__).resolve().parent.parent.parent
PASSWORD = "only-for-tests-7"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    # Playwright's loop runs in this thread, which Django takes for asynchronous code.
    with pytest.MonkeyPatch.context() as patch, chromium() as one:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        yield one


@pytest.fixture
def site(browser, live_server) -> Iterator[Callable[..., Watched]]:
    """Open pages of the running site; at the end none of them may have had a fault."""
    opened: list[Watched] = []

    def open_site(**options: Any) -> Watched:
        opened.append(Watched(browser, live_server.url, **options))
        return opened[-1]

    yield open_site
    for one in opened:
        one.context.close()
    assert [fault for one in opened for fault in one.faults] == []


@pytest.fixture
def operator(transactional_db) -> Any:
    return get_user_model().objects.create_superuser("operator", password=PASSWORD)


def log_in(watched: Watched) -> Any:
    """Log in by the form and return the page: the front page."""
    page = watched.go("/admin/")
    page.fill("#id_username", "operator")
    page.fill("#id_password", PASSWORD)
    page.click("input[type=submit]")
    page.wait_for_selector("#user-tools")
    return page


@pytest.fixture
def worker(transactional_db, monkeypatch) -> Iterator[subprocess.Popen[bytes]]:
    """A real qcluster on the test's database with a queue of its own."""
    name = f"e2e-{uuid.uuid4().hex[:12]}"
    monkeypatch.setattr("django_q.conf.Conf.CLUSTER_NAME", name)
    monkeypatch.setattr("django_q.conf.Conf.PREFIX", name)
    Schedule.objects.all().delete()
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "tests.queue.cluster_settings",
        "CLUSTER_DATABASE": str(connection.settings_dict["NAME"]),
        "SECRET_KEY": django_settings.SECRET_KEY,
        "QUEUE_NAME": name,
        "QUEUE_WORKERS": "1",
    }
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "qcluster"],
            cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            log.seek(0)
            sys.stdout.write(log.read().decode(errors="replace")[-4000:])
