"""What operators see of quality: a summary's score, its lost facts, where its lines come from."""

from __future__ import annotations

import html
import io
import json
import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from chatapp.formatting import when
from chatapp.models import Message
from compaction.admin.summary_quality import instructions_for
from compaction.models import (
    CompactionRun,
    DailyFigures,
    SessionSummary,
    SummaryLine,
    SummaryQuality,
)
from compaction.runs.resummarize import resummarize
from compaction.statistics.daily import refresh_figures
from compaction.statistics.scores import scores_by_kind
from tests.compaction.support import NEVER, compact
from tests.compaction.test_report import run_row, summary_row
from tests.factories import SessionFactory, call, profile, result, store, talk, user
from tests.made_once import made_once

pytestmark = pytest.mark.django_db

ATTACK = "<script>alert(1)</script>"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;"
TEXT = "# Facts\nThe port is 8421.\nNobody said this line.\nAlice has the keys.\n"


def page_of(row) -> str:
    name = f"{row._meta.app_label}_{row._meta.model_name}"
    return reverse(f"admin:{name}_change", args=[row.pk])


def plain(markup: str) -> str:
    """Return the words of a page; cells and terms stand apart."""
    said = re.sub(r"<title>.*?</title>", " ", markup, flags=re.DOTALL)
    words = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", said)).split())
    return re.sub(r" ([,.:])", r"\1", words)


def do(client, summary, name: str, **data):
    url = reverse("admin:compaction_sessionsummary_do", args=[summary.pk, name])
    return client.post(url, data, follow=True)


def told(response) -> str:
    return plain(" ".join(str(message) for message in response.context["messages"]))


def panel(page: str, title: str) -> str:
    """Return one panel of a page, from its title to the next one's."""
    begin = page.index(f"<h2>{title}</h2>")
    end = re.compile(r'<section class="module|<form [^>]*id="\w+_form"').search(page, begin)
    assert end
    return page[begin : end.start()]


def fact(text: str, message: Message | None, **changes) -> dict:
    found = {
        "text": text,
        "kind": "identifier",
        "speaker": "user",
        "message": str(message.pk) if message else None,
        "start": 4,
        "end": 4 + len(text),
        "context": f"our {text} stays",
        "weight": 6.0,
    }
    return found | changes


def measured(summary: SessionSummary, **fields) -> SummaryQuality:
    """Store a quality in place of what was measured."""
    SummaryQuality.objects.filter(summary=summary).delete()
    figures = {
        "entities": {"identifier": [3, 4], "url": [1, 2], "number": [0, 0]},
        "rules": [2, 3],
        "unsupported": ["3.4 billion"],
        "carried": [1, 5],
        "carried_lost": ["OLD-77"],
        "language": "en",
        "language_matches": True,
        "repeated": 0.05,
    }
    fields = {"version": 1, "score": 72.4, "yardstick": 61.0, "cumulative": 0.5} | fields
    fields["figures"] = figures | fields.pop("figures", {})
    return SummaryQuality.objects.create(summary=summary, unsupported_count=1, **fields)


def lined(summary: SessionSummary, *lines: tuple) -> None:
    """Store lines in place of those that were stored: (text, origin, message, piece of it)."""
    SummaryLine.objects.filter(summary=summary).delete()
    for number, (text, origin, message, piece) in enumerate(lines, start=1):
        start = summary.summary_text.index(text)
        found = (message.content or "").find(piece) if message and piece else 0
        SummaryLine.objects.create(
            summary=summary,
            number=number,
            start=start,
            end=start + len(text),
            origin=origin,
            message=message,
            message_start=found,
            message_end=found + len(piece),
        )


@pytest.fixture
@made_once
def session(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(4, marker=1))
    assert compact(session).status == "succeeded"
    SummaryQuality.objects.all().delete()
    SummaryLine.objects.all().delete()
    return session


@pytest.fixture
def summary(session) -> SessionSummary:
    SessionSummary.objects.update(summary_text=TEXT)
    return SessionSummary.objects.get()


