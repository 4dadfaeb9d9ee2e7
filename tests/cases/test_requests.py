"""What is sent after a compaction."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatapp.context.backend import context_backend
from chatapp.models import Message
from compaction.models import CompactionRun, SessionSummary
from tests.cases.support import (
    add,
    ask,
    check,
    compact,
    flat,
    fresh,
    linked,
    next_request,
    originals,
    served,
    state,
    stored,
    summarised_as,
)
from tests.factories import UserFactory, call, result, talk

pytestmark = pytest.mark.django_db

# --- a cut that starts on a tool result ----------------------------------------------------------


def test_b01_keep_last_n_never_starts_on_a_tool_result(cases, play, owner):
    case = cases("B01")
    server = play(case.script)
    case.profile()
    session = stored(owner, case.transcript)
    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    ask(session, case.next_user)

    check(case, server, session)
    rows = originals(session)
    summary = SessionSummary.objects.get()
    assert linked(summary) == rows[:3]
    # The kept tail starts at the message that called c2: five of the eight stay verbatim.
    request = next_request(server).messages
    kept = [message for message in request if message["role"] != "system"]
    assert kept[:-1] == [case.lib.wire(message) for message in case.transcript[3:]]
    assert kept[0]["tool_calls"][0]["id"] == "c2"
    assert kept[-1] == {"role": "user", "content": case.next_user}
    shown = case.lib.markers(summary.summary_text)
    assert shown == {"MK-0101", "MK-0102"}


@pytest.mark.parametrize("keep", range(8))
def test_b01_any_number_of_kept_messages_leaves_calls_with_their_results(cases, play, owner, keep):
    case = cases("B01")
    server = play(case.script)
    case.profile(keep_last_n=keep)
    # Longer texts than the case's, so that also a summary of one message is smaller than it.
    wires = [
        wire | {"content": wire["content"] and wire["content"] + " lorem ipsum" * 20}
        for wire in case.transcript
    ]
    session = stored(owner, wires)
    run = compact(session)
    assert run.status == "succeeded"
    ask(session, case.next_user)

    served(case, next_request(server))
    assert case.markers <= case.lib.markers(next_request(server).messages)
    rows = originals(session)[:8]
    covered = linked(SessionSummary.objects.get())
    # Pairs of the case: 1+2, 3+4, 5+6. A cut inside one moves back to its call.
    raw = 8 - keep
    assert len(covered) == (raw - 1 if raw in (2, 4, 6) else raw)
    assert covered == rows[: len(covered)]


@st.composite
def conversations(draw):
    """User questions, then rounds of parallel calls whose results come in any order; ids repeat."""
    wires, number = [], 0

    def marked(text):
        nonlocal number
        number += 1
        return f"MK-{number:04d} {text} " + "lorem ipsum " * 6

    for turn in range(draw(st.integers(1, 3))):
        wires.append({"role": "user", "content": marked("question")})
        for round_number in range(draw(st.integers(0, 3))):
            width = draw(st.integers(1, 3))
            again = draw(st.booleans())
            ids = [f"c{n}" if again else f"c{turn}-{round_number}-{n}" for n in range(width)]
            calls = [call("read", call_id)["tool_calls"][0] for call_id in ids]
            wires.append({"role": "assistant", "content": None, "tool_calls": calls})
            wires += [result(call_id, marked("result")) for call_id in draw(st.permutations(ids))]
        wires.append({"role": "assistant", "content": marked("answer")})
    return wires


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(wires=conversations(), keep=st.integers(0, 9))
def test_b01_parallel_calls_and_repeated_ids_stay_together(cases, play_once, wires, keep):
    case = cases("B01")
    case.profile(keep_last_n=keep)
    session = stored(UserFactory(), wires)
    compact(session)
    messages = context_backend.prepare(fresh(session)).messages
    # All is answered: the next request ends with a question of its own.
    served(case, [*messages, {"role": "user", "content": case.next_user}])
    assert case.lib.markers(wires) <= case.lib.markers(list(messages))
    rows = originals(session)
    summary = SessionSummary.objects.filter(session=session).first()
    covered = linked(summary) if summary else []
    assert covered == rows[: len(covered)]
    kept = rows[len(covered) :]
    assert not kept or kept[0].role != "tool"
    assert len(kept) >= min(keep, len(rows))


@pytest.fixture
def play_once(cases, play):
    return play(cases("B01").script)


# --- a summary as an extra or late system message ------------------------------------------------


def shop(case, server, owner, **session):
    """The case's conversation under two stored summaries; the last four messages are kept."""
    case.profile()
    made = stored(owner, case.transcript[:9], **session)
    summarised_as(server, made, case.raw["stored_summaries"][0])
    add(made, case.transcript[9:])
    summarised_as(server, made, case.raw["stored_summaries"][1])
    return made


