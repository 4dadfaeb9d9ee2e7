"""Whole lives of sessions: acts drawn by the printed seed, in any order, under every preset.

After each act the rules that hold everywhere are looked at: nothing stored is changed or lost,
requests are strict and fit, what is sent is rebuilt as the server received it, nothing is left out
untold, and the doctor finds no error.
"""

from __future__ import annotations

import json
import random
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from chatapp import transcript
from chatapp.context.backend import context_backend
from chatapp.erasure import erase_user
from chatapp.models import Branch, Message, Session
from chatapp.selectors import path_messages
from chatapp.transcript.writing import NewMessage, TranscriptError
from chatapp.turns.rebuilding import rebuild
from chatapp.turns.service import Turn, run_turn
from compaction.branches.leases import Lease, ensure_state
from compaction.branches.snapshot import snapshot_of
from compaction.doctor.examine import examine
from compaction.engine.profile import PRESETS
from compaction.errors import CompactionError
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.profiles import save_profile
from compaction.runs import lifecycle
from compaction.runs.holding import lift_hold
from compaction.runs.resummarize import resummarize
from compaction.runs.scheduling import assign_profile
from compaction.runs.sweep import sweep_runs
from compaction.runs.switching import SwitchWishes, request_switch
from compaction.runs.worker import execute_run
from compaction.selectors import chain_of
from compaction.summaries.activating import Newer, activate_version
from compaction.summaries.editing import edit_summary
from compaction.summaries.restore import restore_summary
from tests import facts
from tests.compaction.support import compact
from tests.factories import SessionFactory, UserFactory, user
from tests.fakes.model_server import Call, ModelServer, estimate
from tests.fakes.strict_checker import faults

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

# So often is every act done in a life, in an order of its own.
ROUNDS = 2
WINDOW, ANSWER_ROOM = 4_000, 300
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
# Presets are made for large windows; a life is short.
SMALL: dict[str, dict[str, Any]] = {
    "bisect": {"message_limit": 12, "keep_last_n": 4, "max_context_tokens": 2_000},
    "sliding_window": {
        "context_size": 12,
        "tail_keep_size": 6,
        "compression_window_size": 4,
        "compression_hard_limit": 6,
        "compression_cooldown_sec": 0,
    },
    "checkpoint": {"keep_recent_tokens": 600, "reserve_tokens": 500, "target_summary_tokens": 250},
    "abridged": {
        "trigger_on_history_size_chars": 6_000,
        "trigger_on_history_size_chars_when_cache_expiring": 4_000,
        "history_tail_size_chars_to_exclude": 1_500,
        "abridged_total_chars_limit": 1_500,
    },
    "balanced": {"keep_recent_tokens": 600},
}
NONSENSE: list[dict[str, Any]] = [
    {"text": ""},
    {"text": "I cannot go on, because", "finish_reason": "length"},
    {"text": "never mind " * 900},
    {"text": "The model is at its limit.", "finish_reason": "content_filter"},
    {"tool_calls": [{"id": "n", "type": "function", "function": {"name": "x", "arguments": "{}"}}]},
    {"raw": "no json at all"},
    {"raw": {"choices": []}},
]
TOO_LARGE = {"code": "context_length_exceeded", "message": "The prompt is too long."}


