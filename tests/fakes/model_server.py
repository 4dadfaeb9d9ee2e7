"""A real HTTP server on loopback that plays a model server by a script.

Rules are tried in order and the first whose `when` matches answers (the language of the cases'
`llm_script`). What was asked is kept in `calls`, so a test can look at every request.

when:  purpose (chat, summary, merge), call (n-th call of that purpose, from 1), est_tokens_gt,
       cjk_tokens_gt, system_count_gt, system_not_first, contains
reply: text | echo_markers (+ prefix) | chunks | tool_calls | error {status, body, headers};
       finish_reason, usage, reasoning, delay_s, fail_after (chunks), raw (a body as it is)
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from compaction.engine.prompts import CHUNK_TITLE, MERGE_TITLE

CJK = re.compile(r"[\u3400-\u9fff]")
ECHO_AND_ANSWER = [
    {
        "when": {"purpose": "summary"},
        "reply": {"echo_markers": "MK-[0-9]{4}", "prefix": "SUMMARY "},
    },
    {"when": {"purpose": "merge"}, "reply": {"echo_markers": "MK-[0-9]{4}", "prefix": "MERGED "}},
    {"when": {"purpose": "chat"}, "reply": {"text": "ok"}},
]


@dataclass
class Call:
    """One request: the body, what it was for, and the status that answered it."""

    purpose: str
    body: dict[str, Any]
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body["messages"]

    @property
    def text(self) -> str:
        """All texts of the request in one."""
        return "\n".join(text_of(message) for message in self.messages)


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
    first = text_of(body["messages"][0]) if body["messages"] else ""
    if first.startswith(CHUNK_TITLE):
        return "summary"
    return "merge" if first.startswith(MERGE_TITLE) else "chat"


class ModelServer:
    """Use as a context manager; `url` is the base URL for OPENAI_BASE_URL."""

    def __init__(self, script: list[dict[str, Any]] | None = None) -> None:
        self.script = ECHO_AND_ANSWER if script is None else script
        self.calls: list[Call] = []
        self.called = threading.Condition()
        handler = type("Handler", (_Handler,), {"player": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def of(self, purpose: str) -> list[Call]:
        """The calls of one purpose, in order."""
        return [call for call in self.calls if call.purpose == purpose]

    def summarising(self) -> list[Call]:
        return [call for call in self.calls if call.purpose in ("summary", "merge")]

    def wait_for(self, purpose: str, count: int = 1, seconds: float = 20) -> None:
        """Return when that many calls of a purpose have arrived."""
        with self.called:
            arrived = self.called.wait_for(lambda: len(self.of(purpose)) >= count, seconds)
        assert arrived, f"no {purpose} call within {seconds} s"

    def models(self, **changes: Any) -> dict[str, dict[str, Any]]:
        """CHATAPP's MODELS with this server as `default`."""
        entry = {
            "BACKEND": "chatapp.llm.client.OpenAIModel",
            "NAME": "scripted",
            "CONTEXT_WINDOW": 128_000,
            "MAX_OUTPUT": 1024,
            "ENCODING": "",
            "API_KEY": "test",
            "BASE_URL": self.url,
        }
        return {"default": entry | changes}

    def answer(self, body: dict[str, Any], headers: dict[str, str]) -> tuple[Call, dict[str, Any]]:
        call = Call(purpose=purpose_of(body), body=body, headers=headers)
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
    }
    return all(tests[name](value) for name, value in when.items())


class _Handler(BaseHTTPRequestHandler):
    player: ModelServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        call, reply = self.player.answer(body, dict(self.headers))
        time.sleep(reply.get("delay_s", 0))
        try:
            self._reply(call, reply)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _reply(self, call: Call, reply: dict[str, Any]) -> None:
        if "error" in reply:
            error = reply["error"]
            call.status = error["status"]
            self._send(error["status"], error.get("body"), error.get("headers", {}))
        elif "raw" in reply:
            self._send(200, reply["raw"], {})
        elif call.body.get("stream"):
            self._stream(call, reply)
        else:
            self._send(200, self._completion(call, reply), {})

    def _message(self, call: Call, reply: dict[str, Any]) -> dict[str, Any]:
        if "echo_markers" in reply:
            found = dict.fromkeys(re.findall(reply["echo_markers"], call.text))
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

    def _finish(self, reply: dict[str, Any]) -> str:
        return reply.get("finish_reason") or ("tool_calls" if reply.get("tool_calls") else "stop")

    def _completion(self, call: Call, reply: dict[str, Any]) -> dict[str, Any]:
        completion = {
            "id": f"chatcmpl-{len(self.player.calls)}",
            "object": "chat.completion",
            "created": 0,
            "model": call.body["model"],
            "choices": [
                {
                    "index": 0,
                    "message": self._message(call, reply),
                    "finish_reason": self._finish(reply),
                }
            ],
        }
        if "usage" in reply:
            completion["usage"] = reply["usage"]
        return completion

    def _send(self, status: int, body: Any, headers: dict[str, str]) -> None:
        text = body if isinstance(body, str) else ("" if body is None else json.dumps(body))
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json"} | headers).items():
            self.send_header(name, value)
        data = text.encode("utf-8", "surrogatepass")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, call: Call, reply: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        message = self._message(call, reply)
        pieces = reply.get("chunks") or ([message["content"]] if message["content"] else [])
        for number, piece in enumerate(pieces):
            if reply.get("fail_after") == number:
                self.close_connection = True
                if reply.get("stream_error"):
                    self._event({"error": reply["stream_error"]})
                return
            self._event(self._chunk(call, {"content": piece}))
            time.sleep(reply.get("chunk_delay_s", 0))
        for delta in reply.get("deltas") or []:
            self._event(self._chunk(call, delta))
        for index, tool_call in enumerate(message.get("tool_calls") or []):
            self._event(self._chunk(call, {"tool_calls": [{"index": index, **tool_call}]}))
        self._event(self._chunk(call, {}, self._finish(reply)))
        if "usage" in reply:
            self._event(
                {
                    "id": "x",
                    "object": "chat.completion.chunk",
                    "created": 0,
                    "model": "m",
                    "choices": [],
                    "usage": reply["usage"],
                }
            )
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _chunk(
        self, call: Call, delta: dict[str, Any], finish: str | None = None
    ) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {
            "id": "chunk",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": call.body["model"],
            "choices": [choice],
        }

    def _event(self, body: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(body)}\n\n".encode())
        self.wfile.flush()
