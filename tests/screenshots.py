"""Take pictures of every page of the desk: `python -m tests.screenshots [--all FOLDER]`.

Without an argument it makes the pictures that README.md and docs/ show, in docs/pictures/, from
what `manage.py demo` stores, so that they stay true. With --all every page is taken at two widths,
light and dark, for people to look at; a session of data/pi is imported too where `../shared` is.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PICTURES = HERE.parent / "docs" / "pictures"
SHARED = HERE.parent.parent / "shared"
PI_SESSION = "data/pi"
USER, PASSWORD = "pictures", "only-for-pictures-7"
WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")
SHOWN_PAGES = ("front", "session", "request", "timeline", "tree", "run", "summary", "profile")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page to take: a name for its file, its address, and what is pressed there, if any."""

    name: str
    path: str
    press: str = ""

    def open(self, watched: Any) -> Any:
        """Show it in a browser, and return it."""
        shown = watched.go(self.path)
        if self.press:
            # It may be folded away, where nobody could click at it.
            with shown.expect_navigation():
                shown.evaluate("(press) => document.querySelector(press).click()", self.press)
        return shown


def main() -> None:
    """Set everything up in a folder of its own, serve it, take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", metavar="FOLDER", type=Path, help="take every page in there")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="palimpsest-pictures-") as folder:
        os.environ["PALIMPSEST_DATA_DIR"] = folder
        os.environ["DJANGO_SETTINGS_MODULE"] = "chatapp.settings"
        os.environ.setdefault("LOG_LEVEL", "ERROR")
        # Playwright's loop runs in this thread, which Django takes for asynchronous code.
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
        import django

        django.setup()
        pages = prepare(whole=chosen.all is not None)
        with served() as base:
            if chosen.all:
                take_all(base, pages, chosen.all)
            else:
                take_for_docs(base, pages)


def prepare(*, whole: bool) -> list[Page]:
    """Store the demo's conversations and what they lack, and return the pages to look at."""
    from django.contrib.auth import get_user_model
    from django.core.management import call_command

    from chatapp.models import Session
    from compaction.branches.snapshot import snapshot_of
    from compaction.runs.resummarize import resummarize

    call_command("demo", no_serve=True, verbosity=0)
    user = get_user_model().objects.create_superuser(USER, password=PASSWORD)
    session = Session.objects.order_by("created_at").first()
    assert session is not None
    summary = snapshot_of(session).summaries[-1]
    resummarize(summary, instructions="Keep every time and every path.")
    pages = [
        Page(name="front", path="/admin/"),
        Page(name="models", path="/admin/chatapp/learnedlimits/models/"),
        *lists(),
        *pages_of(session),
        *tree_pages(user, whole=whole),
    ]
    if whole:
        pages += window_pages(user)
        pages += abridged_pages(user)
        pages += comparison_pages(session, user)
        pages += look_pages(session, user)
        pages += desk_pages(session, user)
    if whole and (SHARED / PI_SESSION).is_dir():
        files = sorted((SHARED / PI_SESSION).glob("*.jsonl"), key=lambda one: one.stat().st_size)
        call_command("import_transcript", str(files[-1]), owner=USER, verbosity=0)
        imported = Session.objects.filter(owner=user).order_by("-created_at").first()
        assert imported is not None
        compact(imported)
        pages += [Page(name=f"pi-{page.name}", path=page.path) for page in pages_of(imported)]
    from compaction.statistics.daily import refresh_figures

    refresh_figures()
    return pages


def compact(session: Any) -> None:
    """Compact a session with sentences, so that no server is needed."""
    from compaction.profiles import save_profile
    from compaction.runs.worker import compact_branch

    profile = save_profile(name="sentences", parameters={"summariser": "extractive"})
    for keep in (30, 6):
        compact_branch(
            session=session, trigger="manual", reason="manual", profile=profile, keep_last_n=keep
        )


def lists() -> list[Page]:
    """Return the lists of every model that has pages of its own."""
    from django.contrib import admin

    # Pages are registered with the addresses; commands do without.
    admin.autodiscover()
    names = [
        (model._meta.app_label, str(model._meta.model_name))
        for model in admin.site._registry
        if model._meta.app_label in ("chatapp", "compaction")
    ]
    return [Page(name=f"list-{name}", path=f"/admin/{app}/{name}/") for app, name in names]


