"""The tree of a session by the API: forks and line ends in pages, and what branches tell."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from urllib.parse import unquote

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chatapp import transcript
from chatapp.models import Branch, Message, Session
from compaction.models import SessionSummary
from tests.chatapp.test_api_sessions import problem, url
from tests.deep_forks import deep_session
from tests.factories import SessionFactory, UserFactory, api_key, call, result, store, talk, user


@pytest.fixture
def session(owner) -> Session:
    return SessionFactory(owner=owner, wires=talk(4))


@pytest.fixture
def rows(session) -> list[Message]:
    return list(Message.objects.filter(session=session).order_by("position"))


@pytest.fixture
def tree(api):
    """Read all nodes of a session's tree, page by page."""

    def read(session, **query):
        address, nodes = url(session, "tree/"), []
        answer = api.get(address, query)
        while True:
            assert answer.status_code == 200
            nodes += answer.json()["results"]
            if (following := answer.json()["next"]) is None:
                return nodes
            answer = api.get(following)

    return read


def branch_at(session, message, *wires, label="") -> Branch:
    branch = transcript.fork(session, at=message, label=label)
    branch.session = session
    active = session.branch
    transcript.activate(session, branch)
    store(session, wires)
    transcript.activate(session, active)
    return branch


def summary(branch, *, through, kind="compaction") -> SessionSummary:
    return SessionSummary.objects.create(
        session=branch.session,
        branch=branch,
        kind=kind,
        summary_text="What was said.",
        trigger="manual",
        reason="manual",
        covers_from=1,
        covers_through=through,
    )


def test_a_line_without_forks_is_its_first_message_and_its_last(session, rows, tree):
    first, last = tree(session)
    assert (first["message"], last["message"]) == (str(rows[0].pk), str(rows[-1].pk))
    assert (first["parent"], last["parent"]) == (None, first["message"])
    assert (first["is_root"], first["is_head"]) == (True, False)
    assert (last["is_root"], last["is_head"]) == (False, True)
    assert [head["id"] for head in last["heads"]] == [str(session.active_branch_id)]
    assert (last["role"], last["kind"], last["sequence_id"]) == ("assistant", "message", "8.000000")
    assert last["preview"] == rows[-1].content[:120]
    assert last["tokens_through"] == session.branch.token_total


def test_forks_and_line_ends_are_nodes_and_nothing_else(session, rows, tree):
    fork = branch_at(session, rows[3], user("Another way."), label="The other plan")
    nodes = {node["message"]: node for node in tree(session)}
    end = Message.objects.get(branch=fork)
    assert set(nodes) == {str(row.pk) for row in (rows[0], rows[3], rows[7], end)}
    at = nodes[str(rows[3].pk)]
    assert at["forks"] == [{"id": str(fork.pk), "label": "The other plan", "is_active": False}]
    assert nodes[str(end.pk)]["parent"] == nodes[str(rows[7].pk)]["parent"] == str(rows[3].pk)
    assert nodes[str(end.pk)]["heads"][0]["label"] == "The other plan"
    active = {key for key, node in nodes.items() if node["on_active_path"]}
    assert active == {str(row.pk) for row in (rows[0], rows[3], rows[7])}


def test_a_branch_without_messages_ends_where_it_begins(session, rows, tree):
    fork = branch_at(session, rows[3])
    at = next(node for node in tree(session) if node["message"] == str(rows[3].pk))
    assert [head["id"] for head in at["heads"]] == [str(fork.pk)]
    assert at["is_head"]


def test_a_line_without_any_message_has_a_node(session, rows, tree):
    fork = transcript.fork_before(session, at=rows[0])
    transcript.activate(session, fork)
    empty, *others = tree(session)
    assert (empty["message"], empty["role"], empty["parent"]) == (None, None, None)
    assert [head["id"] for head in empty["heads"]] == [str(fork.pk)]
    assert empty["on_active_path"]
    assert not any(node["on_active_path"] for node in others)


def test_a_fork_behind_a_call_stands_at_its_last_result(session, tree):
    *_, answered = store(session, [call("f", "1"), result("1"), user("more")])[:2]
    branch_at(session, answered, user("less"))
    nodes = [node for node in tree(session) if node["fork_count"]]
    assert [(node["message"], node["role"]) for node in nodes] == [(str(answered.pk), "tool")]


