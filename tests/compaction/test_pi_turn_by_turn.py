"""The coding agent's session once more, lived turn by turn: each answer comes from a model server
that plays what the agent's model said, with the usage that it reported.

What stands between two answers (a question, a command's output, tool results) is posted as a client
posts it. Lines are numbered from 0; nothing of the session's text is in here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from chatapp import transcript
from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage
from chatapp.turns.service import INTERRUPTED, Turn, run_turn
from compaction.branches.coverage import hidden_messages
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionRun, CompactionStep, SessionSummary, SessionSummaryMessage
from compaction.profiles import save_profile
from tests.compaction.support import compact
from tests.compaction.test_pi_replay import (
    BY_HAND,
    BY_RULE,
    MODEL,
    THRESHOLD,
    WINDOW,
    Recording,
    reported,
)
from tests.compaction.test_pi_replay import recording as recording  # the fixture
from tests.factories import SessionFactory
from tests.fakes.strict_checker import faults

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
SUMMARY = {"when": {}, "reply": {"text": "SUMMARY The agent was refactored."}}


@dataclass(kw_only=True)
class Life:
    """The session as far as it was lived."""

    session: Session
    recording: Recording
    server: Any
    lines: dict[Any, int] = field(default_factory=dict)

    def live(self, first: int, end: int, *, reports: bool = True) -> Iterator[int]:
        """Take the turns of a stretch; yield the line of each answer.

        Without `reports` the server reports no usage.
        """
        waiting: list[int] = []
        for line in self.recording.between(first, end):
            waiting.append(line)
            if self.recording.role(line) == "assistant":
                self._turn(waiting[:-1], line, reports=reports)
                waiting.clear()
                yield line
        assert not waiting

    def _turn(self, before: list[int], line: int, *, reports: bool) -> None:
        """Post what came in; the server answers as it did then."""
        answer = self.recording.messages[line]
        drafts = [NewMessage(wire=self.recording.messages[one].wire) for one in before]
        if answer.finish_reason == "aborted":
            broken = NewMessage(wire=answer.wire, usage=answer.usage, finish_reason=INTERRUPTED)
            rows = transcript.append(self.session.branch, [*drafts, broken])
        else:
            reply = {
                "text": answer.wire.get("content"),
                "tool_calls": answer.wire.get("tool_calls"),
                "finish_reason": answer.finish_reason,
            } | ({"usage": answer.usage} if reports else {})
            self.server.script = [{"when": {"purpose": "chat"}, "reply": reply}, SUMMARY]
            self.server.calls.clear()
            result = run_turn(Turn(session=self.session, drafts=drafts))
            (request,) = self.server.of("chat")
            assert faults(request.messages) == []
            rows = [*result.stored, result.answer]
        self.lines.update(zip((row.pk for row in rows), [*before, line], strict=True))

    def kept_from(self) -> int:
        """The line of the first message behind the cursor."""
        cursor = snapshot_of(self.session).state.cursor
        behind = Message.objects.filter(branch=self.session.branch, kind="message")
        return self.lines[behind.filter(position__gt=cursor).order_by("position")[0].pk]

    def kept_tokens(self, last: int) -> int:
        """The tokens of the messages behind the cursor, up to a line."""
        first = self.kept_from()
        lines = [pk for pk, line in self.lines.items() if first <= line <= last]
        return sum(Message.objects.filter(pk__in=lines).values_list("tokens", flat=True))

    def is_parted(self, run: CompactionRun) -> bool:
        """Whether a turn's beginning was summarised apart."""
        return CompactionStep.objects.filter(run=run, kind="prefix").exists()

    def check_nothing_is_lost(self) -> None:
        """Each message is a source of one summary, or is sent; none is both, or in two."""
        session = self.session
        session.branch.refresh_from_db()
        cursor = snapshot_of(session).state.cursor
        assert not hidden_messages(session.branch, cursor).exists()
        messages = Message.objects.filter(branch=session.branch, kind="message")
        covered = set(messages.filter(position__lte=cursor).values_list("pk", flat=True))
        sources = list(SessionSummaryMessage.objects.values_list("message", flat=True))
        assert len(sources) == len(set(sources))
        assert set(sources) == covered
        # Each summary continues the one before.
        rows = SessionSummary.objects.order_by("covers_through")
        assert all(one.previous_id == before.pk for before, one in pairwise(rows))


@pytest.fixture
def life(recording, owner, use_models, model_server, queued) -> Life:
    use_models(
        model_server.models(NAME=MODEL, CONTEXT_WINDOW=WINDOW, MAX_OUTPUT=8192),
        TOKEN_COUNTER="chars4",
    )
    save_profile(name="agent", base="checkpoint", parameters={}, make_default=True)
    return Life(session=SessionFactory(owner=owner), recording=recording, server=model_server)


def test_a_rule_fires_once_between_two_steps_and_nothing_is_lost_in_three_rounds(life):
    # By its reports the threshold is passed by the answer of line 627. The request that it answers
    # is known to be too large before it goes out: by the report of line 625 and the result behind.
    assert (reported(life.recording, 625), reported(life.recording, BY_RULE)) == (182_858, 185_014)
    result, before = 626, 625
    assert (life.recording.role(result), life.recording.role(before)) == ("toolResult", "assistant")

    for line in life.live(0, BY_HAND + 1):
        assert reported(life.recording, line) <= THRESHOLD
    assert not CompactionRun.objects.exists()
    by_hand = compact(life.session)
    assert (by_hand.status, by_hand.error) == ("succeeded", "")
    assert (life.kept_from(), life.is_parted(by_hand)) == (260, True)
    life.check_nothing_is_lost()

    for _ in life.live(BY_HAND + 1, result):
        assert CompactionRun.objects.count() == 1
    # The recorded report is of a request that was not compacted.
    next(life.live(result, BY_RULE + 1, reports=False))
    by_rule = CompactionRun.objects.latest("created_at")
    assert (by_rule.reason, by_rule.mode, by_rule.status) == ("window", "inline", "succeeded")
    # The agent counts thoughts, and keeps what comes from line 534 on (test_pi_replay). They are
    # not sent back, so they cost nothing here: by four characters a token, 19,849 are kept.
    assert (life.kept_from(), life.is_parted(by_rule)) == (520, True)
    assert life.kept_tokens(result) == 19_849
    life.check_nothing_is_lost()

    # The last message was never answered.
    for _ in life.live(BY_RULE + 1, max(life.recording.messages)):
        assert CompactionRun.objects.count() == 2
    third = compact(life.session)
    assert (third.status, third.error) == ("succeeded", "")
    life.check_nothing_is_lost()
    assert len(life.lines) == len(life.recording.messages) - 1
