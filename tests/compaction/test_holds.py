"""Who holds what was restored, until when, and what the window, forks and replays make of it."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest
from django.db import connection
from django.db.models import Sum
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from chatapp import transcript
from chatapp.admin.toolkit import html
from chatapp.audit import AuditEntry, record
from chatapp.erasure import erase_user
from chatapp.models import Message
from compaction.branches.leases import ensure_state
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.profiles import find_profile, save_profile
from compaction.runs import lifecycle
from compaction.runs.holding import (
    NextTurn,
    hold_facts,
    lift_hold,
    preview_restore,
    restored_words,
)
from compaction.summaries.instructions import change_instructions
from compaction.summaries.restore import restore_summary
from tests.compaction.session_page import do_of, page_of, plain
from tests.compaction.support import NEVER, as_shown, compact, say, sent, state, stored, texts
from tests.compaction.test_show_session import show
from tests.factories import SessionFactory, UserFactory, call, profile, result, store, talk, user
from tests.facts import code

pytestmark = pytest.mark.django_db
TOO_LONG = {
    "error": {
        "status": 400,
        "body": {
            "error": {
                "code": "context_length_exceeded",
                "message": "This model's maximum context length is 8192 tokens.",
            }
        },
    }
}


@pytest.fixture
def session(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


def take_back(session, owner) -> SessionSummary:
    summary = SessionSummary.objects.get(session=session, status="active")
    restore_summary(summary, by=owner)
    return summary


# --- the window forces it, and says so ------------------------------------------------------------


@pytest.fixture
def outgrown(owner, model_server, use_models, queued):
    """outgrown("balanced"): 80 messages, compacted; together they are larger than the window."""

    def begin(preset: str, **parameters):
        values = {"cooldown_seconds": 0, "keep_recent_tokens": 1_000} | parameters
        save_profile(name="held", base=preset, parameters=values, make_default=True)
        session = SessionFactory(owner=owner, wires=talk(40, words=120, marker=1))
        run = compact(session, instructions=f"Keep {code(3)}.", requested_by=owner)
        assert run.status == "succeeded"
        use_models(model_server.models(CONTEXT_WINDOW=8192))
        model_server.script = [
            {"when": {"purpose": "chat", "est_tokens_gt": 8192 - 1024}, "reply": TOO_LONG},
            *model_server.script,
        ]
        return session

    return begin


RULE = "the next turn would compact again."
SERVER = (
    "the next turn would send them verbatim, and compact again if the model's server refuses that."
)
BREAKS = "the next turn breaks the hold and compacts."
MAY_BREAK = (
    "the next turn sends it verbatim. If the model's server refuses that, it breaks the hold and "
    "compacts."
)


@pytest.mark.parametrize(
    ("preset", "foreseen", "told_then"),
    [
        ("balanced", RULE, BREAKS),
        ("checkpoint", RULE, BREAKS),
        ("bisect", SERVER, MAY_BREAK),
        ("abridged", SERVER, MAY_BREAK),
    ],
)
def test_the_window_breaks_it_and_that_is_said(
    outgrown, owner, model_server, admin_client, preset, foreseen, told_then
):
    session = outgrown(preset)
    summary = SessionSummary.objects.get()
    covered = Message.objects.filter(summary_links__summary=summary)
    tokens = covered.aggregate(total=Sum("tokens"))["total"]
    before = preview_restore(summary, by=owner)
    assert before.sentence == (
        f"The window holds 8,192 tokens, the restored messages take {tokens:,}: {foreseen}"
    )
    assert SessionSummary.objects.get().status == "active"
    restore_summary(summary, by=owner)
    assert hold_facts(snapshot_of(session))["text"].endswith(told_then)
    calls, told = len(model_server.summarising()), []
    said = say(session, "And now?", emit=lambda name, data: told.append(data))
    assert said.answer is not None
    assert any(data.get("hold_broken") for data in told)
    assert state(session).cursor > 0
    assert not state(session).is_held
    told = AuditEntry.objects.get(session=session, action="hold_broken")
    assert told.actor is None
    # A name would outlast its person: who held it is who restored it.
    assert told.text.startswith("The window broke the hold:")
    timeline = admin_client.get(reverse("admin:chatapp_session_timeline", args=[session.pk])).text
    by_a_rule = r"By a rule</span> <b>Hold broken</b>"
    assert len(re.findall(by_a_rule, timeline)) == 1
    assert len(re.findall(r"By a person</span> <b>Restored</b>", timeline)) == 1
    listed = admin_client.get(html.list_url(AuditEntry, session__id__exact=session.pk)).text
    assert "A rule</span>" in listed
    assert "Nobody</span>" not in listed
    assert AuditEntry.objects.get(session=session, action="restored").actor == owner
    # The operator's instructions are those of the new summary.
    assert f"Keep {code(3)}." in model_server.summarising()[calls].text
    assert SessionSummary.objects.get(status="active").instructions == f"Keep {code(3)}."


@pytest.mark.parametrize("preset", ["bisect", "sliding_window", "abridged"])
def test_a_server_that_takes_more_than_its_window_breaks_nothing_and_the_words_hold(
    outgrown, owner, model_server, admin_client, preset
):
    session = outgrown(preset)
    model_server.script = model_server.script[1:]  # It takes whatever it is sent.
    summary = SessionSummary.objects.get()
    address = f"/admin/compaction/sessionsummary/{summary.pk}/do/restore/"
    asked = admin_client.post(address).text
    assert "compact again if the model&#x27;s server refuses that" in asked
    assert "the window would break the hold" not in asked
    take_back(session, owner)
    assert hold_facts(snapshot_of(session))["text"].endswith(MAY_BREAK)
    say(session, "And now?")
    assert (state(session).cursor, state(session).is_held) == (0, True)


def test_of_a_refusal_that_nothing_follows_the_words_say_so(outgrown, owner, model_server):
    session = outgrown("bisect", retry_on_context_overflow=False)
    summary = SessionSummary.objects.get()
    before = preview_restore(summary, by=owner)
    assert before.sentence.endswith(
        ": the next turn would send them verbatim, and fail if the model's server refuses that."
    )
    restore_summary(summary, by=owner)
    assert hold_facts(snapshot_of(session))["text"].endswith(
        ": the next turn sends it verbatim, and fails if the model's server refuses that."
    )


def test_a_request_that_is_too_large_by_what_stands_beside_says_so():
    """Restored messages that fit the window are no reason by themselves."""
    turn = NextTurn(window=8_192, request_tokens=12_067, compacts="window")
    assert restored_words(7_458, turn) == (
        "The window holds 8,192 tokens, the restored messages take 7,458, the whole request "
        "12,067: the next turn would compact again."
    )


def test_until_it_is_lifted_a_reserve_alone_breaks_nothing(
    outgrown, owner, use_models, model_server
):
    """15 000 of 20 000 tokens leave the answer its 1 024, not the profile's half of the window."""
    for restore_hold, is_broken in (("until_lifted", False), ("window", True)):
        session = outgrown("checkpoint", restore_hold=restore_hold)
        use_models(model_server.models(CONTEXT_WINDOW=20_000))
        model_server.script = model_server.script[1:]
        take_back(session, owner)
        say(session, "And now?")
        assert (state(session).cursor > 0) == is_broken
        assert (
            AuditEntry.objects.filter(session=session, action="hold_broken").exists() == is_broken
        )
        SessionSummary.objects.all().delete()


