"""When hooks are asked, and what they are told of turns that are cut and requests that failed."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.urls import reverse

from chatapp import transcript
from chatapp.models import Branch, Message, Session
from compaction import hooks
from compaction.hooks import BranchPayload, CompactPayload, RequestFacts
from tests.compaction import toy_hooks as toys
from tests.compaction.support import NEVER, compact, say
from tests.compaction.test_hooks import FIRST, ids, use_hooks
from tests.compaction.test_iterative_runs import checkpoint, long_turn
from tests.compaction.test_recover import overflow_once
from tests.factories import SessionFactory, profile, store, talk
from tests.fakes.model_server import ModelServer

__all__ = ["use_hooks"]


def given(kind: type) -> list[Any]:
    """What the first hook was given of a kind, in order."""
    return [one for one in toys.First.given if isinstance(one, kind)]


# --- transactions ---------------------------------------------------------------------------------


@pytest.fixture
def opened(monkeypatch) -> dict[str, list[bool]]:
    """Whether a transaction was open in the thread that asked, by the names of what was asked."""
    found: dict[str, list[bool]] = {}
    asked = hooks._in_time

    def look(hook, *about):
        found.setdefault(hook.__name__, []).append(connection.in_atomic_block)
        return asked(hook, *about)

    monkeypatch.setattr(hooks, "_in_time", look)
    return found


@pytest.mark.django_db(transaction=True)
def test_no_transaction_is_open_while_a_hook_is_asked(
    owner, model_server, queued, use_hooks, api, opened
):
    profile(**NEVER, keep_last_n=4)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    use_hooks(FIRST)
    assert compact(session).status == "succeeded"
    say(session, "And now?")
    forked = {"message": ids(session)[1]}
    address = reverse("branch-list", args=[session.pk])
    for activate in (True, False):
        made = api.post(address, forked | {"activate": activate}, format="json")
        assert made.status_code == 201
    session = Session.objects.get(pk=session.pk)
    say(session, "Here, too?")
    latest = Branch.objects.get(pk=made.data["id"])
    switched = transcript.switch(session, latest, {"summarize": True})
    assert switched.is_done
    assert opened == {
        "before_compact": [False],
        "before_request": [False, False],
        "before_branch_summary": [False, False],
    }
    assert len(given(RequestFacts)) == 2
    assert [one.wants_summary for one in given(BranchPayload)] == [False, True]


# --- a turn that the cut parts --------------------------------------------------------------------


@pytest.mark.django_db
def test_a_hook_is_told_which_messages_begin_the_turn_that_is_parted(
    owner, use_models, queued, use_hooks
):
    with ModelServer() as server:
        use_models(server.models())
        checkpoint()
        use_hooks(FIRST)
        session = SessionFactory(owner=owner, wires=[*talk(3, marker=1), *long_turn(6)])
        assert compact(session).status == "succeeded"
    [payload] = given(CompactPayload)
    assert payload.is_split_turn
    # The question of the turn stands behind three questions with their answers.
    assert payload.turn_prefix == payload.messages[6:]
    assert [one.id for one in payload.messages] == ids(session)[: len(payload.messages)]
    assert payload.turn_prefix[0].role == "user"
    assert {one.role for one in payload.turn_prefix[1:]} == {"assistant", "tool"}
    assert payload.first_kept == ids(session)[len(payload.messages)]


@pytest.mark.django_db
def test_where_the_cut_parts_no_turn_there_is_no_beginning_of_one(
    owner, use_models, queued, use_hooks
):
    with ModelServer() as server:
        use_models(server.models())
        checkpoint()
        use_hooks(FIRST)
        session = SessionFactory(owner=owner, wires=talk(8, marker=1))
        assert compact(session).status == "succeeded"
    [payload] = given(CompactPayload)
    kept = Message.objects.get(pk=payload.first_kept)
    assert (kept.role, payload.is_split_turn, payload.turn_prefix) == ("user", False, ())


# --- a request that was too large -----------------------------------------------------------------


@pytest.mark.django_db
def test_a_hook_is_told_that_a_request_waits_for_the_compaction(
    owner, model_server, queued, use_hooks
):
    model_server.script = overflow_once()
    profile(**NEVER, keep_last_n=6)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    use_hooks(FIRST)
    assert say(session, "THE QUESTION").answer.content == "the answer"
    store(session, talk(6, marker=40))
    compact(session)
    assert [one.reason for one in given(CompactPayload)] == ["overflow_retry", "manual"]
    assert [one.will_retry for one in given(CompactPayload)] == [True, False]
