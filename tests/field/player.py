"""Plays a field case through the product, and looks at what came of it.

What a case may hold is said in the README beside the cases; a check that nobody knows fails.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any

from rest_framework.test import APIClient

from chatapp.models import Incident, Message, Session
from compaction.models import CompactionRun, SessionSummary
from tests.chatapp.test_api_sessions import url
from tests.compaction.support import compact
from tests.factories import SessionFactory, talk
from tests.field.field_server import FieldServer


def expanded(value: Any) -> Any:
    """Return a value with each {"repeat": text, "times": n} in it written out."""
    if isinstance(value, dict):
        if set(value) == {"repeat", "times"}:
            return value["repeat"] * value["times"]
        return {key: expanded(one) for key, one in value.items()}
    return [expanded(one) for one in value] if isinstance(value, list) else value


class Play:
    """One case being played: what came back of each step."""

    def __init__(self, case: Mapping[str, Any], server: FieldServer, api: APIClient, owner: Any):
        self.server, self.api = server, api
        self.turns: list[dict[str, Any]] = []
        self.runs: list[CompactionRun] = []
        self.imports: list[tuple[int, Any]] = []
        # The cases, and the server's summaries, tell messages by markers of this shape.
        wires = talk(**case["talk"], mark="MK-{:04d}".format) if case.get("talk") else []
        wires += expanded(case.get("messages", []))
        prompt = case.get("system_prompt", "")
        self.session = SessionFactory(owner=owner, wires=wires, system_prompt=prompt)
        if case.get("api"):
            Session.objects.filter(pk=self.session.pk).update(api=case["api"])
            self.session.refresh_from_db()

    def step(self, step: Mapping[str, Any]) -> None:
        """Do one step."""
        act = getattr(self, f"do_{step['do']}")
        act(**{key: value for key, value in step.items() if key != "do"})

    def do_turn(self, body: Any) -> None:
        response = self.api.post(url(self.session, "turns/"), expanded(body), format="json")
        if not body.get("stream"):
            code = response.json().get("code", "")
            self.turns.append({"ok": response.status_code == 200, "code": code})
            return
        text = _drained(response).decode()
        names = re.findall(r"event: (\w+)", text)
        codes = re.findall(r'"code": "(\w+)"', text)
        self.turns.append({"ok": "done" in names, "code": codes[-1] if codes else ""})

    def do_post(self, body: Any) -> None:
        response = self.api.post(url(self.session, "messages/"), expanded(body), format="json")
        assert response.status_code == 201, response.content

    def do_compact(self) -> None:
        self.runs.append(compact(self.session))

    def do_import_file(self, lines: Any = None, value: Any = None) -> None:
        rows = [one if isinstance(one, str) else json.dumps(one) for one in lines or ()]
        text = "\n".join(rows) if lines else json.dumps(value)
        response = self.api.post(
            "/api/v1/sessions/import/", text.encode(), content_type="application/octet-stream"
        )
        found = response.json()
        self.imports.append((response.status_code, found))
        if sessions := found.get("sessions"):
            self.session = Session.objects.get(pk=sessions[0]["session"])

    def rows(self) -> list[Message]:
        """Return the session's messages in order."""
        return list(Message.objects.filter(session=self.session).order_by("position"))

    def answers(self) -> list[Message]:
        """Return the assistant's messages in order."""
        return [row for row in self.rows() if row.role == "assistant"]

    def summary(self) -> SessionSummary | None:
        """Return the newest summary."""
        return SessionSummary.objects.filter(session=self.session).order_by("created_at").last()

    def summary_text(self) -> str:
        """Return the newest summary's text; empty where there is none."""
        found = self.summary()
        return found.summary_text if found else ""

    def last_request(self) -> str:
        """Return the messages of the last turn's request as a text."""
        return json.dumps(self.server.chat()[-1]["messages"], ensure_ascii=False)

    def incidents(self) -> list[str]:
        """Return the codes of what was noted of the session."""
        return list(Incident.objects.filter(session=self.session).values_list("code", flat=True))


