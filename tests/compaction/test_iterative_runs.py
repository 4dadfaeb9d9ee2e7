"""Preset `checkpoint` at work: two calls of a split turn, what is stored, what its pages say."""

from __future__ import annotations

import threading
import time

import pytest
from django.db import connections
from django.urls import reverse

from chatapp import transcript
from chatapp.llm.registry import get_model
from chatapp.models import Message
from chatapp.transcript.writing import NewMessage
from compaction.admin.run_tree import arrange
from compaction.models import CompactionRun, ModelBreaker, SessionSummary
from compaction.profiles import save_profile
from compaction.runs.lifecycle import cancel_run
from compaction.runs.resummarize import resummarize
from compaction.runs.worker import execute_run
from tests.compaction.support import compact, sent, state
from tests.compaction.test_step_page import downloaded, steps_of, without_marks
from tests.factories import SessionFactory, call, result, store, talk, user
from tests.facts import code
from tests.fakes.model_server import ECHO_AND_ANSWER, ModelServer

threaded = pytest.mark.django_db(transaction=True)


def checkpoint(**changes):
    """The preset, with a tail that a test's conversation is longer than."""
    values = {"keep_recent_tokens": 60, "quality_gate": False} | changes
    return save_profile(name="point", base="checkpoint", parameters=values, make_default=True)


def long_turn(steps: int, *, first: int = 100) -> list[dict]:
    """One question and an agent's steps, each with a marker of its own."""
    wires = [user(f"{code(first)} Mend the tests.")]
    for number in range(1, steps + 1):
        path = f'{{"path": "tests/t{number}.py"}}'
        name = "edit_file" if number % 2 else "read_file"
        wires += [
            call(name, f"c{first}-{number}", path),
            result(f"c{first}-{number}", f"{code(first + number)} " + "lorem ipsum " * 20),
        ]
    return [*wires, {"role": "assistant", "content": "Nearly done."}]


@pytest.fixture
def server(use_models, queued):
    with ModelServer() as server:
        use_models(server.models())
        yield server


@pytest.fixture
def session(owner, server):
    checkpoint()
    return SessionFactory(owner=owner, wires=[*talk(3, marker=1), *long_turn(6)])


@pytest.mark.django_db
def test_a_split_turn_is_summarised_behind_the_history(session, server):
    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    assert sorted(one.purpose for one in server.calls) == ["prefix", "summary"]
    summary = SessionSummary.objects.get()
    history, turn = summary.summary_text.split("\n\n---\n\n**Turn Context (split turn):**\n\n")
    assert history == f"SUMMARY {code(1)} {code(2)} {code(3)}"
    assert turn.startswith(f"TURN {code(100)} {code(101)}")
    assert [step.kind for step in steps_of(run)] == ["chunk", "prefix"]
    assert run.model_calls == 2


@pytest.mark.django_db
def test_the_question_of_a_turn_that_goes_on_is_sent_verbatim_all_the_same(owner, server):
    checkpoint()
    session = SessionFactory(owner=owner, wires=[*talk(3), *long_turn(6)[:-1]])
    assert compact(session).status == "succeeded"
    assert code(100) in SessionSummary.objects.get().summary_text
    assert {"role": "user", "content": f"{code(100)} Mend the tests."} in sent(session)


@pytest.mark.django_db
def test_the_longest_answers_are_shares_of_the_reserve_up_to_the_models_own(
    owner, server, use_models
):
    checkpoint()
    for most, asked in ((65_536, [13_107, 8_192]), (4_096, [4_096, 4_096])):
        use_models(server.models(MAX_OUTPUT=most))
        server.calls.clear()
        compact(SessionFactory(owner=owner, wires=[*talk(3), *long_turn(6)]))
        by_purpose = {one.purpose: one.body["max_tokens"] for one in server.calls}
        assert [by_purpose["summary"], by_purpose["prefix"]] == asked


