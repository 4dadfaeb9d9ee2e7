"""The benchmark: prints what things cost, asserts nothing about time.

    python -m tests.bench [THEME…] [--json FILE]

It works on a database of its own: a temporary SQLite file, or a scratch database beside the one
that DATABASE_URL names, which it removes again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import django

from tests.bench.measure import Row

THEMES = (
    "deciding", "taking_turns", "compacting", "backlogs", "counting", "importing", "serving",
    "far_database", "commanding", "peers", "storing", "appending", "waiting", "forking",
    "fidelity", "fidelity_costs", "hostile", "hammering", "abridging", "characters", "replaying",
)  # fmt: skip


def main(arguments: list[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--json", type=Path, help="write {name, n, value, unit, aim} there too")
    parser.add_argument("themes", nargs="*", metavar="THEME", help=f"of {', '.join(THEMES)}")
    parser.add_argument("--only", nargs="+", choices=THEMES, default=(), metavar="THEME")
    options = parser.parse_args(arguments)
    themes = (*options.themes, *options.only) or THEMES
    if unknown := [theme for theme in themes if theme not in THEMES]:
        parser.error(f"there is no theme {unknown[0]!r}; the themes are {', '.join(THEMES)}")
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    # A line a decision would be longer than the table.
    os.environ.setdefault("LOG_LEVEL", "WARNING")
    django.setup()
    from tests.bench.sizes import Sizes
    from tests.bench.themes import run

    with scratch_database():
        rows = []
        for row in run(themes, Sizes()):
            print(f"{row.name:<52}{row.n:>9,}{row.value:>14,.1f} {_unit(row)}", flush=True)
            rows.append(row.as_dict())
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def _unit(row: Row) -> str:
    return f"{row.unit} (aim: {row.aim})" if row.aim else row.unit


@contextmanager
def scratch_database() -> Iterator[None]:
    """Have the block work on a database of its own, with another connection to it open."""
    from django.db import connection

    old = connection.settings_dict["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    # As in an installation, where the queue's workers hold theirs, ours is never the last
    # connection that is closed: SQLite would put its log away each time.
    other = connection.copy()
    other.ensure_connection()
    try:
        yield
    finally:
        other.close()
        connection.creation.destroy_test_db(old, verbosity=0)


if __name__ == "__main__":
    main(sys.argv[1:])
