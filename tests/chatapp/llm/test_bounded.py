"""A server that answers without end, or sends us elsewhere, gets nowhere."""

from __future__ import annotations

import gzip
import json
import threading
import tracemalloc
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from chatapp.llm import chat_wire, openai_client
from chatapp.llm.bounded import inflated
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest
from chatapp.llm.streams import MOST_ITEMS
from tests.factories import user

CHARACTERS = 1000
HELLO = {"messages": [user("hello")]}


class Server:
    """Answers every request with `answer(handler)`; `asked` counts them."""

    def __init__(self, answer) -> None:
        outer = self
        self.asked = 0
        self.sent = 0

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format, *args):
                pass

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                outer.asked += 1
                answer(outer, self)

        self._httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._httpd.daemon_threads = True
        threading.Thread(target=self._httpd.serve_forever, args=(0.01,), daemon=True).start()
        self.model = ModelConfig(
            alias="m",
            backend="chatapp.llm.openai_client.OpenAIModel",
            name="m",
            context_window=8000,
            api_key="k",
            base_url=f"http://127.0.0.1:{self._httpd.server_address[1]}/v1",
        )

    def close(self) -> None:
        self._httpd.shutdown()
        self._httpd.server_close()


@pytest.fixture
def serve(settings):
    settings.CHATAPP = settings.CHATAPP | {"MAX_ANSWER_CHARS": CHARACTERS}
    running = []

    def start(answer) -> Server:
        running.append(Server(answer))
        return running[-1]

    yield start
    for server in running:
        server.close()


def headers(handler, status: int, kind: str, **more: str) -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    for name, value in more.items():
        handler.send_header(name, value)
    handler.end_headers()


def pour(server, handler, chunk: bytes, chunks: int = 100_000) -> None:
    """Write until the client goes away."""
    try:
        for _ in range(chunks):
            handler.wfile.write(chunk)
            server.sent += len(chunk)
    except OSError:
        pass


def test_a_body_without_end_is_not_read_to_its_end(serve):
    def answer(server, handler):
        headers(handler, 200, "application/json")
        handler.wfile.write(b'{"error": {"message": "')
        pour(server, handler, b"x" * 10_000)

    server = serve(answer)
    with pytest.raises(ModelError) as failure:
        server.model.connect().complete(ModelRequest(**HELLO))
    assert failure.value.kind is ErrorKind.BAD_ANSWER
    assert "1,008,000 bytes" in failure.value.detail
    assert server.sent < 100_000_000
    assert server.asked == 1


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (400, "This model's maximum context length is 8192 tokens. ", ErrorKind.CONTEXT_OVERFLOW),
        (400, "Unsupported parameter: 'temperature'. ", ErrorKind.PARAMETER_REFUSED),
        (401, "Incorrect API key provided. ", ErrorKind.AUTHENTICATION),
        (429, "Rate limit reached. ", ErrorKind.RATE_LIMITED),
        (503, "Try later. ", ErrorKind.UNAVAILABLE),
    ],
)
@pytest.mark.parametrize("encoding", ["", "gzip", "br"])
def test_an_error_without_end_is_cut_and_keeps_its_status(
    serve, monkeypatch, status, said, kind, encoding
):
    """It was an answer that is too long, so that no refusal was answered and nothing retried."""
    monkeypatch.setattr(openai_client, "MAX_ATTEMPTS", 1)

    def answer(server, handler):
        headers(
            handler,
            status,
            "application/json",
            **({"Content-Encoding": encoding} if encoding else {}),
        )
        squeeze = zlib.compressobj(wbits=31)
        begun = b'{"error": {"message": "' + said.encode()
        if encoding == "gzip":
            begun = squeeze.compress(begun) + squeeze.flush(zlib.Z_SYNC_FLUSH)
            pour(server, handler, begun, chunks=1)
            pour(server, handler, squeeze.compress(b"x" * 20_000_000) + squeeze.flush(), chunks=1)
        else:
            pour(server, handler, begun, chunks=1)
            pour(server, handler, b"x" * 10_000)

    server = serve(answer)
    with pytest.raises(ModelError) as failure:
        server.model.connect().complete(ModelRequest(**HELLO))
    assert failure.value.status == status
    assert server.sent < 100_000_000
    if encoding != "br":
        assert failure.value.kind is kind
        assert said.strip() in failure.value.detail
        assert len(failure.value.detail) <= 20_100


