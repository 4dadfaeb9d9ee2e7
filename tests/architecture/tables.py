"""What a database holds, in a form that can be compared: our tables, and what migrate installs.

    python -m tests.architecture.tables

migrates the database of DATABASE_URL and prints that as JSON.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from django.apps import apps
from django.db.backends.base.base import BaseDatabaseWrapper

OUR_APPS = ("chatapp", "compaction")
# Names that come of a table's name at the time stay when the table gets another one.
GIVEN_NAME = re.compile(r"INDEX \w+(?:_[0-9a-f]{8}|_pkey)(?:_like|_uniq)? ON")


def described(connection: BaseDatabaseWrapper) -> dict[str, Any]:
    """Return columns and constraints of every table of ours, and the rows that migrate installs."""
    from django_q.models import Schedule

    from compaction.models import CompactionProfile

    models = [model for app in OUR_APPS for model in apps.get_app_config(app).get_models()]
    with connection.cursor() as cursor:
        tables = {
            name: {
                "columns": _columns(connection, cursor, name),
                "constraints": _constraints(connection, cursor, name),
                "conditions": _conditions(connection, cursor, name),
            }
            for name in sorted(model._meta.db_table for model in models)
        }
    return {
        "tables": tables,
        "profiles": sorted(CompactionProfile.objects.values_list("name", "version")),
        "schedules": sorted(Schedule.objects.values_list("name", "func")),
    }


def _columns(connection: BaseDatabaseWrapper, cursor: Any, table: str) -> dict[str, list[Any]]:
    found = connection.introspection.get_table_description(cursor, table)
    return {
        column.name: [str(column.type_code), column.display_size, column.null_ok, column.default]
        for column in found
    }


def _constraints(connection: BaseDatabaseWrapper, cursor: Any, table: str) -> list[str]:
    # Without their names: some hold a hash of how a constraint came to be.
    found = connection.introspection.get_constraints(cursor, table)
    return sorted(json.dumps(each, sort_keys=True, default=str) for each in found.values())


def _conditions(connection: BaseDatabaseWrapper, cursor: Any, table: str) -> list[str]:
    """Return the definitions of indexes, whose conditions Django does not read, and of checks."""
    if connection.vendor == "sqlite":
        cursor.execute(
            "SELECT sql FROM sqlite_master WHERE type = 'index' AND tbl_name = %s", [table]
        )
    else:
        cursor.execute(
            "SELECT indexdef FROM pg_indexes WHERE tablename = %s "
            "UNION ALL SELECT pg_get_constraintdef(oid) FROM pg_constraint "
            "WHERE contype = 'c' AND conrelid = %s::regclass",
            [table, table],
        )
    found = (definition for (definition,) in cursor.fetchall() if definition)
    return sorted(GIVEN_NAME.sub("INDEX of the database ON", one) for one in found)


if __name__ == "__main__":
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    call_command("migrate", verbosity=0)
    json.dump(described(connection), sys.stdout)
