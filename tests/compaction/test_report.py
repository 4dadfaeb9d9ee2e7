"""compaction_report: every figure against rows whose sums were worked out by hand."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone
from wcwidth import width

from chatapp.models import Session
from compaction.models import CompactionProfile, CompactionRun, CompactionStep, SessionSummary
from compaction.profiles import save_profile
from compaction.statistics.ratios import Ratios
from compaction.statistics.report import GROUPINGS, Period
from tests.compaction.support import NEVER, compact
from tests.factories import SessionFactory, UserFactory, profile, talk

pytestmark = pytest.mark.django_db

MONDAY = datetime(2026, 11, 23, 12, tzinfo=UTC)
TUESDAY = MONDAY + timedelta(days=1)


def run_row(session: Session, status: str = "succeeded", **fields: Any) -> CompactionRun:
    """Store a run as it was left; `seconds` is how long it worked, `model` answered its call."""
    fields = {"created_at": MONDAY, "trigger": "manual", "reason": "manual"} | fields
    seconds, model = fields.pop("seconds", None), fields.pop("model", "")
    if seconds is not None:
        fields["started_at"] = fields["created_at"]
        fields["finished_at"] = fields["created_at"] + timedelta(seconds=seconds)
    fields.setdefault("profile", CompactionProfile.objects.get(is_default=True))
    run = CompactionRun.objects.create(
        session=session, branch=session.branch, mode="inline", status=status, **fields
    )
    if model:
        step_row(run, model=model, cost=run.cost)
    return run


def step_row(run: CompactionRun, **fields: Any) -> CompactionStep:
    return CompactionStep.objects.create(
        run=run, kind="chunk", order=run.steps.count() + 1, outcome="ok", **fields
    )


def summary_row(run: CompactionRun, ratio: float, **fields: Any) -> SessionSummary:
    """Store a summary of a ratio; superseded, so that any number stands over one stretch."""
    return SessionSummary.objects.create(
        **{
            "session": run.session, "branch": run.branch, "run": run, "status": "superseded",
            "summary_text": "s", "compression_ratio": ratio, "covers_from": 1, "covers_through": 2,
        }
        | fields
    )  # fmt: skip


def report(*arguments: str) -> str:
    out = io.StringIO()
    call_command("compaction_report", *arguments, stdout=out)
    return out.getvalue()


def as_json(*arguments: str) -> dict[str, Any]:
    return json.loads(report("--json", *arguments))


@pytest.fixture
def week() -> dict[str, CompactionRun]:
    """Seven runs in two sessions: four on Monday, three on Tuesday."""
    profile()
    ada = SessionFactory(owner=UserFactory(username="ada"), title="First")
    bob = SessionFactory(owner=UserFactory(username="bob"), title="Second")
    other = save_profile(name="other", parameters={})
    runs = {
        "big": run_row(
            ada, tokens_before=1000, tokens_after=300, model_calls=2, cost=0.5, seconds=4,
            model="m-1",
        ),
        "small": run_row(
            ada, tokens_before=500, tokens_after=400, model_calls=1, cost=0.25, seconds=9,
            reason="window", model="m-2", created_at=TUESDAY,
        ),
        "skipped": run_row(ada, "skipped", error_code="busy", error="Busy."),
        "failed": run_row(
            bob, "failed", error_code="out_of_time", error="An older sentence.", seconds=60,
            model_calls=3, model="m-1", profile=other,
        ),
        "again": run_row(
            bob, "failed", error_code="out_of_time", error="The run used up its time.",
            created_at=TUESDAY, seconds=1, profile=other,
        ),
        "cancelled": run_row(bob, "cancelled", reason="window"),
        "queued": run_row(bob, "queued", reason="window", created_at=TUESDAY),
    }  # fmt: skip
    # What a failed run spent stands in its calls alone.
    runs["failed"].steps.update(cost=0.125)
    summary_row(runs["big"], 0.3)
    summary_row(runs["small"], 0.5)
    return runs


# --- figures --------------------------------------------------------------------------------------


def test_it_counts_the_sessions_and_the_runs_by_outcome(week):
    done = as_json()
    assert done["sessions"] == 2
    assert done["runs"] == {
        "runs": 7, "succeeded": 2, "skipped": 1, "failed": 2, "cancelled": 1, "queued": 1,
        "running": 0,
    }  # fmt: skip


def test_it_counts_the_runs_by_reason_in_words(week):
    rows = {row["reason"]: row for row in as_json()["reasons"]}
    assert list(rows) == ["manual", "window"]
    assert (rows["manual"]["words"], rows["manual"]["runs"]) == ("By hand", 4)
    assert (rows["window"]["words"], rows["window"]["runs"]) == ("Window nearly full", 3)
    assert (rows["window"]["succeeded"], rows["window"]["cancelled"]) == (1, 1)


def test_it_adds_up_what_succeeded_runs_saved(week):
    run_row(week["big"].session, "failed", tokens_before=9000, tokens_after=1)
    assert as_json()["tokens_saved"] == 700 + 100


def test_it_adds_up_calls_and_cost_with_those_of_failed_runs(week):
    done = as_json()
    assert done["model_calls"] == 2 + 1 + 3
    assert done["cost"] == pytest.approx(0.5 + 0.25 + 0.125)


@pytest.mark.parametrize(
    ("ratios", "median", "p90"),
    [
        ([0.4], 0.4, 0.4),
        ([0.1, 0.3], 0.2, 0.3),
        ([0.5, 0.1, 0.3], 0.3, 0.5),
        ([n / 100 for n in range(1, 11)], 0.055, 0.09),
        ([n / 100 for n in range(1, 12)], 0.06, 0.10),
        ([0.2] * 20, 0.2, 0.2),
    ],
)
def test_median_and_p90_are_those_of_the_ratios_in_order(week, ratios, median, p90):
    SessionSummary.objects.all().delete()
    for ratio in ratios:
        summary_row(week["big"], ratio)
    done = as_json()["ratio"]
    assert done["summaries"] == len(ratios)
    assert (done["median"], done["p90"]) == (pytest.approx(median), pytest.approx(p90))


def test_drafts_and_summaries_without_a_ratio_do_not_count(week):
    summary_row(week["big"], 0.9, status="draft")
    summary_row(week["big"], 0.0)
    assert as_json()["ratio"]["summaries"] == 2


def test_the_slowest_runs_come_with_session_and_calls(week):
    rows = as_json()["slowest"]
    assert [row["seconds"] for row in rows] == [60, 9, 4, 1]
    assert rows[0] == {
        "run": str(week["failed"].pk), "session": str(week["failed"].session_id),
        "title": "Second", "status": "failed", "calls": 3, "seconds": 60.0,
    }  # fmt: skip


def test_five_slowest_runs_are_enough(week):
    for seconds in range(10, 17):
        run_row(week["big"].session, seconds=seconds)
    assert [row["seconds"] for row in as_json()["slowest"]] == [60, 16, 15, 14, 13]


def test_failures_are_counted_by_code_with_the_newest_sentence(week):
    run_row(week["big"].session, "failed", error_code="not_smaller", error="Not smaller.")
    failures = as_json()["failures"]
    assert [(f["code"], f["count"]) for f in failures] == [("out_of_time", 2), ("not_smaller", 1)]
    assert failures[0]["sentence"] == "The run used up its time."
    assert failures[0]["run"] == str(week["again"].pk)
    assert failures[0]["created_at"] == "2026-11-24T12:00:00+00:00"


def test_it_tells_what_a_real_compaction_saved(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    run = compact(SessionFactory(owner=owner, wires=talk(6, marker=1)))
    done = as_json()
    assert (done["sessions"], done["runs"]["succeeded"], done["model_calls"]) == (1, 1, 1)
    assert done["tokens_saved"] == run.tokens_before - run.tokens_after > 0
    # What the summary costs as it is sent, of what it was made from.
    stored = SessionSummary.objects.get(run=run)
    assert done["ratio"]["median"] == pytest.approx(stored.compression_ratio)
    assert stored.compression_ratio > run.ratio


# --- the period -----------------------------------------------------------------------------------


def test_since_a_day_leaves_out_what_was_before(week):
    done = as_json("--since", "2026-11-24")
    assert done["since"] == "2026-11-24T00:00:00+00:00"
    assert (done["runs"]["runs"], done["tokens_saved"], done["cost"]) == (3, 100, 0.25)
    assert done["ratio"] == {"summaries": 1, "median": 0.5, "p90": 0.5}
    assert [failure["count"] for failure in done["failures"]] == [1]


def test_a_day_starts_at_midnight_in_utc_wherever_the_server_stands(week, settings):
    settings.TIME_ZONE = "Asia/Shanghai"
    assert as_json("--since", "2026-11-24")["since"] == "2026-11-24T00:00:00+00:00"
    CompactionRun.objects.update(created_at=datetime(2026, 11, 23, 20, tzinfo=UTC))
    assert [row["key"] for row in as_json("--by", "day")["groups"]] == ["2026-11-23"]


def test_a_time_with_a_zone_is_understood(week):
    done = as_json("--since", "2026-11-24T20:00+08:00")
    assert (done["since"], done["runs"]["runs"]) == ("2026-11-24T12:00:00+00:00", 3)


def test_a_number_of_days_counts_back_from_now(week):
    CompactionRun.objects.update(created_at=timezone.now() - timedelta(days=8))
    run_row(week["big"].session, created_at=timezone.now() - timedelta(days=6))
    assert as_json("--since", "7d")["runs"]["runs"] == 1
    assert as_json("--since", "9d")["runs"]["runs"] == 8


@pytest.mark.parametrize("text", ["yesterday", "2026-02-30", "0d", "-1d", "9999999999d", "7", ""])
def test_a_wrong_date_is_a_sentence(text):
    with pytest.raises(CommandError) as error:
        report(f"--since={text}")
    assert str(error.value) == (
        f"“{text}” is no date; write 2026-11-27, 2026-11-27T18:00Z, or 7d for seven days."
    )


# --- groups ---------------------------------------------------------------------------------------


def groups(by: str) -> list[tuple[Any, ...]]:
    keys = ("key", "runs", "succeeded", "failed", "tokens_saved", "median_ratio", "cost")
    return [tuple(row[key] for key in keys) for row in as_json("--by", by)["groups"]]


def test_by_day_has_one_row_a_day_in_order(week):
    assert groups("day") == [
        ("2026-11-23", 4, 1, 1, 700, 0.3, 0.625),
        ("2026-11-24", 3, 1, 1, 100, 0.5, 0.25),
    ]


def test_by_profile_takes_all_versions_of_a_name_together(week):
    newer = profile(message_limit=41)
    assert newer.version == 2
    run_row(week["big"].session, profile=newer)
    assert groups("profile") == [
        ("test", 6, 3, 0, 800, 0.4, 0.75),
        ("other", 2, 0, 2, 0, None, 0.125),
    ]


def test_by_model_takes_the_one_that_answered_first(week):
    step_row(week["small"], model="m-1")
    assert groups("model") == [
        ("", 4, 0, 1, 0, None, 0.0),
        ("m-1", 2, 1, 1, 700, 0.3, 0.625),
        ("m-2", 1, 1, 0, 100, 0.5, 0.25),
    ]
    assert "no model answered" in report("--by", "model")


def test_by_owner_has_the_name_of_the_account(week):
    assert groups("owner") == [
        ("bob", 4, 0, 2, 0, None, 0.125),
        ("ada", 3, 2, 0, 800, 0.4, 0.75),
    ]


def test_groups_have_ratios_of_their_own(week):
    for ratio in (0.1, 0.2, 0.35):
        summary_row(week["small"], ratio)
    found = {group.key: group.ratios for group in Period().groups("day")}
    assert found["2026-11-23"] == Ratios(summaries=1, median=0.3, p90=0.3)
    assert found["2026-11-24"] == Ratios(summaries=4, median=pytest.approx(0.275), p90=0.5)


@pytest.mark.parametrize("by", GROUPINGS)
def test_the_number_of_queries_does_not_grow(week, by, django_assert_num_queries):
    for number in range(5):
        session = SessionFactory(owner=UserFactory())
        run = run_row(session, seconds=1, model=f"x-{number}")
        summary_row(run, 0.2)
        run_row(session, "failed", error_code=f"code-{number}")
    with django_assert_num_queries(12):
        as_json("--by", by)


# --- what is written ------------------------------------------------------------------------------


def test_the_keys_of_the_json_object_stay(week):
    assert list(as_json("--by", "day")) == [
        "since", "sessions", "runs", "tokens_saved", "ratio", "model_calls", "cost", "reasons",
        "slowest", "failures", "by", "groups", "quality", "caches",
    ]  # fmt: skip


def test_an_empty_period_has_the_same_keys_as_json(db):
    done = as_json("--since", "7d")
    assert (done["runs"]["runs"], done["tokens_saved"], done["cost"]) == (0, 0, 0.0)
    assert done["ratio"] == {"summaries": 0, "median": None, "p90": None}
    assert (done["by"], done["groups"], done["failures"]) == (None, [], [])


def test_an_empty_period_is_a_sentence(db):
    assert report() == "Compaction of all time: no run was requested.\n"
    since = report("--since", "2026-11-24")
    assert since == "Compaction since 2026-11-24 00:00 UTC: no run was requested.\n"


def test_the_table_says_the_figures_in_words(week):
    text = report()
    assert text.startswith("Compaction of all time\n")
    for line in (
        "Sessions      2",
        "Runs          7: 1 queued, 2 succeeded, 1 skipped, 2 failed, 1 cancelled",
        "Tokens saved  800",
        "Ratio         median 40.0 %, p90 50.0 % of 2 summaries",
        "Model calls   6",
        "Cost          0.8750",
        "out_of_time: 2 runs",
        "  The run used up its time.",
        f"  Newest: run {week['again'].pk}, 2026-11-24 12:00 UTC",
    ):
        assert line in text.splitlines()


def test_the_columns_stand_straight(week):
    lines = report("--by", "owner").splitlines()
    start = lines.index("Runs by owner") + 2
    assert lines[start : start + 4] == [
        "Owner  Runs  Succeeded  Failed  Tokens saved  Median ratio    Cost",
        "─────  ────  ─────────  ──────  ────────────  ────────────  ──────",
        "bob       4          0       2             0             —  0.1250",
        "ada       3          2       0           800        40.0 %  0.7500",
    ]


def test_no_line_is_wider_than_80_cells_and_none_has_colours(week):
    Session.objects.update(title="一个很长的题目" * 20)
    CompactionRun.objects.filter(status="failed").update(error="运行失败了。" * 60)
    CompactionRun.objects.filter(reason="window").update(reason="a_rule_of_a_plug_in_with_a_name")
    text = report("--by", "owner")
    assert max(width(line) for line in text.splitlines()) <= 80
    assert "\x1b" not in text


def test_stored_text_cannot_drive_the_terminal(week):
    Session.objects.update(title="\x1b[2Jgone")
    CompactionRun.objects.filter(status="failed").update(error="bad \x1b]0;title\x07\nend")
    text = report()
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\\x1b[2Jgone" in text
