"""A conversation whose time is the test's: messages come by a clock and runs are done at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.utils import timezone

from chatapp import transcript
from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.runs.scheduling import check_branch
from compaction.runs.worker import execute_run
from tests.factories import SessionFactory
from tests.facts import code

START = datetime(2026, 1, 1, tzinfo=UTC)
TEXT = "words that say a little more than nothing, as people do when they talk about things"


class Conversation:
    """One session; `seconds` is the time that has passed. Every due run is done at once."""

    def __init__(self, monkeypatch, *, owner=None, **changes) -> None:
        self.seconds = 0.0
        monkeypatch.setattr(timezone, "now", lambda: START + timedelta(seconds=self.seconds))
        self.session: Session = SessionFactory(**({"owner": owner} if owner else {}), **changes)
        self.runs: list[tuple[int, CompactionRun]] = []
        self.total = 0
        self.text = TEXT

    def add(self, text: str | None = None, role: str | None = None) -> CompactionRun | None:
        """Store one message and look for a trigger, as the API does; return the finished run."""
        role = role or ("user" if self.total % 2 == 0 else "assistant")
        content = text or f"{code(self.total)} {self.text}"
        transcript.append(
            self.session.branch, [NewMessage(wire={"role": role, "content": content})]
        )
        self.total += 1
        return self.look()

    def look(self) -> CompactionRun | None:
        """Check the branch and do what that queues; return the last run that was done."""
        last = None
        queued = check_branch(self.session)
        while queued is not None and queued.status == "queued":
            last = execute_run(queued.pk)
            self.runs.append((self.total, last))
            queued = CompactionRun.objects.filter(
                session=self.session, status="queued", waits_until__isnull=True
            ).first()
        return last

    def go_on(self, messages: int, *, every: float = 0.0) -> None:
        for _ in range(messages):
            self.add()
            self.seconds += every

    @property
    def fired(self) -> list[tuple[int, str]]:
        """Totals at which runs were done, and why."""
        return [(total, run.reason) for total, run in self.runs]

    @property
    def state(self) -> CompactionState:
        return CompactionState.objects.get(pk=self.session.branch.pk)

    @property
    def covered(self) -> int:
        return self.state.covered_messages

    def summaries(self) -> list[SessionSummary]:
        return list(SessionSummary.objects.filter(session=self.session).order_by("covers_through"))

    def read_by(self, summary: SessionSummary) -> list[int]:
        """The numbers of the messages that a summary was made from."""
        rows = Message.objects.filter(summary_links__summary=summary).order_by("position")
        return [row.position // 1_000_000 - 1 for row in rows]
