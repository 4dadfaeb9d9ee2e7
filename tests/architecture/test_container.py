"""The image and the compose file: what they name exists, and they start where an engine is."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import time
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import get_commands, load_command_class
from django.test import Client

from chatapp.conf import ChatappSettings, ModelSettings, ServerSettings
from compaction.conf import CompactionSettings
from compaction.engine.profile import ENVIRONMENT, WINDOW_ENVIRONMENT

ROOT = Path(__file__).resolve().parents[2]
APPS = ("migrate", "web", "worker")
OF_PYTHON = {"PATH", "PYTHONUNBUFFERED"}
SECRET = re.compile(r"PASSWORD|SECRET|TOKEN|API_KEY|DATABASE_URL")
VALUE = re.compile(r"\$\{(\w+)(?::[-?][^}]*)?\}")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def dockerfile() -> list[list[str]]:
    """The instructions of the Dockerfile, each as its name and its words."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    return [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]


def variables() -> set[str]:
    """All variables that the settings declare."""
    groups = (ServerSettings, ModelSettings, ChatappSettings, CompactionSettings)
    declared = {one.variable for group in groups for one in group.declarations() if one.variable}
    return declared | set(ENVIRONMENT) | set(WINDOW_ENVIRONMENT)


def commands_in(words: str) -> list[tuple[str, list[str]]]:
    """The commands of manage.py in a line, with their arguments."""
    found = []
    for part in re.split(r"&&|;", words):
        _, said, after = part.partition("manage.py")
        if said:
            name, *arguments = after.split()
            found.append((name, arguments))
    return found


def test_the_services_are_those_that_the_product_needs(compose):
    assert set(compose["services"]) == {*APPS, "postgres", "redis"}
    assert set(compose["volumes"]) == {"data", "postgres", "redis"}
    for service in compose["services"].values():
        for other in service.get("depends_on", {}):
            assert other in compose["services"]


@pytest.mark.parametrize("name", APPS)
def test_every_variable_is_declared_by_the_settings(compose, name):
    given = set(compose["services"][name]["environment"])
    assert {"SECRET_KEY", "DATABASE_URL", "REDIS_URL", "ALLOWED_HOSTS"} <= given
    assert given <= variables()


def test_every_variable_of_the_image_is_declared_or_pythons_own(dockerfile):
    given = [words for name, words in dockerfile if name == "ENV"]
    names = set(re.findall(r"(\w+)=", " ".join(given)))
    assert "PALIMPSEST_DATA_DIR" in names
    assert names - OF_PYTHON <= variables()


@pytest.mark.parametrize("name", APPS)
def test_every_command_exists_and_takes_its_arguments(compose, name):
    found = commands_in(" ".join(compose["services"][name]["command"]))
    assert found
    for command, arguments in found:
        app = get_commands()[command]
        parser = load_command_class(app, command).create_parser("manage.py", command)
        parser.parse_args(arguments)


def test_the_image_serves_by_default(dockerfile):
    (words,) = [json.loads(words) for name, words in dockerfile if name == "CMD"]
    assert [name for name, _ in commands_in(" ".join(words))] == ["serve"]
    assert "0.0.0.0" in words


def test_no_secret_stands_in_the_files(compose, dockerfile):
    for service in compose["services"].values():
        for name, value in service.get("environment", {}).items():
            if SECRET.search(name):
                assert VALUE.search(str(value)), name
                # Behind the name of a variable no default may stand for it.
                assert not re.search(r"(?:PASSWORD|SECRET_KEY|TOKEN|API_KEY):-[^}]", str(value))
    said = " ".join(words for name, words in dockerfile if name in ("ENV", "ARG"))
    assert not SECRET.search(said)


def test_what_must_be_set_is_refused_when_it_is_missing(compose):
    environment = compose["services"]["web"]["environment"]
    assert environment["SECRET_KEY"].startswith("${SECRET_KEY:?")
    assert "${POSTGRES_PASSWORD:?" in environment["DATABASE_URL"]


def test_the_code_of_the_image_is_compiled(dockerfile):
    """Who runs it may not write beside it, and would compile all of it with every command."""
    (words,) = [words for name, words in dockerfile if name == "RUN" and "compileall" in words]
    assert {"manage.py", "chatapp", "compaction"} <= set(words.split())
    copied = ["COPY", "--from=build /app /app"]
    assert dockerfile.index(["RUN", words]) < dockerfile.index(copied)