ECHO = "and this was said before. " * 100_000
WORDS = "This model's maximum context length is 8192 tokens. Your messages resulted in 9000 tokens."
QUOTING = {
    "in front": {"error": {"echo": ECHO, "message": WORDS, "code": "context_length_exceeded"}},
    "behind": {"error": {"message": WORDS, "code": "context_length_exceeded", "echo": ECHO}},
    "the request": {
        "request": {"messages": [{"role": "user", "content": ECHO}]},
        "error": {"message": WORDS, "code": "context_length_exceeded"},
    },
    "at its end": {"error": {"message": f"{ECHO}{WORDS}", "code": "context_length_exceeded"}},
    "of a validator": {
        "detail": [{"input": ECHO, "type": "context_length_exceeded", "loc": ["body"],
                    "msg": WORDS}]
    },
    "a list behind": {"error": {"message": WORDS, "code": "context_length_exceeded"},
                      "messages": [{"role": "user", "content": "short"}] * 60_000},
}  # fmt: skip


@pytest.mark.parametrize("encoding", ["", "gzip"])
@pytest.mark.parametrize("shape", QUOTING)
def test_an_error_that_quotes_megabytes_keeps_its_words(serve, shape, encoding):
    def answer(server, handler):
        more = {"Content-Encoding": encoding} if encoding else {}
        headers(handler, 400, "application/json", **more)
        body = json.dumps(QUOTING[shape]).encode()
        pour(server, handler, gzip.compress(body) if encoding else body, chunks=1)

    server = serve(answer)
    tracemalloc.start()
    try:
        with pytest.raises(ModelError) as failure:
            server.model.connect().complete(ModelRequest(**HELLO))
    finally:
        tracemalloc.stop()
    error = failure.value
    assert error.kind is ErrorKind.CONTEXT_OVERFLOW
    assert (error.observed, error.allowed) == (9000, 8192)
    assert error.code == "context_length_exceeded"
    if shape != "at its end":
        assert error.detail.startswith(WORDS)


EVENTS_OF_ONE_LINE = {
    "chat": b'data: {"choices": [{"delta": {"content": "',
    "chat, bare": b'{"choices": [{"delta": {"content": "',
    "responses": b'data: {"type": "response.output_text.delta", "delta": "',
    "responses, named": b'event: response.output_text.delta\ndata: {"delta": "',
}


@pytest.mark.parametrize("way", EVENTS_OF_ONE_LINE)
def test_a_line_without_end_is_cut_where_an_answer_is(serve, settings, way):
    """All of a stream's 129 MB may be one line: they were all held, several times."""
    settings.CHATAPP = settings.CHATAPP | {"MAX_ANSWER_CHARS": 2_000_000}

    def answer(server, handler):
        headers(handler, 200, "text/event-stream")
        pour(server, handler, EVENTS_OF_ONE_LINE[way], chunks=1)
        pour(server, handler, b"word " * 10_000, chunks=3_000)

    server = serve(answer)
    api = "responses" if "responses" in way else "chat"
    tracemalloc.start()
    try:
        reply = server.model.connect().complete(ModelRequest(**HELLO, stream=True, api=api))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert reply.finish_reason == "length"
    assert len(reply.text) == 2_000_000
    assert set(reply.text.split()) == {"word"}
    assert server.sent < 20_000_000
    assert peak < 25_000_000


@pytest.mark.parametrize(
    "before", [b"", b'data: {"choices": [{"delta": {"content": "Hello"}}]}\n\n']
)
@pytest.mark.parametrize("line", [b": ", b"data: ", b"data: x\n"], ids=["comment", "data", "lines"])
def test_a_line_without_end_that_says_nothing_ends_the_answer(serve, settings, before, line):
    settings.CHATAPP = settings.CHATAPP | {"MAX_ANSWER_CHARS": 100_000}

    def answer(server, handler):
        headers(handler, 200, "text/event-stream")
        pour(server, handler, before, chunks=1)
        if line.endswith(b"\n"):
            pour(server, handler, line * 1_000)
        else:
            pour(server, handler, line, chunks=1)
            pour(server, handler, b"x" * 10_000)

    server = serve(answer)
    request = ModelRequest(**HELLO, stream=True)
    if before:
        reply = server.model.connect().complete(request)
        assert (reply.text, reply.finish_reason) == ("Hello", "length")
    else:
        with pytest.raises(ModelError) as failure:
            server.model.connect().complete(request)
        assert failure.value.kind is ErrorKind.BAD_ANSWER
        assert "1,100,000 bytes" in failure.value.detail
    assert server.sent < 20_000_000


