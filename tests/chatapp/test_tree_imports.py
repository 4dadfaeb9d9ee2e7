"""Trees of other programs as sessions: their branches, what a longer export adds, sizes."""

from __future__ import annotations

import json
import random
import tracemalloc

import pytest
from django.core.management import call_command

from chatapp.context.backend import FullHistoryBackend
from chatapp.models import Branch, Message, Session
from chatapp.outline import outline_of
from chatapp.selectors import path_messages, rebuild_sums
from chatapp.spooled_files import SpooledFile
from chatapp.transfer import import_file
from tests.chatapp.formats.test_chatgpt import CODE, export, node
from tests.chatapp.formats.test_trees import (
    FLAT,
    NESTED,
    Said,
    broad,
    draw_tree,
    each_format,
    expected,
    long_line,
)
from tests.chatapp.test_session_tree import comb
from tests.chatapp.test_transcript import check_all_sums
from tests.conftest import SHARED
from tests.facts import seed
from tests.fakes.strict_checker import faults

pytestmark = pytest.mark.django_db

IMPORT = "/api/v1/sessions/import/"
DATA = SHARED / "data"
NOON = "2026-01-01T12:00:00Z"


@pytest.fixture(autouse=True)
def no_queue(queued):
    """Imports may queue work; it is not done here."""


def stored(owner, content: str):
    return import_file(owner=owner, content=content.encode())


def lines(session: Session) -> set[tuple[str, ...]]:
    """The texts of every branch, from the root to its end."""
    return {
        tuple(str(row.content) for row in path_messages(branch))
        for branch in Branch.objects.filter(session=session)
    }


def lines_of(tree: list[Said]) -> set[tuple[str, ...]]:
    """The texts from the root to every end of a drawn tree."""
    above = expected(tree)
    found = set()
    for end in above.keys() - set(above.values()):
        line: list[str] = []
        at: str | None = end
        while at is not None:
            line.append(at)
            at = above[at]
        found.add(tuple(line[::-1]))
    return found


@pytest.mark.parametrize(
    ("path", "sessions", "messages", "branches"),
    [
        ("chatgpt_export/chatgpt_tree.json", 1, 11, 3),
        ("chatgpt_export/chatgpt_2025_user_context.json", 1, 10, 1),
        ("chatgpt_export/chatgpt_citations.json", 1, 1, 1),
        ("chatgpt_export/chatgpt_modern_export.json", 2, 6, 2),
        ("librechat/librechat_tree_nested.json", 1, 9, 3),
        ("librechat/librechat_flat_branches.json", 1, 5, 3),
        ("librechat/librechat_linear.json", 1, 2, 1),
        ("librechat/chatbotui_v4_export.json", 2, 6, 2),
        # Two messages a chat; the one with a call is three rows: call, result, answer.
        ("openwebui/openwebui_export_list.json", 3, 8, 3),
        ("openwebui/openwebui_single_chat.json", 1, 2, 1),
        ("oasst/en_trees_dev.jsonl", 60, 684, 360),
    ],
)
def test_real_trees_become_these_sessions_and_branches(
    api, shared, path, sessions, messages, branches
):
    content = (DATA / path).read_bytes()

    answer = api.post(IMPORT, content, content_type="application/octet-stream")

    assert answer.status_code == 201
    assert len(answer.json()["sessions"]) == Session.objects.count() == sessions
    assert Message.objects.count() == messages
    assert Branch.objects.count() == branches

    again = api.post(IMPORT, content, content_type="application/octet-stream")

    assert [one["messages_added"] for one in again.json()["sessions"]] == [0] * sessions
    assert (Message.objects.count(), Branch.objects.count()) == (messages, branches)


def test_the_active_branch_of_the_real_tree_is_the_line_that_was_shown(shared, owner):
    path = DATA / "chatgpt_export/chatgpt_tree.json"
    import_file(owner=owner, content=path.read_bytes())

    rows = list(path_messages(Session.objects.get().branch))

    assert len(rows) == 6
    assert rows[-1].metadata["import_key"].startswith("f63b8e17")


def test_the_command_imports_trees_as_it_does_other_files(shared, owner, capsys):
    call_command("import_transcript", str(DATA / "librechat"), owner=owner.username)

    assert Session.objects.count() == 5
    assert {session.metadata["import"]["format"] for session in Session.objects.all()} == {
        "librechat",
        "chatbot_ui",
    }


@pytest.mark.parametrize("written", [*FLAT.values(), *NESTED.values()], ids=[*FLAT, "n1", "n2"])
def test_every_branch_of_a_drawn_tree_is_a_line_of_the_file(owner, written):
    tree = draw_tree(random.Random(f"{seed()} lines"))

    stored(owner, written(tree))

    session = Session.objects.get()
    assert lines(session) == lines_of(tree)
    assert Branch.objects.count() == len(lines_of(tree))
    assert Message.objects.count() == len(tree)
    check_all_sums(session)


# --- longer exports -------------------------------------------------------------------------------


