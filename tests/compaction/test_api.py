"""The REST API of compaction."""

from __future__ import annotations

import uuid

import pytest
from rest_framework.test import APIClient

from compaction.branches.leases import Lease, ensure_state
from compaction.models import CompactionRun, CompactionState, SessionSummary
from tests.compaction.support import NEVER, compact, sent, state
from tests.factories import SessionFactory, UserFactory, profile, store, talk

pytestmark = pytest.mark.django_db

RUN_FIELDS = {
    "id", "status", "trigger", "reason", "profile", "tokens_before", "tokens_after", "chunk_count",
    "max_depth", "truncated", "summary", "error", "created_at", "started_at", "finished_at",
    "steps",
}  # fmt: skip
STEP_FIELDS = {
    "id", "parent", "kind", "depth", "order", "first_message", "last_message", "message_count",
    "input_tokens", "output_tokens", "cached_tokens", "outcome", "duration_ms", "error",
}  # fmt: skip


@pytest.fixture
def session(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


@pytest.fixture
def url(session) -> str:
    return f"/api/v1/sessions/{session.pk}"


@pytest.fixture
def stranger() -> APIClient:
    client = APIClient()
    client.force_authenticate(UserFactory())
    return client


def post(api, path, body=None):
    return api.post(path, body or {}, format="json")


def is_problem(response, status: int) -> bool:
    body = response.json()
    return (
        response.status_code == status == body["status"]
        and response.headers["Content-Type"] == "application/problem+json"
        and {"type", "title", "status", "detail"} <= body.keys()
    )


# --- compact/ -------------------------------------------------------------------------------------


def test_compact_queues_a_run_and_answers_202(api, url, queued, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        response = post(api, f"{url}/compact/")
    assert response.status_code == 202
    body = response.json()
    assert (body["status"], body["trigger"], body["reason"]) == ("queued", "manual", "manual")
    assert queued == [("compaction.tasks.run_compaction", body["id"])]


def test_compact_with_wait_answers_200_and_the_finished_run(api, url, session):
    response = post(api, f"{url}/compact/", {"wait": True})
    assert response.status_code == 200
    body = response.json()
    assert body["status"] == "succeeded"
    assert body["summary"] == str(SessionSummary.objects.get().pk)
    assert body["tokens_after"] < body["tokens_before"]
    assert (body["chunk_count"], body["max_depth"], body["truncated"]) == (1, 0, False)


def test_a_run_and_its_steps_have_the_fields_of_the_issue(api, url):
    body = post(api, f"{url}/compact/", {"wait": True}).json()
    assert body.keys() >= RUN_FIELDS
    assert body["profile"] == "test"
    (step,) = body["steps"]
    assert step.keys() == STEP_FIELDS
    assert (step["kind"], step["depth"], step["order"], step["parent"]) == ("chunk", 0, 1, None)
    assert (step["outcome"], step["message_count"]) == ("ok", 10)


def test_a_failed_run_is_a_finished_run_that_says_why(api, url, model_server):
    model_server.script = [{"when": {}, "reply": {"text": ""}}]
    response = post(api, f"{url}/compact/", {"wait": True})
    assert response.status_code == 200
    assert response.json()["status"] == "failed"
    assert "empty" in response.json()["error"]


def test_a_dry_run_says_what_would_happen_and_writes_nothing(api, url, session, model_server):
    CompactionState.objects.all().delete()
    body = post(api, f"{url}/compact/", {"dry_run": True}).json()
    assert body["dry_run"] is True
    assert (body["messages"], body["keep"], body["calls"], body["cost"]) == (10, 2, 1, 0.0)
    rows = session.branch.messages.order_by("position")[:10]
    assert body["tokens"] == sum(row.tokens for row in rows)
    assert not CompactionRun.objects.exists()
    assert not CompactionState.objects.exists()
    assert not model_server.calls


def test_a_dry_run_counts_with_the_window_of_the_summariser(api, url, use_models, model_server):
    use_models(model_server.models(CONTEXT_WINDOW=1300, MAX_OUTPUT=500))
    # 300 tokens of transcript fit beside the answer and the prompt: refused, halved, merged.
    assert post(api, f"{url}/compact/", {"dry_run": True}).json()["calls"] > 1


def test_instructions_reach_the_summariser(api, url, model_server):
    post(api, f"{url}/compact/", {"wait": True, "instructions": "Keep the dates."})
    assert "Keep the dates." in model_server.of("summary")[0].text


def test_another_profile_can_be_named(api, url):
    profile("tiny", **NEVER, keep_last_n=8)
    body = post(api, f"{url}/compact/", {"wait": True, "profile": "tiny"}).json()
    assert body["profile"] == "tiny"
    assert SessionSummary.objects.get().message_count == 4


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"profile": "nobody"}, "profile"),
        ({"wait": "perhaps"}, "wait"),
        ({"instructions": "x" * 4001}, "instructions"),
    ],
)
def test_compact_refuses_what_it_cannot_use(api, url, body, field):
    response = post(api, f"{url}/compact/", body)
    assert is_problem(response, 400)
    assert field in response.json()["errors"]


