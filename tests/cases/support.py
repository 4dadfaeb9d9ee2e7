"""The bug reports of shared/cases, played through the real product.

A case is loaded as it stands. Its `llm_script` answers as the model server, its messages are stored
through the transcript, and `check` applies every entry of its `checks` to what the server was asked
and to what the database holds. A rule that nobody knows fails the test.
"""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

from chatapp import transcript
from chatapp.context.backend import context_backend
from chatapp.llm.registry import get_model
from chatapp.llm.tokens import count_message
from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage
from chatapp.turns.service import Turn, TurnFailedError, TurnResult, run_turn
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.profiles import save_profile
from compaction.runs.worker import compact_branch
from tests.factories import SessionFactory, profile, talk
from tests.fakes.model_server import Call, ModelServer

Rule = Callable[[dict[str, Any]], None]

# No trigger fires by itself: what a case forces is the only compaction.
NEVER = {"message_limit": 0, "max_context_tokens": 0}
CHARS4 = {"chatapp": {"TOKEN_COUNTER": "chars4"}}
# For scripts that were written before turns were split.
PREFIX = {
    "when": {"purpose": "prefix"},
    "reply": {"echo_markers": "MK-[0-9]{4}", "prefix": "TURN "},
}

# What each is about besides its conversation (servers, pages, owners) has tests of its own.
CASES = (
    "B01", "B03", "B07", "B08", "B11", "B12", "B13", "B15", "B17", "B19", "B20", "B21", "B23",
    "B24", "B27", "B29", "B31", "B32", "B33", "B34", "B36", "B38", "B39", "B40", "B42", "B44",
    "B45", "B46", "B48", "B50", "B52", "B53", "B55",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One case file; `lib` is the helper module that came with it."""

    raw: dict[str, Any]
    lib: ModuleType

    @property
    def transcript(self) -> list[dict[str, Any]]:
        return self.raw["transcript"]

    @property
    def script(self) -> list[dict[str, Any]]:
        return self.raw["llm_script"]

    @property
    def settings(self) -> dict[str, Any]:
        return self.raw["settings"]

    @property
    def next_user(self) -> str:
        return self.raw["next_user"]

    @property
    def markers(self) -> set[str]:
        return self.lib.markers(self.transcript)

    def profile(self, **changes: Any):
        """The case's settings as our profile: what has the same name, and no trigger of its own."""
        names = (
            "keep_last_n",
            "target_summary_tokens",
            "summary_limit",
            "bisect_enabled",
            "bisect_max_depth",
            "bisect_min_messages",
            "retry_on_context_overflow",
            "reserve_tokens",
            "keep_recent_tokens",
        )
        named = {name: self.settings[name] for name in names if name in self.settings}
        return profile(**(NEVER | named | changes))

    def window(self, **changes: Any):
        """The case's settings on the preset `sliding_window`; what it does not name is small."""
        names = (
            "context_size",
            "tail_keep_size",
            "compression_window_size",
            "compression_cooldown_sec",
            "compression_hard_limit",
        )
        small = {"context_size": 40, "tail_keep_size": 4, "compression_hard_limit": 16}
        named = {name: self.settings[name] for name in names if name in self.settings}
        values = {"prepare_ratio": 0.0} | small | named | changes
        return save_profile(
            name="window", base="sliding_window", parameters=values, make_default=True
        )


def load(folder: Path, case_id: str) -> Case:
    """Return a case by its id."""
    spec = importlib.util.spec_from_file_location("caselib", folder / "caselib.py")
    lib = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lib)
    (path,) = folder.glob(f"{case_id}-*.json")
    return Case(raw=lib.load(path), lib=lib)


def stored(owner: Any, wires: Sequence[dict[str, Any]] = (), **fields: Any) -> Session:
    """Return a session that holds the messages."""
    session = SessionFactory(owner=owner, **fields)
    add(session, wires)
    return session


def add(session: Session, wires: Sequence[dict[str, Any]]) -> list[Message]:
    """Append messages as the importer would: usage and time come from `meta`."""
    drafts = []
    for wire in wires:
        meta = wire.get("meta", {})
        created = meta.get("created_at")
        drafts.append(
            NewMessage(
                wire={key: value for key, value in wire.items() if key != "meta"},
                usage=meta.get("usage"),
                created_at=datetime.fromisoformat(created) if created else None,
            )
        )
    return transcript.append(session.branch, drafts)


