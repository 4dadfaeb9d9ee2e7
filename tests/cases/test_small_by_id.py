"""The small inputs that once showed a fault, by their ids, played through the whole product."""

from __future__ import annotations

import io
import re

import pytest
from django.core.management import call_command

from chatapp.checks import check_limits
from chatapp.llm.openai_client import OpenAIModel
from chatapp.models import Incident, Message
from compaction.models import CompactionRun, SessionSummary
from compaction.profiles import save_profile
from tests.cases.support import NEVER, add, ask, compact, fresh, next_request, stored
from tests.factories import call, profile, result, talk, user

pytestmark = pytest.mark.django_db
BEES = ("hive", "queen", "drone", "comb", "honey", "nectar", "pollen", "swarm", "smoker", "veil")
OK = {"when": {}, "reply": {"text": "ok"}}


def answer(text: str) -> dict:
    return {"role": "assistant", "content": text}


def bee_keeping(words: int) -> str:
    """Return so many words in sentences of ten, no two of which are the same."""
    lines = []
    for number in range(words // 10):
        line = " ".join(BEES[(number * 7 + step * step) % len(BEES)] for step in range(9))
        lines.append(f"{line.capitalize()} {number}.")
    return " ".join(lines)


def refused(status: int, body: dict) -> dict:
    return {"error": {"status": status, "body": body}}


# --- 01 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "results", "characters"), [(16_000, 12, 6_000), (8_000, 8, 5_000)]
)
def test_small_01_cut_results_keep_their_floor_while_there_is_room(
    play, owner, window, results, characters
):
    profile(**NEVER, min_keep_chars=2000, max_tool_result_context_share=0.3)
    too_large = {"error": {"code": "context_length_exceeded", "message": "too long"}}
    server = play(
        [
            {"when": {"purpose": "summary"}, "reply": refused(503, {})},
            {"when": {"est_tokens_gt": window - 500}, "reply": refused(400, too_large)},
            OK,
        ],
        CONTEXT_WINDOW=window,
        MAX_OUTPUT=500,
        chatapp={"TOKEN_COUNTER": "chars4"},
    )
    wires = [user("inspect the hives")]
    for number in range(results):
        row = f"hive {number} row of the log\n"
        wires += [call("read_log", f"r{number}"), result(f"r{number}", (row * 300)[:characters])]
    session = stored(owner, wires)
    assert ask(session, None).answer.content == "ok"
    sent = [one["content"] for one in next_request(server).messages if one["role"] == "tool"]
    assert len(sent) == results
    assert all(len(text) >= 2000 for text in sent)


# --- 02 -------------------------------------------------------------------------------------------


def test_small_02_a_response_that_was_forgotten_once_is_sent_whole_once(play, owner):
    lost = {"error": {"code": "previous_response_not_found", "message": "Not found."}}
    continued = {"purpose": "chat", "has_previous_response": True, "call": 4}
    server = play([{"when": continued, "reply": refused(404, lost)}, OK], KEEPS_RESPONSES=True)
    profile(**NEVER)
    session = stored(owner, api="responses")
    asked = ("We keep bees.", "Seven hives.", "One is weak.", "Which one?", "And now?", "And then?")
    for text in asked:
        ask(session, text)
    told = [
        (bool(one.body.get("previous_response_id")), one.status, len(one.messages))
        for one in server.of("chat")
    ]
    assert told == [
        (False, 200, 1),
        (True, 200, 1),
        (True, 200, 1),
        (True, 404, 1),
        (False, 200, 7),
        (True, 200, 1),
        (True, 200, 1),
    ]
    assert not fresh(session).stateless


# --- 03 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [[], ["--force"]])
def test_small_03_resummarize_beside_a_run_says_busy_and_ends_well(play, owner, monkeypatch, more):
    server = play([{"when": {"purpose": "summary"}, "reply": {"text": "Eight questions."}}, OK])
    profile(**NEVER, keep_last_n=2)
    session = stored(owner, talk(8))
    assert compact(session).status == "succeeded"
    add(session, talk(8))
    out, err, complete = io.StringIO(), io.StringIO(), OpenAIModel.complete

    def meanwhile(model, *args, **kwargs):
        """The command is started while the run waits for its model."""
        monkeypatch.setattr(OpenAIModel, "complete", complete)
        # A failure would be raised here, for an exit status of 1.
        call_command("resummarize", "--session", str(session.pk), *more, stdout=out, stderr=err)
        return complete(model, *args, **kwargs)

    monkeypatch.setattr(OpenAIModel, "complete", meanwhile)
    assert compact(session).status == "succeeded"
    assert f"{session.pk}: busy. " in out.getvalue()
    assert "1 busy with another run, 0 failed" in out.getvalue()
    assert err.getvalue() == ""
    assert len(server.of("summary")) == 2
    assert not CompactionRun.objects.filter(status="failed").exists()


# --- 04 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [1500, 450])
def test_small_04_no_stored_summary_is_larger_than_twice_its_target(play, owner, words):
    said = {"when": {"purpose": "summary"}, "reply": {"text": bee_keeping(words)}}
    server = play([said, OK])
    profile(**NEVER, keep_last_n=0, target_summary_tokens=200)
    session = stored(owner)
    for _ in range(3):
        add(session, talk(20, words=60))
        assert compact(session).status == "succeeded"
    summaries = list(SessionSummary.objects.all())
    assert len(summaries) == 3
    for one in summaries:
        assert one.summary_tokens <= 400
        assert one.truncated
        assert one.summary_text.endswith(".")
    assert max(asked.body["max_tokens"] for asked in server.of("summary")) <= 400


