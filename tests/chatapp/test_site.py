"""The admin site: its front page shows what the apps add, and works without them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib import admin
from django.utils.html import format_html

from chatapp.site import OperatorsSite


def test_the_project_s_admin_is_the_operators_site():
    assert isinstance(admin.site, OperatorsSite)


@pytest.fixture
def panels() -> Iterator[list]:
    """The site's panels, empty for one test."""
    before = admin.site._front_panels
    admin.site._front_panels = found = []
    yield found
    admin.site._front_panels = before


def test_the_front_page_shows_its_panels_in_the_order_they_were_added(admin_client, panels):
    admin.site.add_front_panel(lambda request: format_html("<p>first {}</p>", request.user))
    admin.site.add_front_panel(lambda request: "second & <b>last</b>")
    page = admin_client.get("/admin/").content.decode()
    assert page.index("<p>first admin</p>") < page.index("second &amp; &lt;b&gt;last&lt;/b&gt;")


def test_the_front_page_works_without_panels(admin_client, panels):
    response = admin_client.get("/admin/")
    assert response.status_code == 200
    assert b"Conversations and what is sent of them" in response.content
