"""Nothing that a message, a request or a page does reads all messages that are not summarised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatapp import transcript
from chatapp.context.backend import context_backend
from chatapp.models import POSITION_STEP, Branch, Message, Session
from chatapp.transcript.writing import TranscriptError
from compaction.branches import tail
from compaction.branches.context_builder import kept_of
from compaction.branches.leases import ensure_state
from compaction.branches.planning import PlannedCut, cut_of, input_of
from compaction.branches.snapshot import BranchSnapshot, snapshot_of
from compaction.engine.protocols import PlanFacts
from compaction.engine.registry import CUTS
from compaction.engine.types import Item
from compaction.models import CompactionRun
from compaction.profiles import save_profile
from compaction.runs.resummarize import estimate_compaction
from compaction.runs.scheduling import check
from tests.compaction.session_page import page_of
from tests.engine.strategies import conversations
from tests.factories import SessionFactory, profile

pytestmark = pytest.mark.django_db
WARM, SHORT, LONG = 500, 1_000, 20_000
TOKENS = 100
WORDS = "words that are no short reply to anything"


def stored(owner, rows: list[dict[str, Any]]) -> Session:
    """Return a session of these messages, stored as they are, with its sums."""
    session, through, chars, made = SessionFactory(owner=owner), 0, 0, []
    for number, row in enumerate(rows, 1):
        values = {"content": WORDS, "tokens": 10, "chars": len(WORDS)} | row
        through, chars = through + values["tokens"], chars + values["chars"]
        made.append(
            Message(
                session=session,
                branch=session.branch,
                position=number * POSITION_STEP,
                tokens_through=through,
                chars_through=chars,
                **values,
            )
        )
    Message.objects.bulk_create(made, batch_size=2000)
    Branch.objects.filter(pk=session.branch.pk).update(
        head_position=len(rows) * POSITION_STEP,
        message_count=len(rows),
        token_total=through,
        char_total=chars,
    )
    session.branch.refresh_from_db()
    return session


def backlog(owner, count: int) -> Session:
    """Return a session of that many messages in turns, none of them summarised."""
    made = min(count, SHORT)
    session = stored(
        owner, [{"role": "assistant" if n % 2 else "user", "tokens": TOKENS} for n in range(made)]
    )
    for done in range(made, count, made):
        _repeat(session, made, behind=done)
    Branch.objects.filter(pk=session.branch.pk).update(
        head_position=count * POSITION_STEP,
        message_count=count,
        token_total=count * TOKENS,
        char_total=count * len(WORDS),
    )
    session.branch.refresh_from_db()
    return session


def _repeat(session: Session, count: int, *, behind: int) -> None:
    """Store the first messages again behind the last ones; twenty thousand are many to make."""
    new_id = {"sqlite": "lower(hex(randomblob(16)))"}.get(connection.vendor, "gen_random_uuid()")
    places = {
        "id": new_id,
        "position": f"position + {behind * POSITION_STEP}",
        "tokens_through": f"tokens_through + {behind * TOKENS}",
        "chars_through": f"chars_through + {behind * len(WORDS)}",
    }
    columns = [field.column for field in Message._meta.concrete_fields]
    values = [places.get(column, column) for column in columns]
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO messages ({', '.join(columns)}) SELECT {', '.join(values)} "
            "FROM messages WHERE branch_id = %s AND position <= %s",
            [
                session.branch.pk.hex if new_id[0] == "l" else session.branch.pk,
                count * POSITION_STEP,
            ],
        )


@dataclass
class Reads:
    """What the database was asked, and how many rows it gave."""

    statements: int = 0
    rows: int = 0


@contextmanager
def reading() -> Iterator[Reads]:
    """Count the statements and the rows that are fetched inside the block."""
    reads = Reads()

    def one(cursor):
        row = cursor.cursor.fetchone()
        reads.rows += row is not None
        return row

    def many(cursor, *size):
        rows = cursor.cursor.fetchmany(*size)
        reads.rows += len(rows)
        return rows

    def everything(cursor):
        rows = cursor.cursor.fetchall()
        reads.rows += len(rows)
        return rows

    def each(cursor):
        for row in cursor.cursor:
            reads.rows += 1
            yield row

    with pytest.MonkeyPatch.context() as patch, CaptureQueriesContext(connection) as captured:
        patch.setattr(CursorWrapper, "fetchone", one, raising=False)
        patch.setattr(CursorWrapper, "fetchmany", many, raising=False)
        patch.setattr(CursorWrapper, "fetchall", everything, raising=False)
        patch.setattr(CursorWrapper, "__iter__", each)
        yield reads
    reads.statements = len(captured)


# --- counts ---------------------------------------------------------------------------------------

RULES: dict[str, dict[str, Any]] = {
    "a window of messages": {
        "base": "sliding_window",
        "context_size": 0,
        "compression_hard_limit": 0,
    },
    "all that would be left out": {"base": "sliding_window"},
    "a number of messages": {"message_limit": 50, "keep_last_n": 6},
    "a number of tokens": {
        "max_context_tokens": 500, "cut": "recent_tokens", "keep_recent_tokens": 1000,
    },
    "ahead of need": {
        "message_limit": 0, "max_context_tokens": 0, "prepare_ratio": 0.01, "minimum_batch": 1,
    },
    "a number of characters": {
        "message_limit": 0, "max_context_tokens": 0, "cut": "tail_chars",
        "trigger_on_history_size_chars": 2_000, "history_tail_size_chars_to_exclude": 1_000,
    },
}  # fmt: skip


def post(session: Session, api, capture) -> None:
    """Append a message by the API, and do what is done after the commit."""
    with capture(execute=True):
        url = f"/api/v1/sessions/{session.pk}/messages/"
        message = {"role": "user", "content": "What is due?"}
        assert api.post(url, {"messages": [message]}, format="json").status_code == 201


def compared(owner, acts: dict[str, Callable[[Session], Any]]) -> dict[str, Reads]:
    """Return what each act reads of a long backlog, which is what it reads of a short one."""
    found: list[dict[str, Reads]] = []
    for count in (WARM, SHORT, LONG):
        session = backlog(owner, count)
        ensure_state(session.branch)
        found.append({})
        for name, act in acts.items():
            with reading() as found[-1][name]:
                act(Session.objects.get(pk=session.pk))
    assert found[1] == found[2]
    return found[2]


@pytest.mark.parametrize("rule", RULES)
def test_planning_reads_the_same_of_any_backlog(
    owner, api, admin_client, model_server, queued, rule, django_capture_on_commit_callbacks
):
    values = dict(RULES[rule])
    base = values.pop("base", "bisect")
    save_profile(name="rule", base=base, parameters=values, make_default=True)

    def state(session: Session) -> None:
        assert api.get(f"/api/v1/sessions/{session.pk}/compaction/").json()["due"]

    def page(session: Session) -> None:
        assert admin_client.get(page_of(session)).status_code == 200

    def batch(session: Session) -> None:
        assert len(input_of(snapshot_of(session), at_most=30)) == 30

    acts = {
        "state": state,
        "page": page,
        "batch": batch,
        "message": lambda session: post(session, api, django_capture_on_commit_callbacks),
        "check": lambda session: check(snapshot_of(session)),
    }
    reads = compared(owner, acts)
    assert CompactionRun.objects.filter(status="queued").count() == 3
    assert {name: one.rows < 400 for name, one in reads.items()} == dict.fromkeys(acts, True)


def test_a_request_of_the_newest_messages_reads_the_same_of_any_backlog(
    owner, api, model_server, queued
):
    """A window that is summarised in the background, and no more sent than a limit lets through."""
    values = {"context_size": 0, "compression_hard_limit": 0, "history_limit": 60}
    save_profile(name="limited", base="sliding_window", parameters=values, make_default=True)

    def context(session: Session) -> None:
        answer = api.get(f"/api/v1/sessions/{session.pk}/context/")
        assert len(answer.json()["messages"]) == 60

    def prepare(session: Session) -> None:
        assert len(context_backend.prepare(session).messages) == 60

    reads = compared(owner, {"context": context, "prepare": prepare})
    assert CompactionRun.objects.filter(status="queued").count() == 3
    assert max(one.rows for one in reads.values()) < 200


def test_a_run_reads_each_message_once_and_one_page_more(owner):
    profile(message_limit=50, keep_last_n=6)
    snapshot = snapshot_of(backlog(owner, SHORT))
    with reading() as reads:
        items = input_of(snapshot)
    assert len(items) == SHORT - 6
    assert reads.rows < SHORT + 100


@pytest.mark.parametrize("cut", ["checkpoint", "recent_tokens"])
def test_a_cut_by_tokens_reads_hardly_more_than_it_keeps(owner, use_models, model_server, cut):
    use_models(model_server.models(CONTEXT_WINDOW=200_000))
    profile(max_context_tokens=1000, message_limit=0, cut=cut, keep_recent_tokens=20_000)
    snapshot = snapshot_of(backlog(owner, SHORT))
    with reading() as reads:
        found = cut_of(snapshot)
    assert len(found.keep) == 20_000 // TOKENS
    assert reads.rows <= len(found.keep) + 100


# --- the same plan --------------------------------------------------------------------------------


def as_row(item: Item) -> dict[str, Any]:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": "run", "arguments": "{}"}}
        for call in item.tool_calls
    ]
    return {
        "role": item.role,
        "content": item.text,
        "tokens": item.tokens,
        "chars": item.chars,
        "tool_calls": calls or None,
        "tool_call_id": item.tool_call_id,
    }


def forked(session: Session, place: int) -> None:
    """Make the messages behind a place those of a fork, which is in use then."""
    parent, fork = session.branch, None
    rows = Message.objects.filter(branch=parent, position__lte=(place + 1) * POSITION_STEP)
    for row in rows.order_by("-position"):
        # Not every place is one to fork at: a call may wait for its results there.
        with suppress(TranscriptError):
            fork = transcript.fork(session, at=row)
            break
    if fork is None:
        return
    Message.objects.filter(branch=parent, position__gt=row.position).update(branch=fork)
    Branch.objects.filter(pk=fork.pk).update(
        head_position=parent.head_position,
        message_count=parent.message_count,
        token_total=parent.token_total,
        char_total=parent.char_total,
    )
    fork.refresh_from_db()
    transcript.activate(session, fork)


def snapshot_with(session: Session, pages: tuple[int, ...], patch) -> BranchSnapshot:
    """Return a new snapshot whose tail is read in pages of these sizes."""
    patch.setattr(tail, "PAGES", pages)
    return snapshot_of(session)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    items=conversations(max_size=30),
    cut=st.sampled_from(list(CUTS)),
    kept=st.integers(1, 10),
    by_hand=st.none() | st.integers(0, 10),
    whole=st.booleans(),
    size=st.integers(1, 10),
    covered=st.integers(0, 10),
    rules=st.sets(st.integers(0, 29), max_size=3),
    fork=st.none() | st.integers(0, 29),
)
def test_any_pages_give_the_plan_of_all_messages(
    owner, monkeypatch, items, cut, kept, by_hand, whole, size, covered, rules, fork
):
    monkeypatch.setattr("compaction.branches.planning.BATCH_MARGIN", 1)
    rows = [as_row(item) for item in items]
    for place in sorted(rules & set(range(len(rows)))):
        rows[place] = {"role": "system", "pinned": True, "tokens": 7}
    session = stored(owner, rows)
    if fork is not None and fork < len(rows):
        forked(session, fork)
    values = {"cut": cut, "keep_last_n": kept, "tail_keep_size": kept}
    values |= {"history_tail_size_chars_to_exclude": 20 * kept}
    profile(**values, keep_recent_tokens=max(100, 20 * kept), context_size=0)
    state = ensure_state(session.branch)
    before = rows[:covered]
    state.cursor = len(before) * POSITION_STEP
    state.covered_messages = len(before)
    state.covered_tokens = sum(row["tokens"] for row in before)
    state.covered_chars = sum(row.get("chars", len(WORDS)) for row in before)
    state.save()

    def found(pages: tuple[int, ...]) -> tuple[PlannedCut, list[Any], list[Any]]:
        snapshot = snapshot_with(session, pages, monkeypatch)
        asked = {"keep_last_n": by_hand, "whole": whole}
        planned = cut_of(snapshot, **asked)
        everything, batch = input_of(snapshot, **asked), input_of(snapshot, at_most=size)
        return planned, [one.id for one in everything], [one.id for one in batch]

    whole_cut, everything, batch = found((1000,))
    cut_by_pages, read, read_batch = found((1, 2, 4))
    assert (read, read_batch) == (everything, batch)
    figures = (cut_by_pages.messages, cut_by_pages.tokens, cut_by_pages.keep)
    assert figures == (whole_cut.messages, whole_cut.tokens, whole_cut.keep)
    assert cut_by_pages.messages == len(read)
    if read:
        assert cut_by_pages.through == whole_cut.through


def test_a_fork_of_a_long_backlog_looks_at_its_end_alone(owner):
    profile(message_limit=50, keep_last_n=6)
    session = backlog(owner, SHORT)
    forked(session, SHORT - 10)
    with CaptureQueriesContext(connection) as captured:
        assert cut_of(snapshot_of(session)).messages == SHORT - 6
    end = str((SHORT - 2 * 65) * POSITION_STEP)
    assert sum(end in query["sql"] for query in captured) == 1


@pytest.mark.parametrize("count", [3, 63, 64, 65, 66, 200])
def test_counts_hold_where_a_page_ends(owner, count):
    profile(message_limit=50, keep_last_n=2)
    found = cut_of(snapshot_of(backlog(owner, count)))
    # The last message of an odd number is a question, which is kept besides.
    kept = 2 + count % 2
    assert (found.messages, found.tokens) == (count - kept, TOKENS * (count - kept))


def test_an_estimate_counts_what_a_run_would_read(owner, model_server):
    profile(message_limit=50, keep_last_n=6)
    found = estimate_compaction(snapshot_of(backlog(owner, 300)))
    assert (found.messages, found.tokens, found.keep) == (294, 29_400, 6)


def test_a_cut_of_a_plug_in_is_given_all_messages(owner, monkeypatch):
    seen = []

    def half(items, profile, facts: PlanFacts):
        seen.append((len(items), facts.earlier))
        return CUTS.get("last_n")(items, profile, facts)

    CUTS.use_plugins({"half": "tests.compaction.test_tail_reads.backlog"})
    try:
        monkeypatch.setitem(CUTS._loaded, "half", half)
        profile(message_limit=50, keep_last_n=6, cut="half")
        assert cut_of(snapshot_of(backlog(owner, 300))).messages == 294
    finally:
        CUTS.use_plugins({})
    assert seen == [(300, 0)]


# --- what a limit lets through --------------------------------------------------------------------


def places(rows: list[Message]) -> list[int]:
    return [row.position // POSITION_STEP for row in rows]


def test_a_limit_sends_the_newest_turns_with_rules_and_pins(owner):
    rows = [{"role": "assistant" if n % 2 else "user"} for n in range(100)]
    rows[0] = {"role": "system", "pinned": True}
    rows[9] |= {"pinned": True}
    profile(cut="tail_size", tail_keep_size=5, context_size=11)
    rules, kept = kept_of(snapshot_of(stored(owner, rows)))
    assert places(rules) == [1]
    assert places(kept) == [10, *range(91, 101)]


def test_a_limit_that_is_meant_to_hide_hides_pins_too(owner):
    rows = [{"role": "assistant" if n % 2 else "user"} for n in range(100)]
    rows[9] |= {"pinned": True}
    profile(history_limit=11)
    assert places(kept_of(snapshot_of(stored(owner, rows)))[1]) == list(range(91, 101))


@pytest.mark.parametrize(("start", "first"), [(40, 41), (None, 1)])
def test_a_last_turn_that_is_longer_than_the_limit_is_sent_whole(owner, start, first):
    rows = [{"role": "user" if n == start else "assistant"} for n in range(100)]
    profile(history_limit=11)
    assert places(kept_of(snapshot_of(stored(owner, rows)))[1]) == list(range(first, 101))


def test_rules_alone_beyond_the_limit_are_sent(owner):
    rows = [{"role": "system", "pinned": True} for _ in range(5)]
    profile(history_limit=3)
    rules, kept = kept_of(snapshot_of(stored(owner, rows)))
    assert (places(rules), kept) == ([1, 2, 3, 4, 5], [])
