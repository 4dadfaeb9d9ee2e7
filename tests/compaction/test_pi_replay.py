"""A coding agent's real session, replayed with the usage that its model reported.

990 messages, 55 turns. Lines are numbered from 0, as the agent numbers its entries. Nothing of its
text is in here.
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from chatapp import transcript
from chatapp.context.backend import context_backend
from chatapp.formats.records import ImportedMessage, visible_line
from chatapp.formats.registry import parse
from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage
from compaction.branches.coverage import hidden_messages
from compaction.branches.planning import decision_of
from compaction.branches.snapshot import snapshot_of
from compaction.convert import to_item
from compaction.engine.policy.cuts import keep_no_fewer_tokens
from compaction.engine.strategies.iterative import turn_start
from compaction.engine.types import Item
from compaction.models import CompactionRun, SessionSummary
from compaction.profiles import save_profile
from tests.compaction.support import compact
from tests.factories import SessionFactory
from tests.real_data import ABSENT, DATA

pytestmark = pytest.mark.django_db
WINDOW, RESERVE, MODEL = 200_000, 16_384, "claude-opus-4-5"
THRESHOLD = WINDOW - RESERVE
# By hand, and by the rule: the lines of the agent's own compactions stand one behind.
BY_HAND, BY_RULE = 358, 627
# What an answer reports below this is far from the threshold; the rules are not asked each time.
FAR_BELOW = 170_000


@dataclass(frozen=True, kw_only=True)
class Recording:
    """The session's file: its entries, and of each line that is a message the imported one."""

    entries: list[dict[str, Any]]
    messages: dict[int, ImportedMessage] = field(repr=False)

    @property
    def asked(self) -> list[int]:
        """The lines of the user's messages."""
        return [line for line in self.messages if self.role(line) == "user"]

    def role(self, line: int) -> str:
        """Return the agent's own word for who speaks."""
        return str(self.entries[line].get("message", {}).get("role", ""))

    def between(self, first: int, end: int) -> list[int]:
        """Return the lines of messages from one on, up to another."""
        return [line for line in self.messages if first <= line < end]


@pytest.fixture(scope="module")
def recording() -> Recording:
    path = DATA / "pi" / "before-compaction.jsonl"
    if not path.is_file():
        pytest.skip(ABSENT)
    content = path.read_bytes()
    entries = [json.loads(line) for line in content.splitlines()]
    (conversation,) = parse(content, name=path.name).conversations
    # Keys are lines, counted from 1. Answers that ended before they said anything are left out.
    messages = {int(one.key.removeprefix("line:")) - 1: one for one in visible_line(conversation)}
    return Recording(entries=entries, messages=messages)


def test_the_file_is_what_its_description_says(recording):
    roles = [entry["type"] for entry in recording.entries]
    assert (roles.count("message"), len(recording.asked)) == (990, 55)
    assert reported(recording, BY_HAND) == 175_004
    assert (reported(recording, 625), reported(recording, BY_RULE)) == (182_858, 185_014)
    assert THRESHOLD == 183_616


def reported(recording: Recording, line: int) -> int:
    """Return what the model's server counted with an answer; 0 for another message."""
    usage = recording.messages[line].usage or {}
    return int(usage.get("prompt_tokens", 0)) + int(usage.get("completion_tokens", 0))


# --- where the cuts fall -------------------------------------------------------------------------


def quarters(message: Mapping[str, Any]) -> int:
    """Return the tokens of a message by the agent's own estimate: four characters are one."""
    if message["role"] == "bashExecution":
        return math.ceil(len(message.get("command", "") + message.get("output", "")) / 4)
    blocks = message["content"]
    if isinstance(blocks, str):
        return math.ceil(len(blocks) / 4)
    return math.ceil(sum(map(_characters, blocks)) / 4)


def _characters(block: Mapping[str, Any]) -> int:
    if block["type"] == "toolCall":
        arguments = json.dumps(block["arguments"], separators=(",", ":"), ensure_ascii=False)
        return len(block["name"]) + len(arguments)
    return len(block.get("text", "") or block.get("thinking", ""))


def items_of(recording: Recording, lines: Sequence[int]) -> list[Item]:
    """Return the messages as the engine sees them, with the agent's estimate as their tokens."""
    found = []
    for line in lines:
        wire = recording.messages[line].wire
        row = Message(
            position=line + 1,
            role=wire["role"],
            content=str(wire.get("content") or ""),
            tool_calls=wire.get("tool_calls"),
            tool_call_id=wire.get("tool_call_id") or "",
            tokens=quarters(recording.entries[line]["message"]),
        )
        found.append(to_item(row))
    return found


@pytest.mark.parametrize(("line", "characters"), [(1, 134_883), (91, 131_882), (459, 167_238)])
def test_the_longest_turns_are_parted(recording, line, characters):
    end = next((asked for asked in recording.asked if asked > line), max(recording.messages) + 1)
    turn = recording.between(line, end)
    assert sum(map(_said, (recording.entries[one]["message"] for one in turn))) == characters
    items = items_of(recording, recording.between(0, end))
    plan = keep_no_fewer_tokens(items, 20_000)
    assert plan.keep[0].role == "assistant"
    start = turn_start(plan.summarise, parts_turn=True)
    assert plan.summarise[start].position - 1 == line


