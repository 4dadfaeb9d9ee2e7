"""A replay compacts where the application does, sends what it sends, and writes what it writes."""

from __future__ import annotations

import random
import re
from uuid import UUID

import pytest

from chatapp.models import Session
from chatapp.selectors import path_messages, without_pinned_system
from chatapp.transcript import set_pinned
from chatapp.transcript.writing import NewMessage
from chatapp.turns.service import Turn, run_turn
from compaction.comparison.candidates import ComparedSummariser, candidates_of
from compaction.comparison.comparing import compare
from compaction.engine.replay.figures import ReplayFigures
from compaction.models import CompactionRun, SessionSummary
from compaction.profiles import save_profile
from compaction.runs import queue
from compaction.runs.worker import execute_run
from tests.factories import SessionFactory, call, result, user

pytestmark = pytest.mark.django_db(transaction=True)
WORDS = re.findall(
    r"\S+",
    "ledger parcel invoice harbour the of and winter quota 4711 report src/app/main.py "
    "deploy refund is was REQ-2231 until because decided must never 17.5 release staging "
    "customer https://example.org/a7 failed works tomorrow 2026-03-14 deadline migration "
    "index user_id",
)
WINDOW = 3_000
ARGUMENTS = '{"path": "src/app/main.py", "line": 17}'
EXTRACTIVE = {"summariser": "extractive", "cooldown_seconds": 0}
# What each of them is about: limits by count and tokens, a sliding window, split turns, the window
# of the model, files behind the summary, drafts, a limit that hides, batches, characters, nodes
# whose abridged histories have room or are made smaller, heads that are halved or dropped.
PROFILES = {
    "counts": {"message_limit": 14, "max_context_tokens": 0, "keep_last_n": 4},
    "tokens": {"message_limit": 0, "max_context_tokens": 900, "keep_last_n": 3},
    "several": {"message_limit": 12, "keep_last_n": 2, "summary_limit": 3, "history_limit": 9},
    "window": {
        "base": "sliding_window",
        "context_size": 20,
        "tail_keep_size": 8,
        "compression_window_size": 6,
        "compression_hard_limit": 12,
        "batch_messages": 6,
        "compression_cooldown_sec": 0,
    },
    "hard limit": {
        "base": "sliding_window",
        "context_size": 16,
        "tail_keep_size": 6,
        "compression_window_size": 0,
        "compression_hard_limit": 9,
        "batch_messages": 4,
        "compression_cooldown_sec": 0,
    },
    "ahead": {
        "base": "balanced",
        "keep_recent_tokens": 500,
        "target_summary_tokens": 200,
        "prepare_ratio": 0.4,
    },
    "drafts": {
        "base": "balanced",
        "keep_recent_tokens": 500,
        "target_summary_tokens": 200,
        "publish_when_needed": True,
        "prepare_ratio": 0.5,
    },
    "inline": {
        "base": "balanced",
        "keep_recent_tokens": 400,
        "prepare_ratio": 0.0,
        "reserve_tokens": 600,
        "split_turns": True,
    },
    "agent": {
        "base": "checkpoint",
        "keep_recent_tokens": 600,
        "reserve_tokens": 800,
        "context_size_by": "count",
        "target_summary_tokens": 300,
    },
    "abridged": {
        "base": "abridged",
        "trigger_on_history_size_chars": 5_000,
        "history_tail_size_chars_to_exclude": 1_200,
    },
    "abridged in little room": {
        "base": "abridged",
        "trigger_on_history_size_chars": 4_000,
        "history_tail_size_chars_to_exclude": 600,
        "abridged_total_chars_limit": 500,
        "importance": False,
        "head_chars_limit": 1_800,
    },
    "node of several": {
        "message_limit": 14,
        "keep_last_n": 4,
        "rendering": "node",
        "summary_limit": 3,
        "abridged_total_chars_limit": 900,
        "redact_secrets": True,
        "summary_node_response_message": "Read. On we go.",
    },
    "history beside a summary": {
        "message_limit": 0,
        "trigger_on_history_size_chars": 4_500,
        "abridged_total_chars_limit": 700,
        "target_summary_tokens": 4_000,
    },
    "dropped": {
        "base": "abridged",
        "trigger_on_history_size_chars": 6_000,
        "history_tail_size_chars_to_exclude": 900,
        "head_chars_limit": 1_500,
        "head_overflow": "drop",
    },
}


