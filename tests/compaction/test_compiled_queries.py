"""Compiled queries: each is the SQL, and gives the rows, of the queryset that it was made from."""

from __future__ import annotations

import inspect
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.db.models import Model, QuerySet
from django.db.models.functions import Now
from django.db.models.sql import UpdateQuery
from django.db.models.sql.compiler import SQLCompiler
from django.test import Client
from django.urls import URLResolver, reverse

import chatapp.admin  # noqa: F401
import compaction.admin  # noqa: F401
from chatapp import compiled
from chatapp.admin.timeline import timeline_sources
from chatapp.admin.toolkit.timeline import CompiledSource, newest_of
from chatapp.answer_requests import AnswerRequest
from chatapp.audit import AuditEntry
from chatapp.compiled import CompiledInsert, CompiledRead, CompiledUpdate, compiled_read
from chatapp.models import Branch, Incident, Message, Session
from chatapp.round_trips import Statement
from chatapp.selectors import pinned_sums, pins_behind
from chatapp.transcript import set_pinned
from compaction.branches.snapshot import snapshot_of
from compaction.limits.circuit_breaker import record_failure, record_success
from compaction.models import CompactionProfile, CompactionRun, RecoveryStep
from compaction.profiles import save_profile
from compaction.runs.lifecycle import waiting_run
from compaction.runs.scheduling import assign_profile
from compaction.runs.worker import execute_run
from tests.compaction.support import compact, say
from tests.factories import SessionFactory, api_key, store, talk
from tests.facts import seed

pytestmark = pytest.mark.django_db
# Statements of a session's page that are no compiled ones, and addresses that it looks up. There
# were 28 and 95.
MOST_MADE_ANEW, MOST_REVERSED = 10, 60
# Those of a timeline are made when its tables are first read.
for source in timeline_sources():
    assert isinstance(source, CompiledSource)
    newest_of(source)
ADMISSION = "compaction.summaries.summarizer._look"
"""What is asked before a model is: of the reads here the only one that chosen sentences go without.
"""
# Made when the product was loaded: those of tests come later.
OURS = [one for one in compiled._Compiled.every if one.build.__module__.split(".")[0] != "tests"]


def name_of(one: Any) -> str:
    return f"{one.build.__module__}.{one.__name__}"


def drawn(annotation: str, chance: random.Random) -> Any:
    """Return a value of an argument's type, by what its function says."""
    if "None" in annotation and chance.random() < 0.4:
        return None
    if "bool" in annotation:
        return chance.random() < 0.5
    if "UUID" in annotation:
        return UUID(int=chance.getrandbits(128), version=4)
    if "str" in annotation:
        return chance.choice(["a'b", "100 %s", 'x"y', "ünïcode ✓", "plain"])
    if "datetime" in annotation:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=chance.getrandbits(44))
    return chance.randrange(1, 2**31)


def arguments_of(one: Any, chance: random.Random) -> dict[str, Any]:
    given = {}
    for name, parameter in inspect.signature(one.build).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            # What titles.told_columns takes.
            given |= {"now": drawn("datetime", chance), "added": chance.randrange(1, 10**6)}
            given |= {name: drawn("int | None", chance) for name in ("asked",)}
            given["opening"] = drawn("str | None", chance)
        else:
            given[name] = drawn(str(parameter.annotation), chance)
    return given


def plain_sql(one: Any, given: dict[str, Any]) -> tuple[str, list[Any]]:
    made = one.build(**given)
    if isinstance(one, CompiledUpdate):
        rows, columns = made
        query = rows.query.chain(UpdateQuery)
        query.add_update_values(dict(columns))
    else:
        query = made.query
    sql, params = query.get_compiler(connection.alias).as_sql()
    return sql, list(params)


@pytest.mark.parametrize("one", OURS, ids=name_of)
def test_a_compiled_query_is_the_sql_of_its_queryset_for_any_values(one):
    chance = random.Random(seed())
    with transaction.atomic():
        for _ in range(12):
            given = arguments_of(one, chance)
            shape = one._shape(given, connection)
            statement = shape if isinstance(one, CompiledUpdate) else shape[0]
            assert (statement.sql, statement.params(given, connection)) == plain_sql(one, given)


def everything_of(row: Any, *, deep: bool = True) -> Any:
    """Return all that is loaded of a row, its related rows too; what is deferred is not."""
    if not isinstance(row, Model):
        return row
    state = row._state
    joined = state.fields_cache.items() if deep else ()
    related = {name: everything_of(one, deep=False) for name, one in joined}
    own = {name: value for name, value in vars(row).items() if name != "_state"}
    return type(row), own, related, state.db, state.adding