def pruned(tree: list[Said], chance: random.Random, count: int) -> list[Said]:
    """The tree before its last `count` messages were said, here and there."""
    kept = [Said(key=m.key, parent=m.parent, text=m.text, role=m.role) for m in tree]
    for _ in range(count):
        parents = {one.parent for one in kept}
        kept.remove(chance.choice([one for one in kept if one.key not in parents]))
    by_key = {one.key: one for one in kept}
    for one in kept:
        if one.parent is not None:
            by_key[one.parent].children.append(one.key)
    return kept


@pytest.mark.parametrize("written", [*FLAT.values(), *NESTED.values()], ids=[*FLAT, "n1", "n2"])
@pytest.mark.parametrize("count", [1, 7, 25])
def test_a_longer_export_adds_only_the_rest_wherever_it_stands(owner, written, count):
    chance = random.Random(f"{seed()} grown {count}")
    tree = draw_tree(chance)
    stored(owner, written(pruned(tree, chance, count)))
    before = set(Message.objects.values_list("pk", flat=True))

    report = stored(owner, written(tree))

    assert list(report.problems) == [] or "earlier" not in report.problems[0].text
    assert [one.messages_added for one in report.imported] == [count]
    assert before < set(Message.objects.values_list("pk", flat=True))
    session = Session.objects.get()
    assert lines(session) == lines_of(tree)
    check_all_sums(session)
    assert [one.messages_added for one in stored(owner, written(tree)).imported] == [0]


def chatgpt(*nodes, **more) -> str:
    return json.dumps([export(*nodes, **more)])


QUESTION = ("q", None, "user", "Why?")
FIRST, SECOND = ("a", "q", "assistant", "So."), ("b", "q", "assistant", "Thus.")


@pytest.mark.parametrize(("current", "line"), [("a", ["Why?", "So."]), ("b", ["Why?", "Thus."])])
def test_after_a_longer_export_the_line_that_it_shows_is_active(owner, current, line):
    stored(owner, chatgpt(node(*QUESTION), node(*FIRST)))

    stored(owner, chatgpt(node(*QUESTION), node(*FIRST), node(*SECOND), current_node=current))

    assert [row.content for row in path_messages(Session.objects.get().branch)] == line


@pytest.mark.parametrize("key", ["7", "1e5", "true", "null", '"q"', "[]"])
def test_a_key_that_could_be_json_is_found_again(owner, key):
    question = node(key, None, "user", "Why?")
    stored(owner, chatgpt(question, node("b", key, "assistant", "Thus."), current_node="b"))

    first = node("a", key, "assistant", "So.")
    last = node("b", key, "assistant", "Thus.")
    report = stored(owner, chatgpt(question, first, last, current_node="a"))

    assert list(report.problems) == []
    assert [one.messages_added for one in report.imported] == [1]


def test_an_export_whose_earlier_messages_differ_adds_nothing(owner):
    stored(owner, chatgpt(node(*QUESTION), node(*FIRST)))

    report = stored(owner, chatgpt(node("q", None, "user", "How?"), node(*FIRST), node(*SECOND)))

    assert Message.objects.count() == 2
    assert "its earlier messages differ" in report.problems[0].text


def test_a_session_that_somebody_went_on_with_is_left_alone(owner):
    stored(owner, chatgpt(node(*QUESTION), node(*FIRST)))
    session = Session.objects.get()
    Message.objects.create(
        session=session, branch=session.branch, role="user", content="More?", position=9_000_000
    )

    report = stored(owner, chatgpt(node(*QUESTION), node(*SECOND), node(*FIRST)))

    assert Message.objects.count() == 3
    assert "other messages came in here" in report.problems[0].text


# --- calls and depth ------------------------------------------------------------------------------


def test_every_branch_below_a_call_is_accepted_by_a_strict_server(owner):
    output = {"content_type": "execution_output", "text": "42"}
    stored(
        owner,
        chatgpt(
            node("q", None, "user", "6 * 7?"),
            node("c", "q", "assistant", CODE, recipient="python"),
            node("r", "c", "tool", output, name="python"),
            node("x", "r", "assistant", "42."),
            node("s", "c", "tool", output | {"text": "43"}, name="python"),
            node("y", "s", "assistant", "43."),
        ),
    )

    session = Session.objects.get()
    results = []
    for branch in Branch.objects.filter(session=session):
        session.active_branch = branch
        wires = [*FullHistoryBackend().preview(session).messages, {"role": "user", "content": "?"}]
        assert faults(wires) == []
        results.append([wire["content"] for wire in wires if wire["role"] == "tool"])
    assert sorted(results) == [["42"], ["43"]]


@each_format
def test_a_line_of_five_thousand_is_one_branch(owner, written):
    stored(owner, written(long_line(5_000)))

    assert Branch.objects.get().message_count == 5_000


