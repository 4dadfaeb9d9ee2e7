"""show_session --compact, --quiet, --follow: what is told briefly, and what comes meanwhile."""

from __future__ import annotations

import io
import json
import random
import re
from collections.abc import Callable

import pytest
import wcwidth
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chatapp import transcript
from chatapp.models import Branch, Message, Session
from chatapp.transcript.writing import NewMessage
from compaction.management import conversation, following
from compaction.models import SessionSummary
from tests.compaction.support import NEVER, compact
from tests.factories import SessionFactory, call, profile, result, store, talk, user

pytestmark = pytest.mark.django_db

STEPS = [
    user("Where\nis it?"),
    call("grep", "1", '{"pattern": "MK-0815"}'),
    result("1", "src/a.py:7"),
    {"role": "assistant", "content": "I look."},
    call("read", "2", '{"path": "src/a.py"}'),
    result("2", "Error: denied"),
    {"role": "assistant", "content": "In\nsrc/a.py."},
    user("Go on."),
    call("read", "3", "{}"),
    user("Well?"),
]


def show(session: Session | str, *arguments: str) -> str:
    out = io.StringIO()
    pk = session if isinstance(session, str) else str(session.pk)
    call_command("show_session", pk, *arguments, stdout=out)
    return out.getvalue()


def body(text: str) -> list[str]:
    """Return the lines behind the header, without times and tokens."""
    lines = text.partition("\n\n")[2].splitlines()
    return [re.sub(r" · \d{4}-\d\d-\d\d [^·]*UTC · \d+ tokens?", "", line) for line in lines]


# --- brief ----------------------------------------------------------------------------------------


def test_compact_has_a_line_for_each_step(db):
    assert body(show(SessionFactory(wires=STEPS), "--compact")) == [
        "1 · user",
        "  Where",
        "  is it?",
        "",
        "2 · → grep MK-0815 · 22 characters",
        "3 · ← grep · 10 characters · ok",
        "4 · I look. · 7 characters",
        "5 · → read src/a.py · 20 characters",
        "6 · ← read · 13 characters · error",
        "",
        "7 · assistant",
        "  In",
        "  src/a.py.",
        "",
        "8 · user",
        "  Go on.",
        "",
        "9 · → read · 2 characters",
        "",
        "10 · user",
        "  Well?",
    ]


@pytest.mark.parametrize("arguments", [("--quiet",), ("--quiet", "--compact")])
def test_quiet_has_questions_last_answers_and_states(db, arguments):
    assert body(show(SessionFactory(wires=STEPS), *arguments)) == [
        "1 · user",
        "  Where",
        "  is it?",
        "",
        "7 · assistant",
        "  In",
        "  src/a.py.",
        "",
        "8 · user",
        "  Go on.",
        "",
        "[interrupted]",
        "",
        "10 · user",
        "  Well?",
        "",
        "[continues]",
    ]


@pytest.mark.parametrize("how", ["--compact", "--quiet"])
def test_batches_of_any_size_tell_the_same(db, monkeypatch, how):
    session = SessionFactory(wires=STEPS * 4)
    whole = show(session, how)
    for size in (1, 2, 3, 7):
        monkeypatch.setattr(conversation, "BATCH", size)
        # A blank line parts batches, too.
        assert show(session, how).replace("\n", "") == whole.replace("\n", "")


def test_summaries_are_a_line_in_compact_and_not_in_quiet(model_server, queued):
    profile(**NEVER, keep_last_n=2)
    session = SessionFactory(wires=talk(6, marker=1, words=3))
    compact(session)
    summary = SessionSummary.objects.get()
    text = show(session, "--compact")
    assert f"summary {str(summary.pk)[-8:]} · active" in text
    assert summary.summary_text.splitlines()[0] not in text
    assert "summary" not in show(session, "--quiet").replace("covered by summary", "")


@pytest.mark.parametrize("width", [30, 47, 80, 200])
def test_no_line_is_wider_than_asked_or_than_a_line_may_be(db, width):
    rng = random.Random(width)
    texts = ["深" * 200, "x" * 500, "\x1b[2J" * 40, "a b\n" * 90, "\u202e" * 150]
    wires = []
    for number in range(30):
        arguments = json.dumps({"a": rng.choice(texts)})
        wires += [
            call(rng.choice(texts)[:80], f"c{number}", arguments),
            result(f"c{number}", rng.choice(texts)),
        ]
    text = show(SessionFactory(wires=wires), "--compact", "--width", str(width))
    assert max(wcwidth.width(line) for line in text.splitlines()) <= min(width, 120)
    assert not set(text) & set("\x1b\u202e\r")


# --- following ------------------------------------------------------------------------------------


@pytest.fixture
def follow(monkeypatch) -> Callable[..., str]:
    """Follow a session while one step after the other happens; then Ctrl-C."""

    def follow_it(session: Session, *steps: Callable[[], object], arguments=()) -> str:
        left = list(steps)

        def happens() -> None:
            if not left:
                raise KeyboardInterrupt
            left.pop(0)()

        monkeypatch.setattr(following, "wait", happens)
        return show(session, "--follow", *arguments)

    return follow_it


def put(branch: Branch, *wires: dict) -> list[Message]:
    return transcript.append(branch, [NewMessage(wire=wire) for wire in wires])