def test_a_mark_behind_the_last_message_is_no_line_end(session, rows, tree):
    last = rows[-1]
    Message.objects.create(
        session=session,
        branch=session.branch,
        position=last.position + 1,
        role="system",
        kind="placeholder",
    )
    Branch.objects.filter(session=session).update(head_position=last.position + 1)
    assert [node["message"] for node in tree(session)] == [str(rows[0].pk), str(last.pk)]


def test_summaries_stand_on_the_way_that_leads_to_a_node(session, rows, tree):
    fork = branch_at(session, rows[3], *talk(3))
    summary(session.branch, through=rows[1].position)
    summary(session.branch, through=rows[5].position)
    summary(fork, through=rows[3].position + 2_000_000)
    summary(fork, through=rows[3].position + 1_000_000, kind="branch")
    summary(fork, through=rows[1].position).delete()
    marks = {
        node["sequence_id"]: (node["summaries"], node["branch_summaries"]) for node in tree(session)
    }
    assert marks == {
        "1.000000": (0, 0),
        "4.000000": (1, 0),
        "8.000000": (1, 0),
        "10.000000": (1, 1),
    }


def test_the_summary_of_a_branch_stands_at_its_note(session, rows, tree):
    """It covers messages of the branch that was left, at places that its own branch has not."""
    fork = branch_at(session, rows[1], user("on"), user("and on"))
    note, _ = Message.objects.filter(branch=fork).order_by("position")
    told = summary(fork, through=rows[7].position, kind="branch")
    told.metadata = {"note": str(note.pk)}
    told.save()
    branch_at(session, note, user("beside"))
    marks = {node["message"]: node["branch_summaries"] for node in tree(session)}
    assert {key for key, count in marks.items() if count} == {str(note.pk)}


@pytest.mark.parametrize("note", ["no id", "", None, 7, {"a": 1}, "x" * 36])
def test_metadata_that_names_no_note_costs_nothing(session, rows, tree, note):
    for kind in ("branch", "compaction"):
        odd = summary(session.branch, through=rows[3].position, kind=kind)
        odd.metadata = {"note": note}
        odd.save()
    *_, last = tree(session)
    assert (last["summaries"], last["branch_summaries"]) == (1, 1)


def test_pages_have_every_node_once_in_both_directions(api, session, rows, tree):
    for row in rows:
        for _ in range(3):
            branch_at(session, row, user("on"))
    nodes = tree(session, page_size=200)
    assert tree(session, page_size=3) == nodes
    assert len(nodes) == 8 + 24
    seen = {node["message"] for node in nodes if node["parent"] is None}
    for node in nodes:
        if node["parent"] is not None:
            assert node["parent"] in seen
            seen.add(node["message"])
    last = api.get(url(session, "tree/"), {"page_size": 3})
    while last.json()["next"]:
        last = api.get(last.json()["next"])
    back = last.json()["results"]
    while last.json()["previous"]:
        last = api.get(last.json()["previous"])
        back = last.json()["results"] + back
    assert back == nodes


@pytest.mark.parametrize("cursor", ["x", "cD0x", "cD0xLTI=", "bz0x", "cD3CsS0x"])
def test_a_cursor_that_was_made_up_is_not_found(api, session, cursor):
    problem(api.get(url(session, "tree/"), {"cursor": cursor}), 404)


@pytest.mark.parametrize("one_branch", [False, True])
def test_a_cursor_behind_all_nodes_leads_back(api, session, rows, tree, one_branch):
    asked = {"branch": str(session.active_branch_id)} if one_branch else {}
    behind = b64encode(b"p=999999999000000-" + b"0" * 32).decode()
    page = api.get(url(session, "tree/"), asked | {"cursor": behind}).json()
    assert (page["results"], page["next"]) == ([], None)
    assert api.get(page["previous"]).json()["results"] == tree(session)


def test_a_tree_of_somebody_else_is_not_found(client, session):
    stranger = {"Authorization": f"Bearer {api_key(UserFactory())}"}
    assert client.get(url(session, "tree/"), headers=stranger).status_code == 404


