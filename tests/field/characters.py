"""Eight characters of model servers, as people meet them: what each refuses, and how it answers.

All of them answer turns with a tool call in every third one, remember nothing, and count usage
honestly. A summarising call gets the markers that it was sent.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.facts import CODE_PATTERN
from tests.field.field_server import CHECKS, is_summary, messages_of

Body = dict[str, Any]
Refusal = tuple[int, Mapping[str, Any]]
MARKER = re.compile(CODE_PATTERN)
SIGNATURE = {"google": {"thought_signature": "U0lHTg=="}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Character:
    """What a server refuses, and what is peculiar about its answers."""

    name: str
    refuses: Callable[[Body], Refusal | None] = lambda body: None
    thinks: str = ""
    """How thoughts come: `field`, `tags`, or not at all."""
    signs_calls: bool = False
    streams: bool = False
    forgets_ends: bool = False
    """Every seventh stream breaks off without an end, before anything was said."""


def _said(status: int, message: str, **fields: Any) -> Refusal:
    return status, {"message": message, "type": "invalid_request_error", **fields}


def _reasoning(body: Body) -> Refusal | None:
    if body.get("temperature") not in (None, 1):
        return _said(
            400,
            "Unsupported value: 'temperature' does not support this value with this model. Only "
            "the default (1) value is supported.",
            code="unsupported_value",
            param="temperature",
        )
    return _gateway(body)


def _gateway(body: Body) -> Refusal | None:
    if "max_tokens" in body:
        return _said(
            400,
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead.",
            code="unsupported_parameter",
            param="max_tokens",
        )
    return None


def _alternating(body: Body) -> Refusal | None:
    if CHECKS["roles_do_not_alternate"](body):
        return _said(400, "Conversation roles must alternate user/assistant/user/assistant/...")
    if CHECKS["call_ids"](body, pattern=r"[A-Za-z0-9]{9}"):
        return _said(400, "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.")
    return None


def _template(body: Body) -> Refusal | None:
    if CHECKS["roles_do_not_alternate"](body):
        return _said(
            500,
            "While executing CallExpression at line 189: Error: Jinja Exception: After the "
            "optional system message, conversation roles must alternate user and assistant roles "
            "except for tool calls and results.",
            code=500,
        )
    if CHECKS["arguments_are_no_object"](body):
        return _said(500, "Failed to parse tool call arguments as JSON: unexpected end of input")
    return None


def _signed(body: Body) -> Refusal | None:
    if CHECKS["call_lacks"](body, key="extra_content", value=SIGNATURE):
        return _said(400, "Function call is missing a thought_signature in functionCall parts.")
    return None


def _old(body: Body) -> Refusal | None:
    for name in ("stream_options", "max_completion_tokens"):
        if name in body:
            return _said(400, f"Unrecognized request argument supplied: {name}")
    if CHECKS["blank_content"](body, roles=["user", "assistant", "system"]):
        return _said(400, "messages: text content blocks must contain non-whitespace text")
    if CHECKS["tool_history_without_tools"](body):
        return _said(400, "litellm: this model doesn't support tool calling without `tools=`.")
    return None


CHARACTERS = (
    Character(name="classic"),
    Character(name="reasoning", refuses=_reasoning, thinks="field"),
    Character(name="alternating", refuses=_alternating),
    Character(name="gateway", refuses=_gateway, thinks="tags"),
    Character(name="template", refuses=_template),
    Character(name="signing", refuses=_signed, thinks="field", signs_calls=True),
    Character(name="old", refuses=_old, streams=True),
    Character(name="forgetful", streams=True, forgets_ends=True),
)


class CharacterServer:
    """A server of one character on loopback; `asked` and `refused` count the requests of turns."""

    def __init__(self, character: Character) -> None:
        self.character = character
        self.asked = self.refused = self.summaries = 0
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._httpd = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._httpd.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._httpd.server_address[1]}/v1"
        self.last: Body = {}

    def __enter__(self) -> CharacterServer:
        threading.Thread(target=self._httpd.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._httpd.shutdown()
        self._httpd.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer._lock:
                    outer._answer(self, body)

        return Handler

    def _answer(self, handler: BaseHTTPRequestHandler, body: Body) -> None:
        summary = is_summary(body)
        if not summary:
            self.asked += 1
            self.last = body
        refusal = self.character.refuses(body)
        if refusal is not None:
            self.refused += not summary
            _send(handler, refusal[0], {"error": refusal[1]})
        elif summary:
            self.summaries += 1
            found = dict.fromkeys(MARKER.findall(json.dumps(messages_of(body))))
            self._say(handler, body, {"content": f"## Facts\n- {' '.join(found)}"}, "stop")
        else:
            self._take_turn(handler, body)

    def _take_turn(self, handler: BaseHTTPRequestHandler, body: Body) -> None:
        number = next(self._numbers)
        character = self.character
        if character.forgets_ends and body.get("stream") and number % 7 == 0:
            _stream(handler, [], end=False)
            return
        message: Body = {"content": f"Answer {number}: noted, nothing else to say about it."}
        if character.thinks == "field":
            message["reasoning_content"] = "Let me see what was asked."
        elif character.thinks == "tags":
            message["content"] = f"<think>Let me see.</think>\n\n{message['content']}"
        wants = body.get("tools") and body["messages"][-1]["role"] == "user" and number % 3 == 0
        if not wants:
            self._say(handler, body, message, "stop")
            return
        arguments = "" if number % 2 else '{"word": "w"}'
        call: Body = {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": "look_up", "arguments": arguments},
        }
        if character.signs_calls:
            call["extra_content"] = SIGNATURE
        self._say(handler, body, {**message, "tool_calls": [call]}, "tool_calls")

    def _say(self, handler: BaseHTTPRequestHandler, body: Body, message: Body, reason: str) -> None:
        size = len(json.dumps(body["messages"])) // 4
        usage = {"prompt_tokens": size, "completion_tokens": 20, "total_tokens": size + 20}
        if not body.get("stream"):
            choice = {
                "index": 0,
                "message": {"role": "assistant", **message},
                "finish_reason": reason,
            }
            _send(handler, 200, {"id": "c", "model": "m", "choices": [choice], "usage": usage})
            return
        calls = [{"index": n, **call} for n, call in enumerate(message.pop("tool_calls", ()))]
        text = message.pop("content")
        pieces = [text[n : n + 7] for n in range(0, len(text), 7)]
        deltas: list[Body] = [message, *({"content": piece} for piece in pieces)]
        deltas += [{"tool_calls": [call]} for call in calls]
        events = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        _stream(handler, [*events, {"choices": [], "usage": usage}], end=True)


def _send(handler: BaseHTTPRequestHandler, status: int, body: Body) -> None:
    raw = json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(raw)))
    handler.end_headers()
    handler.wfile.write(raw)


def _stream(handler: BaseHTTPRequestHandler, events: list[Body], *, end: bool) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.close_connection = True
    frame = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    for event in events:
        handler.wfile.write(b"data: " + json.dumps(frame | event).encode() + b"\n\n")
    if end:
        handler.wfile.write(b"data: [DONE]\n\n")
    handler.wfile.flush()
