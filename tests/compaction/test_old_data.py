"""Placeholders without summary rows: data of other programs, and of imports."""

from __future__ import annotations

import pytest

from chatapp import transcript
from chatapp.transcript.writing import NewMessage
from compaction.branches.snapshot import snapshot_of
from compaction.models import SessionSummary
from tests.compaction.support import NEVER, compact, sent, texts
from tests.factories import SessionFactory, profile, store, talk

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
    placeholder(session, "OLD FACTS MK-0900", keep=2)
    store(session, talk(2, marker=20))
    return session


def test_the_placeholder_is_sent_as_the_summary(session):
    assert "OLD FACTS" in texts(sent(session), "system")[0]


def test_what_it_covers_is_not_sent_and_what_it_kept_is(session):
    users = texts(sent(session), "user")
    assert [text[:7] for text in users] == ["MK-0006", "MK-0020", "MK-0021"]


def test_without_a_number_it_covers_everything_before_it(owner, model_server, queued):
    session = SessionFactory(owner=owner, wires=talk(3, marker=1))
    placeholder(session, "OLD FACTS")
    store(session, talk(1, marker=20))
    assert [text[:7] for text in texts(sent(session), "user")] == ["MK-0020"]


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
    assert "MK-0001" not in asked
    assert "MK-0900" in texts(sent(session), "system")[0]


def test_then_ours_alone_is_sent(session):
    compact(session)
    assert len(texts(sent(session), "system")) == 1


def test_several_are_sent_oldest_first_and_all_continued(session, model_server):
    placeholder(session, "NEWER FACTS MK-0901", keep=0)
    store(session, talk(4, marker=40))
    systems = texts(sent(session), "system")
    assert "OLD FACTS" in systems[0]
    assert "NEWER FACTS" in systems[1]
    compact(session)
    assert "MK-0900" in SessionSummary.objects.get().summary_text
    assert "MK-0901" in SessionSummary.objects.get().summary_text


def test_the_figures_hold_for_old_data(session):
    before = snapshot_of(session)
    run = compact(session)
    after = snapshot_of(session)
    # Of the whole request: summaries in their frames, and all else.
    assert run.tokens_before == before.fixed_tokens + before.facts.tokens
    assert run.tokens_after == after.fixed_tokens + after.facts.tokens
