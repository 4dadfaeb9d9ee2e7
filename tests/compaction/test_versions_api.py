"""POST summaries/{id}/activate/ and …/edit/."""

from __future__ import annotations

import uuid

import pytest
from rest_framework.test import APIClient

from compaction.branches.leases import Lease
from compaction.models import SessionSummary
from compaction.runs.resummarize import resummarize
from tests.compaction.support import NEVER, compact, sent
from tests.factories import SessionFactory, UserFactory, profile, store, talk

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2, target_summary_tokens=300)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


@pytest.fixture
def old(session, model_server) -> SessionSummary:
    """The first version of a summary; a second one counts."""
    compact(session)
    first = SessionSummary.objects.get()
    SessionSummary.objects.update(summary_text="The first text.")
    assert resummarize(first).status == "succeeded"
    return first


@pytest.fixture
def current(old) -> SessionSummary:
    return SessionSummary.objects.get(status="active")


def post(api, summary, act: str, body: dict | None = None):
    return api.post(f"/api/v1/summaries/{summary.pk}/{act}/", body or {}, format="json")


def refused(response) -> str:
    assert response.status_code == 409
    assert response.headers["Content-Type"] == "application/problem+json"
    return response.json()["detail"]


def test_activating_says_what_counts_and_what_did(api, session, old, current):
    response = post(api, old, "activate")
    assert response.status_code == 200
    body = response.json()
    assert (body["summary"]["id"], body["summary"]["status"]) == (str(old.pk), "active")
    assert (body["replaced"]["id"], body["replaced"]["status"]) == (str(current.pk), "superseded")
    assert (body["restored"], body["kept"], body["is_sent"]) == ([], [], True)
    assert body["cursor"] == old.covers_through
    assert any("The first text." in wire["content"] for wire in sent(session))


def test_every_status_has_its_time(api, old, current):
    post(api, old, "activate")
    first = api.get(f"/api/v1/summaries/{old.pk}/").json()
    second = api.get(f"/api/v1/summaries/{current.pk}/").json()
    assert first["created_at"] < first["superseded_at"] < first["activated_at"]
    assert first["updated_at"] == first["activated_at"]
    assert second["updated_at"] == second["superseded_at"] > second["activated_at"]
    assert (first["restored_at"], second["restored_at"]) == (None, None)
    restored = api.post(f"/api/v1/summaries/{old.pk}/restore/", {}, format="json").json()
    told = restored["summaries"][0]
    assert told["updated_at"] == told["restored_at"] > first["activated_at"]


def test_newer_summaries_are_a_question_with_two_answers(api, session, old, current):
    store(session, talk(3, marker=20))
    compact(session)
    newer = SessionSummary.objects.order_by("covers_through").last()
    assert "“restore”" in refused(post(api, old, "activate"))
    assert post(api, old, "activate", {"newer": "drop"}).status_code == 400
    assert post(api, old, "activate", {"cascade": True}).status_code == 400
    body = post(api, old, "activate", {"newer": "restore"}).json()
    assert [row["id"] for row in body["restored"]] == [str(newer.pk)]
    assert body["restored"][0]["status"] == "restored"


def test_what_cannot_be_activated_is_a_conflict(api, old, current):
    assert "counts already" in refused(post(api, current, "activate"))


def test_a_busy_branch_is_a_conflict_in_clear_words(api, session, old, current):
    Lease.acquire_or_steal(session.branch.pk, uuid.uuid4())
    sentence = (
        "A run is working on this branch at the moment. Nothing was changed; try again when it "
        "has ended."
    )
    assert refused(post(api, old, "activate")) == sentence
    assert refused(post(api, current, "edit", {"text": "Mine."})) == sentence


def test_editing_stores_a_version_with_its_author(api, owner, session, current):
    response = post(api, current, "edit", {"text": "Mine.", "instructions": "Keep names."})
    assert response.status_code == 201
    body = response.json()
    told = body["summary"]
    assert (told["summary_text"], told["author"], told["edited"]) == ("Mine.", owner.username, True)
    assert (told["instructions"], told["supersedes"]) == ("Keep names.", str(current.pk))
    assert (told["trigger"], told["reason"], told["run"]) == ("manual", "edited", None)
    assert body["notes"] == []
    assert any("Mine." in wire["content"] for wire in sent(session))


def test_what_a_program_wrote_has_no_author(api, current):
    told = api.get(f"/api/v1/summaries/{current.pk}/").json()
    assert (told["author"], told["edited"]) == (None, False)


def test_a_text_that_is_not_smaller_says_so(api, current):
    body = post(api, current, "edit", {"text": current.summary_text + " More."}).json()
    assert "more than the version that it replaces" in body["notes"][0]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": ""},
        {"text": " \n"},
        {"text": "a\0b"},
        {"text": 7},
        {"text": "lorem " * 2000},
        {"text": "x", "words": 1},
        {"text": "x", "instructions": "x" * 4001},
    ],
)
def test_a_text_that_cannot_be_stored_is_a_field_error(api, current, body):
    response = post(api, current, "edit", body)
    assert response.status_code == 400
    assert SessionSummary.objects.filter(reason="edited").count() == 0


def test_only_the_version_that_counts_is_edited(api, old):
    assert "Activate it first" in refused(post(api, old, "edit", {"text": "Mine."}))


def test_others_find_nothing(old, current):
    stranger = APIClient()
    stranger.force_authenticate(UserFactory())
    assert post(stranger, old, "activate").status_code == 404
    assert post(stranger, current, "edit", {"text": "Mine."}).status_code == 404
    current.refresh_from_db()
    assert current.status == "active"
