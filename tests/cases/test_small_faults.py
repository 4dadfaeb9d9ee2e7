"""Small inputs that once showed a fault: a late system message, keys, a branch left behind."""

from __future__ import annotations

import json

import pytest

from chatapp import transcript
from chatapp.models import Message
from compaction.models import CompactionStep, SessionSummary
from compaction.runs.switching import SwitchWishes, request_switch
from tests.cases.support import ask, compact, fresh, next_request, originals, stored
from tests.factories import call, profile, result, talk, user

pytestmark = pytest.mark.django_db

NEVER = {"message_limit": 0, "max_context_tokens": 0}


def answer(text: str) -> dict:
    return {"role": "assistant", "content": text}


# --- 00: a kept tail that begins with a system message --------------------------------------------

LATE = "From now on the winter timetable counts."
ONE_SYSTEM_ONLY = [
    {
        "when": {"purpose": "chat", "system_count_gt": 1},
        "reply": {
            "error": {
                "status": 400,
                "body": {"error": {"message": "System message must be at the beginning."}},
            }
        },
    },
    {"when": {"purpose": "summary"}, "reply": {"text": "The 9:40 ferry is full."}},
]


@pytest.mark.parametrize("adapts", [True, False])
@pytest.mark.parametrize("rendering", ["system", "merged_system", "user_tags"])
def test_small_00_a_late_system_message_never_opens_the_request(play, owner, rendering, adapts):
    profile(**NEVER, keep_last_n=5, rendering=rendering)
    server = play(ONE_SYSTEM_ONLY, SINGLE_LEADING_SYSTEM=adapts)
    late = [{"role": "system", "content": LATE}, user("Is there a ferry at ten?"), answer("10:15.")]
    session = stored(owner, [*talk(4, words=40), *late], system_prompt="You sell tickets.")
    ask(session, "Before?")
    before = [one for one in next_request(server).messages if LATE in str(one["content"])]
    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    assert SessionSummary.objects.get().links.count() == 8
    ask(session, "And back?")
    if adapts or rendering != "system":
        # The first try is taken: nothing has to be learned from a refusal.
        assert [asked.status for asked in server.of("chat")] == [200, 200]
    after = [one for one in next_request(server).messages if LATE in str(one["content"])]
    assert after == before
    assert [one["role"] for one in after] == ["user"]


# --- 06: a key that was seen once -----------------------------------------------------------------

TOKEN = "tok-live-" + "7" * 22
BEARER = "fedcba" * 4
SETTINGS = f"MAILER_TOKEN={TOKEN} HOST=mx.example\nAuthorization: Bearer {BEARER}"
KEYS = [
    *talk(3, words=60),
    user("print the mailer's settings"),
    call("settings", "k1"),
    result("k1", SETTINGS),
    answer("printed"),
    *talk(3),
]


@pytest.mark.parametrize("summariser", ["extractive", "model"])
def test_small_06_no_key_is_read_by_a_summariser_or_stored_with_a_summary(play, owner, summariser):
    profile(
        **NEVER, keep_last_n=0, **({"summariser": "extractive"} if summariser != "model" else {})
    )
    # A model that repeats what it was not given must not bring it back either.
    told = f"The mailer's settings were printed: {SETTINGS}"
    server = play([{"when": {"purpose": "summary"}, "reply": {"text": told}}])
    session = stored(owner, KEYS)
    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    for asked in server.calls:
        assert TOKEN not in asked.text
        assert BEARER not in asked.text
        assert "MAILER_TOKEN=[REDACTED" in asked.text
    assert len(server.calls) == (summariser == "model")
    for stored_text in _texts_beside_messages(session):
        assert TOKEN not in stored_text
        assert BEARER not in stored_text
    assert originals(session)[8].content == SETTINGS


def _texts_beside_messages(session) -> list[str]:
    """All that is stored of summaries, steps and placeholders."""
    summaries = json.dumps(list(SessionSummary.objects.values()), default=str)
    steps = json.dumps(list(CompactionStep.objects.values()), default=str)
    others = Message.objects.filter(session=session).exclude(kind=Message.Kind.MESSAGE)
    return [summaries, steps, json.dumps(list(others.values()), default=str)]


# --- 11: what is told of a branch that was left ---------------------------------------------------


def left_for_another(owner):
    """A session in a long line, and the branch at its first answer that is gone back to."""
    profile(**NEVER)
    session = stored(owner, [user("Where do we stay?"), answer("At the harbour."), *talk(20)])
    here = originals(session)[1]
    return session, transcript.fork(fresh(session), at=here)


def test_small_11_one_summary_of_the_pairs_stands_in_the_new_branch(play, owner):
    script = [
        {
            "when": {"purpose": "branch", "call": 1},
            "reply": {"text": "half a s", "finish_reason": "length"},
        },
        {"when": {"purpose": "branch"}, "reply": {"text": "Small questions were asked."}},
        {"when": {"purpose": "merge"}, "reply": {"text": "Twenty small questions were asked."}},
    ]
    server = play(script)
    session, new = left_for_another(owner)
    old, rows = session.branch, originals(session)
    run = request_switch(fresh(session), new, SwitchWishes(summarize=True))
    assert (run.status, run.error) == ("succeeded", "")
    assert fresh(session).branch == new
    summary = SessionSummary.objects.get()
    assert set(summary.links.values_list("message", flat=True)) == {row.pk for row in rows[2:]}
    assert all("At the harbour." not in asked.text for asked in server.of("branch"))
    note = Message.objects.get(kind="note")
    assert (note.branch, "Twenty small questions were asked." in note.content) == (new, True)
    assert "half a s" not in summary.summary_text + note.content
    assert list(Message.objects.filter(branch=old, kind="message").order_by("position")) == rows


def test_small_11_where_all_calls_fail_the_leaf_stays_and_going_without_one_works(play, owner, api):
    play([{"when": {"purpose": "branch"}, "reply": {"error": {"status": 400, "body": {}}}}])
    session, new = left_for_another(owner)
    old = session.branch
    url = f"/api/v1/branches/{new.pk}/activate/"
    refused = api.post(url, {"summarize": True}, format="json")
    assert refused.json()["is_active"] is False
    assert refused.json()["run"]["status"] == "failed"
    assert "refused the request" in refused.json()["run"]["error"]
    assert fresh(session).branch == old
    assert api.post(url, {"summarize": False}, format="json").status_code == 200
    assert fresh(session).branch == new
    assert not SessionSummary.objects.exists()
