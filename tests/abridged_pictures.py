"""What abridged histories, the cache's clock, pins and memories show: stored for the pictures.

No server is needed: sentences are chosen. What a model would have rewritten is written here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from chatapp import transcript
from chatapp.models import Message, Session
from compaction.models import CompactionState, Memory, MemoryRun, MemoryVersion
from tests.factories import call, result, store, user

PROFILE = "pictures-abridged"
STAGES = (
    ("Move the parser out of `intake.py`.", "src/parser.py", "pytest tests/test_parser.py -q"),
    ("No, not there: it belongs to src/reading/.", "src/reading/parser.py", "git mv src/parser.py"),
    ("The build of 4.2.1 fails with E1187. Why?", "build/settings.toml", "make release"),
    (
        "We decided: tables stay in SQLite until 2031.",
        "docs/decisions.md",
        "sqlite3 store.db .dump",
    ),
    ("Add a test for the empty file.", "tests/test_parser.py", "pytest -q"),
)
LINES = (
    "Answers in British English, with metric units.",
    "The staging server is called heron, and its port is 8443.",
    "Releases go out on Tuesdays; nobody deploys on a Friday.",
    "Prefers small commits, and a body that says why.",
    "The customer's number is 40-1187.",
    "Tests are named as sentences.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AbridgedScene:
    """What is shown: a session with all of it, and one that no rule compacts."""

    session: Session
    gated: Session


def store_abridged(owner: Any) -> AbridgedScene:
    """Store both sessions and the owner's memories, and return what the pages are about."""
    from compaction.profiles import save_profile
    from compaction.runs.scheduling import assign_profile

    parameters = {
        "summariser": "extractive",
        "pinned_share": 0.02,
        "memory_budget_tokens": 400,
        "tool_actions": "save_note = created note_path\nfetch = viewed url",
        "prompt": "Write down what was decided, and why.\nKeep every path.",
        "abridged_total_chars_limit": 2_000,
        "cache_ttl_ms": 3_600_000,
        "excluded_bot_types": "1, CODE_REVIEW_BOT",
    }
    save_profile(name=PROFILE, base="abridged", parameters=parameters)
    _memories(owner)
    session = transcript.create_session(owner=owner, title="Moving a parser, abridged")
    gated = transcript.create_session(
        owner=owner, title="A reviewing bot", metadata={"bot_type": "CODE_REVIEW_BOT"}
    )
    for one in (session, gated):
        assign_profile(one, PROFILE)
        store(one, [wire for number in range(15) for wire in _exchange(number)])
    _compact(session)
    _compact(session, more=8)
    for row in session.messages.filter(role=Message.Role.USER).order_by("position")[:3]:
        transcript.set_pinned(row, True)
    answer = session.messages.filter(role="assistant").order_by("position")[1]
    transcript.set_pinned(answer, True)
    _start_clock(session)
    return AbridgedScene(session=session, gated=gated)


def _exchange(number: int) -> list[dict[str, Any]]:
    asked, path, command = STAGES[number % len(STAGES)]
    key = f"call-{number}"
    edit = {"command": "create", "path": path, "file_text": "…"}
    text = f"Stage {number + 1} is done: `{path}` is changed and the tests are green. "
    return [
        user(f"{asked} This is request {number + 1} about the parser and {path}. " * 3),
        call("str_replace_editor", f"{key}-a", json.dumps(edit)),
        result(f"{key}-a", f"New file created at {path}\n" + "line of the file\n" * 20),
        call("bash", f"{key}-b", json.dumps({"command": command})),
        result(f"{key}-b", "12 passed in 0.8 s"),
        {"role": "assistant", "content": text * 6},
    ]


def _compact(session: Session, *, more: int = 0) -> None:
    from compaction.runs.worker import compact_branch

    if more:
        store(session, [wire for number in range(15, 15 + more) for wire in _exchange(number)])
    run = compact_branch(session=session, trigger="manual", reason="manual")
    assert run.status == "succeeded", run.error


def _start_clock(session: Session) -> None:
    """Leave what a turn of ten minutes ago leaves."""
    from django.utils import timezone

    soon = timezone.now() + timedelta(minutes=50)
    assert CompactionState.objects.filter(branch=session.active_branch_id).update(
        cache_expires_at=soon
    )


def _memories(owner: Any) -> None:
    """Store lines by hand, proposed and rewritten ones, and what was done with them."""
    from django.utils import timezone

    from compaction.engine.memories import ProposedLine
    from compaction.memories.lines import add_memory, propose_memories
    from compaction.memories.versions import stored_lines

    for number, line in enumerate(LINES):
        add_memory(owner=owner, text=line, bot="" if number % 3 else "reviewer", created_by=owner)
    proposed = [
        ProposedLine(text="Works on a machine with 2 cores.", message=None),
        ProposedLine(text="<b>Never</b> wants tables in answers.", message=None),
    ]
    propose_memories(owner_id=owner.pk, bot="", lines=proposed, sources=[])
    old = list(Memory.objects.filter(owner=owner, bot="", accepted_at__isnull=False)[:3])
    before = stored_lines(old)
    Memory.objects.filter(pk__in=[row.pk for row in old[1:]]).delete()
    old[0].text = "British English; small commits; heron listens on port 8443."
    old[0].origin = Memory.Origin.REWRITTEN
    old[0].save()
    now = timezone.now()
    run = MemoryRun.objects.create(
        owner=owner, kind="compress", status="succeeded", model="summaries", lines_before=3,
        lines_after=1, model_calls=1, spent_tokens=412, started_at=now, finished_at=now,
    )  # fmt: skip
    MemoryVersion.objects.create(
        owner=owner, run=run, before=before, after=stored_lines(old[:1]), lines_before=3,
        lines_after=1, kept_lines=1, model="summaries",
    )  # fmt: skip
    MemoryRun.objects.create(
        owner=owner, kind="compress", status="failed", model_calls=2, spent_tokens=1_204,
        error_code="bad_answer", bot="reviewer", started_at=now, finished_at=now,
        error="The answer has 62 lines; at most 50 were asked for. Nothing was changed.",
    )  # fmt: skip
    MemoryRun.objects.create(owner=owner, kind="extract", status="queued")


def rows_of_abridged(scene: AbridgedScene) -> dict[str, Any]:
    """Return the rows whose pages are shown, by the names of their pictures."""
    pinned = scene.session.messages.filter(pinned=True).order_by("position").first()
    return {
        "pinned": pinned,
        "memory": Memory.objects.exclude(origin="proposed").first(),
        "memory-proposed": Memory.objects.filter(origin="proposed").first(),
        "memory-run": MemoryRun.objects.filter(status="failed").first(),
        "memory-version": MemoryVersion.objects.first(),
    }
