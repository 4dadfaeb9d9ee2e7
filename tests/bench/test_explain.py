"""Hot queries use indexes: the plans of a small database in which reading a table whole is dear."""

from __future__ import annotations

import pytest
from django.db import connection

from tests.bench.explain import (
    Plan,
    Report,
    Scan,
    _of_postgresql,
    _of_sqlite,
    explain,
    large_indexes,
    told,
)
from tests.bench.hot_texts import LARGE, WHY_WHOLE
from tests.bench.million import fill
from tests.bench.processes import own_queue
from tests.bench.themes import instant_settings

MESSAGES = 6_000
# Of a small table the planner would take these. Without the first alone it makes a bitmap of all
# rows for the first ones of a list.
DEAR = ("enable_seqscan", "enable_bitmapscan")


def plan_of(sql: str, *parameters) -> Plan:
    """Return the plan of a statement, where a small table is no reason to read it whole."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL enable_seqscan = off")
            return _of_postgresql(sql, parameters)
    return _of_sqlite(sql, parameters)


def open_anew() -> None:
    """Have the next statement open a connection, also where an application made a pool of them."""
    connection.close()
    connection.close_pool()


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_no_hot_query_reads_a_large_table_whole():
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            name = connection.ops.quote_name(connection.settings_dict["NAME"])
            # Of the database, for a turn opens connections of its own.
            for way in DEAR:
                cursor.execute(f"ALTER DATABASE {name} SET {way} = off")
        open_anew()
    try:
        with instant_settings(), own_queue():
            report = explain(fill(MESSAGES))
    finally:
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                for way in DEAR:
                    cursor.execute(f"ALTER DATABASE {name} RESET {way}")
            open_anew()
    assert report.statements > 500
    assert [(one.work, one.sql) for one in report.faults] == []
    # A reason that nothing needs any more would hide what comes next.
    used = {(one.work.partition(",")[0], one.table) for one in report.scans}
    assert set(WHY_WHOLE) - used == set()


@pytest.mark.django_db
def test_a_plan_without_an_index_is_found():
    assert plan_of('SELECT * FROM "messages" WHERE "content" = %s', "x").whole == {"messages"}
    assert plan_of('SELECT COUNT(*) FROM "messages" U0').whole == {"messages"}


@pytest.mark.django_db
def test_a_plan_with_an_index_names_it():
    sql = 'SELECT * FROM "messages" WHERE "branch_id" = %s AND "position" > 5 ORDER BY "position"'
    key = "0" * 32 if connection.vendor == "sqlite" else "0" * 8 + "-0000" * 3 + "-" + "0" * 12
    plan = plan_of(sql, key)
    assert plan.indexes == {"message_place"}
    assert plan.whole == set()


@pytest.mark.django_db
def test_a_walk_that_a_limit_ends_reads_no_table_whole():
    newest = 'SELECT "id" FROM "messages" ORDER BY "created_at" DESC, "id" DESC'
    assert plan_of(f"{newest} LIMIT 100").whole == set()


@pytest.mark.django_db
def test_the_report_names_every_index_of_the_large_tables():
    report = Report()
    works = "turn, a fork", "turn, summarised", "GET newest, a fork"
    report.used_by["message_place"] |= dict.fromkeys(works, "SELECT 1")
    report.scans.append(Scan(work="page, a fork", table="messages", sql="SELECT\n 1"))
    lines = list(told(report))
    assert sum(line.startswith(tuple(large_indexes())) for line in lines) == len(large_indexes())
    assert next(line for line in lines if line.startswith("message_place ")).endswith(
        "GET newest, turn"
    )
    assert "page, a fork reads messages from end to end." in lines
    assert {about.partition(" ")[0] for about in large_indexes().values()} == LARGE