@pytest.mark.django_db
def test_the_second_compaction_updates_the_first_summary(session, server):
    compact(session)
    first = SessionSummary.objects.get()
    store(session, [*talk(3, marker=50), *long_turn(4, first=200)])
    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    assert [step.kind for step in steps_of(run)] == ["update", "prefix"]
    update, prefix = steps_of(run)
    assert update.texts == [first.summary_text]
    assert prefix.texts == []
    second = SessionSummary.objects.latest("created_at")
    assert second.previous == first
    assert code(1) in second.summary_text
    carried = [m["content"] for m in sent(session) if "<summary>" in str(m["content"])]
    assert len(carried) == 1
    assert first.summary_text not in carried[0]


@pytest.mark.django_db
def test_each_input_can_be_read_again_exactly_as_it_was_sent(admin_client, owner, server):
    checkpoint(result_chars_in_summary=50)
    thought = {
        "role": "assistant",
        "content": "Hm.",
        "reasoning_content": "Perhaps\nnot </recent>.",
    }
    wires = [*talk(2, marker=1), thought, *long_turn(5)]
    session = SessionFactory(owner=owner, wires=wires)
    run = compact(session, instructions="Keep the ports.")
    assert (run.status, run.error) == ("succeeded", "")
    asked = {one.purpose: one for one in server.calls}
    for step, purpose in zip(steps_of(run), ("summary", "prefix"), strict=True):
        system, told = (message["content"] for message in asked[purpose].messages)
        assert "[more characters" not in told
        assert "Keep the ports." in told
        assert downloaded(admin_client, step) == f"{system}\n\n{without_marks(told)}"
    told = asked["prefix"].messages[1]["content"]
    assert '[Assistant tool calls]: edit_file(path="tests/t1.py")' in told
    assert "more characters of this result were left out here]" in told
    assert "[Assistant thinking]: Perhaps" in asked["summary"].messages[1]["content"]


OVERFLOW = {"status": 400, "body": {"error": {"code": "context_length_exceeded", "message": "no"}}}


@pytest.mark.django_db
def test_two_halved_texts_are_two_trees_of_which_each_input_can_be_read_again(
    admin_client, owner, use_models, queued
):
    refusals = [
        {"when": {"purpose": one, "est_tokens_gt": most}, "reply": {"error": OVERFLOW}}
        for one, most in (("summary", 900), ("prefix", 1000))
    ]
    with ModelServer([*refusals, *ECHO_AND_ANSWER]) as server:
        use_models(server.models())
        checkpoint(bisect_min_messages=2, keep_recent_tokens=20)
        wires = [*talk(8, marker=1), *long_turn(20)]
        run = compact(SessionFactory(owner=owner, wires=wires))
    assert (run.status, run.error) == ("succeeded", "")
    steps = steps_of(run)
    kinds = [step.kind for step in steps]
    first_of_turn = kinds.index("prefix")
    assert set(kinds[:first_of_turn]) == {"chunk", "merge"}
    assert set(kinds[first_of_turn:]) == {"prefix", "merge"}
    nodes = arrange(steps)
    assert [node.step.kind for node in nodes if node.level == 0] == ["chunk", "prefix"]
    for node in nodes:
        if node.step.kind == "merge":
            assert [part.output for part in node.joins] == node.step.texts
    asked = {f"{m[0]['content']}\n\n{without_marks(m[1]['content'])}"
             for m in (one.messages for one in server.calls)}  # fmt: skip
    assert {downloaded(admin_client, step) for step in steps} == asked


@pytest.mark.django_db
def test_the_run_s_page_shows_both_roots(admin_client, session):
    run = compact(session)
    page = admin_client.get(reverse("admin:compaction_compactionrun_change", args=[run.pk])).text
    assert "1. chunk · ok" in page
    assert "2. prefix · ok" in page
    step = steps_of(run)[1]
    url = reverse("admin:compaction_compactionstep_change", args=[step.pk])
    assert "the beginning of a turn that the cut parts" in admin_client.get(url).text


