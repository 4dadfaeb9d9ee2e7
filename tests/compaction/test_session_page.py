"""The session's page: meter, strip, pages of messages; what it costs and what it escapes."""

from __future__ import annotations

import re
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from chatapp import transcript
from chatapp.context.backend import context_backend
from chatapp.models import POSITION_STEP, Message, Session
from chatapp.transcript.writing import NewMessage
from compaction.admin.meter import HATCHED, NAMES, PATTERNS
from compaction.models import CompactionRun, CompactionState, SessionSummary
from tests.compaction.session_page import (
    ATTACK,
    ESCAPED,
    drawing_on,
    grow,
    meter_on,
    page_of,
    places_on,
    plain,
    rows_on,
    titles_in,
)
from tests.compaction.support import NEVER, compact
from tests.factories import SessionFactory, profile, store, talk

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(owner, model_server, use_models, queued):
    """A window of 1 000 tokens with 100 kept free; every text counts its characters by four."""
    use_models(
        model_server.models(CONTEXT_WINDOW=1000, MAX_OUTPUT=100), TOKEN_COUNTER="chars4"
    )  # fmt: skip
    profile(**NEVER, keep_last_n=2)
    session = SessionFactory(owner=owner, system_prompt="s" * 40)
    store(session, [{"role": role, "content": "x" * 160} for role in ("user", "assistant") * 4])
    return session


def summary_of(session: Session, first: int, last: int, **fields) -> SessionSummary:
    words = {"trigger": "manual", "reason": "token_limit", "summary_text": "S", "summary_tokens": 5}
    return SessionSummary.objects.create(
        session=session, branch=session.branch, message_count=last - first + 1,
        covers_from=first * POSITION_STEP, covers_through=last * POSITION_STEP,
        approx_tokens=1234, **(words | fields),
    )  # fmt: skip


def move_cursor(session: Session, place: int, **fields) -> None:
    CompactionState.objects.update_or_create(
        branch=session.branch, defaults={"cursor": place * POSITION_STEP} | fields
    )


# --- meter ----------------------------------------------------------------------------------------


def test_the_meter_tells_every_part_of_the_window(session, admin_client):
    found = meter_on(admin_client.get(page_of(session)).text)
    assert found == {
        "System prompt and pinned system messages": "10",
        "Tools": "0",
        "Summaries": "0",
        "Messages so far": "320",
        # 4 for the prompt, each of eight messages, and the beginning of the answer.
        "Roles and marks of the messages": "40",
        "Free": "530",
        "Kept free for the answer": "100",
    }


def test_the_meter_counts_summaries_and_what_is_sent_again(session, admin_client):
    summary_of(session, 1, 6)
    move_cursor(session, 6, covered_messages=6, covered_tokens=240)
    Message.objects.filter(session=session, position=3 * POSITION_STEP).update(pinned=True)
    found = meter_on(admin_client.get(page_of(session)).text)
    # 5 of its text, 66 of the frame that it is sent in.
    assert found["Summaries"] == "71"
    assert found["Pinned messages, sent although covered"] == "40"
    assert found["Messages since the last summary"] == "80"
    # Prompt, summary, pin, two messages, and the beginning of the answer.
    assert found["Roles and marks of the messages"] == "24"
    assert found["Free"] == "675"


def test_the_meter_marks_what_pins_take_beyond_their_share(session, admin_client):
    profile(**NEVER, keep_last_n=2, pinned_share=0.05)
    summary_of(session, 1, 6)
    move_cursor(session, 6, covered_messages=6, covered_tokens=240)
    Message.objects.filter(session=session, position__in=[POSITION_STEP, 8 * POSITION_STEP]).update(
        pinned=True
    )
    Message.objects.filter(session=session, position=3 * POSITION_STEP).update(pinned=True)
    page = admin_client.get(page_of(session)).text
    found = meter_on(page)
    # Two of 40 tokens are covered; the third one is sent anyway. 0.05 of 1,000 is theirs.
    assert found["Pinned messages, sent although covered"] == "50"
    assert found["Pinned beyond their share of the window"] == "30"
    assert found["Messages since the last summary"] == "80"
    assert "Pinned messages take 80 tokens of each request, 30 more than their share" in page
    used = context_backend.preview(session).account.used
    assert f"The request itself takes {used} tokens" in plain(page)