def test_only_what_comes_is_shown_and_ctrl_c_is_no_error(db, follow):
    session = SessionFactory(title="A plan", wires=talk(3))
    text = follow(
        session,
        lambda: None,
        lambda: store(session, [user("New?")]),
        lambda: store(session, [call("f", "1"), result("1", "seen")]),
        lambda: None,
    )
    branch = str(session.active_branch_id)[-8:]
    assert text.splitlines()[:2] == ["A plan", f"Branch {branch}, from now on. Ctrl-C ends it."]
    assert body(text) == [
        *("7 · user", "  New?", ""),
        *("8 · assistant", "  → f({}) 1", ""),
        *("9 · tool", "  ← result of 1", "  seen"),
    ]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("--compact", ["8 · → f · 2 characters", "9 · ← f · 4 characters · ok"]),
        ("--quiet", []),
    ],
)
def test_it_follows_briefly(db, follow, how, told):
    session = SessionFactory(wires=talk(3))
    text = follow(
        session,
        lambda: store(session, [user("New?")]),
        lambda: store(session, [call("f", "1")]),
        lambda: store(session, [result("1", "seen")]),
        lambda: store(session, [{"role": "assistant", "content": "Yes."}]),
        arguments=[how],
    )
    lines = [line for line in body(text) if line]
    assert lines == ["7 · user", "  New?", *told, "10 · assistant", "  Yes."]


def test_a_session_that_is_deleted_meanwhile_ends_it_with_a_sentence(db, follow):
    session = SessionFactory(wires=talk(1))
    text = follow(session, lambda: Session.objects.filter(pk=session.pk).delete())
    assert text.splitlines()[-1] == "The session was deleted: nothing more will come."


def test_a_session_that_is_gone_cannot_be_followed(db):
    session = SessionFactory(wires=talk(1))
    pk = str(session.pk)
    session.delete()
    with pytest.raises(CommandError, match="There is no session"):
        show(pk, "--follow")


def test_it_goes_along_when_the_session_goes_on_elsewhere(db, follow):
    session = SessionFactory(wires=talk(3))
    old = session.branch
    third = Message.objects.get(branch=old, position=3_000_000)
    other = transcript.fork(session, at=third)
    put(other, user("long ago"))
    made: list[Branch] = []

    def activate(branch: Branch) -> None:
        Session.objects.filter(pk=session.pk).update(active_branch=branch)

    def edit() -> None:
        made.append(transcript.fork_before(session, at=third))
        activate(made[0])
        put(made[0], user("Rather this"))

    text = follow(
        session,
        edit,
        lambda: activate(other),
        lambda: put(other, user("there")),
        lambda: activate(old),
        lambda: put(old, user("home")),
    )
    assert [line for line in body(text) if line] == [
        f"The session goes on in branch {str(made[0].pk)[-8:]}.",
        "3 · user",
        "  Rather this",
        f"The session goes on in branch {str(other.pk)[-8:]}.",
        "5 · user",
        "  there",
        f"The session goes on in branch {str(old.pk)[-8:]}.",
        "7 · user",
        "  home",
    ]


def test_a_named_branch_is_followed_whatever_the_session_changes_to(db, follow):
    session = SessionFactory(wires=talk(3))
    old = session.branch
    fork = transcript.fork(session, at=Message.objects.get(branch=old, position=4_000_000))

    def switch() -> None:
        Session.objects.filter(pk=session.pk).update(active_branch=fork)
        put(fork, user("elsewhere"))

    text = follow(
        session, switch, lambda: put(old, user("here")), arguments=["--branch", str(old.pk)]
    )
    assert body(text) == ["7 · user", "  here"]


def test_a_replay_repeats_nothing(db, follow):
    session = SessionFactory(wires=talk(3))

    def replay() -> None:
        first = Message.objects.get(branch=session.branch, position=1_000_000)
        branch = transcript.fork(session, at=first, kind=Branch.Kind.REPLAY)
        put(branch, *talk(4)[1:])
        Session.objects.filter(pk=session.pk).update(active_branch=branch)

    told = [line for line in body(follow(session, replay)) if " · " in line]
    assert told == ["7 · user", "8 · assistant"]


def test_renumbered_messages_are_not_shown_twice(db, follow):
    session = SessionFactory(wires=talk(3))

    def renumber() -> None:
        for row in Message.objects.order_by("-position"):
            Message.objects.filter(pk=row.pk).update(position=row.position + 5_000_000)
        Branch.objects.update(head_position=11_000_000)

    text = follow(session, renumber, lambda: put(session.branch, user("new")))
    assert [line for line in body(text) if line] == ["12 · user", "  new"]


def test_an_idle_look_is_one_query_and_the_beginning_reads_no_history(db, follow):
    session = SessionFactory(wires=talk(150))
    counts: list[int] = []
    with CaptureQueriesContext(connection) as captured:
        follow(session, *[lambda: counts.append(len(captured))] * 3)
    assert counts[2] - counts[1] == counts[1] - counts[0] == 1
    assert not any("LIMIT 200" in query["sql"] for query in captured)


def test_a_reader_that_goes_away_ends_it(db, follow, monkeypatch):
    session = SessionFactory(wires=talk(1))

    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr("os.dup2", lambda *_: None)
    monkeypatch.setattr(following, "wait", lambda: pytest.fail("It went on."))
    call_command("show_session", str(session.pk), "--follow", stdout=Closed())