@pytest.mark.django_db
@pytest.mark.parametrize("purpose", ["summary", "prefix"])
def test_one_call_that_fails_fails_the_run_and_stores_nothing(owner, use_models, queued, purpose):
    down = {"status": 401, "body": {"error": {"message": "no such key"}}}
    rule = {"when": {"purpose": purpose}, "reply": {"error": down}}
    with ModelServer([rule, *ECHO_AND_ANSWER]) as server:
        use_models(server.models())
        checkpoint()
        session = SessionFactory(owner=owner, wires=[*talk(3), *long_turn(6)])
        run = compact(session)
    assert (run.status, run.error_code) == ("failed", "summariser_error")
    assert not SessionSummary.objects.exists()
    assert state(session).cursor == 0
    # Both calls were paid for: each is a row.
    assert sorted(step.kind for step in steps_of(run)) == ["chunk", "prefix"]
    assert run.model_calls == 2


@pytest.mark.django_db
def test_files_are_sent_behind_the_text_counted_once_and_shown_to_no_update(session, server):
    compact(session)
    first = SessionSummary.objects.get()
    assert first.files_read == ["tests/t2.py", "tests/t4.py", "tests/t6.py"]
    assert first.files_modified == ["tests/t1.py", "tests/t3.py", "tests/t5.py"]
    assert "-files>" not in first.summary_text
    (carrier,) = [m["content"] for m in sent(session) if "<summary>" in str(m["content"])]
    assert "<read-files>\ntests/t2.py\ntests/t4.py\ntests/t6.py\n</read-files>" in carrier
    count = get_model("default").counter.count
    assert first.summary_tokens == count(first.sent_text) > count(first.summary_text)
    server.calls.clear()
    edits = [call("edit_file", "late", '{"path": "tests/t2.py"}'), result("late", "word " * 40)]
    store(session, [*talk(3, marker=50), user("Go on."), *edits, *talk(1)])
    assert compact(session).status == "succeeded"
    second = SessionSummary.objects.latest("created_at")
    assert second.files_read == ["tests/t4.py", "tests/t6.py"]
    assert "tests/t2.py" in second.files_modified
    assert not any("-files>" in one.text for one in server.calls)


@pytest.mark.django_db
@pytest.mark.parametrize("base", ["bisect", "sliding_window", "balanced"])
def test_files_are_sent_behind_a_text_under_headings_too(owner, server, base):
    values = {"keep_last_n": 4, "tail_keep_size": 4, "keep_recent_tokens": 60, "ledger": True}
    save_profile(name="others", base=base, parameters=values, make_default=True)
    session = SessionFactory(owner=owner, wires=[*talk(3, marker=1), *long_turn(6)])
    for number in (1, 2):
        run = compact(session)
        assert (run.status, run.error) == ("succeeded", "")
        summary = SessionSummary.objects.latest("created_at")
        assert summary.files_read[0] == "tests/t2.py"
        assert "-files>" not in summary.summary_text
        (carrier,) = [m["content"] for m in sent(session) if "<summary>" in str(m["content"])]
        assert "<read-files>\ntests/t2.py\n" in carrier
        assert "<modified-files>\ntests/t1.py\n" in carrier
        count = get_model("default").counter.count
        assert summary.summary_tokens == count(summary.sent_text) > count(summary.summary_text)
        store(session, [*talk(3, marker=50 * number), *long_turn(2, first=100 + 50 * number)])
    assert not any("-files>" in one.text for one in server.calls)


@pytest.mark.django_db
def test_summaries_that_stand_side_by_side_go_without_the_lists_they_share(owner, server):
    values = {"ledger": False, "quality_gate": False, "keep_last_n": 4}
    save_profile(name="bare", base="bisect", parameters=values, make_default=True)
    session = SessionFactory(owner=owner, wires=[*talk(3, marker=1), *long_turn(6)])
    assert compact(session).status == "succeeded"
    assert SessionSummary.objects.get().files_read
    assert not any("-files>" in str(message["content"]) for message in sent(session))