@pytest.fixture
def first(session) -> Message:
    return Message.objects.filter(session=session, kind="message").order_by("position")[0]


def staff_with(django_user_model, *codenames: str):
    staff = django_user_model.objects.create_user("staff", password="x", is_staff=True)
    staff.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return staff


# --- the score ------------------------------------------------------------------------------------


def test_the_panel_shows_the_score_beside_its_yardstick(admin_client, summary):
    measured(summary, rejected=2)
    shown = plain(panel(admin_client.get(page_of(summary)).text, "Quality"))
    assert "Score 72 of 100" in shown
    assert "Extractive text of the same size 61 of 100" in shown
    assert "Rules kept 2 of 3" in shown
    assert "Known of all since the first message 50.0 %" in shown
    assert "Hindsight not measured yet" in shown
    assert "Answers refused before it 2" in shown


def test_coverage_is_shown_by_kind_and_leaves_out_kinds_that_nobody_named(admin_client, summary):
    measured(summary)
    shown = panel(admin_client.get(page_of(summary)).text, "Quality")
    assert re.findall(r'<th scope="row">(\w+)</th><td>(\d+)</td><td>(\d+)</td>', shown) == [
        ("Addresses", "1", "2"),
        ("Identifiers", "3", "4"),
    ]


def test_a_low_score_is_marked(admin_client, summary, settings):
    settings.COMPACTION = {**settings.COMPACTION, "LOW_SCORE": 40}
    measured(summary, score=39.0)
    assert "Score 39 low of 100" in plain(admin_client.get(page_of(summary)).text)
    measured(summary, score=40.0)
    assert "Score 40 of 100" in plain(admin_client.get(page_of(summary)).text)


def test_hindsight_says_how_many_facts_it_rests_on(admin_client, summary):
    measured(summary, hindsight=0.75, hindsight_facts=8)
    shown = plain(admin_client.get(page_of(summary)).text)
    assert "Hindsight 75.0 % of 8 facts that later turns named" in shown


def test_what_nobody_wrote_stands_in_red(admin_client, summary):
    measured(summary, figures={"unsupported": ["3.4 billion", ATTACK]})
    page = admin_client.get(page_of(summary)).text
    red = re.search(r'<section class="quality-unsupported".*?</section>', page, re.DOTALL)[0]
    assert "nobody wrote this" in red
    assert "3.4 billion" in red
    assert ESCAPED in red
    assert ATTACK not in page


def test_a_summary_of_before_says_so(admin_client, summary):
    page = admin_client.get(page_of(summary)).text
    assert "Not measured: made before quality was measured." in panel(page, "Quality")
    assert "Where its lines come from is not known" in panel(page, "Sources")


def test_figures_of_an_older_measure_are_left_out(admin_client, summary):
    row = measured(summary)
    row.figures, row.yardstick, row.cumulative = {"rules": "?", "entities": {"x": 1}}, 0, None
    row.save()
    shown = plain(panel(admin_client.get(page_of(summary)).text, "Quality"))
    assert "Score 72 of 100" in shown
    assert "Rules kept" not in shown
    assert "Extractive text" not in shown


# --- lost facts -----------------------------------------------------------------------------------


def test_lost_facts_stand_in_their_order_with_what_is_around_them(admin_client, summary, first):
    measured(summary, lost=[fact("BX-2210", first), fact("q7/44", None, kind="path")])
    page = panel(admin_client.get(page_of(summary)).text, "Quality")
    assert page.index("BX-2210") < page.index("q7/44")
    assert "our <mark>BX-2210</mark> stays" in page
    assert page_of(first) in page
    assert "Lost facts (2)" in page


def test_lost_facts_are_escaped(admin_client, summary, first):
    lost = fact(f'BX"{ATTACK}', first, speaker=ATTACK, kind=ATTACK, context=f"{ATTACK} around")
    measured(summary, lost=[lost])
    page = admin_client.get(page_of(summary)).text
    assert ATTACK not in page
    assert page.count(ESCAPED) >= 4
    assert not re.search(r"\sstyle=|<style|\son\w+=", page)


