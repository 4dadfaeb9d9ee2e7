"""The tables of the documentation say what the code declares, and each setting is declared once."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest

from chatapp.conf import ChatappSettings, ModelSettings, ServerSettings
from compaction.conf import CompactionSettings
from compaction.engine.profile import ENVIRONMENT, WINDOW_ENVIRONMENT
from tests import docs_tables
from tests.docs_tables import ROOT

GROUPS = (ServerSettings, ModelSettings, ChatappSettings, CompactionSettings)
# Who may ask the environment for what is no setting of ours: programs that are started, tiktoken,
# the terminal.
ASKING = {
    "chatapp/asgi.py",
    "chatapp/wsgi.py",
    "chatapp/environment.py",
    "chatapp/llm/encodings.py",
    "chatapp/llm/local.py",
    "chatapp/management/console.py",
    "compaction/demo/serving.py",
}


def declared() -> list[str]:
    """Return every variable as often as it is declared."""
    found = [one.variable for group in GROUPS for one in group.declarations() if one.variable]
    # Those of every preset are declared once and stand in each preset's table.
    return [*found, *(ENVIRONMENT | WINDOW_ENVIRONMENT)]


def test_every_table_is_what_the_code_declares():
    assert [str(path.relative_to(ROOT)) for path in docs_tables.outdated()] == []


def test_every_table_stands_on_a_page():
    pages = "\n".join(path.read_text() for path in docs_tables.pages())
    assert set(re.findall(r"<!-- generated: (\w+) -->", pages)) == set(docs_tables.TABLES)


@pytest.mark.parametrize("table", docs_tables.TABLES.values())
def test_a_table_has_rows_and_no_empty_first_cell(table):
    rows = [line for line in table().splitlines() if line.startswith("|")]
    assert len(rows) > 5
    assert [row for row in rows if row.startswith("|  |")] == []


def test_every_variable_is_declared_once():
    assert [name for name, times in Counter(declared()).items() if times > 1] == []


def test_every_setting_says_what_it_does():
    texts = [one.text for group in GROUPS for one in group.declarations()]
    assert [text for text in texts if not text.endswith(".")] == []


def test_nobody_else_reads_the_environment():
    asking = set()
    for folder in ("chatapp", "compaction"):
        for path in (ROOT / folder).rglob("*.py"):
            tree = ast.parse(path.read_text())
            names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
            if names & {"environ", "getenv"}:
                asking.add(str(path.relative_to(ROOT)))
    assert asking <= ASKING


def test_a_page_that_tells_something_else_is_found_and_written_anew(tmp_path, monkeypatch, capsys):
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text("Before\n<!-- generated: reasons -->\nold\n<!-- /generated -->\nafter\n")
    monkeypatch.setattr(docs_tables, "ROOT", tmp_path)
    assert docs_tables.main(["--check"]) == 1
    assert "docs/page.md is outdated" in capsys.readouterr().out
    assert docs_tables.main([]) == 0
    assert "| `manual` | By hand |" in page.read_text()
    assert page.read_text().startswith("Before\n")
    assert docs_tables.main(["--check"]) == 0
