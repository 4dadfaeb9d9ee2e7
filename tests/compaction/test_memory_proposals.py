"""After a compaction a summariser proposes lines to remember; nothing is sent before a yes."""

from __future__ import annotations

import json

import pytest

from chatapp.models import Session
from compaction.memories.execution import execute_memory_run
from compaction.memories.lines import accept_memory, add_memory, delete_memory
from compaction.models import CompactionRun, Memory, MemoryRun
from compaction.runs.worker import compact_branch
from tests.compaction.support import NEVER, compact, sent
from tests.factories import SessionFactory, profile, store, talk, user

pytestmark = pytest.mark.django_db
ASKED = "propose at most 5 lines"
TEA = {"text": "Drinks tea.", "message": 1}


def proposes(model_server, proposal, **more) -> None:
    """Have the model propose so; its summaries are plain ones."""
    text = proposal if isinstance(proposal, str) else json.dumps(proposal)
    model_server.script = [
        {"when": {"contains": ASKED}, "reply": {"text": text, **more}},
        {"when": {"purpose": "summary"}, "reply": {"text": "The user asked some things."}},
        {"when": {}, "reply": {"text": "ok"}},
    ]


def proposed(owner) -> list[str]:
    rows = Memory.objects.filter(owner=owner, origin="proposed", accepted_at__isnull=True)
    return [row.text for row in rows.order_by("position")]


def compacted(session: Session) -> MemoryRun | None:
    """Compact, and do the run that comes of it."""
    store(session, talk(6))
    before = set(MemoryRun.objects.values_list("pk", flat=True))
    assert compact(session).status == "succeeded"
    run = MemoryRun.objects.exclude(pk__in=before).first()
    if run is not None:
        execute_memory_run(run.pk)
        run.refresh_from_db()
    return run


@pytest.fixture
def session(owner, model_server) -> Session:
    profile(**NEVER, keep_last_n=2, extract_memories=True, memory_budget_tokens=500)
    return SessionFactory(owner=owner, metadata={"bot_type": 7})


def test_it_proposes_lines_that_wait_for_a_yes(session, owner, model_server):
    proposes(model_server, [TEA, "Lives in Bern."])
    run = compacted(session)
    assert (run.kind, run.status, run.lines_after) == ("extract", "succeeded", 2)
    assert proposed(owner) == ["Drinks tea.", "Lives in Bern."]
    row = Memory.objects.get(text="Drinks tea.")
    assert (row.bot, row.source.position) == ("7", 1_000_000)
    assert Memory.objects.get(text="Lives in Bern.").source is None
    assert "Drinks tea." not in json.dumps(sent(session))
    accept_memory(row)
    assert "- Drinks tea.\n" in sent(session)[0]["content"]


def test_it_reads_what_the_summary_was_made_from(session, model_server):
    proposes(model_server, [])
    store(session, [user("My dog is called Rex-77."), {"role": "assistant", "content": "ok"}])
    assert compacted(session).status == "succeeded"
    (call,) = [call for call in model_server.calls if ASKED in call.text]
    assert "Rex-77" in call.text
    assert "Rex-77" not in call.messages[0]["content"]


def test_no_more_than_five_lines_are_proposed(session, owner, model_server):
    proposes(model_server, [f"Likes the number {number}." for number in range(9)])
    compacted(session)
    assert len(proposed(owner)) == 5


@pytest.mark.parametrize(
    "answer", ["", "I propose nothing.", "{", '[{"text": "a\\nb"}]', "[[[", '"Drinks tea."']
)
def test_what_is_no_proposal_is_dropped_and_fails_nothing(session, owner, model_server, answer):
    proposes(model_server, answer)
    run = compacted(session)
    assert (run.status, run.lines_after) == ("succeeded", 0)
    assert proposed(owner) == []
    assert CompactionRun.objects.get().status == "succeeded"


def test_a_server_that_fails_fails_the_proposal_alone(session, owner, model_server):
    proposes(model_server, "")
    model_server.script[0]["reply"] = {"error": {"status": 400, "body": {}}}
    run = compacted(session)
    assert (run.status, run.error_code) == ("failed", "summariser_error")
    assert CompactionRun.objects.get().status == "succeeded"


def test_the_same_line_is_proposed_once(session, owner, model_server):
    proposes(model_server, [TEA])
    compacted(session)
    compacted(session)
    proposes(model_server, ["drinks  TEA"])
    compacted(session)
    assert proposed(owner) == ["Drinks tea."]


def test_a_line_that_was_refused_or_deleted_is_not_proposed_again(session, owner, model_server):
    proposes(model_server, [TEA, "Lives in Bern."])
    delete_memory(add_memory(owner=owner, text="Lives in Bern."))
    compacted(session)
    assert proposed(owner) == ["Drinks tea."]
    delete_memory(Memory.objects.get(text="Drinks tea."))
    compacted(session)
    assert proposed(owner) == []


def test_a_line_that_holds_a_secret_is_not_proposed(session, owner, model_server):
    key = "sk-abcdEFGH1234ijklMNOP5678qrstUVWX90yzABCDefgh"
    proposes(model_server, [f"The key is {key}.", "The key is [REDACTED:token].", "Has a dog."])
    store(session, [user(f"My key is {key}"), {"role": "assistant", "content": "ok"}])
    compacted(session)
    assert proposed(owner) == ["Has a dog."]
    assert all(key not in call.text for call in model_server.calls)


def test_another_profile_proposes_nothing(owner, model_server):
    profile(**NEVER, keep_last_n=2)
    proposes(model_server, [TEA])
    assert compacted(SessionFactory(owner=owner)) is None
    assert not Memory.objects.exists()


def test_a_summary_is_read_once_and_a_resummary_not_at_all(session, owner, model_server):
    proposes(model_server, [TEA])
    run = compacted(session)
    again = compact_branch(
        session=session, trigger="resummarize", reason="manual", replaces=run.summary
    )
    assert again.status == "succeeded", again.error
    assert MemoryRun.objects.count() == 1
    assert execute_memory_run(run.pk) == "gone"


def test_a_deleted_session_takes_its_proposals_run_along(session, owner, model_server):
    proposes(model_server, [TEA])
    store(session, talk(6))
    compact(session)
    run = MemoryRun.objects.get()
    session.delete()
    assert execute_memory_run(run.pk) == "gone"
    assert not Memory.objects.exists()


def test_too_much_for_the_window_has_the_newer_half_read(session, owner, use_models, model_server):
    proposes(model_server, [TEA])
    store(session, [user(f"Part {number}. " + "lorem " * 300) for number in range(12)])
    store(session, [{"role": "assistant", "content": "ok"}, *talk(2)])
    assert compact(session).status == "succeeded"
    use_models(model_server.models(CONTEXT_WINDOW=4000, MAX_OUTPUT=1024))
    run = MemoryRun.objects.get()
    assert execute_memory_run(run.pk) == "succeeded"
    assert proposed(owner) == ["Drinks tea."]
    read = [call.text for call in model_server.calls if ASKED in call.text]
    assert all("Part 0. " not in text for text in read)
    assert Memory.objects.get().source.position > 1_000_000


def test_what_no_database_takes_is_dropped_and_the_rest_is_proposed(session, owner, model_server):
    proposes(
        model_server,
        r'["Drinks tea.", "nul \u0000 here", "half \ud83d here", {"text": "Red \u001b[31m."}]',
    )
    assert compacted(session).status == "succeeded"
    assert proposed(owner) == ["Drinks tea.", "Red \x1b[31m."]
