"""Which index each hot query uses: fails where one reads a large table from end to end.

    python -m tests.bench.explain [--messages 1000000] [--all] [--index NAME]

It fills a scratch database of the kind that DATABASE_URL names, does everything that
tests/bench/hot_queries.py lists, asks the database for the plan of every statement of it, and says
of each index of the large tables what uses it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import django

from tests.bench.hot_texts import LARGE, WHY_WHOLE

NOT_EXPLAINED = re.compile(r"\s*(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|SET|PRAGMA|SHOW)", re.I)
# A table and what a statement calls it, as the ORM writes them.
NAMED = re.compile(r'(?:FROM|JOIN|,|UPDATE|INTO)\s+"?(\w+)"?(?:\s+(?:AS\s+)?"?([A-Za-z]\w*)"?)?')
SQLITE_STEP = re.compile(r"^(SEARCH|SCAN) (\w+)(?: USING (?:COVERING )?INDEX (\w+))?")
SHOWN_CHARS = 200
LARGEST_SHARE = 100


@dataclass(kw_only=True)
class Plan:
    """What a plan says of tables: indexes in use, and large tables that it reads whole."""

    indexes: set[str] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """A statement that reads a large table from end to end."""

    work: str
    table: str
    sql: str

    @property
    def reason(self) -> str:
        """Why that is as it should be; empty where nobody said so."""
        return WHY_WHOLE.get((self.work.partition(",")[0], self.table), "")


@dataclass(kw_only=True)
class Report:
    """What was found over all statements."""

    scans: list[Scan] = field(default_factory=list)
    used_by: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    statements: int = 0

    @property
    def faults(self) -> list[Scan]:
        """The scans that no reason was written down for."""
        return [one for one in self.scans if not one.reason]


def main(arguments: Sequence[str]) -> int:
    """Fill, explain, print; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.explain", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--all", action="store_true", help="also scans that have a reason")
    parser.add_argument("--index", metavar="NAME", help="also the statements that use this one")
    options = parser.parse_args(arguments)
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    os.environ.setdefault("LOG_LEVEL", "ERROR")
    django.setup()
    from tests.bench.__main__ import scratch_database
    from tests.bench.million import fill
    from tests.bench.processes import own_queue
    from tests.bench.themes import instant_settings

    with scratch_database(), instant_settings(), own_queue():
        started = time.monotonic()
        # Who asks for a large share of a table reads it whole, and rightly so.
        share = options.messages // LARGEST_SHARE
        filled = fill(options.messages, backlog=share, summarised=share, say=print)
        print(f"{options.messages:,} messages in {time.monotonic() - started:.0f} s.", flush=True)
        report = explain(filled)
        for line in told(report, everything=options.all):
            print(line)
        for work, sql in report.used_by.get(options.index, {}).items():
            print(f"{work}:\n    {' '.join(sql.split())}")
    return 1 if report.faults else 0


def explain(filled: Any) -> Report:
    """Return what the plans of all hot statements say."""
    from django.db import connection

    from tests.bench.hot_queries import sent_by, works_of

    report = Report()
    plan_of = _of_postgresql if connection.vendor == "postgresql" else _of_sqlite
    known: dict[tuple[str, str], Plan] = {}
    for statement in sent_by(works_of(filled)):
        if NOT_EXPLAINED.match(statement.sql):
            continue
        # Every kind of work on one session asks for its owner, state and branch alike.
        session = statement.work.partition(", ")[2]
        plan = known.get((session, statement.sql))
        if plan is None:
            plan = plan_of(statement.sql, statement.parameters)
            known[session, statement.sql] = plan
            report.statements += 1
        for index in plan.indexes:
            report.used_by[index].setdefault(statement.work, statement.sql)
        for table in sorted(plan.whole & LARGE):
            scan = Scan(work=statement.work, table=table, sql=statement.sql)
            report.scans.append(scan)
    return report


def _of_postgresql(sql: str, parameters: Any) -> Plan:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", parameters)
        found = cursor.fetchone()[0]
    tree = json.loads(found) if isinstance(found, str) else found
    plan = Plan()
    _walk(tree[0]["Plan"], plan, is_limited=False)
    return plan


