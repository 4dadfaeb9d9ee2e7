"""Badges of runs and summaries: how they stand, in a coloured frame."""

from __future__ import annotations

from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp.admin import cells
from chatapp.formatting import clock
from compaction.models import CompactionRun, SessionSummary
from compaction.vocabulary import status_words, summary_words, waits

DIGEST_BADGE = cells.badge("Archive", "busy")
_TONES = {
    "queued": "busy",
    "running": "busy",
    "succeeded": "good",
    "failed": "bad",
    "active": "good",
}


def truncated_words(truncated: bool) -> SafeString | str:
    """Return whether text had to be left out; a stock icon would show the good case in red."""
    return cells.badge("Truncated", "bad") if truncated else "no"


def run_status(run: CompactionRun) -> SafeString:
    """Return how a run stands, as a badge; one that waits says until when."""
    if waits(run):
        until = clock(run.waits_until)
        return format_html("{} until {}", cells.badge("Waiting", "busy"), until)
    return cells.badge(status_words(run), status_tone(run))


def status_tone(run: CompactionRun) -> str:
    """Return the tone of a run's badge."""
    return _TONES.get(run.status, "")


def summary_status(summary: SessionSummary) -> SafeString:
    """Return whether a summary counts, and whether it is a fallback digest."""
    badge = cells.badge(summary_words(summary), _TONES.get(summary.status, ""))
    return format_html("{} {}", badge, DIGEST_BADGE) if summary.is_digest else badge
