"""The admin site and what other apps add to it, by the one way there is: an Extension."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from django import forms
from django.contrib import admin
from django.contrib.auth.models import Permission
from django.db.models import QuerySet
from django.http import HttpResponse
from django.utils import timezone
from django.utils.html import format_html

from chatapp import extensions
from chatapp.admin.timeline import timeline_sources
from chatapp.admin.toolkit.extension import (
    AdminExtension,
    AdminPage,
    FrontPanel,
    MessageView,
    SessionAction,
    SessionPart,
)
from chatapp.admin.toolkit.page_forms import PageForm
from chatapp.admin.toolkit.page_parts import Link, Panel, Table
from chatapp.admin.toolkit.path_pages import MessageStatus
from chatapp.admin.toolkit.timeline import TimelineEntry
from chatapp.extensions import Extension, register, registered
from chatapp.models import Message, Session
from chatapp.site import OperatorsSite
from tests.factories import SessionFactory, UserFactory, store, talk

NAME = f"{__name__}.ADMIN"


def test_the_project_s_admin_is_the_operators_site():
    assert isinstance(admin.site, OperatorsSite)


@pytest.fixture
def alone(monkeypatch) -> Iterator[dict]:
    """No app has joined; those that a test registers are gone after it."""
    monkeypatch.setattr(extensions, "_registered", found := {})
    return found


@pytest.fixture
def join(alone, monkeypatch):
    """Join with an AdminExtension of the test's own."""

    def joined(**what) -> None:
        monkeypatch.setitem(globals(), "ADMIN", AdminExtension(**what))
        register(Extension(name="lamp", admin=NAME))

    return joined


# --- the registry ---------------------------------------------------------------------------------


def test_extensions_stand_in_the_order_in_which_they_were_registered(alone):
    lamp, bell = Extension(name="lamp"), Extension(name="bell")
    register(lamp)
    register(bell)
    assert registered() == (lamp, bell)


def test_an_extension_takes_the_place_of_one_of_the_same_name(alone):
    register(Extension(name="lamp"))
    register(again := Extension(name="lamp", urls="lamp.urls"))
    assert registered() == (again,)


def test_compaction_has_joined_once():
    assert [each.name for each in registered()] == ["compaction"]


def test_extensions_add_addresses_to_the_api_and_to_the_root(alone):
    register(Extension(name="one", api_urls="compaction.api.urls", urls="compaction.urls"))
    api, root = extensions.extension_urls()
    assert (str(api.pattern), str(root.pattern)) == ("api/v1/", "")


# --- the front page -------------------------------------------------------------------------------


def test_the_front_page_shows_its_panels_in_the_order_they_were_added(admin_client, join):
    join(
        front_panels=(
            FrontPanel(draw=lambda request: format_html("<p>first {}</p>", request.user)),
            FrontPanel(draw=lambda request: "second & <b>last</b>", style="lamp.css"),
        )
    )
    page = admin_client.get("/admin/").content.decode()
    assert page.index("<p>first admin</p>") < page.index("second &amp; &lt;b&gt;last&lt;/b&gt;")
    assert "lamp.css" in page


def test_a_panel_that_an_operator_may_not_see_is_left_out(admin_client, join):
    join(front_panels=(FrontPanel(draw=lambda request: "", style="lamp.css"),))
    response = admin_client.get("/admin/")
    assert response.context["front_panels"] == []
    assert "lamp.css" not in response.text


def test_the_front_page_works_without_panels(admin_client, alone):
    response = admin_client.get("/admin/")
    assert response.status_code == 200
    assert b"Conversations and what is sent of them" in response.content


def test_pages_of_extensions_stand_before_the_stock_ones(join):
    page = AdminPage(route="lamp/", view=lambda request: HttpResponse("on"), name="lamp_page")
    join(pages=(page,))
    assert OperatorsSite().get_urls()[0].name == "lamp_page"


# --- a session's page -----------------------------------------------------------------------------


@pytest.fixture
def session(db) -> Session:
    found = SessionFactory()
    store(found, talk(1))
    return found


def page_of(client, session: Session) -> str:
    return client.get(f"/admin/chatapp/session/{session.pk}/change/").text