def test_of_many_branches_at_a_node_some_are_named(session, rows, tree):
    made = [
        Branch(
            session=session,
            parent=session.branch,
            fork_position=rows[3].position,
            head_position=rows[3].position,
            kind="fork",
            depth=1,
        )
        for _ in range(150)
    ]
    Branch.objects.bulk_create(made)
    at = next(node for node in tree(session) if node["fork_count"])
    assert (at["fork_count"], at["head_count"]) == (150, 150)
    assert (len(at["forks"]), len(at["heads"])) == (100, 100)


def queries_of(api, address, **query) -> int:
    with CaptureQueriesContext(connection) as found:
        answer = api.get(address, query)
    assert answer.status_code == 200
    return len(found)


def test_depth_and_width_cost_no_queries(api, owner):
    shallow = deep_session(owner, depth=2, messages=1_300)
    deep = deep_session(owner, depth=1_200, messages=1_300)
    wide = SessionFactory(owner=owner, wires=talk(2))
    at = Message.objects.filter(session=wide).order_by("position")[1]
    for _ in range(60):
        branch_at(wide, at, user("on"))
    for one in (shallow, deep, wide):
        summary(one.branch, through=1_000_000)
    for kind in ("tree/", "branches/"):
        counts = Counter(
            queries_of(api, url(one, kind), page_size=50) for one in (shallow, deep, wide)
        )
        assert len(counts) == 1, (kind, counts)
        assert max(counts) <= 9


def test_a_deep_tree_is_a_chain(tree, owner):
    deep = deep_session(owner, depth=1_200, messages=1_300)
    nodes = tree(deep, page_size=200)
    assert len(nodes) == 1 + 1_200 + 1
    assert all(node["on_active_path"] for node in nodes)
    above = [None, *(node["message"] for node in nodes[:-1])]
    assert [node["parent"] for node in nodes] == above


# --- one branch of a tree -------------------------------------------------------------------------


def test_a_branch_alone_has_its_nodes_as_the_whole_tree_has_them(session, rows, tree):
    fork = branch_at(session, rows[3], *talk(2), label="The other plan")
    branch_at(session, rows[3])
    inner = branch_at(session, Message.objects.filter(branch=fork).order_by("position")[1])
    summary(fork, through=rows[3].position + 2_000_000)
    for branch in (session.branch, fork, inner):
        whole = [node for node in tree(session) if node["branch"] == str(branch.pk)]
        for size in (1, 2, 50):
            assert tree(session, branch=str(branch.pk), page_size=size) == whole


def test_pages_of_a_branch_lead_back(api, session, rows):
    for row in rows:
        branch_at(session, row, user("on"))
    asked = {"branch": str(session.active_branch_id), "page_size": 3}
    page = api.get(url(session, "tree/"), asked).json()
    there = list(page["results"])
    while page["next"]:
        page = api.get(page["next"]).json()
        there += page["results"]
    back = list(page["results"])
    while page["previous"]:
        page = api.get(page["previous"]).json()
        back = page["results"] + back
    assert back == there
    assert len(there) == len(rows)


@pytest.mark.parametrize("branch", ["x", "", "00000000-0000-0000-0000-000000000000"])
def test_a_branch_that_is_none_of_the_sessions_has_no_tree(api, session, branch):
    other = SessionFactory(owner=session.owner, wires=talk(1))
    assert api.get(url(session, "tree/"), {"branch": branch}).status_code in (400, 404)
    problem(api.get(url(session, "tree/"), {"branch": str(other.active_branch_id)}), 404)


def crowd(session, at: Message, count: int, *, ends: bool) -> None:
    """Have many branches leave at a message, each with a message of its own or without one."""
    forks = [
        Branch(
            session=session,
            parent=session.branch,
            fork_position=at.position,
            head_position=at.position + (0 if ends else 1_000_000),
            kind="fork",
            depth=1,
        )
        for _ in range(count)
    ]
    Branch.objects.bulk_create(forks)
    if not ends:
        Message.objects.bulk_create(
            Message(session=session, branch=fork, position=at.position + 1_000_000, role="user")
            for fork in forks
        )


def test_a_crowded_place_names_some_and_counts_all(session, rows, tree):
    crowd(session, rows[3], 150, ends=False)
    crowd(session, rows[3], 120, ends=True)
    (at,) = [one for one in tree(session, branch=str(session.active_branch_id)) if one["forks"]]
    assert (at["fork_count"], at["head_count"]) == (270, 120)
    assert (len(at["forks"]), len(at["heads"])) == (20, 20)


