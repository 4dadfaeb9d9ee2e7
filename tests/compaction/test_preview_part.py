"""What the next request sends is shown in part where it is long, and the rest is told by sums."""

from __future__ import annotations

from typing import Any

import pytest

from chatapp.admin.toolkit.path_pages import request_url
from chatapp.context.assembly import Context, HistoryPart, assemble
from chatapp.context.backend import BaseContextBackend, FullHistoryBackend
from chatapp.context.preview import PREVIEW_MESSAGES, shown_part
from chatapp.models import POSITION_STEP, Message, Session
from chatapp.selectors import rows_before
from compaction.branches.leases import ensure_state
from compaction.engine.profile import PRESETS
from compaction.models import CompactionState
from tests.compaction.session_page import page_of
from tests.compaction.test_tail_reads import TOKENS, WORDS, backlog, forked, reading, stored
from tests.deep_forks import counted_reads
from tests.factories import profile

pytestmark = pytest.mark.django_db
# Behind every preset's limits, so that the same rules are due in both.
SHORT, LONG = 3_000, 9_000


def context_of(api, session: Session, query: str = "") -> dict[str, Any]:
    answer = api.get(f"/api/v1/sessions/{session.pk}/context/{query}")
    assert answer.status_code == 200
    return answer.json()


def everything(owner, count: int) -> Session:
    """Return a backlog of a branch whose profile sends all of it."""
    profile(enabled=False)
    return backlog(owner, count)


def test_a_short_request_is_shown_whole(owner, api, model_server):
    session = everything(owner, PREVIEW_MESSAGES)
    found = context_of(api, session)
    assert len(found["messages"]) == PREVIEW_MESSAGES
    assert found["not_shown"] is None


def test_a_long_request_is_shown_in_part_and_says_how_much_more_there_is(owner, api, model_server):
    session = everything(owner, 1_000)
    found = context_of(api, session)
    shown = len(found["messages"])
    assert shown == PREVIEW_MESSAGES
    assert found["not_shown"] == {
        "messages": 1_000 - shown,
        "tokens": TOKENS * (1_000 - shown),
        "first": "1",
        "last": str(1_000 - shown),
    }
    assert found["account"]["kept"] + found["account"]["pending"] == TOKENS * 1_000


def test_the_account_is_that_of_the_whole_request(owner, api, model_server):
    session = everything(owner, 1_000)
    part, whole = context_of(api, session), context_of(api, session, "?whole=true")
    assert len(whole["messages"]) == 1_000
    assert whole["not_shown"] is None
    assert part["account"] == whole["account"]
    assert part["messages"] == whole["messages"][-len(part["messages"]) :]


def test_what_is_summarised_counts_in_no_rest(owner, api, model_server):
    session = everything(owner, 1_000)
    state = ensure_state(session.branch)
    state.cursor, state.covered_messages = 300 * POSITION_STEP, 300
    state.covered_tokens, state.covered_chars = 300 * TOKENS, 300 * len(WORDS)
    state.save()
    found = context_of(api, session)["not_shown"]
    assert (found["messages"], found["tokens"]) == (500, 500 * TOKENS)
    assert (found["first"], found["last"]) == ("301", "800")


def test_rules_of_the_conversation_are_shown_whatever_stands_between(owner, api, model_server):
    profile(enabled=False)
    rows = [{"role": "assistant" if n % 2 else "user"} for n in range(600)]
    rows[0] = {"role": "system", "pinned": True, "tokens": 7, "content": "Answer in verse."}
    session = stored(owner, rows)
    found = context_of(api, session)
    assert found["messages"][0]["content"] == "Answer in verse."
    assert found["account"]["system"] == 7
    assert found["not_shown"]["first"] == "2"
    whole = context_of(api, session, "?whole=true")
    assert found["account"] == whole["account"]
    assert found["not_shown"]["messages"] == len(whole["messages"]) - len(found["messages"])


def test_no_result_is_shown_without_its_call(owner, api, model_server):
    profile(enabled=False)
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        for n in range(PREVIEW_MESSAGES + 10)
    ]
    asked = {"role": "assistant", "tool_calls": calls, "content": ""}
    results = [{"role": "tool", "tool_call_id": call["id"]} for call in calls]
    rows = [{"role": "user"}, asked, *results, {"role": "assistant"}]
    shown = context_of(api, stored(owner, rows))["messages"]
    assert [one["role"] for one in shown] == ["assistant"]


