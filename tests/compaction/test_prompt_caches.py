"""What prompt caches held: stored with the call and the next turn, shown by profile."""

from __future__ import annotations

import pytest

from chatapp.models import Message
from compaction.models import CompactionRun, CompactionStep, SessionSummary
from compaction.statistics.prompt_caches import CacheRow, note_next_turn
from compaction.statistics.report import Period
from tests.compaction.support import NEVER, compact, say
from tests.compaction.test_report import as_json, report, run_row, summary_row
from tests.factories import SessionFactory, UserFactory, profile, talk

pytestmark = pytest.mark.django_db


def usage(prompt: int, cached: int | None = None) -> dict:
    told = {"prompt_tokens": prompt, "completion_tokens": 20, "total_tokens": prompt + 20}
    return told | ({} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}})


@pytest.fixture
def session(owner, model_server):
    profile("watched", **NEVER, keep_last_n=2)
    model_server.script = [
        {
            "when": {"purpose": "summary"},
            "reply": {"text": "They talked of lorem.", "usage": usage(900, 640)},
        },
        {"when": {"purpose": "chat", "call": 1}, "reply": {"text": "a", "usage": usage(500, 128)}},
        {"when": {"purpose": "chat"}, "reply": {"text": "b", "usage": usage(530, 500)}},
    ]
    return SessionFactory(owner=owner, wires=talk(6))


def next_of(summary: SessionSummary) -> tuple[int | None, int | None]:
    summary.refresh_from_db()
    return summary.next_cached_tokens, summary.next_uncached_tokens


def test_a_call_stores_what_its_server_had_cached(session):
    run = compact(session)
    step = CompactionStep.objects.get(run=run)
    assert (step.input_tokens, step.cached_tokens) == (900, 640)
    assert (run.cached_tokens, run.uncached_tokens) == (640, 260)


def test_the_pages_and_the_api_tell_what_was_cached(api, admin_client, session):
    run = compact(session)
    step = CompactionStep.objects.get(run=run)
    told = "640 of 900 prompt tokens (71.1 %)"
    for page in (
        f"/admin/compaction/compactionrun/{run.pk}/change/",
        f"/admin/compaction/compactionstep/{step.pk}/change/",
    ):
        assert told in admin_client.get(page).content.decode()
    answer = api.get(f"/api/v1/runs/{run.pk}/").json()
    assert (answer["cached_tokens"], answer["uncached_tokens"]) == (640, 260)
    assert [one["cached_tokens"] for one in answer["steps"]] == [640]


def test_a_page_is_silent_about_the_cache_where_no_server_was_asked(admin_client, owner):
    profile(**NEVER, keep_last_n=2)
    run = compact(SessionFactory(owner=owner, wires=talk(6)))
    page = admin_client.get(f"/admin/compaction/compactionrun/{run.pk}/change/")
    assert page.status_code == 200
    assert "prompt tokens (" not in page.content.decode()


def test_sentences_that_were_chosen_read_no_prompt(owner):
    profile(**NEVER, keep_last_n=2)
    run = compact(SessionFactory(owner=owner, wires=talk(6)))
    assert run.status == "succeeded"
    assert (run.cached_tokens, run.uncached_tokens) == (0, 0)


def test_the_first_turn_behind_a_summary_is_stored_and_no_later_one(session):
    compact(session)
    summary = SessionSummary.objects.get()
    assert next_of(summary) == (None, None)
    say(session)
    assert next_of(summary) == (128, 372)
    say(session)
    assert next_of(summary) == (128, 372)


def test_only_the_first_turn_costs_a_statement(
    session, django_assert_num_queries, django_assert_max_num_queries
):
    say(session)
    compact(session)
    with django_assert_max_num_queries(1_000) as first:
        say(session)
    with django_assert_num_queries(len(first) - 1):
        say(session)


@pytest.mark.parametrize(
    "fields",
    [
        {"usage": None},
        {"usage": {"completion_tokens": 5}},
        {"usage": usage(100), "metadata": {"usage_of_new_part": True}},
        {"usage": usage(100), "metadata": {"usage_doubted": True}},
    ],
)
def test_a_report_that_says_nothing_of_the_request_is_not_stored(session, fields):
    compact(session)
    summary = SessionSummary.objects.get()
    note_next_turn([summary], Message(**fields))
    assert next_of(summary) == (None, None)
    note_next_turn([summary], None)
    note_next_turn([], Message(usage=usage(10)))
    note_next_turn([summary], Message(usage=usage(100)))
    assert next_of(summary) == (0, 100)


def test_the_report_shows_the_sums_by_profile_and_by_what_started_the_run(db):
    profile("quiet")
    session = SessionFactory(owner=UserFactory())
    clock = {"reason": "cache_expiring", "trigger": "proactive"}
    first = run_row(session, cached_tokens=1_000, uncached_tokens=50, **clock)
    run_row(session, "failed", cached_tokens=500, uncached_tokens=25, **clock)
    summary_row(
        first, 0.2, reason="cache_expiring", profile=first.profile,
        next_cached_tokens=70, next_uncached_tokens=30,
    )  # fmt: skip
    other = run_row(session, cached_tokens=0, uncached_tokens=4_000)
    summary_row(other, 0.2, reason="manual", profile=other.profile, next_uncached_tokens=None)
    run_row(session, "skipped")
    assert Period().caches() == [
        CacheRow(profile="quiet", by_clock=False, runs=1, uncached=4_000),
        CacheRow(
            profile="quiet", by_clock=True, runs=2, cached=1_500, uncached=75,
            turns=1, next_cached=70, next_uncached=30,
        ),
    ]  # fmt: skip
    assert as_json()["caches"][1]["next_cached"] == 70
    text = report()
    assert "Prompt tokens of summaries' calls" in text
    assert "1,500" in text


def test_a_whole_conversation_reaches_the_report(session):
    compact(session)
    say(session)
    assert CompactionRun.objects.get().status == "succeeded"
    (row,) = as_json()["caches"]
    assert row == {
        "profile": "watched", "by_clock": False, "runs": 1, "cached": 640, "uncached": 260,
        "turns": 1, "next_cached": 128, "next_uncached": 372,
    }  # fmt: skip
