"""Ask axe-core about every page of the desk: `python -m tests.accessibility --axe FILE`.

FILE is `axe.min.js` of npm's package axe-core (`npm install axe-core`, in a folder of its own); the
browser is the Chromium of the machine, as for the pictures. Every page of `tests.screenshots --all`
is asked at 1,280 and at 400 pixels, light and dark. It ends with 1 where anything was found.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.screenshots import SCHEMES, Page, log_in, prepare, served

WIDTHS = (1280, 400)
SHOWN_NODES = 3
RUN = "axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations)"


def main() -> None:
    """Serve the demo's conversations, ask about every page, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--axe", type=Path, required=True, help="axe.min.js")
    parser.add_argument("--only", nargs="*", default=[], help="names of pages")
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
            found = list(violations(base, pages, axe, pictures=chosen.pictures))
    print(f"{len(pages)} pages, {len(WIDTHS) * len(SCHEMES)} times each: {len(found)} violations")
    sys.exit(1 if found else 0)


def violations(
    base: str, pages: list[Page], axe: str, *, pictures: Path | None = None
) -> Iterator[str]:
    """Yield what axe finds on every page at every width in every scheme, and print it."""
    from tests.e2e.browser import Watched, chromium

    with chromium() as browser:
        for width in WIDTHS:
            for scheme in SCHEMES:
                watched = Watched(browser, base, width=width, scheme=scheme)
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
                    if watched.is_wider_than_the_window():
                        told = f"{page.name} {width} {scheme}: wider than the window"
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
