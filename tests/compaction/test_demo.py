"""The demo: set up once, harmless to repeat, two processes that live and die together."""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.contrib.auth import get_user_model
from django.core import checks
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError
from wcwidth import width

from chatapp import transcript
from chatapp.keys import ApiKey, find_key
from chatapp.llm import encodings
from chatapp.llm.encodings import EncodingUnavailableError
from chatapp.management.commands import load_encodings
from chatapp.models import Message, Session
from compaction.demo import preparing as demo_encodings
from compaction.demo import serving
from compaction.demo.preparing import (
    compact_sample,
    ensure_operator,
    load_encoding_quickly,
    store_samples,
)
from compaction.demo.serving import Ended, PortTakenError, Processes, choose_port
from compaction.management.commands import demo as demo_command
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.profiles import make_default
from compaction.summaries.restore import restore_summary

ROOT = Path(__file__).resolve().parents[2]
FOREVER = [sys.executable, "-c", "import time; time.sleep(600)"]
AT_ONCE = [sys.executable, "-c", "raise SystemExit(3)"]


@pytest.fixture(autouse=True)
def _no_network(monkeypatch, queued) -> None:
    """No download and no queue; tests that want them say so."""

    def refuse(*arguments) -> None:
        raise EncodingUnavailableError("no network in tests")

    monkeypatch.setattr(load_encodings, "download", refuse)


def demo(*arguments: str, stderr: io.StringIO | None = None) -> SimpleNamespace:
    """Run the demo; return what it wrote and the error it ended with, if it did."""
    out, err, error = io.StringIO(), stderr or io.StringIO(), None
    try:
        call_command("demo", *arguments, stdout=out, stderr=err)
    except CommandError as failure:
        error = failure
    return SimpleNamespace(out=out.getvalue(), err=err.getvalue(), error=error)


# --- without serving ----------------------------------------------------------


@pytest.mark.django_db
def test_it_stores_and_compacts_every_sample():
    done = demo("--no-serve")

    assert (done.error, done.err) == (None, "")
    sessions = Session.objects.all()
    assert len(sessions) == len(list((ROOT / "chatapp" / "samples").glob("*.json")))
    assert {session.model for session in sessions} == {"embedded"}
    assert {session.owner.username for session in sessions} == {"operator"}
    assert {row.status for row in SessionSummary.objects.all()} == {"active"}
    assert SessionSummary.objects.count() == len(sessions)
    assert "Serving" not in done.out


@pytest.mark.django_db
def test_it_needs_no_model_server_whatever_the_default_model_is(use_models, settings):
    nowhere = settings.CHATAPP["MODELS"]["embedded"] | {
        "BACKEND": "chatapp.llm.openai_client.OpenAIModel",
        "BASE_URL": "http://127.0.0.1:9/v1",
        "API_KEY": "secret",
    }
    use_models(settings.CHATAPP["MODELS"] | {"default": nowhere})

    assert demo("--no-serve").error is None
    assert set(CompactionRun.objects.values_list("status", flat=True)) == {"succeeded"}


@pytest.mark.django_db
def test_a_second_run_adds_nothing_and_compacts_nothing():
    first = demo("--no-serve")
    before = [Message.objects.count(), Session.objects.count(), CompactionRun.objects.count()]

    second = demo("--no-serve")

    assert second.error is None
    after = [Message.objects.count(), Session.objects.count(), CompactionRun.objects.count()]
    assert after == before
    assert second.out.count("already compacted") == Session.objects.count()
    assert "already stored" in second.out
    assert table_of(second.out) == table_of(first.out)


def table_of(out: str) -> str:
    return out[out.index("Session  ") :]


def sizes_in(text: str) -> list[tuple[int, int]]:
    """Return what each row of the demo's table has before and behind its arrow."""
    found = re.findall(r"(\d+) +([\d,]+) → ([\d,]+) ", text)
    return [tuple(int(size.replace(",", "")) for size in row[1:]) for row in found]