def test_b07_one_leading_system_message_holds_prompt_and_summaries(cases, play, owner):
    case = cases("B07")
    server = play(case.script, SINGLE_LEADING_SYSTEM=True)
    session = shop(case, server, owner)
    outcome = ask(session, case.next_user)

    check(case, server, session)
    assert outcome.answer.content == "ok"
    messages = next_request(server).messages
    assert [m["role"] for m in messages].count("system") == 1
    assert messages[0]["role"] == "system"
    text = messages[0]["content"]
    assert text.startswith(case.transcript[0]["content"])
    assert 0 < text.index("SUMMARY older") < text.index("SUMMARY newer")
    assert messages[1:-1] == [case.lib.wire(m) for m in case.transcript[-4:]]
    served(case, messages, single_system=True)


def test_b07_other_servers_get_system_messages_at_the_front_only(cases, play, owner):
    case = cases("B07")
    server = play([rule for rule in case.script if "system_count_gt" not in rule["when"]])
    session = shop(case, server, owner)
    ask(session, case.next_user)

    messages = next_request(server).messages
    assert {called.status for called in server.calls} == {200}
    roles = [m["role"] for m in messages]
    assert roles.count("system") >= 2
    assert "system" not in roles[roles.count("system") :]
    assert messages[0]["content"] == case.transcript[0]["content"]
    text = flat(messages)
    assert text.index("SUMMARY older") < text.index("SUMMARY newer")
    served(case, messages)


@pytest.mark.parametrize("single", [True, False])
def test_b07_prompt_of_the_session_and_late_system_messages(cases, play, owner, single):
    case = cases("B07")
    refusing = case.script if single else case.script[1:]
    server = play(refusing, SINGLE_LEADING_SYSTEM=single)
    case.profile()
    prompt = "You speak for the shop.\n\nNever promise delivery days. "
    session = stored(owner, case.transcript, system_prompt=prompt)
    add(session, [{"role": "system", "content": "MK-0799 From now on the sale is over."}])
    add(session, talk(3))
    run = compact(session, keep_last_n=8)
    assert run.status == "succeeded"
    ask(session, case.next_user)

    assert {called.status for called in server.calls} == {200}
    messages = next_request(server).messages
    assert messages[0]["content"].startswith(prompt)
    assert case.transcript[0]["content"] in flat(messages)
    assert "MK-0799" in flat(messages)
    served(case, messages, single_system=single)


def test_b07_only_the_newest_summaries_are_sent_and_the_prompt_always(cases, play, owner):
    case = cases("B07")
    server = play(case.script, SINGLE_LEADING_SYSTEM=True)
    case.profile(summary_limit=2)
    session = stored(owner, case.transcript[:9])
    for number in range(4):
        summarised_as(server, session, f"SUMMARY number {number}")
        add(session, talk(2))
    ask(session, case.next_user)

    text = next_request(server).messages[0]["content"]
    assert text.startswith(case.transcript[0]["content"])
    assert [n for n in range(4) if f"SUMMARY number {n}" in text] == [2, 3]


# --- the pending question after an overflow ------------------------------------------------------


def test_b08_overflow_retry_ends_with_the_question(cases, play, owner):
    case = cases("B08")
    server = play(case.script, CONTEXT_WINDOW=case.settings["context_window"])
    case.profile()
    session = stored(owner, case.transcript)
    outcome = ask(session, case.next_user)

    check(case, server, session)
    assert outcome.answer.content == "ok"
    assert [called.status for called in server.of("chat")] == [400, 200]
    assert server.of("summary")
    assert next_request(server).messages[-1] == {"role": "user", "content": case.next_user}
    rows = originals(session)
    question = next(row for row in rows if row.content == case.next_user)
    summary = SessionSummary.objects.get()
    assert summary.last_message_id == rows[rows.index(question) - 1].pk
    assert question not in linked(summary)
    assert summary.trigger == "overflow_retry"


