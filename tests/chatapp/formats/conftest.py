"""Real files of the shared folder for the tests of the formats."""

from collections.abc import Callable
from pathlib import Path

import pytest

from chatapp.formats import Conversation, ParsedFile, parse

SHARED_DATA = Path(__file__).resolve().parents[4] / "shared" / "data"

ReadFile = Callable[[str], bytes]
ParseFile = Callable[[str], ParsedFile]
ParseOne = Callable[[str], Conversation]


@pytest.fixture(scope="session")
def real_file() -> ReadFile:
    """Reads a file of ../shared/data, or skips the test where that folder is not there."""

    def read(path: str) -> bytes:
        file = SHARED_DATA / path
        if not file.exists():
            pytest.skip(f"The real conversations are not here: {file} does not exist.")
        return file.read_bytes()

    return read


@pytest.fixture(scope="session")
def parsed(real_file: ReadFile) -> ParseFile:
    """Parses a file of ../shared/data."""
    return lambda path: parse(real_file(path), name=Path(path).name)


@pytest.fixture(scope="session")
def only(parsed: ParseFile) -> ParseOne:
    """Parses a file of ../shared/data that holds one conversation."""

    def read(path: str) -> Conversation:
        (conversation,) = parsed(path).conversations
        return conversation

    return read
