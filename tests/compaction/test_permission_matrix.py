"""Who sees and does what in the admin: every address and action × every single permission.

Addresses come from the admin's own urls, columns from the models, permissions from the database.
"""

from __future__ import annotations

import html
import logging
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlencode

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission
from django.contrib.messages.storage.cookie import CookieStorage
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404
from django.test import Client, RequestFactory
from django.urls import resolve
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from chatapp.models import Branch, ImportJob, Message, Session
from compaction.models import CompactionRun, Memory, MemoryVersion, SessionSummary
from tests.compaction import planting
from tests.compaction.planting import NO_TEXTS, ON_NO_PAGE, PLANTED, Scene, addresses
from tests.compaction.support import NEVER, compact
from tests.factories import profile, store, talk

pytestmark = pytest.mark.django_db

# What an address may answer with; 302 leads to a page that is asked by itself.
CALM = {200, 302, 400, 403, 404, 405}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Log none of the thousands of refusals."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def scene(owner, model_server, queued) -> Scene:
    profile(**NEVER, keep_last_n=2)
    session = planting.new_session(owner)
    assert compact(session).status == "succeeded"
    store(session, talk(2, marker=20))
    assert compact(session).status == "succeeded"
    return planting.plant(session, planting.staff("operator"))


def may(operator, *permissions: Permission) -> Client:
    """Give the operator these permissions and no others, and log them in."""
    client = Client()
    client.force_login(with_only(operator, *permissions))
    return client


def visited(client: Client, found: list[str]) -> Iterator[tuple[str, int, str]]:
    """Yield address, status and text of every page; what leads out ends the visit there."""
    for address in found:
        response = client.get(address)
        body = b"".join(response.streaming_content) if response.streaming else response.content
        yield address, response.status_code, html.unescape(body.decode())


def asked_of(operator, request):
    """Return a request as middleware would pass it on."""
    request.user, request.session = operator, {}
    request._messages = CookieStorage(request)
    request._dont_enforce_csrf_checks = True
    return request


def with_only(operator, *permissions: Permission):
    """Give the operator these permissions and no others; return them as the next request would."""
    operator.user_permissions.set(permissions)
    return type(operator).objects.get(pk=operator.pk)


def send_all(operator, posts) -> None:
    """Send all that can be sent; nothing may fail but by a refusal."""
    for address, data in posts:
        match = resolve(address.partition("?")[0])
        request = asked_of(operator, RequestFactory().post(address, data))
        with suppress(PermissionDenied, Http404):
            assert match.func(request, *match.args, **match.kwargs).status_code in CALM, address


def told_by(operator, posts) -> Iterator[tuple[str, str]]:
    """Yield what each post answers: its page, the messages for the next one, where it leads."""
    for address, data in posts:
        match = resolve(address.partition("?")[0])
        request = asked_of(operator, RequestFactory().post(address, data))
        try:
            response = match.func(request, *match.args, **match.kwargs)
        except (PermissionDenied, Http404) as refusal:
            yield address, str(refusal)
            continue
        if not response.streaming and hasattr(response, "render"):
            response.render()
        body = b"".join(response.streaming_content) if response.streaming else response.content
        news = [str(one.message) for one in request._messages._queued_messages]
        told = [body.decode(), *news, response.headers.get("Location", "")]
        yield address, html.unescape("\n".join(told))


def ours():
    """Return the permissions of the two apps."""
    found = Permission.objects.filter(content_type__app_label__in=planting.OUR_APPS)
    return found.select_related("content_type")


class Desk:
    """The admin's views without what stands before them, so that thousands of visits are quick."""

    def __init__(self, found: list[str]) -> None:
        self.pages = [(each, resolve(each.partition("?")[0])) for each in found]

    def visited(self, operator) -> Iterator[tuple[str, int, str]]:
        for address, match in self.pages:
            request = asked_of(operator, RequestFactory().get(address))
            try:
                response = match.func(request, *match.args, **match.kwargs)
            except PermissionDenied as refusal:
                yield address, 403, str(refusal)
                continue
            except Http404 as missing:
                yield address, 404, str(missing)
                continue
            if not response.streaming and hasattr(response, "render"):
                response.render()
            body = b"".join(response.streaming_content) if response.streaming else response.content
            yield address, response.status_code, html.unescape(body.decode())


def text_of(column) -> str:
    return f"{column[0]._meta.label}.{column[1]}"


def test_every_column_of_texts_is_planted_or_said_to_hold_none():
    found = {
        f"{model._meta.label_lower}.{name}"
        for model, name in planting.text_columns()
        if name not in planting.CODES
    }
    planted = {f"{model._meta.label_lower}.{name}" for model, name in PLANTED}
    assert found == planted | set(NO_TEXTS)
    assert not planted & set(NO_TEXTS)


