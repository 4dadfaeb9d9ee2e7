"""Many sessions are screened by a fixed number of statements, and none with a fault passes."""

from __future__ import annotations

from io import StringIO
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatapp import transcript
from chatapp.models import POSITION_STEP, Branch, Message, Session
from compaction.doctor.examine import _look, examine, to_examine
from compaction.management.commands import doctor
from compaction.models import CompactionState, SessionSummary, SessionSummaryMessage
from tests.compaction.support import NEVER, compact
from tests.factories import SessionFactory, profile, store, talk
from tests.made_once import made_once

pytestmark = pytest.mark.django_db


@pytest.fixture
@made_once
def session(owner, model_server, queued) -> Session:
    """A tree: a root with two summaries and a pin, a fork before them, a fork behind, a fork of it.

    The newest fork has a summary of its own.
    """
    profile(**NEVER, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(8, marker=1))
    compact(session)
    store(session, talk(6, marker=20))
    compact(session)
    rows = list(Message.objects.filter(session=session, kind="message").order_by("position"))
    transcript.set_pinned(rows[2], True)
    early = transcript.fork(session, at=rows[3])
    late = transcript.fork(session, at=rows[-1])
    transcript.activate(session, late)
    store(session, talk(6, marker=40))
    newest = Message.objects.filter(branch=late, kind="message").order_by("position")
    deep = transcript.fork(session, at=newest[3])
    transcript.activate(session, deep)
    store(session, talk(8, marker=60))
    compact(session)
    assert early.message_count == 4
    return session


def test_a_tree_without_a_fault_is_not_examined(session):
    assert list(_look(session.pk)) == []
    assert not to_examine([session.pk])