@pytest.mark.parametrize("restore_hold", ["until_lifted", "window"])
def test_the_window_breaks_it_by_a_run_that_waited_since_before_the_restore(
    outgrown, owner, restore_hold
):
    """A turn does what waits for the queue: asked for by the turn, not when it was queued."""
    session = outgrown("balanced", restore_hold=restore_hold)
    waiting = lifecycle.request_run(
        lifecycle.RunRequest(
            session=session, branch=session.branch, trigger="proactive", reason="message_limit",
            profile=find_profile(), background=True,
        )
    )  # fmt: skip
    take_back(session, owner)
    assert "the next turn breaks the hold" in hold_facts(snapshot_of(session))["text"]
    say(session, "And now?")
    waiting.refresh_from_db()
    assert (waiting.status, waiting.mode) == ("succeeded", "inline")
    assert AuditEntry.objects.filter(session=session, action="hold_broken").exists()
    assert CompactionRun.objects.filter(status="skipped").count() == 0


def test_the_window_breaks_it_in_a_profile_without_its_rule(outgrown, owner, model_server):
    """Its page said so, and a server that accepts was sent more than the window."""
    session = outgrown("bisect", restore_hold="window", window_trigger=False)
    model_server.script = model_server.script[1:]  # The server takes whatever it is sent.
    take_back(session, owner)
    assert "the next turn breaks the hold" in hold_facts(snapshot_of(session))["text"]
    say(session, "And now?")
    assert state(session).cursor > 0
    assert AuditEntry.objects.filter(session=session, action="hold_broken").exists()