@pytest.mark.django_db
def test_the_readmes_figures_are_those_of_a_newcomer(settings):
    """Estimated without a network; with one, exact, and more by no more than the README says."""
    readme = (ROOT / "README.md").read_text()
    told = sizes_in(readme)
    (most,) = map(int, re.findall(r"with a network they are exact, and up to (\d+) % more", readme))
    assert len(told) == 3
    make_default("balanced")
    settings.CHATAPP = settings.CHATAPP | {"TOKEN_COUNTER": "estimate"}
    estimated = sizes_in(demo("--no-serve").out)
    assert [before for before, _ in estimated] == [before for before, _ in told]
    # A summary's length changes with every better choice of sentences.
    for (_, after), (_, shown) in zip(estimated, told, strict=True):
        assert after == pytest.approx(shown, rel=0.02)
    settings.CHATAPP = settings.CHATAPP | {"TOKEN_COUNTER": "tiktoken:o200k_base"}
    Session.objects.all().delete()
    exact = sizes_in(demo("--no-serve").out)
    shares = [real / guess - 1 for (real, _), (guess, _) in zip(exact, estimated, strict=True)]
    assert 0 < min(shares) < max(shares) <= most / 100


@pytest.mark.django_db
def test_the_table_shows_the_figures_that_are_stored():
    out = demo("--no-serve").out

    run = CompactionRun.objects.get(session__title__startswith="Boots")
    row = next(line for line in table_of(out).splitlines() if line.startswith("Boots"))
    ratio = run.tokens_after / run.tokens_before
    figures = f"86 {run.tokens_before:,} → {run.tokens_after:,} {ratio:.2f} {run.model_calls}"
    assert row.split()[-7:-1] == figures.split()


@pytest.mark.django_db
def test_what_needs_it_again_is_compacted_again():
    demo("--no-serve")
    SessionSummary.objects.update(status="restored")
    session = Session.objects.first()
    session.branch.compaction_state.delete()

    again = compact_sample(Session.objects.get(pk=session.pk))

    assert (again.before, again.succeeded) == (False, True)


@pytest.mark.django_db
def test_the_password_is_shown_once_and_works():
    first, second = demo("--no-serve").out, demo("--no-serve").out

    password = re.search(r"^Password +(\S+) ", first, re.MULTILINE).group(1)
    operator = get_user_model().objects.get(username="operator")
    assert operator.check_password(password)
    assert operator.is_superuser
    assert "Password" not in second
    assert "changepassword operator" in second


@pytest.mark.django_db
def test_the_token_is_shown_every_time_and_stays():
    outputs = [demo("--no-serve").out for _ in range(2)]

    tokens = {found for out in outputs for found in re.findall(r"pk_\w+", out)}
    (token,) = tokens
    assert find_key(token.encode()) == ApiKey.objects.get()


@pytest.mark.django_db
def test_every_line_fits_into_80_columns():
    out = demo("--no-serve").out

    assert max(width(line) for line in out.splitlines()) <= 80


@pytest.mark.django_db
def test_the_bar_moves_with_the_model_calls_on_a_terminal():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    demo("--no-serve", stderr=screen)

    calls = sum(CompactionRun.objects.values_list("model_calls", flat=True))
    assert re.search(rf"\b{calls} of \d+ model calls", screen.getvalue())


@pytest.mark.django_db
def test_a_conversation_that_cannot_be_compacted_is_told_and_ends_with_status_1(monkeypatch):
    failed = CompactionRun(status="failed", error="The summary was not smaller.")
    monkeypatch.setattr("compaction.demo.preparing.execute_run", lambda run_id: failed)
    monkeypatch.setattr("compaction.demo.preparing.compact_branch", lambda **options: failed)

    done = demo("--no-serve")

    assert done.out.count("failed. The summary was not smaller.") >= 1
    assert str(done.error) == "3 of 3 conversations were not compacted."


@pytest.mark.django_db
def test_a_wrong_configuration_is_told_before_anything_is_stored(monkeypatch):
    error = checks.Error("The window is too small.", hint="Raise it.", id="x.E001")
    monkeypatch.setattr(checks, "run_checks", lambda: [checks.Info("hm"), error])

    done = demo("--no-serve")

    assert str(done.error) == "The configuration cannot work:\nThe window is too small. Raise it."
    assert not get_user_model().objects.exists()


@pytest.mark.django_db
def test_a_database_that_cannot_be_used_is_a_sentence(monkeypatch):
    def gone(*arguments, **options):
        raise OperationalError("connection refused")

    monkeypatch.setattr(demo_command, "call_command", gone)

    done = demo("--no-serve")

    assert "The database cannot be used: connection refused" in str(done.error)
    assert "DATABASE_URL" in str(done.error)


# --- exact counts -------------------------------------------------------------


@pytest.fixture
def bare_machine(monkeypatch, tmp_path, settings):
    """No rank file anywhere, no offline package."""
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    monkeypatch.setattr(encodings, "OFFLINE_PACKAGE", "no_such_package_anywhere")
    settings.CHATAPP = settings.CHATAPP | {"ENCODINGS_DIR": tmp_path}


