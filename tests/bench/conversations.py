"""Stored conversations of a wanted size, with or without a summary over all but the last part."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any

from django.contrib.auth import get_user_model
from django.db import connection

from chatapp import transcript
from chatapp.llm.tokens import ModelTokenCounter
from chatapp.models import POSITION_STEP, Branch, Message, Session
from chatapp.selectors import counter_of, path_messages
from chatapp.transcript.writing import NewMessage
from compaction.models import CompactionState, SessionSummary, SessionSummaryMessage
from compaction.runs.scheduling import assign_profile
from tests.bench.texts import Phrases, turn_columns

SUMMARY = "## Decisions\nThe parts ship in March; the budget is 40 000 and stays. " * 8
CHUNK = 5000
WINDOW_BATCH = 12


def owner() -> Any:
    """Return the user whom all benchmarks' sessions belong to."""
    return get_user_model()._default_manager.get_or_create(username="bench")[0]


@lru_cache(maxsize=4)
def _phrases(counter: ModelTokenCounter) -> Phrases:
    return Phrases.make(counter, random.Random(3), size=300)


def wires(count: int, counter: ModelTokenCounter, *, seed: int = 3) -> list[dict[str, Any]]:
    """Return that many chat messages in whole turns, the last turn perhaps cut to questions."""
    chance, found = random.Random(seed), []
    phrases = _phrases(counter)
    while len(found) < count:
        turn = turn_columns(phrases, counter, chance)
        if len(found) + len(turn) > count:
            turn = [turn[0], turn[-1]][: count - len(found)]
        found += [_wire(columns) for columns in turn]
    return found


def _wire(columns: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in columns.items() if key not in ("tokens", "tool_name")}


def stored(count: int, *, seed: int = 3) -> Session:
    """Return a new session with that many messages, none of them summarised."""
    session = transcript.create_session(owner=owner(), title=f"{count} messages")
    made = wires(count, counter_of(session), seed=seed)
    for start in range(0, count, CHUNK):
        drafts = [NewMessage(wire=wire) for wire in made[start : start + CHUNK]]
        transcript.append(session.branch, drafts)
    return session


def grow(session: Session, count: int) -> Session:
    """Repeat a session's messages behind themselves until there are so many, with right sums."""
    branch = session.branch
    branch.refresh_from_db()
    while (made := branch.message_count) < count:
        _repeat(branch, min(made, count - made))
        last = Message.objects.filter(branch=branch).order_by("-position")[0]
        branch.message_count = min(2 * made, count)
        branch.head_position = last.position
        branch.token_total, branch.char_total = last.tokens_through, last.chars_through
    branch.save(update_fields=["message_count", "head_position", "token_total", "char_total"])
    return fresh(session)


def _repeat(branch: Branch, count: int) -> None:
    """Store the first messages again behind the last one, by one statement."""
    others = {
        "id": {"sqlite": "lower(hex(randomblob(16)))"}.get(connection.vendor, "gen_random_uuid()"),
        "position": f"position + {branch.head_position}",
        "tokens_through": f"tokens_through + {branch.token_total}",
        "chars_through": f"chars_through + {branch.char_total}",
    }
    columns = [field.column for field in Message._meta.concrete_fields]
    values = ", ".join(others.get(column, column) for column in columns)
    key = Branch._meta.pk.get_db_prep_value(branch.pk, connection)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO messages ({', '.join(columns)}) SELECT {values} "
            "FROM messages WHERE branch_id = %s AND position <= %s",
            [key, count * POSITION_STEP],
        )


def summarise_all_but(session: Session, left: int) -> None:
    """Say that everything but the last `left` messages is summarised, without asking a model."""
    branch = session.branch
    newest = Message.objects.filter(branch=branch, kind=Message.Kind.MESSAGE).order_by("-position")
    last = newest[left]
    count = branch.message_count - left
    SessionSummary.objects.filter(branch=branch).delete()
    SessionSummary.objects.create(
        session=session,
        branch=branch,
        summary_text=SUMMARY,
        summary_tokens=counter_of(session).count(SUMMARY),
        first_message=last,
        last_message=last,
        trigger="manual",
        reason="manual",
        message_count=count,
        covers_from=1,
        covers_through=last.position,
    )
    CompactionState.objects.update_or_create(
        branch=branch,
        defaults={
            "cursor": last.position,
            "covered_messages": count,
            "covered_tokens": last.tokens_through,
            "covered_chars": last.chars_through,
        },
    )


def windowed(count: int, *, left: int) -> Session:
    """Return a session of that age with preset `sliding_window`, worked off batch by batch.

    The last `left` messages stand behind the cursor.
    """
    session = stored(count)
    assign_profile(session, "sliding_window")
    while (waiting := _behind_cursor(session) - left) > 0:
        summarise_next(session, min(WINDOW_BATCH, waiting))
    return fresh(session)


def _behind_cursor(session: Session) -> int:
    state = CompactionState.objects.select_related("branch").get(pk=session.active_branch_id)
    return int(state.branch.message_count - state.covered_messages)


def summarise_next(session: Session, count: int) -> None:
    """Store a summary of the next messages with its links, without asking a model."""
    state = CompactionState.objects.get(pk=session.active_branch_id)
    behind = path_messages(session.branch, after=state.cursor)
    sums = ("tokens", "tokens_through", "chars_through")
    rows = list(behind.only("position", *sums, "created_at")[:count])
    made = SessionSummary.objects.create(
        session=session,
        branch=session.branch,
        summary_text=SUMMARY,
        summary_tokens=counter_of(session).count(SUMMARY),
        first_message=rows[0],
        last_message=rows[-1],
        trigger="proactive",
        reason="message_window",
        message_count=count,
        covers_from=rows[0].position,
        covers_through=rows[-1].position,
    )
    links = [SessionSummaryMessage(summary=made, message=row) for row in rows]
    SessionSummaryMessage.objects.bulk_create(links)
    state.cursor = rows[-1].position
    state.covered_tokens, state.covered_chars = rows[-1].tokens_through, rows[-1].chars_through
    state.covered_messages += count
    state.last_consolidated_at = made.created_at
    state.save(
        update_fields=[
            "cursor", "covered_tokens", "covered_chars", "covered_messages",
            "last_consolidated_at",
        ]
    )  # fmt: skip


def fresh(session: Session) -> Session:
    """Return the session as a request reads it."""
    return Session.objects.select_related("active_branch").get(pk=session.pk)