def test_what_a_compressed_answer_hides_is_counted(serve):
    """A megabyte became a thousand of them."""

    def answer(server, handler):
        headers(handler, 200, "application/json", **{"Content-Encoding": "gzip"})
        squeeze = zlib.compressobj(wbits=31)
        for _ in range(200):
            pour(server, handler, squeeze.compress(b"x" * 1_000_000), chunks=1)
        pour(server, handler, squeeze.flush(), chunks=1)

    server = serve(answer)
    tracemalloc.start()
    try:
        with pytest.raises(ModelError) as failure:
            server.model.connect().complete(ModelRequest(**HELLO))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert failure.value.kind is ErrorKind.BAD_ANSWER
    assert "1,008,000 bytes" in failure.value.detail
    assert peak < 20_000_000


@pytest.mark.parametrize("bits", [31, zlib.MAX_WBITS, -zlib.MAX_WBITS])
@pytest.mark.parametrize("stream", [True, False])
def test_a_compressed_answer_is_read(serve, bits, stream):
    def answer(server, handler):
        kind, body = "application/json", {"choices": [{"message": {"content": "seven"}}]}
        told = json.dumps(body).encode()
        if stream:
            kind = "text/event-stream"
            piece = {"choices": [{"delta": {"content": "seven"}, "finish_reason": "stop"}]}
            told = b"data: " + json.dumps(piece).encode() + b"\n\n"
        name = "gzip" if bits == 31 else "deflate"
        headers(handler, 200, kind, **{"Content-Encoding": name})
        squeeze = zlib.compressobj(wbits=bits)
        pour(server, handler, squeeze.compress(told) + squeeze.flush(), chunks=1)

    reply = serve(answer).model.connect().complete(ModelRequest(**HELLO, stream=stream))
    assert reply.text == "seven"


def raw(text: bytes) -> bytes:
    """What some servers call deflate: without a head and a checksum."""
    squeeze = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return squeeze.compress(text) + squeeze.flush()


@pytest.mark.parametrize(
    ("encoding", "told", "text"),
    [
        ("deflate", raw(b"seven"), b"seven"),
        # One character more than is inflated at once: it lay in the reader, and was lost.
        ("deflate", raw(b"a" * 65_537), b"a" * 65_537),
        ("deflate", zlib.compress(b"seven"), b"seven"),
        ("gzip", gzip.compress(b"se") + gzip.compress(b"") + gzip.compress(b"ven"), b"seven"),
        ("gzip", gzip.compress(b"seven") + b"\0" * 20, b"seven"),
        ("gzip", gzip.compress(b"seven") + b"\x1f is no head", b"seven"),
    ],
    # Names of their own: gzip writes the time, and processes of a run have to agree.
    ids=["bare", "longer", "deflate", "members", "zeros behind", "words behind"],
)
def test_what_is_compressed_is_read_wherever_it_is_cut(encoding, told, text):
    pieces = [told[:place] for place in range(len(told))]
    for piece in pieces:
        assert b"".join(inflated([piece, told[len(piece) :]], encoding)) == text
    assert b"".join(inflated([bytes([one]) for one in told], encoding)) == text


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize(
    "more",
    [
        pytest.param(b"x" * 65_536, id="behind its end"),
        pytest.param(gzip.compress(b"") * 3_000, id="parts of nothing"),
    ],
)
def test_a_compression_that_hides_nothing_without_end_is_counted(serve, status, more):
    """What came behind the end of a compression was kept, all of it."""

    def answer(server, handler):
        headers(handler, status, "application/json", **{"Content-Encoding": "gzip"})
        pour(server, handler, gzip.compress(b"{"), chunks=1)
        pour(server, handler, more, chunks=1_000)

    server = serve(answer)
    with pytest.raises(ModelError) as failure:
        server.model.connect().complete(ModelRequest(**HELLO))
    assert failure.value.kind is not ErrorKind.TIMEOUT
    assert server.sent < 30_000_000