def said(chance: random.Random, *, most: int) -> str:
    text = " ".join(chance.choice(WORDS) for _ in range(chance.randint(1, most)))
    return text.capitalize() + chance.choice(".?!")


def replies(chance: random.Random, turns: int) -> list[dict]:
    """Answers, some of which ask for one or two tools."""
    found: list[dict] = []
    for number in range(turns):
        for step in range(chance.choice((0, 0, 0, 1, 3))):
            calls = [
                call("read", f"c{number}-{step}-{n}", ARGUMENTS)["tool_calls"][0]
                for n in range(chance.choice((1, 2)))
            ]
            found.append({"text": "", "tool_calls": calls})
        found.append({"text": said(chance, most=90)})
    return found


def played(session: Session, server, monkeypatch, *, seed: int, turns: int) -> list[int]:
    """Talk with the session; return the tokens of each request. Runs are done at once."""
    chance = random.Random(seed)
    script = replies(chance, turns)
    server.script = [
        {"when": {"purpose": "chat", "call": number}, "reply": reply}
        for number, reply in enumerate(script, start=1)
    ]

    def put(task: str, *arguments: str) -> None:
        assert task == queue.RUN_TASK
        execute_run(UUID(arguments[0]))

    monkeypatch.setattr(queue, "_put", put)
    sizes = []
    drafts = [user(said(chance, most=60))]
    for number, reply in enumerate(script):
        turn = Turn(session=session, drafts=[NewMessage(wire=wire) for wire in drafts])
        done = run_turn(turn)
        sizes.append(done.context.account.used)
        if number == 2:
            set_pinned(done.stored[0], True)
        session.refresh_from_db()
        calls = reply.get("tool_calls", ())
        drafts = [result(one["id"], said(chance, most=120)) for one in calls]
        drafts = drafts or [user(said(chance, most=60))]
    return sizes


def replayed(session: Session, name: str = "test") -> ReplayFigures:
    found = compare([session], candidates_of([name]), ComparedSummariser())
    return found.rows[0]


def compactions(session: Session) -> list[tuple[str, str, int]]:
    """What the application did: reason, mode, and how many messages were covered then."""
    rows = SessionSummary.objects.filter(session=session).select_related("run")
    rules = session.branch.message_count - covered_by(session, session.branch.head_position)
    assert rules in (0, 1)
    return [
        (row.reason, row.run.mode, covered_by(session, row.covers_through))
        for row in rows.order_by("created_at")
    ]


def covered_by(session: Session, position: int) -> int:
    return without_pinned_system(path_messages(session.branch, through=position)).count()


@pytest.mark.parametrize(
    ("name", "seed"), [(name, 11 + number) for number, name in enumerate(PROFILES)]
)
def test_it_compacts_where_the_application_does(
    owner, model_server, use_models, monkeypatch, name, seed
):
    use_models(model_server.models(CONTEXT_WINDOW=WINDOW, MAX_OUTPUT=200))
    changes = dict(PROFILES[name])
    made = stored_profile(changes)
    rules = [{"role": "system", "content": "Answer in short. Never name REQ-1 aloud."}]
    wires = rules if seed % 2 else ()
    session = SessionFactory(owner=owner, system_prompt="You help.", wires=wires)

    sizes = played(session, model_server, monkeypatch, seed=seed, turns=16)
    figures = replayed(session, made)

    real = compactions(session)
    assert len(real) > 1
    points = [(point.reason, point.mode, point.covered) for point in figures.points]
    assert points == real
    assert list(figures.sent.points) == sizes
    assert figures.failures == CompactionRun.objects.filter(status="failed").count()


def stored_profile(changes: dict) -> str:
    base = changes.pop("base", "bisect")
    parameters = EXTRACTIVE | ({"prepare_ratio": 0.0} if base == "bisect" else {}) | changes
    row = save_profile(name="test", base=base, parameters=parameters, make_default=True)
    return row.name
