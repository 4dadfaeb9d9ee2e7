"""`local_model` without a model: a library that only pretends, every sentence, and a clean end."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from chatapp.llm import local
from chatapp.llm.local import LocalModel, LocalModelError, answer_tokens, require_processor
from chatapp.llm.local_server import LocalServer, Serving, ended_sentence

ROOT = Path(__file__).resolve().parents[2]
# Copied under the library's name for the processes that a test starts.
FAKE_LIBRARY = ROOT / "tests/fakes/llama_library.py"


@pytest.fixture
def library(tmp_path, monkeypatch, settings) -> None:
    """The pretended library, for this process and for those it starts."""
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / f"{local.LIBRARY}.py").write_text(FAKE_LIBRARY.read_text())
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    settings.LOCAL_MODEL_GGUF = ""


@pytest.fixture
def gguf(tmp_path, library) -> Path:
    return made(tmp_path / "tiny.gguf", b"GGUF")


def made(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def told(gguf: Path) -> dict:
    """What the library was given."""
    return json.loads(gguf.with_suffix(".json").read_text())


def refusal(*arguments: object) -> str:
    """Return the sentence that the command ends with."""
    with pytest.raises(CommandError) as caught:
        call_command("local_model", *map(str, arguments), stdout=io.StringIO())
    return str(caught.value)


# --- what cannot work is said before anything starts ------------------------------


def test_no_file_is_named(library):
    assert refusal() == "No model is named. Give a GGUF file: --gguf FILE, or LOCAL_MODEL_GGUF."


def test_the_file_is_missing(library, tmp_path):
    path = tmp_path / "none.gguf"
    assert refusal("--gguf", path) == f"There is no file {path}. Name a GGUF file with --gguf."


def test_the_setting_names_the_file(library, settings, tmp_path):
    settings.LOCAL_MODEL_GGUF = str(tmp_path / "set.gguf")
    assert refusal().startswith(f"There is no file {tmp_path}/set.gguf.")


def test_the_file_is_a_folder(library, tmp_path):
    assert refusal("--gguf", tmp_path) == (
        f"{tmp_path} cannot be read: Is a directory. Name a GGUF file with --gguf."
    )


@pytest.mark.parametrize("content", [b"", b"GG", b"version https://git-lfs"])
def test_the_file_is_no_gguf(library, tmp_path, content):
    path = made(tmp_path / "page.gguf", content)
    assert refusal("--gguf", path) == (
        f"{path} is no GGUF file: it begins with {content[:4]!r}, not with b'GGUF'. Download it "
        "again, or convert the model; only GGUF can be served."
    )


@pytest.mark.parametrize("tokens", [-1, 0, 255, 1_048_577])
def test_the_window_is_nonsense(gguf, tokens):
    assert refusal("--gguf", gguf, "--ctx", tokens) == (
        f"A window of {tokens} tokens cannot be served: --ctx takes 256 to 1048576."
    )


@pytest.mark.parametrize("threads", [-1, 0, 513])
def test_the_number_of_threads_is_nonsense(gguf, monkeypatch, threads):
    monkeypatch.setattr(local, "usable_cores", lambda: 2)
    assert refusal("--gguf", gguf, "--threads", threads) == (
        f"{threads} threads cannot work: --threads takes 1 to 512; this process may use 2 cores."
    )


def test_the_name_cannot_be_seen(gguf):
    sentence = "The name of the model (--alias) holds characters nobody can see."
    assert refusal("--gguf", gguf, "--alias", "a\nb") == sentence


@pytest.mark.parametrize("port", [-1, 65_536])
def test_the_port_is_none(gguf, port):
    assert refusal("--gguf", gguf, "--port", port) == (
        f"{port} is no port: --port takes 1 to 65535, or 0 for any free one."
    )


def test_the_port_is_taken(gguf):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert refusal("--gguf", gguf, "--port", port) == (
            f"Port {port} is taken or not allowed. Choose another one with --port; 0 takes any "
            "free one."
        )


def test_the_extra_is_not_installed(gguf, monkeypatch):
    monkeypatch.setattr(local, "LIBRARY", "no_such_library")
    assert refusal("--gguf", gguf) == (
        "no_such_library is not installed. Install the extra: pip install 'palimpsest[local]', "
        "in a checkout pip install -e '.[local]'."
    )


@pytest.mark.parametrize(
    ("machine", "cpuinfo", "works"),
    [
        ("x86_64", "processor : 0\nflags\t\t: fpu sse2 avx\n", False),
        ("AMD64", "flags\t\t: fpu sse2 avx avx2 bmi2\nflags : sse2\n", False),
        ("x86_64", "flags\t\t: fpu sse2 avx avx2 bmi2\n", True),
        ("x86_64", "nothing that is known\n", True),
        ("aarch64", "flags\t\t: fpu sse2\n", True),
        ("x86_64", None, True),
    ],
)
def test_a_processor_without_avx2_is_found_before_the_library_dies_of_it(
    monkeypatch, tmp_path, machine, cpuinfo, works
):
    monkeypatch.setattr("platform.machine", lambda: machine)
    path = tmp_path / "cpuinfo"
    if cpuinfo is not None:
        path.write_text(cpuinfo)
    if works:
        require_processor(path)
        return
    with pytest.raises(LocalModelError) as caught:
        require_processor(path)
    assert str(caught.value) == (
        "This processor has no AVX2, which xllamacpp needs. Serve the model on another machine, "
        "and name its address in OPENAI_BASE_URL."
    )


def test_the_library_is_not_loaded_by_the_command(gguf):
    code = (
        "import os, django, sys; django.setup()\n"
        "import chatapp.management.commands.local_model, chatapp.llm.local_process\n"
        "print('xllamacpp' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, capture_output=True, text=True, check=True,
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "tests.settings"},
    )  # fmt: skip
    assert done.stdout.split() == ["False"]


# --- the process --------------------------------------------------------------------


@pytest.fixture
def serving(gguf) -> Iterator[LocalServer]:
    model = LocalModel(
        gguf=gguf, port=local.free_port(0), context=4096, threads=3, alias="tiny model"
    )
    with LocalServer(model) as server:
        yield server


def test_it_waits_while_the_model_loads_and_says_what_the_window_came_to(serving):
    assert serving.wait_until_ready() == Serving(window=2048, trained=2048)


def test_waiting_threads_do_not_spin_and_that_is_set_before_the_library_is_loaded(serving, gguf):
    serving.wait_until_ready()
    assert told(gguf)["environment"] == {"OMP_WAIT_POLICY": "passive", "GGML_NO_BACKTRACE": "1"}


def test_a_policy_of_the_shell_is_left_alone(gguf, monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    model = LocalModel(gguf=gguf, port=local.free_port(0), context=512, threads=1, alias="tiny")
    with LocalServer(model) as server:
        server.wait_until_ready()
    assert told(gguf)["environment"]["OMP_WAIT_POLICY"] == "active"


def test_it_listens_on_loopback_only_and_shows_prompts_to_nobody(serving, gguf):
    serving.wait_until_ready()
    found = told(gguf)["parameters"]
    port = int(serving.url.removeprefix("http://127.0.0.1:").removesuffix("/v1"))
    assert found == {
        "model": {"path": str(gguf)},
        "model_alias": ["tiny model"],
        "hostnames": ["127.0.0.1"],
        "port": port,
        "reuse_port": False,
        "n_ctx": 4096,
        "n_parallel": 1,
        "cpuparams": {"n_threads": 3},
        "cpuparams_batch": {"n_threads": 3},
        "cache_ram_mib": 512,
        "cors_origins": "",
        "ui": False,
        "endpoint_slots": False,
        "fit_params": False,
        "verbosity": 1,
    }


@pytest.mark.parametrize(
    ("behaviour", "sentence"),
    [
        (b"fails", "The model server ended by itself (status 1); its last lines above say why."),
        (b"killed", "The model server was killed, most likely because memory ran out."),
    ],
)
def test_a_process_that_ends_is_explained(library, tmp_path, behaviour, sentence):
    path = made(tmp_path / "bad.gguf", b"GGUF" + behaviour)
    assert refusal("--gguf", path, "--port", 0).startswith(sentence)


def test_an_instruction_that_is_not_there_is_explained():
    assert "an instruction that this processor does not have" in ended_sentence(-signal.SIGILL)


def test_the_answers_room_is_a_quarter_of_the_window_but_no_more_than_people_wait_for():
    assert [answer_tokens(window) for window in (256, 4096, 32_768)] == [64, 1024, 1024]


# --- the command as a process ---------------------------------------------------------


@pytest.fixture
def command(gguf, tmp_path) -> Iterator[tuple[subprocess.Popen, Path]]:
    """`manage.py local_model`, started and ready; and where it writes."""
    out = tmp_path / "out"
    with out.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "local_model", "--gguf", str(gguf), "--port", "0"],
            cwd=ROOT, stdout=stream, stderr=stream,
        )  # fmt: skip
    try:
        wait_until(lambda: "Ctrl-C stops it." in out.read_text() or process.poll() is not None)
        yield process, out
    finally:
        process.kill()
        process.wait()


def wait_until(happened, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that ended may wait for its parent to look.
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def test_it_prints_lines_that_a_shell_can_read(command, gguf):
    _, out = command
    port = told(gguf)["parameters"]["port"]
    lines = out.read_text().splitlines()
    assert lines[0] == f"Loading {gguf} …"
    assert lines[2] == (
        "The window is 2048 tokens, not 4096: the model was trained on no more than 2048."
    )
    assert [line for line in lines if line.startswith("export")] == [
        f"export OPENAI_BASE_URL=http://127.0.0.1:{port}/v1 OPENAI_MODEL=tiny",
        "export OPENAI_CONTEXT_WINDOW=2048 OPENAI_MAX_OUTPUT=512",
    ]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_signal_ends_both_processes(command, gguf, number):
    process, out = command
    os.kill(process.pid, number)
    assert process.wait(20) == 0
    assert out.read_text().endswith("\nStopped.\n")
    assert not is_alive(told(gguf)["pid"])


def test_nothing_stays_behind_a_command_that_was_killed(command, gguf):
    process, _ = command
    process.kill()
    process.wait()
    wait_until(lambda: not is_alive(told(gguf)["pid"]), seconds=10)