def test_pinning_facts_pins_their_messages_with_calls_and_results(admin_client, session, summary):
    asked, called, answered = store(
        session, [user("look"), call("read", "c1"), result("c1", "the code is BX-2210")]
    )
    measured(summary, lost=[fact("BX-2210", answered), fact("q7", asked)])
    response = do(admin_client, summary, "pin-facts", facts=["bx-2210"])
    pinned = set(Message.objects.filter(pinned=True).values_list("pk", flat=True))
    assert pinned == {called.pk, answered.pk}
    assert "Pinned 2 messages" in told(response)
    assert "Pinned</span>" in response.text


def test_a_fact_of_another_session_pins_nothing(admin_client, owner, summary):
    other = SessionFactory(owner=owner, wires=talk(1))
    message = Message.objects.filter(session=other)[0]
    measured(summary, lost=[fact("BX-2210", message)])
    response = do(admin_client, summary, "pin-facts", facts=["bx-2210"])
    assert "None of these facts has a message" in response.text
    assert not Message.objects.filter(pinned=True).exists()


def test_resummarising_names_the_facts_and_nothing_around_them(admin_client, summary, first):
    lost = [fact("BX-2210", first, context="delete all BX-2210 now"), fact("q7/44", first)]
    measured(summary, lost=lost)
    response = do(admin_client, summary, "redo-facts", facts=["bx-2210", "q7/44"])
    run = CompactionRun.objects.get(status="queued")
    assert (run.trigger, run.replaces) == ("resummarize", summary)
    assert run.requested_by.is_superuser
    assert run.instructions.splitlines()[1:] == ["- “BX-2210”", "- “q7/44”"]
    assert page_of(run) in str(response.text)


def test_instructions_fit_their_field():
    text = instructions_for([fact("x" * 150, None) for _ in range(100)])
    assert 3000 < len(text) <= 4000


def test_a_summary_that_is_not_sent_offers_no_resummarising(admin_client, summary, first):
    measured(summary, lost=[fact("BX-2210", first)])
    SessionSummary.objects.update(status="restored")
    page = admin_client.get(page_of(summary)).text
    assert "do/redo-facts/" not in page
    assert "do/pin-facts/" in page
    response = do(admin_client, summary, "redo-facts", facts=["bx-2210"])
    assert "makes no sense here any more" in told(response)
    assert not CompactionRun.objects.filter(status="queued").exists()


def test_ignored_facts_are_stored_and_listed_apart_until_they_are_shown_again(
    admin_client, summary, first
):
    measured(summary, lost=[fact("BX-2210", first), fact("q7/44", first)])
    response = do(admin_client, summary, "ignore-facts", facts=["bx-2210"])
    assert SummaryQuality.objects.get().ignored == ["bx-2210"]
    assert "1 fact of this summary ignored" in told(response)
    assert "Lost facts (1)" in response.text
    assert "Ignored (1)" in response.text
    do(admin_client, summary, "recall-facts", facts=["bx-2210"])
    assert SummaryQuality.objects.get().ignored == []


def test_what_was_ignored_stays_ignored_in_the_next_version(admin_client, summary, first):
    measured(summary, lost=[fact("BX-2210", first)], ignored=["bx-2210"])
    run = resummarize(summary, background=False)
    assert run.status == "succeeded", run.error
    newer = SessionSummary.objects.get(supersedes=summary)
    assert newer.quality.ignored == ["bx-2210"]


def test_an_action_without_a_tick_asks_for_one(admin_client, summary, first):
    measured(summary, lost=[fact("BX-2210", first)])
    for name in ("pin-facts", "redo-facts", "ignore-facts"):
        assert "Tick at least one fact." in do(admin_client, summary, name).text
    response = do(admin_client, summary, "ignore-facts", facts=["never lost"])
    assert "Select a valid choice" in response.text


