"""show_session: what stands where, what a terminal gets, and what stored text cannot do to it."""

from __future__ import annotations

import io
import os
import pty
import re
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID

import pytest
import wcwidth
from django.core.management import call_command
from django.core.management.base import CommandError

from chatapp import transcript
from chatapp.management.console import one_line, printable, wrapped
from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage
from compaction.management import conversation
from compaction.models import SessionSummary
from compaction.summaries.restore import restore_summary
from tests.compaction.support import NEVER, compact, stored
from tests.factories import SessionFactory, UserFactory, call, profile, result, store, talk
from tests.facts import code

pytestmark = pytest.mark.django_db

WHEN = datetime(2026, 11, 27, 18, 0, 5, tzinfo=UTC)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def show(session: Session | str, *arguments: str, out: io.StringIO | None = None, **options) -> str:
    out = out or io.StringIO()
    pk = session if isinstance(session, str) else str(session.pk)
    call_command("show_session", pk, *arguments, stdout=out, **options)
    return out.getvalue()


@pytest.fixture
def session(db, model_server, queued) -> Session:
    """Six turns; ten messages are summarised by `compact` and the last two kept."""
    profile(**NEVER, keep_last_n=2)
    owner = UserFactory(username="ada")
    return SessionFactory(owner=owner, title="A plan", wires=talk(6, marker=1, words=3))


def lines_of(text: str, start: str) -> list[str]:
    """Return the lines of the part whose first line starts so."""
    parts = [part.splitlines() for part in text.split("\n\n")]
    (found,) = [part for part in parts if part[0].startswith(start)]
    return found


# --- header ---------------------------------------------------------------------------------------


def test_the_header_says_what_the_session_is(session):
    branch = session.branch
    branch.refresh_from_db()
    tokens = sum(row.tokens for row in stored(session))
    assert show(session).split("\n\n")[0].splitlines() == [
        "A plan",
        f"Session    {session.pk}",
        "Owner      ada",
        "Model      default",
        f"Branch     {branch.pk} (root)",
        "Messages   12",
        f"Tokens     {tokens:,}",
        "Profile    test v1",
        "Cursor     at the start: nothing is summarised",
    ]


def test_the_header_says_how_far_it_is_summarised(session):
    compact(session)
    assert "Cursor     10: 10 messages up to there" in show(session).splitlines()


# --- messages -------------------------------------------------------------------------------------


def test_a_message_has_place_role_time_tokens_and_text(db):
    session = SessionFactory(
        wires=[{"role": "user", "content": "hello\nthere", "meta": {"created_at": WHEN}}]
    )
    tokens = Message.objects.get().tokens
    assert lines_of(show(session), "1 ") == [
        f"1 · user · 2026-11-27 18:00:05 UTC · {tokens} tokens",
        "  hello",
        "  there",
    ]


def test_messages_stand_in_order_however_many_batches_they_take(session, monkeypatch):
    monkeypatch.setattr(conversation, "BATCH", 3)
    heads = re.findall(r"^(\d+) · (\w+) ·", show(session), re.MULTILINE)
    roles = ("assistant", "user")
    assert heads == [(str(place), roles[place % 2]) for place in range(1, 13)]


def test_calls_and_results_are_told(db):
    session = SessionFactory(
        wires=[call("weather", "call_1", '{"city": "Ulm"}'), result("call_1", "rain")]
    )
    text = show(session)
    assert lines_of(text, "1 ")[1:] == ['  → weather({"city": "Ulm"}) call_1']
    assert lines_of(text, "2 ")[1:] == ["  ← result of call_1", "  rain"]


def test_parts_that_are_no_text_are_named(db):
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    ]
    session = SessionFactory(wires=[{"role": "user", "content": parts}])
    assert lines_of(show(session), "1 ")[1:] == ["  look", "  [image_url]"]


def test_a_message_without_text_says_so(db):
    session = SessionFactory(wires=[{"role": "assistant", "content": None}])
    assert lines_of(show(session), "1 ")[1:] == ["  (no text)"]


def test_pinned_messages_are_marked(db):
    session = SessionFactory(wires=[{"role": "system", "content": "be brief"}, *talk(1)])
    text = show(session)
    assert lines_of(text, "1 ")[0].endswith(" · pinned")
    assert "pinned" not in lines_of(text, "2 ")[0]


# --- summaries ------------------------------------------------------------------------------------


def test_what_a_summary_covers_names_it_and_the_rest_does_not(session):
    compact(session)
    summary = SessionSummary.objects.get()
    text = show(session)
    assert text.count(f"covered by summary {str(summary.pk)[-8:]}") == 10
    assert lines_of(text, "10 ")[1] == f"covered by summary {str(summary.pk)[-8:]}"
    assert "covered" not in " ".join(lines_of(text, "11 "))


def test_a_pinned_rule_that_no_summary_received_is_not_called_covered(db, model_server, queued):
    profile(**NEVER, keep_last_n=2)
    rule = {"role": "system", "content": "be brief"}
    session = SessionFactory(wires=[rule, *talk(4, marker=1)])
    compact(session)
    text = show(session)
    assert "covered" not in lines_of(text, "1 ")[0]
    assert "covered" in " ".join(lines_of(text, "2 ")[:2])