def test_pins_beyond_a_sliding_window_are_parts_of_their_own(session, admin_client):
    profile(**NEVER, keep_last_n=2, context_size=3)
    Message.objects.filter(session=session, position=3 * POSITION_STEP).update(pinned=True)
    page = admin_client.get(page_of(session)).text
    account = context_backend.preview(session).account
    assert account.pinned == 40
    assert meter_on(page)["Pinned messages, sent although covered"] == "40"
    assert f"The request itself takes {account.used} tokens" in plain(page)


@pytest.mark.parametrize("limit", [0, 3])
def test_the_meters_parts_are_the_requests_account(session, admin_client, limit):
    profile(**NEVER, keep_last_n=2, history_limit=limit)
    page = admin_client.get(page_of(session)).text
    used = context_backend.preview(session).account.used
    assert f"The request itself takes {used} tokens" in plain(page)
    assert ("240 tokens of older messages are not sent" in plain(page)) == (limit == 3)


def test_a_request_larger_than_the_window_is_drawn_beyond_its_edge(session, admin_client):
    store(session, [{"role": "user", "content": "x" * 4000}])
    page = admin_client.get(page_of(session)).text
    # 10 + 320 + 1,000, and 11 times 4 of frames, in a window of 1,000, and 100 are kept free.
    assert "The next request alone is 374 tokens larger than that" in page
    titles = titles_in(drawing_on(page, "meter"))
    assert titles == [
        "System prompt and pinned system messages: 10 tokens",
        "Messages so far: 1,320 tokens",
        "Roles and marks of the messages: 44 tokens",
        "Kept free for the answer: 100 tokens",
        "Beyond the window: 474 tokens",
        "Here the window ends: 1,000",
    ]
    # The window's edge: 1000 of 1474.
    assert 'x1="678.43" x2="678.43"' in drawing_on(page, "meter")


def test_the_page_says_who_works_until_when_and_how_far_the_triggers_are(session, admin_client):
    profile(message_limit=40, max_context_tokens=640, keep_last_n=2)
    worker, until = uuid4(), timezone.now() + timedelta(minutes=5)
    run = CompactionRun.objects.create(
        session=session, branch=session.branch, profile=profile(message_limit=40, keep_last_n=2),
        status="running", worker=worker, trigger="manual", reason="manual", mode="background",
    )  # fmt: skip
    move_cursor(session, 0, lease_owner=worker, lease_expires_at=until, recheck_requested=True)
    page = admin_client.get(page_of(session)).text
    assert reverse("admin:compaction_compactionrun_change", args=[run.pk]) in page
    said = plain(page)
    assert "A worker compacts it (a run); its lease ends" in said
    assert "yes: it is looked at again" in said
    assert "8 of 40; 32 to go" in said
    assert "No trigger is due." in said


# --- strip ----------------------------------------------------------------------------------------


def test_the_strip_draws_summaries_gaps_pins_and_what_is_kept(session, admin_client):
    Message.objects.filter(session=session, position=2 * POSITION_STEP).update(pinned=True)
    first = summary_of(session, 1, 2)
    second = summary_of(session, 5, 6)
    move_cursor(session, 6, covered_messages=6, covered_tokens=240)
    page = admin_client.get(page_of(session)).text
    drawing = drawing_on(page, "strip")
    sent = "its text is sent"
    assert titles_in(drawing) == [
        f"Summary {str(first.pk)[-8:]} of 2 messages, positions 1 – 2; 1,234 → 5 tokens; "
        f"Token limit reached; {sent}",
        "Covered by an imported placeholder without a summary row: positions 3 – 4",
        f"Summary {str(second.pk)[-8:]} of 2 messages, positions 5 – 6; 1,234 → 5 tokens; "
        f"Token limit reached; {sent}",
        "Kept, sent verbatim: positions 7 – 8",
        "Pinned message at position 2, 40 tokens",
        "Summarised up to position 6",
    ]
    assert reverse("admin:compaction_sessionsummary_change", args=[first.pk]) in drawing
    assert f'href="{page_of(session)}?at=2000001#messages"' in drawing
    # Two of eight messages: a quarter of a thousand.
    assert 'x="0" y="26" width="250"' in drawing
    assert 'x="750" y="26" width="250"' in drawing
    items = re.search(r"As a list</summary>(.*?)</details>", page, re.DOTALL).group(1)
    assert items.count("<li>") == 5


