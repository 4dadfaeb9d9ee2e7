"""Cases about turns that must end: orphans, loops, overflows of every server, loose streams."""

from __future__ import annotations

import json

import pytest

from chatapp.context.backend import context_backend
from chatapp.models import Branch, Incident, Message
from chatapp.transcript import append
from chatapp.transcript.writing import NewMessage
from chatapp.turns.service import TurnFailedError
from compaction.models import CompactionRun, ModelBreaker, RecoveryStep, SessionSummary
from tests.cases.support import (
    add,
    ask,
    check,
    compact,
    flat,
    fresh,
    next_request,
    originals,
    served,
    stored,
)
from tests.fakes.model_server import estimate, text_of

CHARS4 = {"chatapp": {"TOKEN_COUNTER": "chars4"}}


def window(case, **model):
    """The model of the case's settings."""
    settings = case.settings
    output = settings.get("max_tokens", settings.get("reserve_tokens", 500))
    return {"CONTEXT_WINDOW": settings["context_window"], "MAX_OUTPUT": output} | model


def say_again(session) -> None:
    """An idle check: what a stored message would start, without a new message."""
    session = fresh(session)
    context_backend.message_stored(session, originals(session)[-1])


# --- an orphaned result --------------------------------------------------------------------------


def broken_session(case, owner):
    """The case's rows as a broken writer left them: an old compaction between call and result."""
    session = stored(owner)
    for wire in case.transcript:
        meta = wire.get("meta", {})
        plain = {key: value for key, value in wire.items() if key != "meta"}
        if meta.get("kind") == "compaction":
            draft = NewMessage(
                wire={"role": "assistant", "content": None},
                kind=Message.Kind.PLACEHOLDER,
                summary=wire["content"],
                metadata={"type": "session_summary"},
            )
            append(session.branch, [draft])
        else:
            add(session, [plain])
    return session


def test_b03_an_orphan_heals_on_load_and_after_a_second_compaction(cases, play, owner):
    case = cases("B03")
    server = play(case.script, **CHARS4, **window(case))
    case.profile(cut="recent_tokens")
    session = broken_session(case, owner)

    before = context_backend.preview(fresh(session))
    served(case, list(before.messages))
    assert "MK-0303" in flat(before.messages)

    compact(session)
    ask(session, case.next_user)
    check(case, server, session)
    request = next_request(server)
    assert not [m for m in request.messages if m.get("tool_call_id") == "c2"]
    countable = [text_of(m) for m in request.messages if m["role"] == "assistant"]
    assert not any("SUMMARY" in text for text in countable)


# --- a kept part that is over the limit alone; a stale usage report ------------------------------


def test_b11_a_kept_part_that_is_too_large_alone_makes_no_loop(cases, play, owner):
    case = cases("B11")
    server = play(case.script, **CHARS4, **window(case))
    case.profile(cut="recent_tokens", window_trigger=True)
    session = stored(owner, case.transcript)
    ask(session, case.next_user)
    assert len(server.of("summary")) <= 3
    assert estimate(next_request(server).messages) <= 3000

    calls = len(server.calls)

    def idle(entry):
        for _ in range(entry["times"]):
            say_again(session)
        assert len(server.calls) == calls

    check(case, server, session, idle_checks_no_calls=idle)


def test_b11_a_summary_that_is_no_use_is_told_on_the_run(cases, play, owner):
    case = cases("B11")
    endless = {"when": {"purpose": "summary"}, "reply": {"text": "the same " * 3000}}
    server = play([endless, *case.script], **CHARS4, **window(case))
    case.profile(cut="recent_tokens", window_trigger=True)
    session = stored(owner, case.transcript)
    ask(session, case.next_user)
    # The request no longer fits: sentences are chosen, and what the model wrote is told.
    run = CompactionRun.objects.get()
    refused = run.steps.filter(outcome="error")
    assert run.status == "succeeded"
    assert len(refused) >= 2
    assert all("repeated itself" in step.error for step in refused)
    assert ModelBreaker.objects.get().failing_code == "bad_answer"
    assert estimate(next_request(server).messages) <= 3000
    assert all(called.status in (200, 400) for called in server.of("chat"))