ONE = ["MK-0899 which of these is due first?"]
TWO = ["MK-0898 one more thing", *ONE]


@pytest.mark.parametrize(("keep", "question"), [(0, ONE), (24, ONE), (1, TWO), (6, TWO)])
def test_b08_whatever_is_kept_and_however_it_is_asked(cases, play, owner, keep, question):
    case = cases("B08")
    server = play(case.script, CONTEXT_WINDOW=2000)
    case.profile(keep_last_n=keep)
    session = stored(owner, case.transcript)
    add(session, [{"role": "user", "content": text} for text in question[:-1]])
    ask(session, question[-1])

    check(case, server, session)
    # The newest message is the question; one before it that nobody answered is history.
    assert next_request(server).messages[-1]["content"] == question[-1]
    assert not any(question[-1] in flat(called.messages) for called in server.summarising())
    assert all(text.split()[0] in flat(next_request(server).messages) for text in question)


def test_b08_a_question_with_an_image_keeps_its_parts(cases, play, owner):
    case = cases("B08")
    server = play(case.script, CONTEXT_WINDOW=2000)
    case.profile()
    session = stored(owner, case.transcript)
    parts = [
        {"type": "text", "text": case.next_user},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]
    add(session, [{"role": "user", "content": parts}])
    ask(session, None)

    assert len(server.of("chat")) == 2
    assert next_request(server).messages[-1]["content"] == parts


def test_b08_in_the_middle_of_a_tool_loop_the_question_is_still_sent_verbatim(cases, play, owner):
    case = cases("B08")
    server = play(case.script, CONTEXT_WINDOW=2000)
    case.profile()
    session = stored(owner, case.transcript)
    add(session, [{"role": "user", "content": case.next_user}, call("search", "s1")])
    add(session, [result("s1", "MK-0897 found")])
    ask(session, None)

    messages = next_request(server).messages
    assert [called.status for called in server.of("chat")] == [400, 200]
    assert {"role": "user", "content": case.next_user} in messages
    served(case, messages)
    assert "MK-0897" in flat(messages)


# --- messages of the same time -------------------------------------------------------------------


def one_tick(case, server, owner):
    """The case's six messages of one moment, the first two covered by its summary."""
    case.profile()
    session = stored(owner, case.transcript[:2])
    summary = case.raw["stored_summaries"][0]
    assert summary["covers"] == [0, 1]
    summarised_as(server, session, summary["text"], keep_last_n=0)
    add(session, case.transcript[2:])
    return session


def test_b38_messages_of_one_moment_stay_in_order_and_none_is_skipped(cases, play, owner):
    case = cases("B38")
    server = play(case.script)
    session = one_tick(case, server, owner)
    times = {row.created_at for row in originals(session)}
    assert len(times) == 1
    assert SessionSummary.objects.get().last_message_created_at == times.pop()
    ask(session, case.next_user)

    check(case, server, session)
    front, *rest = next_request(server).messages
    assert (front["role"], "SUMMARY first two" in front["content"]) == ("system", True)
    assert rest == [
        *(case.lib.wire(m) for m in case.transcript[2:]),
        {"role": "user", "content": "g"},
    ]
    for hidden in ("MK-3801 a", "MK-3802 b"):
        assert hidden not in flat(next_request(server).messages)


@pytest.mark.parametrize("created", ["2020-01-01T00:00:00Z", "2026-01-05T10:00:00Z"])
def test_b38_a_message_with_an_older_time_is_sent_until_a_summary_covers_it(
    cases, play, owner, created
):
    case = cases("B38")
    server = play(case.script)
    session = one_tick(case, server, owner)
    late = {"role": "user", "content": "MK-3899 imported", "meta": {"created_at": created}}
    add(session, [late, {"role": "assistant", "content": "thanks " + "for this " * 40}])
    ask(session, case.next_user)
    assert "MK-3899 imported" in flat(next_request(server).messages)

    # The next summary reads it, and only then it is no longer sent word for word.
    add(session, talk(4))
    assert compact(session, keep_last_n=2).status == "succeeded"
    newest = SessionSummary.objects.latest("covers_through")
    assert "MK-3899" in newest.summary_text
    assert "MK-3899 imported" in [row.content for row in linked(newest)]
    assert "MK-3899 imported" not in flat(context_backend.preview(fresh(session)).messages)