def test_only_the_newest_summaries_are_drawn_and_the_others_taken_together(
    session, admin_client, monkeypatch
):
    monkeypatch.setattr("compaction.admin.branch_view.SUMMARIES_DRAWN", 2)
    monkeypatch.setattr("compaction.admin.timeline_bar.SUMMARIES_DRAWN", 2)
    for place in range(1, 5):
        summary_of(session, place, place)
    move_cursor(session, 4, covered_messages=4, covered_tokens=160)
    titles = titles_in(drawing_on(admin_client.get(page_of(session)).text, "strip"))
    assert titles[0] == (
        "Summarised by summaries older than the newest 2, drawn as one: positions 1 – 2"
    )
    assert len(titles) == 5


def test_the_strip_marks_where_the_branch_was_forked_and_what_is_not_sent(session, admin_client):
    root = session.branch
    fork = transcript.fork(session, at=Message.objects.get(position=6 * POSITION_STEP))
    transcript.activate(session, fork)
    profile(**NEVER, keep_last_n=2, history_limit=2)
    titles = titles_in(drawing_on(admin_client.get(page_of(session)).text, "strip"))
    assert titles == [
        "Not sent, because the profile has a history limit: positions 1 – 4",
        "Kept, sent verbatim: positions 5 – 6",
        f"Forked from branch {str(root.pk)[-8:]} behind position 6",
    ]


def test_an_empty_session_has_an_empty_strip(owner, admin_client, queued):
    page = admin_client.get(page_of(SessionFactory(owner=owner))).text
    assert titles_in(drawing_on(page, "strip")) == []
    assert "No message is stored." in page


# --- pages of messages ----------------------------------------------------------------------------


def test_the_newest_messages_come_first_and_the_others_are_paged(session, admin_client):
    grow(session, 52)
    page = admin_client.get(page_of(session)).text
    assert places_on(page) == [str(place) for place in range(36, 61)]
    assert "Newest »" not in page
    assert f'href="{page_of(session)}?at=11000000#messages">‹ Older' in page
    older = admin_client.get(page_of(session, at=11 * POSITION_STEP)).text
    assert places_on(older) == [str(place) for place in range(11, 36)]
    assert f'href="{page_of(session)}?at=1000000#messages">‹ Older' in older
    assert f'href="{page_of(session)}?at=36000000#messages">Newer ›' in older
    first = admin_client.get(page_of(session, at=0)).text
    assert places_on(first)[0] == "1"
    assert "‹ Older" not in first


def test_a_row_has_place_role_beginning_and_tokens(session, admin_client):
    store(session, [{"role": "user", "content": "The beginning. " + "y" * 400 + "THE-END"}])
    page = admin_client.get(page_of(session, place="9")).text
    place, role, text, tokens, fate = rows_on(page)[0]
    assert (place, role, tokens, fate) == ("9", "User", "106", "● Kept: sent verbatim")
    assert text.startswith("The beginning. yyy")
    assert "THE-END" not in page


@pytest.mark.parametrize(
    "query",
    [
        {"at": text}
        for text in ("", "x", "-1", "1e9", "9" * 18, "9" * 400, "²", "1 OR 1=1", "\u202e1", "\x00")
    ]
    + [{"place": text} for text in ("abc", "1.2.3", "-3", "9" * 12, "0.0000001", "NaN")],
)
def test_nonsense_in_the_address_shows_the_newest_messages(session, admin_client, query):
    response = admin_client.get(page_of(session, **query))
    assert response.status_code == 200
    assert places_on(response.text) == [str(place) for place in range(1, 9)]


