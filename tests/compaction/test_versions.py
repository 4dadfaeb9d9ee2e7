"""After a rollback: summaries of a later program are passed over, and nothing is lost."""

from __future__ import annotations

import pytest
from django.urls import reverse

from chatapp.models import Message, Session
from chatapp.transcript import fork
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionRun, SessionSummary
from compaction.models.summaries import FORMAT_VERSIONS, NEWEST_VERSION
from compaction.runs.status import branch_facts
from tests.compaction.support import NEVER, compact, say, sent, state
from tests.compaction.test_transfer import chain, exported, imported
from tests.factories import SessionFactory, profile, store, talk
from tests.facts import code

pytestmark = pytest.mark.django_db

LATER = NEWEST_VERSION + 1


@pytest.fixture
def session(owner, model_server, queued) -> Session:
    """Two summaries, the second of which covers code(50) to code(53)."""
    profile(**NEVER, keep_last_n=2, ledger=False)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    assert compact(session).status == "succeeded"
    store(session, talk(4, marker=50))
    assert compact(session).status == "succeeded"
    return session


def roll_back(*summaries: SessionSummary) -> None:
    """Have the summaries be those of a later program."""
    SessionSummary.objects.filter(pk__in=[one.pk for one in summaries]).update(format_version=LATER)


def test_what_a_passed_over_one_covers_is_sent_verbatim(session):
    old, new = SessionSummary.objects.order_by("created_at")
    verbatim = {row.content for row in Message.objects.filter(summary_links__summary=new)}
    roll_back(new)
    messages = sent(session)
    assert verbatim <= {message["content"] for message in messages}
    assert any(old.summary_text in str(message["content"]) for message in messages)
    assert not any(new.summary_text in str(message["content"]) for message in messages)


def test_it_is_summarised_again_before_the_next_request(session, model_server):
    old, new = SessionSummary.objects.order_by("created_at")
    roll_back(new)
    assert branch_facts(snapshot_of(session))["due"] == "version"
    say(session, "and now?")
    run = CompactionRun.objects.latest("created_at")
    assert (run.reason, run.mode, run.status) == ("version", "inline", "succeeded")
    again = SessionSummary.objects.latest("created_at")
    assert again.previous == old
    assert again.covers_from == new.covers_from
    new.refresh_from_db()
    assert new.status == "superseded"
    # Once: the next turn finds nothing to do.
    runs = CompactionRun.objects.count()
    say(session, "and then?")
    assert CompactionRun.objects.count() == runs
    assert snapshot_of(session).facts.passes_over is False


def test_a_summariser_that_fails_fails_no_turn(session, model_server):
    roll_back(SessionSummary.objects.latest("created_at"))
    model_server.script = [
        {"when": {"purpose": "summary"}, "reply": {"error": {"status": 500, "body": {}}}},
        {"when": {}, "reply": {"text": "ok"}},
    ]
    assert say(session, "and now?").answer.content == "ok"
    assert code(50) in model_server.of("chat")[-1].text


def test_all_of_them_may_be_of_a_later_program(session):
    roll_back(*SessionSummary.objects.all())
    assert snapshot_of(session).state.cursor == 0
    assert len(sent(session)) == 20
    assert compact(session).status == "succeeded"
    assert SessionSummary.objects.filter(status="active").count() == 1
    assert state(session).cursor > 0


def test_a_fork_passes_over_those_of_its_parent(session):
    last = Message.objects.filter(branch=session.branch, kind="message").order_by("position").last()
    branch = fork(session, at=last)
    roll_back(*SessionSummary.objects.all())
    assert snapshot_of(session, branch).state.cursor == 0
    assert snapshot_of(session, branch).facts.passes_over is True


@pytest.mark.parametrize("version", FORMAT_VERSIONS)
def test_older_rows_are_sent_in_the_new_words(session, version):
    SessionSummary.objects.update(format_version=version)
    profile(**NEVER, keep_last_n=2, rendering="node")
    newest = SessionSummary.objects.latest("created_at")
    node = sent(session)[0]["content"]
    assert node.startswith("<supervisor>")
    assert newest.summary_text in node


def test_without_such_rows_a_state_is_one_query(session, django_assert_num_queries):
    from compaction.branches.leases import state_of

    with django_assert_num_queries(1):
        assert state_of(session.branch).passes_over is False


def test_a_file_may_hold_the_number_as_text(api, session):
    document = exported(api, session)
    (summaries,) = [
        part["summaries"] for part in _objects(document) if isinstance(part.get("summaries"), list)
    ]
    for one in summaries:
        one["format_version"] = str(one["format_version"])
    other, problems = imported(api, document)
    assert problems == []
    # The second says what the first said: it is sent alone.
    assert [row.format_version for row in chain(other)] == [1, 3]


def _objects(value):
    """Yield every object in a JSON value."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            yield from _objects(inner)


def test_the_admin_says_that_it_is_passed_over(admin_client, session):
    newest = SessionSummary.objects.latest("created_at")
    roll_back(newest)
    address = reverse("admin:compaction_sessionsummary_change", args=[newest.pk])
    page = admin_client.get(address).text
    assert "Passed over: a later version of this program wrote it (format 4" in page
    address = reverse("admin:chatapp_session_change", args=[session.pk])
    assert "Summary of a later version passed over" in admin_client.get(address).text
