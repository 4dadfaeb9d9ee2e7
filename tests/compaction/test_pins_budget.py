"""Pinned messages have a share of the window: counted apart, sent past it, and said."""

from __future__ import annotations

import random

import pytest
from django.db import connection

from chatapp import selectors, transcript
from chatapp.context.backend import context_backend
from chatapp.models import Incident, Message, Session
from compaction.branches.context_builder import context_of
from compaction.branches.leases import state_of
from compaction.branches.snapshot import refreshed, snapshot_of
from compaction.models import SessionSummary
from compaction.summaries.restore import restore_summary
from tests.chatapp.test_api_sessions import url
from tests.compaction.support import NEVER, compact, say, sent, state
from tests.factories import SessionFactory, call, profile, result, store, talk

pytestmark = pytest.mark.django_db
WINDOW = 8_000
CODE = "pins_over_share"


def words(count: int, *, seed: int) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice(("alpha", "beta", "gamma", "delta")) for _ in range(count))


@pytest.fixture
def session(owner, model_server, queued, use_models) -> Session:
    """Ten turns in a window of 8,000 tokens; the second answer is long. Six turns are covered."""
    use_models(model_server.models(CONTEXT_WINDOW=WINDOW, MAX_OUTPUT=500))
    profile(**NEVER, keep_last_n=8)
    wires = talk(10, words=5)
    wires[3]["content"] = words(900, seed=3)
    session = SessionFactory(owner=owner, wires=wires)
    compact(session)
    session.refresh_from_db()
    return session


def row_at(session: Session, place: int) -> Message:
    return Message.objects.select_related("branch", "session").get(
        session=session, position=place * 1_000_000
    )


def account(session: Session):
    return context_backend.preview(session).account


def share(value: float) -> None:
    profile(**NEVER, keep_last_n=8, pinned_share=value)


def test_pins_before_the_cursor_are_counted_apart(session):
    before = account(session)
    assert before.pinned == 0
    row = row_at(session, 4)
    transcript.set_pinned(row, True)
    after = account(session)
    assert after.pinned == row.tokens
    assert (after.kept, after.pending) == (before.kept, before.pending)
    # With the 4 tokens of its frame.
    assert after.used == before.used + row.tokens + 4
    assert after.as_dict()["pinned"] == row.tokens


def test_pins_inside_the_tail_cost_nothing_twice(session):
    before = account(session)
    transcript.set_pinned(row_at(session, 18), True)
    assert account(session) == before


