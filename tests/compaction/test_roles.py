"""The four roles that migrations make: what each sees and changes, on all pages of the admin."""

from __future__ import annotations

import html
import re
from importlib import import_module
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group, Permission
from django.db import connection
from django.test import Client
from django.urls import reverse

from compaction.models import CompactionRun, CompactionState
from tests.compaction import planting
from tests.compaction.planting import ON_NO_PAGE, PLANTED, addresses
from tests.compaction.support import NEVER, compact
from tests.compaction.test_permission_matrix import Desk, send_all
from tests.factories import UserFactory, profile, store, talk

pytestmark = pytest.mark.django_db

CHAT = import_module("chatapp.migrations.0018_read_texts_and_roles")
OWN = import_module("compaction.migrations.0022_mark_what_needs_a_look")
LATER = (
    import_module("chatapp.migrations.0022_let_roles_see_acts_and_originals"),
    import_module("compaction.migrations.0026_complete_bulk_jobs_and_roles"),
)
EDITOR = SimpleNamespace(connection=connection)
NO_TEXTS, READER, EDITING, ADMIN = (
    "Palimpsest reader without texts",
    "Palimpsest reader",
    "Palimpsest editor",
    "Palimpsest admin",
)


@pytest.fixture
def roles(db):
    """The groups as the migrations make them in a database without any."""
    Group.objects.all().delete()
    CHAT.add_roles(apps, EDITOR)
    for module in (OWN, *LATER):
        module.extend_roles(apps, EDITOR)


@pytest.fixture
def scene(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    session = planting.new_session(owner)
    assert compact(session).status == "succeeded"
    store(session, talk(2, marker=20))
    assert compact(session).status == "succeeded"
    return planting.plant(session, planting.staff("operator"))


def in_role(operator, name: str):
    operator.groups.set([Group.objects.get(name=name)])
    return type(operator).objects.get(pk=operator.pk)


def seen_by(scene, name: str) -> set:
    desk = Desk(addresses(most_rows=40))
    operator = in_role(scene.operator, name)
    return set().union(*(scene.seen_on(text) for _, _, text in desk.visited(operator)))


def codes(name: str) -> set[str]:
    return set(Group.objects.get(name=name).permissions.values_list("codename", flat=True))


def test_each_role_may_what_the_one_before_may(roles):
    without, reading, editing, ruling = map(codes, (NO_TEXTS, READER, EDITING, ADMIN))
    assert reading - without == {"read_texts"}
    assert reading < editing < ruling
    assert {code for code in editing - reading if code.startswith("view_")} == set()
    assert all(code.startswith("view_") for code in without)


def test_no_role_may_delete_a_conversation_or_change_people(roles):
    refused = {"delete_session", "delete_message", "change_user", "add_user", "change_group"}
    assert not codes(ADMIN) & refused


def test_a_reader_without_texts_sees_none(roles, scene):
    assert seen_by(scene, NO_TEXTS) == set()


def test_a_reader_sees_every_text(roles, scene):
    assert set(PLANTED) - seen_by(scene, READER) <= ON_NO_PAGE | {
        # Results of the queue's tasks, which are shown to who may see its tables.
        column
        for column in PLANTED
        if column[0]._meta.app_label not in planting.OUR_APPS
    }


NUMBERED = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\b\d+\b")


@pytest.mark.parametrize("name", [NO_TEXTS, READER])
def test_no_link_leads_a_reader_to_a_page_that_is_refused(roles, scene, name):
    """One link of each kind is followed, from every page of the desk."""
    CompactionRun.objects.update(requested_by=scene.operator)
    CompactionState.objects.update(hold_through=1, held_by=scene.operator)
    client = Client()
    client.force_login(in_role(scene.operator, name))
    ways = {}
    for address in addresses(most_rows=3):
        response = client.get(address)
        body = b"".join(response.streaming_content) if response.streaming else response.content
        for link in re.findall(r'<a\b[^>]* href="(/admin/[^"#]*)', body.decode()):
            ways.setdefault(
                NUMBERED.sub("0", link.partition("?")[0]), (html.unescape(link), address)
            )
    assert len(ways) > 40
    refused = [way for way in ways.values() if client.get(way[0]).status_code == 403]
    assert refused == []


@pytest.mark.parametrize("name", [NO_TEXTS, READER])
def test_readers_change_nothing(roles, scene, model_server, name):
    posts = planting.posts(scene)
    before, asked = planting.stored(), len(model_server.calls)
    send_all(in_role(scene.operator, name), posts)
    assert planting.stored() == before
    assert len(model_server.calls) == asked


def test_an_editor_runs_marks_and_restores_but_rules_nothing(roles, scene):
    posts = planting.posts(scene)
    before = planting.stored()
    send_all(in_role(scene.operator, EDITING), posts)
    changed = {label for label, rows in planting.stored().items() if rows != before[label]}
    assert {
        "chatapp.Message", "chatapp.Session", "compaction.CompactionRun", "compaction.LookMark",
        "compaction.SessionSummary", "compaction.CompactionState", "compaction.Memory",
    } <= changed  # fmt: skip
    ruled = {
        "compaction.CompactionProfile", "chatapp.LearnedLimits", "chatapp.ApiKey", "auth.User",
    }  # fmt: skip
    assert not changed & ruled


def test_a_group_of_such_a_name_that_was_there_keeps_what_it_may(db):
    Group.objects.all().delete()
    kept = Group.objects.create(name=READER)
    CHAT.add_roles(apps, EDITOR)
    assert codes(READER) == set()
    assert Group.objects.get(name=READER).pk == kept.pk


def test_who_could_read_texts_before_still_can(db):
    Group.objects.all().delete()
    person, group = UserFactory(), Group.objects.create(name="support")
    before = Permission.objects.get(codename="view_message")
    person.user_permissions.add(before)
    group.permissions.add(before)
    CHAT.add_roles(apps, EDITOR)
    assert codes("support") == {"view_message", "read_texts"}
    assert person.user_permissions.filter(codename="read_texts").exists()


def test_every_role_sees_every_table_that_has_a_page(roles):
    registered = [
        each for each in admin.site._registry if each._meta.app_label in planting.OUR_APPS
    ]
    wanted = {f"view_{each._meta.model_name}" for each in registered}
    assert wanted <= codes(NO_TEXTS)


def test_an_editor_who_starts_a_bulk_job_sees_its_page(roles, scene):
    editor = in_role(scene.operator, EDITING)
    client = Client()
    client.force_login(editor)
    answer = client.post(reverse("admin:compaction_bulk_new"), {}, follow=True)
    assert answer.status_code == 200
    assert "Working out the price" in answer.text


def test_the_roles_can_be_taken_back(roles):
    for module in LATER:
        module.shrink_roles(apps, EDITOR)
    assert not {"view_auditentry", "view_bulkjob"} & codes(ADMIN)
    assert "view_compactionrun" in codes(READER)
    OWN.shrink_roles(apps, EDITOR)
    assert "view_compactionrun" not in codes(READER)
    CHAT.remove_roles(apps, EDITOR)
    assert not Group.objects.exists()
