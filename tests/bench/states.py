"""The states in which a session may be when a turn or a message comes, and what is done to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from django.test import Client

from chatapp.keys import create_key
from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage
from chatapp.turns.service import Turn, run_turn
from compaction.models import CompactionState, SessionSummary
from compaction.profiles import save_profile
from compaction.runs.scheduling import assign_profile
from tests.bench.conversations import fresh, owner, stored, summarise_all_but
from tests.bench.instant import ANSWER

QUESTION = "Please look at the report again and tell me which of the checks took longest. " * 3
LEFT = 10
SUMMARISED, UNSUMMARISED, BACKLOG, WHOLE = (
    "summarised", "nothing summarised", "a backlog", "the whole history sent",
)  # fmt: skip
FLAT = (SUMMARISED, UNSUMMARISED, BACKLOG)
"""States in which a turn costs the same at any age: what is sent is bounded."""
PROFILES: dict[str, dict[str, Any]] = {
    # Work waits for the queue, and requests hold no more than a limit lets through.
    "behind": {
        "base": "sliding_window",
        "parameters": {"context_size": 0, "compression_hard_limit": 0, "history_limit": 60},
    },
    # Nothing is ever due.
    "whole": {
        "base": "bisect",
        "parameters": {"message_limit": 0, "max_context_tokens": 0, "prepare_ratio": 0.0},
    },
}


def session_in(state: str, count: int) -> Session:
    """Return a new session of so many messages in that state."""
    return put_in(state, stored(count))


def put_in(state: str, session: Session) -> Session:
    """Bring a session into a state, whatever it was in before; return it as a request reads it."""
    current = fresh(session)
    SessionSummary.objects.filter(session=current).delete()
    CompactionState.objects.filter(branch=current.branch).delete()
    current.runs.all().delete()  # type: ignore[attr-defined]
    if state == SUMMARISED:
        assign_profile(current, "")
        summarise_all_but(current, LEFT)
        return fresh(session)
    name = "whole" if state == WHOLE else "behind"
    save_profile(name=name, **PROFILES[name])
    assign_profile(current, name)
    if state == BACKLOG:
        summarise_all_but(current, current.branch.message_count // 2)
    return fresh(session)


def take_turn(session: Session) -> None:
    """Read the session as a view does, and take a turn."""
    drafts = [NewMessage(wire={"role": "user", "content": QUESTION})]
    run_turn(Turn(session=fresh(session), drafts=drafts))


def drop_newest(session: Session, count: int) -> None:
    """Take the newest messages back, sums included, so that nothing becomes due meanwhile."""
    branch = fresh(session).branch
    rows = Message.objects.filter(branch=branch, kind=Message.Kind.MESSAGE).order_by("-position")
    kept = rows[count]
    rows.filter(position__gt=kept.position).delete()
    branch.head_position, branch.message_count = kept.position, branch.message_count - count
    branch.token_total, branch.char_total = kept.tokens_through, kept.chars_through
    branch.save()


class Frontend:
    """Sends requests of the API in process, with a key, as a frontend does over HTTP."""

    def __init__(self, session: Session) -> None:
        token = create_key(owner=owner(), name="bench").secret
        self._client = Client(SERVER_NAME="localhost", headers={"Authorization": f"Token {token}"})
        self._messages = f"/api/v1/sessions/{session.pk}/messages/"
        self._context = f"/api/v1/sessions/{session.pk}/context/"

    def post(self) -> None:
        """Append one message."""
        body = json.dumps({"role": "user", "content": ANSWER})
        answer = self._client.post(self._messages, body, content_type="application/json")
        assert answer.status_code == 201, answer.content[:500]

    def get(self, page: int = 100) -> None:
        """Read the newest messages."""
        answer = self._client.get(f"{self._messages}?order=newest&page_size={page}")
        assert answer.status_code == 200, answer.content[:500]

    def context(self) -> None:
        """Read what a request would send."""
        answer = self._client.get(self._context)
        assert answer.status_code == 200, answer.content[:500]


def works(session: Session) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield what is done to a session most often, by name."""
    frontend = Frontend(session)
    yield "turn", partial(take_turn, session)
    yield "POST", frontend.post
    yield "GET of the last 100", frontend.get
    yield "context/", frontend.context
