"""What the documentation has people type is there: commands, their options, modules, themes."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from django.apps import apps
from django.conf import settings
from django.core.management import get_commands, load_command_class
from django.db import connection

from tests.bench.__main__ import THEMES
from tests.docs_tables import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = re.compile(r"manage\.py ([a-z]\w+)([^\n`|#&;)]*)")
MODULE = re.compile(r"python -m (tests(?:\.\w+)+)([^\n`|)]*)")
OPTION = re.compile(r"(?<!\S)\[?(--[a-z][\w-]*)")
TABLE = re.compile(r"\b(?:ALTER TABLE|FROM|JOIN)\s+(\w+)")
SQL_BLOCK = re.compile(r"```sql\n(.*?)```", re.DOTALL)


SQL_PAGES = [page for page in PAGES if SQL_BLOCK.search(page.read_text())]


def found(pattern: re.Pattern[str]) -> Iterator[tuple[str, str, str]]:
    """Yield (page, name, rest of the line) of everything that pages name so."""
    for page in PAGES:
        for match in pattern.finditer(page.read_text()):
            yield str(page.relative_to(ROOT)), match.group(1), match.group(2)


@cache
def options_of(name: str) -> set[str]:
    """Return the options of a command, those of its sub-commands too."""
    app = get_commands()[name]
    command = app if not isinstance(app, str) else load_command_class(app, name)
    parsers, options = [command.create_parser("manage.py", name)], set()
    for parser in parsers:
        for action in parser._actions:
            options |= set(action.option_strings)
            choices = action.choices
            parsers += choices.values() if isinstance(choices, dict) else ()
    return options


def test_every_command_of_a_page_exists_with_its_options():
    missing = []
    for page, name, rest in found(COMMAND):
        if name not in get_commands():
            missing.append(f"{page}: manage.py {name}")
            continue
        missing += [
            f"{page}: manage.py {name} {option}"
            for option in OPTION.findall(rest)
            if option not in options_of(name)
        ]
    assert missing == []


def test_every_module_of_a_page_exists():
    missing = [name for _, name, _ in found(MODULE) if importlib.util.find_spec(name) is None]
    assert missing == []


def test_every_theme_of_the_benchmark_that_a_page_names_exists():
    named = {word for _, name, rest in found(MODULE) if name == "tests.bench"
             for word in re.findall(r"(?<![-\w\[])[a-z_]+", rest)}  # fmt: skip
    assert named
    assert named <= set(THEMES)


@pytest.mark.parametrize("page", SQL_PAGES)
def test_every_table_in_a_page_s_sql_exists(page: Path):
    tables = {model._meta.db_table for model in apps.get_models()}
    named = set()
    for block in SQL_BLOCK.findall(page.read_text()):
        named |= set(TABLE.findall(re.sub(r"--.*", "", block)))
    ours = {name for name in named if not name.startswith("pg_")}
    assert ours
    assert ours <= tables


@pytest.mark.skipif(
    settings.DATABASES["default"]["ENGINE"] != "django.db.backends.postgresql",
    reason="the pages' statements are for PostgreSQL",
)
@pytest.mark.django_db
@pytest.mark.parametrize("page", SQL_PAGES)
def test_every_statement_of_a_page_can_be_executed(page: Path):
    for block in SQL_BLOCK.findall(page.read_text()):
        with connection.cursor() as cursor:
            cursor.execute(block.replace("%", "%%"), [])