def test_a_busy_branch_answers_with_a_skipped_run(api, url, session):
    Lease.acquire_or_steal(ensure_state(session.branch).pk, uuid.uuid4())
    body = post(api, f"{url}/compact/", {"wait": True}).json()
    assert (body["status"], body["error_code"]) == ("skipped", "busy")


# --- compaction/ ----------------------------------------------------------------------------------


def test_the_state_says_where_the_cursor_stands_and_what_comes_next(api, url, session):
    compact(session)
    profile(message_limit=40, keep_last_n=2)
    body = api.get(f"{url}/compaction/").json()
    assert body["cursor"] == SessionSummary.objects.get().covers_through
    assert (body["is_consolidating"], body["pending"], body["due"]) == (False, False, None)
    rules = {rule["reason"]: rule for rule in body["triggers"]}
    assert rules["message_limit"] == {
        "reason": "message_limit", "limit": 40, "now": 2, "left": 38, "waits_for": "",
    }  # fmt: skip
    assert set(rules) == {"message_limit", "token_limit"}


def test_the_state_shows_a_worker(api, url, session):
    Lease.acquire_or_steal(ensure_state(session.branch).pk, uuid.uuid4())
    body = api.get(f"{url}/compaction/").json()
    assert body["is_consolidating"] is True
    assert body["lease_expires_at"] is not None


def test_reading_the_state_stores_nothing(api, url):
    CompactionState.objects.all().delete()
    assert api.get(f"{url}/compaction/").status_code == 200
    assert not CompactionState.objects.exists()


def test_a_session_gets_a_profile_of_its_own(api, url, session):
    profile("mine", **NEVER, keep_last_n=3)
    profile("other")
    response = api.patch(f"{url}/compaction/", {"profile": "mine"}, format="json")
    assert (response.status_code, response.json()["profile"]) == (200, "mine")
    assert state(session).profile == "mine"


def test_an_unknown_profile_is_refused(api, url):
    response = api.patch(f"{url}/compaction/", {"profile": "nobody"}, format="json")
    assert is_problem(response, 400)
    assert "bisect" in str(response.json()["errors"]["profile"])


# --- runs/ ----------------------------------------------------------------------------------------


def test_a_run_is_found_by_its_id(api, session):
    run = compact(session)
    body = api.get(f"/api/v1/runs/{run.pk}/").json()
    assert body["id"] == str(run.pk)
    assert len(body["steps"]) == 1


def test_runs_are_listed_newest_first(api, session):
    first = compact(session)
    second = compact(session)
    body = api.get("/api/v1/runs/").json()
    assert [row["id"] for row in body["results"]] == [str(second.pk), str(first.pk)]
    assert {"next", "previous", "results"} == body.keys()


def test_runs_can_be_filtered(api, session):
    run = compact(session)
    compact(session)
    body = api.get(f"/api/v1/runs/?session={session.pk}&status=succeeded").json()
    assert [row["id"] for row in body["results"]] == [str(run.pk)]


def test_listing_runs_takes_the_same_queries_however_many_there_are(
    api, session, django_assert_max_num_queries
):
    for marker in range(5):
        compact(session)
        store(session, talk(3, marker=marker * 10))
    with django_assert_max_num_queries(6):
        assert len(api.get("/api/v1/runs/").json()["results"]) == 5


def test_a_waiting_run_can_be_cancelled(api, url):
    run = post(api, f"{url}/compact/").json()
    body = post(api, f"/api/v1/runs/{run['id']}/cancel/").json()
    assert body["status"] == "cancelled"


def test_a_finished_run_cannot(api, session):
    run = compact(session)
    assert is_problem(post(api, f"/api/v1/runs/{run.pk}/cancel/"), 409)


