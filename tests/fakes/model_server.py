"""A real HTTP server on loopback that plays a model server by a script.

Rules are tried in order and the first whose `when` matches answers (the language of the cases'
`llm_script`). What was asked is kept in `calls`, so a test can look at every request.

It plays both wires: POST /v1/chat/completions and POST /v1/responses.

A test gets a server of its own, but not an address of its own: listeners are kept and used again.
A new address costs a thread here and, in the product, an SDK client that is kept for it.

when:  purpose (chat, summary, merge, prefix, branch), call (n-th call of that purpose, from 1),
       est_tokens_gt, cjk_tokens_gt, system_count_gt, system_not_first, contains,
       api (chat, responses), has_previous_response
reply: text | echo_markers (+ prefix; most: so many of the last message's) | chunks | tool_calls |
       error {status, body, headers}; finish_reason, usage, reasoning, delay_s,
       waits_for (calls of that purpose: waits_for_calls, or one), rest_until (an event that the
       chunks behind the first wait for),
       fail_after (chunks), stream_error (then), raw (a body as it is), events (a stream as it is);
       only Responses: failed (the error of a failed response), encrypted (reasoning), refusal
"""

from __future__ import annotations

import json
import math
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType
from typing import Any

from compaction.engine.strategies.checkpoint_text import BRANCH_TITLE, PREFIX_TITLE
from compaction.engine.strategies.prompts import CHUNK_TITLE, MERGE_TITLE
from tests.facts import CODE_PATTERN
from tests.fakes import chat_wire, responses_wire

_WIRES = {"chat": chat_wire, "responses": responses_wire}
CJK = re.compile(r"[\u3400-\u9fff]")


def echo_and_answer(markers: str) -> list[dict[str, Any]]:
    """Return the script of a server that summarises by naming what a pattern finds."""
    prefixes = {"summary": "SUMMARY", "merge": "MERGED", "branch": "BRANCH", "prefix": "TURN"}
    echoes = [
        {"when": {"purpose": purpose}, "reply": {"echo_markers": markers, "prefix": f"{prefix} "}}
        for purpose, prefix in prefixes.items()
    ]
    return [*echoes, {"when": {"purpose": "chat"}, "reply": {"text": "ok"}}]


ECHO_AND_ANSWER = echo_and_answer(CODE_PATTERN)


@dataclass
class Call:
    """One request: the body, what it was for, and the status that answered it."""

    purpose: str
    body: dict[str, Any]
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    api: str = "chat"

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What was sent in chat form, whichever wire carried it."""
        return messages_of(self.body)

    @property
    def text(self) -> str:
        """All texts of the request in one."""
        return "\n".join(text_of(message) for message in self.messages)


def messages_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    if "input" in body:
        return responses_wire.messages_of(body["input"])
    return body["messages"]


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content)
    return content or ""


def estimate(messages: list[dict[str, Any]]) -> int:
    """Characters / 4 with tool calls, as the cases measure."""
    chars = 0
    for message in messages:
        chars += len(text_of(message))
        for tool_call in message.get("tool_calls") or []:
            chars += len(tool_call["function"]["name"] + (tool_call["function"]["arguments"] or ""))
    return math.ceil(chars / 4)


def purpose_of(body: dict[str, Any]) -> str:
    messages = messages_of(body)
    first = text_of(messages[0]) if messages else ""
    titles = {
        CHUNK_TITLE: "summary",
        MERGE_TITLE: "merge",
        PREFIX_TITLE: "prefix",
        BRANCH_TITLE: "branch",
    }
    return next((word for title, word in titles.items() if first.startswith(title)), "chat")


# How long an answer waits for its test at the most: one that fails should not stop the others.
HELD_SECONDS = 60
# So many listeners rest before one is used again: a late request of a test that has ended reaches
# nobody, and not the next test.
RESTING_LISTENERS = 4
_resting: deque[_Listener] = deque()


class _Listener(ThreadingHTTPServer):
    """An address on loopback; what arrives there is answered by its player, if it has one."""

    daemon_threads = True
    player: ModelServer | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever is killed hangs up in the middle of a request."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class ModelServer:
    """Use as a context manager; `url` is the base URL for OPENAI_BASE_URL."""

    def __init__(self, script: list[dict[str, Any]] | None = None) -> None:
        self.script = ECHO_AND_ANSWER if script is None else script
        self.calls: list[Call] = []
        self.called = threading.Condition()
        self._listener: _Listener | None = None
        self._held: dict[str, threading.Event] = {}

    @property
    def url(self) -> str:
        assert self._listener is not None, "the server has no address outside its `with` block"
        return f"http://127.0.0.1:{self._listener.server_address[1]}/v1"

    def __enter__(self) -> ModelServer:
        enough = len(_resting) >= RESTING_LISTENERS
        self._listener = _resting.popleft() if enough else _Listener()
        self._listener.player = self
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._listener is not None
        self._listener.player = None
        _resting.append(self._listener)

    def of(self, purpose: str) -> list[Call]:
        """The calls of one purpose, in order."""
        return [call for call in self.calls if call.purpose == purpose]

    def summarising(self) -> list[Call]:
        return [call for call in self.calls if call.purpose != "chat"]

    def wait_for(self, purpose: str, count: int = 1, seconds: float = 20) -> None:
        """Return when that many calls of a purpose have arrived."""
        with self.called:
            arrived = self.called.wait_for(lambda: len(self.of(purpose)) >= count, seconds)
        assert arrived, f"no {purpose} call within {seconds} s"

    @contextmanager
    def holding(self, purpose: str) -> Iterator[None]:
        """Have the calls of a purpose answered once the block has ended, and not before.

        What happens in the block happens meanwhile, however slow the machine is.
        """
        self._held[purpose] = threading.Event()
        try:
            yield
        finally:
            self.let_go(purpose)

    def let_go(self, purpose: str) -> None:
        """Have the calls of a purpose answered from now on."""
        if held := self._held.pop(purpose, None):
            held.set()

    def wait_while_held(self, purpose: str) -> None:
        """Return when calls of the purpose may be answered."""
        if held := self._held.get(purpose):
            held.wait(HELD_SECONDS)

    def models(self, **changes: Any) -> dict[str, dict[str, Any]]:
        """CHATAPP's MODELS with this server as `default`."""
        entry = {
            "BACKEND": "chatapp.llm.openai_client.OpenAIModel",
            "NAME": "scripted",
            "CONTEXT_WINDOW": 128_000,
            "MAX_OUTPUT": 1024,
            "ENCODING": "",
            "API_KEY": "test",
            "BASE_URL": self.url,
        }
        return {"default": entry | changes}

    def answer(self, body: dict[str, Any], headers: dict[str, str]) -> tuple[Call, dict[str, Any]]:
        api = "responses" if "input" in body else "chat"
        call = Call(purpose=purpose_of(body), body=body, headers=headers, api=api)
        with self.called:
            self.calls.append(call)
            number = len(self.of(call.purpose))
            self.called.notify_all()
        for rule in self.script:
            if matches(rule["when"], call, number):
                return call, rule["reply"]
        return call, {"text": "ok"}