@pytest.mark.parametrize("app", planting.OUR_APPS)
def test_no_single_permission_but_that_for_messages_shows_a_text(scene, app):
    desk = Desk(addresses(most_rows=1))
    shown = {}
    found = ours().filter(content_type__app_label=app)
    for permission in found.exclude(codename="read_texts"):
        operator = with_only(scene.operator, permission)
        for address, status, text in desk.visited(operator):
            assert status in CALM, (permission.codename, address, status)
            if seen := scene.seen_on(text):
                shown[permission.codename, address] = sorted(map(text_of, seen))
    assert shown == {}


def test_all_permissions_but_that_for_messages_show_no_text(scene):
    others = Permission.objects.exclude(codename="read_texts")
    client = may(scene.operator, *others)
    shown = {}
    for address, status, text in visited(client, addresses(most_rows=40)):
        assert status in CALM, (address, status)
        if seen := scene.seen_on(text):
            shown[address] = sorted(map(text_of, seen))
    assert shown == {}


def test_with_that_for_messages_every_text_is_somewhere(scene):
    client = may(scene.operator, *Permission.objects.all())
    seen = set()
    for address, status, text in visited(client, addresses(most_rows=40)):
        assert status in CALM, (address, status)
        seen |= scene.seen_on(text)
    assert {text_of(each) for each in set(PLANTED) - seen} == {text_of(each) for each in ON_NO_PAGE}


def test_no_post_shows_a_text_to_who_may_not_read_them(scene):
    """What is refused, asked first or done is told in words that quote nothing."""
    others = Permission.objects.exclude(codename="read_texts")
    operator = with_only(scene.operator, *others)
    sent = planting.posts(scene)
    shown = {
        (address, data.get("action")): sorted(map(text_of, seen))
        for (address, data), (_, text) in zip(sent, told_by(operator, sent), strict=True)
        if (seen := scene.seen_on(text))
    }
    assert shown == {}


@pytest.mark.slow
@pytest.mark.parametrize("app", planting.OUR_APPS)
def test_no_post_shows_a_text_with_any_single_permission_but_that_for_messages(scene, app):
    """Each permission's posts are taken back before the next one's, which find everything there."""
    sent = planting.posts(scene)
    shown = {}
    found = ours().filter(content_type__app_label=app)
    for permission in found.exclude(codename="read_texts"):
        mark = transaction.savepoint()
        operator = with_only(scene.operator, permission)
        for (address, data), (_, text) in zip(sent, told_by(operator, sent), strict=True):
            if seen := scene.seen_on(text):
                shown[permission.codename, address, data.get("action")] = sorted(map(text_of, seen))
        transaction.savepoint_rollback(mark)
    assert shown == {}


def api_requests(scene: Scene) -> list[tuple[str, str]]:
    """Return every method and address of the API, with the ids of rows of the scene's owner."""
    paths = SchemaGenerator().get_schema(public=True)["paths"]
    ids = {
        "session": Session, "branch": Branch, "message": Message, "summary": SessionSummary,
        "run": CompactionRun, "import": ImportJob, "memory": Memory, "version": MemoryVersion,
    }  # fmt: skip
    known = {
        f"{name}_id": model.objects.values_list("pk", flat=True)[0] for name, model in ids.items()
    }
    known["session_id"] = scene.session.pk
    return [
        (method, path.format(**known))
        for path, operations in paths.items()
        for method in operations
        if method in ("get", "post", "patch", "put", "delete")
    ]


@pytest.mark.parametrize("who", ["no permission", "all permissions"])
def test_the_api_shows_and_changes_what_is_one_s_own_whatever_the_permissions(
    scene, who, model_server
):
    sent = api_requests(scene)
    assert len(sent) > 40
    given = ours() if who == "all permissions" else ()
    before, asked = planting.stored(), len(model_server.calls)
    own = ("/api/v1/sessions/", "/api/v1/sessions/import/", "/api/v1/memories/")
    client = APIClient(raise_request_exception=False)
    client.force_authenticate(with_only(scene.operator, *given))
    for method, address in sent:
        if method == "post" and address in own:
            continue  # makes something of one's own
        body = {} if method == "get" else {"content": "hello"}
        response = getattr(client, method)(address, body, format="json")
        assert response.status_code in CALM | {406, 409, 415, 422}, (method, address)
        assert not scene.seen_on(html.unescape(response.content.decode())), (method, address)
    changed = {each for each, rows in planting.stored().items() if rows != before[each]}
    assert not changed
    assert len(model_server.calls) == asked


