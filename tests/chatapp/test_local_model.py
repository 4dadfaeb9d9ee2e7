"""`local_model` without a model: a library that only pretends, every sentence, and a clean end."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
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
from chatapp.llm.local import (
    LocalModel,
    LocalModelError,
    Serving,
    answer_tokens,
    require_processor,
    serve,
)

ROOT = Path(__file__).resolve().parents[2]
CANNOT_BE_SERVED = (
    "The model cannot be served; the lines above say why. The port may be taken, the file damaged "
    "or too new for the installed xllamacpp, or memory too small for the window."
)
# Copied under the library's name for the processes that a test starts.
FAKE_LIBRARY = ROOT / "tests/fakes/llama_library.py"


# What a shell gave this process: a job in its background ignores Ctrl-C.
AT_START = signal.getsignal(signal.SIGINT)


@pytest.fixture
def library(tmp_path, monkeypatch, settings) -> Iterator[None]:
    """The pretended library, for this process and for those it starts."""
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / f"{local.LIBRARY}.py").write_text(FAKE_LIBRARY.read_text())
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    for name in ("OMP_WAIT_POLICY", "GGML_NO_BACKTRACE"):
        # Set first, so that what `serve` sets is taken back.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    settings.LOCAL_MODEL_GGUF = ""
    yield
    sys.modules.pop(local.LIBRARY, None)


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
    assert refusal("--gguf", tmp_path).startswith(f"There is no file {tmp_path}.")


@pytest.mark.parametrize(
    ("option", "value", "limits"),
    [
        *(("--ctx", tokens, "256 to 1048576") for tokens in (-1, 0, 255, 1_048_577)),
        *(("--threads", threads, "1 to 512") for threads in (-1, 0, 513)),
        *(("--port", port, "0 to 65535") for port in (-1, 65_536)),
    ],
)
def test_a_number_is_nonsense(gguf, option, value, limits):
    assert refusal("--gguf", gguf, f"{option}={value}") == (
        f"Error: argument {option}: must be a whole number from {limits}, not {value}."
    )


def test_the_port_is_taken(gguf):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert refusal("--gguf", gguf, "--port", port) == CANNOT_BE_SERVED


def test_the_extra_is_not_installed(gguf, monkeypatch):
    monkeypatch.setattr(local, "LIBRARY", "no_such_library")
    assert refusal("--gguf", gguf) == (
        "no_such_library is not installed. Install the extra: pip install 'palimpsest[local]', "
        "in a checkout pip install -e '.[local]'."
    )


def test_the_library_cannot_load_the_file(library, tmp_path):
    path = made(tmp_path / "bad.gguf", b"GGUFfails")
    assert refusal("--gguf", path, "--port", 0) == CANNOT_BE_SERVED


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


def test_the_library_is_not_loaded_before_it_is_needed(gguf):
    code = (
        "import django, sys; django.setup()\n"
        "import chatapp.management.commands.local_model\n"
        "print('xllamacpp' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, capture_output=True, text=True, check=True,
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "tests.settings"},
    )  # fmt: skip
    assert done.stdout.split() == ["False"]


# --- the server ---------------------------------------------------------------------


@pytest.fixture
def serving(gguf) -> Serving:
    return serve(LocalModel(gguf=gguf, port=0, context=4096, threads=3, alias="tiny model"))


def test_it_says_what_the_window_came_to(serving):
    assert (serving.window, serving.trained) == (2048, 2048)


def test_waiting_threads_do_not_spin_and_that_is_set_before_the_library_is_loaded(serving, gguf):
    assert told(gguf)["environment"] == {"OMP_WAIT_POLICY": "passive", "GGML_NO_BACKTRACE": "1"}


def test_a_policy_of_the_shell_is_left_alone(gguf, monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    serve(LocalModel(gguf=gguf, port=0, context=512, threads=1, alias="tiny"))
    assert told(gguf)["environment"]["OMP_WAIT_POLICY"] == "active"


def test_it_listens_on_loopback_only_and_shows_prompts_to_nobody(serving, gguf):
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v1", serving.url)
    assert told(gguf)["parameters"] == {
        "model": {"path": str(gguf)},
        "model_alias": ["tiny model"],
        "hostnames": ["127.0.0.1"],
        "port": 0,
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


def test_ctrl_c_is_python_s_again_when_the_model_is_loaded(serving):
    assert signal.getsignal(signal.SIGINT) is AT_START


def test_the_answers_room_is_a_quarter_of_the_window_but_no_more_than_people_wait_for():
    assert [answer_tokens(window) for window in (256, 4096, 32_768)] == [64, 1024, 1024]


# --- the command as a process ---------------------------------------------------------


@contextlib.contextmanager
def started(gguf: Path, text: str) -> Iterator[tuple[subprocess.Popen, Path]]:
    """`manage.py local_model`, until it has written `text`; and where it writes."""
    out = gguf.with_suffix(".out")
    with out.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "local_model", "--gguf", str(gguf), "--port", "0"],
            cwd=ROOT, stdout=stream, stderr=stream,
        )  # fmt: skip
    try:
        wait_until(lambda: text in out.read_text() or process.poll() is not None)
        yield process, out
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def command(gguf) -> Iterator[tuple[subprocess.Popen, Path]]:
    with started(gguf, "Ctrl-C stops it.") as running:
        yield running


def wait_until(happened, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


@pytest.mark.slow
def test_it_prints_lines_that_a_shell_can_read(command, gguf):
    _, out = command
    lines = out.read_text().splitlines()
    (port,) = re.findall(r"http://127\.0\.0\.1:(\d+)/v1", out.read_text())
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


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_signal_ends_it(command, number):
    process, out = command
    process.send_signal(number)
    assert process.wait(20) == 0
    assert out.read_text().endswith("\nStopped.\n")


@pytest.mark.slow
def test_ctrl_c_ends_it_while_the_model_loads(library, tmp_path):
    slow = made(tmp_path / "slow.gguf", b"GGUFslow")
    with started(slow, "Loading") as (process, _):
        wait_until(slow.with_suffix(".json").exists)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == -signal.SIGINT