def matches(when: dict[str, Any], call: Call, number: int) -> bool:
    systems = [i for i, m in enumerate(call.messages) if m["role"] == "system"]
    tests = {
        "purpose": lambda value: call.purpose == value,
        "call": lambda value: number == value,
        "est_tokens_gt": lambda value: estimate(call.messages) > value,
        "cjk_tokens_gt": lambda value: len(CJK.findall(call.text)) > value,
        "system_count_gt": lambda value: len(systems) > value,
        "system_not_first": lambda value: (systems != list(range(len(systems)))) == value,
        "contains": lambda value: value in call.text,
        "api": lambda value: call.api == value,
        "has_previous_response": lambda value: bool(call.body.get("previous_response_id")) == value,
    }
    return all(tests[name](value) for name, value in when.items())


class _Handler(BaseHTTPRequestHandler):
    server: _Listener
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        if self.server.player is None:
            self.close_connection = True
            return
        self.player = self.server.player
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != ("/v1/responses" if "input" in body else "/v1/chat/completions"):
            self._send(404, {"error": {"message": f"no such path for this body: {self.path}"}}, {})
            return
        call, reply = self.player.answer(body, dict(self.headers))
        time.sleep(reply.get("delay_s", 0))
        if "waits_for" in reply:
            self.player.wait_for(reply["waits_for"], reply.get("waits_for_calls", 1))
        self.player.wait_while_held(call.purpose)
        try:
            self._reply(call, reply)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _reply(self, call: Call, reply: dict[str, Any]) -> None:
        if "error" in reply:
            error = reply["error"]
            call.status = error["status"]
            self._send(error["status"], error.get("body"), error.get("headers", {}))
            return
        if "raw" in reply:
            self._send(200, reply["raw"], {})
            return
        wire = _WIRES[call.api]
        number, model = len(self.player.calls), call.body["model"]
        body = wire.body_of(number, model, self._message(call, reply), reply)
        if call.body.get("stream"):
            self._stream(wire, reply.get("events") or wire.events_of(body, reply), reply)
        else:
            self._send(200, body, {})

    def _message(self, call: Call, reply: dict[str, Any]) -> dict[str, Any]:
        if "echo_markers" in reply:
            most = reply.get("most")
            # A summary of few of many names knows those of the conversation, not of its orders.
            read = text_of(call.messages[-1]) if most else call.text
            found = list(dict.fromkeys(re.findall(reply["echo_markers"], read)))
            found = found[:: max(1, len(found) // most)] if most else found
            text: str | None = reply.get("prefix", "") + " ".join(found)
        elif "chunks" in reply:
            text = "".join(reply["chunks"])
        else:
            text = reply.get("text")
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if reply.get("tool_calls"):
            message["tool_calls"] = reply["tool_calls"]
        if reply.get("reasoning"):
            message["reasoning_content"] = reply["reasoning"]
        return message

    def _send(self, status: int, body: Any, headers: dict[str, str]) -> None:
        text = body if isinstance(body, str) else ("" if body is None else json.dumps(body))
        self.send_response(status)
        data = text.encode("utf-8", "surrogatepass")
        usual = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        for name, value in (usual | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
        # A script that promises more than it sends means a connection that is lost.
        self.close_connection = "Content-Length" in headers

    def _stream(
        self, wire: ModuleType, events: Iterable[dict[str, Any] | str], reply: dict[str, Any]
    ) -> None:
        """Send the events, as far as the script lets the stream get."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        texts = 0
        for event in events:
            is_text = isinstance(event, dict) and wire.is_text(event)
            if is_text and reply.get("fail_after") == texts:
                if reply.get("stream_error"):
                    self._event(wire.error_event(reply["stream_error"]))
                return
            self._event(event)
            if is_text:
                texts += 1
                time.sleep(reply.get("chunk_delay_s", 0))
                if "rest_until" in reply:
                    reply["rest_until"].wait(HELD_SECONDS)

    def _event(self, body: dict[str, Any] | str) -> None:
        """Send an event: a body, or a line as it is."""
        line = body if isinstance(body, str) else json.dumps(body)
        self.wfile.write(f"data: {line}\n\n".encode())
        self.wfile.flush()
