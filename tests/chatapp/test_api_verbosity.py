"""`verbosity` of messages/: whole answers, lines, states of turns, and pages that tell the same."""

from __future__ import annotations

import random

import pytest

from chatapp import transcript
from chatapp.models import Branch, Message
from chatapp.selectors import GROUP_REACH
from chatapp.transcript.writing import NewMessage
from tests.chatapp.test_api_sessions import problem, url
from tests.factories import SessionFactory, call, result, store, talk, user

WIRES = [
    {"role": "system", "content": "Be brief."},
    user("Where is it?"),
    call("grep", "1", '{"pattern": "MK-0815", "path": "."}'),
    result("1", "src/a.py:7"),
    {"role": "assistant", "content": "Found, I look closer."},
    call("read", "2", '{"path": "src/a.py"}'),
    result("2", "Error: permission denied"),
    {"role": "assistant", "content": "It stands\nin src/a.py."},
    user("Go on."),
    call("read", "3", '{"path": "src/b.py"}'),
    result("3", "x" * 5_000),
    user("And now?"),
    call("read", "4", '{"path": "src/c.py"}'),
]


@pytest.fixture
def session(owner):
    return SessionFactory(owner=owner)


def read(api, session, **query) -> list[dict]:
    """Return all results, page by page."""
    page = api.get(url(session, "messages/"), query).json()
    found = page["results"]
    while page["next"]:
        page = api.get(page["next"]).json()
        found += page["results"]
    return found


def random_wires(rng: random.Random, count: int) -> list[dict]:
    """Return a conversation of any shape: turns without answers, several answers in a row."""
    wires: list[dict] = []
    for number in range(count):
        kind = rng.choice(("question", "answer", "calls", "calls"))
        if kind == "question":
            wires.append(user(f"Question {number}"))
        elif kind == "answer":
            wires.append({"role": "assistant", "content": f"Answer {number}"})
        else:
            wires += [call("look", f"c{number}", '{"at": 1}'), result(f"c{number}", "seen")]
    return wires


def test_compact_tells_questions_and_last_answers_whole_and_the_rest_in_lines(api, session):
    store(session, WIRES)
    told = read(api, session, verbosity="compact")
    assert [one["lines"] or one["content"] for one in told] == [
        ["system: Be brief. · 9 characters"],
        "Where is it?",
        ["→ grep MK-0815 · 35 characters"],
        ["← grep · 10 characters · ok"],
        ["Found, I look closer. · 21 characters"],
        ["→ read src/a.py · 20 characters"],
        ["← read · 24 characters · error"],
        "It stands\nin src/a.py.",
        "Go on.",
        ["→ read src/b.py · 20 characters"],
        ["← read · 5,000 characters · ok"],
        "And now?",
        ["→ read src/c.py · 20 characters"],
    ]
    assert all((one["content"] is None) == bool(one["lines"]) for one in told)
    states = [one["state"] for one in told if one["role"] == "user"]
    assert states == ["answered", "interrupted", "continues"]
    assert list(told[0]) == [
        *("id", "sequence_id", "role", "kind", "content", "lines", "state", "end"),
        *("pinned", "created_at"),
    ]


def test_quiet_tells_questions_with_their_state_and_last_answers(api, session):
    store(session, WIRES)
    assert [(one["content"], one["state"]) for one in read(api, session, verbosity="quiet")] == [
        ("Where is it?", "answered"),
        ("It stands\nin src/a.py.", None),
        ("Go on.", "interrupted"),
        ("And now?", "continues"),
    ]


def test_default_is_everything(api, session):
    store(session, WIRES)
    assert read(api, session, verbosity="default") == read(api, session)


def test_a_session_without_messages_has_an_empty_page(api, session):
    for verbosity in ("compact", "quiet"):
        assert read(api, session, verbosity=verbosity) == []


@pytest.mark.parametrize("seed", [3, 33, 333])
@pytest.mark.parametrize("verbosity", ["compact", "quiet"])
def test_pages_of_any_size_and_order_tell_the_same(api, session, verbosity, seed):
    store(session, random_wires(random.Random(seed), 24))
    whole = read(api, session, verbosity=verbosity, page_size=200)
    for size in (1, 2, 3, 7):
        query = {"verbosity": verbosity, "page_size": size}
        assert read(api, session, **query) == whole
        assert read(api, session, **query, order="newest") == whole[::-1]