# --- 07 -------------------------------------------------------------------------------------------


def test_small_07_a_second_compaction_by_hand_succeeds_or_says_its_own_figures(owner, queued, api):
    profile(**NEVER, keep_last_n=2)
    wires = []
    for bed in range(1, 31):
        wires.append(
            user(
                f"Bed {bed}: we must water plot-{bed:02d} at 06:{bed:02d} with {bed + 3} litres, "
                f"and check src/garden/plot_{bed:02d}.py before 2026-05-{bed:02d}."
            )
        )
        noted = (
            f"Noted: plot-{bed:02d}, I decided to keep the drip line because the soil sensor reads "
            f"{bed} %. The rest of the bed stays as it was planned in the spring. "
        )
        wires.append(answer(noted * 3))
    session = stored(owner, wires, model="embedded")
    url = f"/api/v1/sessions/{session.pk}/compact/"
    assert api.post(url, {"wait": True}, format="json").json()["status"] == "succeeded"
    add(session, [user("And bed 31?"), answer("Bed 31 is dry; 12 litres.")])
    add(session, [user("Do it."), answer("Done at 07:10.")])
    before = _used(api, session)
    run = api.post(url, {"wait": True}, format="json").json()
    assert run["status"] in ("succeeded", "skipped")
    if run["status"] == "succeeded":
        assert _used(api, session) < before
        return
    assert run["error_code"] == "no_gain"
    found = re.match(
        r"The summary of these 4 messages would have ([\d,]+) tokens, the messages have ([\d,]+)",
        run["error"],
    )
    assert found, run["error"]
    waiting = Message.objects.filter(session=session, kind="message").order_by("-position")[2:6]
    assert int(found[2].replace(",", "")) == sum(row.tokens for row in waiting)
    assert _used(api, session) == before


def _used(api, session) -> int:
    return api.get(f"/api/v1/sessions/{session.pk}/context/").json()["account"]["used"]


# --- 08 -------------------------------------------------------------------------------------------


def test_small_08_the_embedded_model_is_not_accused_of_leaving_the_beginning_out(owner, queued):
    profile(**NEVER)
    tools = [
        {
            "type": "function",
            "function": {"name": f"look_{number}", "description": "Looks at a bed. " * 44},
        }
        for number in range(12)
    ]
    session = stored(owner, model="embedded", tools=tools)
    given = ask(session, "Which beds are dry?")
    assert not Incident.objects.exists()
    account = given.context.account
    assert account.tools > 1000
    assert given.answer.usage["prompt_tokens"] >= account.tools


# --- 09 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [None, "", "8192", 8192.5])
def test_small_09_a_window_that_is_no_number_is_told_in_words(model_server, use_models, window):
    use_models(model_server.models(CONTEXT_WINDOW=window))
    found = [one for one in check_limits() if "CONTEXT_WINDOW" in one.msg]
    assert [one.id for one in found] == ["chatapp.E008"]
    assert found[0].msg == (
        f"CONTEXT_WINDOW of model 'default' is {window!r}; it must be a whole number of at least 1."
    )


# --- 10 -------------------------------------------------------------------------------------------


def test_small_10_a_body_that_is_too_large_makes_one_summary_call_and_the_turn_goes_on(play, owner):
    """The open question: fewer bytes may help, so it is tried once."""
    refusal = refused(413, {"error": {"message": "request body too large"}})
    server = play(
        [
            {"when": {"purpose": "chat", "call": 1}, "reply": refusal},
            {"when": {"purpose": "summary"}, "reply": {"text": "Short talk."}},
            OK,
        ]
    )
    save_profile(name="plain", base="bisect", parameters={}, make_default=True)
    session = stored(owner, talk(5, words=30))
    assert ask(session, "And now?").answer.content == "ok"
    assert [one.purpose for one in server.calls] == ["chat", "summary", "chat"]


# --- 12 -------------------------------------------------------------------------------------------

FLAT = {
    "object": "error",
    "message": "This model's maximum context length is 4096 tokens. However, you requested 5100 "
    "tokens.",
    "type": "invalid_request_error",
    "code": 40303,
}
FLAT_EVENT = {
    "object": "error",
    "message": "the request exceeds the available context size",
    "code": 400,
}


@pytest.mark.parametrize("stream", [False, True])
def test_small_12_a_flat_error_under_200_is_an_overflow(play, owner, stream):
    reply = {"events": [FLAT_EVENT]} if stream else {"raw": FLAT}
    first = {"when": {"purpose": "chat", "call": 1}, "reply": reply}
    summary = {"when": {"purpose": "summary"}, "reply": {"text": "Short talk."}}
    server = play([first, summary, OK])
    profile(**NEVER)
    session = stored(owner, talk(12))
    given = ask(session, "And now?", stream=stream)
    assert given.answer.content == "ok"
    # An overflow is answered by a compaction and one more try, not by waiting and trying again.
    assert [one.purpose for one in server.calls] == ["chat", "summary", "chat"]
