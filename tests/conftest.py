"""Fixtures that every test can use, and how the tests are spread over the machine's cores."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.util
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.test import TransactionTestCase
from hypothesis import settings as hypothesis_settings
from rest_framework.test import APIClient

# As in a web process: addresses and pages are loaded before anything else looks at them.
import chatapp.urls  # noqa: F401
from chatapp import database
from chatapp.llm import encodings, openai_client, tokens
from chatapp.turns import lease
from compaction import listeners
from tests import facts
from tests.factories import UserFactory
from tests.fakes.model_server import ModelServer

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
# `migrate` fills these from the code, and no test changes them.
TABLES_OF_THE_CODE = {"auth_permission", "django_content_type", "django_migrations"}
# What a process of the tests may take when all its tests are done. Three take 550 to 730 MB each,
# of which 200 are the fifteen thousand tests themselves; one that does all alone takes more.
MOST_PROCESS_MB = 1000
PROCESS_MB = "process_mb"
PROCESS_SIZES = pytest.StashKey[list[int]]()
# An example has no time limit: other processes may have the cores meanwhile.
hypothesis_settings.register_profile("patient", hypothesis_settings(), deadline=None)
hypothesis_settings.load_profile("patient")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Start a worker more than there are cores: tests wait for servers, processes and clocks.

    With as many as cores, two of them idle for a third of the time. None for a single file: to
    start them would take longer than most files do.
    """
    paths = {Path(argument.partition("::")[0]) for argument in config.args}
    if len(paths) == 1 and paths.pop().is_file():
        return 0
    has_affinity = hasattr(os, "sched_getaffinity")
    return 1 + (len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1)


def pytest_report_header() -> str:
    """Say what facts are drawn from; its processes draw from the same."""
    return f"{facts.SEED_VARIABLE}={facts.seed()}"


def pytest_collection() -> None:
    """Collect no garbage while tests are found: of what is made now, nearly all stays."""
    gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what databases do each in their own way, before `-m` chooses (.ci/on-postgresql)."""
    listed = {ROOT / line for line in (ROOT / ".ci" / "on-postgresql").read_text().splitlines()}
    for item in items:
        if item.path in listed:
            item.add_marker("databases")


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over the modules and the tests: they live as long as we do.

    Each of its full rounds would look at all of them, which takes most of a second.
    """
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run where a process of the tests has grown: something keeps what tests made."""
    gc.unfreeze()
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):
        # What is free, but not given back to the system, is kept by nobody.
        ctypes.CDLL(None).malloc_trim(0)
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[PROCESS_MB] = process_megabytes()
        return
    sizes = session.config.stash.setdefault(PROCESS_SIZES, []) or [process_megabytes()]
    session.config.stash[PROCESS_SIZES] = sizes
    if max(sizes) > MOST_PROCESS_MB:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Note how large a worker was in the end."""
    if PROCESS_MB in getattr(node, "workeroutput", {}):
        sizes = node.config.stash.setdefault(PROCESS_SIZES, [])
        sizes.append(node.workeroutput[PROCESS_MB])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say how large the processes were, and which size is too large."""
    sizes = config.stash.get(PROCESS_SIZES, [])
    listed = ", ".join(f"{size} MB" for size in sizes)
    if sizes and max(sizes) > MOST_PROCESS_MB:
        terminalreporter.write_line(
            f"FAILED: a process of the tests grew past {MOST_PROCESS_MB} MB ({listed}). "
            "Find what keeps the rows, clients or encodings of tests that have ended.",
            red=True,
        )
    else:
        terminalreporter.write_line(f"Memory of the test processes at their end: {listed}")


def process_megabytes() -> int:
    """Return the memory of this process, or 0 on a system that does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup, django_db_blocker) -> None:
    """Note all migrations as applied: the tables were made from the models (tests/settings.py)."""
    with django_db_blocker.unblock():
        recorder = MigrationRecorder(connection)
        recorder.ensure_schema()
        for app, name in MigrationLoader(connection).disk_migrations:
            recorder.record_applied(app, name)


@pytest.fixture(scope="session", autouse=True)
def quick_clean_up() -> Iterator[None]:
    """Empty the tables after a test with real transactions as quickly as rows can be deleted.

    Django truncates every table and installs content types and permissions anew, which takes
    PostgreSQL most of a second.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", _empty_tables)
        yield


@pytest.fixture(scope="session", autouse=True)
def turns_without_beats() -> Iterator[None]:
    """Renew no lease in the background: no test takes as long as a lease lasts.

    The thread would ask the database in whatever test comes next, where one kept its lease.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease._beats, "add", lambda owner: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_clock() -> Iterator[None]:
    """Take the database's clock for ours: asking for it now and then would be one more query."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database._clock, "ahead", timedelta)
        yield


def _empty_tables(case: TransactionTestCase) -> None:
    names = set(connection.introspection.django_table_names()) - TABLES_OF_THE_CODE
    with transaction.atomic():
        with connection.cursor() as cursor:
            for name in sorted(names):
                # Foreign keys are checked at the end of the transaction.
                cursor.execute(f"DELETE FROM {connection.ops.quote_name(name)}")
        listeners.install()


@pytest.fixture(scope="session", autouse=True)
def one_of_each_encoding() -> Iterator[None]:
    """Build each of tiktoken's encodings once a process, wherever its file comes from.

    Building one takes 0.3 seconds and 65 MB, which whatever remembers a token counter keeps. The
    file, or the package that brings it along, is looked for each time.
    """
    built: dict[str, Any] = {}
    load = encodings.load_encoding

    def is_there(name: str, cache_dir: Path | None) -> bool:
        if importlib.util.find_spec(encodings.OFFLINE_PACKAGE):
            return True
        return encodings.find_rank_file(name, cache_dir) is not None

    def load_once(name: str, cache_dir: Path | None) -> Any:
        if name not in built or not is_there(name, cache_dir):
            built[name] = load(name, cache_dir)
        return built[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "load_encoding", load_once)
        yield


@pytest.fixture
def shared() -> Path:
    """The folder of real conversations and cases beside the checkout; skips where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the folder {SHARED.name}/ beside the checkout (data, cases, encodings)")
    return SHARED


@pytest.fixture
def use_models(settings):
    """Replace CHATAPP keys for one test: use_models(server.models(CONTEXT_WINDOW=4000))."""

    def replace(models: dict, **changes) -> None:
        settings.CHATAPP = settings.CHATAPP | {"MODELS": models} | changes
        # A process's first call imports the SDK: a second or more, which no test means to measure.
        openai_client.load_ahead().join()

    return replace


@pytest.fixture
def model_server(use_models):
    """A scripted model server that is the session's `default` model."""
    with ModelServer() as server:
        use_models(server.models())
        yield server


@pytest.fixture
def owner(db):
    return UserFactory()


@pytest.fixture
def api(owner) -> APIClient:
    """An API client that is logged in as `owner`."""
    client = APIClient()
    client.force_authenticate(owner)
    return client


@pytest.fixture
def queued(monkeypatch) -> list[tuple]:
    """What would have been put into the queue, and waits there until taken: (task, *arguments)."""
    tasks: list[tuple] = []
    monkeypatch.setattr("compaction.runs.queue._put", lambda *call: tasks.append(call))
    monkeypatch.setattr("compaction.runs.queue.waiting_tasks", lambda: len(tasks))
    return tasks
