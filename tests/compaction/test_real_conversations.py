"""Real conversations: imported, compacted under the preset, nothing lost."""

from __future__ import annotations

import importlib.util
import json
from contextlib import suppress
from types import ModuleType

import pytest

from chatapp.formats.records import UnknownFormatError
from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage
from chatapp.transfer import import_file
from compaction.branches.context_builder import kept_of
from compaction.branches.snapshot import snapshot_of
from compaction.doctor.examine import examine
from compaction.models import CompactionRun, SessionSummary, SessionSummaryMessage
from compaction.profiles import save_profile
from compaction.runs.scheduling import check_branch
from compaction.runs.worker import execute_run
from tests.compaction.support import compact, sent
from tests.factories import UserFactory, store
from tests.fakes.model_server import ModelServer

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
FOLDERS = ("openai_chat", "pi", "claude_code")
LONG = 8000


@pytest.fixture
def caselib(shared) -> ModuleType:
    spec = importlib.util.spec_from_file_location("caselib", shared / "cases" / "caselib.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def long_sessions(owner) -> list[Session]:
    found = Session.objects.filter(owner=owner).select_related("active_branch")
    return [session for session in found if session.branch.token_total > LONG]


@pytest.mark.parametrize("folder", FOLDERS)
def test_long_sessions_compact_and_lose_nothing(shared, caselib, queued, use_models, folder):
    owner = UserFactory()
    # Refuses what is larger than 16 000 tokens, so that long ones are halved too.
    refuse = {"error": {"status": 400, "body": {"error": {"code": "context_length_exceeded"}}}}
    script = [
        {"when": {"est_tokens_gt": 16_000, "purpose": "summary"}, "reply": refuse},
        {"when": {}, "reply": {"text": "Requests: go on. Last state: in the middle of it."}},
    ]
    with ModelServer(script) as server:
        use_models(server.models())
        for path in sorted((shared / "data" / folder).iterdir()):
            import_file(owner=owner, content=path.read_bytes(), name=path.name)
        sessions = long_sessions(owner)
        assert sessions
        for session in sessions:
            # The source's own compactions are placeholders: what they cover is in their text.
            earlier = snapshot_of(session)
            asked = len(server.calls)
            run = compact(session)
            assert run.status == "succeeded", (session.title, run.error)
            assert ("<previous-summary" in server.calls[asked].text) == bool(earlier.previous_text)
            check(session, caselib, after=earlier.state.cursor)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_window_works_off_every_session_and_the_doctor_finds_nothing(
    shared, caselib, queued, use_models, folder
):
    owner = UserFactory()
    script = [{"when": {}, "reply": {"text": "Requests: go on. Last state: in the middle of it."}}]
    save_profile(name="window", base="sliding_window", parameters={}, make_default=True)
    with ModelServer(script) as server:
        use_models(server.models())
        for path in sorted((shared / "data" / folder).iterdir()):
            import_file(owner=owner, content=path.read_bytes(), name=path.name)
        worked_off = 0
        for session in Session.objects.filter(owner=owner).select_related("active_branch"):
            first = snapshot_of(session)
            run = check_branch(session)
            while run is not None and run.status == "queued":
                assert execute_run(run.pk).status == "succeeded", (session.title, run.error)
                worked_off += 1
                run = CompactionRun.objects.filter(session=session, status="queued").first()
            after = snapshot_of(session)
            # What is left waits for a full window, or stands inside a group.
            assert after.waiting < max(12, first.waiting)
            assert not after.hides_messages
            question = [*sent(session), {"role": "user", "content": "And now?"}]
            assert caselib.strict(json.loads(json.dumps(question))) == []
            assert [found for found in examine(session.pk) if found.is_error] == []
        assert worked_off or folder == "openai_chat"


def check(session: Session, caselib: ModuleType, *, after: int) -> None:
    request = sent(session)
    question = [*request, {"role": "user", "content": "And now?"}]
    assert caselib.strict(json.loads(json.dumps(question))) == []
    snapshot = snapshot_of(session)
    rows = Message.objects.filter(
        kind="message", position__gt=after, branch__in=[s.branch_id for s in path(snapshot)]
    )
    on_path = {row.pk for row in rows if any(covers(s, row) for s in path(snapshot))}
    linked = set(
        SessionSummaryMessage.objects.filter(
            summary__in=[s.pk for s in snapshot.summaries]
        ).values_list("message_id", flat=True)
    )
    rules, kept = kept_of(snapshot)
    assert linked | {row.pk for row in (*rules, *kept)} >= on_path
    assert linked <= on_path


def path(snapshot):
    from chatapp.selectors import segments

    return segments(snapshot.branch)


def covers(segment, row: Message) -> bool:
    inside = segment.through is None or row.position <= segment.through
    return row.branch_id == segment.branch_id and inside


def test_an_imported_session_goes_on_after_its_compaction(shared, caselib, model_server, queued):
    from chatapp.turns.service import Turn, run_turn

    owner = UserFactory()
    path = shared / "data" / "claude_code" / "entire_4b7d5121b42a_compaction.jsonl"
    import_file(owner=owner, content=path.read_bytes(), name=path.name)
    (session,) = long_sessions(owner)
    for text in ("Go on.", "And then?", "Stop."):
        draft = NewMessage(wire={"role": "user", "content": text})
        assert run_turn(Turn(session=session, drafts=[draft])).answer.content == "ok"
    for call in model_server.of("chat"):
        assert caselib.strict(call.messages) == []
    assert model_server.of("chat")[-1].messages[-1]["content"] == "Stop."


NODE_FOLDERS = ("claude_code", "swe_agent", "pi")
LEAST_CHARS = 5_000


@pytest.mark.parametrize("folder", NODE_FOLDERS)
def test_a_strict_server_takes_a_node_and_what_follows_it(
    shared, caselib, queued, use_models, folder
):
    owner = UserFactory()
    parameters = {"history_tail_size_chars_to_exclude": 1_500, "quality_gate": False}
    save_profile(name="nodes", base="abridged", parameters=parameters, make_default=True)
    text = "Requests: go on. Last state: in the middle of it."
    with ModelServer([{"when": {}, "reply": {"text": text}}]) as server:
        use_models(server.models(SINGLE_LEADING_SYSTEM=True))
        for path in sorted((shared / "data" / folder).iterdir()):
            # What no format reads has tests of its own.
            with suppress(UnknownFormatError):
                import_file(owner=owner, content=path.read_bytes(), name=path.name)
        found = Session.objects.filter(owner=owner).select_related("active_branch")
        sessions = [one for one in found if one.branch.char_total > LEAST_CHARS]
        assert sessions
        for session in sessions:
            run = compact(session)
            assert run.status == "succeeded", (session.title, run.error)
            store(session, [{"role": "user", "content": "and now?"}])
            messages = json.loads(json.dumps(sent(session)))
            assert caselib.strict(messages) == []
            nodes = [one for one in messages if "<supervisor>" in str(one["content"])[:20]]
            row = SessionSummary.objects.filter(session=session).latest("created_at")
            assert len(nodes) == 1
            assert row.summary_text[:40] in nodes[0]["content"]
            assert row.abridged_entries
            assert len(row.abridged) <= 10_000
