"""Wrong values of environment variables: each one is a sentence that names the variable."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from chatapp.environment import (
    Database,
    Folder,
    Level,
    LineFormat,
    Pieces,
    SettingsGroup,
    Switch,
    setting,
    texts_of,
)

ROOT = Path(__file__).resolve().parent.parent.parent


def group(kind: Any, default: Any, *, check_default: bool = False) -> type[SettingsGroup]:
    """Return a group with one setting, which the variable X sets."""

    class Example(SettingsGroup):
        x: kind = setting(default, "An example.", check_default=check_default)

    return Example


def read(kind: Any, default: Any = None) -> Any:
    return group(kind, default).from_environment().x


@pytest.fixture
def given(monkeypatch):
    """Set a variable."""
    return monkeypatch.setenv


def refusal(kind: Any, default: Any = None) -> str:
    with pytest.raises(ImproperlyConfigured) as caught:
        read(kind, default)
    return str(caught.value)


def test_a_whole_number_is_one(given):
    given("X", "12")
    assert read(int) == 12
    given("X", "two")
    assert refusal(int) == "X must be a whole number, not 'two'."


def test_a_number_is_one(given):
    given("X", "1e-3")
    assert read(float) == 0.001
    given("X", "a1")
    assert refusal(float) == "X must be a number, not 'a1'."


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
    ],
)
def test_true_and_false_have_four_words_each(given, text, value):
    given("X", text)
    assert read(Switch, not value) is value


@pytest.mark.parametrize("text", ["maybe", "2", "ja"])
def test_another_word_is_neither_true_nor_false(given, text):
    given("X", text)
    assert refusal(Switch, False) == f"X must be true or false, not {text!r}."


def test_a_variable_that_is_not_set_has_its_default():
    assert read(int, 3) == 3
    assert read(Switch, True) is True


@pytest.mark.parametrize("text", ["", " ", "\n"])
@pytest.mark.parametrize(("kind", "default"), [(int, 3), (Switch, True), (str, "something")])
def test_an_empty_variable_is_not_set(given, tmp_path, text, kind, default):
    given("X", text)
    assert read(kind, default) == default
    path = tmp_path / "x"
    path.write_text(text)
    given("X_FILE", str(path))
    assert read(kind, default) == default


def test_names_of_variables_are_upper_case(given):
    given("x", "12")
    assert read(int, 3) == 3


@pytest.mark.parametrize(
    ("text", "pieces"), [("a,b", ("a", "b")), ("a", ("a",)), (",", ()), (" a , ,b\n", ("a", "b"))]
)
def test_pieces_are_separated_by_commas(given, text, pieces):
    given("X", text)
    assert read(Pieces, ("default",)) == pieces


@pytest.mark.parametrize("url", ["nonsense", "http://secret@host/x", "postgres://secret@host:x/x"])
def test_an_address_of_no_database_is_refused_without_quoting_it(given, url):
    given("X", url)
    sentence = refusal(Database, "sqlite:////tmp/x")
    assert sentence.startswith("X is no address of a database.")
    assert "secret" not in sentence


def test_an_address_of_a_database_becomes_its_settings(given):
    given("X", "postgres://me:pw@host:1/name")
    found = read(Database, "sqlite:////tmp/x")
    assert found["ENGINE"] == "django.db.backends.postgresql"
    assert (found["NAME"], found["HOST"], found["PORT"]) == ("name", "host", 1)


def test_an_address_may_name_several_hosts_and_a_password_as_it_is(given):
    given("X", "postgres://me:p#w@one:1,two:2/name?sslmode=require")
    found = read(Database, "sqlite:////tmp/x")
    assert (found["HOST"], found["PORT"], found["PASSWORD"]) == ("one,two", "1,2", "p#w")
    assert found["OPTIONS"] == {"sslmode": "require"}


def test_a_file_holds_the_value_and_counts_more_than_the_variable(given, tmp_path):
    (tmp_path / "x").write_text("12\n")
    given("X", "3")
    given("X_FILE", str(tmp_path / "x"))
    assert read(int) == 12
    assert read(str) == "12\n"


def test_a_file_that_cannot_be_read_is_named(given):
    given("X_FILE", "/nowhere/x")
    sentence = refusal(str, "")
    assert sentence.startswith("X_FILE names a file that cannot be read: ")
    assert "/nowhere/x" in sentence


def test_a_log_level_is_one_of_pythons(given):
    given("X", "warning")
    assert read(Level, "INFO") == "WARNING"
    given("X", "loud")
    assert refusal(Level, "INFO") == (
        "X must be DEBUG, INFO, WARNING, ERROR or CRITICAL, not 'LOUD'."
    )


def test_a_line_format_is_one_of_two(given):
    given("X", "JSON ")
    assert read(LineFormat) == "json"
    given("X", "xml")
    assert refusal(LineFormat) == "X must be line or json, not 'xml'."


def test_a_folder_is_made(given, tmp_path):
    given("X", str(tmp_path / "a" / "b"))
    assert read(Folder, tmp_path).is_dir()


def test_the_folder_of_the_default_is_made_too(tmp_path):
    example = group(Folder, tmp_path / "a", check_default=True)
    assert example.from_environment().x.is_dir()


def test_a_folder_that_cannot_be_made_is_refused(given, tmp_path):
    (tmp_path / "file").touch()
    given("X", str(tmp_path / "file" / "a"))
    assert refusal(Folder, tmp_path).startswith("X: ")


def test_a_default_may_be_worked_out_from_the_settings_before_it(given):
    class Example(SettingsGroup):
        x: int = setting(1, "The first.")
        y: int = setting(lambda given: 3 * given["x"], "The second.", shown="3 × X")

    given("X", "5")
    assert Example.from_environment().y == 15
    given("Y", "1")
    assert Example.from_environment().y == 1


def test_only_declared_variables_are_texts(given):
    given("X", "1")
    assert texts_of(["X", "Y"]) == {"X": "1"}


def test_what_a_dict_of_settings_leaves_out_comes_from_the_environment(given):
    given("X", "5")
    assert group(int, 1).from_mapping("EXAMPLE", {}).x == 5
    assert group(int, 1).from_mapping("EXAMPLE", {"X": 7}).x == 7


@pytest.mark.parametrize("command", ["check", "demo"])
@pytest.mark.parametrize("variable", ["TURN_SECONDS", "COMPACTION_RUN_SECONDS"])
def test_the_command_line_says_the_sentence_alone(tmp_path, command, variable):
    environment = {name: value for name, value in os.environ.items() if "SETTINGS" not in name}
    done = subprocess.run(
        [sys.executable, "manage.py", command],
        cwd=ROOT,
        env=environment | {"PALIMPSEST_DATA_DIR": str(tmp_path), variable: "two"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr == f"{variable} must be a whole number, not 'two'.\n"
