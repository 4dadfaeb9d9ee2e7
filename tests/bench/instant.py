"""A model inside the process that answers at once, so that only our own work is measured."""

from __future__ import annotations

import re
from typing import Any

from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest, OnEvent, Reply, ignore_event
from compaction.engine.strategies.prompts import CHUNK_TITLE, MERGE_TITLE

ANSWER = "That is done: the report is in build/report.html and all 214 checks are green. " * 3
# Of the benchmark's messages as they go out, by the encoding that counts them.
CHARACTERS_A_TOKEN = 3.0
# Files, of which a summary names so many. Of numbers and codes, some are no messages': marks around
# the conversation, places and ids of calls. Who names those names what nobody wrote.
NAMED, MOST_NAMED = r"\bsrc/\w+\.py\b", 60
STATE = "## State\nThe report is there, and all checks are green.\n## Facts\n"
# Windows are large, so that one call takes in whatever a benchmark compacts.
WINDOW = 50_000_000


class InstantModel:
    """Answers chats and summaries alike with one short text and plausible usage."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config

    def complete(self, request: ModelRequest, on_event: OnEvent = ignore_event) -> Reply:
        """Return the answer without having read anything but how long it is.

        A report that has nothing to do with the request would be a warning of each turn.
        """
        read = sum(len(str(message)) for message in request.messages)
        asked = round(read / CHARACTERS_A_TOKEN) + self.config.request_frames(len(request.messages))
        usage = {"prompt_tokens": asked, "completion_tokens": 50, "total_tokens": asked + 50}
        text = self._summary(request) if _wants_summary(request) else ANSWER
        return Reply(text=text, usage=usage, model=self.config.name, response_id="instant")

    @staticmethod
    def _summary(request: ModelRequest) -> str:
        """Return a text that counts as a summary: it names some of what stands in its messages."""
        text = str(request.messages[-1].get("content"))
        found = list(dict.fromkeys(re.findall(NAMED, text)))
        few = found[:: max(1, len(found) // MOST_NAMED)]
        return STATE + "\n".join(f"- {name}" for name in few)


def _wants_summary(request: ModelRequest) -> bool:
    first = str(request.messages[0].get("content"))
    return first.startswith((CHUNK_TITLE, MERGE_TITLE))


def models() -> dict[str, dict[str, Any]]:
    """Return CHATAPP's MODELS with this model as `default`."""
    return {
        "default": {
            "BACKEND": "tests.bench.instant.InstantModel",
            "NAME": "instant",
            "CONTEXT_WINDOW": WINDOW,
            "MAX_OUTPUT": 1024,
            "ENCODING": "o200k_base",
        }
    }