@pytest.fixture
def compared(monkeypatch) -> dict[str, int]:
    """Have every compiled read compared with its queryset; {name: rows that were compared}."""
    seen: dict[str, int] = {}
    asked = CompiledRead.asked

    def compare(
        self: Any, *, most: int | None = None, skip: int = 0, **given: Any
    ) -> Statement[list[Any]]:
        statement = asked(self, most=most, skip=skip, **given)
        rows: QuerySet[Any] = self.build(**given)
        expected = list(rows if most is None else rows[skip : skip + most])

        def compared(cursor: Any) -> list[Any]:
            found = statement.result(cursor)
            assert list(map(everything_of, found)) == list(map(everything_of, expected))
            seen[name_of(self)] = seen.get(name_of(self), 0) + len(found)
            return found

        return replace(statement, result=compared)

    raw = CompiledRead.raw

    def compare_raw(self: Any, *, most: int | None = None, **given: Any) -> list[Any]:
        found = raw(self, most=most, **given)
        assert len(found) == len(compare(self, most=most, **given).run())
        return found

    monkeypatch.setattr(CompiledRead, "asked", compare)
    monkeypatch.setattr(CompiledRead, "raw", compare_raw)
    return seen


def take_a_turn_that_leaves_messages_out(session: Session) -> None:
    limits = {"context_size": 0, "compression_hard_limit": 0, "history_limit": 6}
    limits |= {"context_size_by": "usage"}
    save_profile(name="narrow", base="sliding_window", parameters={**limits, "tail_keep_size": 2})
    assign_profile(session, "narrow")
    *_, row = store(session, talk(12))
    set_pinned(row, True)
    say(session, "What is left out?")


def see_what_is_told_of_a_session(admin_client: Client, session: Session) -> None:
    """Ask for its page where there is something to tell from each of its tables."""
    session.refresh_from_db()
    branch = session.branch
    of_session: dict[str, Any] = {"session": session, "branch": branch}
    RecoveryStep.objects.create(
        **of_session, recovery=UUID(int=1), order=1, action="truncate", outcome="smaller"
    )
    Incident.objects.create(**of_session, kind="warning", code="odd", text="It is odd.")
    AuditEntry.objects.create(**of_session, actor=session.owner, action="pinned", text="By hand.")
    Branch.objects.create(session=session, parent=branch, fork_position=1, kind="replay")
    CompactionRun.objects.create(
        **of_session,
        trigger="proactive",
        profile=CompactionProfile.objects.get(is_default=True, is_current=True),
    )
    page = reverse("admin:chatapp_session_change", args=[session.pk])
    assert admin_client.get(page).status_code == 200


def test_whole_turns_read_the_rows_of_the_plain_querysets(compared, client, admin_client):
    session = SessionFactory()
    store(session, [{"role": "system", "content": "Be brief."}, *talk(12, words=40)])
    assert [pin.role for pin in pins_behind(session.branch, 0)] == ["system"]
    compact(session, keep_last_n=4)
    # The summariser of these tests tells no breaker; a success looks for what it has to close.
    record_failure("default", UUID(int=1), "It was away.")
    record_success("default", UUID(int=1))
    first = Message.objects.filter(session=session, role="user").order_by("position")[0]
    set_pinned(first, True)
    # A run reads them with its branch's state.
    assert pinned_sums(session.branch, through=first.position).tokens > 0
    for question in ("What was first?", "ünïcode \u2028 and 'quotes' %s"):
        say(session, question)
    CompactionRun.objects.create(
        session=session,
        branch=session.branch,
        trigger="proactive",
        profile=CompactionProfile.objects.get(is_default=True, is_current=True),
    )
    assert waiting_run(session.branch) is not None
    take_a_turn_that_leaves_messages_out(session)
    assert snapshot_of(session).waiting_since is not None
    assert execute_run(waiting_run(session.branch).pk).is_finished
    key = {"Authorization": f"Bearer {api_key(session.owner)}"}
    assert client.get(f"/api/v1/sessions/{session.pk}/messages/", headers=key).status_code == 200
    see_what_is_told_of_a_session(admin_client, session)
    reads = {name_of(one) for one in OURS if isinstance(one, CompiledRead)} - {ADMISSION}
    # Where writers queue up by themselves, nobody waits for an owner's row.
    if not connection.features.has_select_for_update:
        reads -= {"chatapp.turns.lease._lock_owner"}
    without_rows = {"chatapp.llm.learned_limits._taught", "compaction.selectors._own_bare"}
    assert {name for name in reads if not compared.get(name)} <= without_rows


def test_a_run_that_asks_a_model_reads_the_rows_of_the_plain_querysets(compared, model_server):
    session = SessionFactory(wires=talk(12, words=40))
    assert compact(session, keep_last_n=4).model_calls == 1
    assert compared[ADMISSION]


def test_a_query_whose_sql_depends_on_a_value_is_refused():
    @compiled_read
    def either(*, position: int) -> QuerySet[Message]:
        rows = Message.objects.filter(position=position)
        return rows if position % 2 else rows.order_by("position")

    with pytest.raises(TypeError, match="other SQL for other values"):
        either(position=3)
    compiled._Compiled.every.remove(either)


def test_an_argument_that_is_not_in_the_sql_is_refused():
    @compiled_read
    def some(*, position: int, ignored: int) -> QuerySet[Message]:
        return Message.objects.filter(position=position)

    with pytest.raises(TypeError, match="ignored is not in its SQL"):
        some(position=3, ignored=4)
    compiled._Compiled.every.remove(some)


