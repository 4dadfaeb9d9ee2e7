"""An operator's way through the desk, in a real browser against a real worker."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys

import pytest
from django.urls import reverse

from chatapp.models import Session
from compaction.comparison import jobs
from compaction.models import CompactionRun, SessionSummary
from compaction.runs.resummarize import resummarize
from compaction.runs.worker import compact_branch
from compaction.statistics.daily import refresh_figures
from tests.e2e.browser import Watched
from tests.e2e.conftest import ROOT, log_in
from tests.factories import SessionFactory, profile, talk

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

NASTY = (
    '<script>alert("x")</script></svg></title><img src=x onerror=alert(1)> '
    "\u202eright-to-left\u202c " + "W" * 3000
)
DESKTOP = 1280
LOOKS = ((DESKTOP, "light"), (400, "dark"))


@pytest.fixture
def session(transactional_db, operator) -> Session:
    """Sixty turns, whose first half is summarised; the embedded model halves the rest."""
    profile("desk", message_limit=0, max_context_tokens=0, keep_last_n=4)
    made = SessionFactory(owner=operator, title="Boots and a stove", wires=talk(60, words=20))
    compact_branch(session=made, trigger="manual", reason="manual", keep_last_n=60)
    refresh_figures()
    return made


def follow(page, text: str) -> None:
    """Click the link of that name and wait for its page."""
    page.click(f"a:has-text('{text}')")
    page.wait_for_load_state()


def save(page) -> None:
    """Press the button that saves and wait for the whole page that comes after it."""
    with page.expect_navigation():
        page.click("input[name=_save]")


def open_form(page, name: str) -> None:
    page.click(f"#form-{name} > summary")


def said(page) -> str:
    """Return the messages on top of the page."""
    return page.inner_text("ul.messagelist")


def wait_for_run(watched: Watched, status: str) -> None:
    """Open the run again until a worker is done with it."""
    for _ in range(60):
        if f"({status})" in watched.page.inner_text("#content h2"):
            return
        watched.page.wait_for_timeout(500)
        watched.page.reload()
    raise AssertionError(watched.page.inner_text("#content"))


def test_an_operator_sees_compacts_looks_into_the_recursion_compares_and_takes_back(
    site, session, worker
):
    watched = site()
    page = log_in(watched)
    assert "Runs today" in page.inner_text(".tiles")
    assert page.locator("section.plot-panel").count() == 6

    # The front page, the list, the session: the whole conversation as one strip.
    follow(page, "Sessions")
    follow(page, "Boots and a stove")
    strip = page.locator("svg[aria-label*='conversation' i], svg.strip").first
    assert strip.is_visible()
    assert "Kept: sent verbatim" in page.inner_text("#content")
    assert "the newest of 120 messages" in page.inner_text("#content")

    # Compact now, done by the worker.
    open_form(page, "compact")
    page.fill("#compact_instructions", "Keep every number.")
    page.click("#form-compact button")
    assert "is queued" in said(page)
    page.click("ul.messagelist a:has-text('run')")
    wait_for_run(watched, "succeeded")
    run = CompactionRun.objects.order_by("-created_at")[0]
    assert (run.status, run.instructions) == ("succeeded", "Keep every number.")

    # The tree of its calls, and what went in and came out of one.
    tree = page.locator("svg.run-tree")
    assert tree.is_visible()
    assert tree.locator("a").count() == run.steps.count()
    tree.locator("a").first.click()
    page.wait_for_load_state()
    assert "as the summariser got them" in page.inner_text("#content")
    assert "question 3" in page.inner_text("#content")

    # A second version of the summary, side by side with the first.
    summary = SessionSummary.objects.get(run=run)
    watched.go(reverse("admin:compaction_sessionsummary_change", args=[summary.pk]))
    open_form(page, "resummarise")
    page.click("#form-resummarise button")
    page.click("ul.messagelist a:has-text('run')")
    wait_for_run(watched, "succeeded")
    newer = SessionSummary.objects.get(supersedes=summary)
    watched.go(reverse("admin:compaction_sessionsummary_change", args=[newer.pk]))
    follow(page, "Compare with the version it replaces")
    assert page.locator(".compared-side").count() == 2

    # And back: the messages are sent verbatim again.
    watched.go(reverse("admin:compaction_sessionsummary_change", args=[newer.pk]))
    page.click("#form-restore button")
    assert "would be sent verbatim again" in page.inner_text("#content-main")
    page.click("#content-main button")
    newer.refresh_from_db()
    assert newer.status == "restored"
    watched.go(reverse("admin:chatapp_session_change", args=[session.pk]))
    follow(page, "What the next request sends")
    assert "question 40" in page.inner_text("#content")
    with page.expect_download() as download:
        page.click("a:has-text('Download')")
    assert download.value.suggested_filename.endswith(".json")


def test_a_page_of_running_work_says_by_itself_that_it_has_ended_and_how(site, session):
    run = CompactionRun.objects.get(session=session)
    CompactionRun.objects.update(status="running")
    watched = site()
    log_in(watched)
    page = watched.go(reverse("admin:compaction_compactionrun_change", args=[run.pk]))
    assert page.locator("[role=status][aria-live=polite]").inner_text().startswith("Running:")
    CompactionRun.objects.update(status="succeeded")
    page.wait_for_selector("#content h2:has-text('(succeeded)')")
    assert "(succeeded)" in page.title()
    assert "(running)" not in page.inner_text("#container")
    told = page.locator("[role=status][aria-live=polite]").inner_text()
    assert told == "It has ended: the page is up to date."


def test_a_part_in_use_is_left_alone_and_followed_up_when_it_is_left(site, session):
    """The page said that it was up to date, and showed the part as it had been."""
    run = CompactionRun.objects.get(session=session)
    CompactionRun.objects.update(status="running")
    watched = site()
    log_in(watched)
    page = watched.go(reverse("admin:compaction_compactionrun_change", args=[run.pk]))
    status = page.locator("[role=status][aria-live=polite]")
    fields = page.locator("[data-live-part=fields]")
    before = fields.inner_text()
    assert "Running" in before
    fields.evaluate("(part) => { part.tabIndex = -1; part.focus(); }")
    CompactionRun.objects.update(status="succeeded")
    page.wait_for_selector("#content h2:has-text('(succeeded)')")
    in_use = "It has ended. The part that you are using follows once you leave it."
    assert status.inner_text() == in_use
    assert fields.inner_text() == before
    fields.evaluate("(part) => part.blur()")
    page.wait_for_selector("[data-live]:has-text('up to date')")
    assert status.inner_text() == "It has ended: the page is up to date."
    assert "Succeeded" in fields.inner_text()


def test_a_page_held_still_stays_as_it_was_loaded(site, session):
    run = CompactionRun.objects.get(session=session)
    CompactionRun.objects.update(status="running")
    watched = site(is_still=True)
    log_in(watched)
    asked = []
    page = watched.go(reverse("admin:compaction_compactionrun_change", args=[run.pk]))
    page.on("request", lambda request: asked.append(request.url))
    page.clock.install()
    page.reload()
    asked.clear()
    page.clock.run_for(60_000)
    assert asked == []


def test_a_comparison_shows_its_result_without_loading_the_page_anew(site, session, operator):
    """It was loaded whole every two seconds, whatever somebody was doing there."""
    job = jobs.begin(
        user=operator.pk, sessions=[str(session.pk)], profiles=["bisect"], model="embedded"
    )
    watched = site()
    log_in(watched)
    page = watched.go(f"{reverse('admin:compaction_compare_profiles')}?job={job.key}")
    page.evaluate("window.isTheSame = true")
    page.focus("button[name=cancel]")
    jobs.work(job.key, is_stopping=lambda: False)
    page.wait_for_selector("text=What each profile would have made of it")
    assert page.evaluate("window.isTheSame")
    in_use = "It has ended. The part that you are using follows once you leave it."
    assert page.locator("[data-live]").inner_text() == in_use
    page.evaluate("document.activeElement.blur()")
    page.wait_for_selector("[data-live]:has-text('up to date')")
    assert page.locator("button[name=cancel]").count() == 0


def test_a_wrong_value_in_a_profile_is_told_while_it_is_typed_and_not_saved(site, session):
    watched = site()
    page = log_in(watched)
    page.click("a:text-is('Profiles')")
    follow(page, "desk v1")
    page.fill("#id_message_limit", "3")
    error = page.locator("#id_keep_last_n_error")
    error.wait_for()
    assert "Must be below message_limit (3)" in error.inner_text()
    save(page)
    assert "Must be below message_limit (3)" in page.inner_text("#content")
    page.fill("#id_message_limit", "12")
    error.wait_for(state="hidden")
    save(page)
    assert said(page) == "Saved as desk v2; the version before it stays as it was."
    follow(page, "desk v2")
    assert page.input_value("#id_message_limit") == "12"


def addresses(session: Session) -> list[str]:
    """Return the address of every kind of page."""
    newer, older = SessionSummary.objects.filter(session=session).order_by("-created_at")
    failed, run = CompactionRun.objects.filter(session=session).order_by("status")[:2]
    assert (failed.status, run.status) == ("failed", "succeeded")
    rows = {
        "chatapp_session": session, "chatapp_branch": session.branch,
        "chatapp_message": session.messages.all()[0], "compaction_sessionsummary": newer,
        "compaction_compactionrun": run, "compaction_compactionstep": run.steps.all()[0],
        "compaction_compactionstate": session.branch.compaction_state,
        "compaction_compactionprofile": run.profile,
    }  # fmt: skip
    found = []
    for name, row in rows.items():
        found.append(reverse(f"admin:{name}_changelist"))
        found.append(reverse(f"admin:{name}_change", args=[row.pk]))
    desk = reverse("admin:chatapp_session_change", args=[session.pk])
    runs = reverse("admin:compaction_compactionrun_changelist")
    return [
        *found,
        reverse("admin:index"),
        reverse("admin:compaction_sessionsummarymessage_changelist"),
        reverse("admin:chatapp_session_request", args=[session.pk]),
        f"{desk}?at=3000000",
        reverse("admin:chatapp_session_history", args=[session.pk]),
        reverse("admin:chatapp_session_delete", args=[session.pk]),
        reverse("admin:compaction_sessionsummary_compare", args=[newer.pk, older.pk]),
        reverse("admin:compaction_compactionrun_change", args=[failed.pk]),
        f"{runs}?day={run.created_at:%Y-%m-%d}",
        reverse("admin:compaction_compactionprofile_add"),
    ]


@pytest.fixture
def hostile(transactional_db, operator) -> Session:
    """A session with hostile text in every place, two versions of a summary, and a failed run."""
    profile("desk", message_limit=0, max_context_tokens=0, keep_last_n=2)
    wires = [wire | {"content": f"{NASTY} {wire['content']}"} for wire in talk(12, words=5)]
    session = SessionFactory(owner=operator, title=NASTY[:190], system_prompt=NASTY, wires=wires)
    words = {"session": session, "instructions": NASTY[:3000]}
    run = compact_branch(trigger="manual", reason="manual", **words)
    assert run.status == "succeeded", run.error
    resummarize(SessionSummary.objects.get(), instructions=NASTY[:3000])
    CompactionRun.objects.create(
        branch=session.branch, trigger="manual", reason="manual", mode="inline", status="failed",
        error_code="bad_answer", error=NASTY, profile=run.profile, **words,
    )  # fmt: skip
    refresh_figures()
    return session


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_hostile_text_is_text_on_every_page_and_no_page_is_wider_than_the_window(
    site, hostile, width, scheme
):
    watched = site(width=width, scheme=scheme)
    page = log_in(watched)
    page.on("dialog", lambda dialog: watched.faults.append(f"dialog: {dialog.message}"))
    for address in addresses(hostile):
        watched.go(address)
        scripts = page.locator("script:not([src])")
        inline = [scripts.nth(n).inner_text() for n in range(scripts.count())]
        assert not [text for text in inline if "alert" in text], address
        assert page.locator("img[src=x]").count() == 0, address
        assert not watched.is_wider_than_the_window(), address
        assert width < DESKTOP or not watched.cut_off(), address
        assert not re.search(r"\sstyle=", page.content()), address


def test_a_narrow_window_shows_the_numbers_of_the_next_request(site, operator):
    session = SessionFactory(owner=operator, system_prompt="Be brief.", wires=talk(2, words=5))
    watched = site(width=390, scheme="light")
    log_in(watched)
    page = watched.go(reverse("admin:chatapp_session_request", args=[session.pk]))
    numbers = page.locator(".request-account td")
    assert numbers.count() > 1
    frame = page.locator(".table-frame").filter(has=numbers)
    assert frame.evaluate("it => it.scrollWidth <= it.clientWidth")


FIELDS_CUT = """
rows => rows.filter(row => row.checkVisibility()).filter(row =>
    row.getBoundingClientRect().right > row.closest("fieldset").getBoundingClientRect().right
).map(row => row.textContent.trim())
"""


@pytest.mark.parametrize("width", [390, 700])
def test_no_field_is_cut_off_by_its_frame_on_a_narrow_window(site, hostile, width):
    """Django gives each the window's width; a frame that cuts what stands out hid their ends."""
    watched = site(width=width, scheme="light")
    log_in(watched)
    for row in (hostile, profile("own", keep_last_n=3), hostile.owner):
        name = row._meta.label_lower.replace(".", "_")
        page = watched.go(reverse(f"admin:{name}_change", args=[row.pk]))
        fields = page.locator(".form-row > div, .form-row .readonly, .form-row input")
        assert fields.count() > 3, name
        assert fields.evaluate_all(FIELDS_CUT) == [], name


