"""A headless Chromium for tests: found on the machine, driven by Playwright, watched for faults."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# The network of a test machine may be closed: the browser's own calls home only cost time.
SWITCHES = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
TELL_OF_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) => console.error(
    `CSP violation: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
"""

CUT_OFF = """
[...document.querySelectorAll("#changelist .results, .table-frame")]
    .filter((frame) => frame.checkVisibility() && frame.scrollWidth > frame.clientWidth + 1)
    .map((frame) => `${frame.ariaLabel ?? "list"}: ${frame.scrollWidth} of ${frame.clientWidth}`)
"""


def chromium_path() -> str | None:
    """Return the browser that CHROMIUM names, or the one on the PATH."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def chromium() -> Iterator[Any]:
    """Start a browser; skip with a word what it needs where something is absent."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright: pip install -e .[dev]"
    )
    path = chromium_path()
    if path is None:
        pytest.skip("needs Chromium: install it, or name it in the variable CHROMIUM")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=SWITCHES)
        try:
            yield browser
        finally:
            browser.close()


# As in a window that nobody looks at: live.js waits there.
HELD_STILL = 'Object.defineProperty(document, "hidden", { get: () => true });'


class Watched:
    """A page of one site; `faults` is everything that must not happen on any of its pages.

    With `is_still` pages that refresh themselves stay as they were loaded.
    """

    def __init__(
        self,
        browser: Any,
        base: str,
        *,
        width: int = 1280,
        scheme: str = "light",
        is_still: bool = False,
    ) -> None:
        self.base = base
        self.faults: list[str] = []
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True
        )
        self.context.add_init_script(TELL_OF_VIOLATIONS)
        if is_still:
            self.context.add_init_script(HELD_STILL)
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        self.page.on("request", self._on_request)
        self.page.on("response", self._on_response)

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"console: {message.text} ({message.location.get('url')})")

    def _on_request(self, request: Any) -> None:
        where = urlsplit(request.url)
        if where.scheme not in ("data", "blob") and not request.url.startswith(self.base):
            self.faults.append(f"left the site: {request.url}")

    def _on_response(self, response: Any) -> None:
        if response.status >= 400:
            self.faults.append(f"{response.status}: {response.url}")

    def go(self, path: str) -> Any:
        """Open an address of the site and return the page."""
        self.page.goto(self.base + path)
        return self.page

    def is_wider_than_the_window(self) -> bool:
        """Whether the page itself scrolls sideways; frames inside it may."""
        return bool(
            self.page.evaluate(
                "document.documentElement.scrollWidth > document.documentElement.clientWidth + 1"
            )
        )

    def cut_off(self) -> list[str]:
        """Return the lists and tables in sight whose last columns are out of it, by their names."""
        found: list[str] = self.page.evaluate(CUT_OFF)
        return found