def test_very_long_messages_are_fewer(owner):
    profile(enabled=False)
    rows = [
        {"role": "assistant" if n % 2 else "user", "content": "x" * 60_000, "chars": 60_000}
        for n in range(300)
    ]
    part = shown_part(stored(owner, rows).branch, chars=1_000_000)
    assert part is not None
    assert len(part.rows) == 16
    assert part.not_shown.messages == 284


def test_a_fork_shows_its_newest_whoever_holds_them(owner, api, model_server):
    session = everything(owner, 1_000)
    forked(session, 900)
    session.refresh_from_db()
    found = context_of(api, session)
    assert len(found["messages"]) == PREVIEW_MESSAGES
    assert found["not_shown"]["messages"] == 800
    whole = context_of(api, session, "?whole=true")
    assert found["account"] == whole["account"]


def test_a_backend_that_sends_everything_shows_a_part_as_well(owner):
    session = backlog(owner, 1_000)
    backend = FullHistoryBackend()
    part, whole = backend.preview_part(session), backend.preview(session)
    assert len(part.messages) == PREVIEW_MESSAGES
    assert part.account == whole.account
    assert part.not_shown is not None
    assert part.not_shown.messages == 800


def test_the_request_page_says_what_it_does_not_show(owner, admin_client, model_server):
    session = everything(owner, 1_000)
    page = admin_client.get(request_url(session)).content.decode()
    # The first hundred and the last four hundred are shown.
    assert "1,000 messages" in page
    assert (
        "500 messages with 50,000 tokens, from 101 to 600, are sent, too, and not shown here."
        in page
    )
    assert "500 messages are left out here" in page
    download = admin_client.get(request_url(session), {"download": "1"}).json()
    assert len(download["messages"]) == 1_000


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("covered", [0, 1_000], ids=["nothing summarised", "backlog"])
def test_pages_of_a_request_read_the_same_of_any_backlog(
    owner, api, admin_client, model_server, preset, covered
):
    found: list[dict[str, tuple[int, int]]] = []
    for count in (1_200, SHORT, LONG):
        session = backlog(owner, count)
        ensure_state(session.branch)
        CompactionState.objects.filter(branch=session.branch).update(
            profile=preset,
            cursor=covered * POSITION_STEP,
            covered_messages=covered,
            covered_tokens=covered * TOKENS,
            covered_chars=covered * len(WORDS),
        )
        reads = {}
        for name, client, url in (
            ("context", api, f"/api/v1/sessions/{session.pk}/context/"),
            ("request", admin_client, request_url(session)),
            ("page", admin_client, page_of(session)),
        ):
            with reading() as seen:
                assert client.get(url).status_code == 200
            reads[name] = (seen.statements, seen.rows)
        found.append(reads)
    assert found[1] == found[2]
    assert max(rows for _, rows in found[2].values()) < 1_000


class NewestThree(BaseContextBackend):
    """A project's backend: it says what it sends, and nothing of pages."""

    def preview(self, session: Session) -> Context:
        rows = rows_before(session.branch, Message.objects.all(), most=3)
        return assemble(session, HistoryPart(system=[], kept=rows))


def test_a_projects_backend_shows_what_it_sends(owner, api, settings, model_server):
    session = everything(owner, 1_000)
    named = f"{__name__}.{NewestThree.__name__}"
    settings.CHATAPP = settings.CHATAPP | {"CONTEXT": {"BACKEND": named}}
    found = context_of(api, session)
    assert len(found["messages"]) == 3
    assert found["not_shown"] is None


def test_a_turn_that_is_sent_again_reads_no_long_history(owner, api, model_server):
    session = everything(owner, 1_000)
    address = f"/api/v1/sessions/{session.pk}/turns/"
    once = {"data": {"content": "Hello"}, "format": "json", "HTTP_IDEMPOTENCY_KEY": "k"}
    first = api.post(address, **once)
    with counted_reads() as reads:
        again = api.post(address, **once)
    assert first.status_code == again.status_code == 200
    assert again.json()["answer"] == first.json()["answer"]
    assert reads.rows < 2 * PREVIEW_MESSAGES