def test_the_page_of_the_state_names_who_holds_the_branch_and_which_worker_has_it(
    session, owner, admin_client
):
    """The person stood as the worker, and the worker nowhere."""
    compact(session)
    take_back(session, owner)
    worker = uuid4()
    CompactionState.objects.update(lease_owner=worker)
    address = reverse("admin:compaction_compactionstate_change", args=[state(session).pk])
    shown = admin_client.get(address).text
    found = {
        name: re.search(rf"<label>{name}:</label> <div class=\"readonly\">(.*?)</div>", shown)[1]
        for name in ("Lease owner", "Held by")
    }
    assert f'title="{worker}"' in found["Lease owner"]
    assert found["Held by"] == (
        f'<a href="{reverse("admin:chatapp_session_owner", args=[owner.pk])}">{owner.username}</a>'
    )


# --- forks and replays ----------------------------------------------------------------------------


def test_a_fork_of_a_held_branch_is_held_as_far_as_it_shares(session, owner):
    profile(message_limit=10, max_context_tokens=0, keep_last_n=2)
    compact(session)
    root = session.branch
    take_back(session, owner)
    through = state(session).hold_through
    fork = transcript.fork(session, at=stored(session)[5])
    transcript.switch(session, fork)
    found = ensure_state(fork)
    assert found.is_held
    assert (found.hold_through, found.held_by) == (fork.fork_position, owner)
    assert fork.fork_position < through
    for _ in range(5):
        say(session)
    assert state(session).cursor == 0
    # Each branch has a hold of its own.
    assert lift_hold(session, by=owner)
    assert CompactionState.objects.get(pk=root.pk).is_held
    say(session)
    assert state(session).cursor > 0


def test_a_fork_that_took_the_summary_over_is_held_too(session, owner):
    compact(session)
    fork = transcript.fork(session, at=stored(session)[-1])
    ensure_state(fork)
    take_back(session, owner)
    assert CompactionState.objects.get(pk=fork.pk).is_held


def test_a_fork_of_a_branch_that_is_not_held_is_not(session, owner):
    compact(session)
    take_back(session, owner)
    lift_hold(session, by=owner)
    fork = transcript.fork(session, at=stored(session)[-1])
    assert not ensure_state(fork).is_held


def test_a_replay_takes_hold_and_instructions_along(session, owner, model_server):
    store(session, [call("read", "one"), result("one", "long " * 400), user(f"{code(100)} go on")])
    compact(session, instructions=f"Keep {code(2)}.", requested_by=owner)
    take_back(session, owner)
    held = state(session)
    long = Message.objects.get(role="tool")
    new = transcript.replay(session, contents={long.pk: "short"}).new
    found = CompactionState.objects.get(pk=new.pk)
    assert (found.hold_through, found.held_by, found.hold_end) == (
        held.hold_through,
        owner,
        "until_lifted",
    )
    lift_hold(session, by=owner)
    assert compact(session).status == "succeeded"
    assert SessionSummary.objects.get(status="active").instructions == f"Keep {code(2)}."


# --- instructions ---------------------------------------------------------------------------------


def test_the_next_summary_carries_the_instructions_of_the_one_it_continues(session, owner):
    compact(session, instructions=f"Keep {code(1)}.", requested_by=owner)
    store(session, talk(4, marker=50))
    run = compact(session)
    new = SessionSummary.objects.get(run=run)
    assert (new.instructions, new.instructions_by) == (f"Keep {code(1)}.", owner)
    # What somebody asked of a run is the run's.
    assert CompactionRun.objects.get(pk=run.pk).instructions == ""


def test_a_run_that_fails_shows_what_it_carried_on(session, owner, model_server, admin_client):
    compact(session, instructions=f"Keep {code(1)}.", requested_by=owner)
    store(session, talk(4, marker=50))
    model_server.script = [{"when": {}, "reply": {"text": ""}}]
    run = compact(session)
    assert (run.status, run.carried_instructions) == ("failed", f"Keep {code(1)}.")
    assert run.instructions == ""
    page = admin_client.get(f"/admin/compaction/compactionrun/{run.pk}/change/").text
    assert "Carried on" in page
    assert f"Keep {code(1)}." in page


def test_what_a_failed_run_carried_on_goes_with_whoever_said_it(session, model_server):
    editor = UserFactory()
    compact(session, instructions=f"Keep {code(1)}.", requested_by=editor)
    store(session, talk(4, marker=50))
    model_server.script = [{"when": {}, "reply": {"text": ""}}]
    assert compact(session).carried_instructions == f"Keep {code(1)}."
    erase_user(editor)
    assert not CompactionRun.objects.exclude(carried_instructions="").exists()


def test_instructions_of_its_own_take_their_place(session, owner):
    compact(session, instructions=f"Keep {code(1)}.", requested_by=owner)
    take_back(session, owner)
    compact(session, instructions=f"Keep {code(2)}.", requested_by=owner)
    assert SessionSummary.objects.get(status="active").instructions == f"Keep {code(2)}."


