"""The benchmark runs, at tiny sizes; how fast is for people to look at."""

from __future__ import annotations

import pytest

from tests.bench.__main__ import THEMES
from tests.bench.sizes import TINY
from tests.bench.themes import run


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.django_db(transaction=True)
def test_every_theme_measures_something(theme):
    rows = list(run([theme], TINY))

    assert rows
    # A process's own clock ticks every 10 ms: the tiny sizes may take less than that.
    assert all(row.unit and (row.value > 0 or row.unit == "CPU ms") for row in rows)


@pytest.mark.django_db(transaction=True)
def test_a_filled_database_has_right_sums(capsys):
    from chatapp.context import context_backend
    from chatapp.models import Branch
    from chatapp.selectors import rebuild_sums
    from compaction.models import CompactionState, SessionSummary
    from compaction.selectors import coverage_of
    from tests.bench.fill import fill

    large = fill(messages=600, summaries=24, sessions=8)

    for branch in Branch.objects.select_related("session", "parent"):
        assert rebuild_sums(branch)[:2] == (branch.message_count, branch.token_total)
    for state in CompactionState.objects.select_related("branch"):
        reach = coverage_of(state.branch)
        known = (state.cursor, state.covered_messages, state.covered_tokens)
        assert known == (reach.cursor, reach.messages, reach.tokens)
    assert SessionSummary.objects.count() == 24
    assert all(row.links.count() == row.message_count for row in SessionSummary.objects.all())
    assert context_backend.prepare(large, []).messages
    assert "Log in as operator" in capsys.readouterr().out
