"""What pages are declared with: columns, tables, filters."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from django.contrib import admin
from django.db.models import Q
from django.template import Context, Template
from django.test import RequestFactory
from django.utils import timezone

from chatapp import formatting
from chatapp.admin.toolkit.columns import column, preview, table_of
from chatapp.admin.toolkit.lists import by_condition, by_value
from chatapp.admin.toolkit.page_parts import Link, Panel
from chatapp.formatting import plural
from chatapp.models import Branch, Session
from tests.factories import SessionFactory

ROW = SimpleNamespace(tokens=1200, branch=SimpleNamespace(name="main"), begin="<b>Hello")


def shown(declared, row=ROW):
    """Return what a column shows of a row, called as Django calls a ModelAdmin's method."""
    return type("Page", (), {"cell": declared})().cell(row)


# --- columns --------------------------------------------------------------------------------------


def test_a_column_shows_an_attribute():
    assert shown(column("Tokens", "tokens")) == 1200


def test_a_column_shows_an_attribute_of_a_related_row():
    assert shown(column("Branch", "branch.name")) == "main"


def test_a_column_shows_what_a_function_makes_of_the_row():
    assert shown(column("Twice", lambda row: 2 * row.tokens)) == 2400


def test_a_column_turns_what_it_finds_into_text():
    assert shown(column("Tokens", "tokens", "{:,}".format)) == "1,200"


def test_a_column_has_a_title_and_what_it_is_sorted_by():
    declared = column("Tokens", "tokens", ordering="token_total")
    assert (declared.short_description, declared.admin_order_field) == ("Tokens", "token_total")


def test_a_column_says_which_columns_of_the_database_it_reads():
    assert column("Tokens", "tokens").reads == ("tokens",)
    assert column("Branch", "branch.name").reads == ("branch__name",)
    assert column("Twice", lambda row: 2 * row.tokens).reads == ()
    assert column("Twice", lambda row: 2 * row.tokens, reads=("tokens",)).reads == ("tokens",)
    assert preview("Text", "begin").reads == ()


def test_a_list_reads_what_its_columns_read_and_nothing_else():
    page = admin.site.get_model_admin(Branch)
    assert set(page.columns_read()) == {
        "kind", "label", "session__title", "fork_position", "message_count", "token_total",
        "created_at",
    }  # fmt: skip


def test_a_preview_is_escaped_and_marked_where_it_was_cut():
    assert "&lt;b&gt;Hello…" in shown(preview("Text", "begin", cut_at=8))
    assert "…" not in shown(preview("Text", "begin"))


# --- tables ---------------------------------------------------------------------------------------


def test_a_table_has_a_column_for_every_cell_and_a_line_for_every_row():
    cells = {"Number": lambda row: row, "Half": lambda row: row / 2}
    table = table_of("Numbers", range(1, 3), cells, note="Two.")
    assert table.columns == ("Number", "Half")
    assert table.rows == [(1, 0.5), (2, 1.0)]
    assert table.note == "Two."


def test_links_lead_to_rows_and_to_lists():
    assert Link.to("One", Session, 7).url == "/admin/chatapp/session/7/change/"
    assert Link.to_list("All", Session, api="chat").url == "/admin/chatapp/session/?api=chat"


def test_a_panel_says_a_sentence_escaped():
    assert "1 &lt; 2" in Panel.saying("Why", ValueError("1 < 2")).body


# --- filters --------------------------------------------------------------------------------------

NAMED = by_value("name", "title", lambda: [("Boots", "Boots")])
LONG = by_condition("length", "length", {"long": ("Long", lambda: Q(title__startswith="Long"))})


def kept(chosen, **query) -> list[str]:
    """Return the titles that a filter keeps for an address."""
    request = RequestFactory().get("/", query)
    params = {name: [value] for name, value in query.items()}
    found = chosen(request, params, Session, admin.site.get_model_admin(Session))
    return sorted(found.queryset(request, Session.objects.all()).values_list("title", flat=True))


@pytest.fixture
def titles(db) -> None:
    for title in ("Boots", "Long walk"):
        SessionFactory(title=title)


def test_a_filter_by_value_keeps_the_rows_with_it(titles):
    assert kept(NAMED, title="Boots") == ["Boots"]
    assert kept(NAMED) == ["Boots", "Long walk"]


def test_a_filter_by_value_may_have_another_name_in_the_address(titles):
    other = by_value("name", "title", lambda: [("Boots", "Boots")], parameter="called")
    assert kept(other, called="Boots") == ["Boots"]


def test_a_filter_by_condition_keeps_the_rows_that_meet_it(titles):
    assert kept(LONG, length="long") == ["Long walk"]


@pytest.mark.parametrize("query", [{}, {"length": "nonsense"}])
def test_a_filter_by_condition_keeps_all_where_none_is_chosen(titles, query):
    assert kept(LONG, **query) == ["Boots", "Long walk"]


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 steps"), (1, "1 step"), (2, "2 steps"), (2000, "2,000 steps")]
)
def test_a_count_has_its_noun(count, said):
    assert plural(count, "step") == said


@pytest.mark.parametrize(
    ("moment", "shown"),
    [
        (datetime(2026, 11, 30, 22, 4, 5, tzinfo=UTC), "30 Nov 2026, 22:04"),
        (datetime(2027, 5, 1, 0, 0, tzinfo=UTC), "1 May 2027, 00:00"),
        (datetime(2026, 9, 9, 12, 0, tzinfo=UTC), "9 Sep 2026, 12:00"),
    ],
)
def test_a_time_reads_the_same_wherever_a_page_shows_it(moment, shown):
    """Django's own templates, its history pages and our columns."""
    template = Template('{{ at }}|{{ at|date:"DATETIME_FORMAT" }}|{{ at|date }}, {{ at|time }}')
    with timezone.override(UTC):
        assert formatting.when(moment) == shown
        assert template.render(Context({"at": moment})) == f"{shown}|{shown}|{shown}"
    # Stored in a sentence, it says whose clock it is, and runs are short enough for seconds.
    assert formatting.when_utc(moment) == f"{shown}:{moment:%S} UTC"
