"""Ask axe-core about every page of the desk: `python -m tests.accessibility --axe FILE`.

FILE is `axe.min.js` of npm's package axe-core (`npm install axe-core`, in a folder of its own); the
browser is the Chromium of the machine, as for the pictures. Every page of `tests.screenshots --all`
is asked at 1,280 and at 400 pixels, light and dark; at 1,280 no column of a list or table may be
out of sight. It ends with 1 where anything was found.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from tests.screenshots import SCHEMES, Page, log_in, prepare, served

DESKTOP = 1280
WIDTHS = (DESKTOP, 400)
SHOWN_NODES = 3
Look = tuple[int, str]
"""A width and a colour scheme."""
RUN = "axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations)"


def main() -> None:
    """Serve the demo's conversations, ask about every page, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--axe", type=Path, required=True, help="axe.min.js")
    parser.add_argument("--only", nargs="*", default=[], help="names of pages")
    parser.add_argument("--drawn", metavar="SEED", help="each page in one look, drawn by a seed")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="take them too")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="palimpsest-accessibility-") as folder:
        os.environ["PALIMPSEST_DATA_DIR"] = folder
        os.environ["DJANGO_SETTINGS_MODULE"] = "chatapp.settings"
        os.environ.setdefault("LOG_LEVEL", "ERROR")
        # Playwright's loop runs in this thread, which Django takes for asynchronous code.
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
        import django

        django.setup()
        pages = [
            page for page in prepare(whole=True) if not chosen.only or page.name in chosen.only
        ]
        with served() as base:
            axe = chosen.axe.read_text(encoding="utf-8")
            looks = looks_of(pages, drawn=chosen.drawn)
            found = list(violations(base, looks, axe, pictures=chosen.pictures))
    asked = sum(map(len, looks.values()))
    print(f"{len(pages)} pages, {asked} looks: {len(found)} violations")
    sys.exit(1 if found else 0)


def looks_of(pages: list[Page], *, drawn: str | None) -> dict[Look, list[Page]]:
    """Return the pages to ask about by width and scheme: all of them, or each in a drawn one."""
    every = list(product(WIDTHS, SCHEMES))
    if drawn is None:
        return dict.fromkeys(every, pages)
    chance = Random(drawn)
    found: dict[Look, list[Page]] = {look: [] for look in every}
    for page in pages:
        found[chance.choice(every)].append(page)
    return found


def violations(
    base: str, looks: dict[Look, list[Page]], axe: str, *, pictures: Path | None = None
) -> Iterator[str]:
    """Yield what axe finds on the pages of each width and scheme, and print it."""
    from tests.e2e.browser import Watched, chromium

    with chromium() as browser:
        for (width, scheme), pages in looks.items():
            # What changes under axe's hands is found where nothing is wrong.
            watched = Watched(browser, base, width=width, scheme=scheme, is_still=True)
            log_in(watched)
            for page in pages:
                shown = page.open(watched)
                if pictures is not None:
                    pictures.mkdir(parents=True, exist_ok=True)
                    name = f"{page.name}-{width}-{scheme}.png"
                    shown.screenshot(path=pictures / name, full_page=True)
                # The browser evaluates it past the page's Content-Security Policy.
                shown.evaluate(axe)
                for each in shown.evaluate(RUN):
                    told = f"{page.name} {width} {scheme}: {_told(each)}"
                    print(told, flush=True)
                    yield told
                cut = watched.cut_off() if width == DESKTOP else []
                if watched.is_wider_than_the_window():
                    cut.append("wider than the window")
                for each in cut:
                    told = f"{page.name} {width} {scheme}: {each}"
                    print(told, flush=True)
                    yield told
            watched.context.close()


def _told(violation: dict[str, Any]) -> str:
    """Return a rule, why it is broken, and the first elements that break it."""
    nodes = violation["nodes"]
    shown = ["", *(f"{node['target']}  {node['html'][:160]}" for node in nodes[:SHOWN_NODES])]
    said = nodes[0].get("failureSummary", "").replace("\n", " ") if nodes else ""
    lines = "\n    ".join(shown)
    return f"{violation['id']} ({violation['impact']}), {len(nodes)} times: {said}{lines}"


if __name__ == "__main__":
    main()
