"""What the tests of `/metrics` share: a token to read with, and a broker that answers."""

from __future__ import annotations

from typing import Any

TOKEN = "a-token-for-the-scraper"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


def let_scrape(settings: Any, monkeypatch: Any, *, tasks: int = 0) -> None:
    """Let `/metrics` be read with the token; so many tasks wait in the broker."""
    settings.METRICS_TOKEN = TOKEN
    monkeypatch.setattr("compaction.runs.queue.ping", lambda: None)
    monkeypatch.setattr("compaction.runs.queue.waiting_tasks", lambda: tasks)
