"""Wrong values of environment variables: each one is a sentence that names the variable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from chatapp.environment import Environment

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def env(monkeypatch):
    """Return a function that sets X and gives the environment."""

    def with_x(value: str, name: str = "X") -> Environment:
        monkeypatch.setenv(name, value)
        return Environment()

    return with_x


def refusal(read, *args, **kwargs) -> str:
    with pytest.raises(ImproperlyConfigured) as caught:
        read(*args, **kwargs)
    return str(caught.value)


def test_a_whole_number_is_one(env):
    assert env("12").int("X", default=1) == 12
    assert refusal(env("two").int, "X", default=1) == "X must be a whole number, not 'two'."


def test_a_number_is_one(env):
    assert env("1e-3").float("X", default=1.0) == 0.001
    assert refusal(env("a1").float, "X", default=1.0) == "X must be a number, not 'a1'."


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("1", True),
        ("Yes", True),
        ("on\n", True),
        ("False", False),
        ("0", False),
        ("no", False),
        ("off", False),
        ("", False),
    ],
)
def test_true_and_false_have_four_words_each(env, text, value):
    assert env(text).bool("X", default=not value) is value


@pytest.mark.parametrize("text", ["maybe", "2", "ja"])
def test_another_word_is_neither_true_nor_false(env, text):
    assert refusal(env(text).bool, "X", default=False) == f"X must be true or false, not {text!r}."


def test_a_variable_that_is_not_set_has_its_default():
    env = Environment()
    assert env.int("X", default=3) == 3
    assert env.bool("X", default=True) is True


@pytest.mark.parametrize("url", ["nonsense", "http://secret@host/x", "postgres://secret@host:x/x"])
def test_an_address_of_no_database_is_refused_without_quoting_it(env, url):
    sentence = refusal(env(url).db_url, "X", default="sqlite:////tmp/x")
    assert sentence.startswith("X is no address of a database.")
    assert "secret" not in sentence


def test_an_address_of_a_database_becomes_its_settings(env):
    found = env("postgres://me:pw@host:1/name").db_url("X", default="sqlite:////tmp/x")
    assert found["ENGINE"] == "django.db.backends.postgresql"
    assert (found["NAME"], found["HOST"], found["PORT"]) == ("name", "host", 1)


def test_a_file_that_cannot_be_read_is_named(env):
    sentence = refusal(env("/nowhere/x", name="X_FILE").str, "X", default="")
    assert sentence.startswith("X_FILE names a file that cannot be read: ")
    assert "/nowhere/x" in sentence


def test_a_log_level_is_one_of_pythons(env):
    assert env("warning").level("X", default="INFO") == "WARNING"
    assert "not 'LOUD'" in refusal(env("loud").level, "X", default="INFO")


def test_a_folder_is_made(env, tmp_path):
    assert env(str(tmp_path / "a" / "b")).folder("X", default=tmp_path).is_dir()


def test_a_folder_that_cannot_be_made_is_refused(env, tmp_path):
    (tmp_path / "file").touch()
    assert refusal(env(str(tmp_path / "file" / "a")).folder, "X", default=tmp_path).startswith(
        "X: "
    )


@pytest.mark.parametrize("command", ["check", "demo"])
def test_the_command_line_says_the_sentence_alone(tmp_path, command):
    environment = {name: value for name, value in os.environ.items() if "SETTINGS" not in name}
    done = subprocess.run(
        [sys.executable, "manage.py", command],
        cwd=ROOT,
        env=environment | {"PALIMPSEST_DATA_DIR": str(tmp_path), "TURN_SECONDS": "two"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr == "TURN_SECONDS must be a whole number, not 'two'.\n"