def test_a_placeholder_is_a_rule_with_id_status_ratio_and_text(session):
    compact(session)
    summary = SessionSummary.objects.get()
    part = lines_of(show(session, "--width", "100"), "── ")
    ratio = f"{100 * summary.compression_ratio:.1f} %"
    head = (
        f"── 10.5 · summary {str(summary.pk)[-8:]} · active · {ratio} · of 10 messages · By hand "
    )
    assert part[0] == head.ljust(100, "─")
    assert part[1] == f"  SUMMARY {code(1)} {code(2)} {code(3)} {code(4)} {code(5)}"
    assert part[-1] == "─" * 100


def test_the_placeholder_stands_between_what_it_covers_and_what_is_kept(session):
    compact(session)
    text = show(session)
    places = [text.index("\n10 · "), text.index("\n── 10.5 · "), text.index("\n11 · ")]
    assert places == sorted(places)


def test_a_restored_summary_is_shown_and_covers_nothing(session):
    compact(session)
    restore_summary(SessionSummary.objects.get())
    text = show(session)
    assert "· restored ·" in text
    assert f"SUMMARY {code(1)}" in text
    assert "covered by" not in text


def test_an_old_placeholder_without_a_summary_row_shows_its_own_text(db):
    session = SessionFactory(wires=talk(1))
    old = NewMessage(
        wire={"role": "assistant", "content": "notice"}, kind="placeholder", summary="OLD TEXT"
    )
    transcript.append(session.branch, [old])
    part = lines_of(show(session), "── ")
    assert part[0].startswith("── 3 · placeholder without a summary row ─")
    assert part[1] == "  OLD TEXT"


# --- branches -------------------------------------------------------------------------------------


def test_another_branch_is_shown_by_its_id(session):
    root = session.branch
    rows = stored(session)
    fork = transcript.fork(session, at=rows[3])
    store(session, [{"role": "user", "content": "only in the root"}])
    text = show(session, "--branch", str(fork.pk)[-8:])
    assert f"Branch     {fork.pk} (fork)" in text
    assert re.findall(r"^(\d+) · ", text, re.MULTILINE) == ["1", "2", "3", "4"]
    assert "only in the root" in show(session, "--branch", str(root.pk))


def test_a_fork_before_the_cursor_is_not_covered_by_its_parent_summary(session):
    rows = stored(session)
    compact(session)
    fork = transcript.fork(session, at=rows[5])
    assert "covered by" not in show(session, "--branch", str(fork.pk))


def test_a_branch_of_another_session_is_a_sentence(session):
    other = SessionFactory().branch
    with pytest.raises(CommandError, match="There is no branch of this session whose id is or"):
        show(session, "--branch", str(other.pk))


# --- ids ------------------------------------------------------------------------------------------


@pytest.fixture
def two(db) -> list[Session]:
    """Two sessions whose ids share ten digits."""
    ids = ["0f8b1234-56aa-4000-8000-000000000000", "0f8b1234-56ab-4000-8000-000000000000"]
    sessions = [Session(pk=UUID(pk), owner=UserFactory(), title=pk) for pk in ids]
    Session.objects.bulk_create(sessions)
    for row in sessions:
        row.active_branch = row.branches.create()
        row.save()
    return sessions


@pytest.mark.parametrize("text", ["0f8b1234-56aa", "0f8b123456aa", "0F8B1234-56AA-4000"])
def test_the_beginning_of_an_id_is_enough_when_it_is_unique(two, text):
    assert f"Session    {two[0].pk}" in show(text)


def test_a_beginning_that_is_not_unique_names_the_ids(two):
    with pytest.raises(CommandError) as error:
        show("0f8b")
    assert str(error.value) == (
        f"More than one session id starts or ends with “0f8b”: {two[0].pk}, {two[1].pk}. "
        "Write more of it."
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0f8", "“0f8” is too short: write at least 4 digits, of the id's beginning or its end."),
        ("dead", "There is no session whose id is or starts or ends with “dead”."),
        ("plan!", "“plan!” is no session id. Ids look like 0f8b…-…; the API and the admin show"),
        ("f" * 33, "is no session id."),
    ],
)
def test_an_id_that_names_nothing_is_a_sentence(two, text, sentence):
    with pytest.raises(CommandError) as error:
        show(text)
    assert sentence in str(error.value)


def test_a_width_that_cannot_hold_a_line_is_a_sentence(session):
    with pytest.raises(CommandError, match=r"--width must be at least 30; it is 5\."):
        show(session, "--width", "5")


# --- the terminal ---------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [30, 60, 80])
def test_no_line_is_wider_than_asked(session, width):
    store(session, [{"role": "user", "content": "总结对话，" * 60 + "x" * 200 + " word" * 50}])
    Session.objects.update(title="一个很长的题目" * 20)
    compact(session)
    text = show(session, "--width", str(width))
    assert max(wcwidth.width(line) for line in text.splitlines()) <= width