def test_a_session_s_page_shows_what_an_extension_adds(admin_client, join, session):
    lit = Panel(title="Lamp", body=format_html("<p>{}</p>", "lit"))
    join(
        session=SessionPart(
            styles=("lamp.css",),
            links=lambda session: [Link(label="Switch", url="/switch/")],
            panels=lambda request, session: [lit],
            tables=lambda session: [Table(title="Bulbs", columns=("Bulb",), rows=[("red",)])],
        )
    )
    page = page_of(admin_client, session)
    for text in ("lamp.css", '<a href="/switch/">Switch</a>', "<p>lit</p>", ">red</td>"):
        assert text in page
    assert page.index("<p>lit</p>") < page.index("Messages along the active branch")


def test_without_extensions_every_message_is_sent(admin_client, alone, session):
    assert page_of(admin_client, session).count("Kept: sent verbatim") == 2


def test_an_extension_says_how_messages_stand(admin_client, join, session):
    status = MessageStatus(sign="!", name="kept", words="Sung")
    view = MessageView(statuses=lambda rows: {row.pk: status for row in rows})
    join(session=SessionPart(messages=lambda request, session: view))
    assert page_of(admin_client, session).count("Sung") == 2


def test_an_extension_s_form_is_shown_and_done(admin_client, join, session):
    form = PageForm(
        label="Switch on",
        make=lambda request, row, data: forms.Form(data),
        do=lambda request, row, data: f"{row} is lit.",
        may=lambda request: True,
    )
    join(session=SessionPart(forms={"switch": form}))
    assert "Switch on" in page_of(admin_client, session)
    address = f"/admin/chatapp/session/{session.pk}/do/switch/"
    assert "is lit." in admin_client.post(address, follow=True).text


@pytest.mark.parametrize("may", [True, False])
def test_an_extension_s_action_is_offered_to_who_may_do_it(admin_client, join, session, may):
    done = []
    action = SessionAction(
        name="switch",
        label="Switch on",
        do=lambda model_admin, request, sessions: done.extend(sessions),
        may=lambda request: may,
    )
    join(session=SessionPart(actions=(action,)))
    chosen = {"action": "switch", "_selected_action": [str(session.pk)]}
    admin_client.post("/admin/chatapp/session/", chosen)
    assert done == ([session] if may else [])


def test_the_next_request_s_page_shows_an_extension_s_notes(admin_client, join, session):
    join(session=SessionPart(notes=lambda sent: ["The lamp is lit."]))
    page = admin_client.get(f"/admin/chatapp/session/{session.pk}/request/").text
    assert "The lamp is lit." in page


def test_a_source_takes_the_place_of_one_with_its_key(join):
    mine, new = SimpleNamespace(key="replay"), SimpleNamespace(key="lamp")
    join(timeline_sources=(mine, new))
    assert [each.key for each in timeline_sources()] == [
        "incident", "incomplete", "replay", "audit", "lamp",
    ]  # fmt: skip
    assert timeline_sources()[2] is mine


@dataclass
class Bulbs:
    """A source as an app may have it: equal to its like, and with rows that time decides."""

    key: str = "bulb"

    def rows(self, session: Session) -> QuerySet[Message]:
        rows = Message.objects.filter(session=session.pk, created_at__lte=timezone.now())
        return rows if session.active_branch_id else rows.none()

    def entries(self, session, rows, *, texts):
        return {
            row.pk: TimelineEntry(at=row.created_at, title="Bulb lit", label="on") for row in rows
        }


def test_an_extension_s_source_is_read_anew_for_each_page(admin_client, join, session):
    """Nothing of it is kept: what it asks for may depend on more than the session's key."""
    join(timeline_sources=(Bulbs(),))
    assert page_of(admin_client, session).count("Bulb lit") == 2
    store(session, talk(1))
    assert page_of(admin_client, session).count("Bulb lit") == 4
    session.active_branch = None
    session.save()
    assert page_of(admin_client, session).count("Bulb lit") == 0


# --- the sidebar ----------------------------------------------------------------------------------


def test_the_sidebar_leads_nowhere_that_an_operator_may_not_go(client, session):
    """Who may add people but not look at their list is offered the adding alone."""
    staff = UserFactory(is_staff=True)
    wanted = Permission.objects.filter(codename__in=["view_session", "add_user"])
    staff.user_permissions.set(wanted)
    client.force_login(staff)
    page = page_of(client, session)
    assert 'href="/admin/auth/user/add/"' in page
    assert 'href="None"' not in page
    assert 'href="/admin/auth/user/"' not in page
    assert re.search(r'<th scope="row" id="people-and-access-user">\s*People\s*</th>', page)