def desk_pages(session: Any, user: Any) -> list[Page]:
    """Return the pages that belong to no session: owners, imports, keys, bulk jobs, forms."""
    from tests.desk_pictures import asking, desk_addresses

    found = [Page(name=name, path=path) for name, path in desk_addresses(session, user).items()]
    asked = asking(session).items()
    return [*found, *(Page(name=name, path=path, press=press) for name, (path, press) in asked)]


def tree_pages(user: Any, *, whole: bool) -> list[Page]:
    """Return the pages of sessions with many branches: grown ones, a chosen branch, folded ones."""
    from tests.tree_pictures import store_tree, store_wide_tree

    grown = store_tree(user)
    chosen = grown.branches.get(label="The school")
    address = f"/admin/chatapp/session/{grown.pk}/tree/"
    found = [Page(name="tree", path=address)]
    if whole:
        wide = store_wide_tree(user)
        found += [
            Page(name="tree-chosen", path=f"{address}?branch={chosen.pk}"),
            Page(name="tree-wide", path=f"/admin/chatapp/session/{wide.pk}/tree/"),
            Page(name="tree-branch", path=f"/admin/chatapp/branch/{chosen.pk}/change/"),
        ]
    return found


def comparison_pages(session: Any, user: Any) -> list[Page]:
    """Return the form that compares profiles, one that waits for its worker, and a result."""
    from compaction.comparison import jobs
    from compaction.engine.profile import PRESETS

    address = "/admin/compaction/compare-profiles/"
    found = [Page(name="comparison-form", path=f"{address}?session={session.pk}")]
    for name in ("waiting", "result"):
        job = jobs.begin(
            user=user.pk, sessions=[str(session.pk)], profiles=list(PRESETS), model="embedded"
        )
        if name == "result":
            jobs.work(job.key, is_stopping=lambda: False)
        found.append(Page(name=f"comparison-{name}", path=f"{address}?job={job.key}"))
    return found


def look_pages(session: Any, user: Any) -> list[Page]:
    """Return the list of what needs a look, with things of most kinds, one of them set aside."""
    from compaction.attention.listing import needs_look
    from compaction.attention.marks import mark_done
    from tests.look_pictures import store_things

    store_things(session)
    mark_done(needs_look().items[-1], by=user)
    address = "/admin/needs-a-look/"
    return [
        Page(name="look", path=address),
        Page(name="look-kind", path=f"{address}?kind=left_out"),
        Page(name="look-aside", path=f"{address}?aside=1"),
        Page(name="tables", path="/admin/compaction/"),
    ]


def window_pages(user: Any) -> list[Page]:
    """Return the pages of a sliding window's session: digest, draft, waiting run, workers."""
    from compaction.models import CompactionRun, ModelBreaker, SessionSummary, WorkerHeartbeat
    from tests.window_pictures import store_window

    session = store_window(user)
    rows = {
        "archive": SessionSummary.objects.filter(session=session, is_digest=True).first(),
        "draft": SessionSummary.objects.filter(session=session, status="draft").first(),
        "waiting-run": CompactionRun.objects.filter(session=session, status="queued").first(),
        "archive-run": CompactionRun.objects.filter(session=session, reason="archive").first(),
        "breaker": ModelBreaker.objects.first(),
        "worker": WorkerHeartbeat.objects.filter(run__isnull=False).first(),
    }
    found = [Page(name=f"window-{page.name}", path=page.path) for page in pages_of(session)]
    for name, row in rows.items():
        assert row is not None, name
        address = f"/admin/compaction/{row._meta.model_name}/{row.pk}/change/"
        found.append(Page(name=f"window-{name}", path=address))
    return found


def abridged_pages(user: Any) -> list[Page]:
    """Return the pages of abridged histories, the cache's clock, pins and memories."""
    from compaction.models import CompactionProfile
    from tests.abridged_pictures import PROFILE, rows_of_abridged, store_abridged

    scene = store_abridged(user)
    found = [Page(name=f"abridged-{page.name}", path=page.path) for page in pages_of(scene.session)]
    for name, row in rows_of_abridged(scene).items():
        app, model = row._meta.app_label, row._meta.model_name
        found.append(Page(name=f"abridged-{name}", path=f"/admin/{app}/{model}/{row.pk}/change/"))
    profile = CompactionProfile.objects.get(name=PROFILE, is_current=True)
    return [
        *found,
        Page(name="abridged-gated", path=f"/admin/chatapp/session/{scene.gated.pk}/change/"),
        Page(
            name="abridged-form", path=f"/admin/compaction/compactionprofile/{profile.pk}/change/"
        ),
    ]


