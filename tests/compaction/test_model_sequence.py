"""Several models for summaries: who is asked next, for what, and what rows say of it."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from compaction.engine.parameters import Profile
from compaction.engine.profile import ProfileError, build, from_environment
from compaction.limits.circuit_breaker import record_failure
from compaction.models import CompactionProfile, CompactionStep, ModelBreaker, SessionSummary
from compaction.profiles import find_profile
from compaction.runs.resummarize import resummarize, summaries_to_redo
from compaction.runs.worker import execute_run
from tests.compaction.support import NEVER, compact
from tests.compaction.test_profile_page import page_of, save
from tests.factories import SessionFactory, profile, talk
from tests.facts import code
from tests.fakes.model_server import ECHO_AND_ANSWER, ModelServer

pytestmark = pytest.mark.django_db
SUMMARY = {"purpose": "summary"}
TOO_LONG = {
    "status": 400,
    "body": {"error": {"code": "context_length_exceeded", "message": "too long"}},
}


@pytest.fixture
def two(owner, use_models, queued):
    """Two summarising models, small and large, each with a server; and a session of a third."""
    with ModelServer() as small, ModelServer() as large:
        for server in (small, large):
            server.script = list(ECHO_AND_ANSWER)
        models = {
            "default": small.models(NAME="chat")["default"],
            "small": small.models(NAME="small-1")["default"],
            "large": large.models(NAME="large-1")["default"],
        }
        use_models(models)
        profile(**NEVER, keep_last_n=2, summary_model=["small", "large"])
        yield small, large


@pytest.fixture
def session(two, owner):
    return SessionFactory(owner=owner, wires=talk(20, marker=1))


def told(run):
    """Return model and outcome of every call, in order."""
    return list(run.steps.order_by("order").values_list("model", "outcome"))


def refused(status, code, message):
    return {"error": {"status": status, "body": {"error": {"code": code, "message": message}}}}


REFUSALS = {
    "key": refused(401, "invalid_api_key", "Incorrect API key provided."),
    "permission": refused(403, "forbidden", "This key may not use the model."),
    "quota": refused(429, "insufficient_quota", "You exceeded your current quota."),
    "unknown model": refused(404, "model_not_found", "The model small-1 does not exist."),
    "payment": refused(402, "payment_required", "Insufficient credit."),
    "region": refused(451, "unavailable", "Not available in your region."),
}
OF_NO_USE = {
    "empty": {"text": ""},
    "filtered": {"text": "I cannot say.", "finish_reason": "content_filter"},
    "refused": {"text": "I will not help with that.", "finish_reason": "refusal"},
    "dots": {"text": "." * 3_000},
    "a tool": {"tool_calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}]},
    "an error's text": {"text": "Error: upstream connect error or disconnect/reset."},
    "a dialogue": {"text": "User: hello\nAssistant: hello\nUser: and then?"},
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS.keys())
def test_the_next_model_is_asked_where_one_refuses(two, session, refusal):
    small, large = two
    small.script = [{"when": SUMMARY, "reply": refusal}]
    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    assert [outcome for _, outcome in told(run)] == ["error", "ok"]
    assert told(run)[0][0] == "small-1"
    assert len(small.summarising()), len(large.summarising()) == (1, 1)
    assert SessionSummary.objects.get().model == "large-1"
    assert run.model_calls == 2


@pytest.mark.parametrize("answer", OF_NO_USE.values(), ids=OF_NO_USE.keys())
def test_the_next_model_is_asked_where_the_answers_of_one_are_of_no_use(two, session, answer):
    small, _ = two
    small.script = [{"when": SUMMARY, "reply": answer}]
    run = compact(session)
    assert (run.status, run.error) == ("succeeded", "")
    assert [outcome for _, outcome in told(run)] == ["error"] * (run.model_calls - 1) + ["ok"]
    assert 1 <= len(small.summarising()) <= 2
    assert SessionSummary.objects.get().model == "large-1"


def test_the_first_model_answers_while_it_can(two, session):
    small, large = two
    run = compact(session)
    assert run.status == "succeeded"
    assert (len(small.summarising()), len(large.calls)) == (1, 0)
    assert SessionSummary.objects.get().model == "small-1"


def test_what_no_model_can_answer_fails_with_the_last_ones_sentence(two, session):
    for server, refusal in zip(two, (REFUSALS["key"], REFUSALS["quota"]), strict=True):
        server.script = [{"when": SUMMARY, "reply": refusal}]
    run = compact(session)
    assert (run.status, run.error_code) == ("failed", "summariser_error")
    assert "exceeded your current quota" in run.error
    assert [outcome for _, outcome in told(run)] == ["error", "error"]


def open_breaker(alias, seconds=600):
    now = timezone.now()
    ModelBreaker.objects.create(
        model=alias, failures=5, opened_at=now, retry_at=now + timedelta(seconds=seconds)
    )


def test_a_model_that_is_left_alone_is_passed_over(two, session):
    small, large = two
    open_breaker("small")
    assert compact(session).status == "succeeded"
    assert (len(small.calls), len(large.summarising())) == (0, 1)
    assert SessionSummary.objects.get().model == "large-1"
    assert ModelBreaker.objects.get().state == "open"


def test_a_run_waits_only_while_all_models_are_left_alone(two, session):
    open_breaker("small", 600)
    open_breaker("large", 60)
    run = compact(session)
    assert (run.status, run.error_code) == ("skipped", "breaker_open")
    assert "The model large is left alone" in run.error


def test_a_queued_run_waits_until_the_first_of_them_is_tried_again(two, session):
    open_breaker("small", 600)
    open_breaker("large", 60)
    run = compact(session)
    type(run).objects.filter(pk=run.pk).update(status="queued", mode="background", worker=None)
    execute_run(run.pk)
    run.refresh_from_db()
    assert (run.status, run.error_code) == ("queued", "breaker_open")
    assert run.waits_until == ModelBreaker.objects.get(model="large").retry_at


def test_each_breaker_hears_of_its_own_model_only(two, session):
    small, _ = two
    small.script = [{"when": SUMMARY, "reply": REFUSALS["quota"]}]
    record_failure("large", uuid.uuid4(), "503")
    compact(session)
    failures = dict(ModelBreaker.objects.values_list("model", "failures"))
    assert failures == {"small": 1, "large": 0}


@pytest.mark.parametrize("words", [1_500, 4_000])
def test_only_what_cannot_be_divided_goes_to_a_larger_model(two, owner, words):
    small, large = two
    small.script = [
        {"when": {"est_tokens_gt": 3_000}, "reply": {"error": TOO_LONG}},
        *ECHO_AND_ANSWER,
    ]
    huge = {"role": "user", "content": f"{code(900)} " + " ".join(f"item{n}" for n in range(words))}
    wires = [*talk(8, marker=1), huge, {"role": "assistant", "content": code(901)}, *talk(3)]
    profile(**NEVER, keep_last_n=2, summary_model=["small", "large"], bisect_min_messages=2)
    session = SessionFactory(owner=owner, wires=wires)
    run = compact(session)
    assert run.status == "succeeded", run.error
    assert len(large.summarising()) == 1
    assert code(900) in str(large.summarising()[0].body)
    last = run.steps.filter(outcome="ok").order_by("order").last()
    assert last.model != ""
    assert not SessionSummary.objects.get().truncated


def test_where_all_are_too_small_the_text_is_made_without_a_model(two, owner):
    for server in two:
        server.script = [
            {"when": {"est_tokens_gt": 3_000}, "reply": {"error": TOO_LONG}},
            *ECHO_AND_ANSWER,
        ]
    huge = {"role": "user", "content": " ".join(f"item{n}" for n in range(4_000))}
    profile(**NEVER, keep_last_n=0, summary_model=["small", "large"])
    session = SessionFactory(owner=owner, wires=[huge, {"role": "assistant", "content": "ok"}])
    run = compact(session)
    assert run.status == "succeeded", run.error
    assert SessionSummary.objects.get().truncated


def test_a_larger_model_that_refuses_spoils_nothing(two, owner):
    small, large = two
    small.script = [
        {"when": {"est_tokens_gt": 3_000}, "reply": {"error": TOO_LONG}},
        *ECHO_AND_ANSWER,
    ]
    large.script = [{"when": {}, "reply": REFUSALS["key"]}]
    huge = {"role": "user", "content": " ".join(f"item{n}" for n in range(4_000))}
    wires = [*talk(8, marker=1), huge, {"role": "assistant", "content": "ok"}, *talk(3)]
    run = compact(SessionFactory(owner=owner, wires=wires))
    assert run.status == "succeeded", run.error
    assert len(large.summarising()) == 1
    assert SessionSummary.objects.get().truncated


def test_a_model_that_never_answers_leaves_time_for_the_next(two, session):
    small, _ = two
    small.script = [{"when": SUMMARY, "reply": {"text": "late", "delay_s": 30}}]
    run = compact(session, seconds=8)
    assert run.status == "succeeded", run.error
    assert told(run)[0] == ("small-1", "error")
    # It was cut short by the run and not by the time that a call may take.
    assert not ModelBreaker.objects.exists()


def test_a_name_that_is_gone_is_left_out_where_another_is_there(two, session):
    row = find_profile()
    parameters = row.parameters | {"summary_model": ["gone", "large"]}
    CompactionProfile.objects.filter(pk=row.pk).update(parameters=parameters)
    assert compact(session).status == "succeeded"
    assert SessionSummary.objects.get().model == "large-1"


def test_an_empty_name_is_the_sessions_own_model(two, session):
    small, _ = two
    profile(**NEVER, keep_last_n=2, summary_model=["large", ""])
    two[1].script = [{"when": SUMMARY, "reply": REFUSALS["key"]}]
    assert compact(session).status == "succeeded"
    assert SessionSummary.objects.get().model == "chat"
    assert len(small.summarising()) == 1


def test_a_summary_of_any_of_them_need_not_be_made_again(two, session):
    small, _ = two
    compact(session)
    small.script = [{"when": SUMMARY, "reply": REFUSALS["key"]}]
    assert resummarize(SessionSummary.objects.get()).status == "succeeded"
    assert SessionSummary.objects.get(status="active").model == "large-1"
    assert summaries_to_redo(session) == []


def test_the_page_of_a_step_names_the_model_that_refused(two, session, admin_client):
    two[0].script = [{"when": SUMMARY, "reply": REFUSALS["key"]}]
    step = CompactionStep.objects.get(run=compact(session), outcome="error")
    page = admin_client.get(f"/admin/compaction/compactionstep/{step.pk}/change/").text
    assert "small-1" in page


# --- the parameter --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "models"),
    [
        ("", ("",)),
        ("small", ("small",)),
        (["small"], ("small",)),
        (["small", "large"], ("small", "large")),
        (("small", ""), ("small", "")),
        ([""], ("",)),
    ],
)
def test_a_text_or_a_list_of_texts_may_be_given(value, models):
    assert build(Profile(), {"summary_model": value}).summary_models == models


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([], "Must hold from 1 to 10 names."),
        (["a", "b", "a"], "Holds 'a' twice."),
        (["a", 1], "Must be a text, or a list of texts in the order in which they are tried."),
        ({"a": 1}, "Must be a text, or a list of texts in the order in which they are tried."),
        (None, "Must be a text, or a list of texts in the order in which they are tried."),
        ([["a"]], "Must be a text, or a list of texts in the order in which they are tried."),
        ([str(n) for n in range(11)], "Must hold from 1 to 10 names."),
    ],
)
def test_anything_else_is_refused_in_words(value, sentence):
    with pytest.raises(ProfileError) as refused:
        build(Profile(), {"summary_model": value})
    assert refused.value.errors == {"summary_model": sentence}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("small", "small"),
        ("small, large", ["small", "large"]),
        ("small,large,", ["small", "large"]),
        ("small, (the session's own)", ["small", ""]),
        ("(the session's own), large", ["", "large"]),
        ("(the session's own)", ""),
    ],
)
def test_the_form_takes_aliases_with_commas_between(two, admin_client, text, value):
    row = profile("mine", message_limit=50)
    save(admin_client, row, summary_model=text)
    made = find_profile("mine")
    assert made.parameters["summary_model"] == value
    shown = admin_client.get(page_of(made)).context["adminform"].form["summary_model"]
    assert shown.value() == text.rstrip(",").replace("small,large", "small, large")
    assert '<option value="large">' in str(shown)


def test_each_alias_must_be_a_models(two):
    row = CompactionProfile(
        name="x", base="bisect", parameters={"summary_model": ["small", "gpt-9"]}
    )
    with pytest.raises(ValidationError, match="No model is called 'gpt-9' here"):
        row.clean()


def test_versions_are_compared_by_the_order_of_their_models(two, admin_client):
    row = profile("mine", summary_model="small")
    save(admin_client, row, summary_model="small, large")
    page = admin_client.get(page_of(find_profile("mine"))).text
    assert "<code>summary_model</code> <bdi>small</bdi> → <bdi>small, large</bdi>" in page


@pytest.mark.parametrize("preset", ["bisect", "sliding_window"])
def test_a_variable_names_them_for_every_preset(preset):
    environment = {"SUMMARY_MODEL": " small , large "}
    assert from_environment(environment, preset) == {"summary_model": ["small", "large"]}
    assert from_environment({"SUMMARY_MODEL": "small"}, preset) == {"summary_model": "small"}
