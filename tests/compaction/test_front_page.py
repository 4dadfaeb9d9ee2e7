"""The front page: tiles and plots of the figures, and bars that lead to exactly their rows."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from chatapp.formatting import span_words
from chatapp.models import Session
from compaction.admin.front import as_of
from compaction.models import CompactionRun, DailyFigures
from compaction.statistics.daily import refresh_figures
from tests.alone import assert_works_alone
from tests.compaction.support import NEVER
from tests.compaction.test_report import run_row, step_row, summary_row
from tests.factories import SessionFactory, profile, talk
from tests.made_once import made_once

pytestmark = pytest.mark.django_db

ATTACK = "<script>alert(1)</script>"
REFRESH = "/admin/figures/refresh/"
DAY = timedelta(days=1)


def conversation(owner) -> Session:
    profile(**NEVER)
    return SessionFactory(owner=owner, title=ATTACK, wires=talk(2))


@pytest.fixture
def session(owner, queued) -> Session:
    return conversation(owner)


@pytest.fixture
def noon() -> object:
    """Noon of today, UTC: no figure depends on the hour at which the test runs."""
    return timezone.now().replace(hour=12, minute=0, second=0, microsecond=0)


@pytest.fixture
@made_once
def month(owner, queued, noon) -> Session:
    """Runs of every outcome on three days, and one before the thirty days; figures worked out."""
    session = conversation(owner)
    for age, status in (
        (0, "succeeded"),
        (0, "failed"),
        (1, "succeeded"),
        (1, "succeeded"),
        (1, "skipped"),
        (1, "cancelled"),
        (1, "queued"),
        (29, "failed"),
        (29, "running"),
        (30, "succeeded"),
    ):
        fields = {"tokens_before": 900, "tokens_after": 300} if status == "succeeded" else {}
        run = run_row(session, status, created_at=noon - age * DAY, model_calls=2, **fields)
        if status == "succeeded":
            summary_row(run, 0.07 if age else 0.32, created_at=run.created_at)
    stopped = run_row(session, "failed", created_at=noon - DAY, error_code="interrupted")
    step_row(stopped, cost=0.25)
    refresh_figures()
    return session


def page(client: Client) -> str:
    response = client.get("/admin/")
    assert response.status_code == 200
    return response.content.decode()


def panel(text: str) -> str:
    found = re.search(r'<section class="front".*?\n</section>', text, re.DOTALL)
    return found[0] if found else ""


def table(text: str, title: str) -> list[list[tuple[str, str]]]:
    """Return a plot's table: (address or nothing, text) by row, without the rows' heads."""
    plot = text[text.index(f"<h3>{title}</h3>") :]
    body = plot[plot.index("<tbody>") : plot.index("</tbody>")]
    cell = re.compile(r'<td>(?:<a href="([^"]+)">)?([^<]+)(?:</a>)?</td>')
    return [
        [(unescape(url), number) for url, number in cell.findall(line)]
        for line in body.split("</tr>")[:-1]
    ]


def linked(text: str, title: str) -> list[tuple[str, str]]:
    return [cell for line in table(text, title) for cell in line if cell[0]]


def rows_at(client: Client, url: str) -> list:
    response = client.get(url)
    assert response.status_code == 200, url
    return list(response.context["cl"].result_list)


# --- tiles --------------------------------------------------------------------


def tiles(text: str) -> dict[str, tuple[str, str, str]]:
    """Return address, number and note of every tile by its title."""
    found = {}
    for tile in re.findall(r'<li class="tile.*?</li>', text, re.DOTALL):
        url = re.search(r'href="([^"]+)"', tile)
        note = re.search(r'tile-note">([^<]+)<', tile)
        title, value = (re.search(rf'tile-{n}">([^<]+)<', tile)[1] for n in ("title", "value"))
        found[title] = (unescape(url[1]) if url else "", value, note[1] if note else "")
    return found


def test_the_tiles_show_what_there_is(admin_client, month):
    found = tiles(page(admin_client))
    tokens = month.branch.token_total
    assert found["Sessions"][:2] == ("/admin/chatapp/session/", "1")
    assert found["Messages"][:2] == ("/admin/chatapp/message/?kind__in=message%2Cnote", "4")
    assert found["Tokens stored, and sent of them"][1] == str(tokens)
    assert found["Tokens stored, and sent of them"][2].endswith(f"would send {tokens}: 100.0 %")
    assert found["Runs today"][1:] == ("2", "1 succeeded")
    assert found["Failures today"][1] == "1"


def test_every_tile_leads_to_its_rows(admin_client, month):
    found = tiles(page(admin_client))
    assert [run.status for run in rows_at(admin_client, found["Failures today"][0])] == ["failed"]
    assert len(rows_at(admin_client, found["Runs today"][0])) == 2
    assert [run.status for run in rows_at(admin_client, found["Queue age"][0])] == ["queued"]
    assert len(rows_at(admin_client, found["Sessions"][0])) == 1
    assert len(rows_at(admin_client, found["Messages"][0])) == 4


def test_the_queue_is_as_old_as_what_waits_longest_now(admin_client, session):
    refresh_figures()
    assert tiles(page(admin_client))["Queue age"][1:] == ("0 s", "Nothing waits")
    run = run_row(session, "queued", created_at=timezone.now() - timedelta(seconds=30))
    assert tiles(page(admin_client))["Queue age"][2] == "The oldest run waits this long"
    CompactionRun.objects.filter(pk=run.pk).update(created_at=timezone.now() - timedelta(hours=3))
    assert tiles(page(admin_client))["Queue age"][1:] == (
        "3 h",
        "! The oldest run waits this long. Does a worker run?",
    )


def test_figures_of_yesterday_are_not_shown_as_today(admin_client, session):
    run_row(session, created_at=timezone.now() - DAY)
    refresh_figures(now=timezone.now() - DAY)
    found = tiles(page(admin_client))
    assert found["Sessions"][1] == "1"
    assert found["Runs today"][1:] == ("—", "Not worked out yet")
    assert found["Failures today"][1:] == ("—", "Not worked out yet")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(45, "45 s"), (720, "12 min"), (11_100, "3 h 5 min"), (7200, "2 h"), (200_000, "2 days")],
)
def test_spans_are_short(seconds, words):
    assert span_words(timedelta(seconds=seconds)) == words


def test_it_says_how_old_the_figures_are(noon):
    assert as_of(noon, noon + timedelta(seconds=59)) == "12:00 (0 minutes ago)"
    assert as_of(noon, noon + timedelta(seconds=61)) == "12:00 (1 minute ago)"
    assert as_of(noon, noon + timedelta(minutes=90)) == "12:00 (1 h 30 min ago)"
    assert as_of(noon, noon + 3 * DAY).endswith(", 12:00 (3 days ago)")


# --- plots --------------------------------------------------------------------


def test_outcomes_of_thirty_days_stand_in_a_table_newest_first(admin_client, month):
    numbers = [[n for _, n in line] for line in table(page(admin_client), "Compactions a day")]
    assert len(numbers) == 30
    # Succeeded, skipped, cancelled, queued or running, failed.
    assert numbers[0] == ["1", "0", "0", "0", "1"]
    assert numbers[1] == ["2", "1", "1", "1", "1"]
    assert numbers[2] == ["0", "0", "0", "0", "0"]
    assert numbers[29] == ["0", "0", "0", "1", "1"]


def test_every_number_of_an_outcome_leads_to_exactly_those_runs(admin_client, month):
    links = linked(page(admin_client), "Compactions a day")
    assert len(links) == 9
    for url, number in links:
        assert len(rows_at(admin_client, url)) == int(number), url
    seen = [run.pk for url, _ in links for run in rows_at(admin_client, url)]
    assert len(seen) == len(set(seen)) == 10


def test_ratios_lead_to_exactly_those_summaries(admin_client, month):
    text = page(admin_client)
    assert [n for line in table(text, "Compression ratios") for _, n in line] == [
        "0", "2", "0", "0", "0", "0", "1", *["0"] * 13,
    ]  # fmt: skip
    (low, _), (high, _) = linked(text, "Compression ratios")
    assert [s.compression_ratio for s in rows_at(admin_client, low)] == [0.07, 0.07]
    assert [s.compression_ratio for s in rows_at(admin_client, high)] == [0.32]


def test_tokens_saved_lead_to_the_runs_that_saved_them(admin_client, month):
    links = linked(page(admin_client), "Tokens saved a day")
    assert [number for _, number in links] == ["600", "1,200"]
    for url, number in links:
        saved = sum(r.tokens_before - r.tokens_after for r in rows_at(admin_client, url))
        assert saved == int(number.replace(",", ""))


def test_model_calls_lead_to_the_runs_that_made_them(admin_client, month):
    links = linked(page(admin_client), "Model calls a day")
    assert [number for _, number in links] == ["4", "10", "4"]
    for url, number in links:
        assert sum(run.model_calls for run in rows_at(admin_client, url)) == int(number)


def test_cost_is_shown_where_there_is_some(admin_client, month):
    links = linked(page(admin_client), "Cost a day")
    assert [number for _, number in links] == ["0.2500"]
    assert len(rows_at(admin_client, links[0][0])) == 6


def test_without_any_cost_it_says_that_no_price_is_set(admin_client, session, noon):
    run_row(session, created_at=noon, model_calls=1)
    refresh_figures()
    text = panel(page(admin_client))
    assert "No price is set" in text
    assert text.count('class="plot"') == 2


def test_with_a_price_set_it_does_not_say_that_there_is_none(
    admin_client, session, noon, use_models, settings
):
    default = settings.CHATAPP["MODELS"]["default"] | {"PRICES": {"INPUT": 1.0}}
    use_models(settings.CHATAPP["MODELS"] | {"default": default})
    run_row(session, created_at=noon, model_calls=1)
    refresh_figures()
    assert "No call of these days cost anything." in panel(page(admin_client))


def test_every_bar_and_legend_leads_where_its_table_or_its_day_does(admin_client, month):
    text = panel(page(admin_client))
    bars = {unescape(url) for url in re.findall(r'<a href="([^"]+)" tabindex="-1">', text)}
    legend = {unescape(url) for url in re.findall(r'<li><a href="([^"]+)"><svg', text)}
    # Outcomes of days (two of them also saved tokens), whole days, ratios.
    assert len(bars) == 9 + 3 + 2
    assert len(legend) == 5
    for url in bars | legend:
        assert rows_at(admin_client, url), url


def test_the_legend_counts_all_thirty_days(admin_client, month):
    text = panel(page(admin_client))
    for url, words, count in re.findall(
        r'<li><a href="([^"]+)"><svg.*?</svg> ([^<]+) <b>(\d+)</b>', text
    ):
        assert len(rows_at(admin_client, unescape(url))) == int(count), words
    assert "Failed <b>3</b>" in text


def test_days_without_any_run_have_no_plots(admin_client, session):
    refresh_figures()
    text = panel(page(admin_client))
    assert "No compaction was asked for in the last 30 days" in text
    assert "<h3>" not in text


def test_an_axis_has_few_day_labels(admin_client, month):
    text = panel(page(admin_client))
    plot = text[text.index("<h3>Tokens saved a day") : text.index("<h3>Model calls")]
    assert len(re.findall("plot-tick", plot)) == 5


# --- filters ------------------------------------------------------------------


@pytest.mark.parametrize("day", ["", "yesterday", "2026-13-01", "2026-11-27..x", "9999-12-31"])
@pytest.mark.parametrize("model", ["compactionrun", "sessionsummary"])
def test_what_is_no_day_breaks_no_list(admin_client, month, model, day):
    rows = rows_at(admin_client, f"/admin/compaction/{model}/?day={day}")
    assert bool(rows) == (day == "")


def test_a_day_in_force_is_named_and_escaped(admin_client, month):
    url = "/admin/compaction/compactionrun/?day=%3Cscript%3E"
    text = admin_client.get(url).content.decode()
    assert "&lt;script&gt;" in text
    assert "<script>" not in text.replace("<script src", "")


def test_interrupted_runs_are_failures(admin_client, month, noon):
    day = (noon - DAY).date().isoformat()
    base = f"/admin/compaction/compactionrun/?day={day}&status="
    assert rows_at(admin_client, base + "failed") == []
    assert [r.error_code for r in rows_at(admin_client, base + "failures")] == ["interrupted"]
    assert [r.status for r in rows_at(admin_client, base + "unfinished")] == ["queued"]


# --- empty, and who may see it ------------------------------------------------


def test_an_empty_installation_says_how_to_begin(admin_client):
    text = panel(page(admin_client))
    assert "manage.py demo" in text
    assert "manage.py import_transcript" in text
    assert "<svg" not in text
    refresh_figures()
    assert "manage.py demo" in panel(page(admin_client))


def test_a_session_stored_after_the_first_roll_up_is_not_taken_for_none(admin_client, owner):
    refresh_figures()
    SessionFactory(owner=owner)
    assert "manage.py demo" not in panel(page(admin_client))


def test_before_the_first_roll_up_it_says_what_is_missing(admin_client, session):
    text = panel(page(admin_client))
    assert "have not been worked out yet" in text
    assert "Refresh now" in text


def staff(*codenames: str) -> Client:
    user = get_user_model().objects.create(username="staff", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.parametrize("codes", [(), ("view_compactionrun",), ("view_sessionsummary",)])
def test_without_the_right_to_see_runs_and_summaries_there_is_no_panel(month, codes):
    text = page(staff(*codes))
    assert panel(text) == ""
    assert "front.css" not in text


def test_numbers_of_what_an_operator_may_not_see_lead_nowhere(month):
    found = tiles(page(staff("view_compactionrun", "view_sessionsummary")))
    assert found["Sessions"][:2] == ("", "1")
    assert found["Messages"][0] == ""
    assert found["Runs today"][0].startswith("/admin/compaction/compactionrun/")


def test_refreshing_works_the_figures_out_and_comes_back(admin_client, session, noon):
    run_row(session, created_at=noon)
    response = admin_client.post(REFRESH, follow=True)
    assert response.redirect_chain == [("/admin/", 302)]
    assert DailyFigures.objects.get().succeeded == 1
    assert "The figures are those of this moment." in response.content.decode()


def test_the_button_passes_the_check_against_forged_requests(session):
    get_user_model().objects.create_superuser("root", password="root")
    client = Client(enforce_csrf_checks=True)
    client.force_login(get_user_model().objects.get(username="root"))
    assert client.post(REFRESH).status_code == 403
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', panel(page(client)))[1]
    assert client.post(REFRESH, {"csrfmiddlewaretoken": token}).status_code == 302


def test_only_who_may_start_runs_may_refresh(month):
    client = staff("view_sessionsummary", "view_compactionrun")
    assert client.post(REFRESH).status_code == 403
    assert "Refresh now" not in panel(page(client))
    assert "/login/" in Client().post(REFRESH).headers["Location"]


def test_looking_at_the_address_changes_nothing(admin_client):
    assert admin_client.get(REFRESH).status_code == 405
    assert not DailyFigures.objects.exists()


# --- the index ----------------------------------------------------------------


def ways(text: str) -> dict[str, list[str]]:
    """Return the words of every way of the index, by group."""
    found = {}
    for group in re.findall(r'<section class="index-group".*?</section>', text, re.DOTALL):
        title = re.search(r"<h2[^>]*>([^<]+)</h2>", group)[1]
        found[title] = re.findall(r'index-way"><a href="[^"]+">([^<]+)</a>', group)
    return found


def test_the_index_groups_pages_by_what_one_does(admin_client):
    found = ways(page(admin_client))
    assert list(found) == [
        "Conversations", "Compaction", "Memories", "Models", "People and access", "Settings",
        "Workers and queue",
    ]  # fmt: skip
    assert found["Conversations"] == ["Sessions", "Messages", "Incidents", "Imports"]
    assert found["Compaction"] == ["Needs a look", "Runs", "Summaries", "Bulk jobs"]
    assert found["Settings"] == ["Profiles", "Compare profiles"]


def test_tables_that_nobody_opens_by_hand_are_on_their_apps_page(admin_client):
    every = [way for group in ways(page(admin_client)).values() for way in group]
    assert not {"Compaction steps", "Branches", "Summary sources"} & set(every)
    assert "Compaction steps" in admin_client.get("/admin/compaction/").text
    assert 'href="/admin/compaction/"' in page(admin_client)


def test_no_table_is_lost_from_the_index(admin_client):
    from django.contrib import admin

    from chatapp.admin.front_index import ENTRIES, LINKED_TABLES
    from chatapp.admin.toolkit.extension import admin_extensions

    named = {*LINKED_TABLES, *(entry.model for entry in ENTRIES)}
    for each in admin_extensions():
        named |= {*each.linked_tables, *(entry.model for entry in each.index_entries)}
    assert set(admin.site._registry) <= named


def test_the_index_offers_what_an_operator_may_see(month):
    assert ways(page(staff("view_session"))) == {
        "Conversations": ["Sessions"], "Compaction": ["Needs a look"],
    }  # fmt: skip


def test_comparing_profiles_is_offered_to_who_may_read_texts(month):
    assert "Compare profiles" in page(staff("view_session", "read_texts"))


def test_the_front_page_leads_to_comparing_profiles(admin_client, month):
    assert 'href="/admin/compaction/compare-profiles/">Compare profiles' in panel(
        page(admin_client)
    )


# --- cost and safety ----------------------------------------------------------


def queries(client: Client) -> int:
    with CaptureQueriesContext(connection) as captured:
        page(client)
    return len(captured)


def test_the_number_of_queries_is_held_and_does_not_grow(admin_client, month, noon):
    few = queries(admin_client)
    # The login, four of figures, three of alerts, and one for each of the seven kinds of things
    # that need a look: each reads at most a page by its own index.
    assert few <= 15
    for age in range(25):
        run = run_row(month, created_at=noon - age * DAY, model="m", cost=0.1)
        summary_row(run, age / 25, created_at=run.created_at)
        SessionFactory(owner=month.owner)
    refresh_figures(everything=True)
    assert queries(admin_client) == few


def test_the_page_reads_figures_and_no_table_that_grows(admin_client, month):
    with CaptureQueriesContext(connection) as captured:
        page(admin_client)
    tables = {name for q in captured for name in re.findall(r'(?:FROM|JOIN) "(\w+)"', q["sql"])}
    assert tables & {"messages", "sessions", "branches", "session_summaries"} == set()


def test_nothing_stands_inline_that_the_content_policy_forbids(admin_client, month):
    text = panel(page(admin_client))
    assert text
    assert not re.search(r"\sstyle=|<style|<script|\son\w+=", text)
    assert "compaction/front.css" in page(admin_client)


def test_titles_of_sessions_are_not_on_the_page(admin_client, month):
    assert ATTACK not in page(admin_client)


ALONE = """
client = Client()
client.force_login(get_user_model().objects.create_superuser("root"))
page = client.get("/admin/", headers={"host": "localhost"})
assert page.status_code == 200, page
assert b"Conversations" in page.content and b'class="front"' not in page.content
"""


@pytest.mark.slow
def test_the_chat_alone_has_a_front_page_without_figures(tmp_path):
    assert_works_alone(ALONE, tmp_path)
