"""A model whose compactions fail is told on the front page the first time, until one succeeds."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from chatapp.models import Incident
from compaction.models import CompactionRun, ModelBreaker
from compaction.runs.failing import forget_failure, note_models
from compaction.runs.steps import ModelsTried
from compaction.vocabulary import failing_words
from tests.compaction.scraping import AUTHORIZED, let_scrape
from tests.compaction.support import NEVER, compact, say
from tests.compaction.test_front_page import page, panel, staff
from tests.factories import SessionFactory, profile, talk
from tests.fakes.model_server import ECHO_AND_ANSWER, ModelServer

pytestmark = pytest.mark.django_db


def error(status, message, code="", param=None):
    told = {"message": message, "code": code, "param": param, "type": "invalid_request_error"}
    return {"error": {"status": status, "body": {"error": told}}}


def summaries(reply):
    return [{"when": {"purpose": one}, "reply": reply} for one in ("summary", "merge")]


# What a summariser may answer, and what an operator reads of it.
FAILURES = {
    "a parameter": (
        error(400, "Unsupported parameter: 'max_tokens' (top_secret).", "unsupported_parameter",
              "max_tokens"),
        "max_tokens refused",
    ),
    "key": (error(401, "Incorrect API key provided.", "invalid_api_key"),
            "the server refused the key"),
    "quota": (error(429, "You exceeded your current quota.", "insufficient_quota"),
              "no credit or quota left"),
    "filter": (error(400, "The prompt was flagged.", "content_filter"),
               "the content filter refused it"),
    "spoiled": (error(400, "See 'failed_generation'.", "tool_use_failed"),
                "the answer broke off, or its server could not use it"),
    "empty": ({"text": ""}, "the answer was no summary"),
    "dots": ({"text": "." * 5_000}, "the answer was no summary"),
    "a tool": ({"tool_calls": [{"name": "read", "arguments": {}}]},
               "the answer was no summary"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("chatapp.llm.openai_client.FIRST_WAIT_SECONDS", 0.01)


@pytest.fixture
def session(owner, queued):
    profile(**NEVER, keep_last_n=2)
    return SessionFactory(owner=owner, wires=talk(10, marker=1))


def alerts(client):
    """Return address and words of every failing model among what needs a look."""
    item = r'data-kind="summariser_failing">.*?<a href="([^"]*)">([^<]*)</a>'
    found = re.findall(item, panel(page(client)), re.DOTALL)
    return [(unescape(url), unescape(said)) for url, said in found]


@pytest.mark.parametrize(("reply", "words"), FAILURES.values(), ids=FAILURES.keys())
def test_the_first_failure_stands_on_the_front_page(
    admin_client, session, model_server, reply, words
):
    assert alerts(admin_client) == []
    model_server.script = [*summaries(reply), *ECHO_AND_ANSWER]
    run = compact(session)
    assert run.status == "failed"
    moment = timezone.localtime(ModelBreaker.objects.get().failing_since)
    assert alerts(admin_client) == [
        (
            "/admin/compaction/modelbreaker/default/change/",
            f"Compactions of model default fail since {moment:%H:%M}: {words}.",
        )
    ]
    breaker = admin_client.get("/admin/compaction/modelbreaker/default/change/").text
    assert f"/admin/compaction/compactionrun/{run.pk}/change/" in breaker
    assert words in breaker


@pytest.mark.parametrize(("reply", "words"), FAILURES.values(), ids=FAILURES.keys())
def test_a_compaction_of_the_model_that_succeeds_ends_it(
    admin_client, session, model_server, reply, words
):
    model_server.script = [*summaries(reply), *ECHO_AND_ANSWER]
    compact(session)
    model_server.script = list(ECHO_AND_ANSWER)
    assert compact(session).status == "succeeded"
    assert alerts(admin_client) == []


def test_since_is_the_first_failure_and_why_the_last(admin_client, session, model_server):
    model_server.script = [*summaries(FAILURES["key"][0]), *ECHO_AND_ANSWER]
    compact(session)
    before = timezone.now() - timedelta(days=1, hours=3)
    ModelBreaker.objects.update(failing_since=before)
    model_server.script = [*summaries(FAILURES["quota"][0]), *ECHO_AND_ANSWER]
    last = compact(session)
    row = ModelBreaker.objects.get()
    assert (row.failing_since, row.failing_run) == (before, last.pk)
    local = timezone.localtime(before)
    ((_, said),) = alerts(admin_client)
    assert said == (
        f"Compactions of model default fail since {local.day} {local:%b}, {local:%H:%M}: "
        "no credit or quota left."
    )


def test_another_models_success_ends_nothing(
    admin_client, owner, session, model_server, use_models
):
    with ModelServer() as other:
        other.script = list(ECHO_AND_ANSWER)
        use_models(model_server.models() | {"other": other.models(NAME="other")["default"]})
        model_server.script = [*summaries(FAILURES["key"][0]), *ECHO_AND_ANSWER]
        compact(session)
        profile(**NEVER, keep_last_n=2, summary_model="other")
        assert compact(session).status == "succeeded"
    assert len(alerts(admin_client)) == 1


def test_a_model_that_another_one_stands_in_for_is_told_too(
    admin_client, session, model_server, use_models
):
    with ModelServer() as other:
        other.script = list(ECHO_AND_ANSWER)
        use_models(model_server.models() | {"other": other.models(NAME="other")["default"]})
        model_server.script = [*summaries(FAILURES["quota"][0]), *ECHO_AND_ANSWER]
        profile(**NEVER, keep_last_n=2, summary_model=["default", "other"])
        assert compact(session).status == "succeeded"
        assert "no credit or quota left" in alerts(admin_client)[0][1]
        model_server.script = list(ECHO_AND_ANSWER)
        session.refresh_from_db()
        again = SessionFactory(owner=session.owner, wires=talk(10, marker=1))
        assert compact(again).status == "succeeded"
    assert alerts(admin_client) == []


def test_a_name_that_is_no_models_is_told_by_itself(admin_client, session):
    row = profile(**NEVER, keep_last_n=2)
    type(row).objects.filter(pk=row.pk).update(parameters=NEVER | {"summary_model": "gone"})
    assert compact(session).error_code == "unknown_model"
    ((url, said),) = alerts(admin_client)
    assert url == "/admin/compaction/modelbreaker/gone/change/"
    assert said.startswith("Compactions of model gone fail since ")


def test_a_failure_before_a_request_stands_there_and_on_the_timeline(
    admin_client, owner, queued, model_server
):
    profile(message_limit=6, max_context_tokens=0, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6))
    model_server.script = [*summaries(FAILURES["key"][0]), *ECHO_AND_ANSWER]
    assert say(session).answer.content == "ok"
    assert len(alerts(admin_client)) == 1
    incident = Incident.objects.get(session=session, code="summaries_failing")
    assert "Compactions of model default fail." in incident.text
    timeline = admin_client.get(f"/admin/chatapp/session/{session.pk}/change/").text
    assert "A model&#x27;s summaries fail" in timeline


@pytest.mark.parametrize(
    "status_and_code",
    [("failed", "not_smaller"), ("failed", "lost_race"), ("cancelled", "cancelled"),
     ("skipped", "nothing_to_do"), ("skipped", "inline_limit"), ("failed", "interrupted"),
     ("skipped", "no_gain"), ("failed", "internal_error"), ("failed", "strategy_error")],
)  # fmt: skip
def test_what_is_one_conversations_matter_is_not_told_there(admin_client, session, status_and_code):
    status, code = status_and_code
    run = compact(session)
    run.status, run.error_code = status, code
    note_models(run, ModelsTried(answered={"default"}, last="default"))
    assert alerts(admin_client) == []


def test_a_summary_that_is_not_smaller_says_nothing_of_the_model(
    admin_client, session, model_server
):
    words = " ".join(f"word{number}" for number in range(3000))
    model_server.script = [*summaries({"text": words}), *ECHO_AND_ANSWER]
    profile(**NEVER, keep_last_n=2, ledger=False, quality_gate=False)
    compact(session)
    assert CompactionRun.objects.get().status == "failed"


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        ("compaction.runs.strategy.fault_of_outcome", "strategy_error"),
        ("compaction.runs.execution.store_summary", "internal_error"),
    ],
    ids=["strategy", "program"],
)
def test_a_fault_of_ours_is_told_with_its_run_and_not_of_the_model(
    admin_client, session, monkeypatch, broken, code
):
    def raising(*args, **options):
        raise_fault = {"strategy_error": lambda: "returned nothing"}.get(code)
        if raise_fault is None:
            raise RuntimeError("a fault of ours")
        return raise_fault()

    monkeypatch.setattr(broken, raising)
    run = compact(session)
    assert (run.status, run.error_code) == ("failed", code)
    assert alerts(admin_client) == []
    assert not ModelBreaker.objects.filter(failing_since__isnull=False).exists()
    assert not Incident.objects.filter(code="summaries_failing").exists()
    assert 'data-kind="compaction_failed"' in panel(page(admin_client))


def test_a_model_that_failed_in_a_run_is_not_charged_with_what_ended_it(session):
    """One that a second model stood in for; then a fault of ours ended the run."""
    run = compact(session)
    run.status, run.error_code, run.error = "failed", "internal_error", "An unexpected error."
    note_models(run, ModelsTried(answered={"second"}, failures={"default": "quota"}))
    told = Incident.objects.get(code="summaries_failing")
    assert told.text == "Compactions of model default fail."


def test_a_hand_takes_the_notice_off(admin_client, session, model_server):
    model_server.script = [*summaries(FAILURES["key"][0]), *ECHO_AND_ANSWER]
    compact(session)
    page_of = "/admin/compaction/modelbreaker/default/change/"
    assert 'value="forget_failure"' in admin_client.get(page_of).text
    chosen = {"action": "forget_failure", "_selected_action": ["default"]}
    admin_client.post("/admin/compaction/modelbreaker/", chosen, follow=True)
    assert 'value="forget_failure"' not in admin_client.get(page_of).text
    assert alerts(admin_client) == []
    with pytest.raises(Exception, match="Nothing is noted of compactions of default"):
        forget_failure("default")


def test_who_may_not_see_breakers_reads_nothing_of_them(session, model_server):
    model_server.script = [*summaries(FAILURES["key"][0]), *ECHO_AND_ANSWER]
    compact(session)
    client = staff("view_compactionrun", "view_sessionsummary")
    assert "fail since" not in page(client)


def test_the_servers_own_words_are_not_on_the_front_page(admin_client, session, model_server):
    model_server.script = [*summaries(FAILURES["a parameter"][0]), *ECHO_AND_ANSWER]
    compact(session)
    assert "top_secret" not in page(admin_client)


def test_it_costs_no_query_more(admin_client, session, model_server):
    with CaptureQueriesContext(connection) as before:
        page(admin_client)
    model_server.script = [*summaries(FAILURES["key"][0]), *ECHO_AND_ANSWER]
    compact(session)
    with CaptureQueriesContext(connection) as after:
        page(admin_client)
    assert len(after) == len(before)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("parameter_refused:temperature", "temperature refused"),
        ("parameter_refused", "the server did not take a parameter"),
        ("authentication", "the server refused the key"),
        ("out_of_time", "the run used up its time"),
        ("new_code", "new_code"),
    ],
)
def test_codes_are_told_in_a_few_words(code, words):
    assert failing_words(code) == words


def test_a_metric_says_which_models_fail(session, model_server, settings, monkeypatch):
    let_scrape(settings, monkeypatch)

    def told():
        lines = Client().get("/metrics", headers=AUTHORIZED).content.decode().splitlines()
        return [line for line in lines if line.startswith("palimpsest_compactions_failing{")]

    model_server.script = [*summaries(FAILURES["key"][0]), *ECHO_AND_ANSWER]
    compact(session)
    assert told() == ['palimpsest_compactions_failing{model="default"} 1.0']
    model_server.script = list(ECHO_AND_ANSWER)
    compact(session)
    assert told() == ['palimpsest_compactions_failing{model="default"} 0.0']