def test_b13_a_stale_usage_report_does_not_fire_the_trigger_again(cases, play, owner):
    case = cases("B13")
    server = play(case.script, **CHARS4, **window(case))
    case.profile(cut="recent_tokens", window_trigger=True)
    session = stored(owner, case.transcript)
    session = fresh(session)
    context_backend.prepare(session)
    assert SessionSummary.objects.count() == 1
    context_backend.prepare(fresh(session))
    assert SessionSummary.objects.count() == 1
    ask(session, case.next_user)
    check(case, server, session)


# --- several medium tool results overflow together -----------------------------------------------


def test_b21_several_medium_results_are_cut_once_in_a_replayed_branch(cases, play, owner):
    case = cases("B21")
    server = play(case.script, **CHARS4, **window(case))
    case.profile()
    session = stored(owner, case.transcript)
    before = [row.wire() for row in originals(session)]
    answer = ask(session, None).answer
    assert answer.content == "ok"

    old = Branch.objects.get(session=session, kind="root")

    def tool_min_chars(entry):
        for message in next_request(server).messages:
            if message["role"] == "tool":
                source = next(
                    wire["content"]
                    for wire in before
                    if wire["role"] == "tool" and wire["content"][:8] == message["content"][:8]
                )
                assert source.startswith(message["content"][: entry["value"]])
                assert len(message["content"]) >= entry["value"]

    def originals_unchanged(entry):
        rows = Message.objects.filter(branch=old).order_by("position")
        assert [row.wire() for row in rows] == before

    check(
        case,
        server,
        session,
        tool_min_chars=tool_min_chars,
        originals_unchanged=originals_unchanged,
    )
    cut = [m["content"] for m in next_request(server).messages if "truncated" in text_of(m)]
    assert cut
    for text in cut:
        kept = text[: text.index("[")].rstrip("\n")
        assert kept.endswith("line of mail text")
    assert Branch.objects.filter(session=session, kind="replay").count() == 1
    assert [recovery_step.action for recovery_step in RecoveryStep.objects.order_by("order")] == [
        "compact",
        "truncate",
    ]
    assert len(server.of("chat")) == 2


# --- nothing left to shrink ----------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_b23_nothing_left_to_shrink_is_one_readable_error(cases, play, owner, api, stream):
    case = cases("B23")
    server = play(case.script, **CHARS4, **window(case))
    case.profile()
    session = stored(owner)
    with pytest.raises(TurnFailedError) as failure:
        ask(session, case.next_user, stream=stream)

    def no_identical_repeat(entry):
        bodies = [json.dumps(called.body, sort_keys=True) for called in server.calls]
        assert len(set(bodies)) == len(bodies)

    def error_readable(entry):
        assert failure.value.error.kind.value == "context_overflow"
        assert "Message 1 alone" in str(failure.value)
        assert "4,000" in str(failure.value)

    check(
        case,
        server,
        session,
        no_identical_repeat=no_identical_repeat,
        error_readable=error_readable,
    )
    assert [row.content for row in originals(session)] == [case.next_user]
    assert Incident.objects.get(kind="error").code == "context_overflow"


def test_b23_the_api_answers_with_a_code_and_the_session_goes_on(cases, play, owner, api):
    case = cases("B23")
    server = play(case.script, **CHARS4, **window(case))
    case.profile()
    session = stored(owner)
    url = f"/api/v1/sessions/{session.pk}/turns/"
    answer = api.post(url, {"content": case.next_user}, format="json")
    assert answer.status_code == 502
    assert answer.data["code"] == "context_overflow"
    assert "Message 1" in answer.data["detail"]

    # A following message is answered: what alone is too large is summarised or left behind.
    assert api.post(url, {"content": case.raw["then_user"]}, format="json").status_code == 200
    assert next_request(server).messages[-1]["content"] == case.raw["then_user"]