# --- summaries/ -----------------------------------------------------------------------------------


@pytest.fixture
def summary(session) -> SessionSummary:
    compact(session)
    return SessionSummary.objects.get()


def test_a_sessions_summaries_are_listed_newest_first(api, url, session, summary):
    store(session, talk(4, marker=20))
    compact(session)
    rows = api.get(f"{url}/summaries/").json()["results"]
    assert [row["id"] for row in rows][1] == str(summary.pk)
    assert len(rows) == 2


def test_summaries_that_no_longer_count_are_listed_too(api, url, summary):
    post(api, f"/api/v1/summaries/{summary.pk}/restore/")
    assert len(api.get(f"{url}/summaries/").json()["results"]) == 1
    assert api.get(f"{url}/summaries/?status=active").json()["results"] == []


def test_a_summary_says_what_it_is(api, summary):
    body = api.get(f"/api/v1/summaries/{summary.pk}/").json()
    assert body["summary_text"] == summary.summary_text
    assert (body["status"], body["reason"], body["message_count"]) == ("active", "manual", 10)
    assert body["metadata"]["algorithm"] == "bisect_v1"


def test_a_summarys_sources_come_in_order(api, session, summary):
    rows = api.get(f"/api/v1/summaries/{summary.pk}/messages/").json()["results"]
    expected = session.branch.messages.filter(kind="message").order_by("position")[:10]
    assert [row["id"] for row in rows] == [str(row.pk) for row in expected]


def test_a_summarys_steps_are_its_tree(api, summary):
    (step,) = api.get(f"/api/v1/summaries/{summary.pk}/steps/").json()
    assert step.keys() == STEP_FIELDS


def test_restoring_sends_the_messages_again(api, session, summary):
    response = post(api, f"/api/v1/summaries/{summary.pk}/restore/")
    assert response.status_code == 200
    assert response.json()["cursor"] == 0
    assert response.json()["summaries"][0]["status"] == "restored"
    assert len(sent(session)) == 12


def test_restoring_twice_is_a_conflict(api, summary):
    post(api, f"/api/v1/summaries/{summary.pk}/restore/")
    assert is_problem(post(api, f"/api/v1/summaries/{summary.pk}/restore/"), 409)


def test_restoring_under_newer_ones_is_a_conflict_unless_they_go_too(api, session, summary):
    store(session, talk(4, marker=20))
    compact(session)
    path = f"/api/v1/summaries/{summary.pk}/restore/"
    assert is_problem(post(api, path), 409)
    assert len(post(api, path, {"cascade": True}).json()["summaries"]) == 2


def test_restoring_a_leased_branch_is_a_conflict(api, session, summary):
    Lease.acquire_or_steal(session.branch.pk, uuid.uuid4())
    assert is_problem(post(api, f"/api/v1/summaries/{summary.pk}/restore/"), 409)


# --- whose ----------------------------------------------------------------------------------------


@pytest.fixture
def paths(url, session, summary) -> list[tuple[str, str]]:
    run = CompactionRun.objects.get().pk
    return [
        ("post", f"{url}/compact/"),
        ("get", f"{url}/compaction/"),
        ("patch", f"{url}/compaction/"),
        ("get", f"{url}/summaries/"),
        ("get", f"/api/v1/runs/{run}/"),
        ("post", f"/api/v1/runs/{run}/cancel/"),
        ("get", f"/api/v1/summaries/{summary.pk}/"),
        ("get", f"/api/v1/summaries/{summary.pk}/messages/"),
        ("get", f"/api/v1/summaries/{summary.pk}/steps/"),
        ("post", f"/api/v1/summaries/{summary.pk}/restore/"),
    ]


def test_somebody_elses_looks_like_nothing(stranger, paths):
    for method, path in paths:
        assert is_problem(getattr(stranger, method)(path), 404), path
    assert stranger.get("/api/v1/runs/").json()["results"] == []
    assert SessionSummary.objects.get().status == "active"


def test_without_a_login_nothing_is_shown(paths):
    for method, path in paths:
        assert getattr(APIClient(), method)(path).status_code == 401, path


def test_ids_that_do_not_exist_are_not_found(api, db):
    nobody = uuid.uuid4()
    for path in (f"runs/{nobody}/", f"summaries/{nobody}/", f"sessions/{nobody}/compaction/"):
        assert is_problem(api.get(f"/api/v1/{path}"), 404)