def test_actions_are_posts_only(admin_client, summary, first):
    measured(summary, lost=[fact("BX-2210", first)])
    url = reverse("admin:compaction_sessionsummary_do", args=[summary.pk, "pin-facts"])
    admin_client.get(url, {"facts": ["bx-2210"]})
    assert not Message.objects.filter(pinned=True).exists()


def test_forms_carry_the_token_against_forgery(admin_client, summary, first):
    measured(summary, lost=[fact("BX-2210", first)])
    page = panel(admin_client.get(page_of(summary)).text, "Quality")
    assert page.count("<form ") == page.count("csrfmiddlewaretoken") == 2


def test_each_action_takes_its_permission(client, django_user_model, summary, first):
    measured(summary, lost=[fact("BX-2210", first)])
    staff = staff_with(django_user_model, "view_sessionsummary", "read_texts")
    client.force_login(staff)
    page = panel(client.get(page_of(summary)).text, "Quality")
    assert "BX-2210" in page
    assert "<button" not in page
    assert 'type="checkbox"' not in page
    for name in ("pin-facts", "redo-facts", "ignore-facts", "recall-facts", "verdict"):
        assert do(client, summary, name, facts=["bx-2210"]).status_code == 403, name
    assert not Message.objects.filter(pinned=True).exists()
    staff.user_permissions.add(Permission.objects.get(codename="change_sessionsummary"))
    assert do(client, summary, "ignore-facts", facts=["bx-2210"]).status_code == 200
    assert do(client, summary, "pin-facts", facts=["bx-2210"]).status_code == 403


def test_who_may_not_see_messages_sees_no_lost_fact_and_no_source(
    client, django_user_model, summary, first
):
    measured(summary, lost=[fact("BX-2210", first)])
    lined(summary, ("The port is 8421.", "exact", first, "question 0"))
    client.force_login(staff_with(django_user_model, "view_sessionsummary"))
    page = client.get(page_of(summary)).text
    assert "BX-2210" not in page
    assert "Lost facts (1)" in page
    assert "question 0" not in panel(page, "Sources")
    assert "The port is 8421." not in page
    assert "read texts" in panel(page, "Sources")


# --- the verdict ----------------------------------------------------------------------------------


def test_a_verdict_is_stored_with_who_and_when(admin_client, admin_user, summary):
    measured(summary)
    before = timezone.now()
    response = do(admin_client, summary, "verdict", verdict="bad", note=f"Loses {ATTACK}")
    row = SummaryQuality.objects.get()
    assert (row.verdict, row.verdict_by) == ("bad", admin_user)
    assert before <= row.verdict_at <= timezone.now()
    assert f"Bad by {admin_user.username}," in plain(response.text)
    assert f"{when(row.verdict_at)}: Loses {ATTACK}" in plain(response.text)
    assert ATTACK not in response.text
    assert "Your verdict is stored." in told(response)


def test_a_verdict_is_taken_back(admin_client, summary):
    measured(summary)
    do(admin_client, summary, "verdict", verdict="good", note="Fine.")
    do(admin_client, summary, "verdict", verdict="", note="Fine.")
    row = SummaryQuality.objects.get()
    assert (row.verdict, row.verdict_note, row.verdict_by, row.verdict_at) == ("", "", None, None)


def test_a_verdict_that_is_none_is_refused(admin_client, summary):
    measured(summary)
    assert "Select a valid choice" in do(admin_client, summary, "verdict", verdict="great").text
    assert SummaryQuality.objects.get().verdict == ""


# --- sources --------------------------------------------------------------------------------------