def fresh(session: Session) -> Session:
    """Return the session as another request would load it."""
    return Session.objects.select_related("active_branch").get(pk=session.pk)


def compact(session: Session, **arguments: Any) -> CompactionRun:
    """`force_compaction`: one run regardless of thresholds, and of what it saves."""
    arguments = {"trigger": "manual", "reason": "forced"} | arguments
    return compact_branch(session=fresh(session), **arguments)


def ask(session: Session, text: str | None, **arguments: Any) -> TurnResult:
    """One turn with a user's message, or an empty one for None."""
    drafts = [] if text is None else [NewMessage(wire={"role": "user", "content": text})]
    return run_turn(Turn(session=fresh(session), drafts=drafts, **arguments))


def summarised_as(server: ModelServer, session: Session, text: str, **arguments: Any) -> None:
    """A stored summary with this text, made by a real compaction of what the session holds."""
    script = server.script
    server.script = [{"when": {"purpose": "summary"}, "reply": {"text": text}}]
    run = compact(session, **arguments)
    assert (run.status, run.error) == ("succeeded", "")
    assert SessionSummary.objects.get(run=run).summary_text == text
    server.script = script
    server.calls.clear()


def earlier_summary(server: ModelServer, session: Session, text: str) -> None:
    """Small talk from before the case's transcript, wholly covered by a summary with this text."""
    add(session, talk(4))
    summarised_as(server, session, text, keep_last_n=0)


def state(session: Session) -> CompactionState:
    """The state of the session's branch as it is stored, or as it starts."""
    return snapshot_of(fresh(session)).state


def originals(session: Session) -> list[Message]:
    """All messages of the session that are no placeholders, in order."""
    return list(session.messages.filter(kind="message").order_by("position"))


def linked(summary: SessionSummary) -> list[Message]:
    """The messages that a summary names as its sources, in order."""
    return list(Message.objects.filter(summary_links__summary=summary).order_by("position"))


def flat(messages: Sequence[dict[str, Any]]) -> str:
    """Everything a request says, calls included."""
    return json.dumps(messages, ensure_ascii=False)


def next_request(server: ModelServer) -> Call:
    """The newest chat request."""
    return server.of("chat")[-1]


def served(case: Case, request: Call | Sequence[dict[str, Any]], **options: Any) -> None:
    """A strict OpenAI-compatible server takes the request."""
    messages = request.messages if isinstance(request, Call) else request
    assert case.lib.strict(list(messages), **options) == []