def test_what_cannot_be_bound_is_refused():
    @compiled_read
    def among(*, positions: list[int]) -> QuerySet[Message]:
        return Message.objects.filter(position__in=positions)

    with pytest.raises(TypeError, match="list is nothing that a compiled query binds"):
        among(positions=[1, 2])
    compiled._Compiled.every.remove(among)


def test_a_constant_that_looks_like_a_value_stays_what_it_is():
    session = SessionFactory()
    store(session, talk(3))
    first = 1_000_000

    @compiled_read
    def two(*, at: int) -> QuerySet[Message, int]:
        rows = Message.objects.filter(position__gte=first, position__lte=at)
        return rows.order_by("position").values_list("position", flat=True)

    assert two(at=first) == [first]
    assert two(at=3 * first) == [first, 2 * first, 3 * first]
    assert two(at=3 * first, most=2) == [first, 2 * first]
    compiled._Compiled.every.remove(two)


@pytest.mark.parametrize("most", [1, 3, 500])
def test_an_insert_stores_what_the_library_would_store(most):
    session = SessionFactory()
    rows = store(session, talk(4))
    columns = [field.attname for field in Message._meta.concrete_fields if field.attname != "id"]
    kept = [{name: getattr(row, name) for name in columns} for row in rows]
    Message.objects.filter(session=session).delete()
    again = [Message(**values) for values in kept]
    CompiledInsert(Message, batch_size=most)(again)
    assert not any(row._state.adding for row in again)
    there = Message.objects.filter(session=session).order_by("position")
    assert [{name: getattr(row, name) for name in columns} for row in there] == kept


def test_an_insert_that_may_conflict_leaves_what_is_there():
    session = SessionFactory()
    insert = CompiledInsert(AnswerRequest, ignore_conflicts=True)
    for packed in (b"first", b"second"):
        insert([AnswerRequest(session=session, digest="a text", packed=packed)])
    kept = AnswerRequest.objects.filter(session=session).values_list("packed", flat=True)
    assert [bytes(packed) for packed in kept] == [b"first"]


def test_an_update_says_how_many_rows_it_changed():
    session = SessionFactory()

    @compiled.compiled_update
    def rename(*, session: UUID, title: str) -> tuple[QuerySet[Session], dict[str, Any]]:
        return Session.objects.filter(pk=session), {"title": title, "updated_at": Now()}

    assert rename(session=session.pk, title="100 %s 'quoted'") == 1
    assert rename(session=UUID(int=1), title="nobody's") == 0
    session.refresh_from_db()
    assert session.title == "100 %s 'quoted'"
    compiled._Compiled.every.remove(rename)


def test_arguments_in_another_order_are_other_shapes_and_find_the_same():
    session = SessionFactory()
    store(session, talk(3))

    @compiled_read
    def between(*, after: int | None, before: int | None) -> QuerySet[Message, int]:
        rows = Message.objects.all()
        rows = rows if after is None else rows.filter(position__gt=after)
        rows = rows if before is None else rows.filter(position__lt=before)
        return rows.order_by("position").values_list("position", flat=True)

    second = 2_000_000
    assert between(after=None, before=second) == [1_000_000]
    assert between(before=None, after=second) == [
        position for position in between(after=None, before=None) if position > second
    ]
    compiled._Compiled.every.remove(between)


class OnlyDefault:
    """A router as projects write them: it looks at the model."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def db_for_read(self, model: type[Model], **hints: Any) -> str:
        self.asked.append(model._meta.label)
        return "default"

    db_for_write = db_for_read


def test_a_database_router_is_asked_about_the_model_that_is_read(settings):
    session, router = SessionFactory(), OnlyDefault()
    settings.DATABASE_ROUTERS = [router]
    say(session, "Hello")
    assert {"chatapp.Message", "chatapp.Session", "chatapp.LearnedLimits"} <= set(router.asked)


def test_a_sessions_page_makes_little_anew(admin_client, monkeypatch):
    """What was built, compiled and resolved for one session's page serves the next one's, too.

    Making SQL, reversing addresses and Django's own templates were two thirds of the page.
    """
    pages = []
    for _ in range(2):
        session = SessionFactory()
        store(session, talk(40, words=12))
        compact(session, keep_last_n=4)
        pages.append(reverse("admin:chatapp_session_change", args=[session.pk]))
    assert admin_client.get(pages[0]).status_code == 200
    made = {"SQL": 0, "addresses": 0}
    execute, look_up = SQLCompiler.execute_sql, URLResolver._reverse_with_prefix

    def executed(self: Any, *args: Any, **kwargs: Any) -> Any:
        made["SQL"] += 1
        return execute(self, *args, **kwargs)

    def looked_up(self: Any, *args: Any, **kwargs: Any) -> Any:
        made["addresses"] += 1
        return look_up(self, *args, **kwargs)

    monkeypatch.setattr(SQLCompiler, "execute_sql", executed)
    monkeypatch.setattr(URLResolver, "_reverse_with_prefix", looked_up)
    assert admin_client.get(pages[1]).status_code == 200
    assert made["SQL"] <= MOST_MADE_ANEW, made
    assert made["addresses"] <= MOST_REVERSED, made
