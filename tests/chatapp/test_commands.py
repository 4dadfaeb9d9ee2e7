"""import_transcript and export_transcript, and what commands show people."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError, OutputWrapper
from wcwidth import width

from chatapp.management.console import (
    ProgressBar,
    TableColumn,
    columns_of,
    shortened,
    stop_signals_interrupt,
    table_lines,
)
from chatapp.models import Message, Session
from tests.factories import SessionFactory, UserFactory, talk

pytestmark = pytest.mark.django_db

HELLO = {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]}


@pytest.fixture(autouse=True)
def _no_queue(queued) -> None:
    """Importing may queue work; here nobody takes it."""


@pytest.fixture
def root():
    return UserFactory(username="root", is_superuser=True)


def write(path: Path, value: object) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return str(path)


def run(command: str, *arguments: str) -> SimpleNamespace:
    """Run a command; return what it wrote and the error it ended with, if it did."""
    out, err, error = io.StringIO(), io.StringIO(), None
    try:
        call_command(command, *arguments, stdout=out, stderr=err)
    except CommandError as failure:
        error = failure
    return SimpleNamespace(out=out.getvalue(), err=err.getvalue(), error=error)


# --- import_transcript --------------------------------------------------------


def test_it_imports_a_file_for_the_only_superuser(root, tmp_path):
    done = run("import_transcript", write(tmp_path / "a.json", HELLO))

    session = Session.objects.get()
    assert (session.owner, session.model) == (root, "default")
    assert Message.objects.count() == 2
    assert done.out == f"{tmp_path}/a.json: 1 session, 2 messages added, 0 already there\n"
    assert (done.err, done.error) == ("", None)


def test_importing_again_adds_nothing_and_says_so(root, tmp_path):
    file = write(tmp_path / "a.json", HELLO)
    run("import_transcript", file)

    done = run("import_transcript", file)

    assert "1 session, 0 messages added, 1 already there" in done.out
    assert Message.objects.count() == 2


def test_a_file_that_has_grown_adds_what_is_new(root, tmp_path):
    known = HELLO | {"id": "conversation-1"}
    run("import_transcript", write(tmp_path / "a.json", known))
    grown = known | {"messages": [*HELLO["messages"], {"role": "user", "content": "More"}]}

    done = run("import_transcript", write(tmp_path / "a.json", grown))

    assert "1 session, 1 message added, 0 already there" in done.out


def test_the_owner_and_the_model_can_be_named(root, tmp_path):
    UserFactory(username="ada")

    run("import_transcript", write(tmp_path / "a.json", HELLO), "--owner=ada", "--model=embedded")

    session = Session.objects.get()
    assert (session.owner.username, session.model) == ("ada", "embedded")


def test_an_unknown_owner_is_refused_before_anything_is_read(root, tmp_path):
    done = run("import_transcript", str(tmp_path / "missing"), "--owner=nobody")

    assert "There is no user “nobody”" in str(done.error)
    assert done.err == ""


@pytest.mark.parametrize(
    ("superusers", "why"), [(0, "there is no superuser yet"), (2, "there are several superusers")]
)
def test_without_one_superuser_the_owner_must_be_named(superusers, why, tmp_path):
    for _ in range(superusers):
        UserFactory(is_superuser=True)

    done = run("import_transcript", write(tmp_path / "a.json", HELLO))

    assert "--owner USERNAME" in str(done.error)
    assert why in str(done.error)


def test_an_unknown_model_is_refused_with_the_known_ones(root, tmp_path):
    done = run("import_transcript", write(tmp_path / "a.json", HELLO), "--model=gone")

    assert "'gone'" in str(done.error)
    assert "embedded" in str(done.error)


def test_an_unknown_format_fails_that_file_and_not_the_others(root, tmp_path):
    bad = write(tmp_path / "bad.json", {"weather": "fine"})
    good = write(tmp_path / "good.json", HELLO)

    done = run("import_transcript", bad, good)

    assert f"{bad}: " in done.err
    assert "weather" in done.err
    assert f"{good}: 1 session" in done.out
    assert str(done.error) == "1 of 2 files could not be imported."
    assert done.error.returncode == 1


def test_a_missing_file_fails_that_file_and_not_the_others(root, tmp_path):
    good = write(tmp_path / "good.json", HELLO)

    done = run("import_transcript", str(tmp_path / "gone.json"), good)

    assert "gone.json: It could not be read: No such file or directory." in done.err
    assert Session.objects.count() == 1
    assert done.error is not None


def test_an_empty_file_is_no_transcript(root):
    done = run("import_transcript", os.devnull)

    assert f"{os.devnull}: “{os.devnull}” is empty." in done.err


def test_problems_are_written_with_file_and_line(root, tmp_path):
    lines = [json.dumps(HELLO), "{broken", json.dumps(HELLO | {"title": "another"})]
    file = write(tmp_path / "log.jsonl", "\n".join(lines))

    done = run("import_transcript", file)

    assert f"{file}:2: The line was left out: it is not readable JSON" in done.err
    assert done.error is None


def test_of_very_many_problems_the_first_are_written_and_the_others_counted(root, tmp_path):
    file = write(tmp_path / "log.jsonl", "{}\n" * 300 + json.dumps(HELLO))

    done = run("import_transcript", file)

    told = done.err.splitlines()
    assert len(told) == 201
    assert told[0].startswith(f"{file}:1: ")
    assert told[-1] == f"{file}: And 100 more parts of the file were left out or mended."


def test_a_folder_stands_for_the_transcripts_in_it(root, tmp_path):
    write(tmp_path / "b" / "two.jsonl", json.dumps(HELLO | {"title": "Two"}))
    write(tmp_path / "one.json", {"messages": [{"role": "user", "content": "One"}]})
    write(tmp_path / "notes.txt", "not a transcript")

    done = run("import_transcript", str(tmp_path))

    names = [line.split(": ")[0] for line in done.out.splitlines()]
    assert names == [f"{tmp_path}/b/two.jsonl", f"{tmp_path}/one.json"]
    assert Session.objects.count() == 2


def test_a_folder_without_transcripts_is_refused_with_a_sentence(root, tmp_path):
    done = run("import_transcript", str(tmp_path))

    assert "holds no *.json, *.jsonl or *.traj file" in str(done.error)


def test_a_minus_reads_standard_input(root, monkeypatch):
    stdin = SimpleNamespace(buffer=io.BytesIO(json.dumps(HELLO).encode()))
    monkeypatch.setattr(sys, "stdin", stdin)

    done = run("import_transcript", "-")

    assert done.out.startswith("-: 1 session, 2 messages added")


def test_json_has_one_line_a_file_whatever_became_of_it(root, tmp_path):
    bad = write(tmp_path / "bad.json", {"weather": "fine"})
    good = write(tmp_path / "good.json", HELLO)

    done = run("import_transcript", bad, good, "--json")

    first, second = map(json.loads, done.out.splitlines())
    assert (first["file"], first["sessions"]) == (bad, [])
    assert "weather" in first["error"]
    assert (second["messages_added"], second["already_there"], second["error"]) == (2, 0, "")
    assert second["sessions"][0]["session"] == str(Session.objects.get().pk)
    assert second["sessions"][0]["created"] is True


# --- export_transcript --------------------------------------------------------


def test_an_export_imports_back_equal(root, tmp_path):
    session = SessionFactory(owner=root, title="Round trip", wires=talk(2))
    file = tmp_path / "out.json"

    run("export_transcript", str(session.pk), "--output", str(file))
    run("import_transcript", str(file))

    copy = Session.objects.exclude(pk=session.pk).get()
    assert copy.title == "Round trip"
    contents = [
        list(Message.objects.filter(session=one).order_by("position").values_list("content"))
        for one in (session, copy)
    ]
    assert contents[0] == contents[1]


def test_one_session_is_one_object_on_standard_output():
    session = SessionFactory(title="温室", wires=talk(1))

    done = run("export_transcript", str(session.pk))

    assert json.loads(done.out)["title"] == "温室"
    assert "温室" in done.out
    assert done.err == ""


def test_several_sessions_are_a_list_in_the_order_named():
    first, second = SessionFactory(title="1", wires=talk(1)), SessionFactory(title="2")

    done = run("export_transcript", str(second.pk), str(first.pk), str(second.pk))

    assert [item["title"] for item in json.loads(done.out)] == ["2", "1"]


def test_jsonl_has_one_session_a_line():
    ids = [str(SessionFactory(title=title, wires=talk(1)).pk) for title in "ab"]

    done = run("export_transcript", *ids, "--jsonl")

    lines = [json.loads(line) for line in done.out.splitlines() if line]
    assert [item["title"] for item in lines] == ["a", "b"]


def test_a_missing_session_is_named_and_nothing_is_written(tmp_path):
    session, missing, file = SessionFactory(wires=talk(1)), uuid4(), tmp_path / "out.json"

    done = run("export_transcript", str(session.pk), str(missing), "--output", str(file))

    assert str(missing) in str(done.error)
    assert str(session.pk) not in str(done.error)
    assert not file.exists()


def test_what_is_no_id_is_refused_with_a_sentence():
    done = run("export_transcript", "17")

    assert "“17” is no session id" in str(done.error)


def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path):
    session = SessionFactory(wires=talk(1))

    done = run("export_transcript", str(session.pk), "--output", str(tmp_path))

    assert str(done.error) == f"{tmp_path} cannot be written: Is a directory."


# --- what commands show -------------------------------------------------------


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_bar_is_drawn_on_a_terminal_and_gone_at_the_end():
    screen = Terminal()

    with ProgressBar(OutputWrapper(screen), total=4, label="files") as bar:
        bar.advance(2)
        half = screen.getvalue()

    assert "████████████░░░░░░░░░░░░ 2 of 4 files" in half
    assert screen.getvalue().endswith("\r\x1b[K")
    assert "\n" not in screen.getvalue()


def test_the_bar_is_never_fuller_than_full():
    screen = Terminal()

    with ProgressBar(OutputWrapper(screen), total=2, label="calls") as bar:
        bar.advance(5)

    assert "2 of 2 calls" in screen.getvalue()
    assert "░" not in screen.getvalue().rsplit("calls", 2)[1]


def test_nothing_is_drawn_without_a_terminal_or_without_work():
    pipe, screen = io.StringIO(), Terminal()

    for stream, total in ((pipe, 4), (screen, 0)):
        with ProgressBar(OutputWrapper(stream), total=total, label="files") as bar:
            bar.advance()

    assert (pipe.getvalue(), screen.getvalue()) == ("", "")


def test_the_import_shows_its_bar_on_a_terminal(root, tmp_path):
    screen = Terminal()

    call_command(
        "import_transcript",
        write(tmp_path / "a.json", HELLO),
        stdout=io.StringIO(),
        stderr=screen,
    )

    assert "1 of 1 files" in screen.getvalue()


def test_without_a_terminal_output_is_80_columns_wide():
    assert columns_of(OutputWrapper(io.StringIO())) == 80


def test_chinese_characters_take_two_cells_and_marks_none():
    assert width("温室R1") == 6
    assert width("e\u0301") == 1


def test_a_shortened_text_fits_in_cells_and_says_that_it_is_shortened():
    assert shortened("温室灌溉", 7) == "温室灌…"
    assert shortened("温室灌溉", 6) == "温室…"
    assert shortened("one\ntwo", 7) == "one two"


def test_a_table_is_aligned_and_its_elastic_column_gives_way():
    columns = (
        TableColumn(heading="Session", elastic=True),
        TableColumn(heading="Tokens", right=True),
    )

    lines = table_lines(columns, [["温室智能灌溉项目讨论", "1,234"], ["short", "7"]], width=20)

    assert lines == [
        "Session       Tokens",
        "────────────  ──────",
        "温室智能灌…    1,234",
        "short              7",
    ]
    assert {width(line) for line in lines} == {20}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_stop_signal_interrupts_and_handlers_come_back(number):
    before = signal.getsignal(number)

    with pytest.raises(KeyboardInterrupt), stop_signals_interrupt():
        os.kill(os.getpid(), number)
        signal.pause()

    assert signal.getsignal(number) is before