def test_without_a_network_counts_are_estimated_and_one_line_says_so(bare_machine, capfd):
    assert "token counts are estimated" in load_encoding_quickly()
    assert capfd.readouterr() == ("", "")


def test_a_download_makes_counts_exact(bare_machine, monkeypatch):
    asked = []
    monkeypatch.setattr(load_encodings, "download", lambda *arguments: asked.append(arguments))

    assert load_encoding_quickly() == "o200k_base loaded: token counts are exact"
    assert [(name, timeout) for name, _, timeout in asked] == [("o200k_base", 3.0)]


def test_what_is_there_is_not_asked_for_again(monkeypatch):
    monkeypatch.setattr(demo_encodings, "find_rank_file", lambda name, folder: Path("there"))

    assert "already there" in load_encoding_quickly()


def test_a_network_that_never_answers_is_not_waited_for(bare_machine, monkeypatch):
    monkeypatch.setattr(demo_encodings, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(load_encodings, "download", lambda *arguments: time.sleep(1))

    assert "token counts are estimated" in load_encoding_quickly()


# --- ports and processes ------------------------------------------------------


@pytest.fixture
def taken_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_taken_port_that_was_asked_for_is_refused_with_a_sentence(taken_port):
    with pytest.raises(PortTakenError, match=rf"Port {taken_port} is taken .* --port"):
        choose_port(taken_port)


def test_the_next_free_port_is_found_when_none_was_asked_for(taken_port, monkeypatch):
    monkeypatch.setattr(serving, "DEFAULT_PORT", taken_port)

    assert taken_port < choose_port(None) < taken_port + serving.PORTS_TRIED


def test_no_free_port_at_all_is_a_sentence(monkeypatch):
    monkeypatch.setattr(serving, "_bound_port", lambda port: None)

    with pytest.raises(PortTakenError, match=r"8000 to 8019 are all taken"):
        choose_port(None)


@pytest.mark.parametrize("port", [-1, 70_000])
def test_what_is_no_port_is_refused(port):
    with pytest.raises(PortTakenError):
        choose_port(port)


def test_a_taken_port_ends_the_demo_before_it_begins(taken_port):
    done = demo("--port", str(taken_port))

    assert f"Port {taken_port} is taken" in str(done.error)
    assert done.out == ""


def test_both_processes_stop_at_the_end():
    with Processes({"web": FOREVER, "queue": FOREVER}) as processes:
        children = list(processes._running.values())
        assert processes.ended() is None

    assert [child.returncode for child in children] == [-signal.SIGTERM] * 2


def test_a_child_that_ends_is_named_with_its_status_and_the_other_one_is_stopped():
    with Processes({"web": FOREVER, "queue": AT_ONCE}) as processes:
        children = list(processes._running.values())
        assert processes.wait_until_ended() == Ended(name="queue", status=3)

    assert all(child.returncode is not None for child in children)


def test_a_child_of_a_child_goes_with_it(tmp_path):
    note = tmp_path / "pid"
    script = (
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"draft = pathlib.Path({str(note)!r} + '.part'); draft.write_text(str(child.pid))\n"
        f"draft.rename({str(note)!r}); time.sleep(600)"
    )
    with Processes({"queue": [sys.executable, "-c", script]}):
        wait_for(note.exists)

    pid = int(note.read_text())
    wait_for(lambda: not is_alive(pid))


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0]
    except FileNotFoundError:
        return False


