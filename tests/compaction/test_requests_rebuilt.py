"""Two hundred turns with everything that can happen between them: each answer's request, rebuilt,
is what the scripted server received.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from chatapp import transcript
from chatapp.answer_requests import AnswerRequest
from chatapp.models import Branch, Message, Session
from chatapp.selectors import path_messages
from chatapp.transcript import set_pinned
from chatapp.transcript.writing import NewMessage
from chatapp.turns.rebuilding import rebuild
from chatapp.turns.service import Turn, TurnFailedError, run_turn
from compaction.memories.lines import add_memory
from compaction.models import RecoveryStep, SessionSummary
from tests import facts
from tests.compaction.support import compact
from tests.factories import SessionFactory, profile, user

pytestmark = pytest.mark.django_db
TURNS = {"chat": 200, "responses": 60}
WINDOW, ALLOWED = 3_000, 1_500
PIXEL = "data:image/png;base64," + "iVBORw0KGgo" * 40
OVERFLOW = {
    "error": {
        "status": 400,
        "body": {"error": {"code": "context_length_exceeded", "message": "too large"}},
    }
}


def tool(name: str) -> dict:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def called(number: int) -> dict:
    """An answer that calls a tool, under an id that servers use again and again."""
    function = {"name": "read", "arguments": '{"a": 1}'}
    return {"tool_calls": [{"id": f"call_{number % 3}", "type": "function", "function": function}]}


def script(number: int) -> list[dict[str, Any]]:
    return [
        {"when": {"purpose": "chat", "est_tokens_gt": ALLOWED}, "reply": OVERFLOW},
        {"when": {"purpose": "chat", "contains": f"CALL {number}."}, "reply": called(number)},
        {"when": {"purpose": "chat"}, "reply": {"text": f"answer {number}", "encrypted": "r" * 9}},
        {"when": {}, "reply": {"text": f"Short summary {number}."}},
    ]


@dataclass(kw_only=True)
class Conversation:
    """One session that lives through two hundred turns, and what its server received for each."""

    session: Session
    server: Any
    dice: random.Random
    sent: dict[Any, dict[str, Any]] = field(default_factory=dict)
    did: Counter[str] = field(default_factory=Counter)

    def turn(self, number: int) -> None:
        self.session = Session.objects.get(pk=self.session.pk)
        self.server.script = script(number)
        drafts = [NewMessage(wire=self._question(number))]
        stream, edits = self.dice.random() < 0.2, self._edited()
        answer = self._answer(Turn(session=self.session, drafts=drafts, stream=stream, edits=edits))
        while answer is not None and answer.tool_calls:
            self.did["calls"] += 1
            lines = self.dice.choice([5, 60, 500])
            content = f"line of {number}\n" * lines
            results = [
                NewMessage(wire={"role": "tool", "tool_call_id": call["id"], "content": content})
                for call in answer.tool_calls
            ]
            self.server.script = [one for one in script(number) if "CALL" not in json.dumps(one)]
            answer = self._answer(Turn(session=self.session, drafts=results))

    def _question(self, number: int) -> dict[str, Any]:
        text = f"question {number} " + "lorem " * self.dice.choice([1, 20, 150])
        if self.dice.random() < 0.2:
            text = f"CALL {number}. {text}"
        if self.dice.random() < 0.08:
            self.did["pictures"] += 1
            image = {"type": "image_url", "image_url": {"url": PIXEL}}
            return {"role": "user", "content": [{"type": "text", "text": text}, image]}
        return user(text)

    def _edited(self) -> Message | None:
        if self.dice.random() > 0.06:
            return None
        asked = [row for row in path_messages(self.session.branch) if row.is_question]
        self.did["branches"] += 1
        return self.dice.choice(asked[-4:]) if asked else None

    def _answer(self, turn: Turn) -> Message | None:
        try:
            answer = run_turn(turn).answer
        except TurnFailedError:
            self.did["failed"] += 1
            return None
        # Of all that went out for this answer, the request that was not refused.
        call = [one for one in self.server.of("chat") if one.status == 200][-1]
        self.sent[answer.pk] = call.body
        return answer

    def something_happens(self, number: int) -> None:
        """Change what later requests are made of, now and then."""
        acts = [self.prompt, self.tools, self.profile, self.pin, self.memory, self.compact]
        acts += [self.switch, self.insert]
        if self.dice.random() < 0.4:
            act = self.dice.choice(acts)
            self.did[act.__name__] += 1
            act(number)

    def prompt(self, number: int) -> None:
        Session.objects.filter(pk=self.session.pk).update(system_prompt=f"Prompt {number}. " * 5)

    def tools(self, number: int) -> None:
        chosen = [tool("read"), tool(f"t{number}")][: self.dice.randint(1, 2)]
        Session.objects.filter(pk=self.session.pk).update(tools=chosen)

    def profile(self, number: int) -> None:
        rendering = self.dice.choice(["system", "merged_system", "user_tags"])
        profile(**settings_of(rendering=rendering, keep_last_n=self.dice.randint(2, 6)))

    def pin(self, number: int) -> None:
        rows = list(path_messages(self.session.branch))
        set_pinned(self.dice.choice(rows), self.dice.random() < 0.5)

    def memory(self, number: int) -> None:
        add_memory(owner=self.session.owner, text=f"They like number {number}.")

    def compact(self, number: int) -> None:
        self.server.script = script(number)
        compact(Session.objects.get(pk=self.session.pk))

    def switch(self, number: int) -> None:
        branches = list(Branch.objects.filter(session=self.session, kind="fork"))
        if branches:
            transcript.switch(Session.objects.get(pk=self.session.pk), branches[-1])

    def insert(self, number: int) -> None:
        session = Session.objects.get(pk=self.session.pk)
        last = path_messages(session.branch).order_by("-position").first()
        draft = NewMessage(wire=user(f"put between {number}"))
        transcript.insert_between(session.branch, after=last.position, draft=draft)


def settings_of(**changes: Any) -> dict[str, Any]:
    return {"message_limit": 14, "keep_last_n": 4, "max_context_tokens": 0} | changes


@pytest.fixture
def server(model_server, use_models):
    use_models(model_server.models(CONTEXT_WINDOW=WINDOW, MAX_OUTPUT=300), TOKEN_COUNTER="chars4")
    return model_server


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_every_request_of_two_hundred_turns_is_rebuilt(owner, server, queued, use_models, api):
    if api == "responses":
        models = server.models(CONTEXT_WINDOW=WINDOW, MAX_OUTPUT=300, KEEPS_RESPONSES=True)
        use_models(models, TOKEN_COUNTER="chars4")
    profile(**settings_of(memory_budget_tokens=200))
    session = SessionFactory(owner=owner, system_prompt="Be brief.", tools=[tool("read")], api=api)
    dice = random.Random(f"{facts.seed()} {api}")
    talk = Conversation(session=session, server=server, dice=dice)
    for number in range(TURNS[api]):
        talk.turn(number)
        talk.something_happens(number)
    assert len(talk.sent) > TURNS[api] * 0.9
    for pk, body in talk.sent.items():
        found = rebuild(Message.objects.get(pk=pk))
        assert json.dumps(found.body, sort_keys=True) == json.dumps(body, sort_keys=True)
    # What it is about did happen, and an answer takes a few hundred bytes.
    assert SessionSummary.objects.exists()
    if api == "chat":
        assert RecoveryStep.objects.filter(action="compact", outcome="smaller").exists()
        assert all(talk.did[name] for name in ("calls", "pictures", "branches", "pin", "prompt"))
    record, texts = sizes(session)
    assert record < 700
    assert texts < 300


def sizes(session: Session) -> tuple[float, float]:
    """Return bytes of a record, and of all texts together, for each answer."""
    rows = AnswerRequest.objects.filter(session=session)
    records = [len(json.dumps(row.made_of)) for row in rows.filter(message__isnull=False)]
    texts = [len(bytes(row.packed)) for row in rows.filter(message__isnull=True)]
    return sum(records) / len(records), sum(texts) / len(records)