def test_there_is_no_colour_without_a_terminal(session):
    compact(session)
    assert "\x1b" not in show(session)


def test_on_a_terminal_covered_messages_are_dim(session, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    compact(session)
    text = show(session, "--no-pager", out=Terminal())
    assert "\x1b[2m  answer 0 ipsum ipsum ipsum\x1b[0m" in text
    assert "\n  answer 5 ipsum ipsum ipsum\n" in text


def test_no_color_is_respected(session, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in show(session, "--no-pager", out=Terminal(), no_color=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in show(session, "--no-pager", out=Terminal())


def test_stored_text_cannot_drive_the_terminal(db):
    evil = "\x1b[2Jgone \x07 \u202etxt.exe \r over \x9b31m"
    session = SessionFactory(
        title=evil,
        wires=[
            {"role": "user", "content": evil},
            call(evil, evil, evil),
            {"role": "tool", "tool_call_id": evil, "name": evil, "content": evil},
        ],
    )
    transcript.append(
        session.branch,
        [NewMessage(wire={"role": "assistant", "content": ""}, kind="placeholder", summary=evil)],
    )
    text = show(session, "--width", "200")
    assert not set(text) & set("\x1b\x07\u202e\r\x9b")
    assert "  \\x1b[2Jgone \\x07 \\u202etxt.exe \\r over \\x9b31m" in text.splitlines()


@pytest.fixture
def shown(session, monkeypatch) -> Callable[..., str]:
    """Show the session on a real terminal and return what was written to it."""
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "LESS", "PAGER"):
        monkeypatch.delenv(name, raising=False)

    def show_it(**options) -> str:
        reader, end = pty.openpty()
        os.set_blocking(reader, False)
        with os.fdopen(reader, "rb", 0) as screen, os.fdopen(end, "r+b", 0) as raw:
            stream = io.TextIOWrapper(raw, write_through=True)
            with monkeypatch.context() as patch:
                patch.setattr("sys.stdin", stream)
                patch.setattr("sys.stdout", stream)
                assert show(session, out=Terminal(), **options) == ""
            return (screen.read() or b"").decode()

    return show_it


def test_on_a_terminal_the_pager_gets_the_lines(shown, monkeypatch, tmp_path):
    monkeypatch.setenv("PAGER", f"sh -c 'cat > {tmp_path}/shown'")
    assert shown() == ""
    assert "\x1b[1m11 · user" in (tmp_path / "shown").read_text()


def test_without_colours_the_pager_gets_plain_lines(shown, monkeypatch, tmp_path):
    monkeypatch.setenv("PAGER", f"sh -c 'cat > {tmp_path}/shown'")
    shown(no_color=True)
    assert "\n11 · user" in (tmp_path / "shown").read_text()


def test_a_pager_that_is_closed_early_ends_the_command_quietly(session, shown, monkeypatch):
    store(session, [{"role": "user", "content": "long " * 100_000}])
    monkeypatch.setenv("PAGER", "true")
    assert shown() == ""


def test_a_pager_that_is_not_installed_is_done_without(shown, monkeypatch):
    monkeypatch.setenv("PAGER", "no-such-program-here")
    assert "11 · user" in shown()


@pytest.mark.parametrize("value", [None, "", "'never closed"])
def test_without_a_pager_less_is_taken_and_shows_colours(shown, monkeypatch, tmp_path, value):
    less = tmp_path / "less"
    less.write_text(f'#!/bin/sh\necho "$LESS" > {tmp_path}/options\ncat > {tmp_path}/shown\n')
    less.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    if value is not None:
        monkeypatch.setenv("PAGER", value)
    assert shown() == ""
    assert (tmp_path / "options").read_text() == "-R\n"
    assert "\x1b[1m11 · user" in (tmp_path / "shown").read_text()


# --- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["plain", "two\nlines\tand a tab", "中文　全角", "été", "a\u00a0b", "🙂"]
)
def test_printable_text_stays_as_it_is(text):
    assert printable(text) == text


def test_windows_newlines_are_newlines_and_other_returns_are_shown():
    assert printable("a\r\nb\rc") == "a\nb\\rc"


def test_a_heading_is_one_line():
    assert one_line("a\n b\tc\x1b") == "a b c\\x1b"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one two three", ["one two", "three"]),
        ("exactly8", ["exactly8"]),
        ("exactly8 more", ["exactly8", "more"]),
        ("a_word_that_is_long", ["a_word_t", "hat_is_l", "ong"]),
        ("总结对话内容", ["总结对话", "内容"]),
        ("a总结对话", ["a总结对", "话"]),
        ("    x = 1", ["    x =", "1"]),
        ("\tlong_name", ["    long", "_name"]),
        ("a\n\nb", ["a", "", "b"]),
        ("", [""]),
    ],
)
def test_lines_are_wrapped_at_eight_cells(text, lines):
    assert wrapped(text, 8) == lines


def test_a_megabyte_without_a_newline_is_wrapped_at_once():
    assert len(wrapped("x" * 1_000_000, 80)) == 12_500