def test_changed_instructions_are_those_that_are_carried_on(session, owner, model_server):
    other = UserFactory()
    compact(session, instructions=f"Keep {code(1)}.", requested_by=owner)
    summary = take_back(session, owner)
    change_instructions(summary, f"Keep {code(5)}.", by=other)
    compact(session)
    assert f"Keep {code(5)}." in model_server.summarising()[-1].text
    assert f"Keep {code(1)}." not in model_server.summarising()[-1].text
    assert SessionSummary.objects.get(status="active").instructions_by == other
    assert AuditEntry.objects.get(action="instructions_changed").actor == other


def test_emptied_instructions_are_not_carried_on(session, owner):
    compact(session, instructions=f"Keep {code(1)}.", requested_by=owner)
    take_back(session, owner)
    compact(session)
    second = take_back(session, owner)
    change_instructions(second, "", by=owner)
    compact(session)
    assert SessionSummary.objects.get(status="active").instructions == ""


# --- the API --------------------------------------------------------------------------------------


def test_the_api_says_before_and_after_a_restore_what_follows(session, owner, api):
    compact(session)
    summary = SessionSummary.objects.get()
    address = f"/api/v1/summaries/{summary.pk}/restore/"
    before = api.post(address, {"dry_run": True}, format="json").json()
    assert (before["dry_run"], before["messages"], before["cursor"]) == (True, 10, 0)
    assert before["hold"]["text"].startswith(f"Held by {owner.username} until somebody lifts it")
    assert SessionSummary.objects.get().status == "active"
    assert not AuditEntry.objects.exists()
    after = api.post(address, {}, format="json").json()
    assert (after["dry_run"], after["messages"], after["tokens"]) == (False, 10, before["tokens"])
    assert after["next_turn"]["window"] == 128_000
    assert after["next_turn"]["compacts"] is None
    assert "the next turn would send them verbatim" in after["text"]
    assert after["summaries"][0]["status"] == "restored"
    shown = api.get(f"/api/v1/sessions/{session.pk}/compaction/").json()
    assert shown["hold"] == after["hold"]
    assert shown["hold"]["by"] == owner.username
    asked = api.get(f"/api/v1/sessions/{session.pk}/context/").json()
    assert asked["facts"]["branch"]["hold"]["text"] == shown["hold"]["text"]


def test_the_api_lifts_a_hold_of_ones_own_alone(session, owner, api):
    compact(session)
    take_back(session, owner)
    address = f"/api/v1/sessions/{session.pk}/compaction/hold/"
    theirs = SessionFactory(owner=UserFactory(), wires=talk(1))
    assert api.delete(f"/api/v1/sessions/{theirs.pk}/compaction/hold/").status_code == 404
    assert api.delete(address).json()["hold"] is None
    assert not state(session).is_held
    assert api.delete(address).status_code == 200
    assert AuditEntry.objects.filter(action="hold_lifted").count() == 1


def test_the_api_changes_a_summarys_instructions(session, owner, api):
    compact(session)
    address = f"/api/v1/summaries/{SessionSummary.objects.get().pk}/"
    shown = api.patch(address, {"instructions": f"Keep {code(4)}."}, format="json").json()
    assert shown["instructions"] == f"Keep {code(4)}."
    wrong = api.patch(address, {"summary_text": "mine"}, format="json")
    assert wrong.status_code == 400
    theirs = SessionFactory(owner=UserFactory(), wires=talk(6, marker=1))
    compact(theirs)
    other = SessionSummary.objects.get(session=theirs)
    given = {"instructions": "x"}
    assert api.patch(f"/api/v1/summaries/{other.pk}/", given, format="json").status_code == 404


# --- the admin ------------------------------------------------------------------------------------


def test_the_session_page_says_who_holds_it_and_lifts_it(session, owner, admin_client):
    compact(session)
    assert 'id="form-lift"' not in admin_client.get(page_of(session)).text
    take_back(session, owner)
    page = admin_client.get(page_of(session)).text
    assert f"Held by {owner.username} until somebody lifts it" in plain(page)
    assert "The next turn sends it verbatim." in plain(page)
    assert 'id="form-lift"' in page
    # The timeline, too.
    assert "They are held until somebody lifts it" in plain(page)
    done = admin_client.post(do_of(session, "lift"), {}, follow=True)
    assert "The hold is lifted" in plain(done.text)
    assert not state(session).is_held
    assert AuditEntry.objects.get(action="hold_lifted").actor.username == "admin"