def wait_for(condition, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


def test_a_child_that_does_not_listen_is_killed(monkeypatch, tmp_path):
    monkeypatch.setattr(serving, "STOP_SECONDS", 0.2)
    ready = tmp_path / "ready"
    deaf = (
        "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"pathlib.Path({str(ready)!r}).touch(); time.sleep(600)"
    )
    with Processes({"web": [sys.executable, "-c", deaf]}) as processes:
        child = processes._running["web"]
        wait_for(ready.exists)

    assert child.returncode == -signal.SIGKILL


def test_when_the_second_child_cannot_start_the_first_one_is_stopped(monkeypatch):
    started, real = [], subprocess.Popen

    def remember(command, **options):
        started.append(real(command, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", remember)

    with pytest.raises(FileNotFoundError), Processes({"web": FOREVER, "queue": ["/no/such"]}):
        pass

    assert started[0].returncode is not None


@pytest.mark.django_db
def test_a_process_that_dies_ends_the_demo_with_status_1(monkeypatch):
    monkeypatch.setattr(
        demo_command, "web_and_queue", lambda port: {"web": FOREVER, "queue": AT_ONCE}
    )

    done = demo("--port=0")

    assert "The queue process ended by itself (status 3)" in str(done.error)
    assert done.error.returncode == 1


@pytest.mark.django_db
def test_a_stop_signal_ends_the_demo_in_peace(monkeypatch):
    monkeypatch.setattr(demo_command, "web_and_queue", lambda port: {"web": FOREVER})
    monkeypatch.setattr(Processes, "wait_until_answering", lambda self, port: None)
    monkeypatch.setattr(
        Processes, "wait_until_ended", lambda self: os.kill(os.getpid(), signal.SIGTERM)
    )

    done = demo("--port=0")

    assert done.error is None
    assert done.out.endswith("Stopped.\n")


@pytest.mark.django_db
def test_the_printed_requests_fit_into_80_columns(monkeypatch):
    out = io.StringIO()
    command = demo_command.Command(stdout=out)
    operator = ensure_operator()

    command.show_addresses(65_000, operator, store_samples(operator.user))

    long = [line for line in out.getvalue().splitlines() if width(line) > 80]
    assert long == []


# --- the whole thing ----------------------------------------------------------


@pytest.mark.slow
def test_it_serves_answers_what_it_printed_and_stops(tmp_path):
    """Run `manage.py demo` as a user does, without any configuration, and do what it says."""
    environment = {
        "PATH": os.environ["PATH"],
        "PALIMPSEST_DATA_DIR": str(tmp_path),
        "HTTPS_PROXY": "http://127.0.0.1:9",  # nobody answers there: no download
    }
    process = subprocess.Popen(
        [sys.executable, "manage.py", "demo", "--port=0"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        printed = read_until(process, "Ctrl-C stops both")
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/admin/", printed).group(1))
        ask, look = re.findall(r"^curl (?:.*\\\n)+.*", printed, re.MULTILINE)

        assert fetch(port, "/static/admin/css/base.css")[0] == 200
        assert fetch(port, "/admin/login/")[0] == 200
        assert fetch(port, "/api/v1/docs/")[0] == 200
        status, answer = do_what_curl_does(ask)
        assert status == 200
        said = json.loads(answer)["answer"]["content"]
        assert "At least half of the ceiling should always be waited" in said
        status, context = do_what_curl_does(look)
        assert (status, "messages" in json.loads(context)) == (200, True)
    finally:
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
    assert rest.strip() == "Stopped."
    assert process.returncode == 0
    with pytest.raises(OSError, match="refused"):
        fetch(port, "/health/")


def read_until(process: subprocess.Popen, words: str) -> str:
    printed = ""
    for line in process.stdout:
        printed += line
        if words in line:
            return printed
    raise AssertionError(f"The demo ended with {process.wait()}:\n{printed}")


def fetch(port: int, path: str, method: str = "GET", **options) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, **options)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def do_what_curl_does(line: str) -> tuple[int, bytes]:
    """Send the request of a printed curl line, without needing curl."""
    words = shlex.split(line.replace("\\\n", " "))
    headers = [words[n + 1].split(": ") for n, word in enumerate(words) if word == "-H"]
    bodies = [words[n + 1] for n, word in enumerate(words) if word == "-d"]
    place, path = words[-1].split("/", 1)
    return fetch(
        int(place.split(":")[1]),
        f"/{path}",
        method="POST" if bodies else "GET",
        headers=dict(headers),
        body=bodies[0].encode() if bodies else None,
    )


# --- once more, after somebody looked around ------------------------------------------------------


@pytest.mark.django_db
def test_a_fork_that_is_too_short_to_compact_is_no_failure():
    demo("--no-serve")
    for session in Session.objects.all():
        early = session.messages.filter(role="user", kind="message").earliest("position")
        transcript.activate(session, transcript.fork(session, at=early))
    again = demo("--no-serve")
    assert again.error is None
    assert "failed" not in again.out


@pytest.mark.django_db
def test_a_summary_that_was_taken_back_is_no_failure():
    demo("--no-serve")
    for summary in SessionSummary.objects.filter(status="active", previous=None):
        restore_summary(summary, cascade=True)
    again = demo("--no-serve")
    assert again.error is None
    assert "failed" not in again.out
    # A person's decision beats the demo: it had compacted them again, which ended the holds.
    assert " ".join(again.out.split()).count("restored by somebody, and left so") == 3
    assert not SessionSummary.objects.filter(status="active").exists()
    assert CompactionState.objects.filter(hold_through__isnull=False).count() == 3