@pytest.mark.parametrize("word", ["utf-8", "none", "identity", "UTF-8, gzip"])
def test_a_word_that_names_no_compression_is_none(serve, word):
    """Some servers name a character set there: each of their answers was refused."""

    def answer(server, handler):
        headers(handler, 200, "application/json", **{"Content-Encoding": word})
        told = json.dumps({"choices": [{"message": {"content": "seven"}}]}).encode()
        pour(server, handler, gzip.compress(told) if "gzip" in word else told, chunks=1)

    assert serve(answer).model.connect().complete(ModelRequest(**HELLO)).text == "seven"


@pytest.mark.parametrize("cut", [1, 2, 30])
@pytest.mark.parametrize(
    ("told", "is_squeezed"), [("", True), ("identity", True), ("gzip", False), ("x-gzip", False)]
)
def test_a_compression_that_its_header_does_not_tell_is_told_by_its_head(
    serve, told, is_squeezed, cut
):
    """Proxies inflate an answer and leave the header, or take the header and leave the answer."""

    def answer(server, handler):
        headers(handler, 200, "application/json", **({"Content-Encoding": told} if told else {}))
        body = json.dumps({"choices": [{"message": {"content": "seven"}}]}).encode()
        body = gzip.compress(body) if is_squeezed else body
        pour(server, handler, body[:cut], chunks=1)
        pour(server, handler, body[cut:], chunks=1)

    assert serve(answer).model.connect().complete(ModelRequest(**HELLO)).text == "seven"


CHAT = {"choices": [{"index": 0, "delta": {"content": "word "}}]}
CALL = {"index": 0, "id": "c1", "function": {"name": "look", "arguments": "word "}}
ITEM = {"type": "response.output_text.delta", "item_id": "m1", "output_index": 0}
STREAMS = [
    ("chat", CHAT, "text"),
    ("chat", {"choices": [{"index": 0, "delta": {"reasoning_content": "word "}}]}, "reasoning"),
    ("chat", {"choices": [{"index": 0, "delta": {"tool_calls": [CALL]}}]}, ""),
    ("responses", {**ITEM, "delta": "word "}, "text"),
    ("responses", {**ITEM, "type": "response.refusal.delta", "delta": "word "}, "refusal"),
]


