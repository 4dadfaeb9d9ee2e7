"""Hooks: asked before compactions and requests, checked, and never able to break a turn."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from chatapp.incidents import Kind
from chatapp.models import Incident, Message
from compaction import hooks
from compaction.branches.snapshot import snapshot_of
from compaction.checks import check_hooks
from compaction.hooks import BranchAnswer, Cancel, Replacement
from compaction.models import CompactionRun, CompactionStep, SessionSummary
from compaction.profiles import save_profile
from compaction.runs.resummarize import resummarize
from compaction.signals import branch_switched, compacted, compaction_failed
from tests.compaction import toy_hooks as toys
from tests.compaction.support import NEVER, compact, say, sent, state
from tests.factories import SessionFactory, call, profile, result, store, talk, user
from tests.fakes.strict_checker import faults

pytestmark = pytest.mark.django_db
FIRST, SECOND = f"{toys.HERE}.First", f"{toys.HERE}.Second"


@pytest.fixture
def use_hooks(settings):
    """Register hooks: use_hooks("path.One", …); every scripted one begins without an answer."""
    for one in (toys.First, toys.Second):
        one.compact = one.branch = one.request = None
        one.given = []

    def register(*paths: str, **more: Any) -> None:
        settings.COMPACTION = settings.COMPACTION | {"HOOKS": paths} | more

    return register


@pytest.fixture
def session(owner, model_server):
    profile(**NEVER, keep_last_n=4)
    return SessionFactory(owner=owner, wires=talk(6, marker=1))


def ids(session) -> list[str]:
    rows = Message.objects.filter(branch=session.branch, kind=Message.Kind.MESSAGE)
    return [str(pk) for pk in rows.order_by("position").values_list("pk", flat=True)]


def answering(answer: Any):
    """A method of a scripted hook that always answers this; what is callable is called."""
    return staticmethod(answer if callable(answer) else lambda *given: answer)


# --- before a compaction --------------------------------------------------------------------------


def test_a_hook_is_shown_what_would_be_summarised_and_what_stays(session, use_hooks):
    use_hooks(FIRST)
    run = compact(session, instructions="Mind the numbers")
    assert run.status == "succeeded"
    [payload] = toys.First.given
    assert [one.id for one in payload.messages] == ids(session)[:8]
    assert [one.id for one in payload.kept] == ids(session)[8:]
    assert payload.first_kept == ids(session)[8]
    assert (payload.trigger, payload.reason, payload.instructions) == (
        "manual",
        "manual",
        "Mind the numbers",
    )
    # Of the whole request: prompt, frames and all.
    assert payload.tokens_before == run.tokens_before > 0
    assert (payload.is_split_turn, payload.turn_prefix, payload.will_retry) == (False, (), False)
    assert not SessionSummary.objects.get().from_hook


def test_a_replacement_is_stored_without_a_model_call(session, use_hooks, model_server):
    toys.First.compact = answering(Replacement(summary="All is well.", details={"n": [1]}))
    use_hooks(FIRST)
    run = compact(session)
    assert (run.status, run.error, run.model_calls) == ("succeeded", "", 0)
    summary = SessionSummary.objects.get()
    assert (summary.summary_text, summary.from_hook, summary.details, summary.model) == (
        "All is well.",
        True,
        {"n": [1]},
        FIRST,
    )
    assert [str(one.message_id) for one in summary.links.order_by("message__position")] == (
        ids(session)[:8]
    )
    assert model_server.calls == []
    assert "All is well." in sent(session)[0]["content"]


def test_a_hook_stands_in_for_a_summarising_model_that_is_gone(
    owner, use_hooks, model_server, settings
):
    models = settings.CHATAPP["MODELS"]
    settings.CHATAPP = settings.CHATAPP | {"MODELS": models | {"gone": models["default"]}}
    profile(message_limit=4, max_context_tokens=0, keep_last_n=1, summary_model="gone")
    settings.CHATAPP = settings.CHATAPP | {"MODELS": models}
    session = SessionFactory(owner=owner, wires=talk(4))
    toys.First.compact = answering(Replacement(summary="All is well."))
    use_hooks(FIRST)
    assert say(session, "go on").answer is not None
    run = CompactionRun.objects.get()
    assert (run.status, run.error) == ("succeeded", "")


def test_what_a_hook_stored_comes_back_and_is_given_to_the_next_one(session, use_hooks):
    toys.First.compact = answering(Replacement(summary="Part one.", details={"seen": 8}))
    use_hooks(FIRST)
    compact(session)
    store(session, talk(4, marker=50))
    compact(session)
    second = toys.First.given[1]
    assert (second.previous_summary, second.previous_details) == ("Part one.", {"seen": 8})
    assert [one.id for one in second.messages] == ids(session)[8:16]


@pytest.mark.parametrize("number", [6, 10])
def test_first_kept_moves_the_cut_both_ways(session, use_hooks, number):
    wanted = ids(session)[number]
    toys.First.compact = answering(Replacement(summary="Short.", first_kept=wanted))
    use_hooks(FIRST)
    assert compact(session).status == "succeeded"
    summary = SessionSummary.objects.get()
    assert summary.message_count == number
    assert state(session).cursor == summary.covers_through
    assert [one["content"] for one in sent(session)[1:]] == [
        row.content
        for row in Message.objects.filter(pk__in=ids(session)[number:]).order_by("position")
    ]


@pytest.mark.parametrize("number", [3, 4])
def test_what_nobody_has_answered_stays_whatever_a_hook_wants(
    owner, use_hooks, model_server, number
):
    profile(**NEVER, keep_last_n=1)
    asked = [user(f"open question {n}") for n in range(3)]
    session = SessionFactory(owner=owner, wires=[*talk(1), *asked])
    wanted = ids(session)[number]
    toys.First.compact = answering(Replacement(summary="Short.", first_kept=wanted))
    use_hooks(FIRST)
    compact(session)
    contents = [one["content"] for one in sent(session)]
    # The newest message is the open question; whatever the hook kept behind its cut is sent, too.
    assert contents[-1] == "open question 2"


def test_what_one_hook_does_to_its_payload_is_not_the_next_ones(session, use_hooks):
    toys.First.compact = answering(Replacement(summary="Part one.", details={"seen": [1]}))
    use_hooks(FIRST)
    compact(session)
    store(session, talk(4, marker=50))

    def spoil(payload):
        payload.previous_details["seen"].append(2)

    toys.First.compact = answering(spoil)
    use_hooks(FIRST, SECOND)
    compact(session)
    assert toys.Second.given[-1].previous_details == {"seen": [1]}


def test_tokens_before_of_a_hook_are_stored_as_they_are_and_the_run_measures(session, use_hooks):
    toys.First.compact = answering(Replacement(summary="Short.", tokens_before=999))
    use_hooks(FIRST)
    run = compact(session)
    assert SessionSummary.objects.get().tokens_before == 999
    assert run.tokens_before != 999


def test_the_cut_may_not_part_a_call_from_its_results(owner, use_hooks, model_server):
    profile(**NEVER, keep_last_n=2)
    wires = [*talk(3), user("Read it"), call("read", "c1"), result("c1", "lorem " * 50)]
    session = SessionFactory(owner=owner, wires=[*wires, *talk(2)])
    # The result of the call that stands before it.
    toys.First.compact = answering(Replacement(summary="Short.", first_kept=ids(session)[8]))
    use_hooks(FIRST)
    assert compact(session).status == "succeeded"
    assert not SessionSummary.objects.get().from_hook
    assert "would part a tool call" in CompactionStep.objects.get(kind="hook").error


class Unreadable:
    """Cannot be written as a text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


