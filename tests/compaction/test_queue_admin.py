"""The queue's own tables in the admin: shown to whoever may, and changed by nobody."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission
from django.test import Client
from django_q.models import Failure, OrmQ, Schedule, Success, Task

from tests.factories import UserFactory

pytestmark = pytest.mark.django_db
EVIL = {
    "name": "evil",
    "func": "os.system",
    "args": "'touch /tmp/evil'",
    "schedule_type": "O",
    "repeats": "-1",
    "next_run_0": "2026-01-01",
    "next_run_1": "00:00:00",
}


@pytest.fixture(params=["staff with all permissions", "superuser"])
def client(request):
    user = UserFactory(is_staff=True, is_superuser=request.param == "superuser")
    found = Permission.objects.filter(content_type__app_label="django_q")
    assert found.filter(codename="add_schedule").exists()
    user.user_permissions.set(found)
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def schedule():
    return Schedule.objects.create(name="ours", func="compaction.tasks.sweep")


def task(success: bool) -> Task:
    return Task.objects.create(
        id="a" * 32, name="n", func="os.system", args=("true",), success=success,
        started="2026-01-01T00:00:00Z", stopped="2026-01-01T00:00:01Z",
    )  # fmt: skip


def test_nobody_adds_a_schedule(client):
    before = Schedule.objects.count()
    for method in (client.get, client.post):
        assert method("/admin/django_q/schedule/add/", EVIL).status_code == 403
    assert Schedule.objects.count() == before


def test_nobody_changes_or_deletes_a_schedule(client, schedule):
    page = f"/admin/django_q/schedule/{schedule.pk}"
    assert client.post(f"{page}/change/", EVIL).status_code == 403
    assert client.post(f"{page}/delete/", {"post": "yes"}).status_code == 403
    schedule.refresh_from_db()
    assert schedule.func == "compaction.tasks.sweep"


def test_schedules_are_shown(client, schedule):
    assert "compaction.tasks.sweep" in client.get("/admin/django_q/schedule/").content.decode()
    shown = client.get(f"/admin/django_q/schedule/{schedule.pk}/change/")
    assert shown.status_code == 200
    assert b'name="func"' not in shown.content


@pytest.mark.parametrize(("page", "success"), [("success", True), ("failure", False)])
def test_a_task_is_not_sent_again(client, monkeypatch, page, success):
    sent = []
    monkeypatch.setattr("django_q.admin.async_task", lambda *call, **more: sent.append(call))
    found = task(success)
    data = {"action": "resubmit_task", "_selected_action": [found.pk]}
    client.post(f"/admin/django_q/{page}/", data)
    assert sent == []
    assert client.get(f"/admin/django_q/{page}/{found.pk}/change/").status_code == 200


def test_no_page_of_the_queue_was_forgotten():
    pages = {model for model in admin.site._registry if model._meta.app_label == "django_q"}
    assert {Schedule, Success, Failure} <= pages <= {Schedule, Success, Failure, OrmQ}
    assert all("OnlyShown" in type(admin.site.get_model_admin(model)).__name__ for model in pages)
