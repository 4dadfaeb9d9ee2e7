"""A scripted server for the field cases: named refusals first, then answers in order.

A refusal is {"check": name, its parameters, "status": 400, "message", "code", "param", "type"} and
"only": "chat" or "summary" where it is not for both. An answer is {"text", "finish", "usage",
"extra": fields of the message}, {"error": {"status", "body"}} or {"events": […], "cut": true} for
a stream; the last one repeats. Summarising calls get `summary`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from compaction.engine.strategies.prompts import CHUNK_TITLE, MERGE_TITLE

MARKER = re.compile(r"MK-\d{4}")
ENVELOPE = ("check", "status", "message", "code", "param", "type", "only")
USAGE = {"prompt_tokens": 500, "completion_tokens": 5, "total_tokens": 505}

Body = dict[str, Any]


def messages_of(body: Body) -> list[dict[str, Any]]:
    """Return a request's messages, of one over the Responses API with their texts only."""
    if "messages" in body:
        return list(body["messages"])
    items = body.get("input") or []
    items = [{"role": "user", "content": items}] if isinstance(items, str) else items
    front = [{"role": "system", "content": body.get("instructions")}]
    said = [
        {"role": one["role"], "content": _text(one.get("content"))}
        for one in items
        if "role" in one
    ]
    return [*front, *said] if body.get("instructions") else said or [{"role": "user"}]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content or [])


def is_summary(body: Body) -> bool:
    """Whether a request asks for a summary."""
    first = messages_of(body)[0].get("content")
    return isinstance(first, str) and first.startswith((CHUNK_TITLE, MERGE_TITLE))


def _calls(body: Body) -> Iterator[dict[str, Any]]:
    for message in body["messages"]:
        yield from message.get("tool_calls") or ()


def _has_arguments_that_are_no_object(body: Body) -> bool:
    for call in _calls(body):
        try:
            value = json.loads(call["function"]["arguments"])
        except (ValueError, TypeError):
            return True
        if not isinstance(value, dict):
            return True
    return False


def _does_not_alternate(body: Body) -> bool:
    messages = body["messages"]
    messages = messages[1:] if messages[0]["role"] == "system" else messages
    turns = [one for one in messages if one["role"] != "tool" and not one.get("tool_calls")]
    return any((one["role"] == "user") != (n % 2 == 0) for n, one in enumerate(turns))


def _is_blank(message: Mapping[str, Any], roles: Sequence[str]) -> bool:
    content = message.get("content")
    if message["role"] not in roles or message.get("tool_calls"):
        return False
    return isinstance(content, str) and not content.strip()


CHECKS: Mapping[str, Callable[..., bool]] = {
    "temperature": lambda body: body.get("temperature") not in (None, 1),
    "has_key": lambda body, key: key in body,
    "arguments_are_no_object": _has_arguments_that_are_no_object,
    "roles_do_not_alternate": _does_not_alternate,
    "blank_content": lambda body, roles: any(_is_blank(one, roles) for one in body["messages"]),
    "tool_history_without_tools": lambda body: (
        not body.get("tools")
        and any(one["role"] == "tool" or one.get("tool_calls") for one in body["messages"])
    ),
    "call_ids": lambda body, pattern: any(
        not re.fullmatch(pattern, call["id"]) for call in _calls(body)
    ),
    "message_lacks": lambda body, key, value: any(
        one.get("tool_calls") and one.get(key) != value for one in body["messages"]
    ),
    "call_lacks": lambda body, key, value: any(call.get(key) != value for call in _calls(body)),
    "ends_with_assistant": lambda body: body["messages"][-1]["role"] == "assistant",
    "part_types": lambda body, allowed: any(
        part["type"] not in allowed
        for one in body["messages"]
        if isinstance(one.get("content"), list)
        for part in one["content"]
    ),
}