def test_b38_calls_and_results_of_one_moment_stay_paired(cases, play, owner):
    case = cases("B38")
    server = play(case.script)
    case.profile(keep_last_n=3)
    moment = {"created_at": "2026-01-05T10:00:00Z"}
    wires = [{"role": "user", "content": "read all " + "please " * 40}]
    for number in range(20):
        wires += [call("read", f"t{number}"), result(f"t{number}", f"MK-{3820 + number} text")]
    session = stored(owner, [wire | {"meta": moment} for wire in wires])
    assert compact(session).status == "succeeded"
    ask(session, case.next_user)
    messages = next_request(server).messages
    served(case, messages)
    assert case.lib.markers(wires) <= case.lib.markers(messages)


# --- kept messages are sent in every turn after a compaction -------------------------------------


def all_messages(api, session):
    """Every row that GET messages returns, over all pages."""
    url, rows = f"/api/v1/sessions/{session.pk}/messages/?page_size=7", []
    while url:
        page = api.get(url)
        assert page.status_code == 200
        rows += page.json()["results"]
        url = page.json()["next"]
    return rows


def test_b40_kept_messages_are_sent_in_every_later_turn(cases, play, api, owner):
    case = cases("B40")
    server = play(case.script)
    case.profile()
    session = stored(owner, case.transcript)
    assert case.settings["force_compaction_at_turn"] == 1
    assert compact(session).status == "succeeded"
    ask(session, case.next_user)
    ask(session, case.raw["then_user"])
    ask(session, "three")

    check(case, server, session, count_min=lambda entry: _count_min(api, session, entry))
    four = [case.lib.wire(message) for message in case.transcript[-4:]]
    first, second, third = (called.messages for called in server.of("chat"))
    assert [m for m in first if m["role"] != "system"][:-1] == four
    for request, texts in (
        (second, ["one", "ok", "two"]),
        (third, ["one", "ok", "two", "ok", "three"]),
    ):
        countable = [m for m in request if m["role"] != "system"]
        assert countable[:4] == four
        assert [m["content"] for m in countable[4:]] == texts

    rows = all_messages(api, session)
    countable = [row for row in rows if row["kind"] == "message"]
    assert [row["content"] for row in countable[:20]] == [m["content"] for m in case.transcript]
    assert [row["content"] for row in countable[20:]] == ["one", "ok", "two", "ok", "three", "ok"]
    # The summary's mark stands between the last summarised and the first kept message.
    mark = next(index for index, row in enumerate(rows) if row["kind"] == "placeholder")
    assert mark == 16
    assert rows[mark]["metadata"]["type"] == "session_summary"


def _count_min(api, session, entry):
    assert len(all_messages(api, session)) >= entry["value"]


@pytest.mark.parametrize("single", [True, False])
def test_b40_requests_grow_only_at_their_end_until_the_next_compaction(cases, play, owner, single):
    case = cases("B40")
    server = play(case.script, SINGLE_LEADING_SYSTEM=single)
    case.profile(message_limit=12, keep_last_n=4)
    session = stored(owner, case.transcript, system_prompt="Be brief.")
    for number in range(12):
        ask(session, f"MK-{4050 + number} question {number} " + "dolor " * 30)
    requests = [called.messages for called in server.of("chat")]
    runs = CompactionRun.objects.filter(status="succeeded").count()
    broken = sum(later[: len(earlier)] != earlier for earlier, later in pairwise(requests))
    # The first run came before the first request; every other one changes the start once.
    assert runs > 1
    assert broken == runs - 1
    for request in requests:
        served(case, request)
        asked = case.lib.markers(request[-1:])
        assert asked
    seen = case.lib.markers(requests[-1])
    assert {f"MK-{4050 + number}" for number in range(12)} <= seen
    assert state(session).covered_messages < Message.objects.filter(kind="message").count()