NONSENSE = {
    "blank": Replacement(summary=" \n "),
    "no text": Replacement(summary=None),
    "larger": Replacement(summary="lorem ipsum " * 5000),
    "strange id": Replacement(summary="x", first_kept="5f0c9d2e-0000-4000-8000-000000000000"),
    "no id": Replacement(summary="x", first_kept=17),
    "first of all": lambda payload: Replacement(summary="x", first_kept=payload.messages[0].id),
    "details": Replacement(summary="x", details={"a": object()}),
    "details in a list": Replacement(summary="x", details=[1]),
    "much": Replacement(summary="x", details={"a": "x" * 300_000}),
    "tokens": Replacement(summary="x", tokens_before="many"),
    "a huge number of tokens": Replacement(summary="x", tokens_before=10**30),
    "tokens below nothing": Replacement(summary="x", tokens_before=-5),
    "not a number": Replacement(summary="x", details={"a": float("nan")}),
    "an id that cannot be read": Replacement(summary="x", first_kept=Unreadable()),
    "a text": "a summary",
    "a number": 42,
    "another answer": BranchAnswer(summary="x"),
    "raises": lambda payload: 1 / 0,
    "exits": lambda payload: exit(3),
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_nonsense_is_passed_over_and_the_default_goes_on(session, use_hooks, kind):
    toys.First.compact = answering(NONSENSE[kind])
    use_hooks(FIRST)
    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    summary = SessionSummary.objects.get()
    assert (summary.from_hook, summary.details) == (False, {})
    [step] = CompactionStep.objects.filter(run=run, kind="hook")
    assert (step.outcome, step.code) == ("error", "hook_failed")
    assert FIRST in step.error
    incident = Incident.objects.get(code="hook_failed")
    assert (incident.kind, FIRST in incident.text) == (Kind.WARNING, True)


def test_hooks_are_asked_in_order_and_the_last_answer_counts(session, use_hooks):
    toys.First.compact = answering(Replacement(summary="First."))
    toys.Second.compact = answering(Replacement(summary="Second."))
    use_hooks(FIRST, SECOND)
    compact(session)
    assert SessionSummary.objects.get().summary_text == "Second."
    use_hooks(SECOND, FIRST)
    store(session, talk(4))
    compact(session)
    assert SessionSummary.objects.latest("covers_through").summary_text == "First."


def test_one_that_fails_does_not_take_the_answer_of_the_other(session, use_hooks):
    toys.First.compact = answering(Replacement(summary="First."))
    toys.Second.compact = answering(lambda payload: 1 / 0)
    use_hooks(FIRST, SECOND)
    compact(session)
    assert SessionSummary.objects.get().summary_text == "First."
    assert "ZeroDivisionError" in CompactionStep.objects.get(kind="hook").error


def test_cancel_stops_at_once_and_changes_nothing(session, use_hooks, api):
    before = sent(session)
    toys.First.compact = answering(Cancel("The customer is still typing."))
    toys.Second.compact = answering(Replacement(summary="Second."))
    use_hooks(FIRST, SECOND)
    address = reverse("compact", args=[session.pk])
    answer = api.post(address, {"wait": True}, format="json")
    assert (answer.data["status"], answer.data["error_code"]) == ("cancelled", "hook_cancelled")
    assert "The customer is still typing." in answer.data["error"]
    assert toys.Second.given == []
    assert not SessionSummary.objects.exists()
    assert sent(session) == before


def test_a_cancelled_automatic_compaction_costs_no_turn_and_is_not_tried_at_each(
    owner, use_hooks, model_server
):
    profile(message_limit=4, max_context_tokens=0, keep_last_n=1)
    session = SessionFactory(owner=owner, wires=talk(4))
    toys.First.compact = answering(Cancel("Not now."))
    use_hooks(FIRST)
    for number in range(3):
        assert say(session, f"question {number}").answer is not None
    run = CompactionRun.objects.get()
    assert (run.status, run.error_code) == ("cancelled", "hook_cancelled")
    assert state(session).backoff_until is not None


def test_a_hook_that_takes_too_long_is_passed_over(session, use_hooks):
    use_hooks(f"{toys.HERE}.Slow", HOOK_SECONDS=1)
    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    assert "longer than 1 second (COMPACTION_HOOK_SECONDS)" in (
        CompactionStep.objects.get(kind="hook").error
    )


def test_a_hook_that_cannot_be_made_is_left_out_and_a_check_names_it(session, use_hooks):
    paths = (f"{toys.HERE}.Broken", f"{toys.HERE}.Nothing", "no.such.module.Hook", FIRST)
    use_hooks(*paths)
    found = check_hooks()
    assert [one.id for one in found] == ["compaction.E010"] * 3
    assert "no such service" in found[0].msg
    assert "has none of before_compact" in found[1].msg
    assert "no.such.module" in found[2].msg
    assert compact(session).status == "succeeded"
    assert len(toys.First.given) == 1


def test_secrets_of_a_hooks_summary_are_hidden_as_in_any_other(session, use_hooks):
    key = "AKIA" + "IOSFODNN7EXAMPLE"
    toys.First.compact = answering(Replacement(summary=f"The key is {key} today."))
    use_hooks(FIRST)
    compact(session)
    assert key not in SessionSummary.objects.get().summary_text


def test_a_summary_that_is_made_again_asks_hooks_too_but_covers_what_it_did(session, use_hooks):
    compact(session)
    old = SessionSummary.objects.get()
    toys.First.compact = answering(
        lambda payload: Replacement(summary="Anew.", first_kept=payload.messages[2].id)
    )
    use_hooks(FIRST)
    assert resummarize(old).status == "succeeded"
    assert not SessionSummary.objects.get(status="active").from_hook
    toys.First.compact = answering(Replacement(summary="Anew."))
    assert resummarize(SessionSummary.objects.get(status="active")).status == "succeeded"
    new = SessionSummary.objects.get(status="active")
    assert (new.summary_text, new.from_hook) == ("Anew.", True)
    assert new.message_count == old.message_count


def test_one_that_is_no_smaller_in_its_frame_is_passed_over(session, use_hooks):
    covered = Message.objects.filter(pk__in=ids(session)[:8])
    total = sum(covered.values_list("tokens", flat=True))
    counter = snapshot_of(session).model.counter
    text = "word"
    while counter.count(f"{text} word") < total - 1:
        text += " word"
    toys.First.compact = answering(Replacement(summary=text))
    use_hooks(FIRST)
    # A person may ask for what is no smaller in its frame; nobody did.
    run = compact(session, trigger="proactive", reason="rest")
    assert (run.status, run.error) == ("succeeded", "")
    assert not SessionSummary.objects.get().from_hook
    assert "was not stored" in CompactionStep.objects.get(kind="hook").error


def test_what_a_hook_left_out_is_still_continued_by_the_next_summary(
    owner, use_hooks, model_server
):
    parameters = {"keep_recent_tokens": 50, "quality_gate": False, "reserve_tokens": 1000}
    save_profile(name="point", base="checkpoint", parameters=parameters, make_default=True)
    model_server.script = [{"when": {}, "reply": {"text": "## Goal\nZEBRA is what matters here."}}]
    session = SessionFactory(owner=owner, wires=talk(8, marker=1))
    assert compact(session).status == "succeeded"
    toys.First.compact = answering(Replacement(summary="An index only: a.py."))
    use_hooks(FIRST)
    store(session, talk(6, marker=40))
    assert compact(session).status == "succeeded"
    assert any("ZEBRA" in str(one) for one in sent(session))
    use_hooks()
    store(session, talk(6, marker=80))
    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    given = str(model_server.calls[-1].messages)
    assert "ZEBRA" in given
    assert "An index only" in given


def test_no_row_of_ours_is_given_and_nothing_of_it_can_be_changed(session, use_hooks):
    seen = []

    def look(payload):
        seen.extend(
            type(getattr(payload, name)).__module__.split(".")[0]
            for name in payload.__dataclass_fields__
        )
        with pytest.raises(AttributeError):
            payload.reason = "mine"

    toys.First.compact = answering(look)
    use_hooks(FIRST)
    assert compact(session).status == "succeeded"
    assert set(seen) == {"builtins"}


def test_the_example_keeps_its_index_through_compactions(owner, use_hooks, model_server):
    use_hooks(f"{toys.HERE}.ArtifactIndex")
    profile(**NEVER, keep_last_n=2)
    session = SessionFactory(owner=owner)
    paths = ["src/app.py", "docs/plan.md", "src/app.py", "notes.txt"]
    for number, path in enumerate(paths):
        arguments = f'{{"path": "{path}", "content": "lorem"}}'
        written = [call("write", f"c{number}", arguments), result(f"c{number}", "ok " * 60)]
        store(session, [user(f"Write {path}\n" + "lorem " * 60), *written, *talk(2)])
        assert compact(session).status == "succeeded"
    newest = SessionSummary.objects.latest("covers_through")
    assert newest.details["artifacts"] == {"src/app.py": 2, "docs/plan.md": 1, "notes.txt": 1}
    assert "- src/app.py (written 2 times)" in newest.summary_text
    assert newest.details["asked"][0] == "Write src/app.py"
    assert any(newest.summary_text in one["content"] for one in sent(session))


# --- before a request -----------------------------------------------------------------------------


def prefix(text: str):
    """A hook's answer: every message, and a note before the last."""

    def change(messages, facts):
        return [*messages[:-1], {"role": "user", "content": text}, messages[-1]]

    return change


def test_a_request_goes_out_as_the_hooks_make_it_and_nothing_stored_changes(
    session, use_hooks, model_server, api
):
    toys.First.request = answering(prefix("It is Friday."))
    toys.Second.request = answering(prefix("It rains."))
    use_hooks(FIRST, SECOND)
    rows = Message.objects.count()
    say(session, "And now?")
    request = model_server.calls[-1].messages
    assert [one["content"] for one in request[-3:]] == ["It is Friday.", "It rains.", "And now?"]
    assert faults(request) == []
    assert Message.objects.count() == rows + 2
    shown = api.get(reverse("context", args=[session.pk])).json()
    assert "It rains." in [one["content"] for one in shown["messages"]]
    assert shown["facts"]["changed_by_hook"] == SECOND


def test_the_account_counts_what_a_hook_adds_and_takes_away(session, use_hooks, model_server):
    from chatapp.context.backend import context_backend

    plain = context_backend.preview(session).account
    toys.First.request = answering(
        lambda messages, facts: [{"role": "system", "content": "lorem " * 40}, *messages[4:]]
    )
    use_hooks(FIRST)
    changed = context_backend.preview(session).account
    rows = list(Message.objects.filter(branch=session.branch).order_by("position"))
    gone = sum(row.tokens for row in rows[:4])
    assert changed.kept == plain.kept - gone
    assert changed.system > plain.system + 30


BAD_REQUESTS = {
    "nothing left": lambda messages, facts: [],
    "no question": lambda messages, facts: messages[:-1],
    "question changed": lambda messages, facts: [
        *messages[:-1],
        {"role": "user", "content": "Something else"},
    ],
    "late system": lambda messages, facts: [
        *messages[:-1],
        {"role": "system", "content": "Obey"},
        messages[-1],
    ],
    "blank": lambda messages, facts: [{"role": "user", "content": " "}, *messages],
    "call alone": lambda messages, facts: [call("read", "c9"), *messages],
    "result alone": lambda messages, facts: [result("c9"), *messages],
    "unknown role": lambda messages, facts: [{"role": "king", "content": "x"}, *messages],
    "no object": lambda messages, facts: ["hello", *messages],
    "an object": lambda messages, facts: [
        {"role": "user", "content": "hi", "x": object()},
        *messages,
    ],
    "another key": lambda messages, facts: [{"role": "user", "content": "x", "y": 1}, *messages],
    "no text as a key": lambda messages, facts: [{"role": "user", "content": "x", 5: 1}, *messages],
    "half a sign": lambda messages, facts: [{"role": "user", "content": "\ud800"}, *messages],
    "an old role": lambda messages, facts: [{"role": "function", "content": "x"}, *messages],
    "a text": lambda messages, facts: "hello",
    "a number": lambda messages, facts: 7,
    "raises": lambda messages, facts: 1 / 0,
}


@pytest.mark.parametrize("kind", BAD_REQUESTS)
def test_a_bad_answer_is_dropped_and_the_request_goes_out_as_it_was(
    session, use_hooks, model_server, kind
):
    use_hooks()
    before = sent(session)
    toys.First.request = answering(BAD_REQUESTS[kind])
    use_hooks(FIRST)
    assert say(session, "And now?").answer is not None
    assert model_server.calls[-1].messages[:-1] == before
    assert Incident.objects.get(code="hook_failed").kind == Kind.WARNING


def test_a_hook_cannot_change_what_others_hold_of_a_message(session, use_hooks, model_server):
    def spoil(messages, facts):
        messages[0]["content"] = "spoiled"

    toys.First.request = answering(spoil)
    use_hooks(FIRST)
    say(session, "And now?")
    assert "spoiled" not in str(model_server.calls[-1].messages)


def test_without_hooks_nothing_is_copied_or_asked(session, use_hooks, monkeypatch):
    use_hooks()
    monkeypatch.setattr(hooks, "_in_time", lambda *given: pytest.fail("somebody was asked"))
    compact(session)
    sent(session)


# --- signals --------------------------------------------------------------------------------------


@pytest.fixture
def heard():
    """Every signal that was sent: (signal, its facts)."""
    found: list[tuple[Any, dict[str, Any]]] = []

    def hear(signal, **facts):
        facts.pop("sender")
        found.append((signal, facts))

    known = (compacted, compaction_failed, branch_switched)
    for signal in known:
        signal.connect(hear)
    yield found
    for signal in known:
        signal.disconnect(hear)


def test_a_compaction_is_told_after_the_commit_with_ids_and_numbers(
    session, heard, django_capture_on_commit_callbacks
):
    with django_capture_on_commit_callbacks(execute=True):
        run = compact(session)
        assert heard == []
    summary = SessionSummary.objects.get()
    assert heard == [
        (
            compacted,
            {
                "session": str(session.pk),
                "branch": str(session.branch.pk),
                "run": str(run.pk),
                "trigger": "manual",
                "reason": "manual",
                "summary": str(summary.pk),
                "tokens_before": summary.tokens_before,
                "tokens_after": summary.tokens_after,
                "messages": 8,
                "is_draft": False,
                "from_hook": False,
            },
        )
    ]


def test_a_failure_and_a_hooks_cancel_are_told(
    session, heard, use_hooks, model_server, django_capture_on_commit_callbacks
):
    model_server.script = [{"reply": {"status": 400, "error": {"message": "no"}}}]
    with django_capture_on_commit_callbacks(execute=True):
        failed = compact(session)
    toys.First.compact = answering(Cancel("No."))
    use_hooks(FIRST)
    with django_capture_on_commit_callbacks(execute=True):
        compact(session)
    assert [(signal, facts["code"], facts["aborted"]) for signal, facts in heard] == [
        (compaction_failed, failed.error_code, False),
        (compaction_failed, "hook_cancelled", True),
    ]


def test_a_receiver_that_fails_fails_nobody(session, django_capture_on_commit_callbacks):
    def fail(**facts):
        raise RuntimeError("nobody listens")

    compacted.connect(fail)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            assert compact(session).status == "succeeded"
    finally:
        compacted.disconnect(fail)
