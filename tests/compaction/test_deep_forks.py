"""A path costs the same at any depth of forks: statements and rows of what people wait for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from chatapp import transcript
from chatapp.admin.sessions import BRANCHES_SHOWN
from chatapp.context.backend import context_backend
from chatapp.models import POSITION_STEP, Branch, Message, Session
from chatapp.selectors import path_messages, rows_before
from compaction.admin.branch_view import MARKS_DRAWN
from compaction.models import CompactionState, SessionSummary
from tests.compaction.support import NEVER, compact, say
from tests.deep_forks import DEEP, TOKENS, counted_reads, deep_session
from tests.factories import profile

# CI runs these on PostgreSQL: five thousand forks are made for each.
pytestmark = [pytest.mark.django_db, pytest.mark.slow]

# The first is not counted: what a process reads once is read there.
DEPTHS = (1, 1, 60, DEEP)
MESSAGES = DEEP + 100


@pytest.fixture(autouse=True)
def never(model_server, queued):
    return profile(**NEVER, keep_last_n=4)


def summarised(owner: Any, depth: int, *, through: int, **about: Any) -> Session:
    """Return a deep session that is summarised up to a message, twice."""
    session = deep_session(owner, depth=depth, messages=MESSAGES, **about)
    for first, last in ((1, through // 2), (through // 2 + 1, through)):
        SessionSummary.objects.create(
            session=session,
            branch=_owner_of(session, last),
            summary_text=f"What was said from {first} to {last}.",
            summary_tokens=8,
            message_count=last - first + 1,
            covers_from=first * POSITION_STEP,
            covers_through=last * POSITION_STEP,
            trigger="manual",
            reason="manual",
        )
    CompactionState.objects.create(
        branch=session.branch,
        cursor=through * POSITION_STEP,
        covered_messages=through,
        covered_tokens=through * TOKENS,
    )
    return session


def _owner_of(session: Session, number: int) -> Branch:
    return Message.objects.get(session=session, position=number * POSITION_STEP).branch


def fresh(session: Session) -> Session:
    return Session.objects.select_related("active_branch").get(pk=session.pk)


def reads_of(act: Callable[[Session], object], session: Session) -> tuple[int, int]:
    session = fresh(session)
    with counted_reads() as reads:
        act(session)
    return reads.counts


def equal_reads(act: Callable[[Session], object], sessions: list[Session]) -> None:
    """Check that the act sends the same statements and reads the same rows at every depth."""
    _, *found = [reads_of(act, session) for session in sessions]
    assert found == [found[0]] * len(found)


def prepare(session: Session) -> None:
    context_backend.prepare(session)


def get(client: Any, address: str, session: Session) -> Any:
    answer = client.get(address.format(session.pk))
    assert answer.status_code == 200
    return answer


@pytest.fixture
def near_end(owner) -> list[Session]:
    """Sessions whose cursor stands 20 messages before the end."""
    return [summarised(owner, depth, through=MESSAGES - 20) for depth in DEPTHS]


def test_a_request_and_its_pages_read_the_same_at_any_depth(near_end, api, admin_client):
    equal_reads(prepare, near_end)
    equal_reads(context_backend.preview, near_end)
    for address in (
        "/api/v1/sessions/{}/context/",
        "/api/v1/sessions/{}/messages/",
        "/api/v1/sessions/{}/messages/?order=newest",
        "/api/v1/sessions/{}/summaries/",
        "/api/v1/sessions/{}/",
    ):
        equal_reads(partial(get, api, address), near_end)
    equal_reads(partial(get, admin_client, "/admin/chatapp/session/{}/timeline/"), near_end)


def test_a_turn_reads_the_same_at_any_depth_and_so_does_the_first_of_a_fork(near_end):
    def fork(session: Session) -> None:
        last = rows_before(session.branch, Message.objects.all(), most=3)[0]
        transcript.activate(session, transcript.fork(session, at=last))
        say(session)

    equal_reads(say, near_end)
    equal_reads(fork, near_end)


def test_pages_of_messages_from_the_middle_read_the_same_at_any_depth(near_end, api):
    def third_page(session: Session) -> None:
        answer = get(api, "/api/v1/sessions/{}/messages/?order=newest&page_size=100", session)
        for _ in range(2):
            answer = api.get(answer.json()["next"])
        places = [row["content"] for row in answer.json()["results"]]
        assert places[0] == f"message {MESSAGES - 200}"

    equal_reads(third_page, near_end)


def test_the_page_of_a_session_reads_the_same_but_for_the_forks_it_shows(near_end, admin_client):
    page = "/admin/chatapp/session/{}/change/"
    for query in ("", f"?at={2500 * POSITION_STEP}", "?at=1"):
        act = partial(get, admin_client, page + query)
        _, *found = [reads_of(act, session) for session in near_end]
        drawn = [
            min(depth + 1, MARKS_DRAWN) + min(depth + 1, BRANCHES_SHOWN + 1) for depth in DEPTHS[1:]
        ]
        same = [
            (queries, rows - marks) for (queries, rows), marks in zip(found, drawn, strict=True)
        ]
        assert same == [same[0]] * len(same)


def test_what_was_never_summarised_reads_the_same_at_any_depth(owner, api):
    sessions = [deep_session(owner, depth=depth, messages=MESSAGES) for depth in DEPTHS]
    equal_reads(prepare, sessions)
    equal_reads(partial(get, api, "/api/v1/sessions/{}/context/"), sessions)
    newest = Message.objects.filter(kind="message")
    equal_reads(lambda session: rows_before(session.branch, newest, most=30), sessions)


def test_a_cursor_in_the_middle_reads_the_same_at_any_depth(owner):
    sessions = [summarised(owner, depth, through=2500) for depth in DEPTHS]
    equal_reads(prepare, sessions)


def test_pins_of_a_deep_path_are_sent(owner):
    session = summarised(owner, DEEP, through=MESSAGES - 20)
    for row in path_messages(session.branch, through=400 * POSITION_STEP)[300:302]:
        transcript.set_pinned(row, True)
    texts = [message["content"] for message in context_backend.preview(session).messages]
    assert [texts.index(text) for text in ("message 301", "message 302")] == [2, 3]
    assert texts[-1] == f"message {MESSAGES}"
    assert sum("What was said" in text for text in texts) == 2


def test_a_compaction_reads_the_same_at_any_depth(owner):
    sessions = [summarised(owner, depth, through=MESSAGES - 40) for depth in DEPTHS]
    equal_reads(compact, sessions)