# --- overflows in other servers' words -----------------------------------------------------------


def as_error(variant: dict) -> dict:
    """A variant of the case as a scripted server answers it."""
    status = variant.get("status", 400)
    body = {key: value for key, value in variant.items() if key != "status"}
    return {"error": {"status": status, "body": {"error": body}}}


def variants(cases) -> list[dict]:
    return cases("B24").raw["variants"]


@pytest.mark.parametrize("stream", [False, True])
def test_b24_every_servers_words_lead_to_one_compaction_and_one_retry(cases, play, owner, stream):
    case = cases("B24")
    for number, variant in enumerate(variants(cases)):
        script = [
            rule | {"reply": as_error(variant)} if "error" in rule["reply"] else rule
            for rule in case.script
        ]
        server = play(script, **window(case))
        case.profile(name=f"variant{number}")
        session = stored(owner, case.transcript)
        assert ask(session, case.next_user, stream=stream).answer.content == "ok", variant
        summary = SessionSummary.objects.get(session=session)
        assert summary.trigger == "overflow_retry"
        check(case, server, session, same_result=lambda entry: None)
        assert not [row for row in originals(session) if "error" in (row.content or "")]


def test_b24_a_wording_of_the_settings_counts(cases, play, owner):
    case = cases("B24")
    odd = {"status": 400, "message": "Das Gespräch passt nicht mehr hinein."}
    script = [
        rule | {"reply": as_error(odd)} if "error" in rule["reply"] else rule
        for rule in case.script
    ]
    play(script, chatapp={"OVERFLOW_WORDINGS": ("passt nicht mehr",)}, **window(case))
    case.profile()
    session = stored(owner, case.transcript)
    assert ask(session, case.next_user).answer.content == "ok"


# --- room for the answer -------------------------------------------------------------------------


def test_b33_room_for_the_answer_is_subtracted(cases, play, owner):
    case = cases("B33")

    def too_large(called) -> bool:
        room = called.body.get("max_tokens") or 0
        return estimate(called.messages) + room > case.settings["context_window"]

    script = [rule for rule in case.script if "est_plus_max_tokens_gt" not in rule["when"]]
    server = play(script, **CHARS4, **window(case))
    case.profile(cut="recent_tokens", window_trigger=True)
    session = stored(owner, case.transcript)
    ask(session, case.next_user)
    check(case, server, session)
    assert not [called for called in server.calls if too_large(called)]


# --- pieces of tool calls without index or id ----------------------------------------------------


def played(case, *, indexed: bool):
    """The case's script in the language of our server; with indexes for the second variant."""
    first, rest = case.script
    deltas = json.loads(json.dumps(first["reply"]["raw_deltas"]))
    if indexed:
        for index, delta in zip((0, 0, 1), deltas, strict=True):
            delta["tool_calls"][0]["index"] = index
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    reply = {"deltas": deltas, "finish_reason": "tool_calls", "usage": usage}
    return [{"when": first["when"], "reply": reply}, rest]


@pytest.mark.parametrize("indexed", [False, True])
def test_b48_pieces_of_calls_find_each_other(cases, play, owner, indexed):
    case = cases("B48")
    server = play(played(case, indexed=indexed))
    case.profile()
    session = stored(owner, case.transcript)
    answer = ask(session, None, stream=True).answer
    assert answer.usage["total_tokens"] == 18

    def tool_calls(entry):
        calls = [
            [called["id"], json.loads(called["function"]["arguments"])["city"]]
            for called in Message.objects.get(pk=answer.pk).tool_calls
        ]
        assert calls == entry["value"]

    ask(session, "go on")
    check(case, server, session, tool_calls=tool_calls)