@pytest.mark.django_db
@pytest.mark.parametrize("purpose", ["summary", "prefix"])
def test_a_call_that_fails_beside_the_other_counts_once_at_the_breaker(
    owner, use_models, queued, purpose
):
    down = {"status": 500, "body": {"error": {"message": "down"}}}
    rule = {"when": {"purpose": purpose}, "reply": {"error": down, "delay_s": 0.5}}
    with ModelServer([rule, *ECHO_AND_ANSWER]) as server:
        use_models(server.models())
        checkpoint()
        run = compact(SessionFactory(owner=owner, wires=[*talk(3), *long_turn(6)]))
    assert (run.status, run.error_code) == ("failed", "summariser_error")
    # However often it was tried, it is one failure; the other call's success came before.
    assert len(server.of(purpose)) > 1
    assert list(ModelBreaker.objects.values_list("model", "failures")) == [("default", 1)]


@threaded
@pytest.mark.parametrize("slow", ["summary", "prefix"])
def test_the_time_of_a_run_bounds_both_calls_and_each_is_a_row(owner, use_models, queued, slow):
    script = [{"when": {"purpose": slow}, "reply": {"text": "late", "delay_s": 6.0}}]
    with ModelServer([*script, *ECHO_AND_ANSWER]) as server:
        use_models(server.models())
        profile = checkpoint()
        session = SessionFactory(owner=owner, wires=[*talk(3), *long_turn(6)])
        run = CompactionRun.objects.create(
            session=session, branch=session.branch, profile=profile, mode="background",
            trigger="manual", reason="manual",
        )  # fmt: skip
        began = time.monotonic()
        run = execute_run(run.pk, seconds=2)
        took = time.monotonic() - began
    assert took < 5
    assert (run.status, run.error_code) == ("failed", "summariser_error")
    assert not SessionSummary.objects.exists()
    assert sorted(step.kind for step in steps_of(run)) == ["chunk", "prefix"]
    late = {"summary": "chunk"}.get(slow, slow)
    assert run.steps.get(kind=late).outcome == "error"


@pytest.mark.django_db
@pytest.mark.parametrize("begins", ["note", "bash"])
def test_a_turn_that_begins_without_a_question_is_parted_there(owner, server, begins):
    checkpoint()
    session = SessionFactory(owner=owner, wires=talk(3, marker=1))
    text = f"{code(90)} Mend what is below."
    kinds = {
        "note": NewMessage(wire=user(text), kind=Message.Kind.NOTE),
        "bash": NewMessage(wire=user(text), metadata={"type": "bash_execution"}),
    }
    transcript.append(session.branch, [kinds[begins]])
    store(session, long_turn(6)[1:])
    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    assert [step.kind for step in steps_of(run)] == ["chunk", "prefix"]
    asked = {one.purpose: one.text for one in server.calls}
    assert code(90) in asked["prefix"]
    assert code(3) in asked["summary"]
    assert not {code(90), code(101)} & set(asked["summary"].split())


@pytest.mark.django_db
def test_what_a_hook_wrote_ends_the_chain_of_files(session):
    compact(session)
    SessionSummary.objects.update(from_hook=True)
    edits = [call("edit_file", "late", '{"path": "tests/t2.py"}'), result("late", "word " * 40)]
    store(session, [*talk(3, marker=50), user("Go on."), *edits, *talk(1)])
    assert compact(session).status == "succeeded"
    second = SessionSummary.objects.latest("created_at")
    assert (second.files_read, second.files_modified) == ([], ["tests/t2.py"])