def rows_found(client: Client, address: str) -> int:
    return len(client.get(address).context["cl"].result_list)


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("chatapp/session", (Session, "title")),
        ("chatapp/message", (Session, "title")),
        ("chatapp/message", (Message, "content")),
        ("compaction/compactionrun", (Session, "title")),
        ("compaction/sessionsummary", (SessionSummary, "summary_text")),
    ],
)
def test_a_search_finds_by_a_text_only_for_who_may_see_it(scene, label, text):
    is_title = text[1] == "title"
    query = {"q": f"{'' if is_title else 'text: '}{scene.markers[text]}"}
    address = f"/admin/{label}/?{urlencode(query)}"
    others = Permission.objects.exclude(codename="read_texts")
    assert rows_found(may(scene.operator, *others), address) == 0
    assert rows_found(may(scene.operator, *Permission.objects.all()), address) > 0


def test_a_filter_finds_by_a_text_only_for_who_may_see_it(scene):
    filters = {
        f"/admin/{model._meta.app_label}/{model._meta.model_name}/?{name}__icontains=a"
        for model, name in PLANTED
        if model in admin.site._registry
    }
    others = Permission.objects.exclude(codename="read_texts")
    for given, status in ((others, {400}), (Permission.objects.all(), {200, 302})):
        client = may(scene.operator, *given)
        assert {client.get(address).status_code for address in filters} <= status


@pytest.mark.parametrize("who", ["nobody", "a user", "a user with all permissions"])
def test_who_is_not_staff_is_sent_to_the_log_in_and_changes_nothing(
    scene, owner, who, model_server
):
    client = Client()
    if who != "nobody":
        given = Permission.objects.all() if "all" in who else ()
        client.force_login(with_only(owner, *given))
    sent = list(planting.posts(scene))
    before, asked = planting.stored(), len(model_server.calls)
    posts = [(address, client.post(address, data)) for address, data in sent]
    gets = [(address, client.get(address)) for address in addresses(most_rows=1)]
    for address, response in [*posts, *gets]:
        is_free = "/login/" in address or "/jsi18n/" in address
        to_login = response.status_code == 302 and "/login/" in response["Location"]
        assert to_login or is_free, (address, response.status_code)
        assert not scene.seen_on(html.unescape(response.content.decode()))
    changed = {each for each, rows in planting.stored().items() if rows != before[each]}
    assert not changed
    assert len(model_server.calls) == asked


# --- what is done ---------------------------------------------------------------------------------

# The tables that change where whoever may see everything has one permission more. All others
# change nothing, not even together.
RUNS = {"compaction.CompactionRun"}
CHANGES = {
    "compaction.add_compactionrun": RUNS,
    "compaction.change_compactionrun": RUNS,
    "compaction.change_sessionsummary": {"compaction.SessionSummary", "compaction.SummaryQuality"},
    "compaction.change_modelbreaker": {"compaction.ModelBreaker"},
    "compaction.change_lookmark": {"compaction.LookMark"},
    "compaction.change_compactionstate": {"compaction.CompactionState"},
    "compaction.add_compactionprofile": {"compaction.CompactionProfile"},
    "compaction.change_compactionprofile": {"compaction.CompactionProfile"},
    "compaction.change_memory": {"compaction.Memory"},
    "compaction.delete_memory": {"compaction.Memory"},
    "compaction.change_memoryversion": {"compaction.MemoryVersion"},
    "chatapp.change_message": {"chatapp.Message"},
    "chatapp.change_session": {"chatapp.Session"},
    "chatapp.change_branch": {"chatapp.Branch"},
    "chatapp.delete_learnedlimits": {"chatapp.LearnedLimits"},
    "chatapp.add_apikey": {"chatapp.ApiKey"},
    "chatapp.change_apikey": {"chatapp.ApiKey"},
    "chatapp.erase_user": {"auth.User"},
}


@pytest.mark.parametrize("name", [*CHANGES, "all others"])
def test_each_action_takes_its_permission_and_no_other(scene, name, model_server):
    given = {f"{one.content_type.app_label}.{one.codename}": one for one in ours()}
    seeing = [given[each] for each in given if ".view_" in each or each == "chatapp.read_texts"]
    others = [permission for each, permission in given.items() if each not in CHANGES]
    further = others if name == "all others" else [given[name]]
    users = Permission.objects.get(codename="view_user")
    posts = planting.posts(scene)
    before, asked = planting.stored(), len(model_server.calls)
    send_all(with_only(scene.operator, users, *seeing, *further), posts)
    changed = {each for each, rows in planting.stored().items() if rows != before[each]}
    wanted = CHANGES.get(name, set())
    assert wanted <= changed
    assert changed if wanted else not changed, changed
    assert (len(model_server.calls) > asked) == (wanted == RUNS and "add_" in name)


def test_all_permissions_but_that_for_runs_start_none(scene, model_server):
    others = Permission.objects.exclude(codename="add_compactionrun")
    operator = with_only(scene.operator, *others)
    runs, asked = CompactionRun.objects.count(), len(model_server.calls)
    send_all(operator, [post for post in planting.posts(scene) if post[1].get("action") != "erase"])
    assert CompactionRun.objects.count() == runs
    assert len(model_server.calls) == asked
