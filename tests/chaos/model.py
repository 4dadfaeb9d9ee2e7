"""The model server of the chaos: chat at once and always, summaries slowly, badly, or not at all.

A summary that counts repeats every mark of what was read, with the fact behind it, so that it can
be told afterwards whether a summary has really seen the messages that it stands for, and what a
request left out.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from random import Random
from typing import Any, Self

from tests.chaos.checks import Request
from tests.chaos.ledger import ANSWER, MARK, MARK_WITH_FACT
from tests.fakes.model_server import Call, ModelServer, purpose_of, text_of

ECHO = {"echo_markers": MARK_WITH_FACT.pattern, "prefix": "SUMMARY "}
# A mark by itself: an answer names its question's, too.
SAID = re.compile(rf"(?<!{ANSWER}){MARK.pattern}")
BROKEN = {"error": {"status": 500, "body": {"error": {"message": "The engine is on fire."}}}}
# What no summary may be made of (docs/architecture.md#only-a-real-summary-counts), and how often it
# comes.
BAD_ANSWERS: dict[str, tuple[int, dict[str, Any]]] = {
    "failed": (7, BROKEN),
    "empty": (3, {"text": ""}),
    "cut off": (3, ECHO | {"finish_reason": "length"}),
    "nonsense": (2, {"text": "Error: upstream connect error or disconnect before headers"}),
    "no JSON": (2, {"raw": "<html><body>Bad gateway</body></html>"}),
}
GOOD_WEIGHT = 83
SLOW_SHARE = 0.4
SLOW_SECONDS = (0.2, 3.0)


class UnsteadyModel(ModelServer):
    """A ModelServer that answers by chance; `steady()` makes it a good one."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.replies: Counter[str] = Counter()
        self.requests: list[Request] = []
        self._chance = Random(seed)
        self._chance_lock = threading.Lock()
        self._fails_until = 0.0
        self._is_steady = False

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    @property
    def port(self) -> int:
        """The port that summarising workers are connected to."""
        return int(self.url.rsplit(":", 1)[1].split("/")[0])

    def fail_for(self, seconds: float) -> None:
        """Answer no summary for a while."""
        self._fails_until = time.monotonic() + seconds

    def steady(self) -> None:
        """From now on every summary is good and comes at once."""
        self._is_steady = True

    def answer(self, body: dict[str, Any], headers: dict[str, str]) -> tuple[Call, dict[str, Any]]:
        """Return the call and how it is answered; bodies are not kept, there are too many."""
        purpose = purpose_of(body)
        self.calls.append(Call(purpose=purpose, body={}))
        call = Call(purpose=purpose, body=body, headers=headers)
        if purpose == "chat":
            question = _last_mark(call)
            said = frozenset(SAID.findall(call.text))
            self.requests.append(Request(question=question, said=said))
            return call, {"text": f"{ANSWER}{question}: it is done."}
        with self._chance_lock:
            name, reply = self._choose()
            self.replies[name] += 1
        return call, reply

    def _choose(self) -> tuple[str, dict[str, Any]]:
        if self._is_steady:
            return "good", ECHO
        if time.monotonic() < self._fails_until:
            return "failed", BROKEN
        weights = [GOOD_WEIGHT, *(weight for weight, _ in BAD_ANSWERS.values())]
        name = self._chance.choices(["good", *BAD_ANSWERS], weights)[0]
        reply = ECHO if name == "good" else BAD_ANSWERS[name][1]
        if self._chance.random() < SLOW_SHARE:
            return name, reply | {"delay_s": self._chance.uniform(*SLOW_SECONDS)}
        return name, reply


def _last_mark(call: Call) -> str:
    """Return the mark of the question that is to be answered."""
    for message in reversed(call.messages):
        if message["role"] == "user" and (found := MARK.match(text_of(message))):
            return found.group()
    return "nothing"
