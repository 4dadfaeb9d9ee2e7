"""Imports in the admin: how far they are, what they became, and who may read what."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.utils.html import strip_tags

from chatapp.imports import accept_file
from chatapp.models import ImportJob
from tests.chatapp.test_many_conversations import lines
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db
IMPORTS = "/admin/chatapp/importjob/"


@pytest.fixture(autouse=True)
def no_queue(queued):
    """Imports may queue work; it is not done here."""


def page_of(client: Client, job: ImportJob) -> str:
    return strip_tags(client.get(f"{IMPORTS}{job.pk}/change/").content.decode())


@pytest.fixture
def reader(client) -> Client:
    """Staff who may look at imports, and at nothing else."""
    staff = UserFactory(is_staff=True)
    staff.user_permissions.add(Permission.objects.get(codename="view_importjob"))
    client.force_login(staff)
    return client


def test_the_list_says_how_far_each_import_is(admin_client, owner, django_assert_max_num_queries):
    for start in range(3):
        accept_file(owner=owner, content=lines(2, start=start))
    ImportJob.objects.create(owner=owner)
    with django_assert_max_num_queries(6):
        shown = strip_tags(admin_client.get(IMPORTS).content.decode())
    assert shown.count("2 of 2 conversations") == 3
    assert "not read yet" in shown


def test_the_list_is_searched_by_owner(admin_client, owner):
    mine = accept_file(owner=owner, content=lines(1)).job
    other = accept_file(owner=UserFactory(username="somebody"), content=lines(1)).job
    listed = admin_client.get(IMPORTS, {"q": "somebod"}).context["cl"].result_list
    assert [job.pk for job in listed] == [other.pk]
    assert mine.pk != other.pk


def test_a_page_shows_sessions_problems_and_times(admin_client, owner):
    job = accept_file(owner=owner, content=lines(2) + b"\nno JSON at all").job
    shown = page_of(admin_client, job)
    assert "Talk 0" in shown
    assert "1 problem" in shown
    assert "3: The line was left out" in shown


def test_what_quotes_the_file_is_shown_to_those_who_may_read_messages_only(
    reader, admin_client, owner
):
    job = accept_file(owner=owner, content=lines(2) + b"\nno JSON at all", name="diary.json").job
    assert "diary.json" in page_of(admin_client, job)
    shown = page_of(reader, job)
    assert "1 problem" in shown
    assert "diary" not in shown
    assert "The line was left out" not in shown
    assert "Talk 0" not in shown


def test_a_queued_import_says_that_no_worker_lives(admin_client, owner):
    job = accept_file(owner=owner, content=lines(2), in_background=True).job
    assert "Start manage.py qcluster" in page_of(admin_client, job).replace("`", "")


def test_nothing_can_be_changed_or_deleted(admin_client, owner):
    job = accept_file(owner=owner, content=lines(1)).job
    assert admin_client.get(f"{IMPORTS}add/").status_code == 403
    assert admin_client.post(f"{IMPORTS}{job.pk}/delete/").status_code == 403
    assert admin_client.post(f"{IMPORTS}{job.pk}/change/", {"status": "queued"}).status_code == 403
