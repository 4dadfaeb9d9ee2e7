"""The entries of a summary's abridged history: what each says, what it is worth, and why.

All entries that are kept for the next summary are listed, the newest first; those that are sent are
told from those that have no room.
"""

from __future__ import annotations

from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit.columns import Cells, table_of, text_cell
from chatapp.admin.toolkit.page_parts import Table
from compaction.engine.abridged import (
    ANSWERED,
    CONTINUES,
    INTERRUPTED,
    Entry,
    entry_from_json,
    entry_text,
)
from compaction.engine.parameters import Profile
from compaction.models import SessionSummary
from compaction.profiles import parameters_of

ENTRIES_SHOWN = 100
ASKED_CHARS = 120
# By the parameter importance.
CHOSEN = {True: "those of the highest score", False: "the newest ones in a row"}
STATES = {ANSWERED: "answered", INTERRUPTED: "interrupted", CONTINUES: "goes on"}


def entry_tables(summary: SessionSummary) -> list[Table]:
    """Return the table of the entries; none where the summary has no abridged history."""
    stored = summary.abridged_entries if isinstance(summary.abridged_entries, list) else []
    found = [one for one in map(entry_from_json, stored) if one is not None]
    if not found:
        return []
    profile = parameters_of(summary.profile) if summary.profile else Profile()
    shown = found[::-1][:ENTRIES_SHOWN]
    note = (
        "What this summary's history is made of and the next one's will be, the newest first. The "
        f"newest is always sent; of the others {CHOSEN[profile.importance]} that have room."
    )
    if len(found) > len(shown):
        note += f" The newest {len(shown):,} of {len(found):,}."
    cells: Cells = {
        "Place": lambda entry: formatting.place(entry.position) if entry.position else "—",
        "Asked": text_cell(_asked),
        "Done": lambda entry: _done(entry),
        "State": lambda entry: STATES[entry.state],
        "Score": lambda entry: f"{entry.score:g}",
        "Sent": lambda entry: _sent(entry_text(entry, profile), entry is shown[0], summary),
        "Why": text_cell(lambda entry: ", ".join(entry.why) or "—"),
    }
    return [table_of("Entries of the abridged history", shown, cells, note=note)]


def _asked(entry: Entry) -> SafeString:
    """Return the beginning of the question, in a column wide enough to read it."""
    start = formatting.shortened(entry.user, ASKED_CHARS)
    return format_html('<div class="entry-asked" dir="auto">{}</div>', start)


def _sent(text: str, is_newest: bool, summary: SessionSummary) -> str:
    """Return whether an entry stands in the history; the newest does, if need be shortened."""
    if text in summary.abridged:
        return "yes"
    return "shortened" if is_newest and summary.abridged else "no"


def _done(entry: Entry) -> str:
    """Return how much was done, in words."""
    counts = {
        "modified": len(entry.modified),
        "created": len(entry.created),
        "deleted": len(entry.deleted),
        "viewed": len(entry.viewed),
    }
    done = [f"{count:,} {what}" for what, count in counts.items() if count]
    if entry.commands:
        done.append(formatting.plural(len(entry.commands), "command"))
    return ", ".join(done) or "—"
