"""A history of many windows: it is neither read nor sent, and the recovery begins at once."""

from __future__ import annotations

import threading

import pytest

from chatapp.llm.errors import ErrorKind
from chatapp.models import Incident, Message, Session
from chatapp.turns.service import Turn, TurnFailedError, run_turn
from compaction.branches.past_window import WINDOWS, is_past_window
from compaction.branches.snapshot import snapshot_of
from compaction.models import RecoveryStep
from tests.compaction.test_recovering import NEVER, SHORT, limit, results, sent, tried
from tests.deep_forks import counted_reads
from tests.factories import SessionFactory, call, profile, result, store, talk, user

WINDOW = 2_000
MESSAGES = 600
# No summariser: what the recovery has left is to send fewer messages.
HALVES = NEVER | {"max_overflow_compaction_attempts": 0}


@pytest.fixture
def server(model_server, use_models):
    use_models(model_server.models(CONTEXT_WINDOW=WINDOW, MAX_OUTPUT=100), TOKEN_COUNTER="chars4")
    return model_server


def long_session(owner, messages: int = MESSAGES) -> Session:
    session = SessionFactory(owner=owner)
    store(session, talk(messages // 2, words=20))
    return Session.objects.get(pk=session.pk)


def ask(session: Session, **turn):
    store(session, [user("And now?")])
    return run_turn(Turn(session=Session.objects.get(pk=session.pk), **turn))


def told(session: Session, **turn) -> list[tuple[str, str | None, str | None]]:
    """Return what who watches the turn hears of compactions."""
    heard = []
    ask(
        session,
        emit=lambda name, payload: heard.append(
            (name, payload.get("phase"), payload.get("action") or payload.get("reason"))
        ),
        **turn,
    )
    return [one for one in heard if one[0] == "compaction"]


def test_the_server_gets_one_request_and_it_fits(owner, server, queued):
    profile(**HALVES)
    server.script = limit(WINDOW)
    session = long_session(owner)
    assert is_past_window(snapshot_of(session))
    assert ask(session).answer.content == "short"
    assert len(sent(server)) == 1
    assert sent(server)[0][-1]["content"] == "And now?"
    assert tried() == [("halve", "smaller")]


def test_it_is_told_and_stored_as_a_refusal_of_the_server_would_be(owner, server, queued):
    profile(**HALVES)
    server.script = limit(WINDOW)
    known = told(long_session(owner))
    ours = list(RecoveryStep.objects.values_list("error_kind", "action", "outcome", "groups"))
    RecoveryStep.objects.all().delete()
    server.calls.clear()
    # A window that the server alone knows of.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("compaction.branches.past_window.is_past_window", lambda snapshot: False)
        assert told(long_session(owner)) == known
    theirs = list(RecoveryStep.objects.values_list("error_kind", "action", "outcome", "groups"))
    assert theirs == ours
    assert len(sent(server)) == 2


def test_the_rows_that_are_read_do_not_grow_with_the_history(owner, server, queued):
    profile(**HALVES)
    server.script = limit(WINDOW)
    counts = []
    for messages in (MESSAGES, 3 * MESSAGES):
        session = long_session(owner, messages)
        with counted_reads() as reads:
            ask(session)
        counts.append((reads.queries, reads.rows))
    assert counts[0] == counts[1]


def test_a_compaction_on_the_way_reads_what_its_calls_can_take_in(owner, server, queued):
    profile(**NEVER)
    server.script = limit(WINDOW)
    counts = []
    for messages in (3 * MESSAGES, 6 * MESSAGES):
        session = long_session(owner, messages)
        server.calls.clear()
        with counted_reads() as reads:
            ask(session)
        counts.append((reads.rows, len(server.calls)))
    assert tried()[0] == ("compact", "smaller")
    (rows, calls), (more_rows, more_calls) = counts
    assert calls == more_calls
    # How many messages a call takes in is told by their mean size, which is not quite the same.
    assert abs(rows - more_rows) < rows / 100


def test_what_the_answer_was_given_says_how_much_was_left_out(owner, server, queued):
    profile(**HALVES)
    server.script = limit(WINDOW)
    session = long_session(owner)
    context = ask(session).context
    assert context.not_shown is None
    kept = [place for place in context.places if place]
    assert context.left_out["messages"] == MESSAGES + 1 - len(kept)
    assert (context.left_out["first"], context.left_out["why"]) == ("1", "halve_history")
    rows = Message.objects.filter(session=session).order_by("position")
    gone = [row for row in rows if row.place not in kept and row != rows.last()]
    assert context.left_out["tokens"] == sum(row.tokens for row in gone)
    assert context.left_out["last"] == gone[-1].place


def test_a_compaction_is_the_first_step_here_too(owner, server, queued):
    profile(**NEVER)
    server.script = [*limit(WINDOW)[:1], SHORT]
    ask(long_session(owner))
    assert tried()[0] == ("compact", "smaller")
    assert all(len(str(messages)) < 4 * WINDOW * 4 for messages in sent(server))


def test_where_nothing_helps_the_turn_fails_in_the_words_of_an_overflow(owner, server, queued):
    profile(**HALVES, halve_history=False)
    session = long_session(owner)
    with pytest.raises(TurnFailedError, match="larger than the model's context window"):
        ask(session)
    assert sent(server) == []
    assert Incident.objects.get(session=session, kind="error").code == "context_overflow"


def test_who_has_stopped_the_turn_waits_for_no_recovery(owner, server, queued):
    profile(**NEVER)
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(TurnFailedError) as failure:
        ask(long_session(owner), cancelled=stopped)
    assert failure.value.error.kind is ErrorKind.CANCELLED
    assert server.calls == []
    assert not RecoveryStep.objects.exists()


def test_where_nothing_would_be_done_about_it_the_server_has_the_last_word(owner, server, queued):
    server.script = [SHORT]
    for parameters in ({"enabled": False}, {"retry_on_context_overflow": False}):
        profile(**NEVER, **parameters)
        assert ask(long_session(owner)).answer.content == "short"
    assert [len(messages) > MESSAGES for messages in sent(server)] == [True, True]


def test_a_limit_of_messages_sends_what_it_lets_through(owner, server, queued):
    profile(**NEVER, history_limit=4)
    server.script = [SHORT]
    assert ask(long_session(owner)).answer.content == "short"
    assert tried() == []


def test_results_of_tools_are_cut_and_do_not_count(owner, server, queued):
    profile(**NEVER)
    session = SessionFactory(owner=owner)
    store(session, [user("Look."), *results(20, 400)])
    snapshot = snapshot_of(Session.objects.get(pk=session.pk))
    assert snapshot.branch.token_total > WINDOWS * WINDOW
    assert not is_past_window(snapshot)


def test_a_question_that_stands_far_back_is_sent(owner, server, queued):
    profile(**HALVES)
    session = SessionFactory(owner=owner)
    store(session, [user("A long job. " * 20)])
    for number in range(220):
        key = f"c{number}"
        asked = call("look", key) | {"content": "I look at the next one, and the next. " * 4}
        store(session, [asked, result(key)])
    server.script = limit(WINDOW)
    session = Session.objects.get(pk=session.pk)
    assert is_past_window(snapshot_of(session))
    context = run_turn(Turn(session=session)).context
    assert any("A long job." in str(one["content"]) for one in sent(server)[-1])
    assert context.left_out["first"] == "2"