def _walk(node: dict[str, Any], plan: Plan, *, is_limited: bool) -> None:
    """Note a node and what is below it. What stands below a limit ends when that is reached."""
    kind = node["Node Type"]
    if "Index Name" in node:
        plan.indexes.add(node["Index Name"])
    index = node.get("Index Name", "")
    if kind == "Seq Scan":
        # What takes every row as it comes ends with the limit; what looks for some may not.
        if not is_limited or "Filter" in node:
            plan.whole.add(node["Relation Name"])
    # An index that holds few rows of many is read whole by whoever wants all of those. A bitmap is
    # made of all that it is asked for, before any limit.
    elif (
        index
        and "Index Cond" not in node
        and index not in partial_indexes()
        and not (is_limited and kind != "Bitmap Index Scan")
    ):
        plan.whole.add(large_indexes().get(index, "").partition(" ")[0])
    # Sorting and grouping take in everything before they give the first row.
    stops = kind not in ("Sort", "Aggregate", "WindowAgg", "Hash", "Materialize")
    for below in node.get("Plans", ()):
        _walk(below, plan, is_limited=(is_limited or kind == "Limit") and stops)


def _of_sqlite(sql: str, parameters: Any) -> Plan:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)
        steps = [row[3] for row in cursor.fetchall()]
    called = {alias or table: table for table, alias in NAMED.findall(sql)}
    called |= {table: table for table in called.values()}
    is_limited = "LIMIT" in sql and not any("FOR ORDER BY" in step for step in steps)
    plan = Plan()
    for step in steps:
        if found := SQLITE_STEP.match(step):
            how, name, index = found.groups()
            if index:
                index = _named_as_declared().get(index, index)
                plan.indexes.add(index)
            # By an index, or by the table's own order where every row will do, up to a limit.
            ends = is_limited and (index is not None or "WHERE" not in sql)
            is_small = ends or index in partial_indexes()
            if how == "SCAN" and not is_small:
                plan.whole.add(called.get(name, name))
    return plan


@cache
def partial_indexes() -> frozenset[str]:
    """Return the names of the large tables' indexes that hold only some of the rows."""
    from django.apps import apps

    return frozenset(
        one.name
        for model in apps.get_models()
        if model._meta.db_table in LARGE
        for one in (*model._meta.indexes, *model._meta.constraints)
        if getattr(one, "condition", None) is not None
    )


@cache
def large_indexes() -> dict[str, str]:
    """Return the indexes of the large tables, each with its table and its columns."""
    from django.db import connection

    found = {}
    with connection.cursor() as cursor:
        for table in sorted(LARGE):
            for name, about in connection.introspection.get_constraints(cursor, table).items():
                if about["index"] or about["unique"] or about["primary_key"]:
                    columns = ", ".join(about["columns"])
                    told = name if not name.startswith("__") else f"{table} ({columns})"
                    found[told] = f"{table} ({columns})"
    return found


@cache
def _named_as_declared() -> dict[str, str]:
    """Return what SQLite calls the indexes of constraints, and what we call them."""
    from django.db import connection

    whole = {
        name: about for name, about in large_indexes().items() if name not in partial_indexes()
    }
    by_columns = {about: name for name, about in whole.items()}
    found = {}
    with connection.cursor() as cursor:
        for table in sorted(LARGE):
            cursor.execute(f"PRAGMA index_list({table})")
            for row in cursor.fetchall():
                cursor.execute(f"PRAGMA index_info({row[1]})")
                columns = ", ".join(part[2] for part in cursor.fetchall())
                if row[1].startswith("sqlite_autoindex"):
                    found[row[1]] = by_columns.get(f"{table} ({columns})", row[1])
    return found


def told(report: Report, *, everything: bool = False) -> Iterator[str]:
    """Yield the lines of the report."""
    yield f"{report.statements:,} statements were explained."
    yield ""
    for index in large_indexes():
        works = sorted({work.partition(",")[0] for work in report.used_by.get(index, ())})
        yield f"{index:<52}{_listed(works)}"
    yield ""
    for scan in report.scans if everything else report.faults:
        yield f"{scan.work} reads {scan.table} from end to end{_because(scan.reason)}"
        yield f"    {' '.join(scan.sql.split())[:SHOWN_CHARS]}"
    yield (
        f"{len(report.faults)} statements read a large table whole, {len(report.scans)} with those "
        "that have a reason."
    )


def _listed(works: Iterable[str]) -> str:
    names = list(works)
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"{', '.join(names[:4])}{more}" if names else "no hot query"


def _because(reason: str) -> str:
    return f": {reason}" if reason else "."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
