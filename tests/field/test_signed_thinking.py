"""A server that signs what it thinks: a signature behind a changed prefix is never sent to it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from chatapp.models import Message, Session
from chatapp.transcript import set_pinned
from chatapp.transcript.writing import NewMessage
from chatapp.turns.service import Turn, run_turn
from compaction.models import CompactionRun, SessionSummary
from compaction.runs.worker import execute_run
from compaction.summaries.restore import restore_summary
from tests.compaction.support import NEVER, compact
from tests.factories import SessionFactory, profile, result, store, user
from tests.field.field_server import is_summary

pytestmark = pytest.mark.django_db(transaction=True)
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
CALLS_A_TURN = 2
TURNS = 16

Body = dict[str, Any]


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def seal(body: Body, before: int) -> str:
    """Return the signature of what stands before a message of a request, to the byte."""
    text = json.dumps([body.get("tools"), body["messages"][:before]])
    return hashlib.sha256(text.encode()).hexdigest()


def signatures_in(message: Body) -> Iterator[str]:
    for detail in message.get("reasoning_details") or ():
        yield detail["signature"]
    for call in message.get("tool_calls") or ():
        if "extra_content" in call:
            yield call["extra_content"]["google"]["thought_signature"]


class SigningServer:
    """Signs thoughts and calls; `false` counts signatures that are none of what is before them."""

    def __init__(self) -> None:
        self.right = self.false = self.lost = 0
        self._lock = threading.Lock()
        self._httpd = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._httpd.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._httpd.server_address[1]}/v1"

    def __enter__(self) -> SigningServer:
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
                    message, reason = outer._answer(body)
                choice = {"index": 0, "message": message, "finish_reason": reason}
                raw = json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

        return Handler

    def _answer(self, body: Body) -> tuple[Body, str]:
        if is_summary(body):
            return {"role": "assistant", "content": "## Facts\n- The order is being made."}, "stop"
        messages = body["messages"]
        for place, message in enumerate(messages):
            for signature in signatures_in(message):
                is_right = signature == seal(body, place)
                self.right += is_right
                self.false += not is_right
        asked = max(n for n, one in enumerate(messages) if one["role"] == "user")
        calls = [one for one in messages[asked:] if one.get("tool_calls")]
        self.lost += sum(not one.get("reasoning_details") for one in calls)
        signature = seal(body, len(messages))
        thought = {"type": "reasoning.text", "text": "Let me see.", "signature": signature}
        answer: Body = {"role": "assistant", "content": None, "reasoning_details": [thought]}
        if len(calls) == CALLS_A_TURN:
            return answer | {"content": "Done. " * 40}, "stop"
        call = {
            "id": f"call_{len(messages)}",
            "type": "function",
            "function": {"name": "look_up", "arguments": '{"word": "w"}'},
            "extra_content": {"google": {"thought_signature": signature}},
        }
        return answer | {"tool_calls": [call]}, "tool_calls"


def entry(server: SigningServer) -> dict[str, Any]:
    return {
        "default": {
            "BACKEND": "chatapp.llm.openai_client.OpenAIModel",
            "NAME": "scripted",
            "CONTEXT_WINDOW": 8_000,
            "MAX_OUTPUT": 1024,
            "ENCODING": "",
            "API_KEY": "test",
            "BASE_URL": server.url,
        }
    }


@pytest.mark.parametrize("strategy", ["bisect", "digest"])
def test_no_signature_is_sent_behind_a_prefix_that_is_not_its_own(
    strategy, owner, queued, use_models
):
    session = SessionFactory(owner=owner, system_prompt="Be brief.", tools=TOOLS)
    with SigningServer() as server:
        use_models(entry(server))
        profile(strategy=strategy)
        for number in range(TURNS):
            wires = [user(f"Question {number}. {'And this is said beside it. ' * 40}")]
            while wires:
                drafts = [NewMessage(wire=wire) for wire in wires]
                answer = run_turn(Turn(session=session, drafts=drafts)).answer
                wires = [result(call["id"], "found " * 30) for call in answer.tool_calls or ()]
            for run in CompactionRun.objects.filter(status="queued"):
                execute_run(run.pk)
            session.refresh_from_db()
    assert SessionSummary.objects.filter(session=session).exists()
    assert server.false == 0
    assert server.right > TURNS
    # Where nothing was compacted inside the loop, its thoughts are there.
    assert server.lost <= TURNS // 4


def nothing(session: Session) -> None:
    """Change nothing: signatures go out."""


def compacted(session: Session) -> None:
    assert compact(session).status == "succeeded"


def restored(session: Session) -> None:
    restore_summary(SessionSummary.objects.get(session=session, status="active"))


def rendered(session: Session) -> None:
    profile(**NEVER, keep_last_n=2, strategy="digest", rendering="user_tags")


def given_tools(session: Session) -> None:
    other = {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}
    Session.objects.filter(pk=session.pk).update(tools=[*TOOLS, other])


def prompted(session: Session) -> None:
    Session.objects.filter(pk=session.pk).update(system_prompt="Be long.")


def pinned(session: Session) -> None:
    set_pinned(Message.objects.filter(session=session, role="user").order_by("position")[1], True)


CHANGES = (nothing, compacted, restored, rendered, given_tools, prompted, pinned)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_changes_the_prefix_inside_a_running_loop_drops_the_signatures(
    change, owner, queued, use_models
):
    wires = [
        wire
        for number in range(6)
        for wire in (
            user(f"Question {number}. {'And this. ' * 40}"),
            said(f"Yes. {'It is. ' * 40}"),
        )
    ]
    session = SessionFactory(owner=owner, system_prompt="Be brief.", tools=TOOLS, wires=wires)
    profile(**NEVER, keep_last_n=2, strategy="digest")
    with SigningServer() as server:
        use_models(entry(server))
        compact(session)
        store(session, [user("And now?"), said("Look."), user("Please look it up.")])
        session.refresh_from_db()
        first = run_turn(Turn(session=session)).answer
        (call,) = first.tool_calls
        store(session, [result(call["id"], "found")])
        change(session)
        session = Session.objects.get(pk=session.pk)
        second = run_turn(Turn(session=session)).answer
        assert server.false == 0
        is_same = change is nothing
        assert bool(server.right) is is_same
        # Whatever the prefix is now, signatures that are made behind it are good behind it.
        store(session, [result(second.tool_calls[0]["id"], "found")])
        run_turn(Turn(session=Session.objects.get(pk=session.pk)))
    assert server.false == 0
    assert server.right > 0
