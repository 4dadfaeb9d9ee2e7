"""The cases once more with the preset `abridged`: one node, nothing lost, every request taken."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chatapp.context.backend import context_backend
from chatapp.selectors import path_messages
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionProfile, SessionSummary
from compaction.profiles import save_profile
from compaction.runs.scheduling import assign_profile
from tests.cases.support import (
    CASES,
    CHARS4,
    PREFIX,
    add,
    ask,
    check,
    compact,
    earlier_summary,
    ends_well,
    linked,
    next_request,
    originals,
    stored,
    summarised_as,
)
from tests.factories import SessionFactory, store, talk
from tests.facts import CODE_PATTERN, code

pytestmark = pytest.mark.django_db
NODE = "<supervisor>"


def abridged(**changes: Any) -> CompactionProfile:
    """Store the preset, with small sizes, as the default profile."""
    small = {
        "trigger_on_history_size_chars": 8_000,
        "trigger_on_history_size_chars_when_cache_expiring": 6_000,
        "history_tail_size_chars_to_exclude": 1_500,
    }
    return save_profile(name="case", base="abridged", parameters=small | changes, make_default=True)


def nodes(messages: list[dict[str, Any]]) -> list[str]:
    return [str(one["content"]) for one in messages if str(one["content"]).startswith(NODE)]


def test_b20_nothing_to_summarise_is_skipped_and_the_old_summary_stays(cases, play, owner):
    case = cases("B20")
    server = play(case.script)
    abridged()
    session = stored(owner)
    earlier_summary(server, session, case.raw["stored_summaries"][0])
    add(session, case.transcript)
    run = compact(session, keep_last_n=case.settings["keep_last_n"])
    ask(session, None)
    check(case, server, session)
    assert server.summarising() == []
    newest = SessionSummary.objects.latest("created_at")
    assert (newest.summary_text, newest.status) == ("SUMMARY MK-2099", "active")
    assert (run.status, run.error_code) == ("skipped", "nothing_to_do")
    request = next_request(server).messages
    assert case.markers <= case.lib.markers(request)
    assert len(nodes(request)) == 1


def test_b34_what_round_one_kept_is_summarised_in_round_two(cases, play, owner):
    case = cases("B34")
    server = play(case.script, CONTEXT_WINDOW=case.settings["context_window"])
    abridged(quality_gate=False, ledger=False)
    entry = next(m for m in case.transcript if m.get("meta", {}).get("kind") == "compaction")
    at = case.transcript.index(entry)
    session = stored(owner, case.transcript[:10])
    summarised_as(server, session, entry["content"], keep_last_n=0)
    add(session, [*case.transcript[10:at], *case.transcript[at + 1 :]])

    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    ask(session, case.next_user)
    check(case, server, session)
    first, second = SessionSummary.objects.order_by("covers_through")[:2]
    assert second.previous == first
    big = next(row for row in originals(session) if row.content.startswith("MK-3450"))
    assert linked(second)[0] == big
    assert len(nodes(next_request(server).messages)) == 1


# --- all of them ----------------------------------------------------------------------------------


@pytest.mark.parametrize("case_id", CASES)
def test_a_case_ends_with_a_request_that_is_taken_or_with_a_sentence(cases, play, owner, case_id):
    case = cases(case_id)
    window = case.settings.get("context_window", 8_000)
    server = play([PREFIX, *case.script], **CHARS4, CONTEXT_WINDOW=window, MAX_OUTPUT=500)
    abridged(history_tail_size_chars_to_exclude=100)
    session = stored(owner, case.transcript)
    request = ends_well(case, server, session)
    has_summary = SessionSummary.objects.filter(status="active").exists()
    assert len(nodes(request)) == has_summary


# --- switching -----------------------------------------------------------------------------------


def test_switching_profiles_loses_nothing_and_calls_nobody(play, owner):
    server = play([{"when": {}, "reply": {"echo_markers": CODE_PATTERN, "prefix": "SUMMARY "}}])
    for name, base in (("halves", "bisect"), ("nodes", "abridged")):
        save_profile(name=name, base=base, parameters={}, make_default=name == "halves")
    session = SessionFactory(owner=owner, wires=talk(8, marker=1), system_prompt="You help.")
    assert compact(session, keep_last_n=4).status == "succeeded"
    calls = len(server.calls)

    def served(name: str) -> list[dict[str, Any]]:
        assign_profile(session, name)
        return list(context_backend.preview(session).messages)

    before = served("halves")
    as_node = served("nodes")
    after = served("halves")
    assert after == before
    assert len(server.calls) == calls
    text = SessionSummary.objects.get().summary_text
    for messages in (before, as_node, after):
        assert any(text in str(message["content"]) for message in messages)
        for row in path_messages(session.branch, after=snapshot_of(session).state.cursor):
            assert any(row.content == message["content"] for message in messages)
    assert (len(nodes(before)), len(nodes(as_node))) == (0, 1)
    # A summary of before goes on where the other one ends, whichever profile makes it.
    assign_profile(session, "nodes")
    store(session, talk(3, marker=60))
    assert compact(session, keep_last_n=2).status == "succeeded"
    newest = SessionSummary.objects.latest("created_at")
    assert newest.previous is not None
    assert code(1) in newest.abridged + json.dumps(newest.abridged_entries)
    assert text in server.summarising()[-1].text