class _Rules:
    """The rules of `checks`; each raises AssertionError when it is broken."""

    def __init__(self, case: Case, server: ModelServer, session: Session) -> None:
        self.case, self.server, self.session = case, server, session

    def request(self, entry: dict[str, Any]) -> list[dict[str, Any]]:
        assert entry["target"] in ("next_request", "last_request"), entry
        return next_request(self.server).messages

    def strict_openai(self, entry: dict[str, Any]) -> None:
        served(self.case, self.request(entry))

    def markers_visible(self, entry: dict[str, Any]) -> None:
        missing = self.case.markers - self.case.lib.markers(self.request(entry))
        assert not missing

    def summary_links(self, entry: dict[str, Any]) -> None:
        newest = SessionSummary.objects.filter(session=self.session).latest("created_at")
        assert newest.links.count() == entry["count"]

    def system_count(self, entry: dict[str, Any]) -> None:
        roles = [message["role"] for message in self.request(entry)]
        assert roles.count("system") <= entry["max"]

    def contains(self, entry: dict[str, Any]) -> None:
        assert entry["text"] in flat(self.request(entry))

    def not_contains(self, entry: dict[str, Any]) -> None:
        if entry["target"] == "summary_inputs":
            texts = [flat(call.messages) for call in self.server.summarising()]
            assert texts
        else:
            texts = [flat(self.request(entry))]
        assert not any(entry["text"] in text for text in texts)

    def count(self, entry: dict[str, Any]) -> None:
        assert flat(self.request(entry)).count(entry["text"]) == entry["value"]

    def order(self, entry: dict[str, Any]) -> None:
        text = flat(self.request(entry))
        places = [text.index(marker) for marker in entry["markers"]]
        assert places == sorted(places)

    def last_message(self, entry: dict[str, Any]) -> None:
        last = self.request(entry)[-1]
        assert last["role"] == entry["role"]
        assert entry["contains"] in last["content"]

    def est_tokens_max(self, entry: dict[str, Any]) -> None:
        assert self.case.lib.est(self.request(entry)) <= entry["value"]

    def no_error(self, entry: dict[str, Any]) -> None:
        assert [call.status for call in self.server.calls] == [200] * len(self.server.calls)
        assert self.server.calls

    def chat_calls(self, entry: dict[str, Any]) -> None:
        self._between(len(self.server.of("chat")), entry)

    def summary_calls(self, entry: dict[str, Any]) -> None:
        self._between(len(self.server.of("summary")), entry)

    def _between(self, number: int, entry: dict[str, Any]) -> None:
        assert entry.get("min", 0) <= number <= entry.get("max", number)

    def no_summary_text(self, entry: dict[str, Any]) -> None:
        assert not SessionSummary.objects.filter(summary_text__contains=entry["text"]).exists()

    def summaries(self, entry: dict[str, Any]) -> None:
        assert SessionSummary.objects.filter(session=self.session).count() == entry["count"]

    def prefix(self, entry: dict[str, Any]) -> None:
        requests = [call.messages for call in self.server.of("chat")]
        assert len(requests) > 1
        for earlier, later in pairwise(requests):
            assert later[: len(earlier)] == earlier

    def not_in_role(self, entry: dict[str, Any]) -> None:
        inputs = [m for call in self.server.summarising() for m in call.messages]
        assert inputs
        assert not [m for m in inputs if m["role"] == entry["role"] and entry["text"] in flat([m])]

    def well_formed_text(self, entry: dict[str, Any]) -> None:
        rows = originals(self.session)
        assert rows
        for row in rows:
            columns = (row.content, row.tool_calls, row.parts, row.reasoning, row.metadata)
            text = json.dumps(columns, ensure_ascii=False)
            assert "\x00" not in text
            assert "\\u0000" not in text
            text.encode("utf-8")

    def min(self, entry: dict[str, Any]) -> None:
        assert entry["target"] == "count_tokens"
        assert transcript_tokens(self.case) >= entry["value"]

    def time_max_s(self, entry: dict[str, Any]) -> None:
        assert entry["target"] == "count_tokens"
        text = self.case.lib.expand(entry["text"])
        started = time.thread_time()
        assert get_model("default").counter.count(text) > 0
        assert time.thread_time() - started < entry["value"]

    def equals(self, entry: dict[str, Any]) -> None:
        assert entry["target"] == "context_tokens"
        facts = context_backend.preview(fresh(self.session)).facts
        assert facts["reported_tokens"] == entry["value"]


def transcript_tokens(case: Case) -> int:
    """What the product's own counter of the default model says of the case's transcript."""
    counter = get_model("default").counter
    return sum(count_message(case.lib.wire(message), counter) for message in case.transcript)


def check(case: Case, server: ModelServer, session: Session, **special: Rule) -> None:
    """Apply every entry of the case's `checks`; `special` are the rules of this case alone.

    Besides, every chat request that was answered must be one that a strict server takes.
    """
    rules = _Rules(case, server, session)
    for entry in case.raw["checks"]:
        rule = special.get(entry["rule"]) or getattr(rules, entry["rule"])
        rule(entry)
    for call in server.of("chat"):
        served(case, call)


def ends_well(case: Case, server: ModelServer, session: Session) -> list[dict[str, Any]]:
    """Compact what a case stored, ask its question, and return the request that follows.

    A strict server takes that, and no marker is lost; a turn that fails ends with a sentence.
    """
    compact(session)
    try:
        ask(session, case.raw.get("next_user") or "and now?")
    except TurnFailedError as failure:
        assert str(failure).strip()
    request = list(context_backend.preview(fresh(session)).messages)
    served(case, request)
    # No compaction was tried without end.
    assert len(server.summarising()) <= 12
    known = case.lib.markers([one.summary_text for one in SessionSummary.objects.all()])
    assert case.markers <= known | case.lib.markers(request)
    return request
