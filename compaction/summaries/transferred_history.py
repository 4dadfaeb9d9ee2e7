"""Abridged histories in exported files: written with a summary, and checked when they come back.

An entry's place is the index of its question among the file's messages, as everywhere in a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from compaction.engine.abridged import Entry, entry_from_json, without_names
from compaction.engine.fidelity.redaction import redact_json
from compaction.models import SessionSummary
from compaction.summaries.transferred import (
    MOST_ENTRIES,
    MOST_TEXT_CHARS,
    Fields,
    ImportedMessages,
    TransferredSummary,
    UnsoundError,
    is_index,
)

MOST_ENTRIES_CHARS = 4_000_000
"""Of all texts of the entries together."""


def written_history(summary: SessionSummary, indexes: Mapping[int, int]) -> dict[str, Any]:
    """Return a summary's abridged history for the file; `indexes` are those of positions.

    What the entries name is not told: it is looked for in their texts where they come back.
    """
    entries = [
        {key: told for key, told in entry.items() if key != "names"}
        | {"position": indexes.get(entry.get("position", -1))}
        for entry in summary.abridged_entries
        if isinstance(entry, dict)
    ]
    return {"abridged": summary.abridged, "abridged_entries": entries}


def with_history(
    found: TransferredSummary, value: Mapping[str, Any], messages: ImportedMessages
) -> TransferredSummary:
    """Return a summary with the abridged history that the file tells of it.

    Files of earlier versions have none. Raises UnsoundError where it cannot be one.
    """
    if "abridged" not in value and "abridged_entries" not in value:
        return found
    told = {key: value.get(key) for key in ("abridged", "abridged_entries")}
    fields = Fields(redact_json(told) if messages.hides_secrets else told, "the summary")
    entries = [_read(one, messages) for one in fields.items("abridged_entries", most=MOST_ENTRIES)]
    if sum(map(_size, entries)) > MOST_ENTRIES_CHARS:
        raise UnsoundError("the entries of its abridged history are longer than any that are kept")
    columns = {
        "abridged": fields.text("abridged", most=MOST_TEXT_CHARS),
        "abridged_entries": [entry.as_json() for entry in entries],
    }
    return replace(found, columns={**found.columns, **columns})


def _read(value: Any, messages: ImportedMessages) -> Entry:
    index = value.get("position") if isinstance(value, dict) else None
    is_known = is_index(index, len(messages.items))
    if index is not None and not is_known:
        raise UnsoundError("an entry of its abridged history is of no message of the file")
    # A place that the file does not know is the beginning.
    place = messages.items[index].position if is_known and index is not None else 0
    entry = entry_from_json(dict(value) | {"position": place} if isinstance(value, dict) else None)
    if entry is None:
        raise UnsoundError("an entry of its abridged history is none")
    # What a file says that it names is not believed.
    return without_names(entry)


def _size(entry: Entry) -> int:
    lists: Sequence[Sequence[str]] = (
        entry.modified,
        entry.created,
        entry.deleted,
        entry.viewed,
        entry.commands,
        entry.why,
    )
    return len(entry.user) + len(entry.response) + sum(len(one) for found in lists for one in found)
