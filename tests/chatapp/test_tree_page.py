"""The page of a session's tree: what is drawn and folded, its table, and the forms of a branch."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from chatapp import transcript
from chatapp.admin.tree_drawing import fitting
from chatapp.admin.tree_layout import MOST_ROWS, TreeLayout
from chatapp.context.backend import FullHistoryBackend
from chatapp.models import Branch, Message, Session
from chatapp.outline import outline_of
from chatapp.transcript import SwitchRefusedError
from tests.deep_forks import deep_session
from tests.factories import SessionFactory, UserFactory, store, talk, user
from tests.tree_pictures import WIDE, store_tree, store_wide_tree

VIEW = ("view_session", "view_branch", "read_texts")


@pytest.fixture
def session(owner) -> Session:
    return SessionFactory(owner=owner, wires=talk(3))


@pytest.fixture
def fork(session) -> Branch:
    """A branch of two messages that leaves the line in use behind the second message."""
    at = Message.objects.filter(session=session).order_by("position")[1]
    root, branch = session.branch, transcript.fork(session, at=at, label="The <i>other</i> way")
    transcript.activate(session, branch)
    store(session, [user("Rather this."), {"role": "assistant", "content": "So be it."}])
    transcript.activate(session, root)
    return branch


def operator(*permissions: str) -> Client:
    person = UserFactory(is_staff=True)
    person.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(person)
    return client


def address(session, query="") -> str:
    return f"/admin/chatapp/session/{session.pk}/tree/{query}"


def shown(client, session, query="") -> str:
    answer = client.get(address(session, query))
    assert answer.status_code == 200
    return answer.content.decode()


def drawn(text) -> str:
    return text[text.index('class="tree"') :].partition("</svg>")[0]


def labels(text) -> list[str]:
    return re.findall(r'aria-label="([^"]*)"', drawn(text))


def do(client, branch, name, **data):
    url = f"/admin/chatapp/branch/{branch.pk}/do/{name}/?to=tree"
    return client.post(url, data, follow=True)


# --- the picture ----------------------------------------------------------------------------------


def test_the_session_leads_to_its_tree(admin_client, session):
    page = admin_client.get(f"/admin/chatapp/session/{session.pk}/change/").content.decode()
    assert f'href="{address(session)}"' in page


def test_the_line_in_use_is_drawn_first_and_others_leave_it(admin_client, session, fork):
    *_, first, second, side, last = labels(shown(admin_client, session))
    assert first.startswith("User 1: question 0")
    assert second.startswith("Assistant 2 · 1 fork: answer 0")
    assert side == "Assistant 4 · end of The &lt;i&gt;other&lt;/i&gt; way: So be it."
    assert last.startswith("Assistant 6 · end of Root")
    assert "(in use)" in last


def test_every_row_is_a_link_that_the_tab_key_reaches_in_order(admin_client, session, fork):
    links = re.findall(r"<a ([^>]*)>", drawn(shown(admin_client, session)))
    rows = Message.objects.filter(session=session)
    by_place = [
        rows.get(branch=branch, position=place * 1_000_000).pk
        for branch, place in (
            (session.branch, 1), (session.branch, 2), (fork, 4), (session.branch, 6),
        )
    ]  # fmt: skip
    assert [f"/message/{pk}/" in link for pk, link in zip(by_place, links, strict=True)] == [
        True
    ] * 4
    assert not any("tabindex" in link for link in links)


def test_summaries_are_signs_that_lead_to_them(admin_client, owner):
    session = store_tree(owner)
    text = shown(admin_client, session)
    own, of_branch = (session.summaries.get(kind=kind) for kind in ("compaction", "branch"))
    assert "Above 5: 1 summary" in labels(text)
    assert "Above 7: 1 summary of a branch" in labels(text)
    assert f"/sessionsummary/{own.pk}/change/" in drawn(text)
    assert f"/sessionsummary/{of_branch.pk}/change/" in drawn(text)


def test_nothing_on_the_page_is_inline(admin_client, owner):
    text = shown(admin_client, store_tree(owner))
    assert not re.search(r"\sstyle=|<style|\son\w+=", text)


def test_the_table_has_every_line_end(admin_client, session, fork):
    table = shown(admin_client, session).partition("Line ends in the picture")[2]
    assert f"/branch/{fork.pk}/change/" in table
    assert f"/branch/{session.active_branch_id}/change/" in table
    assert f"{address(session)}?branch={fork.pk}#forms" in table
    assert "So be it." in table


def test_without_the_permission_no_text_and_no_label_is_shown(session, fork):
    text = shown(operator("view_session", "view_branch"), session)
    for secret in ("question", "So be it", "&lt;i&gt;", session.title):
        assert secret not in text
    assert f"Branch {str(fork.pk)[-8:]}" in text
    assert "read texts" in text


def test_who_may_not_see_sessions_sees_no_tree(session):
    assert operator("view_branch").get(address(session)).status_code == 403
    nowhere = f"/admin/chatapp/session/{UserFactory().pk}/tree/"
    assert operator("view_session").get(nowhere).status_code == 404


@pytest.mark.parametrize("query", ["?node=x", "?node=1-" + "a" * 32, "?skip=x", "?branch=x"])
def test_an_odd_address_shows_the_tree(admin_client, session, fork, query):
    assert labels(shown(admin_client, session, query)) == labels(shown(admin_client, session))


def test_a_branch_of_another_session_cannot_be_chosen(admin_client, session, owner):
    other = SessionFactory(owner=owner, wires=talk(1))
    text = shown(admin_client, session, f"?branch={other.active_branch_id}")
    assert "page-form" not in text


def test_an_empty_session_has_a_tree(admin_client, owner):
    assert "Empty line" in shown(admin_client, SessionFactory(owner=owner))


# --- folding --------------------------------------------------------------------------------------


def layout(session, **options) -> TreeLayout:
    outline = outline_of(session)
    start = options.pop("start", None)
    node = outline.node_at(start) if start else None
    return TreeLayout(outline, start=node, **options)


def test_a_tree_of_some_rows_is_shown_whole(owner):
    rows = layout(store_tree(owner)).rows
    assert not any(row.fold for row in rows)
    assert {branch for row in rows for branch in (head.id for head in row.node.heads)} == set(
        Branch.objects.values_list("pk", flat=True)
    )


def test_two_thousand_branches_are_drawn_folded(admin_client, owner):
    session = store_wide_tree(owner)
    text = shown(admin_client, session)
    assert f"{WIDE:,} branches" in text
    assert "Show 996 more lines" in labels(text)
    assert len(layout(session).rows) <= 2 * MOST_ROWS
    assert len(text) < 150_000


def test_folds_lead_to_every_branch(owner):
    session = store_wide_tree(owner)
    outline = outline_of(session)
    seen, folds, done = set(), [(None, 0)], set()
    while folds:
        place, skip = folds.pop()
        node = outline.node_at(place) if place else None
        for row in TreeLayout(outline, start=node, skip=skip).rows:
            if row.fold is not None:
                key = (row.fold.node.place if row.fold.node else None, row.fold.skip)
                folds += [key] if key not in done else []
                done.add(key)
            else:
                seen |= {head.id for head in row.node.heads}
    assert len(seen) == WIDE


def test_a_deep_tree_is_drawn_folded_and_without_recursion(admin_client, owner):
    session = deep_session(owner, depth=1_500, messages=1_600)
    found = labels(shown(admin_client, session))
    # Each branch but the last ends where the next one begins; five nodes stand before the fold.
    assert found[5] == "Show 1,491 more forks of this line"
    assert len(found) == 5 + 1 + 6
    assert "(in use)" in found[-1]


def test_many_roots_are_folded(owner, session):
    first = Message.objects.filter(session=session).order_by("position")[0]
    for _ in range(30):
        transcript.fork_before(session, at=first)
    rows = layout(session).rows
    assert rows[-1].fold.words == "11 more lines"
    assert [row.fold for row in layout(session, skip=20).rows] == [None] * 11


def test_the_page_costs_the_same_queries_however_large(admin_client, owner, session):
    counts = set()
    for one in (session, store_tree(owner), store_wide_tree(owner)):
        with CaptureQueriesContext(connection) as found:
            shown(admin_client, one)
        counts.add(len(found))
    assert len(counts) == 1
    assert max(counts) <= 12


def test_texts_fit_their_row():
    assert fitting("short", 10) == "short"
    assert fitting("a" * 30, 10) == "a" * 9 + "…"
    assert fitting("中" * 10, 10) == "中" * 4 + "…"


# --- forms ----------------------------------------------------------------------------------------


def test_who_may_only_look_sees_no_form(session, fork):
    text = shown(operator(*VIEW), session, f"?branch={fork.pk}")
    assert '<form method="post" action="/admin/chatapp/branch' not in text
    assert "You may not switch or name branches." in text
    for name in ("switch", "label"):
        assert do(operator(*VIEW), fork, name, label="mine").status_code == 403
    session.refresh_from_db()
    fork.refresh_from_db()
    assert session.active_branch_id != fork.pk
    assert fork.label == "The <i>other</i> way"


def test_a_switch_is_done_and_said(session, fork):
    client = operator(*VIEW, "change_session")
    assert "Switch to this branch" in shown(client, session, f"?branch={fork.pk}")
    answer = do(client, fork, "switch")
    assert answer.redirect_chain == [(address(session), 302)]
    assert "The session goes on with" in answer.content.decode()
    session.refresh_from_db()
    assert session.active_branch_id == fork.pk


def test_the_branch_in_use_offers_no_switch(session, fork):
    client = operator(*VIEW, "change_session", "change_branch")
    text = shown(client, session)
    assert "Branch in use" in text
    assert "Name this branch" in text
    assert "Switch to this branch" not in text
    answer = do(client, session.branch, "switch")
    assert "makes no sense here any more" in answer.content.decode()


def test_a_switch_takes_post_and_a_token(session, fork):
    client = Client(enforce_csrf_checks=True)
    client.force_login(UserFactory(is_staff=True, is_superuser=True))
    url = f"/admin/chatapp/branch/{fork.pk}/do/switch/?to=tree"
    assert client.post(url).status_code == 403
    assert client.get(url).status_code == 302
    session.refresh_from_db()
    assert session.active_branch_id != fork.pk


def test_a_branch_is_named_and_loses_its_name(session, fork):
    client = operator(*VIEW, "change_branch")
    text = do(client, fork, "label", label="The <b>plan</b>").content.decode()
    assert "has a new name" in text
    assert "The &lt;b&gt;plan&lt;/b&gt;" in text
    fork.refresh_from_db()
    assert fork.label == "The <b>plan</b>"
    assert "has no name any more" in do(client, fork, "label", label="").content.decode()
    fork.refresh_from_db()
    assert fork.label == ""


def test_a_label_that_is_too_long_is_shown_again(session, fork):
    answer = do(operator(*VIEW, "change_branch"), fork, "label", label="x" * 121)
    assert answer.status_code == 200
    assert "at most 120 characters" in answer.content.decode()


def test_who_may_not_see_texts_names_nothing(session, fork):
    client = operator("view_session", "view_branch", "change_branch", "change_session")
    text = shown(client, session, f"?branch={fork.pk}")
    assert "Switch to this branch" in text
    assert "Name this branch" not in text
    assert do(client, fork, "label", label="mine").status_code == 403


class Summarising(FullHistoryBackend):
    """Says that it leaves summaries behind, and keeps what it was asked."""

    asked: dict = {}

    def offers_branch_summary(self, session):
        return True

    def switch(self, session, branch, wishes, *, activate):
        Summarising.asked = dict(wishes)
        if wishes["instructions"] == "refuse":
            raise SwitchRefusedError("Another switch is under way.")
        if not wishes["summarize"]:
            activate()


@pytest.fixture
def summarising(settings):
    settings.CHATAPP = settings.CHATAPP | {
        "CONTEXT": {"BACKEND": f"{__name__}.Summarising", "OPTIONS": {}}
    }


ALL = (*VIEW, "change_session", "change_branch", "add_compactionrun")


def test_a_summary_is_offered_where_the_backend_makes_one(session, fork, settings, summarising):
    query = f"?branch={fork.pk}"
    assert "Summarise the branch that is left" in shown(operator(*ALL), session, query)
    without = operator(*VIEW, "change_session")
    assert "Summarise the branch that is left" not in shown(without, session, query)
    settings.CHATAPP = settings.CHATAPP | {
        "CONTEXT": {"BACKEND": "chatapp.context.backend.FullHistoryBackend", "OPTIONS": {}}
    }
    text = shown(operator(*ALL), session, query)
    assert "Switch to this branch" in text
    assert "Summarise the branch that is left" not in text


def test_a_switch_with_a_summary_is_left_to_a_worker(session, fork, summarising):
    answer = do(
        operator(*ALL), fork, "switch", summarize="on", instructions="Keep the prices.", label="B"
    )
    assert "A worker summarises the branch that is left" in answer.content.decode()
    assert Summarising.asked.pop("requested_by").is_staff
    assert Summarising.asked == {
        "summarize": True,
        "instructions": "Keep the prices.",
        "replace_instructions": False,
        "label": "B",
        "wait": False,
    }
    session.refresh_from_db()
    fork.refresh_from_db()
    assert session.active_branch_id != fork.pk
    assert fork.label == "The <i>other</i> way"


def test_a_switch_without_a_summary_names_the_branch_at_once(session, fork, summarising):
    do(operator(*ALL), fork, "switch", label="The plan")
    fork.refresh_from_db()
    assert fork.label == "The plan"


def test_a_refused_switch_says_why(session, fork, summarising):
    answer = do(operator(*ALL), fork, "switch", summarize="on", instructions="refuse")
    assert "Another switch is under way." in answer.content.decode()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"instructions": "Keep it."}, "tick this, too"),
        ({"summarize": "on", "replace_instructions": "on"}, "in the place of the usual ones"),
        ({"summarize": "on", "instructions": "x" * 4_001}, "at most 4000 characters"),
    ],
)
def test_wishes_that_contradict_each_other_are_refused(session, fork, summarising, data, said):
    assert said in do(operator(*ALL), fork, "switch", **data).content.decode()
    session.refresh_from_db()
    assert session.active_branch_id != fork.pk


def test_the_history_says_who_switched_without_names(session, fork):
    client = operator(*VIEW, "change_session", "change_branch")
    do(client, fork, "label", label="Secret plan")
    do(client, fork, "switch")
    history = client.get(f"/admin/chatapp/branch/{fork.pk}/history/").content.decode()
    assert "Switch to this branch" in history
    assert "Secret plan" not in history.partition('id="change-history"')[2]