def test_axe_finds_nothing_on_any_page():
    """Each page in one of the four looks, drawn anew; tests.accessibility asks in all of them."""
    axe = os.environ.get("AXE", "")
    if not axe:
        pytest.skip("needs axe-core: name npm's axe.min.js in the variable AXE")
    chosen = os.environ.get("AXE_SEED") or secrets.token_hex(4)
    asked = [sys.executable, "-m", "tests.accessibility", "--axe", axe, "--drawn", chosen]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"AXE_SEED={chosen}\n{done.stdout}\n{done.stderr}"
    assert " 0 violations" in done.stdout


def test_downloads_hold_hostile_text_as_it_is_and_are_never_shown_as_pages(client, hostile):
    client.force_login(hostile.owner)
    request = reverse("admin:chatapp_session_request", args=[hostile.pk])
    download = client.get(f"{request}?download=1")
    assert download["Content-Type"].startswith("application/json")
    assert download["X-Content-Type-Options"] == "nosniff"
    assert download["Content-Disposition"].startswith("attachment")
    assert download.json()["messages"][0]["content"] == NASTY
    # A chunk: the input of a merge is two texts that were chosen from the messages.
    run = CompactionRun.objects.get(status="succeeded", trigger="manual")
    step = run.steps.filter(kind="chunk").earliest("order")
    text = client.get(f"/admin/compaction/compactionstep/{step.pk}/input.txt")
    assert text["Content-Type"].startswith("text/plain")
    assert text["X-Content-Type-Options"] == "nosniff"
    assert NASTY in b"".join(text.streaming_content).decode()
