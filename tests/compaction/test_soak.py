"""200 turns over real conversations against a server that refuses, fails and talks nonsense.

Bounded and without chance: the seed is fixed. What must hold: a turn ends with an answer or with a
readable error; every request is strict; no marker is lost; nothing is asked twice.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter

import pytest

from chatapp.context.backend import context_backend
from chatapp.llm import openai_client
from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage
from chatapp.transfer import import_file
from chatapp.turns.service import Turn, TurnFailedError, run_turn
from compaction.doctor.examine import examine
from compaction.models import CompactionRun, RecoveryStep
from tests.factories import UserFactory, profile
from tests.facts import code
from tests.fakes.model_server import Call, ModelServer, estimate
from tests.fakes.strict_checker import faults

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

TURNS = 200
WINDOW = 32_000
ANSWER_ROOM = 1_000
MARKS = [code(number) for number in range(TURNS)]
MARKER = re.compile("|".join(map(re.escape, MARKS)))


def error(status: int, headers: dict | None = None, **body) -> dict:
    return {"error": {"status": status, "headers": headers or {}, "body": {"error": body}}}


TOO_LARGE = [
    error(400, code="context_length_exceeded", message="maximum context length is 32,000 tokens."),
    error(400, type="exceed_context_size_error", message="exceeds the available context size"),
    error(400, message="prompt is too long: 40000 tokens > 32000 maximum"),
    error(400, message="Trying to keep the first 900 tokens when context the overflows"),
]
# Errors that a wait mends, and one that nothing mends.
SOON = {"Retry-After": "0.001"}
OTHERS = [
    error(429, SOON, code="rate_limit_exceeded", message="Rate limit reached. Reduce the length."),
    error(500, message="internal"),
    error(503, SOON, message="Loading model"),
    error(529, SOON, type="overloaded_error", message="Overloaded"),
    {"error": {"status": 502, "body": "<html>Bad Gateway</html>"}},
    error(400, code="content_filter", message="The response was filtered."),
    error(400, message="max_tokens is too large: this model supports at most 512 output tokens"),
    {"raw": "no json at all"},
    {"raw": {"choices": []}},
]
NONSENSE = [
    {"text": ""},
    {"text": "I cannot help with that.", "finish_reason": "length"},
    {"text": "never mind " * 4000},
    error(400, code="context_length_exceeded", message="too long"),
    error(500, message="internal"),
]


class Moody(ModelServer):
    """Counts tokens and refuses; fails every 7th call otherwise; every 11th summary is nonsense."""

    def __init__(self) -> None:
        super().__init__([])
        self.chance = random.Random(3)
        self.replies: list[tuple[Call, dict]] = []

    def answer(self, body, headers):
        call, _ = super().answer(body, headers)
        reply = self._reply_to(call)
        self.replies.append((call, reply))
        return call, reply

    def _reply_to(self, call: Call) -> dict:
        if estimate(call.messages) + (call.body.get("max_tokens") or 0) > WINDOW:
            return self.chance.choice(TOO_LARGE)
        if len(self.calls) % 7 == 0:
            return self.chance.choice(OTHERS)
        if call.purpose != "chat":
            if len(self.summarising()) % 11 == 0:
                return self.chance.choice(NONSENSE)
            return {"echo_markers": MARKER.pattern, "prefix": "What was marked: "}
        if self.chance.random() < 0.3 and call.body.get("tools"):
            number = len(self.calls)
            function = {"name": "read", "arguments": "{}"}
            return {
                "tool_calls": [{"id": f"soak{number}", "type": "function", "function": function}]
            }
        return {"text": f"answer {len(self.calls)}"}


TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}


@pytest.fixture
def moody(use_models, monkeypatch):
    monkeypatch.setattr(openai_client, "FIRST_WAIT_SECONDS", 0.001)
    monkeypatch.setattr(openai_client, "LONGEST_WAIT_SECONDS", 0.002)
    with Moody() as server:
        use_models(
            server.models(CONTEXT_WINDOW=WINDOW, MAX_OUTPUT=ANSWER_ROOM), TOKEN_COUNTER="chars4"
        )
        yield server


@pytest.fixture
def sessions(shared, queued, moody) -> list[Session]:
    """The real sessions, with a tool; their own texts hold no marker."""
    owner = UserFactory()
    profile(window_trigger=True, message_limit=0, max_context_tokens=20_000, keep_last_n=4)
    for folder in ("pi", "claude_code"):
        for path in sorted((shared / "data" / folder).iterdir()):
            if path.suffix in (".json", ".jsonl"):
                import_file(owner=owner, content=path.read_bytes(), name=path.name)
    found = list(Session.objects.select_related("active_branch").order_by("created_at", "id"))
    assert len(found) > 5
    Session.objects.update(tools=[TOOL])
    return found


def next_drafts(session: Session, number: int, chance: random.Random) -> list[NewMessage]:
    """What a client sends next: results for open calls, or a question; both with a marker."""
    last = Message.objects.filter(branch=session.branch, kind="message").order_by("position").last()
    mark = MARKS[number]
    if last is not None and last.role == "assistant" and last.tool_calls:
        size = chance.choice([20, 2_000, 9_000])
        return [
            NewMessage(
                wire={
                    "role": "tool",
                    "tool_call_id": called["id"],
                    "content": f"{mark} found\n" + "a line of the file\n" * size,
                }
            )
            for called in last.tool_calls
        ]
    words = "please look at it " * chance.choice([1, 10, 400])
    return [NewMessage(wire={"role": "user", "content": f"{mark} question {number}: {words}"})]


def test_no_turn_gets_stuck_and_nothing_is_lost(sessions, moody):
    chance = random.Random(5)
    answered = failed = 0
    marks: dict[str, set[str]] = {str(session.pk): set() for session in sessions}
    for number in range(TURNS):
        session = Session.objects.select_related("active_branch").get(
            pk=sessions[number % len(sessions)].pk
        )
        drafts = next_drafts(session, number, chance)
        marks[str(session.pk)] |= set(MARKER.findall(json.dumps([d.wire for d in drafts])))
        try:
            result = run_turn(Turn(session=session, drafts=drafts, stream=number % 2 == 0))
        except TurnFailedError as failure:
            failed += 1
            assert readable(str(failure)), failure
        else:
            answered += 1
            assert result.answer.content or result.answer.tool_calls
        check_stored_once(session, drafts)

    assert answered > 0.8 * TURNS, (answered, failed)
    # The script made every part of it work.
    assert RecoveryStep.objects.exists()
    assert CompactionRun.objects.filter(status="succeeded").exists()
    check_requests(moody)
    for session in Session.objects.select_related("active_branch"):
        sent = json.dumps(context_backend.preview(session).messages)
        missing = marks[str(session.pk)] - set(MARKER.findall(sent))
        assert not missing, (session.title, missing)
        assert [found for found in examine(session.pk) if found.is_error] == []


def readable(sentence: str) -> bool:
    """A sentence for people: it ends, and no traceback or class name is in it."""
    return len(sentence) > 20 and "Traceback" not in sentence and "Error(" not in sentence


def check_stored_once(session: Session, drafts: list[NewMessage]) -> None:
    """What the user sent stands once on the branch that goes on."""
    session.refresh_from_db()
    for draft in drafts:
        rows = Message.objects.filter(branch=session.active_branch, role=draft.wire["role"])
        content = draft.wire["content"]
        starts = rows.filter(content__startswith=content[: content.index(" ") + 1])
        assert starts.count() == 1


def check_requests(server: Moody) -> None:
    """Every request is strict, and none is sent again unless the server asked for it."""
    answered: Counter[str] = Counter()
    for call, reply in server.replies:
        assert faults(call.messages) == []
        if "error" not in reply and "raw" not in reply:
            answered[json.dumps(call.body, sort_keys=True)] += 1
    assert max(answered.values()) == 1
    asked = Counter(json.dumps(call.body, sort_keys=True) for call in server.calls)
    # A busy server is asked again, a few times; one that refused never is.
    assert max(asked.values()) <= openai_client.MAX_ATTEMPTS
    refused = [json.dumps(c.body, sort_keys=True) for c in server.calls if c.status == 400]
    assert {asked[body] for body in refused} == {1}
