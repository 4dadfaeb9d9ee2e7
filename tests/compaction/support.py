"""What the compaction tests share: compact a session by hand, and look at what would be sent."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connections

from chatapp.context.backend import context_backend
from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage
from chatapp.turns.service import Turn, TurnResult, run_turn
from compaction.models import CompactionRun, CompactionState
from compaction.runs.worker import compact_branch, execute_run
from compaction.summaries.summarizer import ModelSummarizer

# No trigger fires by itself: what a test asks for is the only compaction.
NEVER = {"message_limit": 0, "max_context_tokens": 0}


def compact(session: Session, **changes: Any) -> CompactionRun:
    """Compact by hand, now."""
    return compact_branch(session=session, **({"trigger": "manual", "reason": "manual"} | changes))


@contextmanager
def held_worker(run: CompactionRun) -> Iterator[threading.Event]:
    """Do a run in a thread that waits in its model call until the event is set.

    For tests with transaction=True; when the block ends, the run has ended, too.
    """
    reached, go_on = threading.Event(), threading.Event()
    real = ModelSummarizer.summarize

    def held(self, request):
        reached.set()
        assert go_on.wait(20)
        return real(self, request)

    def work() -> None:
        try:
            execute_run(run.pk)
        finally:
            connections.close_all()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelSummarizer, "summarize", held)
        worker = threading.Thread(target=work)
        worker.start()
        try:
            assert reached.wait(20)
            yield go_on
        finally:
            go_on.set()
            worker.join(30)
    assert not worker.is_alive()


def say(session: Session, text: str = "hello", **changes: Any) -> TurnResult:
    """Take a turn."""
    draft = NewMessage(wire={"role": "user", "content": text})
    return run_turn(Turn(session=session, drafts=[draft], **changes))


def sent(session: Session) -> list[dict[str, Any]]:
    """What the next request would send."""
    return list(context_backend.preview(session).messages)


def texts(messages: list[dict[str, Any]], role: str | None = None) -> list[str]:
    return [m["content"] for m in messages if role is None or m["role"] == role]


def state(session: Session) -> CompactionState:
    return CompactionState.objects.get(pk=session.branch.pk)


def stored(session: Session) -> list[Message]:
    """All rows of the branch, placeholders included, by position."""
    return list(Message.objects.filter(branch=session.branch).order_by("position"))


def as_shown(asked: Any) -> dict[str, str]:
    """Return what the button of a page that asks first sends besides, of its answer."""
    shown = re.search(r'name="previewed" value="(\w+)"', asked.text)
    assert shown is not None
    return {"confirmed": "yes", "previewed": shown[1]}