def _drained(response: Any) -> bytes:
    async def pieces() -> bytes:
        return b"".join([part async for part in response.streaming_content])

    return asyncio.run(pieces()) if response.is_async else b"".join(response.streaming_content)


class Checks:
    """What may be right of a case: a method a name, each with the rule's value."""

    def __init__(self, play: Play) -> None:
        self.play = play

    def fault(self, rule: Mapping[str, Any]) -> str:
        """Return what is wrong, with the rule; empty where it holds."""
        check = getattr(self, f"is_{rule['is']}")
        details = {key: value for key, value in rule.items() if key != "is"}
        try:
            holds = check(**details)
        except (IndexError, AttributeError) as error:
            return f"{rule}: {type(error).__name__}: {error}"
        return "" if holds else f"{rule}: {self._seen()}"

    def _seen(self) -> str:
        play = self.play
        runs = [(run.status, run.error[:300]) for run in play.runs]
        return (
            f"turns {play.turns}, runs {runs}, imports {play.imports}, "
            f"{len(play.server.requests)} requests, incidents {play.incidents()}, "
            f"summary {play.summary_text()[:200]!r}"
        )

    def is_turn_ok(self, value: int) -> bool:
        return bool(self.play.turns[value]["ok"])

    def is_turn_not_ok(self, value: int) -> bool:
        return not self.play.turns[value]["ok"]

    def is_turn_code(self, turn: int, value: list[str]) -> bool:
        return self.play.turns[turn]["code"] in value

    def is_run(self, value: str, number: int = 0) -> bool:
        return bool(self.play.runs[number].status == value)

    def is_no_failed_runs(self) -> bool:
        return not CompactionRun.objects.filter(status="failed").exists()

    def is_no_clean_summary(self) -> bool:
        found = self.play.summary()
        return found is None or found.truncated

    def is_summary_has(self, value: str) -> bool:
        return value in self.play.summary_text()

    def is_summary_lacks(self, value: str) -> bool:
        return value not in self.play.summary_text()

    def is_summary_calls_at_most(self, value: int) -> bool:
        return len(self.play.server.summarising()) <= value

    def is_summary_input_has(self, value: str) -> bool:
        calls = self.play.server.summarising()
        return any(value in json.dumps(call["messages"], ensure_ascii=False) for call in calls)

    def is_requests_at_most(self, value: int) -> bool:
        return len(self.play.server.requests) <= value

    def is_last_request_has(self, value: str) -> bool:
        return value in self.play.last_request()

    def is_last_request_lacks(self, value: str) -> bool:
        return value not in self.play.last_request()

    def is_answer_finish_not(self, value: list[str]) -> bool:
        answers = self.play.answers()
        return not answers or answers[-1].finish_reason not in value

    def is_answer_lacks(self, value: str) -> bool:
        return value not in (self.play.answers()[-1].content or "")

    def is_no_call_stored(self) -> bool:
        return not any(row.tool_calls for row in self.play.rows())

    def is_message_tokens_at_most(self, message: int, value: int) -> bool:
        return self.play.rows()[message].tokens <= value

    def is_no_warning(self, value: str) -> bool:
        return value not in self.play.incidents()

    def is_imported_has(self, value: str) -> bool:
        return self.play.imports[-1][0] < 300 and self._is_in_rows(value)

    def is_system_prompt_has(self, value: str) -> bool:
        session = self.play.session
        rules = [row.content or "" for row in self.play.rows() if row.role == "system"]
        return any(value in text for text in (session.system_prompt, *rules))

    def is_calls_imported(self, value: int) -> bool:
        return sum(len(row.tool_calls or []) for row in self.play.rows()) == value

    def is_refused_or_imported(self, value: str) -> bool:
        return self.play.imports[-1][0] == 422 or self._is_in_rows(value)

    def _is_in_rows(self, value: str) -> bool:
        return any(value in (row.content or "") for row in self.play.rows())