class LivingServer(ModelServer):
    """Refuses what is too large for it, calls tools when told to, summarises by echoes."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed = WINDOW
        self.calls_tools = 0
        self.nonsense: dict[str, Any] | None = None
        self.broken: list[str] = []

    def answer(self, body: dict[str, Any], headers: dict[str, str]) -> tuple[Call, dict[str, Any]]:
        call, reply = super().answer(body, headers)
        self.broken += faults(call.messages)
        room = body.get("max_tokens") or body.get("max_completion_tokens") or 0
        if estimate(call.messages) + room > (self.allowed if call.purpose == "chat" else WINDOW):
            return call, {"error": {"status": 400, "body": {"error": TOO_LARGE}}}
        if call.purpose != "chat":
            return call, self.nonsense or reply
        if not self.calls_tools:
            return call, {"text": f"answer {len(self.calls)}"}
        # Servers use their ids again and again.
        calls = [
            {"id": f"call_{n}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
            for n in range(self.calls_tools)
        ]
        return call, {"tool_calls": calls}


@dataclass(kw_only=True)
class Life:
    """One session, what was seen of it, and what its server received for each answer."""

    session_id: Any
    preset: str
    server: LivingServer
    dice: random.Random
    client: APIClient
    number: int = 0
    did: Counter[str] = field(default_factory=Counter)
    rows: dict[Any, tuple[Any, ...]] = field(default_factory=dict)
    texts: dict[Any, tuple[Any, ...]] = field(default_factory=dict)
    sent: dict[Any, dict[str, Any]] = field(default_factory=dict)

    @property
    def session(self) -> Session:
        return Session.objects.select_related("active_branch").get(pk=self.session_id)

    @property
    def acts(self) -> list[Callable[[], None]]:
        return [
            self.turn, self.turn, self.streamed_turn, self.tool_loop, self.tool_loop, self.post,
            self.compact, self.restore, self.lift, self.pin, self.unpin, self.fork, self.switch,
            self.summarised_switch, self.again, self.activate, self.edit, self.change_profile,
            self.export_and_import, self.delete_fork, self.nonsense, self.refused_for_size,
            self.killed_worker, self.sweep, self.work, self.edited_question,
        ]  # fmt: skip

    def do(self, act: Callable[[], None]) -> None:
        """Do one act, which may be refused with a sentence, and look at everything."""
        # Shown where a life fails.
        print(act.__name__)
        try:
            act()
            self.did[act.__name__] += 1
        except (CompactionError, TranscriptError) as refusal:
            assert len(str(refusal)) > 20
            self.did["refused"] += 1
        self.check()

    # --- turns ------------------------------------------------------------------------------------

    def question(self) -> NewMessage:
        self.number += 1
        fact = facts.code(self.number)
        return NewMessage(wire=user(f"{fact} " + "lorem " * self.dice.choice([1, 20, 60, 150])))

    def answer(self, **given: Any) -> Message:
        """Take a turn, which never fails, and note what the server received for it."""
        answer = run_turn(Turn(session=self.session, **given)).answer
        call = [one for one in self.server.of("chat") if one.status == 200][-1]
        self.sent[answer.pk] = call.body
        return answer

    def turn(self) -> None:
        self.answer(drafts=[self.question()])

    def streamed_turn(self) -> None:
        self.answer(drafts=[self.question()], stream=True)

    def edited_question(self) -> None:
        asked = [row for row in path_messages(self.session.branch) if row.is_question]
        if asked:
            self.answer(drafts=[self.question()], edits=self.dice.choice(asked[-4:]))

    def tool_loop(self) -> None:
        self.server.calls_tools = self.dice.randint(1, 3)
        asked = self.answer(drafts=[self.question()])
        self.server.calls_tools = 0
        results = []
        for one in asked.tool_calls:
            self.number += 1
            text = f"{facts.code(self.number)} found " + "a line\n" * self.dice.choice([1, 40, 400])
            wire = {"role": "tool", "tool_call_id": one["id"], "content": text}
            results.append(NewMessage(wire=wire))
        self.answer(drafts=self.dice.sample(results, len(results)))

    def post(self) -> None:
        """The same post twice, as a client does that got no answer."""
        wires = [self.question().wire, {"role": "assistant", "content": "Noted."}]
        key, address = str(uuid.uuid4()), f"/api/v1/sessions/{self.session_id}/messages/"
        rows = Message.objects.filter(session=self.session_id, kind="message")
        before = rows.count()
        for _ in range(2):
            body = {"messages": wires}
            answer = self.client.post(
                address, body, format="json", headers={"Idempotency-Key": key}
            )
            assert answer.status_code in (200, 201), answer.content
        assert rows.count() == before + len(wires)
        assert self.told().count(wires[0]["content"]) == 1

    def refused_for_size(self) -> None:
        """The server takes less than it said."""
        self.server.allowed = WINDOW * 3 // 4
        try:
            self.turn()
        finally:
            self.server.allowed = WINDOW

    # --- summaries --------------------------------------------------------------------------------

    def summary(self, *statuses: str) -> SessionSummary:
        kinds = SessionSummary.objects.filter(session=self.session_id, kind="compaction")
        rows = list(kinds.filter(status__in=statuses).order_by("created_at", "pk"))
        if not rows:
            raise CompactionError("No summary of this kind is there yet.")
        return self.dice.choice(rows)

    def compact(self) -> None:
        compact(self.session)

    def nonsense(self) -> None:
        """Whatever the summariser says, the turn is answered, and no nonsense counts."""
        self.server.nonsense = self.dice.choice(NONSENSE)
        try:
            compact(self.session)
            self.turn()
        finally:
            self.server.nonsense = None

    def restore(self) -> None:
        restore_summary(self.summary("active"), cascade=self.dice.random() < 0.7)

    def lift(self) -> None:
        lift_hold(self.session)

    def again(self) -> None:
        resummarize(self.sent_summary(), replace_edited=True)

    def sent_summary(self) -> SessionSummary:
        """An active one that its own branch sends: a new version of another may hide messages."""
        summary = self.summary("active")
        if summary not in chain_of(summary.branch):
            raise CompactionError("Its branch sends another summary in its place.")
        return summary

    def activate(self) -> None:
        activate_version(self.summary("superseded", "restored"), newer=self.dice.choice([*Newer]))

    def edit(self) -> None:
        summary = self.sent_summary()
        edit_summary(summary, text=f"{summary.summary_text[:300]} By hand.", author=None)

    def change_profile(self) -> None:
        """To another preset now and then, or to a new version of its own."""
        if self.dice.random() < 0.5:
            assign_profile(self.session, self.dice.choice([self.preset, *SMALL]))
        else:
            rendering = self.dice.choice(["system", "merged_system", "user_tags", "node"])
            install(self.preset, rendering=rendering)

    # --- pins and branches ------------------------------------------------------------------------

    def pin(self) -> None:
        if Message.objects.filter(session=self.session_id, pinned=True).count() < 2:
            rows = [row for row in path_messages(self.session.branch) if row.tokens < 100]
            if rows:
                transcript.set_pinned(self.dice.choice(rows), True)

    def unpin(self) -> None:
        for row in Message.objects.filter(session=self.session_id, pinned=True)[:1]:
            transcript.set_pinned(row, False)

    def forked(self) -> Branch:
        rows = [row for row in path_messages(self.session.branch) if row.is_spoken]
        if not rows:
            raise TranscriptError("Nothing was said, so nothing can be forked.")
        return transcript.fork(self.session, at=self.dice.choice(rows))

    def fork(self) -> None:
        transcript.activate(self.session, self.forked())

    def other_branch(self) -> Branch:
        return self.dice.choice(Branch.objects.filter(session=self.session_id).order_by("pk"))

    def switch(self) -> None:
        transcript.switch(self.session, self.other_branch())

    def summarised_switch(self) -> None:
        request_switch(self.session, self.other_branch(), SwitchWishes(summarize=True))

    def delete_fork(self) -> None:
        """What nobody took up is gone; where somebody spoke, it stays."""
        branches = Branch.objects.filter(session=self.session_id)
        before = set(branches.values_list("pk", flat=True))
        transcript.delete_unused(self.forked())
        transcript.delete_unused(self.session.branch)
        assert set(branches.values_list("pk", flat=True)) == before

    def export_and_import(self) -> None:
        address = f"/api/v1/sessions/{self.session_id}/export/"
        document = self.client.get(address, {"as": "json"}).content
        other = APIClient()
        other.force_authenticate(UserFactory())
        kind = "application/octet-stream"
        answer = other.post("/api/v1/sessions/import/", document, content_type=kind).json()
        (item,) = answer["sessions"]
        copy = Session.objects.select_related("active_branch").get(pk=item["session"])
        assert said(copy) == said(self.session)
        assert errors(copy.pk) == []
        transcript.delete_session(copy)

    # --- work -------------------------------------------------------------------------------------

    def work(self) -> None:
        for run in CompactionRun.objects.filter(status="queued"):
            execute_run(run.pk)

    def sweep(self) -> None:
        sweep_runs()
        self.work()

    def killed_worker(self) -> None:
        """A worker takes a run and its lease and is never heard of again."""
        session, worker = self.session, uuid.uuid4()
        ensure_state(session.branch)
        request = lifecycle.RunRequest(
            session=session, branch=session.branch, trigger="manual", reason="manual",
            profile=snapshot_of(session).profile_row, background=True,
        )  # fmt: skip
        run = lifecycle.claim(lifecycle.request_run(request).pk, worker)
        Lease.acquire_or_steal(session.branch.pk, worker)
        long_ago = timezone.now() - timedelta(days=1)
        if run is not None:
            CompactionRun.objects.filter(pk=run.pk).update(started_at=long_ago)
        CompactionState.objects.filter(pk=session.branch.pk).update(lease_expires_at=long_ago)
        self.dice.choice([self.sweep, self.turn])()
        self.sweep()
        assert not CompactionRun.objects.filter(status="running").exists()

    # --- what holds everywhere --------------------------------------------------------------------

    def told(self) -> list[str]:
        return [row.content or "" for row in path_messages(self.session.branch)]

    def check(self) -> None:
        self.check_stored()
        self.check_requests()
        self.check_context()
        assert errors(self.session_id) == []

    def check_stored(self) -> None:
        """No message and no summary that was there is another one or gone."""
        spoken = Message.objects.filter(session=self.session_id, kind="message")
        columns = ("role", "content", "tool_calls", "tool_call_id", "reasoning", "branch_id")
        rows = {row["pk"]: tuple(row.values()) for row in spoken.values("pk", *columns)}
        assert {pk: rows.get(pk) for pk in self.rows} == self.rows
        self.rows = rows
        links: dict[Any, set[Any]] = {}
        summaries = SessionSummary.objects.filter(session=self.session_id).exclude(status="draft")
        for summary, message in summaries.values_list("pk", "links__message"):
            links.setdefault(summary, set()).add(message)
        texts = {one.pk: (one.summary_text, links.get(one.pk)) for one in summaries}
        assert {pk: texts.get(pk) for pk in self.texts} == self.texts
        assert all(text.strip() for text, _ in texts.values())
        self.texts = texts

    def check_requests(self) -> None:
        """All requests were strict, and those of some answers are what they were."""
        assert self.server.broken == []
        chosen = self.dice.sample(sorted(self.sent), min(3, len(self.sent)))
        assert [pk for pk in chosen if not self.is_rebuilt(pk)] == []

    def is_rebuilt(self, pk: Any) -> bool:
        found = rebuild(Message.objects.get(pk=pk)).body
        return json.dumps(found, sort_keys=True) == json.dumps(self.sent[pk], sort_keys=True)

    def check_context(self) -> None:
        """What no summary covers is sent, or it is told what is left out."""
        session = self.session
        context = context_backend.preview(session)
        # The next question is not among them yet.
        assert faults(list(context.messages), need_user=False) == []
        # A fork that nobody spoke in has no state of its own yet.
        cursor = snapshot_of(session).state.cursor
        text = json.dumps(context.messages)
        lacking = [
            row.pk
            for row in path_messages(session.branch)
            if (row.position > cursor or row.pinned)
            and row.role in ("user", "tool")
            and row.is_spoken
            and (row.content or "").split(" ")[0] not in text
        ]
        assert not lacking or context.left_out


def install(name: str, **changes: Any) -> None:
    common = {"cooldown_seconds": 0, "ledger": False}
    save_profile(name=name, base=name, parameters=common | SMALL[name] | changes)


def said(session: Session) -> list[tuple[str, str | None]]:
    return [(row.role, row.content) for row in path_messages(session.branch) if row.is_spoken]


def errors(session_id: Any) -> list[str]:
    return [f"{one.code}: {one.text}" for one in examine(session_id) if one.is_error]


@pytest.fixture
def server(use_models):
    with LivingServer() as server:
        use_models(
            server.models(CONTEXT_WINDOW=WINDOW, MAX_OUTPUT=ANSWER_ROOM), TOKEN_COUNTER="chars4"
        )
        yield server


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_whole_life_breaks_no_rule(owner, server, queued, preset):
    dice = random.Random(f"{facts.seed()} life {preset}")
    for name in SMALL:
        install(name)
    session = SessionFactory(owner=owner, system_prompt="Be brief.", tools=[TOOL])
    assign_profile(session, preset)
    client = APIClient()
    client.force_authenticate(owner)
    life = Life(session_id=session.pk, preset=preset, server=server, dice=dice, client=client)
    for _ in range(4):
        life.do(life.turn)
    for _ in range(ROUNDS):
        for act in dice.sample(life.acts, len(life.acts)):
            life.do(act)
    assert [pk for pk in life.sent if not life.is_rebuilt(pk)] == []
    assert SessionSummary.objects.filter(session=session).exists()
    erase_user(owner)
    assert not Message.objects.filter(session=session.pk).exists()
    assert not SessionSummary.objects.filter(session=session.pk).exists()
