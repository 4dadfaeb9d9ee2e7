"""Data of other programs, of imports and of versions before: placeholders without summary rows,

codes that runs do not get any more.
"""

from __future__ import annotations

import uuid
from importlib import import_module
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.db import connection
from django.urls import reverse

from chatapp import transcript
from chatapp.transcript.writing import NewMessage
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionRun, SessionSummary
from tests.compaction.support import NEVER, compact, sent, texts
from tests.factories import SessionFactory, profile, store, talk
from tests.facts import code

pytestmark = pytest.mark.django_db


def placeholder(session, text: str, *, keep: int | None = None) -> None:
    """Append a placeholder as other programs do: behind the messages that it kept."""
    metadata = {"type": "session_summary"} | ({} if keep is None else {"keepLastN": keep})
    draft = NewMessage(
        wire={"role": "assistant", "content": "Context was compressed."},
        kind="placeholder",
        summary=text,
        metadata=metadata,
    )
    transcript.append(session.branch, [draft])


@pytest.fixture
def session(owner, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    session = SessionFactory(owner=owner, wires=talk(6, marker=1))
    placeholder(session, f"OLD FACTS {code(900)}", keep=2)
    store(session, talk(2, marker=20))
    return session


def test_the_placeholder_is_sent_as_the_summary(session):
    assert "OLD FACTS" in texts(sent(session), "system")[0]


def test_what_it_covers_is_not_sent_and_what_it_kept_is(session):
    users = texts(sent(session), "user")
    assert [text.split()[0] for text in users] == [code(6), code(20), code(21)]


def test_without_a_number_it_covers_everything_before_it(owner, model_server, queued):
    session = SessionFactory(owner=owner, wires=talk(3, marker=1))
    placeholder(session, "OLD FACTS")
    store(session, talk(1, marker=20))
    assert [text.split()[0] for text in texts(sent(session), "user")] == [code(20)]


def test_one_that_kept_everything_hides_nothing(owner, model_server, queued):
    session = SessionFactory(owner=owner, wires=talk(2, marker=1))
    placeholder(session, "OLD FACTS", keep=6)
    assert len(texts(sent(session), "user")) == 2


def test_its_notice_is_never_sent(session):
    assert "Context was compressed." not in str(sent(session))


def test_the_first_summary_of_ours_continues_it(session, model_server):
    assert compact(session).status == "succeeded"
    asked = model_server.of("summary")[0].text
    assert "OLD FACTS" in asked
    assert code(1) not in asked
    assert code(900) in texts(sent(session), "system")[0]


def test_then_ours_alone_is_sent(session):
    compact(session)
    assert len(texts(sent(session), "system")) == 1


def test_several_are_sent_oldest_first_and_all_continued(session, model_server):
    placeholder(session, f"NEWER FACTS {code(901)}", keep=0)
    store(session, talk(4, marker=40))
    systems = texts(sent(session), "system")
    assert "OLD FACTS" in systems[0]
    assert "NEWER FACTS" in systems[1]
    compact(session)
    assert code(900) in SessionSummary.objects.get().summary_text
    assert code(901) in SessionSummary.objects.get().summary_text


def test_the_figures_hold_for_old_data(session):
    before = snapshot_of(session)
    run = compact(session)
    after = snapshot_of(session)
    # Of the whole request: summaries in their frames, and all else; each message has four tokens.
    for found, told in ((before, run.tokens_before), (after, run.tokens_after)):
        assert told == found.fixed_tokens + found.facts.tokens + 4 * found.facts.messages


# --- codes of runs --------------------------------------------------------------------------------

migration = import_module("compaction.migrations.0016_call_no_input_nothing_to_do")


def test_runs_that_found_nothing_to_summarise_get_the_code_of_today(
    session, monkeypatch, admin_client
):
    compact(session)
    once = compact(session)
    assert (once.status, once.error_code) == ("skipped", "nothing_to_do")
    monkeypatch.setattr(migration, "BATCH", 2)
    codes = ["nothing_to_compact"] * 5 + ["busy", "", "nothing_to_do"]
    for error_code in codes:
        once.pk, once.error_code = uuid.uuid4(), error_code
        once.save(force_insert=True)
    migration.use_one_code(apps, SimpleNamespace(connection=connection))
    found = CompactionRun.objects.filter(status="skipped").values_list("error_code", flat=True)
    assert sorted(found) == ["", "busy", *["nothing_to_do"] * 7]
    page = admin_client.get(
        reverse("admin:compaction_compactionrun_change", args=[once.pk])
    ).content.decode()
    assert "There was nothing to compact" in page