def _said(message: Mapping[str, Any]) -> int:
    """Return the characters of a message by the agent's own estimate."""
    blocks = message["content"]
    return len(blocks) if isinstance(blocks, str) else sum(map(_characters, blocks))


@pytest.mark.parametrize(
    ("first", "end", "kept_from", "turn_from", "kept"),
    [(0, 359, 260, 195, 19_883), (260, 628, 534, 523, 19_650)],
)
def test_the_cuts_fall_where_its_own_rule_puts_them(
    recording, first, end, kept_from, turn_from, kept
):
    lines = recording.between(first, end)
    plan = keep_no_fewer_tokens(items_of(recording, lines), 20_000)
    assert plan.keep[0].position - 1 == kept_from
    assert sum(item.tokens for item in plan.keep) == kept
    # The turn's beginning: the cut parts it.
    starts = [line for line in lines if recording.role(line) in ("user", "bashExecution")]
    assert max(line for line in starts if line <= kept_from) == turn_from < kept_from


# --- the replay ----------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Replay:
    """The session as far as it was replayed, and the answers at which a rule fired."""

    session: Session
    recording: Recording
    strict: Any
    fired: list[int] = field(default_factory=list)

    def go_on(self, first: int, end: int) -> None:
        """Store the lines as they came, with their usage; ask the rules after each large answer."""
        waiting: list[NewMessage] = []
        for line in self.recording.between(first, end):
            message = self.recording.messages[line]
            waiting.append(
                NewMessage(
                    wire=message.wire,
                    usage=message.usage,
                    finish_reason=message.finish_reason,
                    metadata=message.metadata,
                )
            )
            if reported(self.recording, line) > FAR_BELOW or line == end - 1:
                self._store(waiting)
                if decision_of(snapshot_of(self.session)) is not None:
                    self.fired.append(line)
        self._store(waiting)

    def _store(self, waiting: list[NewMessage]) -> None:
        transcript.append(self.session.branch, waiting)
        waiting.clear()
        self.session.branch.refresh_from_db()

    def check(self) -> None:
        """Check that a strict server takes the next request, and that no message is lost.

        Each one is in a summary or is sent, and none is in two summaries.
        """
        branch = self.session.branch
        cursor = snapshot_of(self.session).state.cursor
        assert not hidden_messages(branch, cursor).exists()
        counts = SessionSummary.objects.values_list("message_count", flat=True)
        behind = Message.objects.filter(branch=branch, kind="message", position__gt=cursor)
        assert sum(counts) + behind.count() == branch.message_count
        request = context_backend.preview(self.session)
        assert self.strict(list(request.messages)) == []
        assert {row.place for row in behind} <= set(request.places)


@pytest.fixture
def replay(recording, shared, owner, use_models, model_server, queued) -> Replay:
    model_server.script = [
        {"when": {"purpose": "chat"}, "reply": {"text": "ok"}},
        {"when": {}, "reply": {"text": "SUMMARY The agent was refactored."}},
    ]
    use_models(
        model_server.models(NAME=MODEL, CONTEXT_WINDOW=WINDOW, MAX_OUTPUT=8192),
        TOKEN_COUNTER="estimate",
    )
    save_profile(name="agent", base="checkpoint", parameters={}, make_default=True)
    spec = importlib.util.spec_from_file_location("caselib", shared / "cases" / "caselib.py")
    lib = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lib)
    session = SessionFactory(owner=owner)
    return Replay(session=session, recording=recording, strict=lib.strict)


def test_the_threshold_is_passed_once_and_nothing_is_lost_in_three_rounds(replay):
    replay.go_on(0, BY_HAND + 1)
    # What the agent's user did by hand there, no rule does.
    assert replay.fired == []
    assert replay.strict(list(context_backend.preview(replay.session).messages)) == []
    first = compact(replay.session)
    assert first.status == "succeeded", first.error
    replay.check()

    replay.go_on(BY_HAND + 1, BY_RULE + 1)
    assert replay.fired == [BY_RULE]
    # Between two steps of a tool loop: the results come, and the request waits for the summary.
    results = replay.recording.between(BY_RULE + 1, 711)
    end = next(line for line in results if replay.recording.role(line) != "toolResult")
    replay.fired.clear()
    for line in replay.recording.between(BY_RULE + 1, end):
        replay._store([NewMessage(wire=replay.recording.messages[line].wire)])
    context = context_backend.prepare(replay.session)
    second = CompactionRun.objects.latest("created_at")
    assert (second.reason, second.mode, second.status) == ("window", "inline", "succeeded")
    assert replay.strict(list(context.messages)) == []
    assert context.messages[-1]["role"] == "tool"
    replay.check()

    replay.go_on(end, len(replay.recording.entries))
    assert replay.fired == []
    third = compact(replay.session)
    assert third.status == "succeeded", third.error
    replay.check()
    assert CompactionRun.objects.filter(status="succeeded").count() == 3
