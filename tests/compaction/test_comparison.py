"""Profiles compared over stored conversations: figures, the command, what is refused."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chatapp.models import Message
from compaction.comparison.candidates import ComparedSummariser, candidates_of
from compaction.comparison.comparing import compare
from compaction.comparison.quick import joined_lines
from compaction.comparison.reading import StoredConversation
from compaction.engine.profile import PRESETS
from compaction.models import (
    CompactionProfile,
    CompactionRun,
    CompactionState,
    CompactionStep,
    SessionSummary,
)
from compaction.profiles import save_profile
from tests.factories import SessionFactory, call, result, talk, user

pytestmark = pytest.mark.django_db
HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31m\u202e & “quoted”"
# What survives is told by kind: these are the kind `markers`.
MARKER = "MK-{:04d}"
TABLES = (Message, SessionSummary, CompactionRun, CompactionStep, CompactionState)


@pytest.fixture
def session(owner, model_server, queued):
    return SessionFactory(owner=owner, wires=talk(40, marker=100, mark=MARKER.format))


def run(*arguments: str, **options) -> str:
    out = StringIO()
    call_command("compare_profiles", *arguments, stdout=out, stderr=StringIO(), **options)
    return out.getvalue()


def figures(session, *arguments: str) -> dict[str, dict]:
    found = json.loads(run(str(session.pk), "--json", *arguments))
    return {row["profile"]: row for row in found["profiles"]}


def profile(name: str, **parameters) -> None:
    save_profile(name=name, parameters={"cooldown_seconds": 0, "prepare_ratio": 0.0} | parameters)


# --- the figures ----------------------------------------------------------------------------------


def test_every_preset_is_compared_without_being_named(session):
    found = figures(session)
    assert list(found) == list(PRESETS)
    assert {row["turns"] for row in found.values()} == {40}


def test_a_limit_by_count_compacts_each_time_that_it_is_reached(session):
    # 80 messages, a request before each answer: at 13 or more, all but the question and 2 before it
    # are summarised. Requests see 1, 3, 5 … messages: the first with 13 covers 10 of them.
    profile("by-count", message_limit=13, max_context_tokens=0, keep_last_n=2)
    points = figures(session, "--profiles", "by-count")["by-count"]["points"]
    assert [point["messages"] for point in points[:2]] == [13, 23]
    assert [point["covered"] for point in points[:2]] == [10, 20]
    assert {(point["reason"], point["mode"]) for point in points} == {("message_limit", "inline")}


def test_where_nothing_is_compacted_all_is_sent_and_all_survives(session):
    profile("never", message_limit=0, max_context_tokens=0)
    row = figures(session, "--profiles", "never")["never"]
    tokens = list(
        Message.objects.filter(session=session)
        .order_by("position")
        .values_list("tokens", flat=True)
    )
    # With 4 tokens for the frame of each message, and for the beginning of the answer.
    sent = [sum(tokens[: 2 * turn + 1]) + 4 * (2 * turn + 2) for turn in range(40)]
    assert row["sent_per_turn"] == sent
    assert row["tokens_sent"] == sum(sent)
    assert (row["compactions"], row["calls"]) == (0, 0)
    # 40 markers MK-0100 … MK-0139, and nothing else but small numbers.
    assert row["survival"]["markers"] == {"named": 40, "held": 40, "share": 1.0}


def test_what_a_limit_of_the_history_leaves_out_does_not_survive(session):
    profile("newest", message_limit=0, max_context_tokens=0, history_limit=10)
    row = figures(session, "--profiles", "newest")["newest"]
    assert row["survival"]["markers"]["held"] == 5


def test_what_is_named_in_calls_results_and_times_counts_by_its_kind(owner, model_server, queued):
    wires = [
        user("Deploy REQ-2231 to https://example.org/a7 at 17.5 by 2026-03-14."),
        call("read", "c1", '{"path": "src/app/main.py"}'),
        result("c1", "user_id was null"),
        {"role": "assistant", "content": "Done."},
    ]
    session = SessionFactory(owner=owner, wires=wires)
    survival = figures(session, "--profiles", "bisect")["bisect"]["survival"]
    named = {kind: one["named"] for kind, one in survival.items()}
    assert named == {"identifiers": 1, "markers": 1, "numbers": 2, "paths": 2}


def test_a_long_tool_result_is_cut_in_the_request_that_is_counted(owner, use_models, model_server):
    use_models(model_server.models(CONTEXT_WINDOW=8_000, MAX_OUTPUT=500))
    wires = [user("Read."), call("read", "c1"), result("c1", "word " * 8_000), talk(1)[1]]
    session = SessionFactory(owner=owner, wires=wires)
    row = figures(session, "--profiles", "bisect")["bisect"]
    # 30 % of 8 000 tokens are 9 600 of its 40 000 characters: less than a quarter stays.
    whole = Message.objects.get(role="tool").tokens
    assert 0.2 * whole < row["largest_request"] < 0.26 * whole


def test_a_pause_after_which_messages_are_old_enough_compacts(owner, model_server, queued):
    start = datetime(2026, 1, 1, tzinfo=UTC)
    wires = talk(12, words=40)
    for number, wire in enumerate(wires):
        late = timedelta(hours=2) if number >= 16 else timedelta()
        wire["meta"] = {"created_at": start + timedelta(seconds=30 * number) + late}
    session = SessionFactory(owner=owner, wires=wires)
    profile(
        "by-age",
        cut="tail_size",
        tail_keep_size=6,
        context_size=60,
        compression_window_size=40,
        compression_hard_limit=0,
        compression_cooldown_sec=900,
        message_limit=0,
        max_context_tokens=0,
        minimum_batch=4,
    )
    points = figures(session, "--profiles", "by-age")["by-age"]["points"]
    assert points == [
        {"messages": 16, "covered": 10, "reason": "maximum_age", "mode": "background"}
    ]


@pytest.mark.parametrize(
    ("pause", "points"),
    [
        # 300 s of cache less 30 s and what a look may come late: due 240 s behind the answer.
        (300, [{"messages": 16, "covered": 14, "reason": "cache_expiring", "mode": "background"}]),
        (239, []),
    ],
)
def test_a_pause_in_which_the_prompt_cache_expires_compacts(
    owner, model_server, queued, pause, points
):
    start = datetime(2026, 1, 1, tzinfo=UTC)
    wires = talk(12, words=40)
    for number, wire in enumerate(wires):
        late = timedelta(seconds=pause - 30) if number >= 16 else timedelta()
        wire["meta"] = {"created_at": start + timedelta(seconds=30 * number) + late}
    session = SessionFactory(owner=owner, wires=wires)
    stored = Message.objects.filter(branch=session.branch).order_by("position")
    sixteen = sum(stored.values_list("chars", flat=True)[:16])
    save_profile(
        name="clock",
        base="abridged",
        parameters={
            "trigger_on_history_size_chars_when_cache_expiring": sixteen,
            "history_tail_size_chars_to_exclude": 1,
        },
    )
    assert figures(session, "--profiles", "clock")["clock"]["points"] == points


def test_a_session_that_a_profile_leaves_out_is_sent_whole_and_that_is_said(session):
    session.metadata = {"bot_type": "CODE_REVIEW_BOT"}
    session.save(update_fields=["metadata"])
    profile("gated", message_limit=20, keep_last_n=2, excluded_bot_types="CODE_REVIEW_BOT")
    row = figures(session, "--profiles", "gated")["gated"]
    assert row["compactions"] == 0
    assert len(row["problems"]) == 1
    assert "CODE_REVIEW_BOT" in row["problems"][0]


def test_what_an_abridged_history_holds_survives_in_its_node(session):
    held = {}
    for chars in (0, 20_000):
        name = f"history-{chars}"
        profile(
            name,
            message_limit=76,
            max_context_tokens=0,
            keep_last_n=2,
            target_summary_tokens=16,
            rendering="node",
            abridged_total_chars_limit=chars,
        )
        row = figures(session, "--profiles", name)[name]
        assert row["compactions"] == 1
        held[chars] = row["survival"]["markers"]["held"]
    # A summary of 16 tokens has room for one of 40 or two; each entry holds its own.
    assert held[20_000] >= held[0] + 5


def test_nothing_is_stored_and_no_lease_is_taken(session):
    before = [model.objects.count() for model in TABLES]
    with CaptureQueriesContext(
        connection,
    ) as captured:
        compare([session], candidates_of(), ComparedSummariser())
    writing = ("INSERT", "UPDATE", "DELETE")
    assert [one for one in captured.captured_queries if one["sql"].startswith(writing)] == []
    assert [model.objects.count() for model in TABLES] == before


def test_pages_are_read_and_not_all_messages_at_once(owner, model_server, queued, monkeypatch):
    monkeypatch.setattr("compaction.comparison.reading.PAGE", 16)
    monkeypatch.setattr("compaction.comparison.reading.PAGES_KEPT", 2)
    session = SessionFactory(owner=owner, wires=talk(40))
    conversation = StoredConversation(session)
    items = list(conversation.items(0, 80))
    positions = [conversation.sums.message(number).position for number in range(80)]
    assert [item.position for item in items] == positions
    assert conversation._page.cache_info().currsize == 2
    assert [item.text for item in conversation.items(30, 34)] == [one.text for one in items[30:34]]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_texts_in_pages_give_the_figures_of_texts_in_one(owner, model_server, monkeypatch, seed):
    chance = random.Random(seed)
    wires = talk(chance.randint(20, 60), marker=7, mark=MARKER.format)
    session = SessionFactory(owner=owner, wires=wires)
    profile("small", message_limit=chance.randint(10, 30), keep_last_n=chance.randint(0, 6))
    whole = figures(session, "--profiles", "small,sliding_window")
    monkeypatch.setattr("compaction.comparison.reading.PAGE", chance.randint(3, 20))
    assert figures(session, "--profiles", "small,sliding_window") == whole


def test_a_system_message_that_is_pinned_meanwhile_keeps_its_number(owner, model_server, queued):
    wires = [*talk(20), {"role": "system", "content": "Be short."}, *talk(20)]
    session = SessionFactory(owner=owner, wires=wires)
    conversation = StoredConversation(session)
    Message.objects.filter(session=session, role="system").update(pinned=True)
    assert [item.role for item in conversation.items(39, 42)] == ["assistant", "system", "user"]
    assert conversation.sums.message(40).role == "system"


# --- what is wrong --------------------------------------------------------------------------------


def test_a_profile_that_cannot_be_used_is_said_and_the_others_go_on(session):
    profile("broken", message_limit=12)
    CompactionProfile.objects.filter(name="broken").update(parameters={"cut": "gone"})
    out = run(str(session.pk), "--profiles", "broken,bisect")
    assert "broken: The profile broken" in out
    assert figures(session, "--profiles", "broken,bisect")["bisect"]["turns"] == 40


def test_a_strategy_that_fails_is_a_failed_attempt_and_its_sentence(session, monkeypatch):
    def fail(self, *args):
        raise RuntimeError("no luck")

    monkeypatch.setattr("compaction.engine.strategies.bisect.BisectStrategy.run", fail)
    row = figures(session, "--profiles", "bisect")["bisect"]
    assert row["failures"] > 0
    assert row["problems"][0] == "The strategy 'bisect' failed (RuntimeError: no luck)."


def test_a_cut_that_gives_no_plan_is_a_sentence_and_the_others_go_on(session, monkeypatch):
    def fail(self, *args):
        raise RuntimeError("no cut")

    monkeypatch.setattr("compaction.engine.strategies.bisect.BisectStrategy.plan", fail)
    found = figures(session, "--profiles", "bisect,sliding_window,checkpoint")
    assert "no cut" in found["bisect"]["problems"][0]
    assert found["checkpoint"]["problems"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nope"], "“nope” is no session id"),
        (["00000000-0000-4000-8000-000000000000"], "There is no session"),
        (["{session}", "--profiles", "bisect,nobody"], "There is no profile 'nobody'"),
        (["{session}", "--model", "nobody"], "No model is called 'nobody' here"),
    ],
)
def test_what_does_not_exist_is_a_sentence(session, arguments, said):
    with pytest.raises(CommandError, match=said):
        run(*(one.replace("{session}", str(session.pk)) for one in arguments))


def test_a_session_whose_model_is_gone_is_left_out_with_a_sentence(owner, session):
    gone = SessionFactory(owner=owner, wires=talk(2))
    type(gone).objects.filter(pk=gone.pk).update(model="gone")
    out = run(str(gone.pk), str(session.pk), "--profiles", "bisect")
    assert f"{gone.pk} was left out: No model is called 'gone' here." in out
    with pytest.raises(CommandError, match="No session could be replayed"):
        run(str(gone.pk))


def test_several_sessions_are_added_up(owner, session):
    other = SessionFactory(owner=owner, wires=talk(10, marker=500, mark=MARKER.format))
    both = json.loads(run(str(session.pk), str(other.pk), "--json", "--profiles", "bisect"))
    alone = [figures(one, "--profiles", "bisect")["bisect"] for one in (session, other)]
    row = both["profiles"][0]
    assert both["messages"] == 100
    for name in ("turns", "calls", "compactions", "tokens_sent"):
        assert row[name] == sum(one[name] for one in alone)
    assert row["survival"]["markers"]["named"] == 50


def test_an_empty_session_has_no_figures_but_zeros(owner, model_server):
    row = figures(SessionFactory(owner=owner), "--profiles", "balanced")["balanced"]
    assert (row["turns"], row["compactions"], row["sent_per_turn"]) == (0, 0, [])


def test_a_hostile_name_writes_nothing_that_a_terminal_obeys(session):
    profile("hostile", message_limit=12)
    rows = CompactionProfile.objects.filter(name="hostile")
    rows.update(name=HOSTILE, parameters={"cut": HOSTILE})
    out = run(str(session.pk), "--profiles", HOSTILE)
    assert "\x1b" not in out
    assert "\u202e" not in out


# --- with a model ---------------------------------------------------------------------------------


def test_a_model_is_priced_before_it_is_asked(session, model_server, use_models):
    use_models(model_server.models(PRICES={"INPUT": 10, "OUTPUT": 30}))
    out = run(str(session.pk), "--profiles", "bisect", "--model", "default")
    assert model_server.calls == []
    assert "default would be called about" in " ".join(out.split())
    assert "--yes does" in " ".join(out.split())
    row = figures(session, "--profiles", "bisect", "--model", "default")["bisect"]
    # Each call: what it reads and an instruction at 10, and the 700 tokens asked for at 30.
    least = row["calls"] * (500 * 10 + 700 * 30) / 1_000_000
    assert row["summarising_cost"] == pytest.approx(least + row["tokens_read"] * 10 / 1_000_000)


def test_with_yes_the_model_is_asked_and_nothing_is_stored(session, model_server):
    # At an odd number of messages the question makes it due, and the request waits for it.
    profile("odd", message_limit=13, max_context_tokens=0, keep_last_n=2)
    row = figures(session, "--profiles", "odd", "--model", "default", "--yes")["odd"]
    assert len(model_server.of("summary")) == row["calls"] > 0
    assert row["seconds_waited"] > 0
    assert row["waits"] == row["inline"] == row["compactions"]
    assert SessionSummary.objects.count() == CompactionRun.objects.count() == 0


def test_a_model_that_fails_is_told_and_the_replay_goes_on(session, model_server):
    model_server.script = [{"when": {}, "reply": {"error": {"status": 400, "body": "no"}}}]
    row = figures(session, "--profiles", "bisect", "--model", "default", "--yes")["bisect"]
    assert row["failures"] > 0
    assert row["problems"]
    assert row["turns"] == 40


# --- long conversations ---------------------------------------------------------------------------


def words(text: str) -> int:
    return len(text.split())


def test_what_is_new_stands_under_its_heading_and_the_state_is_the_new_one():
    previous = "## Facts\n- a b c\n- d e f\n\n## Current state\n- old state"
    new = "## Facts\n- g h i\n- a b c\n\n## Current state\n- new state"
    assert joined_lines(previous, new, 100, words) == (
        "## Facts\n- d e f\n- g h i\n- a b c\n\n## Current state\n- new state"
    )


def test_lines_of_a_summary_fade_evenly_where_there_is_no_room_for_all():
    previous = "## Facts\n" + "\n".join(f"- line {number}" for number in range(12))
    found = joined_lines(previous, "## Facts\n- fresh one", 2 + 3 * 7, words)
    # Six of twelve stay beside the new line: of each two the first.
    assert found == "## Facts\n" + "\n".join(
        [*(f"- line {number}" for number in (0, 2, 4, 6, 8, 10)), "- fresh one"]
    )


def test_without_room_for_anything_old_the_last_new_lines_go_too():
    assert joined_lines("## Facts\n- old", "## Facts\n- one\n- two", 4, words) == "## Facts\n- one"


@pytest.mark.parametrize("seed", [5, 6])
def test_quick_summaries_compact_as_often_and_send_about_as_much(
    owner, model_server, monkeypatch, seed
):
    chance = random.Random(seed)
    wires = [
        wire | {"content": f"{wire['content'][: chance.randint(40, 240)]} REQ-{number}."}
        for number, wire in enumerate(talk(150))
    ]
    session = SessionFactory(owner=owner, wires=wires)
    profile("short", message_limit=30, keep_last_n=4, target_summary_tokens=300)

    exact = figures(session, "--profiles", "short")["short"]
    assert "choose from what is new alone" not in run(str(session.pk), "--profiles", "short")
    monkeypatch.setattr("compaction.comparison.candidates.LONGEST_EXACT", 100)
    quick = figures(session, "--profiles", "short")["short"]
    # What is approximate is said where it is shown.
    said = " ".join(run(str(session.pk), "--profiles", "short").split())
    assert "1 conversation of more than" in said
    assert "choose from what is new alone" in said

    assert quick["points"] == exact["points"]
    assert quick["tokens_sent"] == pytest.approx(exact["tokens_sent"], rel=0.15)
