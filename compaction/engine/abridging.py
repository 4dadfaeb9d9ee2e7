"""The abridged history that goes with a new summary: made of entries, and kept small beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from compaction.engine.abridged import Entry, abridged_text, entry_from_json, kept_entries
from compaction.engine.parameters import Profile
from compaction.engine.types import Outcome

MOST_STORED_CHARS = 400_000
"""Of the entries as JSON; those that are sent are stored however long they are."""
LARGEST_SHARE = 0.5
"""Of what a summary saves, at most, what the abridged history beside it may take again."""


def with_history(
    outcome: Outcome,
    entries: Sequence[Entry],
    profile: Profile,
    texts: dict[int, str] | None = None,
) -> Outcome:
    """Return the outcome with what is sent of the entries, and with those that are stored."""
    texts = {} if texts is None else texts
    return replace(
        outcome,
        abridged=abridged_text(entries, profile, texts),
        abridged_entries=tuple(stored_entries(entries, profile, texts)),
    )


def with_small_history(
    outcome: Outcome,
    entries: Sequence[Entry],
    profile: Profile,
    *,
    saved: int,
    count: Callable[[str], int],
) -> Outcome:
    """Return the same with fewer entries, where they would take too much of what is `saved`.

    That is more than half of the tokens: a node is there to make requests smaller. `count` returns
    the tokens of a text.
    """
    texts: dict[int, str] = {}
    room, most = profile.abridged_total_chars_limit, LARGEST_SHARE * max(0, saved)
    while True:
        smaller = replace(profile, abridged_total_chars_limit=room)
        text = abridged_text(entries, smaller, texts)
        if not text or count(text) <= most:
            return with_history(outcome, entries, smaller, texts)
        room = min(room, len(text)) // 2


def stored_entries(
    entries: Sequence[Entry], profile: Profile, texts: dict[int, str] | None = None
) -> list[dict[str, Any]]:
    """Return the entries that are kept for the next summary as JSON, in order of time.

    Those are all; of very many, the ones that are sent and as many of the newest as have room.
    """
    wanted = {id(one) for one in kept_entries(entries, profile, texts)}
    left, stored = MOST_STORED_CHARS, list[dict[str, Any]]()
    for entry in reversed(entries):
        found = entry.as_json()
        size = len(json.dumps(found, ensure_ascii=False))
        if size <= left:
            left -= size
        elif id(entry) not in wanted:
            continue
        stored.append(found)
    return stored[::-1]


def read_entries(stored: Iterable[Any]) -> list[Entry]:
    """Return stored entries; what is none is left out."""
    found = map(entry_from_json, stored if isinstance(stored, list | tuple) else [])
    return [one for one in found if one is not None]
