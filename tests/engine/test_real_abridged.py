"""Real sessions of agents abridged: what was done in them, counted by hand from their calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from compaction.engine.abridged import (
    Entry,
    abridged_text,
    entries_of,
    entry_from_json,
    kept_entries,
)
from compaction.engine.profile import PRESETS
from compaction.engine.strategies.actions import collect_actions
from compaction.engine.types import Item
from tests import real_data

PROFILE = replace(PRESETS["bisect"], abridged_total_chars_limit=10_000)
AGENTS = ("claude_code/", "swe_agent/", "pi/", "codex/", "openai_chat/openhands")

pytestmark = pytest.mark.skipif(not real_data.is_there(), reason=real_data.ABSENT)


def items_of(start: str) -> Sequence[Item]:
    found = [one for one in real_data.conversations() if one.name.startswith(start)]
    assert len(found) == 1
    return real_data.to_items(found[0].messages)


@pytest.mark.parametrize(
    ("session", "read", "modified", "created", "commands"),
    [
        ("claude_code/entire_13db", 8, 16, 14, 39),
        ("claude_code/entire_4b7d", 2, 2, 0, 17),
        ("claude_code/entire_5ac4", 2, 3, 0, 15),
        ("claude_code/entire_7662", 7, 1, 1, 34),
        ("claude_code/entire_b865", 11, 11, 1, 64),
        ("claude_code/entire_e12c", 0, 3, 0, 24),
        ("pi/agent-sessions", 0, 0, 0, 0),
        # pi's results do not say that a written file is new.
        ("pi/before-compaction", 7, 19, 0, 206),
        # Its `edit` names no file: it goes by the one that is open.
        ("swe_agent/sweagent_marshmallow", 2, 1, 1, 6),
        ("swe_agent/swesmith_pydantic", 0, 3, 2, 11),
    ],
)
def test_the_actions_of_real_sessions(
    session: str, read: int, modified: int, created: int, commands: int
):
    items = items_of(session)
    actions = collect_actions(items)
    entries = entries_of(items, profile=PROFILE)

    assert len(actions.files_read) == read
    # What was created is among the modified here; in entries the two are apart.
    assert len(actions.files_modified) == modified
    assert len(actions.files_created) == created
    assert sum(len(one.commands) for one in entries) == commands
    created_in = {path for one in entries for path in one.created}
    modified_in = {path for one in entries for path in one.modified}
    assert created_in == set(actions.files_created)
    assert created_in | modified_in == set(actions.files_modified)


def test_the_actions_of_a_run_of_swe_agent():
    (entry,) = entries_of(items_of("swe_agent/swesmith_pydantic_8316"), profile=PROFILE)

    # Created and then edited counts as created; it was viewed, and edited.
    assert entry.created == ("/testbed/reproduce_error.py", "/testbed/test_edge_cases.py")
    assert entry.modified == ("/testbed/pydantic/alias_generators.py",)
    assert entry.viewed == ()
    assert len(entry.commands) == 11


@pytest.mark.parametrize("name", ["mini_github_issue", "mini_local"])
def test_commands_in_a_text_are_none(name: str):
    entries = entries_of(items_of(f"swe_agent/{name}"), profile=PROFILE)
    assert entries
    for entry in entries:
        assert not (*entry.modified, *entry.created, *entry.deleted, *entry.viewed)
        assert entry.commands == ()


def test_every_real_session_fits_and_is_the_same_in_pieces():
    sessions = [one for one in real_data.conversations() if one.name.startswith(AGENTS)]
    assert len(sessions) > 10
    for session in sessions:
        items = real_data.to_items(session.messages)
        whole = entries_of(items, profile=PROFILE)
        text = abridged_text(whole, PROFILE)
        assert 0 < len(text) <= 10_000
        assert text.count("<user>\n") == len(kept_entries(whole, PROFILE))

        cut = _behind_results(items, len(items) // 2)
        earlier = _stored(entries_of(items[:cut], profile=PROFILE))
        both = entries_of(items[cut:], earlier=earlier, profile=PROFILE)
        assert [_without_why(one) for one in both] == [_without_why(one) for one in whole]


def _stored(entries: Sequence[Entry]) -> list[Entry]:
    written = json.dumps([one.as_json() for one in entries])
    return [one for value in json.loads(written) if (one := entry_from_json(value))]


def _behind_results(items: Sequence[Item], index: int) -> int:
    """Return the next place that parts no call from its result."""
    while index < len(items) and items[index].role == "tool":
        index += 1
    return index


def _without_why(entry: Entry) -> Entry:
    # A tool that failed before the cut and worked behind it is not remembered.
    return replace(entry, score=0.0, why=())