def test_nobody_is_root_in_the_image(dockerfile):
    stages = [index for index, (name, _) in enumerate(dockerfile) if name == "FROM"]
    last = dockerfile[stages[-1] :]
    users = [words for name, words in last if name == "USER"]
    assert users == ["palimpsest"]
    names = [name for name, _ in last]
    assert names.index("USER") < names.index("CMD")


def test_images_have_a_version(compose, dockerfile):
    images = [words.split()[0] for name, words in dockerfile if name == "FROM"]
    images += [service["image"] for service in compose["services"].values()]
    for image in images:
        assert re.search(r":\d[\w.-]*$", image), image


def test_everything_that_stays_has_a_health_check(compose, dockerfile):
    for name, service in compose["services"].items():
        if name == "migrate":
            assert service["healthcheck"] == {"disable": True}
        else:
            assert service["healthcheck"]["test"][0] == "CMD"
            assert service["restart"] == "unless-stopped"
    assert any(name == "HEALTHCHECK" for name, _ in dockerfile)


def test_the_health_checks_are_answered_under_the_hosts_that_are_allowed(compose, settings):
    environment = compose["services"]["web"]["environment"]
    settings.ALLOWED_HOSTS = VALUE.sub("chat.example.com", environment["ALLOWED_HOSTS"]).split(",")
    for name in ("web", "worker"):
        test = " ".join(compose["services"][name]["healthcheck"]["test"])
        host, path = re.search(r"http://([^:/]+):8000(/\w+)", test).groups()
        if path == "/healthz":
            assert Client(SERVER_NAME=host).get(path).status_code == 200
        assert host in settings.ALLOWED_HOSTS
        assert path in ("/healthz", "/readyz")


def test_only_the_machine_itself_reaches_the_port(compose):
    ports = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert len(ports) == 1
    assert ports[0].startswith("127.0.0.1:")


def test_the_extras_that_are_installed_exist(dockerfile):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    installed = " ".join(words for name, words in dockerfile if name == "RUN")
    extras = re.search(r"\.\[([\w,]+)\]", installed)[1].split(",")
    assert set(extras) <= set(project["optional-dependencies"])
    assert {"postgres", "redis"} <= set(extras)
    python = re.search(r"python:(\d+)\.(\d+)", dockerfile[0][1]).groups()
    assert tuple(map(int, python)) >= (3, 11)


def test_secrets_and_data_of_the_folder_are_left_out_of_the_image():
    left_out = set((ROOT / ".dockerignore").read_text().split("\n"))
    assert {".env", ".git", ".venv", "var", "*.sqlite3", "tests"} <= left_out
    # Without these it could not be built.
    assert not {"README.md", "LICENSE", "pyproject.toml", "static", "templates"} & left_out


def test_the_documentation_names_what_has_to_be_set():
    page = (ROOT / "docs/operations.md").read_text()
    section = page.partition("## Containers")[2].partition("\n## ")[0]
    for name in ("SECRET_KEY", "POSTGRES_PASSWORD", "docker compose up", "pg_dump"):
        assert name in section


# --- with a container engine ----------------------------------------------------------------------


def _engine() -> list[str] | None:
    """The command of a container engine that runs here and knows compose files, if there is one."""
    for name in ("docker", "podman"):
        if shutil.which(name) is None:
            continue
        for question in (["info"], ["compose", "version"]):
            asked = subprocess.run([name, *question], capture_output=True, timeout=30, check=False)
            if asked.returncode:
                break
        else:
            return [name, "compose"]
    return None


@pytest.mark.slow
def test_it_starts_and_answers(tmp_path):
    """Where an engine is: everything becomes healthy, answers, and is taken away again."""
    engine = _engine()
    if engine is None:
        pytest.skip("no container engine runs here")
    port = "18765"
    environment = os.environ | {
        "SECRET_KEY": secrets.token_urlsafe(60),
        "POSTGRES_PASSWORD": secrets.token_hex(16),
        "WEB_PORT": port,
    }
    base = [*engine, "--project-name", f"palimpsest-{secrets.token_hex(4)}"]

    def run(*words: str) -> str:
        done = subprocess.run(
            [*base, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        run("up", "--build", "--detach", "--wait", "--wait-timeout", "300")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
            assert answer.read() == b"ok\n"
        end = time.monotonic() + 180
        while not _is_ready(f"http://127.0.0.1:{port}/readyz"):
            assert time.monotonic() < end, "the worker never became ready"
            time.sleep(2)
        assert run("exec", "-T", "web", "id", "-u").strip() == "10001"
    finally:
        subprocess.run([*base, "down", "--volumes"], cwd=ROOT, env=environment, check=False)


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return answer.status == 200
    except OSError:
        return False
