"""Cases with preset `checkpoint`: one summary that is brought up to date, and split turns."""

from __future__ import annotations

import pytest

from compaction.models import SessionSummary
from compaction.profiles import save_profile
from tests.cases.support import (
    Case,
    add,
    ask,
    check,
    compact,
    linked,
    next_request,
    originals,
    stored,
    summarised_as,
)

pytestmark = pytest.mark.django_db


def use_checkpoint(case: Case, **changes):
    """The case's settings on the preset `checkpoint`."""
    names = ("reserve_tokens", "keep_recent_tokens")
    named = {name: case.settings[name] for name in names}
    return save_profile(
        name="point", base="checkpoint", parameters=named | changes, make_default=True
    )


def test_b36_a_split_turn_s_beginning_has_a_section_with_all_of_it(cases, play, owner):
    case = cases("B36")
    server = play(case.script, CONTEXT_WINDOW=case.settings["context_window"])
    # The scripted summariser echoes markers alone: a gate would ask for the words as well.
    use_checkpoint(case, quality_gate=False)
    session = stored(owner, case.transcript)
    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    ask(session, None)
    check(case, server, session)

    summary = SessionSummary.objects.get()
    rows = originals(session)
    dropped = linked(summary)
    assert dropped == rows[: len(dropped)]
    assert rows[len(dropped)].role == "assistant"
    _, turn = summary.summary_text.split("**Turn Context (split turn):**")
    assert case.lib.markers([row.stored_wire() for row in dropped]) <= case.lib.markers(
        [{"role": "user", "content": turn}]
    )
    edited = [f"tests/t{n}.py" for n in range(1, 31, 2)]
    read = [f"tests/t{n}.py" for n in range(2, 31, 2)]
    paths = [call["function"]["arguments"] for row in dropped for call in row.tool_calls or []]
    assert summary.files_modified == sorted(p for p in edited if any(p in one for one in paths))
    assert summary.files_read == sorted(p for p in read if any(p in one for one in paths))
    sent = next(m["content"] for m in next_request(server).messages if "<summary>" in m["content"])
    for path in summary.files_read:
        assert path in sent.split("<read-files>")[1].split("</read-files>")[0].splitlines()
    for path in summary.files_modified:
        assert path in sent.split("<modified-files>")[1].splitlines()


def test_b34_what_round_one_kept_is_summarised_in_round_two(cases, play, owner):
    case = cases("B34")
    server = play(case.script, CONTEXT_WINDOW=case.settings["context_window"])
    use_checkpoint(case, quality_gate=False)
    entry = next(m for m in case.transcript if m.get("meta", {}).get("kind") == "compaction")
    at = case.transcript.index(entry)
    session = stored(owner, case.transcript[:10])
    summarised_as(server, session, entry["content"], keep_last_n=0)
    add(session, [*case.transcript[10:at], *case.transcript[at + 1 :]])

    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    ask(session, case.next_user)
    check(case, server, session)
    first, second = SessionSummary.objects.order_by("covers_through")
    assert second.previous == first
    big = next(row for row in originals(session) if row.content.startswith("MK-3450"))
    assert linked(second)[0] == big
    assert big.summary_links.filter(summary__status="active").count() == 1
    assert not any("big paste" in str(m["content"]) for m in next_request(server).messages)
