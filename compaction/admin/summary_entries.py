"""The entries of a summary's abridged history: what each says, what it is worth, and why.

All entries that are kept for the next summary are listed, the newest first; those that are sent are
told from those that have no room.
"""

from __future__ import annotations

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
        "What the next summary's history is made of, the newest first. An entry is worth more the "
        "more signals it has; what has no room is kept for the next summary."
    )
    if len(found) > len(shown):
        note += f" The newest {len(shown):,} of {len(found):,}."
    cells: Cells = {
        "Place": lambda entry: formatting.place(entry.position) if entry.position else "—",
        "Asked": text_cell(lambda entry: formatting.shortened(entry.user, ASKED_CHARS)),
        "Done": lambda entry: _done(entry),
        "State": lambda entry: STATES[entry.state],
        "Score": lambda entry: f"{entry.score:g}",
        "Why": text_cell(lambda entry: ", ".join(entry.why) or "—"),
        "Sent": lambda entry: "yes" if entry_text(entry, profile) in summary.abridged else "no",
    }
    return [table_of("Entries of the abridged history", shown, cells, note=note)]


def _done(entry: Entry) -> str:
    """Return how much was done, in words."""
    counts = {
        "modified": len(entry.modified),
        "created": len(entry.created),
        "deleted": len(entry.deleted),
        "viewed": len(entry.viewed),
        "commands": len(entry.commands),
    }
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "—"