class FieldServer:
    """Plays one case's script; `requests` are the bodies that came, refused ones among them."""

    def __init__(
        self,
        refusals: Sequence[dict[str, Any]] = (),
        answers: Sequence[dict[str, Any]] = (),
        summary: dict[str, Any] | None = None,
        only_wire: str = "",
    ) -> None:
        self.refusals = list(refusals)
        self.answers = list(answers) or [{"text": "ok"}]
        self.summary = summary or {}
        self.only_wire = only_wire
        self.requests: list[Body] = []
        self._answered = 0
        self._lock = threading.Lock()
        self._httpd = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._httpd.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._httpd.server_address[1]}/v1"

    def __enter__(self) -> FieldServer:
        threading.Thread(target=self._httpd.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._httpd.shutdown()
        self._httpd.server_close()

    def chat(self) -> list[Body]:
        """Return the requests of turns."""
        return [body for body in self.requests if not is_summary(body)]

    def summarising(self) -> list[Body]:
        """Return the requests for summaries."""
        return [body for body in self.requests if is_summary(body)]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer._lock:
                    outer.requests.append(body)
                    outer._reply(self, body)

        return Handler

    def _reply(self, handler: BaseHTTPRequestHandler, body: Body) -> None:
        if self.only_wire == "responses":
            self._reply_to_items(handler, body)
            return
        for rule in self.refusals:
            if self._refuses(rule, body):
                error = {key: rule.get(key) for key in ("message", "code", "param")}
                error["type"] = rule.get("type", "invalid_request_error")
                _send_json(handler, rule.get("status", 400), {"error": error})
                return
        if is_summary(body):
            self._reply_with_summary(handler, body)
        else:
            self._reply_with_next(handler, body)

    def _refuses(self, rule: dict[str, Any], body: Body) -> bool:
        only = rule.get("only")
        if only and (only == "summary") != is_summary(body):
            return False
        parameters = {key: value for key, value in rule.items() if key not in ENVELOPE}
        return CHECKS[rule["check"]](body, **parameters)

    def _reply_with_next(self, handler: BaseHTTPRequestHandler, body: Body) -> None:
        answer = self.answers[min(self._answered, len(self.answers) - 1)]
        self._answered += 1
        if "error" in answer:
            _send_json(handler, answer["error"]["status"], {"error": answer["error"]["body"]})
        elif "events" in answer:
            _send_events(handler, answer["events"], cut=answer.get("cut", False))
        elif body.get("stream"):
            said = {"index": 0, "delta": {"content": answer.get("text") or ""}}
            end = {"index": 0, "delta": {}, "finish_reason": answer.get("finish", "stop")}
            _send_events(handler, [{"choices": [said]}, {"choices": [end]}])
        else:
            _send_answer(handler, answer)

    def _reply_with_summary(self, handler: BaseHTTPRequestHandler, body: Body) -> None:
        room = body.get("max_tokens") or body.get("max_completion_tokens") or 10**9
        needed = self.summary.get("needs_effort")
        thinks_long = needed is not None and body.get("reasoning_effort") != needed
        if thinks_long or self.summary.get("needs_output_tokens", 0) > room:
            thoughts = {"reasoning_content": "Let me think. " * 50}
            usage = {"prompt_tokens": 900, "completion_tokens": room, "total_tokens": 900 + room}
            answer = {"text": None, "finish": "length", "extra": thoughts, "usage": usage}
        else:
            text = self.summary.get("text") or _markers_of(body)
            answer = {"text": text, "finish": self.summary.get("finish", "stop")}
        _send_answer(handler, answer)

    def _reply_to_items(self, handler: BaseHTTPRequestHandler, body: Body) -> None:
        """Answer as a model that is offered over the Responses API only."""
        if "input" not in body:
            sentence = (
                "This model is only supported in v1/responses and not in v1/chat/completions."
            )
            error = {"message": sentence, "type": "invalid_request_error", "param": "model"}
            _send_json(handler, 404, {"error": error})
            return
        text = _markers_of(body) if is_summary(body) else "ok"
        said = {"type": "output_text", "text": text, "annotations": []}
        message = {"type": "message", "id": "m1", "role": "assistant", "content": [said]}
        usage = {"input_tokens": 500, "output_tokens": 5, "total_tokens": 505}
        answer = {"id": f"r{len(self.requests)}", "object": "response", "status": "completed"}
        _send_json(handler, 200, answer | {"model": "m", "output": [message], "usage": usage})


def _markers_of(body: Body) -> str:
    return "SUMMARY " + " ".join(dict.fromkeys(MARKER.findall(json.dumps(messages_of(body)))))


def _send_answer(handler: BaseHTTPRequestHandler, answer: dict[str, Any]) -> None:
    message = {"role": "assistant", "content": answer.get("text")} | answer.get("extra", {})
    choice = {"index": 0, "message": message, "finish_reason": answer.get("finish", "stop")}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    _send_json(handler, 200, body | {"choices": [choice], "usage": answer.get("usage") or USAGE})


def _send_json(handler: BaseHTTPRequestHandler, status: int, body: Body) -> None:
    raw = json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(raw)))
    handler.end_headers()
    handler.wfile.write(raw)


def _send_events(
    handler: BaseHTTPRequestHandler, events: Sequence[Body], *, cut: bool = False
) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.close_connection = True
    frame = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    for event in events:
        handler.wfile.write(b"data: " + json.dumps(frame | event).encode() + b"\n\n")
    if not cut:
        handler.wfile.write(b"data: [DONE]\n\n")
    handler.wfile.flush()
