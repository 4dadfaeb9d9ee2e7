"""The presets by their names in the commands: the demo, the report, summaries made again."""

from __future__ import annotations

from typing import Any

import pytest

from chatapp.models import Session
from compaction.models import CompactionRun, SessionSummary
from compaction.profiles import find_profile, save_profile
from tests.compaction.support import NEVER, compact
from tests.compaction.test_commands import lines, resummarize
from tests.compaction.test_demo import _no_network as no_network
from tests.compaction.test_demo import demo, table_of
from tests.compaction.test_report import as_json, report
from tests.factories import SessionFactory, profile, talk
from tests.facts import code

__all__ = ["no_network"]
pytestmark = pytest.mark.django_db
both = pytest.mark.parametrize("preset", ["balanced", "checkpoint"])


def by_profile() -> dict[str, Any]:
    """The report's groups by the names of the profiles."""
    return {group["key"]: group for group in as_json("--by", "profile")["groups"]}


@both
def test_the_demo_compacts_every_sample_with_it_and_the_report_names_it(preset):
    save_profile(name=preset, base=preset, parameters={}, make_default=True)
    done = demo("--no-serve")
    assert (done.error, done.err) == (None, "")
    samples = Session.objects.count()
    assert samples == 3
    for run in CompactionRun.objects.all():
        assert (run.status, run.profile.name) == ("succeeded", preset)
        assert run.tokens_after < run.tokens_before
        assert f"{run.tokens_before:,} → {run.tokens_after:,}" in table_of(done.out)
    assert SessionSummary.objects.filter(status="active").count() == samples
    group = by_profile()[preset]
    assert (group["runs"], group["succeeded"], group["failed"]) == (samples, samples, 0)
    assert f"\n{preset} " in report("--by", "profile")
    # Once more there is nothing to do.
    assert demo("--no-serve").out.count("already compacted") == samples
    assert CompactionRun.objects.count() == samples


@both
def test_summaries_are_made_again_with_it_and_the_report_tells_both_profiles(owner, preset):
    profile(**NEVER, keep_last_n=2)
    session = SessionFactory(owner=owner, model="embedded", wires=talk(6, marker=1))
    assert compact(session).status == "succeeded"
    old = SessionSummary.objects.get()
    done = resummarize("--all", f"--profile={preset}", "--json")
    assert done.error is None
    assert lines(done)[str(session.pk)]["status"] == "succeeded"
    new = SessionSummary.objects.get(status="active")
    assert (new.supersedes, new.profile) == (old, find_profile(preset))
    assert (new.covers_from, new.covers_through) == (old.covers_from, old.covers_through)
    assert code(1) in new.summary_text
    assert {name: group["succeeded"] for name, group in by_profile().items()} == {
        "test": 1,
        preset: 1,
    }
    # With the same version there is nothing to do.
    again = resummarize("--all", f"--profile={preset}")
    assert "0 summarised again" in again.out
    assert SessionSummary.objects.count() == 2
