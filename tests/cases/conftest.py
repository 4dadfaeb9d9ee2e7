"""Fixtures of the cases: a case by its id, and the model server that plays it."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.cases.support import Case, load
from tests.fakes.model_server import ModelServer


@pytest.fixture
def cases(shared):
    """cases("B01") is that case, expanded."""

    def case(case_id: str) -> Case:
        return load(shared / "cases", case_id)

    return case


@pytest.fixture
def play(use_models, queued):
    """play(case.script, CONTEXT_WINDOW=4000) is a server that answers by the script.

    It is the `default` model; nothing reaches the queue. `chatapp` changes other CHATAPP keys.
    """
    with ExitStack() as stack:

        def start(script, *, chatapp=None, server=ModelServer, **model):
            running = stack.enter_context(server(script))
            use_models(running.models(**model), **(chatapp or {}))
            return running

        yield start
