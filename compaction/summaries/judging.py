"""What people say about a stored summary: a verdict, and lost facts that do not matter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.db import transaction
from django.utils import timezone

from compaction.errors import CompactionError
from compaction.models import SessionSummary, SummaryQuality

VERDICTS = ("", *SummaryQuality.Verdict.values)
NOTE_CHARS = 2000


def give_verdict(summary: SessionSummary, *, verdict: str, note: str = "", by: Any) -> None:
    """Store what a person thinks of a summary, with who and when; an empty verdict takes it back.

    Raises CompactionError for a word that is no verdict, and where quality was never measured.
    """
    if verdict not in VERDICTS:
        raise CompactionError(f"{verdict!r} is no verdict; say good or bad, or nothing.")
    changed = SummaryQuality.objects.filter(summary=summary).update(
        verdict=verdict,
        verdict_note=note.strip()[:NOTE_CHARS] if verdict else "",
        verdict_by=by if verdict else None,
        verdict_at=timezone.now() if verdict else None,
    )
    if not changed:
        raise _not_measured()


def ignore_facts(summary: SessionSummary, *, keys: Iterable[str]) -> int:
    """List some lost facts apart, by their keys; return how many were not ignored before."""
    wanted = set(keys)
    return _change_ignored(summary, lambda ignored: ignored | wanted)


def show_facts_again(summary: SessionSummary, *, keys: Iterable[str]) -> int:
    """List some ignored facts among the lost ones again; return how many were ignored."""
    wanted = set(keys)
    return _change_ignored(summary, lambda ignored: ignored - wanted)


def _change_ignored(summary: SessionSummary, change: Callable[[set[str]], set[str]]) -> int:
    # Locked, so that two operators at once lose nothing of each other's.
    with transaction.atomic():
        rows = SummaryQuality.objects.select_for_update().filter(summary=summary)
        row = rows.only("ignored").first()
        if row is None:
            raise _not_measured()
        before = set(row.ignored)
        after = change(before)
        rows.update(ignored=sorted(after))
    return len(before ^ after)


def _not_measured() -> CompactionError:
    return CompactionError("The quality of this summary was not measured: it was made before that.")
