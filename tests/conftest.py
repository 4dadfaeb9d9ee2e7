"""Fixtures that every test can use."""

from __future__ import annotations

from pathlib import Path

import pytest
from rest_framework.test import APIClient

from tests.factories import UserFactory
from tests.fakes.model_server import ModelServer

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"


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
    """What would have been put into the queue: (task, *arguments)."""
    tasks: list[tuple] = []
    monkeypatch.setattr("compaction.runs.queue._put", lambda *call: tasks.append(call))
    return tasks