# Raw changes of one row: what a fault of a program or a person could make.
CHANGES = {
    "message_count": lambda s, n: _branch(s, n).update(message_count=F("message_count") + 1),
    "token_total": lambda s, n: _branch(s, n).update(token_total=F("token_total") + 1),
    "char_total": lambda s, n: _branch(s, n).update(char_total=F("char_total") - 1),
    "head": lambda s, n: _branch(s, n).update(head_position=1),
    "fork": lambda s, n: _branch(s, n).update(fork_position=F("fork_position") + 1),
    "orphan": lambda s, n: _branch(s, n).update(parent=None),
    "tokens": lambda s, n: _message(s, n).update(tokens=F("tokens") + 1),
    "chars": lambda s, n: _message(s, n).update(chars=F("chars") + 1),
    "tokens_through": lambda s, n: _message(s, n).update(tokens_through=F("tokens_through") + 1),
    "chars_through": lambda s, n: _message(s, n).update(chars_through=F("chars_through") + 1),
    "placeholder": lambda s, n: _message(s, n).update(kind="placeholder"),
    "result": lambda s, n: _message(s, n).update(role="tool", tool_call_id="x"),
    "call": lambda s, n: _message(s, n).update(
        tool_calls=[{"id": "y", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    ),
    "place": lambda s, n: _message(s, n).update(position=F("position") + 1),
    "far": lambda s, n: _message(s, n).update(position=F("position") + 500 * POSITION_STEP),
    "unpinned": lambda s, n: Message.objects.filter(session=s).update(pinned=False),
    "deleted": lambda s, n: Message.objects.filter(pk__in=_message(s, n)).delete(),
    "cursor": lambda s, n: _state(s, n).update(cursor=F("cursor") + POSITION_STEP),
    "cursor back": lambda s, n: _state(s, n).update(cursor=0),
    "cursor anywhere": lambda s, n: _state(s, n).update(cursor=n * POSITION_STEP),
    "covered": lambda s, n: _state(s, n).update(covered_messages=F("covered_messages") + 1),
    "covered tokens": lambda s, n: _state(s, n).update(covered_tokens=F("covered_tokens") + 1),
    "covered chars": lambda s, n: _state(s, n).update(covered_chars=F("covered_chars") + 1),
    "no state": lambda s, n: _state(s, n).delete(),
    "link": lambda s, n: SessionSummaryMessage.objects.filter(pk__in=_links(s, n)).delete(),
    "link elsewhere": lambda s, n: SessionSummaryMessage.objects.filter(
        pk__in=_links(s, n)
    ).update(message=Message.objects.filter(session=s).order_by("-position")[0].pk),
    "restored": lambda s, n: _summary(s, n).update(status="restored"),
    "superseded": lambda s, n: _summary(s, n).update(status="superseded"),
    "covers_from": lambda s, n: _summary(s, n).update(covers_from=F("covers_from") + 1),
    "covers_through": lambda s, n: _summary(s, n).update(covers_through=F("covers_through") + 1),
    "linked": lambda s, n: _summary(s, n).update(message_count=F("message_count") + 1),
    "summary elsewhere": lambda s, n: _summary(s, n).update(branch=_branch(s, n)[0].pk),
    "no summary": lambda s, n: _summary(s, n).delete(),
    "active": lambda s, n: Session.objects.filter(pk=s.pk).update(active_branch=None),
}  # fmt: skip


def _pick(rows, number: int):
    ids = list(rows.values_list("pk", flat=True))
    return rows.model.objects.filter(pk=ids[number % len(ids)] if ids else None)


def _branch(session, number):
    return _pick(Branch.objects.filter(session=session).order_by("created_at"), number)


def _message(session, number):
    return _pick(Message.objects.filter(session=session).order_by("created_at", "pk"), number)


def _state(session, number):
    states = CompactionState.objects.filter(branch__session=session)
    return _pick(states.order_by("branch__created_at"), number)


def _summary(session, number):
    return _pick(SessionSummary.objects.filter(session=session).order_by("created_at"), number)


def _links(session, number) -> list[int]:
    rows = SessionSummaryMessage.objects.filter(summary__session=session).order_by("pk")
    ids = list(rows.values_list("pk", flat=True))
    return [ids[number % len(ids)]] if ids else []


CHANGE = st.tuples(st.sampled_from(sorted(CHANGES)), st.integers(0, 40))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(changes=st.lists(CHANGE, max_size=2))
def test_whatever_is_found_was_suspected(session, changes):
    point = transaction.savepoint()
    try:
        for name, number in changes:
            try:
                with transaction.atomic():
                    CHANGES[name](session, number)
            except IntegrityError:
                # The database keeps this one from being there.
                continue
        findings = list(_look(session.pk))
        codes = [one.code for one in findings]
        doubted = to_examine([session.pk])
        assert doubted or not codes
        if doubted.get(session.pk):
            assert [one.code for one in examine(session.pk, work_alone=True)] == codes
    finally:
        transaction.savepoint_rollback(point)


def test_a_message_before_the_beginning_of_a_root_is_suspected(owner):
    """The stored sums agree with each other: its place alone tells."""
    other = SessionFactory(owner=owner, wires=talk(2))
    first = Message.objects.filter(session=other).order_by("position")[0]
    Message.objects.filter(pk=first.pk).update(position=-1)
    assert "place_before_fork" in [one.code for one in _look(other.pk)]
    assert to_examine([other.pk]).keys() == {other.pk}


def test_statements_do_not_grow_with_sessions_and_branches(session, owner):
    with CaptureQueriesContext(connection) as few:
        assert not to_examine([session.pk])
    others = [SessionFactory(owner=owner, wires=talk(4, marker=1)) for _ in range(5)]
    for other in others:
        row = Message.objects.filter(session=other, role="assistant").first()
        for _ in range(6):
            transcript.fork(other, at=row)
    with CaptureQueriesContext(connection) as many:
        assert not to_examine([session.pk, *(other.pk for other in others)])
    assert len(many) <= len(few) <= 30


def test_of_a_session_at_work_the_work_alone_is_examined(session):
    """A queue with a backlog has many of them; their messages were looked at together."""
    CompactionState.objects.filter(branch=session.branch).update(lease_owner=session.pk)
    assert to_examine([session.pk]) == {session.pk: True}
    Session.objects.filter(pk=session.pk).update(active_branch=None)
    assert to_examine([session.pk]) == {session.pk: False}


# --- the command ----------------------------------------------------------------------------------


def ran(*arguments: str) -> str:
    out = StringIO()
    call_command("doctor", *arguments, stdout=out, stderr=StringIO())
    return out.getvalue()


@pytest.fixture
def five(owner, queued) -> list[Session]:
    made = [SessionFactory(owner=owner, wires=talk(4, marker=1)) for _ in range(5)]
    return sorted(made, key=lambda one: one.pk)


def test_only_what_may_be_wrong_is_examined(five, monkeypatch):
    examined: list[UUID] = []

    def noted(session_id, **options):
        examined.append(session_id)
        return examine(session_id, **options)

    monkeypatch.setattr(doctor, "examine", noted)
    Branch.objects.filter(session=five[2]).update(message_count=99)
    with pytest.raises(SystemExit):
        ran()
    assert examined == [five[2].pk]


def test_whole_ids_are_looked_up_together(five):
    statements = []
    for some in (five[:3], five):
        with CaptureQueriesContext(connection) as queries:
            assert f"{len(some)} sessions examined" in ran(
                "--session", *(str(one.pk) for one in some)
            )
        statements.append(len(queries))
    assert statements[0] == statements[1]


def test_an_id_that_is_gone_is_named_beside_others(five):
    gone = "00000000-0000-4000-8000-000000000000"
    with pytest.raises(CommandError, match=f"no session whose id is or starts or ends .*{gone}"):
        ran("--session", str(five[0].pk), gone)


def test_it_goes_on_behind_the_session_where_it_was_stopped(five, monkeypatch):
    Branch.objects.filter(session=five[3]).update(message_count=99)

    def stopped(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "examine", stopped)
    with pytest.raises(CommandError, match=f"3 sessions. Go on with --after {five[2].pk}"):
        ran()
    monkeypatch.undo()
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("doctor", "--after", str(five[2].pk), stdout=out, stderr=StringIO())
    assert "2 sessions examined: 1 error" in out.getvalue()


def test_a_wrong_place_to_go_on_from_is_a_sentence(five):
    with pytest.raises(CommandError, match="is no id of a session") as error:
        ran("--after", "yesterday")
    assert error.value.returncode == 2