# --- cost and danger ------------------------------------------------------------------------------


def test_the_page_costs_the_same_queries_for_50_and_for_2000_messages(session, admin_client):
    counts = []
    admin_client.get(page_of(session))
    for rows, summaries in ((42, range(1, 3)), (1950, range(3, 198))):
        grow(session, rows)
        for place in summaries:
            summary_of(session, place * 10, place * 10 + 9)
            transcript.insert_between(
                session.branch, after=(place * 10 + 9) * POSITION_STEP, draft=mark(place)
            )
        Message.objects.filter(position__endswith="5000000", kind="message").update(pinned=True)
        move_cursor(session, max(summaries) * 10 + 9, covered_messages=6, covered_tokens=240)
        for query in ({}, {"at": 20 * POSITION_STEP}, {"at": 1}):
            with CaptureQueriesContext(connection) as queries:
                assert admin_client.get(page_of(session, **query)).status_code == 200
            counts.append(len(queries))
            tables = [q["sql"] for q in queries if ' FROM "messages"' in q["sql"]]
            assert tables
            # Of the pinned ones only the sum of their tokens is read.
            assert all("LIMIT" in sql or "SUM(" in sql for sql in tables)
    assert counts[:3] == counts[3:]
    # Of them: what the server reported, the gain that rules wait for, and a switch under way.
    assert max(counts) <= 33


def mark(number: int) -> NewMessage:
    return NewMessage(
        wire={"role": "assistant", "content": f"Placeholder {number}"},
        kind="placeholder",
        summary="A summary.",
        metadata={"type": "session_summary", "summary_id": str(uuid4())},
    )


def test_what_people_wrote_is_text_everywhere_on_the_page(owner, admin_client, queued):
    session = SessionFactory(owner=owner, title=ATTACK[:150], system_prompt=ATTACK)
    store(session, [{"role": "user", "content": ATTACK}, {"role": "assistant", "content": ATTACK}])
    summary_of(session, 1, 1, summary_text=ATTACK, reason=ATTACK[:40])
    move_cursor(session, 1, covered_messages=1, covered_tokens=9, profile=ATTACK[:60])
    page = admin_client.get(page_of(session)).text
    assert "<script>alert" not in page
    assert page.count(ESCAPED) >= 3
    drawing = drawing_on(page, "strip")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in drawing
    assert "w" * 200 not in "".join(text for row in rows_on(page) for text in row)
    assert not re.search(r"\sstyle=|<style|\son\w+=", page)


def test_a_page_that_compaction_cannot_describe_still_shows_the_messages(session, admin_client):
    Session.objects.filter(pk=session.pk).update(model="retired")
    page = admin_client.get(page_of(session)).text
    assert "No model is called &#x27;retired&#x27; here." in page
    assert places_on(page) == [str(place) for place in range(1, 9)]


def test_after_a_real_compaction_all_of_it_fits_together(session, admin_client):
    assert compact(session).status == "succeeded"
    store(session, talk(1))
    page = admin_client.get(page_of(session)).text
    used = context_backend.preview(session).account.used
    assert f"The request itself takes {used} tokens" in plain(page)


@pytest.mark.parametrize("name", ["history", "delete"])
def test_the_pages_that_no_class_gives_a_style_sheet_have_it_too(session, admin_client, name):
    address = reverse(f"admin:chatapp_session_{name}", args=[session.pk])
    assert "chatapp/admin.css" in admin_client.get(address).text


def test_every_part_of_the_meter_has_a_pattern_of_its_own():
    drawn = [PATTERNS[name] for name in NAMES if name in PATTERNS]
    assert {name for name in NAMES if name not in PATTERNS} == {"kept", "free"}
    assert len(drawn) == len(set(drawn))
    for pattern in PATTERNS.values():
        assert f'id="pattern-{pattern}"' in HATCHED