def rows_read(api, session, **query) -> tuple[int, int]:
    """Return the statements of a page, and the rows that they read."""
    read = []
    with CaptureQueriesContext(connection) as found:
        answer = api.get(url(session, "tree/"), {"page_size": 2} | query)
    assert answer.status_code == 200
    for one in found.captured_queries:
        with connection.cursor() as cursor:
            cursor.execute(one["sql"])
            read.append(len(cursor.fetchall()))
    return len(read), sum(read)


def test_a_page_of_a_branch_reads_the_same_however_many_branches_there_are(api, session, rows):
    branch = str(session.active_branch_id)
    for place in (1, 5, 7):
        crowd(session, rows[place], 3, ends=False)
    before = rows_read(api, session, branch=branch)
    crowd(session, rows[5], 500, ends=False)
    crowd(session, rows[7], 500, ends=True)
    assert rows_read(api, session, branch=branch) == before


def test_a_page_of_the_tree_reads_the_same_however_many_branches_there_are(api, session, rows):
    for place in (1, 3, 5, 7):
        crowd(session, rows[place], 3, ends=False)
    second = api.get(url(session, "tree/"), {"page_size": 2}).json()["next"].split("cursor=")[1]
    cursors: tuple[dict[str, str], ...] = ({}, {"cursor": unquote(second).split("&")[0]})
    before = [rows_read(api, session, **cursor) for cursor in cursors]
    for place in (5, 7):
        crowd(session, rows[place], 500, ends=False)
    for branch in Branch.objects.filter(parent=session.branch, fork_position__gte=rows[5].position):
        summary(branch, through=branch.head_position)
    assert [rows_read(api, session, **cursor) for cursor in cursors] == before


# --- branches -------------------------------------------------------------------------------------


def listed(api, session) -> dict[str, dict]:
    answer = api.get(url(session, "branches/")).json()["results"]
    return {branch["id"]: branch for branch in answer}


def test_a_branch_tells_where_it_begins_and_ends(api, session, rows):
    fork = branch_at(session, rows[3], user("Another way."))
    empty = branch_at(session, rows[1])
    found = listed(api, session)
    root, one, none = (found[str(key)] for key in (session.active_branch_id, fork.pk, empty.pk))
    assert (root["fork_message"], root["last_message"]["id"]) == (None, str(rows[7].pk))
    assert (one["fork_message"], one["fork_position"]) == (str(rows[3].pk), rows[3].position)
    last = one["last_message"]
    assert (last["role"], last["preview"]) == ("user", "Another way.")
    assert last["created_at"]
    assert one["message_count"] == 5
    assert none["last_message"]["id"] == none["fork_message"] == str(rows[1].pk)
    assert api.get(f"/api/v1/branches/{fork.pk}/").json() == one


def test_a_line_without_messages_has_no_last_one(api, session, rows):
    fork = transcript.fork_before(session, at=rows[0])
    assert listed(api, session)[str(fork.pk)]["last_message"] is None


def test_a_branch_tells_its_own_summaries_and_those_it_shares(api, session, rows):
    fork = branch_at(session, rows[3], *talk(3))
    inner = branch_at(session, Message.objects.filter(branch=fork).order_by("position")[1])
    summary(session.branch, through=rows[1].position)
    summary(session.branch, through=rows[5].position)
    summary(fork, through=rows[3].position + 2_000_000)
    summary(fork, through=rows[3].position + 4_000_000)
    summary(fork, through=rows[3].position + 1_000_000, kind="branch")
    SessionSummary.objects.create(
        session=session, branch=fork, status="superseded", summary_text="Old.", trigger="manual",
        reason="manual", covers_from=1, covers_through=rows[1].position,
    )  # fmt: skip
    found = {
        key: (branch["summaries"], branch["branch_summaries"])
        for key, branch in listed(api, session).items()
    }
    none = {"own": 0, "shared": 0}
    assert found == {
        str(session.active_branch_id): ({"own": 2, "shared": 0}, none),
        str(fork.pk): ({"own": 2, "shared": 1}, {"own": 1, "shared": 0}),
        str(inner.pk): ({"own": 0, "shared": 2}, {"own": 0, "shared": 1}),
    }