@pytest.mark.django_db
def test_files_of_a_branch_that_was_left_are_taken_over_with_its_note(session):
    left = SessionSummary.objects.create(
        session=session,
        branch=session.branch,
        kind=SessionSummary.Kind.BRANCH,
        summary_text="tried it",
        trigger="branch",
        reason="branch",
        covers_from=0,
        covers_through=0,
        files_read=["left.py"],
        files_modified=["tests/t2.py"],
    )
    notes = [
        NewMessage(
            wire={"role": "user", "content": f"Note: {named}"},
            kind=Message.Kind.NOTE,
            metadata={"summary_id": named},
        )
        for named in (str(left.pk), "nobody's")
    ]
    transcript.append(session.branch, notes)
    store(session, talk(3, marker=70))
    assert compact(session).status == "succeeded"
    summary = SessionSummary.objects.get(kind="compaction")
    assert "left.py" in summary.files_read
    assert "tests/t2.py" in summary.files_modified
    assert "tests/t2.py" not in summary.files_read


@pytest.mark.django_db
def test_a_turn_over_http_goes_out_with_the_checkpoint_behind_the_prompt(
    api, owner, use_models, queued
):
    with ModelServer() as server:
        use_models(server.models(CONTEXT_WINDOW=3000, MAX_OUTPUT=500))
        checkpoint(keep_recent_tokens=300)
        session = SessionFactory(owner=owner, wires=[*talk(12, words=60, marker=1)])
        answer = api.post(
            f"/api/v1/sessions/{session.pk}/turns/",
            {"messages": [{"role": "user", "content": "And now?"}]},
            format="json",
        )
    assert answer.status_code in (200, 201), answer.content
    assert [one.purpose for one in server.calls] == ["summary", "chat"]
    messages = server.of("chat")[0].messages
    assert f"<summary>\nSUMMARY {code(1)}" in messages[0]["content"]
    assert messages[-1]["content"] == "And now?"


@pytest.mark.django_db
def test_a_new_version_parts_the_turn_again(session):
    compact(session)
    made = resummarize(SessionSummary.objects.get())
    assert (made.status, made.error) == ("succeeded", "")
    newest = SessionSummary.objects.get(status="active")
    assert "**Turn Context (split turn):**" in newest.summary_text


@threaded
def test_both_calls_are_on_their_way_at_the_same_time(owner, use_models, queued):
    # Neither is answered before the other has arrived.
    each_other = [{"when": {"purpose": one}, "reply": {"text": "told " * 3, "waits_for": other}}
                  for one, other in (("summary", "prefix"), ("prefix", "summary"))]  # fmt: skip
    with ModelServer(each_other) as server:
        use_models(server.models())
        checkpoint()
        session = SessionFactory(owner=owner, wires=[*talk(3), *long_turn(6)])
        run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    assert len(steps_of(run)) == 2
    assert [step.kind for step in steps_of(run)] == ["chunk", "prefix"]


@threaded
@pytest.mark.parametrize("slow", ["summary", "prefix"])
def test_a_cancellation_reaches_both_calls(owner, use_models, queued, slow):
    with ModelServer(ECHO_AND_ANSWER) as server, server.holding(slow):
        use_models(server.models())
        checkpoint()
        session = SessionFactory(owner=owner, wires=[*talk(3), *long_turn(6)])
        run = CompactionRun.objects.create(
            session=session, branch=session.branch, profile=checkpoint(), mode="background",
            trigger="manual", reason="manual",
        )  # fmt: skip

        def work() -> None:
            try:
                execute_run(run.pk)
            finally:
                connections.close_all()

        worker = threading.Thread(target=work)
        worker.start()
        server.wait_for("summary")
        server.wait_for("prefix")
        cancel_run(CompactionRun.objects.get(pk=run.pk))
        if slow == "summary":
            server.let_go(slow)
        # Nobody waits for the answer of a call that is not wanted any more: it never comes.
        worker.join(30)
        assert not worker.is_alive()
    run.refresh_from_db()
    assert run.status == "cancelled"
    assert not SessionSummary.objects.exists()
    assert sorted(step.kind for step in steps_of(run)) == ["chunk", "prefix"]