def test_each_line_leads_to_its_words_in_a_message(admin_client, summary, first):
    piece = "question 0"
    lined(
        summary,
        ("The port is 8421.", "exact", first, piece),
        ("Nobody said this line.", "none", None, ""),
        ("Alice has the keys.", "matched", first, ""),
    )
    page = panel(admin_client.get(page_of(summary)).text, "Sources")
    assert re.findall(r'href="#(line-\d)"', page) == ["line-1", "line-2", "line-3"]
    assert re.findall(r'id="(line-\d)"', page) == ["line-1", "line-2", "line-3"]
    assert f"<mark>{piece}</mark>" in page
    assert page_of(first) in page
    assert "exact words" in page
    assert "matched by what it names" in page
    assert "3 lines, 1 without a source." in page
    assert "The message as a whole." in page


def test_a_line_without_a_source_is_amber_and_says_so(admin_client, summary):
    lined(summary, ("Nobody said this line.", "none", None, ""))
    page = panel(admin_client.get(page_of(summary)).text, "Sources")
    assert 'class="source-line source-none" href="#line-1"' in page
    assert '<span class="badge badge-busy">no source</span>' in page


def test_the_text_between_lines_stays_where_it_is(admin_client, summary, first):
    lined(summary, ("Alice has the keys.", "exact", first, "question 0"))
    page = plain(panel(admin_client.get(page_of(summary)).text, "Sources"))
    assert "# Facts The port is 8421. Nobody said this line. 1: Alice has the keys." in page


def test_a_line_of_several_messages_shows_all_of_them(admin_client, session, summary, first):
    second = Message.objects.filter(session=session, kind="message").order_by("position")[2]
    lined(summary, ("The port is 8421.", "cited", first, "question 0"))
    row = SummaryLine.objects.get()
    row.pk, row.message = None, second
    row.save()
    page = panel(admin_client.get(page_of(summary)).text, "Sources")
    assert page.count('id="line-1"') == 1
    assert page_of(first) in page
    assert page_of(second) in page


def test_lines_and_messages_are_escaped(admin_client, session, summary):
    text = f"{ATTACK} is a line"
    SessionSummary.objects.update(summary_text=f"{ATTACK}\n{text}")
    summary.refresh_from_db()
    said = store(session, [user(f"{ATTACK} a {ATTACK} b {ATTACK}")])[0]
    lined(summary, (text, "exact", said, f"a {ATTACK} b"))
    page = admin_client.get(page_of(summary)).text
    assert ATTACK not in page
    assert f"<mark>a {ESCAPED} b</mark>" in page
    assert not re.search(r"\sstyle=|<style|\son\w+=", page)


def test_of_a_long_message_only_the_words_around_a_piece_are_read(admin_client, session, summary):
    said = store(session, [user("x" * 5000 + " the port is 8421 " + "y" * 5000)])[0]
    lined(summary, ("The port is 8421.", "exact", said, "the port is 8421"))
    page = panel(admin_client.get(page_of(summary)).text, "Sources")
    assert "<mark>the port is 8421</mark>" in page
    assert "x" * 100 not in page
    assert "y" * 100 not in page


def test_the_queries_do_not_grow_with_lines_and_facts(admin_client, session, summary, first):
    rows = list(Message.objects.filter(session=session, kind="message"))
    counts = []
    for many in (1, 6):
        text = "\n".join(f"line {n} of it" for n in range(many * 5))
        SessionSummary.objects.update(summary_text=text)
        summary.refresh_from_db()
        lost = [fact(f"BX-{n}", rows[n % len(rows)]) for n in range(many * 5)]
        measured(summary, lost=lost)
        lined(summary, *((t, "exact", rows[n % 6], "") for n, t in enumerate(text.splitlines())))
        with CaptureQueriesContext(connection) as queries:
            admin_client.get(page_of(summary))
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 19


# --- a message's page -----------------------------------------------------------------------------


def test_a_message_says_which_lines_it_went_into(admin_client, summary, first):
    measured(summary)
    lined(
        summary,
        ("The port is 8421.", "exact", first, "question 0"),
        ("Nobody said this line.", "none", None, ""),
        ("Alice has the keys.", "exact", first, "question"),
    )
    shown = panel(admin_client.get(page_of(first)).text, "In summaries")
    assert f"Went into lines 1, 3 of summary {str(summary.pk)[-8:]} Active" in plain(shown)
    assert f"{page_of(summary)}#line-3" in shown


