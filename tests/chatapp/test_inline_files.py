"""A file as base64 inside a text is told by a placeholder, in one look at each character."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatapp.llm.encodings import Chars4Counter
from chatapp.llm.tokens import count_message
from chatapp.messages.inline_files import FileSpan, told, without_inline_files
from chatapp.messages.wire import as_sent
from tests.factories import call, result
from tests.growth import grows_too_fast

# 3,000 bytes each, as each kind of file begins.
STARTS = {
    "image/jpeg": b"\xff\xd8\xff\xe0\x00\x10JFIF",
    "image/png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
    "image/gif": b"GIF89a",
    "image/webp": b"RIFF\x10\x20\x00\x00WEBPVP8 ",
    "image/bmp": b"BM\x36\x10\x00\x00\x00\x00\x00\x00",
    "image/tiff": b"II*\x00\x08\x00\x00\x00",
    "image/x-icon": b"\x00\x00\x01\x00\x01\x00",
    "image/avif": b"\x00\x00\x00 ftypavif",
    "image/heic": b"\x00\x00\x00\x18ftypheic",
    "image/svg+xml": b"<svg xmlns='http://www.w3.org/2000/svg'>",
    "application/pdf": b"%PDF-1.7\n",
    "application/zip": b"PK\x03\x04\x14\x00",
    "audio/wav": b"RIFF\x10\x20\x00\x00WAVEfmt ",
    "audio/ogg": b"OggS\x00\x02",
    "video/mp4": b"\x00\x00\x00\x18ftypmp42",
}


def data_of(kind: str = "image/png", size: int = 3_000) -> str:
    start = STARTS[kind]
    body = bytes((number * 37 + 11) % 256 for number in range(size - len(start)))
    return base64.b64encode(start + body).decode()


@pytest.mark.parametrize("kind", STARTS)
def test_bare_data_is_known_by_its_first_bytes(kind):
    text = json.dumps({"saved": data_of(kind), "taken": "08:15"})
    assert without_inline_files(text) == f'{{"saved": "[{kind}, 3 kB]", "taken": "08:15"}}'


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("data:image/png;base64,", "[image/png, 3 kB]"),
        ("data:application/x-anything.v2+json;base64,", "[application/x-anything.v2+json, 3 kB]"),
        ("data:image/svg+xml;charset=utf-8;base64,", "[image/svg+xml, 3 kB]"),
        ("data:;base64,", "[data, 3 kB]"),
    ],
)
def test_a_data_url_says_itself_what_it_holds(head, words):
    unknown = base64.b64encode(b"\x01\x02\x03" * 1000).decode()
    assert without_inline_files(f"see ({head}{unknown}) there") == f"see ({words}) there"


def test_the_case_is_told_in_few_words():
    data = "/9j/4AAQSkZJRgAB" * 8000
    text = json.dumps({"ok": True, "picture": f"data:image/jpeg;base64,{data}", "taken": "08:15"})
    right = '{"ok": true, "picture": "[image/jpeg, 96 kB]", "taken": "08:15"}'
    assert without_inline_files(text) == right


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_json_inside_json_is_told_at_any_depth_and_stays_json(depth):
    value = json.dumps({"image": f"data:image/png;base64,{data_of()}", "n": 1})
    right = json.dumps({"image": "[image/png, 3 kB]", "n": 1})
    for _ in range(depth):
        # As those write it that escape slashes, too.
        value = json.dumps({"inner": value}).replace("/", "\\/")
        right = json.dumps({"inner": right})
    inner = json.loads(without_inline_files(value))
    for _ in range(depth):
        inner = json.loads(inner["inner"])
    assert inner == {"image": "[image/png, 3 kB]", "n": 1}


def test_data_broken_into_lines_is_one_file():
    wrapped = base64.encodebytes(base64.b64decode(data_of())).decode()
    assert without_inline_files(f"{wrapped}done\n") == "[image/png, 3 kB]\ndone\n"
    assert json.loads(without_inline_files(json.dumps(f"{wrapped}saved it"))) == (
        "[image/png, 3 kB]\nsaved it"
    )


def test_data_for_addresses_is_known_as_well():
    data = base64.urlsafe_b64encode(base64.b64decode(data_of("image/jpeg"))).decode()
    assert without_inline_files(f"token {data}") == "token [image/jpeg, 3 kB]"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a word",
        # An icon in a style sheet may be what somebody works on.
        f"url(data:image/png;base64,{data_of(size=120)})",
        # Letters of base64 that are no file of a known kind, and one in the midst of other data.
        "A" * 4_000,
        base64.b64encode(b"a text that somebody wrote " * 40).decode(),
        "x" + data_of(),
        "data:image/svg+xml," + "%3Csvg%20width='4'%3E" * 40,
        "5f4dcc3b5aa765d61d8327deb882cf99" * 16,
        "/9j is a path, iVBORw0KGgo a beginning; " * 20,
        "base64, is the word; " * 40,
    ],
)
def test_all_else_stays_to_the_letter(text):
    assert without_inline_files(text) is text


def test_places_lead_back_to_the_whole_text():
    data = data_of()
    text = f"first {data} then data:image/gif;base64,{data_of('image/gif')}."
    short, spans = told(text)
    assert short == "first [image/png, 3 kB] then [image/gif, 3 kB]."
    assert spans[0] == FileSpan(6, 23, 6, 6 + len(data), "[image/png, 3 kB]")
    assert [short[span.start : span.end] for span in spans] == [span.words for span in spans]
    assert text[: spans[0].original_start] + text[spans[0].original_end : spans[1].original_start]
    assert text[spans[1].original_end :] == "."


@given(st.text(alphabet='/9jABiVORw0KGgo=\\n"dat:imge;bs64, ', max_size=600), st.integers(0, 3))
def test_it_is_told_once_and_for_all_and_loses_no_other_letter(text, files):
    whole = f" {data_of()} ".join([text] * (files + 1))
    short, spans = told(whole)
    assert told(short)[0] == short
    rest, at, left = [], 0, []
    for span in spans:
        rest.append(short[at : span.start])
        left.append(span.words)
        at = span.end
    rest.append(short[at:])
    originals, at = [], 0
    for span in spans:
        originals.append(whole[at : span.original_start])
        at = span.original_end
    originals.append(whole[at:])
    assert rest == originals


@pytest.mark.parametrize(
    "piece",
    ["/9j/", "/9j ", "\\/9j", "\\n/9j/", "Qk", "AAAA", "base64,", "data:", "data:a/b;base64,",
     "data:;base64,AAAA\\n", "\\", "\\\\/", "iVBORw0KGg=", "UklGR" + "A" * 70 + "\n"],
)  # fmt: skip
def test_time_grows_no_faster_than_the_text(piece):
    texts = {size: piece * (size // len(piece)) for size in (20_000, 400_000)}
    assert not grows_too_fast(lambda size: told(texts[size]), 20_000, times=20, quick=0.04)


# --- a message ------------------------------------------------------------------------------------


def test_a_tools_texts_and_a_calls_arguments_are_sent_with_placeholders():
    data = data_of()
    asked = as_sent(call("upload", "k", json.dumps({"file": data})))
    assert asked["tool_calls"][0]["function"]["arguments"] == '{"file": "[image/png, 3 kB]"}'
    parts = [{"type": "text", "text": f"first {data}"}, {"type": "text", "text": "second"}]
    assert as_sent(result("k") | {"content": parts})["content"] == [
        {"type": "text", "text": "first [image/png, 3 kB]"},
        {"type": "text", "text": "second"},
    ]


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_what_people_and_models_said_stays_as_it_is(role):
    wire = {"role": role, "content": f"Decode this: {data_of()}"}
    assert as_sent(wire) is wire
    assert count_message(wire, Chars4Counter()) > 1_000


def test_a_placeholder_is_counted_and_not_the_data():
    counter = Chars4Counter()
    short = result("k", '{"file": "[image/png, 3 kB]"}')
    whole = result("k", json.dumps({"file": data_of()}))
    assert count_message(whole, counter) == count_message(short, counter) < 10
    asked = call("upload", "k", json.dumps({"file": data_of()}))
    assert count_message(asked, counter) < 12
