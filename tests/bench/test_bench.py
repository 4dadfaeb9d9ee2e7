"""The benchmark runs, at tiny sizes; how fast is for people to look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.__main__ import THEMES
from tests.bench.sizes import TINY
from tests.bench.themes import run

# A process's own clock ticks every 10 ms, and the tiny sizes may take less than that; what hardly
# runs compacts nothing and delays nobody.
MAY_BE_NOTHING = {
    "CPU ms",
    "CPU s",
    "summarised/s",
    "runs",
    "turns",
    "% known",
    "values",
    "MB more",
    "cuts",
    "answers",
    "messages",
}
AIMED = {
    "storing": "flat",
    "waiting": "none",
    "forking": "10 at most",
}


@pytest.mark.slow
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.django_db(transaction=True)
def test_every_theme_measures_something(theme):
    rows = list(run([theme], TINY))

    assert rows
    assert all(row.name and row.unit for row in rows)
    missing = [row for row in rows if row.value <= 0 and row.unit not in MAY_BE_NOTHING]
    # On PostgreSQL a few turns may find room in pages that other tests have emptied.
    assert [row for row in missing if row.name != "stored turn, on disk"] == []


def test_every_named_theme_is_a_module_and_every_module_of_rows_is_named():
    folder = Path(__file__).parent
    measuring = {one.stem for one in folder.glob("*.py") if "\ndef measure(" in one.read_text()}

    assert set(THEMES) == measuring


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("theme", AIMED)
def test_a_row_that_the_issue_has_an_aim_for_says_it(theme):
    aims = {row.aim for row in run([theme], TINY)} - {""}

    assert aims == {AIMED[theme]}


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_filled_database_has_right_sums(capsys):
    from chatapp.context.backend import context_backend
    from chatapp.models import Branch
    from chatapp.selectors import rebuild_sums
    from compaction.branches.coverage import coverage_of
    from compaction.models import CompactionState, SessionSummary
    from tests.bench.fill import fill
    from tests.chatapp.test_transcript import check_chars, path

    large = fill(messages=600, summaries=24, sessions=8)

    for branch in Branch.objects.select_related("session", "parent"):
        assert rebuild_sums(branch)[:2] == (branch.message_count, branch.token_total)
        check_chars(branch, path(branch))
    for state in CompactionState.objects.select_related("branch"):
        reach = coverage_of(state.branch)
        assert reach.as_columns() == {name: getattr(state, name) for name in reach.as_columns()}
    assert SessionSummary.objects.count() == 24
    assert all(row.links.count() == row.message_count for row in SessionSummary.objects.all())
    assert context_backend.prepare(large).messages
    assert "Log in as operator" in capsys.readouterr().out