def test_forks_below_each_other_become_a_branch_each(owner):
    """Each message of a line has a second answer beside it."""
    tree = long_line(80)
    for one in [*tree]:
        beside = Said(key=f"x{one.key}", parent=one.key, text=f"beside {one.key}", role="assistant")
        one.children.insert(0, beside.key)
        tree.append(beside)

    stored(owner, FLAT["chatgpt"](tree))

    session = Session.objects.get()
    assert lines(session) == lines_of(tree)
    assert Branch.objects.count() == 80
    check_all_sums(session)


def check_all_sums_of_some(session: Session) -> None:
    """The sums of the shallowest and of the deepest branches are right."""
    branches = list(Branch.objects.filter(session=session).order_by("depth", "pk"))
    for branch in (*branches[:2], *branches[-2:]):
        count, total, _ = rebuild_sums(branch)
        assert (branch.message_count, branch.token_total) == (count, total)


def pi_file(answers: int) -> str:
    """A session of pi in which a tool's result has so many answers."""
    asked = [{"type": "toolCall", "id": "t", "name": "f", "arguments": {}}]
    done = [{"type": "text", "text": "done"}]
    said = {"role": "toolResult", "toolCallId": "t", "toolName": "f", "content": done}
    entries = [
        ("q", None, {"role": "user", "content": "Go."}),
        ("c", "q", {"role": "assistant", "content": asked}),
        ("r", "c", said | {"isError": False}),
        *(
            (f"a{number}", "r", {"role": "assistant", "content": [{"type": "text", "text": "So."}]})
            for number in range(answers)
        ),
    ]
    head = {"type": "session", "version": 3, "id": "s", "timestamp": NOON, "cwd": "/"}
    rows = [
        {"type": "message", "id": key, "parentId": parent, "timestamp": NOON, "message": message}
        for key, parent, message in entries
    ]
    return "\n".join(map(json.dumps, [head, *rows]))


@pytest.mark.slow
@each_format
def test_five_thousand_forks_below_each_other_are_stored(owner, written):
    depth = 5_000
    stored(owner, written(comb(2 * depth)))

    session = Session.objects.get()
    assert Message.objects.count() == 2 * depth
    assert Branch.objects.count() == depth
    # All but the last message of the line are forks; every message beside one is a line's end.
    assert len(outline_of(session).nodes) == depth - 1 + depth
    check_all_sums_of_some(session)


@pytest.mark.slow
def test_ten_thousand_answers_to_a_call_keep_it_with_its_result(owner):
    answers = 10_000
    stored(owner, pi_file(answers))

    assert Branch.objects.count() == answers
    session = Session.objects.get()
    forks = Branch.objects.filter(session=session, parent__isnull=False)
    (place,) = set(forks.values_list("fork_position", flat=True))
    assert Message.objects.get(position=place, branch__parent=None).role == "tool"


def test_damage_leaves_lines_of_their_own(owner):
    """Circles and nodes that name themselves begin a line; what cannot be read goes by name."""
    tree = [
        Said(key="a", parent="b", text="first", children=["b"]),
        Said(key="b", parent="a", text="second", role="assistant", children=["a"]),
        Said(key="c", parent="c", text="third"),
        Said(key="broken", parent="c", text=12.5, role="assistant"),
        Said(key="d", parent="broken", text="fourth"),
    ]

    report = stored(owner, FLAT["oasst"](tree))

    session = Session.objects.get()
    assert lines(session) == {("first", "second"), ("third", "fourth")}
    assert Branch.objects.filter(session=session, parent=None).count() == 2
    told = " ".join(problem.text for problem in report.problems)
    for name in ("'a'", "'c'", "'broken'"):
        assert name in told
    assert FullHistoryBackend().preview(session).messages
    check_all_sums(session)


def _as_one_line(tree: list[Said]) -> str:
    messages = [{"role": one.role, "content": one.text} for one in tree]
    return json.dumps({"title": "A title of its own", "messages": messages})


@pytest.mark.parametrize(
    ("draw", "written"),
    [(broad, FLAT["chatgpt"]), (long_line, FLAT["open_webui"]), (long_line, _as_one_line)],
    ids=["broad", "deep", "one line"],
)
def test_an_import_takes_no_more_memory_for_longer_texts(owner, draw, written, monkeypatch):
    """Six times the text in as many messages: but for the rows that are written at a time."""
    # Triggers look at the newest messages afterwards: some dozens, whatever there are.
    monkeypatch.setattr("chatapp.transfer.notify", lambda *args: None)

    def peak(chars: int) -> int:
        tree = draw(50)
        for one in tree:
            one.text = f"{one.text} {'word ' * (chars // 5)}"
        file = SpooledFile([written(tree).replace('"c"', f'"c{chars}"').encode()])
        del tree
        assert file.is_large
        tracemalloc.start()
        try:
            assert sum(
                one.messages_added for one in import_file(owner=owner, content=file).imported
            )
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    small, large = peak(25_000), peak(150_000)
    assert large < small + 3_500_000, f"{small:,} bytes for 1.2 MB, {large:,} for 7 MB"
