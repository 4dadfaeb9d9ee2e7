"""Whatever was posted, pinned and compacted: the strictest server takes the request that comes.

chatapp's own tests hold the outgoing form against any list of messages; here the list is what a
stored session, its summaries and its profile make of it.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from chatapp import transcript
from chatapp.context.backend import context_backend
from chatapp.llm.wires import arguments_of
from chatapp.messages.outgoing import USER_LAST
from chatapp.models import Message, Session
from chatapp.turns.request import model_of, request_of
from compaction.engine.profile import PRESETS
from compaction.engine.registry import RENDERINGS
from compaction.models import SessionSummary
from tests.chatapp.test_outgoing import faults
from tests.compaction.support import NEVER, compact
from tests.factories import SessionFactory, profile, store, user
from tests.facts import seed

pytestmark = pytest.mark.django_db

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
HIVES = "Seven hives stand at Kilmory, and the order NB-4711 costs 250 euros. " * 12
CONTENTS = (
    "", " ", "\n\n", None, HIVES, "The order is made.", HIVES.upper(),
    [{"type": "text", "text": "A note."}, {"type": "image_url", "image_url": {"url": "data:,A"}}],
    [{"type": "text", "text": " "}],
)  # fmt: skip
ARGUMENTS = ("{}", '{"at": 1}', '{"at": ', "[1]", "null", "", '"text"')
IDS = ("c1", "c2", "x" * 70, "call 3", "ab12cd34e", "é")
# Of so few messages the presets' own tails would keep all.
SMALL_TAILS = {
    "keep_last_n": 3, "keep_recent_tokens": 200, "tail_keep_size": 4, "batch_messages": 20,
    "history_tail_size_chars_to_exclude": 500, "minimum_gain": 0, "strategy": "digest",
}  # fmt: skip
STRICTEST = {
    "alternating_roles": True, "several_system_messages": False, "call_ids": False, "parts": False,
}  # fmt: skip


def posted(chance: random.Random) -> dict[str, Any]:
    """Return a message as somebody may post it, in no order with others."""
    content = chance.choice(CONTENTS)
    kind = chance.choice(("user", "user", "assistant", "assistant", "calls", "tool", "system"))
    if kind == "tool":
        return {"role": "tool", "tool_call_id": chance.choice(IDS), "content": content}
    if kind != "calls":
        return {"role": kind, "content": content or "Said."}
    calls = [
        {
            "id": chance.choice(IDS),
            "type": "function",
            "function": {"name": "look", "arguments": chance.choice(ARGUMENTS)},
        }
        for _ in range(chance.randint(1, 2))
    ]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def request_body(session: Session) -> dict[str, Any]:
    """Return the body of the next turn's request."""
    context = context_backend.preview(session)
    model = context.model or model_of(session)
    request = request_of(session, context, model)
    asking = replace(request, adaptations=request.adaptations | {USER_LAST})
    return arguments_of(model, asking)


def session_of(chance: random.Random, owner: Any, *, tools: bool) -> Session:
    """Return a session of messages in any order, some of them pinned, that was compacted twice."""
    prompt = chance.choice(("", "Be brief."))
    session = SessionFactory(owner=owner, system_prompt=prompt, tools=TOOLS if tools else [])
    for _ in range(2):
        store(session, [posted(chance) for _ in range(chance.randint(8, 16))])
        rows = list(Message.objects.filter(session=session, kind=Message.Kind.MESSAGE))
        for row in chance.sample(rows, min(len(rows), chance.randint(0, 2))):
            transcript.set_pinned(row, True)
        compact(session)
        session.refresh_from_db()
    store(session, [posted(chance) for _ in range(chance.randint(0, 4))])
    store(session, [user("the question")])
    return session


@pytest.mark.parametrize("preset", sorted(PRESETS))
@pytest.mark.parametrize("rendering", sorted(RENDERINGS))
def test_any_session_makes_a_request_that_the_strictest_server_takes(
    owner, queued, model_server, use_models, preset, rendering
):
    parameters = PRESETS[preset].as_dict() | NEVER | SMALL_TAILS
    profile(**parameters | {"rendering": rendering})
    chance = random.Random(f"{seed()} {preset} {rendering}")
    for tools in (True, False):
        capabilities = STRICTEST | ({} if tools else {"tools": False})
        use_models(model_server.models(CAPABILITIES=capabilities))
        session = session_of(chance, owner, tools=tools)
        body = request_body(session)
        assert faults(body["messages"], tools=bool(body.get("tools"))) == []
        assert "the question" in json.dumps(body["messages"][-1])
        again = request_body(Session.objects.get(pk=session.pk))
        assert json.dumps(again) == json.dumps(body)
    assert SessionSummary.objects.exists()
