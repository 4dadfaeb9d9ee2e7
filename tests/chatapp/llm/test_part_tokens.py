"""What parts cost that hold no text: by a stated rule, never as words of their base64."""

import base64
import json
from typing import Any

import pytest

from chatapp.llm import part_tokens
from chatapp.llm.encodings import Chars4Counter
from chatapp.llm.tokens import count_message
from tests.chatapp.test_parts import b64, pdf, uri, wav
from tests.growth import takes_longer


def tokens(*parts: Any) -> int:
    return count_message({"role": "user", "content": list(parts)}, Chars4Counter())


def file(data: bytes, media_type: str = "application/octet-stream", name: str = "a") -> Any:
    return {"type": "file", "file": {"filename": name, "file_data": uri(data, media_type)}}


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        # A page 1,500; of what only its bytes are known a page for each 50,000, at most 30,000.
        (file(pdf(14), "application/pdf"), 21_000),
        (file(pdf(0, filling=120_000), "application/pdf"), 4_500),
        (file(b"x" * 9_000_000, "application/zip"), 30_000),
        ({"type": "input_file", "file_data": b64(pdf(2)), "filename": "a.pdf"}, 3_000),
        ({"type": "document", "source": {"type": "base64", "data": b64(pdf(3))}}, 4_500),
        ({"type": "document", "source": {"type": "url", "url": "https://x.org/a.pdf"}}, 3_000),
        ({"type": "document", "source": {"type": "text", "data": "x" * 400}}, 100),
        ({"type": "file", "file": {"file_id": "file-1"}}, 3_000),
        (file(b"x" * 4_000, "text/csv"), 1_000),
        (file(b"x" * 4_000, "", "notes.md"), 1_000),
        (file(b"x" * 4_000_000, "text/plain"), 30_000),
        (file(b"x" * 4_000, "image/png"), 1_200),
        # A second of sound 25, of film 260.
        ({"type": "input_audio", "input_audio": {"data": b64(wav(12)), "format": "wav"}}, 301),
        (
            {"type": "input_audio", "input_audio": {"data": b64(b"x" * 160_000), "format": "mp3"}},
            250,
        ),
        ({"type": "audio", "audio": {"id": "audio_1"}}, 750),
        ({"type": "audio", "audio": {"id": "audio_1"}, "seconds": 100}, 2_500),
        ({"type": "video_url", "video_url": {"url": "https://x.org/a.mp4"}}, 5_200),
        ({"type": "video", "video": {"url": uri(b"x" * 1_000_000, "video/mp4")}}, 1_040),
        ({"type": "image", "source": {"type": "base64", "data": "A" * 9_000}}, 1_200),
        # Of unknown kind: 100, its texts, and its data as a file.
        ({"type": "place", "lat": 4}, 100 + 6),
        ({"type": "scan", "blob": "A" * 100_000}, 100 + 3_000 + 7),
    ],
)
def test_a_part_costs_what_the_rule_says(part: Any, expected: int) -> None:
    assert tokens(part) == expected


def test_the_texts_beside_a_part_are_counted() -> None:
    assert tokens({"type": "text", "text": "abcd"}, file(pdf(1), "application/pdf")) == 1_501


def test_the_long_text_of_an_unknown_part_is_counted_as_text() -> None:
    assert tokens({"type": "tool_result", "content": "some words " * 4_000}) > 11_000


def test_nothing_costs_more_than_its_most() -> None:
    assert tokens({"type": "audio", "seconds": 10**9}) == part_tokens.MOST_SECONDS * 25
    assert tokens({"type": "file", "pages": 10**9}) == part_tokens.MOST_PAGES * 1_500


@pytest.mark.parametrize("kind", ["file", "input_audio", "video", "unheard_of"])
def test_fifteen_megabytes_are_counted_in_a_moment(kind: str) -> None:
    part = json.loads(json.dumps({"type": kind, kind: {"data": "QUJD" * 3_750_000}}))

    assert tokens(part) < 500_000
    assert not takes_longer(lambda: tokens(part), 0.5)


def test_the_base64_of_a_real_looking_file_never_counts_as_words() -> None:
    data = base64.b64encode(bytes(range(256)) * 4_000).decode()
    for part in (
        {"type": "file", "file": {"file_data": data}},
        {"type": "tool_result", "content": [{"type": "image", "source": {"data": data}}]},
        {"type": "custom", "deep": {"er": [data]}},
    ):
        assert tokens(part) < 31_000