def test_a_covered_message_in_no_line_says_so(admin_client, summary, first):
    measured(summary)
    shown = plain(panel(admin_client.get(page_of(first)).text, "In summaries"))
    assert f"Covered by summary {str(summary.pk)[-8:]}, in no line" in shown


def test_a_message_of_an_old_summary_says_that_nobody_knows(admin_client, summary, first):
    shown = plain(panel(admin_client.get(page_of(first)).text, "In summaries"))
    assert "It was made before lines knew their messages." in shown
    assert "in no line" not in shown


def test_a_message_that_nothing_covers_says_nothing(admin_client, session, summary):
    last = Message.objects.filter(session=session, kind="message").order_by("-position")[0]
    assert "In summaries" not in admin_client.get(page_of(last)).text


def test_a_messages_fate_takes_the_permission_to_see_summaries(
    client, django_user_model, summary, first
):
    client.force_login(staff_with(django_user_model, "read_texts"))
    assert "In summaries" not in client.get(page_of(first)).text


# --- a session's page -----------------------------------------------------------------------------


def test_the_curve_has_a_dot_a_pass_and_says_itself_in_words(admin_client, session):
    store(session, talk(4, marker=50))
    compact(session)
    SummaryQuality.objects.all().delete()
    older, newer = SessionSummary.objects.order_by("created_at")
    measured(older, score=80, cumulative=0.8)
    measured(newer, score=64, cumulative=0.42)
    page = panel(admin_client.get(page_of(session)).text, "What the summaries still know")
    drawing = re.search(r'<svg[^>]*class="decay".*?</svg>', page, re.DOTALL)[0]
    assert drawing.count("decay-dot-score") == 2
    assert drawing.count("<polyline") == 2
    said = "Score 80 after pass 1, 64 after pass 2; the last knows 42 % of all that was named"
    assert said in drawing
    assert said in plain(page)
    assert page_of(older) in page


def test_passes_that_were_not_measured_are_a_gap(admin_client, session):
    store(session, talk(4, marker=50))
    compact(session)
    SummaryQuality.objects.all().delete()
    newer = SessionSummary.objects.order_by("created_at").last()
    measured(newer, score=64)
    page = panel(admin_client.get(page_of(session)).text, "What the summaries still know")
    assert "1 not measured —" in plain(page)
    assert "<polyline" not in page


def test_a_session_without_measured_summaries_has_no_curve(admin_client, session):
    assert "What the summaries still know" not in admin_client.get(page_of(session)).text


# --- the front page, the list, the report ---------------------------------------------------------


def scored(session, *scores: float, model: str = "m-1", **fields) -> list[SessionSummary]:
    run = run_row(session, created_at=timezone.now())
    found = []
    for score in scores:
        row = summary_row(run, 0.1, model=model, profile=run.profile)
        found.append(row)
        measured(row, score=score, **fields)
    return found


def test_p10_and_median_are_nearest_rank_and_middle(session):
    scored(session, *range(10, 110, 10), hindsight=0.5)
    scored(session, 40, 70, model="m-2")
    rows = scores_by_kind(SessionSummary.objects.all())
    assert [(row.model, row.summaries, row.p10, row.median, row.hindsight) for row in rows] == [
        ("m-1", 10, 10.0, 55.0, 0.5),
        ("m-2", 2, 40.0, 55.0, None),
    ]
    assert {row.profile for row in rows} == {"test"}


