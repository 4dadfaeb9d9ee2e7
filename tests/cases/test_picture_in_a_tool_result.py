"""A picture inside a tool's JSON: stored whole, sent and read as its placeholder."""

from __future__ import annotations

import json

import pytest

from chatapp.exports import conversation_of
from chatapp.formats.openai_export import to_openai_chat_json
from chatapp.models import MessageOriginal
from chatapp.selectors import whole_content
from chatapp.transcript import recount_tokens
from compaction.doctor.examine import examine
from compaction.models import SessionSummary, SummaryLine
from tests.cases.support import ask, compact, flat, next_request, originals, stored
from tests.chatapp.test_inline_files import data_of
from tests.factories import call, profile, result, talk, user

pytestmark = pytest.mark.django_db

DATA = "/9j/4AAQSkZJRgAB" * 8000
PICTURE = json.dumps({"ok": True, "picture": f"data:image/jpeg;base64,{DATA}", "taken": "08:15"})
TOLD = '{"ok": true, "picture": "[image/jpeg, 96 kB]", "taken": "08:15"}'
# Letters of the data, wherever they may be: escaped as JSON or not.
GARBLE = "4AAQSkZJRgAB"
CONVERSATION = [
    user("snap the garden"),
    call("camera", "k1"),
    result("k1", PICTURE),
    {"role": "assistant", "content": "there"},
    *talk(3),
]


@pytest.fixture
def server(play):
    profile(keep_last_n=0, message_limit=0, max_context_tokens=0)
    script = [{"when": {"purpose": "summary"}, "reply": {"text": "A photo of the garden: 08:15."}}]
    return play(script, chatapp={"TOKEN_COUNTER": "chars4"}, CONTEXT_WINDOW=32_000)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_small_05_a_request_holds_the_placeholder(server, owner, api):
    session = stored(owner, CONVERSATION, api=api)
    ask(session, "And now?")
    sent = json.dumps(next_request(server).body)
    assert "[image/jpeg, 96 kB]" in sent
    assert GARBLE not in sent
    assert next_request(server).api == api


def test_small_05_it_is_counted_as_what_is_sent(server, owner):
    session = stored(owner, CONVERSATION)
    row = originals(session)[2]
    assert (row.tokens, row.chars) == (len(TOLD) // 4, len(TOLD))
    session.branch.refresh_from_db()
    assert session.branch.token_total < 1300


def test_small_05_the_summariser_reads_the_placeholder(server, owner):
    session = stored(owner, CONVERSATION)
    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    (asked,) = server.of("summary")
    assert "[image/jpeg, 96 kB]" in asked.text
    assert GARBLE not in flat(asked.messages)
    # It was read: the summary covers it, and the cursor moves over it.
    assert originals(session)[2] in [
        link.message for link in SessionSummary.objects.get().links.all()
    ]


def test_small_05_it_is_stored_and_exported_whole(server, owner):
    session = stored(owner, CONVERSATION)
    compact(session)
    assert originals(session)[2].content == PICTURE
    exported = to_openai_chat_json(conversation_of(session))
    assert exported["messages"][2]["content"] == PICTURE


def test_requests_keep_their_bytes_from_turn_to_turn(server, owner):
    session = stored(owner, CONVERSATION)
    ask(session, "And now?")
    first = next_request(server).messages
    ask(session, "And then?")
    assert next_request(server).messages[: len(first)] == first


@pytest.mark.parametrize("between", ["", f"MAILER_TOKEN=tok-live-{'7' * 24}\n"])
def test_a_summary_says_which_letters_of_the_stored_text_it_comes_from(play, owner, between):
    """The line stands behind the picture, perhaps a key: its place is that of the whole text."""
    profile(keep_last_n=0, message_limit=0, max_context_tokens=0, summariser="extractive")
    play([])
    fact = "The gate of the garden was repaired by Oskar Lindqvist on 3 May for 412 euros."
    session = stored(owner, [user(f"{data_of()}\n{between}{fact}"), *talk(4)[1:]])
    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    row = originals(session)[0]
    summary = SessionSummary.objects.get()
    assert "Oskar Lindqvist" in summary.summary_text
    lines = SummaryLine.objects.filter(message=row)
    pieces = [row.content[one.message_start : one.message_end] for one in lines]
    named = [piece for piece in pieces if "Oskar Lindqvist" in piece]
    assert named
    assert all(piece in fact for piece in named)


def test_a_result_too_long_for_its_row_keeps_its_words_and_gives_up_its_picture(
    server, owner, settings
):
    settings.COMPACTION = settings.COMPACTION | {"STORED_RESULT_CHARS": 5000}
    session = stored(owner, CONVERSATION[:3])
    row = originals(session)[2]
    assert row.content == TOLD
    assert MessageOriginal.objects.get().content == PICTURE
    assert whole_content(row) == PICTURE


def test_rows_counted_before_are_found_by_a_recount_and_put_right(server, owner):
    session = stored(owner, CONVERSATION)
    row = originals(session)[2]
    assert _found(session) == []
    session.messages.filter(pk=row.pk).update(tokens=32_000, chars=len(PICTURE))
    assert _found(session) == ["tokens_off"]
    recount_tokens(session.branch)
    row.refresh_from_db()
    assert (row.tokens, row.chars) == (len(TOLD) // 4, len(TOLD))
    assert _found(session) == []


def _found(session) -> list[str]:
    """What a look at all of the session with a recount finds of tokens."""
    return [one.code for one in examine(session.pk, recount=True) if one.code == "tokens_off"]
