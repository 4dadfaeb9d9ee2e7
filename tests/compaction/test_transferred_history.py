"""Abridged histories in exports: they come back as they were, and damaged ones are named."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from chatapp.models import Session
from compaction.engine.abridged import entry_from_json
from compaction.models import SessionSummary
from tests.compaction.support import compact, sent
from tests.compaction.test_nodes import NODE, worked
from tests.compaction.test_transfer import chain, exported, imported
from tests.factories import SessionFactory, profile, store, talk
from tests.made_once import made_once

pytestmark = pytest.mark.django_db


@pytest.fixture
@made_once
def session(owner, model_server, queued) -> Session:
    """Two summaries, one on the other, each with its history."""
    profile(**NODE)
    wires = [*worked("alpha", "/src/a.py", "pytest a"), *talk(2)]
    session = SessionFactory(owner=owner, wires=wires)
    assert compact(session).status == "succeeded"
    store(session, [*worked("beta", "/src/b.py", "pytest b"), *talk(2)])
    assert compact(session).status == "succeeded"
    return session


def histories(rows: list[SessionSummary]) -> list[tuple[str, Any]]:
    return [(row.abridged, row.abridged_entries) for row in rows]


def test_they_come_back_and_the_imported_session_sends_the_same(api, session):
    before = sent(session)
    other, problems = imported(api, exported(api, session))
    assert problems == []
    assert [text for text, _ in histories(chain(other))] == [
        text for text, _ in histories(chain(session))
    ]
    for old, new in zip(chain(session), chain(other), strict=True):
        assert len(old.abridged_entries) == len(new.abridged_entries) > 0
        for one, another in zip(old.abridged_entries, new.abridged_entries, strict=True):
            assert entry_from_json(one).user == entry_from_json(another).user
    assert sent(other) == before


def test_places_in_the_file_are_indexes_of_messages(api, session):
    document = exported(api, session)
    text = json.dumps(document)
    rows = list(session.branch.messages.filter(kind="message").order_by("position"))
    entries = _summaries(document)[-1]["abridged_entries"]
    for entry in entries:
        assert rows[entry["position"]].role == "user"
        assert rows[entry["position"]].content.startswith(entry["user"][:20])
    assert text.count('"abridged_entries"') == 2


def test_a_file_without_histories_is_taken(api, session):
    document = exported(api, session)
    for one in _summaries(document):
        del one["abridged"], one["abridged_entries"]
    other, problems = imported(api, document)
    assert problems == []
    assert histories(chain(other)) == [("", []), ("", [])]


def _no_list(one: dict[str, Any]) -> None:
    one["abridged_entries"] = {"user": "x"}


def _no_text(one: dict[str, Any]) -> None:
    one["abridged"] = 5


def _too_long(one: dict[str, Any]) -> None:
    one["abridged"] = "x" * 200_001


def _no_entry(one: dict[str, Any]) -> None:
    one["abridged_entries"] = [{"user": ["x"], "position": 0}]


def _no_such_message(one: dict[str, Any]) -> None:
    one["abridged_entries"][0]["position"] = 10_000


def _all_too_long(one: dict[str, Any]) -> None:
    entry = {"user": "x" * 50_000, "state": "answered", "position": 0}
    one["abridged_entries"] = [entry] * 90


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_no_list, "no list of at most"),
        (_no_text, "“abridged” of the summary is no text"),
        (_too_long, "longer than 200,000 characters"),
        (_no_entry, "an entry of its abridged history is none"),
        (_no_such_message, "is of no message of the file"),
        (_all_too_long, "longer than any that are kept"),
    ],
)
def test_a_damaged_one_is_left_out_with_its_summary(
    api, session, damage: Callable[[dict[str, Any]], None], said
):
    document = exported(api, session)
    damage(_summaries(document)[-1])
    other, problems = imported(api, document)
    assert any(said in problem for problem in problems)
    assert len(chain(other)) == 1


def _summaries(document: Any) -> list[dict[str, Any]]:
    """Return the list of summaries, wherever it stands in an exported file."""
    if isinstance(document, dict):
        for key, value in document.items():
            if key == "summaries" and isinstance(value, list):
                return value
            if found := _summaries(value):
                return found
    if isinstance(document, list):
        for value in document:
            if found := _summaries(value):
                return found
    return []