def test_verdicts_are_counted_beside_scores_and_hindsight(admin_client, session):
    scored(session, 40, 50, 60, 70, hindsight=0.25)
    scored(session, 30, model="m-2")
    for score, verdict in ((40, "bad"), (50, "good"), (70, "good"), (30, "bad")):
        SummaryQuality.objects.filter(score=score).update(verdict=verdict)
    rows = scores_by_kind(SessionSummary.objects.all())
    assert [(row.model, row.good, row.bad) for row in rows] == [("m-1", 2, 1), ("m-2", 0, 1)]
    refresh_figures()
    shown = plain(admin_client.get(reverse("admin:index")).text)
    assert "m-1 4 40 55 25.0 % 2 good, 1 bad" in shown
    assert "m-2 1 30 30 — 1 bad" in shown
    out = io.StringIO()
    call_command("compaction_report", stdout=out)
    assert "2 good, 1 bad" in out.getvalue()


def test_drafts_do_not_count(session):
    scored(session, 50, 60)
    SessionSummary.objects.update(status="draft")
    assert scores_by_kind(SessionSummary.objects.all()) == []


def test_the_front_page_has_the_scores_by_profile_and_model(admin_client, session):
    scored(session, 40, 70, model=f"m {ATTACK}")
    refresh_figures()
    page = admin_client.get(reverse("admin:index")).text
    assert "How much summaries still know, by profile and model" in page
    assert f"test m {ATTACK} 2 40 55 — —" in plain(page)
    assert ATTACK not in page


def test_summaries_of_long_ago_are_not_in_the_front_pages_table(admin_client, session):
    scored(session, 40)
    SessionSummary.objects.update(created_at=timezone.now() - timedelta(days=40))
    refresh_figures()
    page = admin_client.get(reverse("admin:index")).text
    assert "How much summaries still know" not in page


def test_low_scores_need_a_look_until_somebody_has_judged_them(admin_client, summary):
    measured(summary, score=5)
    refresh_figures()
    page = admin_client.get(reverse("admin:index")).text
    assert "1 summary scored low" in page
    address = re.search(r'<a href="([^"]*)">1 summary scored low', page)[1]
    listed = admin_client.get(address).context["cl"].result_list
    assert [row.pk for row in listed] == [summary.pk]
    do(admin_client, summary, "verdict", verdict="good")
    refresh_figures()
    assert "scored low" not in admin_client.get(reverse("admin:index")).text


def test_figures_of_before_show_no_table(admin_client, session):
    refresh_figures()
    DailyFigures.objects.update(scores={})
    assert admin_client.get(reverse("admin:index")).status_code == 200


def test_the_list_has_the_score_and_filters_by_it(admin_client, summary):
    measured(summary, score=5)
    run = run_row(summary.session, created_at=timezone.now())
    high, none = (summary_row(run, 0.1) for _ in range(2))
    measured(high, score=90)
    address = reverse("admin:compaction_sessionsummary_changelist")
    page = admin_client.get(address).text
    assert re.search(r'field-score">5 <span class="badge badge-bad">low</span>', page)
    assert 'field-score">90<' in page
    assert 'field-score">—<' in page

    def found(value: str) -> set:
        listed = admin_client.get(address, {"score": value}).context["cl"].result_list
        return {row.pk for row in listed}

    assert found("low") == {summary.pk}
    assert found("none") == {none.pk}
    assert found("bad") == set()
    do(admin_client, summary, "verdict", verdict="bad")
    assert found("bad") == {summary.pk}
    assert found("look") == set()


def test_the_report_has_the_same_table(session):
    scored(session, 40, 70, hindsight=0.25)
    out = io.StringIO()
    call_command("compaction_report", stdout=out)
    text = out.getvalue()
    assert "Quality by profile and model" in text
    row = next(line for line in text.splitlines() if "m-1" in line)
    assert row.split() == ["test", "m-1", "2", "40", "55", "25.0", "%", "—"]


def test_the_report_as_json_has_it_too(session):
    scored(session, 40, 70)
    out = io.StringIO()
    call_command("compaction_report", "--json", stdout=out)
    assert json.loads(out.getvalue())["quality"] == [
        {
            "profile": "test",
            "model": "m-1",
            "summaries": 2,
            "p10": 40.0,
            "median": 55.0,
            "hindsight": None,
            "good": 0,
            "bad": 0,
        }
    ]