def test_going_back_a_page_tells_the_same(api, session):
    store(session, WIRES)
    query = {"verbosity": "compact", "page_size": 5}
    first = api.get(url(session, "messages/"), query).json()
    second = api.get(first["next"]).json()
    back = api.get(second["previous"]).json()
    assert back["results"] == first["results"]


def test_pages_that_end_early_tell_the_same(api, session, settings):
    store(session, [*talk(2, words=300), *WIRES, *talk(2, words=300)])
    whole = read(api, session, verbosity="compact")
    settings.CHATAPP = settings.CHATAPP | {"MAX_PAGE_BYTES": 4_000}
    page = api.get(url(session, "messages/"), {"verbosity": "compact"}).json()
    assert 0 < len(page["results"]) < len(whole)
    assert read(api, session, verbosity="compact") == whole
    assert read(api, session, verbosity="compact", order="newest") == whole[::-1]


def put(branch: Branch, wires: list[dict]) -> list[Message]:
    return transcript.append(branch, [NewMessage(wire=wire) for wire in wires])


@pytest.mark.parametrize("verbosity", ["compact", "quiet"])
def test_a_fork_tells_its_own_turns(api, session, verbosity):
    rows = store(session, WIRES)
    # The turn of the first question goes on in another way behind its first look.
    fork = transcript.fork(session, at=rows[3])
    answer, *_ = put(fork, [{"role": "assistant", "content": "Just there."}, *WIRES[8:]])
    deep = transcript.fork(session, at=answer)
    put(deep, [call("f", "9"), result("9"), {"role": "assistant", "content": "No, here."}])
    for branch in (fork, deep):
        query = {"verbosity": verbosity, "branch": str(branch.pk)}
        whole = read(api, session, **query)
        for size in (1, 2, 4):
            assert read(api, session, **query, page_size=size) == whole
            assert read(api, session, **query, page_size=size, order="newest") == whole[::-1]
    told = read(api, session, verbosity="quiet", branch=str(deep.pk))
    assert [one["content"] for one in told] == ["Where is it?", "No, here."]


def test_a_turn_that_goes_on_far_behind_a_page_of_a_fork_is_told_right(api, session):
    steps = [
        wire
        for number in range(GROUP_REACH // 2 + 40)
        for wire in (call("f", f"c{number}"), result(f"c{number}"))
    ]
    steps_end = store(session, [user("Which?"), *steps])[-1]
    fork = transcript.fork(session, at=steps_end)
    query = {"verbosity": "compact", "page_size": 3, "branch": str(fork.pk)}

    def state() -> str:
        return api.get(url(session, "messages/"), query).json()["results"][0]["state"]

    assert state() == "continues"
    put(fork, [user("Another?")])
    assert state() == "interrupted"
    other = transcript.fork(session, at=steps_end)
    put(other, [{"role": "assistant", "content": "That one."}])
    query["branch"] = str(other.pk)
    assert state() == "answered"


@pytest.mark.parametrize("verbosity", ["compact", "quiet"])
def test_a_brief_page_costs_what_a_whole_one_costs(
    api, session, django_assert_num_queries, verbosity
):
    store(session, WIRES)
    query = {"verbosity": verbosity, "page_size": 4}
    with django_assert_num_queries(3):  # the session, the rows' sizes, the rows
        api.get(url(session, "messages/"), query)
    for _ in range(20):
        store(session, WIRES)
    for order in ("oldest", "newest"):
        with django_assert_num_queries(3):
            api.get(url(session, "messages/"), query | {"order": order})


def test_fields_and_verbosity_are_not_for_one_request(api, session):
    query = {"verbosity": "quiet", "fields": "light"}
    body = problem(api.get(url(session, "messages/"), query), 400)
    assert body["errors"]["fields"] == ["Leave it out, or `verbosity`: each shortens."]


def test_a_made_up_cursor_is_not_found(api, session):
    store(session, WIRES)
    for cursor in ("cD14", "x"):
        query = {"verbosity": "quiet", "cursor": cursor}
        problem(api.get(url(session, "messages/"), query), 404)
