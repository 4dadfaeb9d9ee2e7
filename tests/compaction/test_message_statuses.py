"""What the session's page says becomes of each message, against what is really sent."""

from __future__ import annotations

import pytest

from chatapp import transcript
from chatapp.context.backend import context_backend
from chatapp.models import Message
from chatapp.transcript.writing import NewMessage
from compaction.models import SessionSummary
from compaction.summaries.restore import restore_summary
from tests.compaction.session_page import fates_on, page_of, places_on
from tests.compaction.support import NEVER, compact, stored
from tests.factories import SessionFactory, call, profile, result, store, talk

pytestmark = pytest.mark.django_db

KEPT = "● Kept: sent verbatim"
SENT = ("● Kept", "◆ ")


@pytest.fixture
def talked(owner, model_server, queued):
    """Twelve messages, of which a compaction keeps two."""
    profile(**NEVER, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


@pytest.fixture
def fates(admin_client):
    """Read the fates of a session's page, and hold them against the next request."""

    def read(session, **query) -> dict[str, str]:
        session.refresh_from_db()
        found = fates_on(admin_client.get(page_of(session, **query)).text)
        sent = {place for place in context_backend.preview(session).places if place}
        assert {place for place, fate in found.items() if fate.startswith(SENT)} == sent
        return found

    return read


def short(summary: SessionSummary) -> str:
    return f"summary {str(summary.pk)[-8:]}"


def pin(session, *indexes: int) -> None:
    rows = [row for row in stored(session) if row.kind == "message"]
    Message.objects.filter(pk__in=[rows[index].pk for index in indexes]).update(pinned=True)


def test_nothing_is_covered_before_the_first_compaction(talked, fates):
    assert fates(talked) == {str(place): KEPT for place in range(1, 13)}


def test_covered_kept_and_pinned_messages_and_the_placeholder_are_told_apart(talked, fates):
    pin(talked, 2, 11)
    compact(talked)
    summary = SessionSummary.objects.get()
    found = fates(talked)
    assert found["1"] == found["10"] == f"▤ Covered by {short(summary)}"
    assert found["3"] == f"◆ Pinned: sent verbatim although covered by {short(summary)}"
    assert found["10.5"] == f"▣ Placeholder of {short(summary)}"
    assert found["11"] == KEPT
    assert found["12"] == "◆ Pinned: sent verbatim"


def test_of_two_summaries_each_covers_its_own_messages(talked, fates):
    compact(talked)
    store(talked, talk(4, marker=20))
    compact(talked)
    first, second = SessionSummary.objects.order_by("covers_through")
    found = fates(talked, at=1)
    assert (found["10"], found["11"]) == (
        f"▤ Covered by {short(first)}",
        f"▤ Covered by {short(second)}",
    )
    assert (found["18"], found["19"]) == (f"▤ Covered by {short(second)}", KEPT)


def test_a_summary_that_was_taken_back_covers_nothing(talked, fates):
    compact(talked)
    summary = SessionSummary.objects.get()
    restore_summary(summary)
    found = fates(talked)
    assert found.pop("10.5") == f"▣ Placeholder of {short(summary)} (restored)"
    assert set(found.values()) == {KEPT}


def test_a_newer_version_covers_in_the_place_of_the_old_one(talked, fates):
    compact(talked)
    old = SessionSummary.objects.get()
    compact(talked, trigger="resummarize", reason="resummarize", replaces=old)
    new = SessionSummary.objects.get(status="active")
    found = fates(talked)
    assert found["1"] == f"▤ Covered by {short(new)}"
    assert f"▣ Placeholder of {short(old)} (superseded)" in found.values()
    assert f"▣ Placeholder of {short(new)}" in found.values()


def test_the_opening_system_message_is_a_rule(owner, fates, queued, model_server):
    profile(**NEVER, keep_last_n=2)
    wires = [{"role": "system", "content": "Be brief."}, *talk(4)]
    session = SessionFactory(owner=owner, wires=wires)
    assert fates(session)["1"] == "▲ Rule: always sent first"
    compact(session)
    assert fates(session)["1"] == "▲ Rule: always sent first"


def test_what_a_history_limit_hides_is_said_to_be_not_sent(talked, fates):
    profile(**NEVER, keep_last_n=2, history_limit=5)
    found = fates(talked)
    # Five would begin with an answer: the last whole turns are positions 9 to 12.
    assert [found[str(place)] for place in (8, 9)] == ["○ Not sent (history limit)", KEPT]
    store(talked, [{"role": "assistant", "content": "more"}] * 6)
    # No question is among the newest five: the last turn is sent whole, whatever its length.
    found = fates(talked)
    assert [found[place] for place in ("10", "11", "18")] == [
        "○ Not sent (history limit)",
        KEPT,
        KEPT,
    ]


def test_a_pin_behind_the_cursor_does_not_overrule_a_history_limit(talked, fates):
    profile(**NEVER, keep_last_n=2, history_limit=4)
    pin(talked, 2)
    assert fates(talked)["3"] == "○ Not sent (history limit)"


def test_a_context_size_leaves_no_pin_out(talked, fates):
    profile(**NEVER, keep_last_n=2, context_size=4)
    pin(talked, 2)
    found = fates(talked)
    assert found["3"] == "◆ Pinned: sent verbatim"
    assert found["2"] == "○ Not sent (context size)"


def test_the_open_question_of_a_turn_in_work_is_sent_although_covered(
    owner, fates, queued, model_server
):
    profile(**NEVER, keep_last_n=2)
    calls = [wire for n in range(6) for wire in (call("ls", f"c{n}"), result(f"c{n}", "x " * 90))]
    wires = [*talk(2), {"role": "user", "content": "look at it"}, *calls]
    session = SessionFactory(owner=owner, wires=wires)
    assert compact(session).status == "succeeded"
    summary = SessionSummary.objects.get()
    expected = f"◆ Open question: sent verbatim although covered by {short(summary)}"
    assert fates(session)["5"] == expected
    store(session, [{"role": "assistant", "content": "It is done."}])
    assert fates(session)["5"] == f"▤ Covered by {short(summary)}"


def fork_at(session, index: int):
    rows = [row for row in stored(session) if row.kind == "message"]
    branch = transcript.fork(session, at=rows[index])
    transcript.activate(session, branch)
    return branch


def test_a_fork_shows_the_parents_messages_and_only_summaries_before_the_fork(talked, fates):
    compact(talked)
    first = SessionSummary.objects.get()
    root = talked.branch
    store(talked, talk(4, marker=20))
    fork_at(talked, 13)
    compact(talked, branch=root)
    store(talked, [{"role": "user", "content": "another way"}])
    found = fates(talked)
    assert found["10"] == f"▤ Covered by {short(first)}"
    assert [found[place] for place in ("11", "14", "15")] == [KEPT] * 3
    assert "16" not in found


def test_a_fork_that_was_summarised_names_its_own_summary(talked, fates, admin_client):
    compact(talked)
    fork = fork_at(talked, 11)
    store(talked, talk(4, marker=40))
    compact(talked)
    own = SessionSummary.objects.get(branch=fork)
    found = fates(talked, at=1)
    assert found["11"] == found["12"] == f"▤ Covered by {short(own)}"
    expected = [*map(str, range(1, 11)), "10.5", *map(str, range(11, 19)), "18.5", "19", "20"]
    assert places_on(admin_client.get(page_of(talked, at=1)).text) == expected


def test_an_imported_placeholder_covers_without_a_summary_row(talked, fates):
    transcript.append(
        talked.branch,
        [
            NewMessage(
                wire={"role": "assistant", "content": "Context was compressed."},
                kind="placeholder",
                summary="OLD FACTS",
                metadata={"type": "session_summary", "keepLastN": 2},
            )
        ],
    )
    store(talked, talk(1))
    found = fates(talked)
    assert found["10"] == "▤ Covered by an imported placeholder, without a summary row"
    assert (found["11"], found["14"]) == (KEPT, KEPT)
    assert found["13"] == "▣ Imported placeholder: its text is sent as a summary"
    compact(talked)
    assert fates(talked)["13"] == "▣ Placeholder without a summary row: not sent"
