"""ETag and If-None-Match: a tag changes with whatever changes the answer, and with nothing else."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from chatapp import transcript
from chatapp.api.etags import tag_of
from chatapp.models import Session
from chatapp.transcript.writing import NewMessage, set_pinned
from tests.chatapp.part_shapes import IMAGE, user_with
from tests.chatapp.test_api_sessions import problem, url
from tests.factories import SessionFactory, UserFactory, api_key, call, result, store, talk

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(owner, queued) -> Session:
    session = SessionFactory(owner=owner)
    store(session, [*talk(3), call("f", "1"), result("1", "x" * 3_000), *talk(1)])
    return session


@pytest.fixture
def path(session) -> str:
    return url(session, "messages/")


def tag(api, path: str, **query) -> str:
    answer = api.get(path, query)
    assert answer.status_code == 200
    return answer["ETag"]


def again(api, path: str, tag: str, **query):
    """Ask for what is there already."""
    return api.get(path, query, headers={"If-None-Match": tag})


QUERIES = [
    {},
    {"order": "newest"},
    {"page_size": "2"},
    {"page_size": "2", "order": "newest"},
    {"fields": "light"},
    {"fields": "sizes"},
    {"verbosity": "compact"},
    {"verbosity": "quiet"},
]
each_query = pytest.mark.parametrize("query", QUERIES, ids=str)


@each_query
def test_a_client_that_has_the_page_gets_no_body(api, path, query):
    first = api.get(path, query)
    unchanged = again(api, path, first["ETag"], **query)
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert unchanged["ETag"] == first["ETag"]
    assert unchanged["Cache-Control"] == "no-store"


@each_query
def test_another_tag_gets_the_page(api, path, query):
    first = api.get(path, query)
    changed = again(api, path, '"0123456789abcdef"', **query)
    assert (changed.status_code, changed.content) == (200, first.content)


@pytest.mark.parametrize("form", ["{}", "W/{}", '"a", {}', '{}, W/"b"', "*"])
def test_tags_are_compared_as_http_says(api, path, form):
    assert again(api, path, form.format(tag(api, path))).status_code == 304


@pytest.mark.parametrize("form", ["", "nonsense", '"', 'W/""', '"*"', '"\x80"'])
def test_what_is_no_tag_gets_the_page(api, path, form):
    assert again(api, path, form).status_code == 200


def test_every_query_has_a_tag_of_its_own(api, path):
    tags = [tag(api, path, **query) for query in QUERIES]
    tags.append(tag(api, path, cursor="cD0yMDAwMDAw"))
    assert len(set(tags)) == len(tags)


def test_tags_of_two_sessions_differ(api, owner, path):
    other = SessionFactory(owner=owner)
    store(other, talk(1))
    assert tag(api, path) != tag(api, url(other, "messages/"))
    empty = [url(SessionFactory(owner=owner), "messages/") for _ in range(2)]
    assert tag(api, empty[0]) == tag(api, empty[1])  # both show nothing


def append(session):
    store(session, talk(1))


def insert(session):
    row = session.messages.order_by("position").last()
    draft = NewMessage(wire={"role": "user", "content": "between"})
    transcript.insert_between(session.branch, after=row.position - 1_000_000, draft=draft)


def insert_placeholder(session):
    row = session.messages.order_by("position").last()
    draft = NewMessage(wire={"role": "assistant", "content": None}, kind="placeholder", summary="S")
    transcript.insert_between(session.branch, after=row.position, draft=draft)


def pin(session):
    set_pinned(session.messages.order_by("position").last(), True)


def pin_first(session):
    set_pinned(session.messages.order_by("position").first(), True)


def replay(session):
    cut = session.messages.get(role="tool")
    transcript.replay(session, contents={cut.pk: "shortened"})


def switch_branch(session):
    at = session.messages.order_by("position")[1]
    transcript.activate(session, transcript.fork(session, at=at))


def correct_tokens(session):
    session.messages.update(tokens=7)


def renumber(session):
    insert(session)
    transcript.writing.renumber(session)


CHANGES = [append, insert, pin, pin_first, replay, switch_branch, renumber, insert_placeholder]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "query", [{}, {"fields": "light"}, {"fields": "sizes"}, {"order": "newest"}], ids=str
)
def test_whatever_changes_the_page_changes_its_tag(api, session, path, query, change):
    before = api.get(path, query)
    change(session)
    after = again(api, path, before["ETag"], **query)
    assert after.status_code == 200
    assert after["ETag"] != before["ETag"]
    assert after.content != before.content


@pytest.mark.parametrize("query", [{}, {"fields": "sizes"}], ids=str)
def test_so_do_corrected_counts_of_tokens(api, session, path, query):
    before = api.get(path, query)
    correct_tokens(session)
    assert again(api, path, before["ETag"], **query).status_code == 200


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("verbosity", ["compact", "quiet"])
def test_briefly_told_pages_have_the_tag_of_their_bytes(api, session, path, verbosity, change):
    before = api.get(path, {"verbosity": verbosity})
    change(session)
    after = again(api, path, before["ETag"], verbosity=verbosity)
    assert after.status_code == (304 if api.get(path, {"verbosity": verbosity}).content
                                 == before.content else 200)  # fmt: skip


def test_taking_a_pin_back_gives_the_old_tag_again(api, session, path):
    row = session.messages.order_by("position").first()
    first = tag(api, path)
    set_pinned(row, True)
    set_pinned(row, False)
    assert again(api, path, first).status_code == 304


def test_what_changes_another_page_changes_no_tag(api, session, path):
    first = api.get(path, {"page_size": 2})
    append(session)
    assert again(api, path, first["ETag"], page_size=2).status_code == 304
    # The last page gets a link to the next one.
    whole = api.get(path, {"page_size": 200})["ETag"]
    store(session, talk(100))
    assert again(api, path, whole, page_size=200).status_code == 200


def test_what_a_placeholder_names_is_a_part_of_the_tag(api, session, path):
    insert_placeholder(session)
    mark = session.messages.get(kind="placeholder")
    transcript.branches.point_placeholder(mark, "a" * 36)
    first = tag(api, path)
    transcript.branches.point_placeholder(mark, "b" * 36)
    assert again(api, path, first).status_code == 200


def test_so_is_a_file_that_is_lost(api, session, path, part_folder):
    store(session, [user_with(IMAGE)])
    first = tag(api, path)
    assert again(api, path, first).status_code == 304
    for file in Path(part_folder).rglob("*"):
        if file.is_file():
            file.unlink()
    assert again(api, path, first).status_code == 200


def test_a_tag_opens_nothing(client, session, path, owner):
    mine = {"Authorization": f"Bearer {api_key(owner)}"}
    theirs = {"Authorization": f"Bearer {api_key(UserFactory())}"}
    writes = {"Authorization": f"Bearer {api_key(owner, scopes=['write'])}"}
    known = {"If-None-Match": client.get(path, headers=mine)["ETag"]}
    assert client.get(path, headers=mine | known).status_code == 304
    for tags in (known, {"If-None-Match": "*"}):
        problem(client.get(path, headers=theirs | tags), 404)
        problem(client.get(path, headers=writes | tags), 403)
        problem(client.get(path, headers=tags), 401)
    transcript.delete_session(session)
    problem(client.get(path, headers=mine | known), 404)


@each_query
def test_head_has_the_tag_of_get(api, path, query):
    read, head = api.get(path, query), api.head(path, query)
    assert head["ETag"] == read["ETag"]
    assert head["Content-Length"] == read["Content-Length"]
    tags = {"If-None-Match": read["ETag"]}
    assert api.head(path, query, headers=tags).status_code == 304


def test_an_unchanged_page_reads_no_text(api, session, path, django_assert_num_queries):
    first = tag(api, path)
    with django_assert_num_queries(2) as captured:  # the session, the places
        again(api, path, first)
    assert '"reasoning"' in captured[1]["sql"]  # its size alone
    assert 'SELECT "messages"."content"' not in captured[1]["sql"]
    store(session, talk(60))
    first = tag(api, path)
    with django_assert_num_queries(2):
        again(api, path, first)


def test_where_a_row_changes_between_the_two_reads_the_tag_is_of_the_bytes(
    api, session, path, monkeypatch
):
    from chatapp.api.message_pages import StoredPagination

    read = StoredPagination._rows
    row = session.messages.order_by("position").first()

    def pinned_meanwhile(self, form, branch):
        set_pinned(row, True)
        return read(self, form, branch)

    quiet = tag(api, path)
    monkeypatch.setattr(StoredPagination, "_rows", pinned_meanwhile)
    answer = api.get(path)
    monkeypatch.undo()
    assert answer.json()["results"][0]["pinned"] is True
    # The client has the page with the pin: taken back, it is another page.
    set_pinned(row, False)
    assert again(api, path, answer["ETag"]).status_code == 200
    assert again(api, path, quiet).status_code == 304


def test_parts_of_a_tag_do_not_run_into_each_other():
    pairs = [("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("", "abc"), (b"ab", "c")]
    tags = [tag_of(*parts) for parts in pairs]
    assert len(set(tags)) == len(pairs) - 1  # the last is the first
    assert all(one != other for one, other in pairwise(tags))
