"""Archives beside summaries: nothing that was known is forgotten, whatever an outage lasts."""

from __future__ import annotations

import pytest

from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionState, ModelBreaker, SessionSummary
from compaction.runs.resummarize import resummarize
from compaction.runs.scheduling import check_branch
from compaction.runs.worker import execute_run
from compaction.summaries.restore import restore_summary
from tests.compaction.clock import Conversation
from tests.compaction.support import say, sent, texts
from tests.compaction.test_window import failing, window
from tests.compaction.test_window_in_trouble import outage
from tests.factories import store, user
from tests.facts import CODE_PATTERN, code
from tests.fakes.model_server import echo_and_answer

pytestmark = pytest.mark.django_db


@pytest.fixture
def conversation(monkeypatch, model_server, owner, queued) -> Conversation:
    model_server.script = echo_and_answer(CODE_PATTERN)
    window()
    return Conversation(monkeypatch, owner=owner)


FACTS = " ".join(f"The value of item {n} is {n * n}." for n in range(120))
WORDS = "words that say a little more than nothing, as people do when they talk"
ANSWERS = [
    {"when": {"purpose": "summary"}, "reply": {"text": "what was said"}},
    {"when": {"purpose": "chat"}, "reply": {"text": "ok"}},
]


def knows_the_facts(text: str) -> bool:
    return all(f"The value of item {n} is {n * n}." in text for n in range(120))


@pytest.fixture
def remembered(conversation, model_server) -> Conversation:
    """Twelve long messages, summarised as many facts, and forty short ones."""
    model_server.script = ANSWERS
    store(conversation.session, [user(f"{code(n)} " + "long words " * 200) for n in range(12)])
    store(conversation.session, [user(f"{code(n)} {WORDS}") for n in range(12, 52)])
    assert execute_run(check_branch(conversation.session).pk).status == "succeeded"
    tokens = snapshot_of(conversation.session).model.counter.count(FACTS)
    SessionSummary.objects.update(summary_text=FACTS, summary_tokens=tokens)
    return conversation


def test_an_outage_costs_no_memory(remembered, model_server):
    """Archives stand beside the summary, and each one holds what those before it did."""
    outage()
    for n in range(30):
        say(remembered.session, f"{code(n + 52)} a question {WORDS}")
    uses_digest = SessionSummary.objects.filter(is_digest=True)
    assert uses_digest.count() > 3
    request = model_server.of("chat")[-1].text
    assert knows_the_facts(request)
    assert [n for n in range(12, 82) if code(n) not in request] == []
    assert request.count("[Archive") == 1


def test_after_an_outage_the_next_summary_takes_in_all_that_was_known(remembered, model_server):
    outage()
    for n in range(30):
        say(remembered.session, f"{code(n + 52)} a question {WORDS}")
    covered = remembered.covered
    ModelBreaker.objects.all().delete()
    CompactionState.objects.update(backoff_until=None)
    run = execute_run(check_branch(remembered.session).pk)
    assert run.status == "succeeded"
    asked = model_server.of("summary")[-1].text
    assert knows_the_facts(asked)
    assert [n for n in range(12, covered) if code(n) not in asked] == []
    summary = SessionSummary.objects.get(run=run)
    assert summary.previous.is_digest
    say(remembered.session, "and now?")
    assert "[Archive" not in model_server.of("chat")[-1].text


def test_an_archive_that_makes_every_summariser_fail_is_sent_beside_the_summaries(
    conversation, model_server
):
    poison = {"purpose": "summary", "contains": code(3)}
    model_server.script = [{"when": poison, "reply": {"text": ""}}, *model_server.script]
    conversation.go_on(52)
    for _ in range(60):
        conversation.seconds += 4000
        conversation.go_on(1)
    written = [one for one in conversation.summaries() if not one.is_digest]
    assert len(written) >= 4
    assert conversation.covered >= 60
    request = "\n".join(texts(sent(conversation.session)))
    assert code(3) in request
    assert request.count("[Archive") == 1


def test_an_archive_names_what_it_continues(conversation, model_server):
    conversation.go_on(52)
    failing(model_server)
    conversation.go_on(12)
    for _ in range(6):
        conversation.seconds += 4000
        conversation.look()
    (summary, digest) = conversation.summaries()
    assert digest.is_digest
    assert digest.previous == summary
    assert f"SUMMARY {code(0)}" not in digest.summary_text


def archived_twice(remembered) -> list[SessionSummary]:
    outage()
    n = 52
    while SessionSummary.objects.filter(is_digest=True).count() < 2:
        say(remembered.session, f"{code(n)} a question {WORDS}")
        n += 1
    ModelBreaker.objects.all().delete()
    CompactionState.objects.update(backoff_until=None)
    return list(SessionSummary.objects.filter(is_digest=True).order_by("covers_through"))


def archives_sent(session) -> int:
    return "\n".join(texts(sent(session))).count("[Archive")


def test_of_archives_that_continue_each_other_the_newest_is_sent(remembered):
    first, second = archived_twice(remembered)
    assert second.previous == first
    assert archives_sent(remembered.session) == 1


def test_an_archive_that_is_summarised_again_takes_the_one_before_in(remembered, model_server):
    first, second = archived_twice(remembered)
    assert resummarize(second).status == "succeeded"
    asked = model_server.of("summary")[-1].text
    assert knows_the_facts(asked)
    assert first.summary_text.splitlines()[-1] in asked
    newer = SessionSummary.objects.get(status="active", supersedes=second)
    assert newer.previous == first
    assert archives_sent(remembered.session) == 0


def test_an_archive_is_sent_again_when_what_took_it_in_is_taken_back(remembered):
    first, second = archived_twice(remembered)
    restore_summary(second)
    assert archives_sent(remembered.session) == 1
    request = "\n".join(texts(sent(remembered.session)))
    assert first.summary_text.splitlines()[-1] in request
