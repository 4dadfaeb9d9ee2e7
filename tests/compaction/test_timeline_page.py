"""The timeline with what compaction adds: runs and recoveries, each thing told once."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from chatapp.admin.timeline import timeline_sources
from chatapp.admin.toolkit.timeline import read_timeline
from chatapp.models import Branch, Incident, Session
from chatapp.turns.service import Turn, TurnFailedError, run_turn
from tests.compaction.recoveries import at, recovery_of, run_of
from tests.compaction.support import NEVER, compact
from tests.factories import SessionFactory, call, profile, result, store, talk, user

pytestmark = pytest.mark.django_db

HOSTILE = '</title></svg><script>alert("x")</script>'
OVERFLOW = {
    "error": {
        "status": 400,
        "body": {"error": {"code": "context_length_exceeded", "message": "too large"}},
    }
}


def timeline_of(session: Session) -> str:
    return reverse("admin:chatapp_session_timeline", args=[session.pk])


def page_of(row) -> str:
    name = f"{row._meta.app_label}_{row._meta.model_name}"
    return reverse(f"admin:{name}_change", args=[row.pk])


def entries(session: Session, **asked) -> list:
    return read_timeline(session, timeline_sources(), **asked).entries


def told(session: Session) -> list[tuple[str, str]]:
    return [(entry.label, entry.title) for entry in entries(session)]


@pytest.fixture
def session(owner, model_server, use_models, queued) -> Session:
    use_models(model_server.models(CONTEXT_WINDOW=8000, MAX_OUTPUT=500), TOKEN_COUNTER="chars4")
    return SessionFactory(owner=owner)


# --- runs -----------------------------------------------------------------------------------------


def test_a_run_tells_its_reason_and_what_it_freed(session):
    run = run_of(session)
    (entry,) = entries(session)
    assert (entry.label, entry.title, entry.tone) == ("Succeeded", "Compaction", "good")
    assert entry.reason == "Window nearly full (threshold)."
    assert ("Tokens of the request", "9,000 → 4,000") in entry.numbers
    assert ("Model calls", "2") in entry.numbers
    assert entry.links[0].url == page_of(run)


def test_a_failed_run_tells_why_and_what_it_means(session):
    run_of(session, status="failed", error_code="bad_answer", error="An empty text.",
           tokens_before=None, tokens_after=None)  # fmt: skip
    (entry,) = entries(session)
    assert (entry.label, entry.tone) == ("Failed", "bad")
    assert entry.title == "Compaction: The answer was no summary"
    assert entry.reason == "Window nearly full (threshold). An empty text."
    assert "nothing is lost" in entry.means
    assert "Tokens of the request" not in dict(entry.numbers)


def test_an_interrupted_run_reads_interrupted(session):
    run_of(session, status="failed", error_code="interrupted")
    assert entries(session)[0].label == "Interrupted"


@pytest.mark.parametrize("status", ["queued", "running", "skipped", "cancelled"])
def test_a_run_in_every_state_is_shown(session, admin_client, status):
    run_of(session, status=status)
    assert entries(session)[0].label == status.capitalize()
    assert admin_client.get(timeline_of(session)).status_code == 200


# --- recoveries
# --------------------------------------------------------------------------------------


def test_a_ladder_is_one_entry_that_tells_every_rung(session):
    recovery_of(
        session,
        {"action": "compact", "outcome": "failed", "tokens_after": 9000},
        {"action": "truncate", "characters_cut": 81234, "results_cut": 2, "tokens_after": 8200},
        {"action": "halve", "groups": 5, "tokens_before": 8200, "tokens_after": 3100},
    )
    (entry,) = entries(session)
    assert entry.title == "Request larger than the context window: went through after 3 steps"
    assert entry.reason == (
        "Tried: Compaction (failed), Tool results cut (smaller), Fewer messages sent (smaller)."
    )
    assert list(entry.numbers) == [
        ("Tokens of the request", "9,000 → 3,100"), ("Window", "8,000"),
        ("Characters cut", "81,234"),
    ]  # fmt: skip
    assert entry.at == at(2)


def test_a_run_that_is_a_rung_is_told_in_the_ladder_alone(session):
    own, recovery_step = run_of(session, 1), run_of(session, 2)
    recovery_of(session, {"action": "compact", "run": recovery_step}, second=3)
    found = entries(session)
    assert [entry.label for entry in found] == ["Recovery", "Succeeded"]
    assert page_of(recovery_step) in [link.url for link in found[0].links]
    assert found[1].links[0].url == page_of(own)


def test_a_replay_that_is_a_rung_is_told_in_the_ladder_alone(session):
    branches = [
        Branch.objects.create(
            session=session, kind="replay", replaces=session.branch, created_at=at(second)
        )
        for second in (0, 10)
    ]
    recovery_of(session, {"action": "truncate", "replay": branches[0]}, second=1)
    found = entries(session)
    assert [entry.label for entry in found] == ["Replay", "Recovery"]
    assert page_of(branches[1]) in [link.url for link in found[0].links]
    assert page_of(branches[0]) in [link.url for link in found[1].links]


def test_a_ladder_that_gave_up_is_bad(session):
    recovery_of(session, {}, {"action": "give_up", "outcome": "no_help", "text": "Shorten it."})
    (entry,) = entries(session)
    assert entry.tone == "bad"
    assert "Shorten it." in entry.drawing


def test_the_page_draws_ladders_and_the_panel_does_not(session, admin_client):
    recovery_of(session, {})
    assert 'class="recovery"' in admin_client.get(timeline_of(session)).text
    page = admin_client.get(page_of(session)).text
    assert 'class="recovery"' not in page
    assert "went through after 1 step" in page


def test_rungs_are_paged_as_whole_ladders(session):
    for number in range(5):
        recovery_of(session, {}, {}, {}, second=10 * number)
    first = read_timeline(session, timeline_sources(), most=2)
    rest = read_timeline(session, timeline_sources(), before=first.older, most=9)
    assert [entry.at for entry in first.entries] == [at(42), at(32)]
    assert [entry.at for entry in rest.entries] == [at(22), at(12), at(2)]


# --- everything together --------------------------------------------------------------------------


def test_all_kinds_stand_in_one_order(session):
    run_of(session, 1)
    recovery_of(session, {}, second=2)
    for second, kind in ((3, "retry"), (4, "change"), (5, "warning"), (6, "error")):
        Incident.objects.create(
            session=session, kind=kind, code="timeout", text="x", created_at=at(second)
        )
    labels = [entry.label for entry in entries(session)]
    assert labels == ["Error", "Warning", "Request changed", "Retry", "Recovery", "Succeeded"]


def test_the_page_costs_the_same_for_few_and_for_many_rows(session, admin_client):
    counts = []
    admin_client.get(timeline_of(session))
    for start, count in ((0, 5), (1000, 40)):
        for number in range(start, start + 10 * count, 10):
            recovery_of(session, {"action": "compact", "run": run_of(session, number)}, {},
                      second=number)  # fmt: skip
            run_of(session, number)
            Incident.objects.create(
                session=session, kind="retry", code="timeout", text="x", created_at=at(number)
            )
        with CaptureQueriesContext(connection) as queries:
            assert admin_client.get(timeline_of(session)).status_code == 200
        counts.append(len(queries))
        assert not [q for q in queries if "COUNT(" in q["sql"]]
        for table in ("compaction_runs", "session_incidents", "branches"):
            about = [q["sql"] for q in queries if f' FROM "{table}" WHERE' in q["sql"]]
            assert about, table
            assert all("LIMIT" in sql for sql in about), table
    # The ninth reads the audit log, the tenth answers that were given without a part of the
    # conversation: a table each, whatever is in it.
    assert counts[0] == counts[1] <= 10


def test_what_runs_and_servers_say_is_escaped(session, admin_client):
    run_of(session, status="failed", error=HOSTILE, reason=HOSTILE[:40], error_code=HOSTILE[:40])
    recovery_of(session, {"error": HOSTILE, "text": HOSTILE, "outcome": "failed"},
              {"action": "give_up", "text": HOSTILE, "error": HOSTILE})  # fmt: skip
    for address in (timeline_of(session), page_of(session)):
        page = admin_client.get(address).text
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert" in page
        assert not re.search(r"\sstyle=|<style|\son\w+=", page)


def test_a_session_whose_model_is_gone_still_has_its_timeline(session, admin_client):
    Session.objects.filter(pk=session.pk).update(model="gone")
    recovery_of(session, {})
    run_of(session, 5)
    for address in (timeline_of(session), page_of(session)):
        page = admin_client.get(address).text
        assert "went through after 1 step" in page
        assert "Window nearly full" in page


# --- in real turns --------------------------------------------------------------------------------


def refuse_above(server, tokens: int) -> None:
    rule = {"when": {"purpose": "chat", "est_tokens_gt": tokens}, "reply": OVERFLOW}
    server.script = [rule, {"when": {}, "reply": {"text": "short"}}]


def test_a_turn_that_climbed_stands_in_the_timeline_with_its_new_branch(
    session, model_server, admin_client
):
    profile(**NEVER)
    refuse_above(model_server, 3000)
    calls = [call("read", n)["tool_calls"][0] for n in "123"]
    asked = {"role": "assistant", "content": None, "tool_calls": calls}
    store(session, [user("read"), asked, *(result(n, "a line\n" * 900) for n in "123")])
    run_turn(Turn(session=Session.objects.get(pk=session.pk)))
    new = Branch.objects.get(kind="replay")
    ladder = next(entry for entry in entries(session) if entry.label == "Recovery")
    assert "Tool results cut (smaller)" in ladder.reason
    assert page_of(new) in [link.url for link in ladder.links]
    assert "Replay" not in [entry.label for entry in entries(session)]
    assert "Tool results cut · smaller" in admin_client.get(timeline_of(session)).text


def test_a_turn_that_could_not_be_saved_ends_with_its_sentence(session, model_server):
    profile(**NEVER)
    refuse_above(model_server, 0)
    store(session, [user("hello")])
    with pytest.raises(TurnFailedError):
        run_turn(Turn(session=Session.objects.get(pk=session.pk)))
    error, ladder = entries(session)[:2]
    assert (error.label, ladder.label) == ("Error", "Recovery")
    assert "gave up" in ladder.title
    assert error.reason in ladder.drawing


def test_a_compaction_by_hand_stands_in_the_timeline(session):
    profile(**NEVER, keep_last_n=2)
    store(session, talk(4))
    compact(session)
    (entry,) = entries(session)
    assert entry.reason.startswith("By hand")