@pytest.mark.parametrize(("api", "piece", "kept"), STREAMS)
def test_a_stream_without_end_is_read_to_the_limit_and_is_an_answer_cut_off(
    serve, api, piece, kept
):
    """It was read to 64 bytes a character, put together whole, and then counted for nothing."""
    piece |= {"padding": "x" * 500}

    def answer(server, handler):
        headers(handler, 200, "text/event-stream")
        pour(server, handler, b"data: " + json.dumps(piece).encode() + b"\n\n")

    server = serve(answer)
    told = []
    reply = server.model.connect().complete(
        ModelRequest(**HELLO, stream=True, api=api), lambda *event: told.append(event)
    )
    assert reply.finish_reason == "length"
    assert not reply.tool_calls
    assert len(told) <= CHARACTERS // len("word ") + 1
    if kept:
        assert getattr(reply, kept) == "word " * (CHARACTERS // len("word "))


@pytest.mark.parametrize(
    ("api", "piece"),
    [
        ("chat", {"choices": [{"index": 0, "delta": {"content": "w"}}]}),
        ("responses", {**ITEM, "delta": "w"}),
    ],
)
def test_a_stream_of_wrapping_without_end_is_no_answer_and_what_came_is_kept(serve, api, piece):
    piece = piece | {"padding": "x" * 5_000}

    def answer(server, handler):
        headers(handler, 200, "text/event-stream")
        pour(server, handler, b"data: " + json.dumps(piece).encode() + b"\n\n")

    server = serve(answer)
    with pytest.raises(ModelError) as failure:
        server.model.connect().complete(ModelRequest(**HELLO, stream=True, api=api))
    assert failure.value.kind is ErrorKind.BAD_ANSWER
    assert "1,064,000 bytes" in failure.value.detail
    assert 100 < len(failure.value.partial.text) < CHARACTERS
    assert set(failure.value.partial.text) == {"w"}
    assert server.asked == 1


CREATED = {"type": "response.created", "response": {"id": "resp_1"}}
ARGUED = {"type": "response.function_call_arguments.delta", "item_id": "c1", "delta": "word "}


@pytest.mark.parametrize("piece", [{**ITEM, "delta": "word "}, ARGUED])
def test_nobody_goes_on_from_an_answer_that_its_server_has_longer(serve, piece):
    """A call that we cut would wait there for its result, and every later turn be refused."""

    def answer(server, handler):
        headers(handler, 200, "text/event-stream")
        handler.wfile.write(b"data: " + json.dumps(CREATED).encode() + b"\n\n")
        pour(server, handler, b"data: " + json.dumps(piece).encode() + b"\n\n")

    server = serve(answer)
    reply = server.model.connect().complete(ModelRequest(**HELLO, stream=True, api="responses"))
    assert (reply.finish_reason, reply.response_id) == ("length", "")


@pytest.mark.parametrize("arguments", [7, True, {"a": 7}])
def test_arguments_of_any_type_are_counted_as_the_text_that_they_become(arguments):
    answer = chat_wire._Completion(lambda *event: None)
    called = {"index": 0, "id": "c1", "function": {"name": "look", "arguments": arguments}}
    answer.take({"choices": [{"index": 0, "delta": {"tool_calls": [called]}}]})
    assert answer.characters == len(json.dumps(arguments))
    assert answer.reply("tool_calls").tool_calls[0]["function"]["arguments"] == json.dumps(
        arguments
    )


def test_an_answer_that_is_too_long_is_cut_and_says_so(serve):
    def answer(server, handler):
        headers(handler, 200, "application/json")
        message = {"role": "assistant", "content": "y" * (CHARACTERS + 1)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        handler.wfile.write(json.dumps({"id": "c", "choices": [choice]}).encode())

    reply = serve(answer).model.connect().complete(ModelRequest(**HELLO))
    assert reply.text == "y" * CHARACTERS
    assert reply.finish_reason == "length"


@pytest.mark.parametrize(("first", "kept"), [(100, 1), (CHARACTERS, 1), (CHARACTERS + 1, 0)])
def test_calls_that_are_too_long_are_none_and_the_answer_says_so(serve, first, kept):
    """Of an answer in one piece the text alone was cut."""

    def answer(server, handler):
        headers(handler, 200, "application/json")
        arguments = [json.dumps({"a": "y" * (size - 9)}) for size in (first, CHARACTERS)]
        calls = [
            {"id": f"c{n}", "function": {"name": "look", "arguments": one}}
            for n, one in enumerate(arguments)
        ]
        choice = {"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}
        handler.wfile.write(json.dumps({"choices": [choice]}).encode())

    reply = serve(answer).model.connect().complete(ModelRequest(**HELLO))
    assert len(reply.tool_calls) == kept
    assert reply.finish_reason == "length"


def test_calls_without_number_are_none(serve, settings):
    settings.CHATAPP = settings.CHATAPP | {"MAX_ANSWER_CHARS": 1_000_000}

    def answer(server, handler):
        headers(handler, 200, "application/json")
        calls = [{"id": f"c{n}", "function": {"name": "look"}} for n in range(MOST_ITEMS + 5)]
        choice = {"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}
        handler.wfile.write(json.dumps({"choices": [choice]}).encode())

    reply = serve(answer).model.connect().complete(ModelRequest(**HELLO))
    assert (len(reply.tool_calls), reply.finish_reason) == (MOST_ITEMS, "length")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_server_that_sends_us_elsewhere_is_not_followed(serve, status):
    elsewhere = serve(lambda server, handler: headers(handler, 200, "application/json"))

    def answer(server, handler):
        where = f"{elsewhere.model.base_url}/chat/completions"
        headers(handler, status, "text/plain", Location=where)

    server = serve(answer)
    with pytest.raises(ModelError):
        server.model.connect().complete(ModelRequest(**HELLO))
    assert (server.asked, elsewhere.asked) == (1, 0)