def pages_of(session: Any) -> list[Page]:
    """Return the pages about one session, its newest summary and the run that made it."""
    from compaction.models import CompactionProfile, CompactionRun, CompactionState, SessionSummary

    found = [
        Page(name="session", path=f"/admin/chatapp/session/{session.pk}/change/"),
        Page(name="request", path=f"/admin/chatapp/session/{session.pk}/request/"),
        Page(name="timeline", path=f"/admin/chatapp/session/{session.pk}/timeline/"),
    ]
    message = session.messages.order_by("-tokens").first()
    found.append(Page(name="message", path=f"/admin/chatapp/message/{message.pk}/change/"))
    branch = f"/admin/chatapp/branch/{session.active_branch_id}/change/"
    found.append(Page(name="branch", path=branch))
    state = CompactionState.objects.get(branch=session.active_branch_id)
    found.append(Page(name="state", path=f"/admin/compaction/compactionstate/{state.pk}/change/"))
    summaries = SessionSummary.objects.filter(session=session).order_by("-created_at")
    for number, summary in enumerate(summaries[:1]):
        address = f"/admin/compaction/sessionsummary/{summary.pk}"
        found.append(Page(name=f"summary{number or ''}", path=f"{address}/change/"))
        older = summary.supersedes_id or summary.previous_id
        if older:
            found.append(Page(name="compare", path=f"{address}/compare/{older}/"))
    runs = CompactionRun.objects.filter(session=session).order_by("-model_calls", "-created_at")
    run = runs.first()
    if run is not None:
        found.append(Page(name="run", path=f"/admin/compaction/compactionrun/{run.pk}/change/"))
        step = run.steps.order_by("-input_tokens").first()
        if step is not None:
            found.append(
                Page(name="step", path=f"/admin/compaction/compactionstep/{step.pk}/change/")
            )
    row = CompactionProfile.objects.filter(is_current=True).order_by("-is_default").first()
    assert row is not None
    address = f"/admin/compaction/compactionprofile/{row.pk}/change/"
    return [*found, Page(name="profile", path=address)]


@contextmanager
def served() -> Iterator[str]:
    """Serve the site on a free port and give its address."""
    from compaction.demo.serving import HOST, Processes, choose_port, web_and_queue

    port = choose_port(0)
    with Processes({"web": web_and_queue(port)["web"]}) as running:
        ended = running.wait_until_answering(port)
        if ended is not None:
            sys.exit(f"The web process ended with status {ended.status}; see its output above.")
        yield f"http://{HOST}:{port}"


def take_for_docs(base: str, pages: list[Page]) -> None:
    """Take the pictures that README.md and docs/ show."""
    from tests.e2e.browser import Watched, chromium

    PICTURES.mkdir(exist_ok=True)
    with chromium() as browser:
        watched = Watched(browser, base)
        log_in(watched)
        for page in pages:
            if page.name in SHOWN_PAGES:
                page.open(watched).screenshot(path=PICTURES / f"{page.name}.png")
                print(f"docs/pictures/{page.name}.png")
        tell_faults(watched)


def take_all(base: str, pages: list[Page], folder: Path) -> None:
    """Take every page at every width in every scheme, whole, and name what is wrong with it."""
    from tests.e2e.browser import Watched, chromium

    folder.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for width in WIDTHS:
            for scheme in SCHEMES:
                watched = Watched(browser, base, width=width, scheme=scheme)
                log_in(watched)
                for page in pages:
                    started = time.monotonic()
                    shown = page.open(watched)
                    took = time.monotonic() - started
                    wide = " WIDER THAN THE WINDOW" if watched.is_wider_than_the_window() else ""
                    file = folder / f"{page.name}-{width}-{scheme}.png"
                    shown.screenshot(path=file, full_page=True)
                    print(f"{file.name}  {took:.2f} s{wide}")
                tell_faults(watched)


def log_in(watched: Any) -> None:
    """Log in as the operator of the pictures."""
    page = watched.go("/admin/")
    page.fill("#id_username", USER)
    page.fill("#id_password", PASSWORD)
    page.click("input[type=submit]")
    page.wait_for_selector("#user-tools")


def tell_faults(watched: Any) -> None:
    """Say what no page should have done."""
    for fault in watched.faults:
        print(f"FAULT {fault}")
    watched.context.close()


if __name__ == "__main__":
    main()