def test_the_page_of_the_next_request_says_who_holds_it(session, owner, admin_client):
    compact(session)
    address = f"/admin/chatapp/session/{session.pk}/request/"
    assert "Held" not in plain(admin_client.get(address).text)
    take_back(session, owner)
    page = plain(admin_client.get(address).text)
    assert f"Held by {owner.username} until somebody lifts it" in page
    assert "The next turn sends it verbatim." in page


def test_whoever_asks_what_is_sent_is_told_who_holds_it(session, owner, api):
    """A chat's own page is drawn from this."""
    compact(session)
    address = f"/api/v1/sessions/{session.pk}/context/"
    assert api.get(address).json()["facts"]["branch"]["hold"] is None
    take_back(session, owner)
    hold = api.get(address).json()["facts"]["branch"]["hold"]
    assert (hold["by"], hold["ends"]) == (owner.username, "until_lifted")
    assert hold["text"].startswith(f"Held by {owner.username} until somebody lifts it")


def test_a_conversation_in_a_terminal_says_who_holds_it(session, owner):
    compact(session)
    assert "Held" not in show(session)
    take_back(session, owner)
    said = " ".join(show(session).split())
    assert f"Held by {owner.username} until somebody lifts it: no rule compacts" in said


def test_a_restore_may_be_compacted_again_with_instructions(session, owner, admin_client):
    compact(session)
    summary = SessionSummary.objects.get()
    asked = {"summary": str(summary.pk), "compact_again": "on", "instructions": f"Keep {code(1)}."}
    shown = admin_client.post(do_of(session, "restore"), asked)
    assert "compacted again by a worker, with the instructions below" in plain(shown.text)
    assert f"Keep {code(1)}." in shown.text
    admin_client.post(do_of(session, "restore"), asked | as_shown(shown))
    run = CompactionRun.objects.get(status="queued")
    assert (run.trigger, run.instructions) == ("manual", f"Keep {code(1)}.")
    assert run.requested_by.username == "admin"


# --- acts of people -------------------------------------------------------------------------------


def test_who_is_erased_leaves_acts_without_a_name_and_no_instructions(session, owner):
    operator = UserFactory()
    compact(session, instructions=f"Keep {code(1)}.", requested_by=operator)
    take_back(session, operator)
    lift_hold(session, by=operator)
    # Carried on by a run that nobody asked for.
    compact(session)
    erase_user(operator)
    assert not SessionSummary.objects.exclude(instructions="").exists()
    assert not CompactionRun.objects.exclude(instructions="").exists()
    acts = AuditEntry.objects.filter(session=session)
    assert {act.actor for act in acts} == {None}
    assert acts.count() == 2
    assert state(session).held_by is None
    erase_user(owner)
    assert not AuditEntry.objects.exists()


def test_of_one_session_so_many_of_the_newest_acts_stay(session, owner, monkeypatch):
    monkeypatch.setattr("chatapp.audit.MOST_ENTRIES", 3)
    for number in range(7):
        record(session, "pinned", f"Act {number}.", by=owner)
    kept = AuditEntry.objects.filter(session=session).order_by("created_at")
    assert [act.text for act in kept] == ["Act 4.", "Act 5.", "Act 6."]


def test_a_turn_on_a_held_branch_reads_and_writes_no_more_than_another(session, owner):
    def statements() -> int:
        with CaptureQueriesContext(connection) as queries:
            say(session)
        return len(queries)

    say(session)
    free = statements()
    compact(session)
    take_back(session, owner)
    assert state(session).is_held
    say(session)
    assert statements() <= free


def test_pins_switches_and_profiles_are_rows_with_who_did_it(session, owner, api):
    message = stored(session)[2]
    api.patch(f"/api/v1/messages/{message.pk}/", {"pinned": True}, format="json")
    save_profile(name="other", parameters={})
    api.patch(f"/api/v1/sessions/{session.pk}/compaction/", {"profile": "other"}, format="json")
    fork = transcript.fork(session, at=message)
    api.post(f"/api/v1/branches/{fork.pk}/activate/", {}, format="json")
    rows = AuditEntry.objects.filter(session=session).order_by("created_at")
    assert [(row.action, row.actor) for row in rows] == [
        ("pinned", owner),
        ("profile_changed", owner),
        ("branch_switched", owner),
    ]


def test_the_restored_messages_are_sent_whatever_a_profile_would_leave_out(session, owner):
    profile(**NEVER, keep_last_n=2, history_limit=4)
    compact(session)
    take_back(session, owner)
    assert len(texts(sent(session), "user")) == 6
    lift_hold(session, by=owner)
    assert len(texts(sent(session), "user")) == 2