def test_rules_are_the_system_part_and_no_pins(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    rule = {"role": "system", "content": "Be brief."}
    session = SessionFactory(owner=owner, wires=[rule, *talk(4)])
    compact(session)
    session.refresh_from_db()
    found = account(session)
    assert found.pinned == 0
    assert found.system == row_at(session, 1).tokens


def test_the_api_tells_them_apart(api, session):
    transcript.set_pinned(row_at(session, 4), True)
    told = api.get(url(session, "context/")).json()["account"]
    assert told["pinned"] == row_at(session, 4).tokens
    parts = ("system", "tools", "summaries", "pinned", "kept", "pending", "frames")
    assert told["used"] == sum(told[name] for name in parts)


def test_triggers_count_them(session):
    before = snapshot_of(session).request_tokens
    row = row_at(session, 4)
    transcript.set_pinned(row, True)
    assert snapshot_of(session).request_tokens == before + row.tokens + 4


def test_a_rule_ahead_of_need_counts_them_though_the_messages_alone_are_few(
    owner, model_server, queued, use_models
):
    use_models(model_server.models(CONTEXT_WINDOW=40_000, MAX_OUTPUT=500))
    profile(**NEVER, keep_last_n=4, prepare_ratio=0.5, window_trigger=False)
    session = SessionFactory(owner=owner, wires=talk(6, words=5))
    compact(session)
    session.refresh_from_db()
    row = row_at(session, 4)
    transcript.set_pinned(row, True)
    Message.objects.filter(pk=row.pk).update(tokens=21_000)
    known = snapshot_of(session)
    context_of(known)
    fresh = refreshed(known, state(session))
    assert fresh.facts.request_tokens > 21_000


# --- past the share -------------------------------------------------------------------------------


def test_past_the_share_a_pin_still_goes_out_and_an_incident_says_so_once(session):
    share(0.05)
    row = row_at(session, 4)
    transcript.set_pinned(row, True)
    assert row.tokens > 400
    assert row.content in [message["content"] for message in sent(session)]
    assert not Incident.objects.filter(code=CODE).exists()  # looking at it says nothing
    for text in ("first", "second"):
        say(session, text)
    incident = Incident.objects.get(code=CODE)
    assert incident.kind == "warning"
    assert incident.text == (
        f"Pinned messages take {row.tokens:,} tokens of each request, {row.tokens - 400:,} more "
        "than their share of the window (400: pinned_share is 0.05). They are sent all the same; "
        "unpinning some makes room."
    )


def test_within_the_share_nothing_is_said(session):
    share(0.9)
    transcript.set_pinned(row_at(session, 4), True)
    say(session)
    assert not Incident.objects.filter(code=CODE).exists()


@pytest.mark.parametrize(("above", "is_said"), [(0, False), (1, True)])
def test_the_share_itself_is_within_it(session, monkeypatch, above, is_said):
    share(0.05)
    row = row_at(session, 4)
    transcript.set_pinned(row, True)
    Message.objects.filter(pk=row.pk).update(tokens=400 + above)
    say(session)
    assert Incident.objects.filter(code=CODE).exists() is is_said


# --- pinning over the API -------------------------------------------------------------------------


def pin(api, row: Message, pinned: bool = True) -> dict:
    answer = api.patch(f"/api/v1/messages/{row.pk}/", {"pinned": pinned}, format="json")
    assert answer.status_code == 200
    return answer.json()


def test_a_pin_within_the_share_has_no_warning(api, session):
    told = pin(api, row_at(session, 2))
    assert (told["pinned"], told["warning"]) == (True, None)


def test_a_pin_past_the_share_is_stored_and_warned_of(api, session):
    share(0.05)
    row = row_at(session, 4)
    told = pin(api, row)
    assert told["pinned"] is True
    assert told["warning"].startswith(f"Pinned messages take {row.tokens:,} tokens of each request")
    assert pin(api, row, pinned=False)["warning"] is None


def test_a_pin_in_the_tail_is_warned_of_before_it_costs(api, session):
    share(0.0)
    row = row_at(session, 18)
    assert pin(api, row)["warning"] == (
        f"Pinned messages will take {row.tokens:,} tokens of each request when they are "
        f"summarised, {row.tokens:,} more than their share of the window (0: pinned_share is 0). "
        "They are sent all the same; unpinning some makes room."
    )


def test_groups_are_pinned_and_counted_whole(api, owner, model_server, queued):
    profile(**NEVER, keep_last_n=2, pinned_share=0.0)
    wires = [*talk(1), call("f", "1"), result("1", words(50, seed=1)), *talk(3)]
    session = SessionFactory(owner=owner, wires=wires)
    compact(session)
    session.refresh_from_db()
    pin(api, row_at(session, 4))
    group = [row_at(session, 3), row_at(session, 4)]
    assert all(row.pinned for row in group)
    assert account(session).pinned == sum(row.tokens for row in group)


def test_pinning_a_message_of_a_session_whose_model_is_gone_works(api, session):
    Session.objects.filter(pk=session.pk).update(model="gone")
    assert pin(api, row_at(session, 4))["warning"] is None


def test_a_backend_that_sends_everything_never_warns(api, session, settings):
    settings.CHATAPP = settings.CHATAPP | {
        "CONTEXT": {"BACKEND": "chatapp.context.backend.FullHistoryBackend"}
    }
    assert pin(api, row_at(session, 4))["warning"] is None
    assert account(session).pinned == 0


def test_the_warning_costs_the_same_however_many_pins_there_are(
    api, session, django_assert_max_num_queries
):
    share(0.05)
    Message.objects.filter(session=session, position__lt=10_000_000).update(pinned=True)
    savepoint = 2  # of the test's own transaction
    lock = int(connection.features.has_select_for_update)
    with django_assert_max_num_queries(13 + savepoint + lock):
        pin(api, row_at(session, 4))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_known_of_pins_with_a_state_is_so_after_whatever_was_done(
    owner, model_server, queued, seed
):
    """The state's read tells whether to ask for pins at all: what it tells falsely is not sent."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    profile(**NEVER, keep_last_n=3)
    session = SessionFactory(owner=owner, wires=talk(8, words=4))

    def pin() -> None:
        rows = Message.objects.filter(session=session, kind__in=Message.SPOKEN)
        row = chance.choice(list(rows.select_related("branch", "session").order_by("pk")))
        transcript.set_pinned(row, not row.pinned)

    def fork() -> None:
        rows = Message.objects.filter(branch=session.active_branch, role="assistant")
        row = chance.choice(list(rows.exclude(kind=Message.Kind.PLACEHOLDER).order_by("position")))
        transcript.activate(session, transcript.fork(session, at=row))
        store(session, talk(3, words=4))

    def restore() -> None:
        if found := list(SessionSummary.objects.filter(session=session, status="active")[:1]):
            restore_summary(found[0])

    def switch() -> None:
        branches = list(session.branches.order_by("pk"))
        transcript.activate(session, chance.choice(branches))

    def rule() -> None:
        store(session, [{"role": "system", "content": "Answer briefly."}])

    assert state_of(session.active_branch).has_no_pins_behind
    for _ in range(25):
        chance.choice((pin, pin, fork, restore, switch, rule, lambda: compact(session)))()
        session.refresh_from_db()
        for branch in session.branches.order_by("pk"):
            now = state_of(branch)
            behind = selectors.pins_behind(branch, now.cursor)
            assert not (now.has_no_pins_behind and behind)
            before = selectors.pinned_before(branch, now.cursor)
            assert not (now.has_no_pins and before)
