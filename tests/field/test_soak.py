"""Many turns with tools against each character of server: no turn lost, nothing forgotten.

SOAK_TURNS says how many; the product is held to 200 by hand, to fewer in every run.
"""

from __future__ import annotations

import os

import pytest

from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage
from chatapp.turns.service import Turn, run_turn
from compaction.doctor.examine import examine
from compaction.engine.profile import PRESETS
from compaction.models import CompactionRun, SessionSummary
from compaction.profiles import save_profile
from compaction.runs.scheduling import assign_profile
from compaction.runs.worker import execute_run
from tests.factories import SessionFactory, result, user
from tests.facts import code
from tests.field.characters import CHARACTERS, CharacterServer

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

TURNS = int(os.environ.get("SOAK_TURNS", "24"))
LEARNING = 6
"""Turns in which a server may still teach something."""
MOST_REQUESTS = 1.1
"""A turn, once the server has taught what it wants; a stream that breaks off is asked for again."""
WINDOW = 8_000
ROOM_FOR_MARKERS = 8 * TURNS
"""Tokens: a summary that names them all must not be cut at twice its target."""
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]


@pytest.fixture
def session(owner, queued) -> Session:
    return SessionFactory(owner=owner, system_prompt="Be brief.", tools=TOOLS)


def take_turn(session: Session, text: str, *, stream: bool) -> int:
    """Ask, answer the calls that come back, let the queue do its work; return the model's turns."""
    wires, asked = [user(text)], 0
    while wires:
        drafts = [NewMessage(wire=wire) for wire in wires]
        answer = run_turn(Turn(session=session, drafts=drafts, stream=stream)).answer
        asked += 1
        wires = [result(call["id"], "It was found.") for call in answer.tool_calls or ()]
    for run in CompactionRun.objects.filter(status="queued"):
        execute_run(run.pk)
    session.refresh_from_db()
    return asked


@pytest.mark.parametrize("preset", ["bisect", "sliding_window"])
@pytest.mark.parametrize("character", CHARACTERS, ids=lambda one: one.name)
def test_no_turn_is_lost_and_nothing_is_forgotten(
    character, preset, session, use_models, monkeypatch
):
    monkeypatch.setattr("chatapp.llm.openai_client.FIRST_WAIT_SECONDS", 0.001)
    planted = [code(number) for number in range(TURNS)]
    with CharacterServer(character) as server:
        use_models(
            {
                "default": {
                    "BACKEND": "chatapp.llm.openai_client.OpenAIModel",
                    "NAME": "scripted",
                    "CONTEXT_WINDOW": WINDOW,
                    "MAX_OUTPUT": 1024,
                    "ENCODING": "",
                    "API_KEY": "test",
                    "BASE_URL": server.url,
                }
            }
        )
        target = max(PRESETS[preset].target_summary_tokens, ROOM_FOR_MARKERS)
        save_profile(name="soak", base=preset, parameters={"target_summary_tokens": target})
        assign_profile(session, "soak")
        turns = 0
        for number, marker in enumerate(planted):
            if number == LEARNING:
                turns, server.asked = 0, 0
            text = f"Remember {marker} for the order. {'And this is said beside it. ' * 8}"
            turns += take_turn(session, text, stream=character.streams)
    assert server.asked / turns <= (1.25 if character.forgets_ends else MOST_REQUESTS)
    questions = Message.objects.filter(session=session, role="user").count()
    assert questions == TURNS
    summaries = SessionSummary.objects.filter(session=session, status="active")
    assert summaries.exists()
    failed = CompactionRun.objects.filter(status="failed")
    assert not failed.exists(), failed[0].error
    known = str(server.last["messages"]) + "".join(one.summary_text for one in summaries)
    assert [marker for marker in planted if marker not in known] == []
    answers = Message.objects.filter(session=session, role="assistant")
    assert not [row.content for row in answers if "Let me see" in (row.content or "")]
    assert examine(session.pk) == []
